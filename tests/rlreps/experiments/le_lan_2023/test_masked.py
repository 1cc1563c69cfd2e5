"""Runs of several d in one program learn and are measured as each would be by itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.masked import masked_evaluation, masked_learners, masks
from rlreps.losses import DanskinLissa, Explicit, LargeBatch
from rlreps.sources.matrix import matrix_source
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig, make_learner

STATES, TASKS, LARGEST, D, HIDDEN = 40, 30, 6, 3, 16
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((STATES, TASKS)).astype(np.float32)
INPUTS = RNG.random((STATES, 2)).astype(np.float32)
ENCODER = MLP(LARGEST, num_inputs=2, hidden=(HIDDEN,))


def first_features(params):
    """Cut the parameters of an encoder down to those of its first D features."""
    return jax.tree.map(
        lambda leaf: leaf[..., :D] if leaf.shape[-1:] == (LARGEST,) else leaf, params
    )


ROLES = {"gradient_rows": 8, "weight_rows": 8, "covariance_rows": 8}


@pytest.mark.parametrize(
    "objective",
    [
        DanskinLissa(**ROLES),
        pytest.param(
            Explicit(weight_start=1.0, dense_optimizer=True), marks=pytest.mark.integration
        ),
        pytest.param(LargeBatch(weight_rows="all"), marks=pytest.mark.integration),
    ],
    ids=lambda objective: objective.name,
)
def test_a_masked_member_learns_as_an_encoder_of_fewer_features_would(objective):
    config = TrainingConfig(
        encoder=MLP(hidden=(HIDDEN,)),
        objective=objective,
        optimizer=Optimizer(learning_rate=1e-2, schedule="constant"),
        num_features=LARGEST,
        steps=10,
        rows=40,
        tasks=2,
    )
    sizes, seed = {"num_inputs": 2, "num_tasks": TASKS}, jnp.uint32(1)
    both = masked_learners(make_learner(config, **sizes), masks([D, LARGEST], LARGEST))
    masked = jax.tree.map(lambda leaf: leaf[0], both)
    alone = make_learner(dataclasses.replace(config, num_features=D), **sizes)

    @jax.jit
    def train(source):
        start = masked.init(seed)
        small = alone.init(seed)._replace(params=first_features(start.params))
        if isinstance(objective, Explicit):
            # Stored weights are drawn for as many features as there are.
            small = small._replace(objective=first_features(start.objective))
        after, expected = (
            learner.chunk(5, state, source, seed)[0].params
            for learner, state in ((masked, start), (alone, small))
        )
        return start.params, after, expected

    start, after, expected = train(matrix_source(MATRIX, INPUTS, with_population=True))
    pairs = zip(*map(jax.tree.leaves, (first_features(after), expected)), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5)
    moved = jax.tree.map(lambda new, old: jnp.abs(new - old).max(), after, start)
    assert max(map(float, jax.tree.leaves(moved))) > 1e-3


@pytest.mark.parametrize(
    ("objective", "name"),
    [(LargeBatch(precondition=1e-2), "precondition"), (DanskinLissa(whitening=True), "whitening")],
)
def test_objectives_that_depend_on_the_largest_d_are_refused(objective, name):
    config = TrainingConfig(objective=objective, num_features=LARGEST, rows=40)
    learner = make_learner(config, num_inputs=2, num_tasks=TASKS)
    with pytest.raises(InputError, match=f"without {name}"):
        masked_learners(learner, masks([D], LARGEST))


def test_the_distance_of_a_masked_member_is_that_of_its_own_features():
    key, inputs, dimensions = jax.random.key(0), jnp.asarray(INPUTS), (1, D, LARGEST)
    params = jax.jit(ENCODER.init)(key)
    basis = np.linalg.svd(MATRIX)[0][:, :LARGEST]
    evaluate = jax.jit(masked_evaluation(ENCODER, inputs, jnp.asarray(basis)))
    features = np.asarray(jax.jit(ENCODER.apply)(params, inputs), np.float64)
    for d, mask in zip(dimensions, masks(dimensions, LARGEST), strict=True):
        span, _ = np.linalg.qr(features[:, :d])
        expected = 1.0 - np.sum((span.T @ basis[:, :d]) ** 2) / d
        found = evaluate(params, mask)["subspace_distance"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        # A member that was reset has no features left, and is as far as can be.
        reset = evaluate(jax.tree.map(np.zeros_like, params), mask)["subspace_distance"]
        assert float(reset) == pytest.approx(1.0)
