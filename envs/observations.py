"""Observations of a place in PuddleWorld: the position, a code of its cell, or a picture.

Each is a frozen dataclass whose fields are its options, with two methods. ``backdrop`` draws the
parts that do not change from step to step, once for each world; ``observe`` is pure JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.config import checked, from_json, positive
from rlreps.envs.core import pytree_dataclass
from rlreps.errors import require, require_choice

if TYPE_CHECKING:
    from rlreps.envs.puddle_world import PuddleWorld

_AGENT_PIXELS = 1.5
"""Smallest radius of the agent in a picture."""


@pytree_dataclass()
@dataclass(frozen=True)
class Position:
    """The agent's position (x, y), float [2] in [0, 1]."""

    name: ClassVar[str] = "position"

    def backdrop(self, world: "PuddleWorld") -> None:
        """Draw nothing."""

    def observe(self, position: jax.Array, backdrop: None) -> jax.Array:
        """Return the position."""
        return position


@pytree_dataclass(static=("size", "bins", "seed"))
@checked
@dataclass(frozen=True, kw_only=True)
class Code:
    """A fixed random code of the agent's cell, float32 [size] in [0, 1].

    The codes of two cells are unrelated, however near the cells: an agent must learn which cells
    are neighbours. The numbers are uniform draws that depend only on the three options, so that a
    cell has the same code in every episode, process and arena.

    A cell through which a wall passes has one code on both sides. Walls of the mazes lie along
    lines of grids whose bins are a multiple of 5.

    Attributes:
        size: numbers in a code.
        bins: cells along each axis.
        seed: seed of the codes, at least 0.

    Raises:
        InputError: a value outside its range.
    """

    name: ClassVar[str] = "code"

    size: int = positive(16)
    bins: int = positive(20)
    seed: int = positive(0, least=0)

    def table(self) -> npt.NDArray[np.float32]:
        """Return the codes of all cells, [bins², size]; cell index = row · bins + column."""
        return _codes(self.size, self.bins, self.seed).copy()

    def backdrop(self, world: "PuddleWorld") -> None:
        """Return an empty backdrop: codes are the same in every world."""

    def observe(self, position: jax.Array, backdrop: None) -> jax.Array:
        """Return the code of the cell that holds a position [2]."""
        column_row = _cell_of(position, self.bins)
        cell = column_row[1] * self.bins + column_row[0]
        return jnp.asarray(_codes(self.size, self.bins, self.seed))[cell]


@pytree_dataclass(static=("size", "bins"))
@checked
@dataclass(frozen=True, kw_only=True)
class Image:
    """A picture of the arena with the agent in it, uint8 [size, size, 3], RGB, y pointing up.

    Walls and puddles look as in ``render_frame``. The goal is not drawn, so that places look the
    same for every task. The agent is a disc whose edge is a ramp one pixel wide: the picture shows
    its place to a fraction of a pixel. With ``bins`` the disc is in the middle of the agent's cell,
    so that images repeat exactly, as in grid worlds.

    Attributes:
        size: side in pixels, from 8 to 1,024.
        bins: cells along each axis; None draws the agent where it is.

    Raises:
        InputError: a value outside its range.
    """

    name: ClassVar[str] = "image"

    size: int = positive(32, least=8, most=1024)
    bins: int | None = positive(None)

    def backdrop(self, world: "PuddleWorld") -> jax.Array:
        """Draw the arena without the agent, uint8 [size, size, 3].

        Raises:
            InputError: the puddles' numbers are traced.
        """
        # Imports PuddleWorld, which imports this module.
        from rlreps.envs.rendering import draw_background

        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(world.puddles))
        require(not traced, "numbers in puddles that are to be drawn", "traced arrays")
        with jax.ensure_compile_time_eval():
            return jnp.asarray(draw_background(world.puddles, None, self.size))

    def observe(self, position: jax.Array, backdrop: jax.Array) -> jax.Array:
        """Draw the agent at a position [2] onto the backdrop."""
        from rlreps.envs.rendering import AGENT_COLOUR, AGENT_RADIUS

        if self.bins is not None:
            position = (_cell_of(position, self.bins).astype(jnp.float32) + 0.5) / self.bins
        centres = (jnp.arange(self.size, dtype=jnp.float32) + 0.5) / self.size
        across = jnp.square(centres - position[0].astype(jnp.float32))
        up = jnp.square(centres[::-1] - position[1].astype(jnp.float32))
        distance = jnp.sqrt(up[:, None] + across[None, :])
        radius = max(AGENT_RADIUS, _AGENT_PIXELS / self.size)
        covered = jnp.clip((radius - distance) * self.size + 0.5, 0.0, 1.0)[..., None]
        colour = jnp.asarray(AGENT_COLOUR, jnp.float32)[None, None]
        picture = backdrop.astype(jnp.float32) * (1.0 - covered) + colour * covered
        return jnp.rint(picture).astype(jnp.uint8)


Observation: TypeAlias = Position | Code | Image

OBSERVATIONS: dict[str, type[Position] | type[Code] | type[Image]] = {
    cls.name: cls for cls in (Position, Code, Image)
}
"""The kinds of observation by name."""


def as_observation(value: Any) -> Observation:
    """Return an observation given itself, by name, or by a mapping of name and options.

    Raises:
        InputError: an unknown name or option, or a value outside its range.
    """
    if isinstance(value, Observation):
        return value
    options = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = options.pop("name", None)
    require_choice("observation", name, list(OBSERVATIONS))
    return from_json(OBSERVATIONS[name], options)


def _cell_of(position: jax.Array, bins: int) -> jax.Array:
    """Return the column and row [2] (int32) of the cell that holds a position [2]."""
    return jnp.clip((position * bins).astype(jnp.int32), 0, bins - 1)


@lru_cache(maxsize=16)
def _codes(size: int, bins: int, seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).random((bins**2, size), np.float32)
