"""Replay: the last rows of several environments in order of time, and sequences drawn from them.

One agent's functions; loops ``vmap`` them. ``count``, the rows that each environment has added so
far, is the same for all agents of a loop and is kept there: a row's place does not depend on what
an agent did, and writing to it stays a copy of one slice.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.config import ReplayConfig
from rlreps.agents.rows import Rows
from rlreps.agents.sum_tree import draw_leaves, empty_tree, set_leaves

_DRAWS = 4
"""Starts drawn to find one that is not an episode's last row."""


class Priorities(NamedTuple):
    """Priorities of sequences by where they start.

    Attributes:
        tree: Sums of priorities, already raised to α; a start that cannot be drawn has 0.
        largest: The largest so far, which new starts get, [].
    """

    tree: Array
    largest: Array


class Replay(NamedTuple):
    """The memory of one agent.

    Attributes:
        rows: [slots, environments, ...]; row ``count`` of each environment is in slot
            ``count % slots``.
        priorities: ``Priorities``, or () where sequences are drawn uniformly.
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
    """An empty memory for observations of a shape and dtype."""
    slots = config.capacity // num_envs
    shape = (slots, num_envs)
    rows = Rows(
        observation=jnp.zeros((*shape, *observation.shape), observation.dtype),
        action=jnp.zeros(shape, jnp.int32),
        reward=jnp.zeros(shape, jnp.float32),
        terminated=jnp.zeros(shape, bool),
        last=jnp.zeros(shape, bool),
    )
    if not config.prioritised:
        return Replay(rows, ())
    return Replay(rows, Priorities(empty_tree(slots * num_envs), jnp.ones((), jnp.float32)))


def add(replay: Replay, count: Array, rows: Rows, length: int) -> Replay:
    """The memory with one more row of each environment, in place of the oldest.

    Args:
        replay: The memory.
        count: Rows that each environment added before, [] (int32).
        rows: [environments, ...].
        length: Rows of the sequences that ``draw_prioritised`` will want.
    """
    slots, num_envs = replay.rows.action.shape
    place = count % slots
    kept = jax.tree.map(
        lambda old, new: lax.dynamic_update_index_in_dim(old, new, place, 0), replay.rows, rows
    )
    if not isinstance(replay.priorities, Priorities):
        return Replay(kept, ())
    tree, largest = replay.priorities
    environments = jnp.arange(num_envs, dtype=jnp.int32)
    # What started here is gone, and what starts here has no sequence yet; but the row that came
    # length - 1 before has its own now.
    complete = (count - (length - 1)) % slots
    startable = (count >= length - 1) & ~kept.last[complete]
    places = jnp.concatenate([place * num_envs + environments, complete * num_envs + environments])
    new = jnp.concatenate([jnp.zeros((num_envs,), jnp.float32), jnp.where(startable, largest, 0.0)])
    return Replay(kept, Priorities(set_leaves(tree, places, new), largest))


def draw_uniform(key: Array, replay: Replay, count: Array, num: int, length: int) -> Draw:
    """Sequences whose starts are drawn independently, uniformly over rows that are not ``last``.

    Uniform but for one start in (rows of an episode)⁴: where each of four draws found an episode's
    last row, the row before it is taken.

    Args:
        key: Random key.
        replay: The memory.
        count: Rows that each environment has added, [] (int32), more than ``length``.
        num: Sequences, b.
        length: Rows of each.
    """
    slots, num_envs = replay.rows.action.shape
    filled = jnp.minimum(count, slots)
    age_key, environment_key = jax.random.split(key)
    shape = (_DRAWS, num)
    # Not the oldest row, so that there is one before.
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
    """Sequences in proportion to their priorities (Schaul et al. 2016, Algorithm 1).

    Unlike there, β stays as it is and does not grow to 1.

    Args:
        key: Random key.
        replay: A memory with priorities.
        count: Rows that each environment has added, [] (int32).
        num: Sequences, b.
        length: Rows of each, as told to ``add``.
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
    """The memory with priorities (|error| + 1e-6)^α at starts [b], for errors [b]."""
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
