"""What agents remember: rows in order of time, cut into sequences that may cross episodes' ends.

A row holds an observation and what was done there. The last observation of an episode has a row of
its own, whose action was never taken (``last``), as in dm_env and in Gymnasium's next-step
autoreset. So the next observation of a step is always the next row, after a time limit too, and no
observation is kept twice.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Rows(NamedTuple):
    """Rows; the leading axes are the same everywhere: [...] below.

    Attributes:
        observation: What the agent saw, [..., *observation].
        action: What it did, [...] (int32).
        reward: What it got for it, [...] (float32).
        terminated: Whether that ended the task, so that nothing is to be had beyond it, [...].
        last: Whether the row is the last observation of its episode: its action was not taken, and
            its reward and ``terminated`` mean nothing, [...].
    """

    observation: Array
    action: Array
    reward: Array
    terminated: Array
    last: Array


class Window(NamedTuple):
    """Which rows of sequences [b, l] belong to the episode that their first row is in.

    Attributes:
        seen: Whether a row's observation does, [b, l]; always true of the first.
        taken: Whether its action was taken in it, [b, l].
        end: Index of the last row that was seen, [b].
        terminal: Whether the task ended there: nothing is to be had from it on, [b].
    """

    seen: Array
    taken: Array
    end: Array
    terminal: Array


def episode_window(rows: Rows) -> Window:
    """The first rows' episodes within sequences of rows [b, l]."""
    taken = jnp.cumprod(~rows.last, axis=1, dtype=jnp.int32).astype(bool)
    seen = jnp.concatenate([jnp.ones_like(taken[:, :1]), taken[:, :-1]], axis=1)
    end = jnp.sum(seen, axis=1, dtype=jnp.int32) - 1
    ended = jnp.any(taken[:, :-1] & rows.terminated[:, :-1], axis=1)
    return Window(seen, taken, end, ended)


class Transitions(NamedTuple):
    """Steps of one action and up to n rewards.

    Attributes:
        observation: S_t, [b, *observation].
        action: A_t, [b].
        reward: Discounted sum of the rewards on the way, [b].
        discount: What the value of the state they end in is worth, γ^m or 0, [b].
        next_observation: S_{t+m}, m the number of rewards, [b, *observation].
    """

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array


def transitions(rows: Rows, discount: float) -> Transitions:
    """n-step transitions from sequences of n + 1 rows (Sutton & Barto 2018, Eq. 7.1).

    A sequence that meets its episode's end before n steps gives a shorter one. A time limit cuts
    it, but the value of the state reached counts; after a termination nothing does.

    Args:
        rows: [b, n + 1], none of the first ones ``last``.
        discount: γ.
    """
    window = episode_window(rows)
    steps = rows.reward.shape[1] - 1
    powers = jnp.power(jnp.float32(discount), jnp.arange(steps, dtype=jnp.float32))
    rewards = jnp.where(window.taken[:, :-1], rows.reward[:, :-1], 0.0)
    return Transitions(
        observation=rows.observation[:, 0],
        action=rows.action[:, 0],
        reward=jnp.sum(rewards * powers[None], axis=1),
        discount=jnp.where(
            window.terminal, 0.0, jnp.power(jnp.float32(discount), window.end.astype(jnp.float32))
        ),
        next_observation=rows_at(rows.observation, window.end),
    )


def rows_at(values: Array, index: Array) -> Array:
    """Entries [b, ...] of values [b, l, ...] at one index [b] of each sequence."""
    expanded = index.reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, expanded, axis=1)[:, 0]
