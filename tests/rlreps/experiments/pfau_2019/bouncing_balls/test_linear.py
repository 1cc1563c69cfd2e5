import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import WithConstant
from rlreps.envs import BouncingBalls
from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.bouncing_balls.linear import (
    Basis,
    explained,
    linear_slow_features,
    pixels,
    positions,
)
from rlreps.losses.base import Batch
from rlreps.operators import Slowness
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training.evaluation import sampled_moments

VIDEO = BouncingBalls(frame_size=16)
CORRELATIONS = np.asarray([0.98, 0.9, 0.7, 0.4, 0.0])
MIXING = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MixedSignals:
    """Pairs of mixed Gaussian signals, independent of each other and of known correlation."""

    num_tasks = None

    def sample(self, key, num_rows, num_tasks):
        before, noise = jax.random.normal(key, (2, num_rows // 2, 5))
        keep = jnp.asarray(CORRELATIONS, jnp.float32)[None, :]
        after = keep * before + jnp.sqrt(1.0 - keep**2) * noise
        signals = jnp.concatenate([before, after]) @ MIXING + 3.0
        return Batch(signals, jnp.zeros((num_rows, 0)))


IDENTITY = Basis(lambda inputs: inputs, np.zeros(5, np.int64))


def solve(components, count=3):
    return linear_slow_features(
        IDENTITY,
        MixedSignals(),
        jax.random.key(1),
        count,
        rows=1000,
        batches=40,
        components=components,
    )


def test_linear_analysis_finds_the_eigenvalues_of_signals_of_known_correlation():
    encoder = solve(5)
    moments = sampled_moments(
        WithConstant(encoder),
        encoder.init(None),
        Slowness(),
        MixedSignals(),
        jax.random.key(2),
        rows=1000,
        batches=40,
    )
    found = ordered_spectrum(*moments).eigenvalues
    np.testing.assert_allclose(found[1:], 2.0 * (1.0 - CORRELATIONS[:3]), rtol=0.03)
    assert abs(float(found[0])) < 1e-6
    # Of unit variance and mean zero on other draws, to their error.
    np.testing.assert_allclose(moments.covariance, np.eye(4), atol=0.03)


def test_fewer_components_than_features_are_refused():
    with pytest.raises(InputError, match="at least 3 components that vary, got 2"):
        solve(2)


def test_pixels_are_means_over_squares():
    frames = np.random.default_rng(0).uniform(size=(2, 16, 16, 1)).astype(np.float32)
    found = pixels(VIDEO, 4).function(jnp.asarray(frames))
    assert found.shape == (2, 16)
    np.testing.assert_allclose(found[1, 6], frames[1, 4:8, 8:12].mean(), rtol=1e-5)
    with pytest.raises(InputError, match=r"pooling that divides a frame's side \(16\), got 3"):
        pixels(VIDEO, 3)


def test_functions_of_positions_do_not_tell_balls_apart_and_are_the_cosines_stated():
    basis = positions(VIDEO, 2)
    # Degrees 1 and 2 of one ball, products of two waves of degree 1.
    np.testing.assert_array_equal(np.bincount(basis.bodies), [0, 5, 3])
    centres = np.random.default_rng(0).uniform(0.12, 0.88, size=(4, 3, 2)).astype(np.float32)
    found = basis.function(jnp.asarray(centres))
    np.testing.assert_allclose(
        basis.function(jnp.asarray(centres[:, [2, 0, 1]])), found, rtol=1e-4, atol=1e-5
    )
    sums = np.cos(np.pi * (centres - 0.12) / 0.76).sum(axis=1)
    for expected in (sums[:, 0], sums[:, 1], sums[:, 0] * sums[:, 1], sums[:, 0] ** 2):
        nearest = np.abs(np.asarray(found) - expected[:, None]).max(axis=0).min()
        assert nearest < 1e-5


def test_explained_shares_are_those_of_a_planted_model_and_chance_explains_nothing():
    draws = np.random.default_rng(0).normal(size=(9000, 4))
    target = draws[:, :1] * 3.0 + draws[:, 1:2] * 1.0 + 5.0
    both = np.column_stack([target, draws[:, 2]])
    np.testing.assert_allclose(explained(both, draws[:, :1]), [0.9, 0.0], atol=0.02)
    np.testing.assert_allclose(explained(both, draws[:, :3]), [1.0, 1.0], atol=1e-6)
    noise = np.random.default_rng(1).normal(size=(600, 200))
    assert explained(both[:600], noise).max() < 0.0
