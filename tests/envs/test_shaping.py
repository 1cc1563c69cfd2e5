"""Potential-based shaping keeps optimal policies: against exact values of a chain."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def steps_of(environment, clock=0):
    """Every step of every place: places reached, rewards and terminations, [places, actions]."""
    states = jnp.arange(STATES), jnp.full(STATES, clock, jnp.int32)
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
    # A cut keeps the potential of the state that it reached: a value still follows.
    cut = steps_of(SHAPED, clock=3)[1]
    following = np.where(terminated, 0.0, POTENTIAL[to])
    np.testing.assert_allclose(cut, rewards + DISCOUNT * following - POTENTIAL[:, None], atol=1e-5)
    # With their own potential at terminal states the best policy would be another.
    wrong = rewards + DISCOUNT * POTENTIAL[to] - POTENTIAL[:, None]
    spoilt = optimal_values(to, wrong, terminated)[inner].argmax(axis=1)
    assert (spoilt != plain[inner].argmax(axis=1)).any()


def test_what_is_no_potential_or_discount_is_refused():
    with pytest.raises(InputError, match="expected a function as potential, got 3"):
        ShapedEnvironment(Chain(), 3, 0.9)
    with pytest.raises(InputError, match=r"expected discount in \[0, 1\], got 1.5"):
        ShapedEnvironment(Chain(), look_up, 1.5)
