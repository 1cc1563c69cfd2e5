"""Potential-based shaping keeps optimal policies: against exact values of a chain."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.replay import ReplayRows, transitions
from rlreps.envs import ShapedEnvironment
from rlreps.envs.core import TimeStep
from rlreps.errors import InputError

STATES, DISCOUNT = 7, 0.9
POTENTIAL = np.array([9.0, -2.0, 3.0, 0.5, -4.0, 1.0, -9.0], np.float32)
"""Largest where an end pays little, least where it pays much."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chain:
    """Places 0 ... 6 and a clock of four steps; 0 terminates with reward 1, 6 with 3; no chance."""

    num_actions = 2

    def reset(self, key):
        return jax.random.randint(key, (), 1, STATES - 1), jnp.zeros((), jnp.int32)

    def observe(self, state):
        return jax.nn.one_hot(state[0], STATES)

    def step(self, key, state, action):
        place = jnp.clip(state[0] + 2 * jnp.asarray(action, jnp.int32) - 1, 0, STATES - 1)
        state = (place, state[1] + 1)
        reward = jnp.array([1.0, -0.5, -0.25, -0.5, -0.25, -0.5, 3.0])[place]
        ended = (place == 0) | (place == STATES - 1)
        return TimeStep(state, self.observe(state), reward, ended, state[1] >= 4)


def look_up(table, state):
    return table[state[0]]


SHAPED = ShapedEnvironment(
    Chain(), jax.tree_util.Partial(look_up, jnp.asarray(POTENTIAL)), DISCOUNT
)


def steps_of(environment):
    """Every step of every place: places reached, rewards and terminations, [places, actions]."""
    states = jnp.arange(STATES), jnp.zeros(STATES, jnp.int32)
    both = jax.vmap(environment.step, in_axes=(None, None, 0))
    taken = jax.vmap(both, in_axes=(None, 0, None))(jax.random.key(0), states, jnp.arange(2))
    return np.asarray(taken.state[0]), np.asarray(taken.reward), np.asarray(taken.terminated)


def optimal_values(to, rewards, terminated):
    values = np.zeros((STATES, 2))
    for _ in range(500):
        values = rewards + DISCOUNT * np.where(terminated, 0.0, values.max(axis=1)[to])
    return values


def test_shaping_moves_optimal_action_values_by_the_potential_alone():
    to, rewards, terminated = steps_of(Chain())
    plain, shaped = optimal_values(to, rewards, terminated), optimal_values(*steps_of(SHAPED))
    inner = slice(1, STATES - 1)
    np.testing.assert_allclose(shaped[inner], (plain - POTENTIAL[:, None])[inner], atol=1e-4)
    np.testing.assert_array_equal(shaped[inner].argmax(axis=1), plain[inner].argmax(axis=1))
    # With their own potential at terminal states the best policy would be another.
    wrong = rewards + DISCOUNT * POTENTIAL[to] - POTENTIAL[:, None]
    spoilt = optimal_values(to, wrong, terminated)[inner].argmax(axis=1)
    assert (spoilt != plain[inner].argmax(axis=1)).any()


def roll(environment, key):
    """64 rows of random actions: episodes that terminate and others that are cut."""

    @jax.jit
    def rows(environment, key):
        def step(carry, action):
            state, ended = carry
            taken = environment.step(key, state, action)
            fresh = (jnp.full((), 3), jnp.zeros((), jnp.int32))
            row = ReplayRows(state[0], action, taken.reward, taken.terminated, ended)
            following = jax.tree.map(partial(jnp.where, ended), fresh, taken.state)
            return (following, ~ended & (taken.terminated | taken.truncated)), row

        actions = jax.random.randint(key, (64,), 0, 2)
        start = (jnp.full((), 3), jnp.zeros((), jnp.int32)), jnp.asarray(False)
        return jax.lax.scan(step, start, actions)[1]

    return jax.tree.map(np.asarray, rows(environment, key))


def test_n_step_targets_move_by_the_potential_across_terminations_and_truncations():
    """For bootstrapped values of any size, not those of a policy alone."""
    values = np.random.default_rng(0).normal(size=STATES).astype(np.float32)
    histories = [roll(environment, jax.random.key(1)) for environment in (Chain(), SHAPED)]
    for length in (2, 3, 5):
        begins = np.flatnonzero(~histories[0].last[:-length])
        places = begins[:, None] + np.arange(length)
        plain, shaped = (
            transitions(ReplayRows(*(jnp.asarray(column[places]) for column in history)), DISCOUNT)
            for history in histories
        )
        # Sequences that end at a terminal state, that are cut, and that go on.
        assert len(np.unique(plain.discount)) == length
        target = plain.reward + plain.discount * values[plain.next_observation]
        other = shaped.reward + shaped.discount * (values - POTENTIAL)[shaped.next_observation]
        np.testing.assert_allclose(other, target - POTENTIAL[plain.observation], atol=1e-4)


def test_what_is_no_potential_or_discount_is_refused():
    with pytest.raises(InputError, match="expected a function as potential, got 3"):
        ShapedEnvironment(Chain(), 3, 0.9)
    with pytest.raises(InputError, match=r"expected discount in \[0, 1\], got 1.5"):
        ShapedEnvironment(Chain(), look_up, 1.5)
