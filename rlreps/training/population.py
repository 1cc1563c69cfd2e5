"""Several runs that one compiled program makes together: its members.

Members differ in their seeds and, if asked, in numbers that a learner is built from (``settings``)
and in the source that they learn from. Whatever decides a shape is common to them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jax import Array

from rlreps.sources.matrix import Source
from rlreps.training.update import ChunkReport, Learner, TrainState

Build: TypeAlias = Callable[[Any], Learner]
"""One member's settings → its learner; called while JAX traces."""


@dataclasses.dataclass(frozen=True)
class Members:
    """How all members' updates are made.

    Attributes:
        build: One member's settings → its learner.
        own_sources: Whether every leaf of the source has a leading member axis.
    """

    build: Build
    own_sources: bool = False

    def init(self, seeds: Array, settings: Any) -> TrainState:
        """States before the first update, for seeds [members] and settings [members, ...]."""
        states: TrainState = jax.vmap(lambda seed, each: self.build(each).init(seed))(
            seeds, settings
        )
        return states

    def chunk(
        self, num_steps: int, states: TrainState, source: Source, seeds: Array, settings: Any
    ) -> tuple[TrainState, ChunkReport]:
        """``Learner.chunk`` for every member; states and reports have a leading member axis."""

        def one(
            state: TrainState, source: Source, seed: Array, each: Any
        ) -> tuple[TrainState, ChunkReport]:
            return self.build(each).chunk(num_steps, state, source, seed)

        if len(seeds) > 1:
            axes = (0, 0 if self.own_sources else None, 0, 0)
            return jax.vmap(one, in_axes=axes)(states, source, seeds, settings)
        # A batch of one would cost a quarter more on a CPU, where XLA keeps its products batched.
        state, seed, each = jax.tree.map(lambda leaf: leaf[0], (states, seeds, settings))
        own = jax.tree.map(lambda leaf: leaf[0], source) if self.own_sources else source
        alone: tuple[TrainState, ChunkReport] = jax.tree.map(
            lambda leaf: leaf[None], one(state, own, seed, each)
        )
        return alone
