"""Measures of torsos against definitions written out, and what they are taken on."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AgentConfig, QNetwork
from rlreps.agents.config import make_torso
from rlreps.agents.metrics import (
    COMPONENTS,
    Measurement,
    default_ground_truth,
    dormant_share,
    effective_rank,
    make_measure,
    make_measurement,
    missed_components,
)
from rlreps.encoders import MLP, Convolutional, FunctionEncoder
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError
from rlreps.successor.truth.ground_truth import distance_evaluation
from rlreps.successor.truth.released import load

rank_of = jax.jit(effective_rank)
dormant = jax.jit(dormant_share)
single = np.float32


def centred_frame(states, columns, seed=0):
    """Orthonormal columns [states, columns] with mean zero, float64."""
    noise = np.random.default_rng(seed).standard_normal((states, columns))
    return np.linalg.qr(noise - noise.mean(axis=0))[0]


class TestEffectiveRank:
    def test_it_is_the_exponential_of_the_entropy_of_the_singular_values(self):
        # Shares 1/2, 1/4, 1/8, 1/8 and nothing: entropy 7/4 bits.
        values = np.array([4.0, 2.0, 1.0, 1.0, 0.0, 0.0])
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
        features = centred_frame(40, 6) * values @ rotation
        # It does not change with scale nor with constants.
        for other, error in ((features, 1e-5), (1e3 * features, 1e-5), (features + 7.0, 1e-4)):
            assert rank_of(single(other)) == pytest.approx(2**1.75, rel=error)

    def test_differences_in_the_last_digit_and_constants_are_no_direction(self):
        # As products of matrices round the same row differently at different places.
        features = np.full((301, 3), 0.1, np.float32)
        features[::7, 0] = features[::5, 1] = np.nextafter(np.float32(0.1), np.float32(1.0))
        assert len(np.unique(features)) == 2
        assert rank_of(features) == 0.0
        beside = np.concatenate([np.full((301, 2), 0.3), centred_frame(301, 1)], axis=1)
        assert rank_of(single(beside)) == pytest.approx(1.0, abs=1e-5)
        beside[0, 0] = np.nan
        assert np.isnan(rank_of(single(beside)))


class TestDormantShare:
    def test_units_are_compared_with_the_mean_of_their_own_layer(self):
        # Mean activities: 1, 0.02, 0 (mean 0.34, limit 0.0085), and 100, 1 (mean 50.5, 1.26).
        first = single([[2.0, 0.01, 0.0], [0.0, -0.03, 0.0]])
        second = single([[100.0, -1.0], [-100.0, 1.0]])
        assert dormant([first, second]) == pytest.approx(2 / 5)
        assert dormant([first, second], 0.1) == pytest.approx(3 / 5)

    def test_channels_are_units_and_dead_layers_dormant_and_nan_is_not_hidden(self):
        frames = np.zeros((2, 3, 3, 4), np.float32)
        frames[1, 2, 0, 0] = 1.0
        assert dormant([frames]) == pytest.approx(3 / 4)
        layers = np.ones((2, 4, 3), np.float32)
        layers[0] = 0.0
        assert dormant([*layers]) == 0.5
        layers[1, 0, 0] = np.nan
        assert np.isnan(dormant([*layers]))
        assert dormant([]) == 0.0


def distance_of(features, basis):
    return missed_components(features, basis.astype(np.float64)).mean()


class TestMissedComponents:
    def test_fewer_features_copies_and_constants_leave_the_rest_uncovered(self):
        frame = centred_frame(30, 4)
        three = distance_of(single(frame[:, :3] + 1.0), single(frame))
        assert three == pytest.approx(0.25, abs=1e-6)
        one = frame[:, :1]
        features = np.concatenate([one, -2 * one, np.full((30, 1), 0.3), one + 5], axis=1)
        assert distance_of(single(features), single(frame)) == pytest.approx(0.75, abs=1e-6)
        constant = np.full((30, 2), 0.1, np.float32)
        assert distance_of(constant, single(frame)) == pytest.approx(1.0, abs=1e-6)

    def test_directions_in_which_features_vary_little_count(self):
        frame = centred_frame(10_000, 6)
        features = single(frame * np.array([1.0, 0.3, 1e-2, 1e-3, 1e-4, 3e-5]) + 0.5 * frame[:, :1])
        double = features.astype(np.float64)
        left = np.linalg.svd(double - double.mean(axis=0), full_matrices=False)[0]
        expected = 1.0 - np.square(left.T @ frame).sum() / 6
        assert expected < 1e-4
        assert distance_of(features, frame) == pytest.approx(expected, abs=1e-6)

    def test_features_that_are_not_finite_are_told(self):
        features = single(centred_frame(30, 2))
        features[3, 1] = np.inf
        assert np.isnan(missed_components(features, centred_frame(30, 2))).all()
        with pytest.raises(InputError, match="expected features of 29 states, got 30"):
            missed_components(features, centred_frame(29, 2))


CONFIG = AgentConfig(encoder=MLP(hidden=(16,)), num_features=8)


def config_for(environment):
    return dataclasses.replace(CONFIG, environment=environment)


@pytest.fixture(scope="module")
def truth():
    return load("sutton-100")


@pytest.mark.integration
def test_the_leading_components_and_as_many_as_features_are_two_measures(truth):
    """Features of components 1 to 10 and 13 to 16 lack two of the leading 14, and none of 10."""
    config = dataclasses.replace(CONFIG, environment="puddle-world", num_features=14)
    measurement = make_measurement(config, truth)
    np.testing.assert_array_equal(measurement.basis, truth.principal.basis[:, :14])
    chosen = single(np.delete(truth.principal.basis[:, :16], [10, 11], axis=1))

    def apply(params, positions):
        cells = (positions * 100).astype(jnp.int32)
        return params * jnp.asarray(chosen)[cells[:, 1] * 100 + cells[:, 0]]

    network = QNetwork(FunctionEncoder(lambda key: jnp.ones(()), apply), 14, 4)
    found = make_measure(network, measurement)(jnp.ones(1))
    assert float(found["leading_distance"][0]) < 1e-4
    assert float(found["subspace_distance"][0]) == pytest.approx(2 / 14, abs=1e-3)
    few = dataclasses.replace(measurement, basis=measurement.basis[:, :12])
    assert "subspace_distance" not in make_measure(network, few)(jnp.ones(1))


def test_programs_keep_no_larger_constants_than_the_images_on_which_they_measure():
    """XLA folds convolutions of constant images, which once took longer than all other work."""
    images = jax.random.uniform(jax.random.key(0), (50, 24, 24, 3))
    encoder = make_torso(dataclasses.replace(CONFIG, encoder=Convolutional()), images.shape[1:])
    params = encoder.init(jax.random.key(1))
    measurement = Measurement(inputs=images, basis=None)
    measure = make_measure(QNetwork(encoder, CONFIG.num_features, 4), measurement)
    stacked = jax.tree.map(lambda leaf: leaf[None], params)
    followed = jax.jit(distance_evaluation(encoder, images, centred_frame(50, 4)))
    for program, given in ((measure, stacked), (followed, params)):
        text = program.lower(given).compile().as_text()
        sizes = [
            math.prod(int(size) for size in shape.split(","))
            for shape in re.findall(r"= \w+\[([\d,]+)\]\S* constant\(", text)
        ]
        assert max(sizes) == images.size


def test_a_ground_truth_of_the_arena_is_taken_if_there_is_one_and_one_of_another_refused(truth):
    config = config_for("puddle-world:two_room")
    assert default_ground_truth(config) is None
    assert default_ground_truth(config_for("CartPole-v1")) is None
    measured = make_measurement(config)
    assert measured.basis is None
    assert measured.inputs.shape == (525, 2)  # Of 25 x 25 cells, 100 in the wall.
    with pytest.raises(InputError, match=r"expected a ground truth of the arena two_room, got \{"):
        make_measurement(config, truth)
    settings = {"environment": arena_settings(load_arena("two_room"))}
    fitting = dataclasses.replace(truth, settings=settings)
    measured = make_measurement(config, fitting)
    assert measured.basis.shape == (10_000, COMPONENTS)
    with pytest.raises(InputError, match="expected a ground truth for PuddleWorld alone, got 'Ca"):
        make_measurement(config_for("CartPole-v1"), truth)


def test_other_environments_are_measured_where_random_actions_lead():
    measured, again = (make_measurement(config_for("CartPole-v1")) for _ in range(2))
    assert measured.basis is None
    assert measured.inputs.shape == (1_000, 4)
    np.testing.assert_array_equal(measured.inputs, again.inputs)
    assert len(np.unique(measured.inputs, axis=0)) > 900
    found = make_measure(QNetwork(make_torso(CONFIG, (4,)), 8, 2), measured)
    torsos = jax.vmap(make_torso(CONFIG, (4,)).init)(jax.random.split(jax.random.key(0), 1))
    assert set(found(torsos)) == {"effective_rank", "dormant_share"}
