"""What torsos are measured on, and that the measures are those of each agent's own torso."""

import dataclasses
from contextlib import closing

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlreps.agents import AgentConfig
from rlreps.agents.dqn import QNetwork, make_torso
from rlreps.agents.environments import make_host_environments
from rlreps.agents.measures import (
    COMPONENTS,
    coverage_distance,
    default_ground_truth,
    dormant_share,
    effective_rank,
    make_measure,
    make_measurement,
    random_rows,
)
from rlreps.agents.probes import probe_error
from rlreps.encoders import MLP, FunctionEncoder
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError
from rlreps.successor.released import load

CONFIG = AgentConfig(encoder=MLP(hidden=(16,)), num_features=8)


def config_for(environment):
    return dataclasses.replace(CONFIG, environment=environment)


class Brief(gymnasium.Env):
    """Episodes that a limit cuts after five steps, and nothing else."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self.place, {}

    def step(self, action):
        self.time += 1
        self.place = np.clip(self.place + np.float32(0.2 * action - 0.1), -1.0, 1.0)
        return self.place, float(action), False, self.time == 5, {}


@pytest.fixture(autouse=True)
def environments():
    """Registers this file's environment."""
    gymnasium.register(id="Brief-v0", entry_point=Brief)
    yield
    del gymnasium.registry["Brief-v0"]


@pytest.fixture(scope="module")
def truth():
    return load("sutton-100")


@pytest.fixture(scope="module")
def measurement(truth):
    return make_measurement(config_for("puddle-world"), truth)


def network_of(torso, num_features=COMPONENTS):
    return QNetwork(torso, num_features, 4)


def test_puddle_world_is_measured_at_the_ground_truths_states(measurement, truth):
    np.testing.assert_array_equal(measurement.inputs, truth.coordinates)
    np.testing.assert_array_equal(measurement.basis, truth.principal.basis[:, :COMPONENTS])
    assert measurement.probe.inputs.shape[1] == 2


@pytest.mark.integration
def test_features_that_span_the_components_are_at_no_distance(measurement):
    mixed = jnp.asarray(np.random.default_rng(0).normal(size=(COMPONENTS, COMPONENTS)), jnp.float32)

    def apply(params, positions):
        cells = (positions * 100).astype(jnp.int32)
        return 3.0 + 50.0 * measurement.basis[cells[:, 1] * 100 + cells[:, 0]] @ mixed * params

    torso = FunctionEncoder(lambda key: jnp.ones(()), apply)
    found = make_measure(network_of(torso), measurement)(jnp.array([1.0, 0.0]))
    assert float(found["subspace_distance"][0]) < 1e-4
    assert float(found["subspace_distance"][1]) == pytest.approx(1.0)
    # A torso without layers to tell of has no dormant units to count.
    assert set(found) == {"effective_rank", "probe_error", "subspace_distance"}


@pytest.mark.integration
def test_measures_are_those_of_each_agents_own_torso(measurement):
    torso = make_torso(CONFIG, (2,))
    network = network_of(torso, 8)
    torsos = jax.vmap(torso.init)(jax.random.split(jax.random.key(0), 3))
    found = make_measure(network, measurement)(torsos)
    for agent in range(3):
        own = jax.tree.map(lambda leaf, agent=agent: leaf[agent], torsos)
        features = torso.apply(own, measurement.inputs)
        expected = {
            "effective_rank": effective_rank(features),
            "dormant_share": dormant_share(torso.hidden_activations(own, measurement.inputs)),
            "subspace_distance": coverage_distance(features, measurement.basis),
            "probe_error": probe_error(
                torso.apply(own, measurement.probe.inputs), measurement.probe
            ),
        }
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert float(found[name][agent]) == pytest.approx(float(value), rel=1e-3), name
    assert all(len(np.unique(values)) == 3 for values in found.values())


def test_an_arena_without_a_ground_truth_is_measured_without_one():
    config = config_for("puddle-world:two_room")
    assert default_ground_truth(config) is None
    assert default_ground_truth(config_for("CartPole-v1")) is None
    measured = make_measurement(config)
    assert measured.basis is None
    np.testing.assert_array_equal(measured.inputs, measured.probe.inputs)


def test_a_ground_truth_of_the_arena_is_taken_and_one_of_another_refused(truth):
    with pytest.raises(InputError, match=r"expected a ground truth of the arena two_room, got \{"):
        make_measurement(config_for("puddle-world:two_room"), truth)
    settings = {"environment": arena_settings(load_arena("two_room"))}
    fitting = dataclasses.replace(truth, settings=settings)
    measured = make_measurement(config_for("puddle-world:two_room"), fitting)
    assert measured.basis.shape == (10_000, COMPONENTS)
    with pytest.raises(InputError, match="expected a ground truth for PuddleWorld alone, got 'Br"):
        make_measurement(config_for("Brief-v0"), truth)


def test_random_rows_are_an_episode_after_the_other():
    with closing(make_host_environments("Brief-v0", 3)) as environments:
        rows = random_rows(environments, 30, seed=1)
        again = random_rows(environments, 30, seed=1)
        other = random_rows(environments, 30, seed=2)
    jax.tree.map(np.testing.assert_array_equal, rows, again)
    assert np.any(rows.action != other.action)
    # Five steps and the row of the last observation, in every copy.
    np.testing.assert_array_equal(rows.last, np.tile(np.arange(30)[:, None] % 6 == 5, (1, 3)))
    assert not np.any(rows.terminated)
    taken = ~np.asarray(rows.last)
    np.testing.assert_array_equal(rows.reward[taken], rows.action[taken])
    moved = np.diff(np.asarray(rows.observation), axis=0)[taken[:-1]]
    # Observations are scaled from [-1, 1] to [0, 1].
    assert np.abs(moved).max() == pytest.approx(0.05, abs=1e-6)
    assert set(np.unique(np.asarray(rows.action))) == {0, 1}


def test_short_episodes_have_a_probe_of_short_sums():
    measured = make_measurement(config_for("Brief-v0"))
    assert measured.basis is None
    assert measured.probe.values.shape == (1_000, 16)
    # The task's rewards of four steps, 0 or 1 each, and not of the 64 that longer episodes have.
    rewards = np.asarray(measured.probe.values[:, -1])
    assert rewards.max() == pytest.approx(sum(0.95**power for power in range(4)))
    again = make_measurement(config_for("Brief-v0"))
    jax.tree.map(np.testing.assert_array_equal, measured.probe, again.probe)
