"""Values over PuddleWorld against rollouts of the environment itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.probes import _discounted_sums, _moves, probe_error, puddle_world_probe
from rlreps.envs import PuddleWorldState, load_arena
from rlreps.errors import InputError
from rlreps.successor.grids import Grid

BINS = 25
GRID = Grid(BINS)
RIGHT_OFTEN = jnp.asarray([0.2, 0.5, 0.1, 0.2])
DISCOUNT, STEPS, ROLLOUTS = 0.9, 60, 2000


def sampled_returns(environment, cell, reward_of):
    """Discounted returns [ROLLOUTS] from a cell, of the task or of a reward of positions."""

    def rollout(key):
        def step(carry, key):
            state, alive = carry
            step_key, action_key = jax.random.split(key)
            action = jax.random.choice(action_key, 4, p=RIGHT_OFTEN)
            out = environment.step(step_key, state, action)
            reward = out.reward if reward_of is None else reward_of(state.position)
            going_on = alive & ~(out.terminated & (reward_of is None))
            return (out.state, going_on), jnp.where(alive, reward, 0.0)

        position = GRID.sample(jax.random.fold_in(key, STEPS), jnp.asarray(cell))
        start = PuddleWorldState(position, jnp.zeros((), jnp.int32))
        _, rewards = jax.lax.scan(step, (start, jnp.asarray(True)), jax.random.split(key, STEPS))
        return jnp.sum(rewards * DISCOUNT ** jnp.arange(STEPS, dtype=jnp.float32))

    return jax.vmap(rollout)(jax.random.split(jax.random.key(5), ROLLOUTS))


@pytest.mark.parametrize("own_reward", [True, False])
def test_values_are_those_of_rollouts_up_to_the_grid(own_reward):
    environment = load_arena("sutton").with_task()
    moves = _moves(environment, GRID, jax.random.key(0))
    policy = np.broadcast_to(np.asarray(RIGHT_OFTEN, np.float64), (GRID.num_cells, 4))

    def reward_of(position):
        return jnp.sin(4.0 * position[0]) + position[1]

    if own_reward:
        reward = np.sum(policy * moves.rewards, axis=1)[:, None]
    else:
        reward = np.asarray(jax.vmap(reward_of)(jnp.asarray(GRID.centres())), np.float64)[:, None]
    chain = moves.on if own_reward else moves.to
    values = _discounted_sums(policy, chain, reward, DISCOUNT)[:, 0]
    sample = jax.jit(
        lambda cell: sampled_returns(environment, cell, None if own_reward else reward_of)
    )
    for place in ((0.2, 0.3), (0.45, 0.6), (0.85, 0.85)):
        cell = int(GRID.cell(jnp.asarray(place)))
        returns = np.asarray(sample(cell))
        noise = returns.std() / np.sqrt(ROLLOUTS)
        # Cut at γ^60 = 0.002; and a chain over cells blurs its values by some percent.
        assert abs(values[cell] - returns.mean()) < 4 * noise + 0.05 * values.std()


def test_probabilities_sum_to_one_and_episodes_end_only_at_the_goal():
    moves = _moves(load_arena("sutton").with_task(), GRID, jax.random.key(0))
    np.testing.assert_allclose(moves.to.sum(axis=2), 1.0)
    ending = 1.0 - moves.on.sum(axis=2)
    near = GRID.centres().sum(axis=1) > 1.9 - 0.05 - 0.04 - 0.1
    assert np.all(ending[:, ~near] == 0.0)
    assert np.all(ending[:, -1] > 0.2)


def test_walls_are_no_states_and_nothing_goes_through_them():
    grid = GRID
    # With this key, rounding lets one of 256 starts get out of a cell within a wall.
    moves = _moves(load_arena("two_room"), grid, jax.random.key(1))
    x, y = grid.centres().T
    wall = (x > 0.4) & (x < 0.6) & ((y > 0.6) | (y < 0.4))
    np.testing.assert_array_equal(moves.cells, np.flatnonzero(~wall))
    np.testing.assert_allclose(moves.to.sum(axis=2), 1.0)
    left, right = (x[moves.cells] < 0.4), (x[moves.cells] > 0.6)
    door = (y[moves.cells] > 0.4) & (y[moves.cells] < 0.6)
    assert moves.to[:, left & ~door][:, :, right].sum() == 0.0


def test_agents_that_a_wall_stops_stay_in_the_cells_beside_it():
    # Without noise they all stand on its edge, which is the edge of a cell that is no state.
    moves = _moves(load_arena("two_room", noise=0.0), GRID, jax.random.key(0))
    x, y = GRID.centres()[moves.cells].T
    beside = np.flatnonzero((x > 0.36) & (x < 0.4) & (y > 0.6))
    np.testing.assert_allclose(moves.to[1, beside, beside], 1.0)
    below = np.flatnonzero((y > 0.56) & (y < 0.6) & (x > 0.4) & (x < 0.6))
    np.testing.assert_allclose(moves.to[0, below, below], 1.0)


def test_the_probe_has_a_column_for_each_policy_and_reward_and_fits_half_of_the_cells():
    environment = load_arena("sutton")
    plain = puddle_world_probe(environment, bins=10, num_policies=3, num_rewards=2)
    assert plain.inputs.shape == (100, 2)
    assert plain.values.shape == (100, 6)
    assert int(plain.train.sum()) == 50
    task = puddle_world_probe(environment.with_task(), bins=10, num_policies=3, num_rewards=2)
    assert task.values.shape == (100, 9)
    waves = np.delete(np.asarray(task.values), [2, 5, 8], axis=1)
    np.testing.assert_allclose(waves, plain.values, rtol=1e-4, atol=1e-4)
    assert np.all(np.asarray(task.values)[:, [2, 5, 8]] <= -1.0)


@pytest.mark.integration
def test_without_a_future_values_are_the_rewards_whatever_the_policy():
    probe = puddle_world_probe(
        load_arena("sutton"), bins=10, num_policies=2, num_rewards=3, discount=0.0
    )
    now, again = np.asarray(probe.values[:, :3]), np.asarray(probe.values[:, 3:])
    np.testing.assert_allclose(now, again, atol=1e-6)
    assert np.abs(now).max() <= np.sqrt(2.0) + 1e-6
    later = puddle_world_probe(
        load_arena("sutton"), bins=10, num_policies=2, num_rewards=3, discount=0.9
    )
    assert not np.allclose(later.values[:, :3], later.values[:, 3:], atol=0.1)


@pytest.mark.integration
def test_the_seed_decides_policies_rewards_and_the_states_to_fit():
    environment = load_arena("sutton")
    one, again, other = (puddle_world_probe(environment, bins=10, seed=seed) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert not np.allclose(one.values, other.values)
    assert not np.array_equal(one.train, other.train)


@pytest.mark.integration
def test_more_waves_predict_the_values_better():
    probe = puddle_world_probe(load_arena("sutton"), bins=10, length_scale=0.5)

    def error(count):
        angles = jnp.pi * probe.inputs[:, :, None] * jnp.arange(float(count))[None, None]
        waves = jnp.cos(angles)
        products = waves[:, 0, :, None] * waves[:, 1, None, :]
        return float(probe_error(products.reshape(len(products), -1), probe))

    errors = [error(count) for count in (1, 2, 4)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] >= 1.0
    assert errors[-1] < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, "expected bins >= 2, got 1"),
        ({"num_policies": 0}, "expected num_policies >= 1, got 0"),
        ({"num_rewards": 0}, "expected num_rewards >= 1, got 0"),
        ({"discount": 1.0}, r"expected discount in \[0, 1\), got 1.0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        puddle_world_probe(load_arena("empty"), **options)
