"""Replay: the last rows of several environments in order of time, and sequences drawn from them.

A row holds an observation and the action taken there. The last observation of an episode has a row
of its own, whose action was never taken (``last``), as in dm_env and in Gymnasium's next-step
autoreset. So the next observation of a step is always in the next row, after a time limit too, and
no observation is stored twice. Sequences of rows may cross the ends of episodes.

All functions are for one agent; callers ``vmap``. ``count``, the number of rows that each
environment has added so far, is the same for all agents of a run, and the caller keeps it. The slot
of a row then does not depend on the agent's actions, and writing to the slot copies one slice.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from rlreps.config import checked, positive
from rlreps.errors import require

_DRAWS = 4
"""Number of draws to find a start that is not an episode's last row."""


class ReplayRows(NamedTuple):
    """Rows of replay; the leading axes [...] are the same everywhere.

    Attributes:
        observation: What the agent saw, [..., *observation].
        action: The action taken, [...] (int32); None if a user's rows have none.
        reward: The reward for it, [...] (float32).
        terminated: Whether the action ended the task, so that no value follows, [...].
        last: Whether the row is the last observation of its episode: its action was not taken, and
            its reward and ``terminated`` mean nothing, [...].
    """

    observation: Array
    action: Any
    reward: Array
    terminated: Array
    last: Array


def observed_rows(
    observation: Array, terminated: Array, last: Array, action: Array | None = None
) -> ReplayRows:
    """Make rows without rewards, which auxiliary tasks ignore, from a user's arrays.

    Args:
        observation: Sequences in order of time, [b, l, *observation]; rows of further episodes
            within a sequence are left out.
        terminated: Whether the action at an observation ended the task, [b, l]; the resulting
            observation comes next and is ``last``.
        last: Whether an observation is the last of its episode, [b, l]; never a sequence's first.
        action: The action at an observation, [b, l]; only targets ``per_action`` need it.

    Raises:
        InputError: For flags of another shape, arrays of NumPy with observations that are not
            finite, an end whose next row is not ``last``, or a first row that is. Inside compiled
            functions shapes alone are checked.
    """
    compiled = any(isinstance(part, Tracer) for part in (observation, terminated, last))
    xp: Any = jnp if compiled else np
    # A replay may store flags as 0 and 1. The complement ``~`` of these numbers is not a flag.
    ends, lasts = xp.asarray(terminated, bool), xp.asarray(last, bool)
    shape = observation.shape[:2]
    fits = ends.ndim == 2 and ends.shape == lasts.shape == shape
    require(fits, f"flags of shape {shape}", (ends.shape, lasts.shape))
    if not compiled:
        if isinstance(observation, np.ndarray):  # Others may lie on an accelerator.
            over = np.cumsum(lasts, axis=1) - lasts > 0
            _require_finite(observation[~over] if over.any() else observation)
        found = np.flatnonzero(lasts[:, :1].any(axis=1))
        require(not found.size, "no sequence whose first row is last", f"sequence {found[:1]}")
        taken = ends[:, :-1] & ~lasts[:, :-1]
        found = np.flatnonzero((taken & ~lasts[:, 1:]).any(axis=1))
        expected = "the row after an end to be the last of its episode"
        require(not found.size, expected, f"a further step of the episode in sequence {found[:1]}")
    return ReplayRows(observation, action, jnp.zeros(ends.shape, jnp.float32), ends, lasts)


def _require_finite(observations: Any) -> None:
    # One that is not finite would stay in the running means of a task for ever.
    finite = observations.dtype.kind != "f" or bool(np.isfinite(observations).all())
    require(finite, "finite observations", "NaN or infinite ones")


def stack_transitions(
    observation: Array,
    next_observation: Array,
    terminated: Array,
    truncated: Array | None = None,
    action: Array | None = None,
) -> ReplayRows:
    """Make rows for auxiliary tasks from the transitions of an ordinary replay.

    Each sequence of l consecutive transitions becomes l + 1 rows, without rewards. The first row is
    the first observation, and each further row is what a step returned. If an episode ends within
    the sequence, the rows of the next episode are ignored.

    Args:
        observation: S_t, [b, l, *observation]; or [b, *observation] for single transitions, l = 1.
        next_observation: S_{t+1}, of the same shape: what the step returned, not the start of the
            next episode.
        terminated: Whether the step ended the task, [b, l] or [b].
        truncated: Whether a time limit cut the episode there, likewise; a value still follows.
        action: A_t, likewise; only targets ``per_action`` need it.

    Returns:
        Rows [b, l + 1].

    Raises:
        InputError: For flags, actions or observations of other shapes, actions that are no
            integers, observations that are not finite, or a step that does not begin where the step
            before it in the same episode ended. Inside compiled functions shapes and types alone
            are checked.
    """
    given = (observation, next_observation, terminated, truncated, action)
    compiled = any(isinstance(part, Tracer) for part in given)
    # A user's loop calls this at every update, and NumPy's calls are faster than JAX's.
    xp: Any = jnp if compiled else np
    before, after = map(xp.asarray, given[:2])
    ended = xp.asarray(terminated, bool)
    cut = xp.zeros_like(ended) if truncated is None else xp.asarray(truncated, bool)
    fits = ended.ndim in (1, 2) and ended.shape == cut.shape == before.shape[: ended.ndim]
    flags = f"flags of shape {before.shape[:1]} or {before.shape[:2]}"
    require(fits, flags, (ended.shape, cut.shape))
    require(before.shape == after.shape, f"next observations of shape {before.shape}", after.shape)
    taken = None if action is None else xp.asarray(action)
    if taken is not None:
        expected, got = f"integer actions of shape {ended.shape}", (taken.dtype.name, taken.shape)
        require(taken.dtype.kind in "iu" and taken.shape == ended.shape, expected, got)
        # Nobody took an action after the last transition.
        taken = xp.pad(taken.astype(np.int32).reshape(len(ended), -1), ((0, 0), (0, 1)))
    over = ended | cut
    if ended.ndim == 1:
        before, after, ended, over = (part[:, None] for part in (before, after, ended, over))
    if not compiled:
        _require_finite(before)
        _require_finite(after)
        starts, ends = before[:, 1:], after[:, :-1]
        if starts.dtype.kind == ends.dtype.kind == "f":
            # One copy of the observation may have been rounded.
            narrow = min(starts.dtype, ends.dtype, key=lambda kind: kind.itemsize)
            starts, ends = starts.astype(narrow, copy=False), ends.astype(narrow, copy=False)
        moved = starts != ends
        broken = moved.any(axis=tuple(range(2, moved.ndim))) & ~over[:, :-1]
        found = np.argwhere(broken)[:1]
        expected = "every step to begin where the step before it ended, unless an episode ends"
        require(not found.size, expected, f"another start after [sequence, step] {found}")
    never = xp.zeros_like(over[:, :1])
    return observed_rows(
        xp.concatenate([before[:, :1], after], axis=1),
        xp.concatenate([ended, never], axis=1),
        xp.concatenate([never, over], axis=1),
        taken,
    )


class Window(NamedTuple):
    """Which rows of sequences [b, l] belong to the episode of their first row.

    Attributes:
        seen: Whether a row's observation belongs to the episode, [b, l]; always true of the first
            row.
        taken: Whether a row's action was taken in the episode, [b, l].
        end: Index of the last row that belongs to the episode, [b].
        terminal: Whether the task ended there, so that no value follows, [b].
    """

    seen: Array
    taken: Array
    end: Array
    terminal: Array


def episode_window(rows: ReplayRows) -> Window:
    """Find the first rows' episodes within sequences of rows [b, l]."""
    taken = jnp.cumprod(~rows.last, axis=1, dtype=jnp.int32).astype(bool)
    seen = jnp.concatenate([jnp.ones_like(taken[:, :1]), taken[:, :-1]], axis=1)
    end = jnp.sum(seen, axis=1, dtype=jnp.int32) - 1
    ended = jnp.any(taken[:, :-1] & rows.terminated[:, :-1], axis=1)
    return Window(seen, taken, end, ended)


class NStepTransitions(NamedTuple):
    """Steps of one action and up to n rewards.

    Attributes:
        observation: S_t, [b, *observation].
        action: A_t, [b].
        reward: Discounted sum of the rewards, [b].
        discount: Weight of the value of the state reached, γ^m or 0, [b].
        next_observation: S_{t+m}, m the number of rewards, [b, *observation].
    """

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array


def transitions(rows: ReplayRows, discount: float) -> NStepTransitions:
    """Make n-step transitions of sequences of n + 1 rows (Sutton & Barto 2018, Eq. 7.1).

    If a sequence's episode ends before n steps, the transition is shorter. After a time limit the
    value of the state reached counts; after a termination nothing does.

    Args:
        rows: [b, n + 1], whose first rows are not ``last``.
        discount: γ.
    """
    window = episode_window(rows)
    steps = rows.reward.shape[1] - 1
    gamma = jnp.float32(discount)
    rewards = jnp.where(window.taken[:, :-1], rows.reward[:, :-1], 0.0)
    powers = jnp.power(gamma, jnp.arange(steps, dtype=jnp.float32))
    reached = jnp.power(gamma, window.end.astype(jnp.float32))
    last = window.end.reshape(-1, *(1,) * (rows.observation.ndim - 1))
    return NStepTransitions(
        observation=rows.observation[:, 0],
        action=rows.action[:, 0],
        reward=jnp.sum(rewards * powers[None], axis=1),
        discount=jnp.where(window.terminal, 0.0, reached),
        next_observation=jnp.take_along_axis(rows.observation, last, axis=1)[:, 0],
    )


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """The agent's memory.

    Attributes:
        capacity: Number of rows, of all environments together.
    """

    capacity: int = positive(50_000)


def init_replay(
    config: ReplayConfig, observation: jax.ShapeDtypeStruct, num_envs: int
) -> ReplayRows:
    """Make an empty memory for observations of a shape and dtype.

    Returns:
        Rows [slots, environments, ...]; row ``count`` of each environment is in slot
        ``count % slots``.
    """
    shape = (config.capacity // num_envs, num_envs)
    seen = jnp.zeros((*shape, *observation.shape), observation.dtype)
    never = jnp.zeros(shape, bool)
    return observed_rows(seen, never, never, jnp.zeros(shape, jnp.int32))


def add(replay: ReplayRows, count: Array, rows: ReplayRows) -> ReplayRows:
    """Add one more row of each environment in place of the oldest.

    Args:
        replay: The memory.
        count: Rows that each environment added before, [] (int32).
        rows: [environments, ...].
    """
    place = count % len(replay.action)

    def write(_: Array, held: ReplayRows) -> ReplayRows:
        written: ReplayRows = jax.tree.map(
            lambda old, new: lax.dynamic_update_index_in_dim(old, new, place, 0), held, rows
        )
        return written

    # One iteration of a loop whose length the compiler cannot know. Otherwise XLA fuses the
    # write into the gathers that draw from the memory, and copies all of it at every update.
    kept: ReplayRows = lax.fori_loop(0, 1 + jnp.minimum(count, 0), write, replay)
    return kept


def draw(key: Array, replay: ReplayRows, count: Array, num: int, length: int) -> ReplayRows:
    """Draw sequences whose starts are independent and uniform over rows that are not ``last``.

    Each start is drawn up to four times, until it is not ``last``. If all four draws are ``last``,
    the row before the first of them is taken. With episodes of l rows this happens with probability
    l⁻⁴; otherwise starts are exactly uniform.

    Args:
        key: Random key.
        replay: The memory.
        count: Rows that each environment has added, [] (int32), more than ``length``.
        num: Number of sequences, b.
        length: Rows of each sequence.

    Returns:
        [b, length, ...]; no first row is ``last``, unless an episode ended without a step.
    """
    places, environment = _draw_places(key, replay, count, num, length)
    rows: ReplayRows = jax.tree.map(lambda leaf: leaf[places, environment[:, None]], replay)
    return rows


def draw_transitions(
    key: Array, replay: ReplayRows, count: Array, num: int, steps: int, discount: float
) -> NStepTransitions:
    """Draw transitions [b] of up to n steps.

    They are the ``transitions`` of the sequences that ``draw`` draws with this key. Of the
    observations of a sequence, only the first and the last of the transition are read.

    Args:
        key: Random key.
        replay: The memory.
        count: Rows that each environment has added, [] (int32), more than n + 1.
        num: Number of transitions, b.
        steps: n.
        discount: γ.
    """
    places, environment = _draw_places(key, replay, count, num, steps + 1)
    # The sequences hold places in the memory instead of observations.
    others = (leaf[places, environment[:, None]] for leaf in replay[1:])
    drawn = transitions(ReplayRows(places, *others), discount)
    first, last = (
        replay.observation[place, environment]
        for place in (drawn.observation, drawn.next_observation)
    )
    return drawn._replace(observation=first, next_observation=last)


def _draw_places(
    key: Array, replay: ReplayRows, count: Array, num: int, length: int
) -> tuple[Array, Array]:
    """Return the slots [b, length] and environments [b] of the sequences that ``draw`` draws."""
    slots, num_envs = replay.action.shape
    filled = jnp.minimum(count, slots)
    # Leave out the oldest row, so that there is always a row before. One draw gives both the row
    # and its environment, since each call of the generator is slow.
    shape, end = (_DRAWS, num), (filled - length + 1) * num_envs
    drawn = jax.random.randint(key, shape, num_envs, end, jnp.int32)
    places, environments = (count - filled + drawn // num_envs) % slots, drawn % num_envs
    is_last = replay.last[places, environments]
    first = jnp.argmin(is_last, axis=0)[None]
    place, environment, none_found = (
        jnp.take_along_axis(each, first, axis=0)[0] for each in (places, environments, is_last)
    )
    start = place - none_found.astype(jnp.int32)
    return (start[:, None] + jnp.arange(length, dtype=jnp.int32)[None]) % slots, environment
