"""The cells' model against rollouts, sums and linear programs; free transitions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import PuddleWorldState
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import CONTROL_ARENA, AtCells
from rlreps.experiments.ours.tabular import with_rewards
from rlreps.successor.measure.grids import Grid
from rlreps.worlds import World


@pytest.fixture
def small():
    """Five cells and three actions."""
    rng = np.random.default_rng(0)
    return World.from_arrays(
        next_states=np.zeros((5, 3), int),
        rewards=np.zeros((5, 3)),
        coordinates=rng.random((5, 2), np.float32),
        names=("x", "y"),
    )


def test_discs_hold_the_cells_within_their_radius_and_the_one_at_their_centre(small):
    centres = small.coordinates
    offsets = np.linalg.norm(centres - centres[2], axis=1)
    wide = np.sort(offsets)[2]
    found = mazes.discs(small, [(*centres[2], 1.01 * wide), (*centres[4], 0.0)])
    assert found[:, 0].tolist() == (offsets <= wide).tolist()
    assert found[:, 1].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.integration
def test_policy_values_are_mean_returns_of_the_environment():
    model, discount, horizon, each = mazes.cell_world("five_corridors"), 0.8, 60, 16
    world, grid = mazes.world_of("five_corridors", max_steps=None), Grid(mazes.BINS)
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.full(4, 0.5), size=model.num_states)
    rewards = model.coordinates[:, 0] + rng.random(model.num_states)
    values = with_rewards(model, rewards).policy_values(policy, discount)
    index = np.zeros(grid.num_cells, np.int32)
    index[mazes.places_of(model)] = np.arange(model.num_states)
    places = jnp.asarray(index)
    cells = jnp.asarray(mazes.places_of(model))
    logits = jnp.log(jnp.asarray(policy, jnp.float32))

    def within(key, cell):
        """A place in a cell, outside the walls."""
        draws = jax.vmap(grid.sample, in_axes=(0, None))(jax.random.split(key, 16), cell)
        free = jax.vmap(world._is_free)(draws)
        return draws[jnp.argmax(free)]

    def rollout(key, start):
        def step(place, key):
            at, chosen, moved = jax.random.split(key, 3)
            position = within(at, cells[place])
            action = jax.random.categorical(chosen, logits[place])
            state = PuddleWorldState(position, jnp.zeros((), jnp.int32))
            end = world.step(moved, state, action).state.position
            reached = places[grid.cell(end + 1e-3 * (position - end))]
            return reached, jnp.asarray(rewards, jnp.float32)[reached]

        _, seen = jax.lax.scan(step, start, jax.random.split(key, horizon))
        return jnp.sum(seen * discount ** jnp.arange(horizon, dtype=jnp.float32))

    starts = jnp.repeat(jnp.arange(model.num_states, dtype=jnp.int32), each)
    returns = jax.jit(jax.vmap(rollout))(jax.random.split(jax.random.key(1), len(starts)), starts)
    differences = np.asarray(returns, np.float64) - np.repeat(values, each)
    spread = np.repeat(values - values.mean(), each)
    for weights in (np.ones(len(differences)), spread / spread.std()):
        weighted = weights * differences
        assert abs(weighted.mean()) < 4.0 * weighted.std() / np.sqrt(len(weighted))
    assert np.corrcoef(returns, np.repeat(values, each))[0, 1] > 0.5


@pytest.mark.integration
def test_free_transitions_end_at_the_cap_alone_and_their_codes_have_cells():
    data = mazes.free_transitions("five_corridors", 900, seed=0)
    assert len(data) == 900
    assert not data.terminated.any()
    assert np.flatnonzero(data.truncated).tolist() == [299, 599, 899]
    world = mazes.cell_world("five_corridors")
    seen = world.observations[mazes.cells_of(world, data.observation)]
    np.testing.assert_array_equal(seen, data.observation)


@pytest.mark.integration
def test_cells_of_positions_are_those_of_the_grid():
    world = mazes.cell_world(CONTROL_ARENA)
    found = mazes.cells_of(world, world.observations)
    np.testing.assert_array_equal(found, np.arange(world.num_states))


def test_a_policy_is_uniform_and_features_are_nought_where_a_code_is_not_known(small):
    @dataclasses.dataclass
    class Constant:
        def features(self, inputs, scaling):
            return np.ones((len(inputs), 2))

        def policy(self, task, improvements):
            return lambda inputs: np.asarray(inputs) % 3

    known = np.array([True, True, False, True, False])
    rep = AtCells(Constant(), None, small, np.arange(5), known)
    policy = rep.policy(np.ones(2))
    np.testing.assert_allclose(policy[~known], 1 / 3)
    assert policy[known].argmax(axis=1).tolist() == [0, 1, 0]
    assert rep.features("white").sum(axis=1).tolist() == [2, 2, 0, 2, 0]
