"""Replay: the last rows of several environments in order of time, and sequences drawn from them.

A row holds an observation and the action taken there. The last observation of an episode has a row
of its own, whose action was never taken (``last``), as in dm_env and in Gymnasium's next-step
autoreset. So the next observation of a step is always in the next row, after a time limit too, and
no observation is stored twice. Sequences of rows may cross the ends of episodes.

All functions are for one agent; callers ``vmap``. ``count``, the number of rows that each
environment has added so far, is the same for all agents of a run, and the caller keeps it: a row's
slot then does not depend on the agent's actions, and writing to it copies one slice.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import checked, interval, positive
from rlreps.errors import require

_DRAWS = 4
"""Number of draws to find a start that is not an episode's last row."""


class Rows(NamedTuple):
    """Rows; the leading axes [...] are the same everywhere.

    Attributes:
        observation: What the agent saw, [..., *observation].
        action: The action taken, [...] (int32).
        reward: The reward for it, [...] (float32).
        terminated: Whether the action ended the task, so that no value follows, [...].
        last: Whether the row is the last observation of its episode: its action was not taken, and
            its reward and ``terminated`` mean nothing, [...].
    """

    observation: Array
    action: Array
    reward: Array
    terminated: Array
    last: Array


def observed_rows(observation: Array, terminated: Array, last: Array) -> Rows:
    """Make rows without actions and rewards, which auxiliary tasks ignore, from a user's arrays.

    Args:
        observation: Sequences in order of time, [b, l, *observation]; rows of further episodes
            within a sequence are left out.
        terminated: Whether the action at an observation ended the task, [b, l]; the resulting
            observation comes next and is ``last``.
        last: Whether an observation is the last of its episode, [b, l]; never a sequence's first.
    """
    shape = terminated.shape
    nothing = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32)
    return Rows(observation, *nothing, terminated, last)


class Window(NamedTuple):
    """Which rows of sequences [b, l] belong to the episode of their first row.

    Attributes:
        seen: Whether a row's observation belongs to it, [b, l]; always true of the first.
        taken: Whether a row's action was taken in it, [b, l].
        end: Index of the last row that belongs to it, [b].
        terminal: Whether the task ended there, so that no value follows, [b].
    """

    seen: Array
    taken: Array
    end: Array
    terminal: Array


def episode_window(rows: Rows) -> Window:
    """Find the first rows' episodes within sequences of rows [b, l]."""
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
        reward: Discounted sum of the rewards, [b].
        discount: Weight of the value of the state reached, γ^m or 0, [b].
        next_observation: S_{t+m}, m the number of rewards, [b, *observation].
    """

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array


def transitions(rows: Rows, discount: float) -> Transitions:
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
    return Transitions(
        observation=rows.observation[:, 0],
        action=rows.action[:, 0],
        reward=jnp.sum(rewards * powers[None], axis=1),
        discount=jnp.where(window.terminal, 0.0, reached),
        next_observation=rows_at(rows.observation, window.end),
    )


def rows_at(values: Array, index: Array) -> Array:
    """Take entries [b, ...] of values [b, l, ...] at one index [b] of each sequence."""
    expanded = index.reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, expanded, axis=1)[:, 0]


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """The agent's memory.

    Attributes:
        capacity: Number of rows, of all environments together.
        prioritised: Draw sequences in proportion to their last error (Schaul et al. 2016) instead
            of uniformly.
        priority_exponent: α of the priorities.
        importance_exponent: β of the weights that correct for them.
    """

    capacity: int = positive(50_000)
    prioritised: bool = False
    priority_exponent: float = interval("[0, 1]", 0.6)
    importance_exponent: float = interval("[0, 1]", 0.4)

    def __post_init__(self) -> None:
        for name in ("priority_exponent", "importance_exponent"):
            value, default = getattr(self, name), getattr(ReplayConfig, name)
            known = self.prioritised or value == default
            require(known, f"prioritised replay for another {name}", value)


class Priorities(NamedTuple):
    """Priorities of sequences by their starts.

    Attributes:
        tree: Sums of priorities, already raised to α; a start that cannot be drawn has 0.
        largest: The largest priority so far, which new starts get, [].
    """

    tree: Array
    largest: Array


class Replay(NamedTuple):
    """The memory of one agent.

    Attributes:
        rows: [slots, environments, ...]; row ``count`` of each environment is in slot
            ``count % slots``.
        priorities: ``Priorities``, or () if sequences are drawn uniformly.
    """

    rows: Rows
    priorities: Any


class Draw(NamedTuple):
    """Sequences from replay.

    Attributes:
        rows: [b, length, ...]; no first row is ``last``.
        starts: Places of the first rows, for ``set_priorities``, [b].
        weights: Importance weights, the largest of them 1, [b].
    """

    rows: Rows
    starts: Array
    weights: Array


def init_replay(config: ReplayConfig, observation: jax.ShapeDtypeStruct, num_envs: int) -> Replay:
    """Make an empty memory for observations of a shape and dtype."""
    shape = (config.capacity // num_envs, num_envs)
    seen = jnp.zeros((*shape, *observation.shape), observation.dtype)
    rows = observed_rows(seen, jnp.zeros(shape, bool), jnp.zeros(shape, bool))
    if not config.prioritised:
        return Replay(rows, ())
    return Replay(rows, Priorities(empty_tree(math.prod(shape)), jnp.ones((), jnp.float32)))


def add(replay: Replay, count: Array, rows: Rows, length: int) -> Replay:
    """Add one more row of each environment in place of the oldest.

    Args:
        replay: The memory.
        count: Rows that each environment added before, [] (int32).
        rows: [environments, ...].
        length: Number of rows of the sequences that ``draw_prioritised`` will draw.
    """
    slots, num_envs = replay.rows.action.shape
    place = count % slots

    def write(_: Array, held: Rows) -> Rows:
        written: Rows = jax.tree.map(
            lambda old, new: lax.dynamic_update_index_in_dim(old, new, place, 0), held, rows
        )
        return written

    # One iteration of a loop whose length the compiler cannot know. Otherwise XLA fuses the
    # write into the gathers that draw from the memory, and copies all of it at every update.
    kept = lax.fori_loop(0, 1 + jnp.minimum(count, 0), write, replay.rows)
    if not isinstance(replay.priorities, Priorities):
        return Replay(kept, ())
    tree, largest = replay.priorities
    environments = jnp.arange(num_envs, dtype=jnp.int32)
    # The sequence that started here is gone, and the one that starts here is not complete yet;
    # but the sequence that starts length - 1 rows before now is.
    complete = (count - (length - 1)) % slots
    startable = (count >= length - 1) & ~kept.last[complete]
    places = jnp.concatenate([place * num_envs + environments, complete * num_envs + environments])
    new = jnp.concatenate([jnp.zeros((num_envs,), jnp.float32), jnp.where(startable, largest, 0.0)])
    return Replay(kept, Priorities(set_leaves(tree, places, new), largest))


def draw_uniform(key: Array, replay: Replay, count: Array, num: int, length: int) -> Draw:
    """Draw sequences whose starts are independent and uniform over rows that are not ``last``.

    Uniform except for one start in (rows of an episode)⁴: if each of four draws found an episode's
    last row, the row before it is taken.

    Args:
        key: Random key.
        replay: The memory.
        count: Rows that each environment has added, [] (int32), more than ``length``.
        num: Number of sequences, b.
        length: Rows of each sequence.
    """
    slots, num_envs = replay.rows.action.shape
    filled = jnp.minimum(count, slots)
    age_key, environment_key = jax.random.split(key)
    shape = (_DRAWS, num)
    # Leave out the oldest row, so that there is always a row before.
    offsets = jax.random.randint(age_key, shape, 1, filled - length + 1, jnp.int32)
    places = (count - filled + offsets) % slots
    environments = jax.random.randint(environment_key, shape, 0, num_envs, jnp.int32)
    is_last = replay.rows.last[places, environments]
    first = jnp.argmin(is_last, axis=0)[None]
    place, environment, none_found = (
        jnp.take_along_axis(each, first, axis=0)[0] for each in (places, environments, is_last)
    )
    starts = ((place - none_found.astype(jnp.int32)) % slots) * num_envs + environment
    return Draw(_sequences(replay, starts, length), starts, jnp.ones((num,), jnp.float32))


def draw_prioritised(
    key: Array, replay: Replay, count: Array, num: int, length: int, exponent: float
) -> Draw:
    """Draw sequences in proportion to their priorities (Schaul et al. 2016, Algorithm 1).

    Unlike there, β is constant and does not grow to 1.

    Args:
        key: Random key.
        replay: A memory with priorities.
        count: Rows that each environment has added, [] (int32).
        num: Number of sequences, b.
        length: Rows of each sequence, as given to ``add``.
        exponent: β of the importance weights (N · P)^-β, divided by the largest of them.
    """
    slots, num_envs = replay.rows.action.shape
    tree = replay.priorities.tree
    starts = draw_leaves(key, tree, num)
    chances = tree[tree.shape[0] // 2 + starts] / tree[1]
    available = jnp.minimum(count, slots).astype(jnp.float32) * num_envs
    weights = jnp.power(jnp.maximum(available * chances, 1e-12), -exponent)
    return Draw(_sequences(replay, starts, length), starts, weights / jnp.max(weights))


def set_priorities(replay: Replay, starts: Array, errors: Array, exponent: float) -> Replay:
    """Set priorities (|error| + 1e-6)^α at starts [b], for errors [b]."""
    tree, largest = replay.priorities
    new = jnp.power(jnp.abs(errors) + 1e-6, exponent)
    priorities = Priorities(set_leaves(tree, starts, new), jnp.maximum(largest, jnp.max(new)))
    return replay._replace(priorities=priorities)


def _sequences(replay: Replay, starts: Array, length: int) -> Rows:
    slots, num_envs = replay.rows.action.shape
    steps = jnp.arange(length, dtype=jnp.int32)[None]
    places = ((starts // num_envs)[:, None] + steps) % slots
    environments = (starts % num_envs)[:, None]
    rows: Rows = jax.tree.map(lambda leaf: leaf[places, environments], replay.rows)
    return rows


# A binary tree of sums (Schaul et al. 2016, App. B.2.1) as an array: node 1 is the root, node i
# has children 2i and 2i + 1, and the leaves come last.


def empty_tree(size: int) -> Array:
    """Make a tree [2 · leaves] of zeros with at least ``size`` leaves, a power of two."""
    return jnp.zeros((2 << max(size - 1, 1).bit_length(),), jnp.float32)


def set_leaves(tree: Array, indices: Array, priorities: Array) -> Array:
    """Set priorities [b] at leaves [b]; if an index is repeated, one of its priorities stays.

    Sums are recomputed from both children, so rounding errors do not accumulate.
    """
    leaves = tree.shape[0] // 2

    def sum_children(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        tree, nodes = carry
        nodes = nodes // 2
        return tree.at[nodes].set(tree[2 * nodes] + tree[2 * nodes + 1]), nodes

    nodes = leaves + indices
    start = (tree.at[nodes].set(priorities), nodes)
    summed: Array
    summed, _ = lax.fori_loop(0, leaves.bit_length() - 1, sum_children, start)
    return summed


def draw_leaves(key: Array, tree: Array, num: int) -> Array:
    """Draw leaves [num] in proportion to their priorities, one from each of equal strata."""
    leaves = tree.shape[0] // 2
    strata = jnp.arange(num, dtype=jnp.float32) + jax.random.uniform(key, (num,), jnp.float32)

    def descend(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        nodes, rest = carry
        left = tree[2 * nodes]
        # Rounding must not lead into a subtree of zero priority.
        right = (rest >= left) & (tree[2 * nodes + 1] > 0.0)
        return 2 * nodes + right.astype(jnp.int32), jnp.where(right, rest - left, rest)

    start = (jnp.ones((num,), jnp.int32), strata * (tree[1] / num))
    nodes: Array
    nodes, _ = lax.fori_loop(0, leaves.bit_length() - 1, descend, start)
    return nodes - leaves
