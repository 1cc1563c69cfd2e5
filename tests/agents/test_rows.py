"""Sequences of rows that cross episodes' ends, against an agent that walks through them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.replay import Rows, episode_window, rows_at, transitions


def random_rows(seed: int, count: int, length: int) -> Rows:
    """Sequences whose first row is not ``last``; a termination is always followed by a last row."""
    generator = np.random.default_rng(seed)
    last = np.zeros((count, length), bool)
    terminated = np.zeros((count, length), bool)
    for b in range(count):
        for i in range(length - 1):
            if not last[b, i] and generator.random() < 0.3:
                last[b, i + 1] = True
                terminated[b, i] = generator.random() < 0.5
    return Rows(
        observation=jnp.asarray(generator.normal(size=(count, length, 2)), jnp.float32),
        action=jnp.asarray(generator.integers(3, size=(count, length)), jnp.int32),
        reward=jnp.asarray(generator.normal(size=(count, length)), jnp.float32),
        terminated=jnp.asarray(terminated),
        last=jnp.asarray(last),
    )


def walked(rows: Rows, b: int, discount: float) -> tuple[float, float, int]:
    """Return, what the value reached is worth, and the row reached, step by step."""
    total, worth, row = 0.0, 1.0, 0
    while row < rows.reward.shape[1] - 1 and not rows.last[b, row]:
        total += worth * float(rows.reward[b, row])
        worth *= discount
        if rows.terminated[b, row]:
            worth = 0.0
        row += 1
    return total, worth, row


@pytest.mark.parametrize("n_step", [1, 2, 5])
def test_transitions_are_those_of_an_agent_that_walks_until_its_episode_ends(n_step: int) -> None:
    rows = random_rows(n_step, 200, n_step + 1)
    found = jax.jit(transitions, static_argnums=1)(rows, 0.9)
    for b in range(200):
        total, worth, row = walked(rows, b, 0.9)
        np.testing.assert_allclose(found.reward[b], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.discount[b], worth, rtol=1e-6)
        if worth > 0.0:
            np.testing.assert_array_equal(found.next_observation[b], rows.observation[b, row])
        np.testing.assert_array_equal(found.observation[b], rows.observation[b, 0])
        assert found.action[b] == rows.action[b, 0]


def test_a_time_limit_keeps_the_value_of_the_state_it_cut_at_and_a_termination_does_not() -> None:
    rows = Rows(
        observation=jnp.arange(6, dtype=jnp.float32).reshape(2, 3, 1),
        action=jnp.zeros((2, 3), jnp.int32),
        reward=jnp.ones((2, 3), jnp.float32),
        terminated=jnp.asarray([[False, False, False], [True, False, False]]),
        last=jnp.asarray([[False, True, False], [False, True, False]]),
    )
    found = transitions(rows, 0.5)
    np.testing.assert_allclose(found.reward, [1.0, 1.0])
    np.testing.assert_allclose(found.discount, [0.5, 0.0])
    np.testing.assert_allclose(found.next_observation[:, 0], [1.0, 4.0])


def test_a_window_ends_with_the_last_observation_of_the_first_rows_episode() -> None:
    rows = random_rows(7, 300, 8)
    window = episode_window(rows)
    for b in range(300):
        lasts = np.flatnonzero(rows.last[b])
        end = int(lasts[0]) if len(lasts) else 7
        assert int(window.end[b]) == end
        np.testing.assert_array_equal(window.seen[b], np.arange(8) <= end)
        np.testing.assert_array_equal(window.taken[b], np.arange(8) < (end if len(lasts) else 8))
        assert bool(window.terminal[b]) == (len(lasts) > 0 and bool(rows.terminated[b, end - 1]))


def test_rows_at_takes_one_entry_of_each_sequence() -> None:
    values = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)
    found = rows_at(values, jnp.asarray([2, 0]))
    np.testing.assert_array_equal(found, [[8, 9, 10, 11], [12, 13, 14, 15]])
