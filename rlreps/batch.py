"""Batches that sources draw and objectives learn from, clips of episodes, whole populations."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.errors import require
from rlreps.numerics import num_rows


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Clip:
    """States of one episode in the order of time, for each row of a batch: two or more.

    ``state, later = clip`` unpacks a pair.

    Attributes:
        states: The l states, each an array [b, ...] or a pytree of arrays.
    """

    states: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.states)

    def joined(self) -> Any:
        """Join all states into [l·b, ...]: all rows' first states, then all second states, etc."""
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *self.states)


class Population(NamedTuple):
    """All states at once, for objectives that need exact expectations.

    Attributes:
        inputs: Every state's encoder input, an array [n, ...] or a pytree of such arrays.
        targets: The batch's task columns over every state, [n, t].
    """

    inputs: Any
    targets: Array


class Batch(NamedTuple):
    """Sampled entries of a states x tasks matrix.

    Attributes:
        inputs: Encoder inputs of the sampled states: an array [b, ...], or a pytree of arrays if an
            input has several parts, such as a state and an action. Rows that hold two or more
            states of an episode are a ``Clip``.
        targets: The entries of these states in the sampled columns, [b, t].
        tasks: Indices of the sampled columns, [t] (int32), for objectives that store weights.
        population: All states, if the source was asked for them.
    """

    inputs: Any
    targets: Array
    tasks: Array | None = None
    population: Population | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows, b."""
        return num_rows(self.inputs)

    @property
    def pair(self) -> tuple[Any, Any]:
        """The two states of every row, arrays or pytrees of arrays [b, ...].

        Raises:
            InputError: If rows are not pairs.
        """
        clip = self.inputs if isinstance(self.inputs, Clip) else Clip((self.inputs,))
        length = len(clip.states)
        got = f"clips of {length}" if length > 1 else "single states"
        require(length == 2, "rows that are pairs of states (rlreps.sources.pair_source)", got)
        return clip.states[0], clip.states[1]
