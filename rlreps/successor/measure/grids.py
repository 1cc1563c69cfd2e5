"""Uniform grids of cells: the states and the tasks of a successor measure."""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import checked
from rlreps.envs import PuddleWorld, Shape
from rlreps.errors import require, require_positive

_LATTICE = 16
"""Number of points along each side of a cell that decide whether the cell is a state. Changing this
number changes which cells are states, and so the matrices of arenas with walls."""

_EDGE = 1e-5
"""Tolerance for rounding errors, which may put an agent slightly beyond a wall's edge."""

_WINDOWS_AT_ONCE = 2048
"""Number of cells whose surroundings are examined together."""

_MOST_WALLED_BINS = 2048
"""Largest number of bins with walls: a matrix then takes 70 TB, and its states take minutes to
find."""


@checked
@dataclasses.dataclass(frozen=True)
class Grid:
    """bins x bins square cells over [0, 1]²; cell index = row · bins + column, row from y.

    A cell is a state if one of 16 x 16 points spread evenly over it lies outside the walls. States
    are numbered from 0 in the order of their cells; without walls, a state's number is its cell's
    index. A position in a cell that is not a state is assigned to the nearest state. Agents reach a
    position in such a cell only where a wall's edge is also a cell's edge, or in a corner between
    two of the 16 x 16 points.

    Attributes:
        bins: Cells along each axis.
        walls: Shapes that no agent enters, as ``PuddleWorld.walls``.
    """

    bins: int
    walls: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        require_positive("bins", self.bins)

    def within(self, environment: PuddleWorld) -> "Grid":
        """Return the grid with an environment's walls."""
        walls = environment.walls
        return self if walls == self.walls else Grid(self.bins, walls)

    @property
    def num_cells(self) -> int:
        """Number of cells, bins²."""
        return self.bins**2

    @property
    def num_states(self) -> int:
        """Number of states; without walls, every cell is a state."""
        return len(self.states) if self.walls else self.num_cells

    @functools.cached_property
    def states(self) -> np.ndarray:
        """The states' cells in ascending order, [n] (int32)."""
        return np.flatnonzero(self.is_state).astype(np.int32)

    @property
    def is_state(self) -> np.ndarray:
        """Mask of the cells that are states, [bins²]."""
        return self._free_points > 0

    @functools.cached_property
    def _free_points(self) -> np.ndarray:
        """Count how many of each cell's 16 x 16 points lie outside the walls, [bins²]."""
        if not self.walls:
            return np.full(self.num_cells, _LATTICE**2)
        require(
            self.bins <= _MOST_WALLED_BINS, f"bins <= {_MOST_WALLED_BINS} with walls", self.bins
        )
        offsets = (np.arange(_LATTICE) + 0.5) / _LATTICE
        places = ((np.arange(self.bins)[:, None] + offsets) / self.bins).astype(np.float32)

        @jax.jit
        def of_row(y: Array) -> Array:
            points = jnp.stack(jnp.meshgrid(places.ravel(), y), axis=-1)
            free = jax.vmap(jax.vmap(self.is_free))(points)
            return jnp.sum(free.reshape(_LATTICE, self.bins, _LATTICE), axis=(0, 2))

        with jax.ensure_compile_time_eval():
            found = np.concatenate([np.asarray(of_row(y)) for y in places])
        require(bool(found.any()), "a cell outside the walls", f"none of {self.num_cells}")
        return found

    @functools.cached_property
    def divided(self) -> np.ndarray:
        """Cells that walls divide into separate pieces, in ascending order, [m].

        Two pieces are separate if no path through the cell and its eight neighbours joins them. If
        a wall ends in the cell, a path around its end joins the pieces on both sides. If separate
        pieces were one state, the chain would pass through the wall. The test extends each cell by
        1e-5 on each side, since agents stop exactly at a wall's edge. The test's points are a
        sixteenth of a cell apart, so it may miss thinner walls.
        """
        from scipy import ndimage  # Slow to import and seldom needed.

        partial = np.flatnonzero((self._free_points > 0) & (self._free_points < _LATTICE**2))
        offsets = (np.arange(-_LATTICE, 2 * _LATTICE) + 0.5) / _LATTICE
        beyond = _EDGE * self.bins * np.array([-1.0, 1.0])
        offsets = np.sort(np.concatenate([offsets, beyond, 1.0 + beyond]))
        middle = slice(_LATTICE, len(offsets) - _LATTICE)

        @jax.jit
        def around(x: Array, y: Array) -> Array:
            """Tell which points [c, 52, 52] on columns x and rows y, [c, 52], are free."""
            shape = (*x.shape, y.shape[1])
            points = jnp.broadcast_to(x[:, None, :], shape), jnp.broadcast_to(y[:, :, None], shape)
            inside = jnp.all(jnp.stack([(p >= 0.0) & (p <= 1.0) for p in points]), axis=0)
            free = jax.vmap(self.is_free)(jnp.stack([p.ravel() for p in points], axis=1))
            return inside & free.reshape(shape)

        found = []
        for first in range(0, len(partial), _WINDOWS_AT_ONCE):
            cells = partial[first : first + _WINDOWS_AT_ONCE]
            padded = np.resize(cells, _WINDOWS_AT_ONCE)[:, None]
            columns, rows = padded % self.bins + offsets, padded // self.bins + offsets
            x, y = ((places / self.bins).astype(np.float32) for places in (columns, rows))
            with jax.ensure_compile_time_eval():
                windows = np.asarray(around(x, y))[: len(cells)]
            for cell, window in zip(cells, windows, strict=True):
                pieces = ndimage.label(window)[0][middle, middle]
                if len(np.unique(pieces[pieces > 0])) > 1:
                    found.append(cell)
        return np.asarray(found, np.int32)

    def is_free(self, position: Array) -> Array:
        """Return whether a position [2] lies outside the walls."""
        free = jnp.asarray(True)
        for wall in self.walls:
            free &= wall.depth(position) <= 0.0
        return free

    def cell(self, position: Array) -> Array:
        """Return the cell [] (int32) of a position [2]; far edges belong to the last cells.

        If the cell is not a state, return the cell of the nearest state.
        """
        place = position * self.bins
        column_row = jnp.clip(place.astype(jnp.int32), 0, self.bins - 1)
        cell = column_row[1] * self.bins + column_row[0]
        if not self.walls:
            return cell
        offset = place - column_row.astype(place.dtype) - 0.5
        beyond = (offset > 0.0).astype(jnp.int32)
        vertical = (jnp.abs(offset[1]) > jnp.abs(offset[0])).astype(jnp.int32)
        return jnp.asarray(self._nearest)[cell, 4 * beyond[0] + 2 * beyond[1] + vertical]

    def state(self, position: Array) -> Array:
        """Return the state [] (int32) of a position [2]."""
        if not self.walls:
            return self.cell(position)
        numbers = np.zeros(self.num_cells, np.int32)
        numbers[self.states] = np.arange(self.num_states)
        return jnp.asarray(numbers)[self.cell(position)]

    @functools.cached_property
    def _nearest(self) -> np.ndarray:
        """Cell of the nearest state for each of a cell's eight triangles, [bins², 8] (int32).

        The two diagonals and the two middle lines of a cell divide it into the triangles.
        """
        from scipy.spatial import cKDTree  # Slow to import, and needed only with walls.

        eighth = np.arange(8)
        along_y = np.where(eighth % 2 == 1, 0.375, 0.25)
        signs = 2 * np.stack([eighth // 4, eighth // 2 % 2], axis=1) - 1
        places = signs * np.stack([0.625 - along_y, along_y], axis=1)  # From the centre, [8, 2].
        nearest = np.repeat(np.arange(self.num_cells, dtype=np.int32)[:, None], 8, axis=1)
        others = np.flatnonzero(~self.is_state)
        column_row = np.stack([others % self.bins, others // self.bins], axis=1)
        tree = cKDTree(np.stack([self.states % self.bins, self.states // self.bins], axis=1))
        _, found = tree.query(column_row[:, None] + places)
        nearest[others] = self.states[found]
        return nearest

    def sample(self, key: Array, state: Array) -> Array:
        """Return a position [2] drawn uniformly in a state's cell, outside the walls."""
        cell = jnp.asarray(self.states)[state] if self.walls else state
        return self.outside_walls(key, cell, self._uniform(key, cell))

    def outside_walls(self, key: Array, cell: Array, position: Array) -> Array:
        """Return a position [2] if it is outside the walls, else a uniform draw outside them.

        The draw is uniform over the part of ``cell`` [] outside the walls; ``cell`` must be a
        state's.
        """
        if not self.walls:
            return position

        def draw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            key = jax.random.fold_in(carry[0], 1)
            return key, self._uniform(key, cell)

        drawn: tuple[Array, Array]
        drawn = lax.while_loop(lambda carry: ~self.is_free(carry[1]), draw, (key, position))
        return drawn[1]

    def _uniform(self, key: Array, cell: Array) -> Array:
        corner = jnp.stack([cell % self.bins, cell // self.bins]).astype(jnp.float32)
        # Four float32 roundings lie between here and `cell`. Without this margin (2.4e-5 of a
        # cell's width for 100 bins) some positions would fall in the neighbouring cell.
        margin = self.bins * 2.0**-22
        offset = jax.random.uniform(key, (2,), jnp.float32, margin, 1.0 - margin)
        return (corner + offset) / self.bins

    def centres(self) -> np.ndarray:
        """Return the centres of the states' cells, [n, 2] (float32), which may lie in a wall."""
        centres = BoxGrid.unit_square(self.bins).unit_centres()
        return centres[self.states] if self.walls else centres

    def observations(self, environment: PuddleWorld) -> np.ndarray:
        """Return encoders' inputs: what an agent observes at the states' centres, [n, ...].

        The states are those outside the environment's walls. If the observation is a code with the
        grid's bins, the result holds the codes of the states' cells.
        """
        centres = self.within(environment).centres()
        return np.asarray(jax.jit(jax.vmap(environment.observe_position))(centres))


def spell_cells(cells: np.ndarray) -> str:
    """Write ascending cells as ranges that include both ends: "12-17, 42-42"."""
    runs = np.split(cells, np.flatnonzero(np.diff(cells) > 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" for run in runs if run.size)


def parse_cells(text: str, num_cells: int) -> np.ndarray:
    """Read the cells [n], all in [0, num_cells), that ``spell_cells`` wrote."""
    expected = f"rising ranges of {num_cells} cells, such as 12-17, 42-42"
    if not text:
        return np.arange(0)
    whole = isinstance(text, str) and re.fullmatch(r"\d{1,10}-\d{1,10}(, \d{1,10}-\d{1,10})*", text)
    require(bool(whole), expected, text)
    ends = np.asarray(re.findall(r"\d+", text), np.int64)
    rising = (np.diff(ends)[::2] >= 0).all() and (np.diff(ends)[1::2] > 0).all()
    require(bool(rising and ends[-1] < num_cells), expected, text)
    pairs = ends.reshape(-1, 2).tolist()
    return np.concatenate([np.arange(first, last + 1) for first, last in pairs])


def _spacing(gaps: np.ndarray) -> float:
    """Return the greatest common divisor of gaps that are whole numbers, the least of others."""
    whole = gaps.size > 0 and gaps.max() < 2.0**53 and bool((gaps == np.rint(gaps)).all())
    least = np.gcd.reduce(gaps.astype(np.int64)) if whole else gaps.min(initial=np.inf)
    return float(least)


@checked
@dataclasses.dataclass(frozen=True)
class BoxGrid:
    """Cells of equal size over the box [low, high], in k dimensions.

    The first coordinate varies fastest in a cell's index: index = Σ_i position_i Π_{j<i} bins_j. In
    the plane this is row · bins + column, with the row from the second coordinate, as in ``Grid``.
    ``values.reshape(grid.bins[::-1])`` turns values by cell into an array whose last axis is the
    first coordinate: in the plane, an image with its origin at the bottom.

    An axis whose ``low`` is above its ``high`` falls: its first cells have the largest values.
    ``spanning`` makes axes of the name "row" fall, since rows count downwards.

    Cells at the border extend to infinity, so that every point has a cell. Environments clip
    velocities to the border, and rounding may move them just beyond it. Some observations (a cart's
    speed) have no bounds.

    Attributes:
        low: Corner of the first cell [k], in the units of the observations.
        high: Corner of the last cell [k].
        bins: Cells along each axis [k]; fewer than 2³¹ in all. Float32 must resolve their edges.
        names: Names of the axes with their units, [k], for figures; x0, x1, ... by default.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    bins: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("low", float), ("high", float), ("bins", int)):
            given = getattr(self, name)
            require(np.ndim(given) == 1, f"{name} with one entry for each axis", given)
            object.__setattr__(self, name, tuple(kind(value) for value in given))
        axes = len(self.bins)
        alike = axes >= 1 and len(self.low) == len(self.high) == axes
        expected = "low, high and bins with one entry for each of the same axes"
        require(alike, expected, (len(self.low), len(self.high), axes))
        differ = np.isfinite([*self.low, *self.high]).all() and np.not_equal(self.low, self.high)
        require(bool(np.all(differ)), "finite low and high that differ", (self.low, self.high))
        require(min(self.bins) >= 1, "bins >= 1 on each axis", self.bins)
        require(self.num_cells < 2**31, "fewer than 2**31 cells", self.num_cells)
        apart = float(self._margins.max()) < 0.25
        require(apart, "cells that float32 can tell apart", f"{self.bins} cells")
        names = tuple(self.names) or tuple(f"x{axis}" for axis in range(axes))
        require(len(names) == axes, f"{axes} names of axes", names)
        object.__setattr__(self, "names", names)

    @classmethod
    def unit_square(cls, bins: int) -> "BoxGrid":
        """Return the cells of ``Grid(bins)``, with the same indices."""
        return cls((0.0, 0.0), (1.0, 1.0), (bins, bins), ("x", "y"))

    @classmethod
    def numbered(cls, count: int) -> "BoxGrid":
        """Return the grid of states without coordinates, which lie along one axis."""
        return cls((0.0,), (float(count),), (count,), ("state",))

    @classmethod
    def spanning(cls, points: np.ndarray, names: Sequence[str] = (), most: int = 40) -> "BoxGrid":
        """Return cells over all points [n, k].

        Along each axis, the centres of cells are as far apart as the closest two values, so that
        they lie on the values of a lattice; if all values are whole numbers apart, as far as the
        greatest common divisor of these. If there would be more than ``most`` cells, each but the
        last holds the same whole number of such values. Values that differ by rounding to single
        precision count as one.
        """
        values = np.asarray(points, np.float64)
        require(values.ndim == 2 and values.size > 0, "points [n, k]", values.shape)
        low, high = values.min(axis=0), values.max(axis=0)
        rounding = 4.0 * np.finfo(np.float32).eps * np.abs(values).max(axis=0)
        gaps = [np.diff(np.unique(axis)) for axis in values.T]
        spacings = [_spacing(gap[gap > off]) for gap, off in zip(gaps, rounding, strict=True)]
        places = 1 + np.rint((high - low) / spacings)
        shared = np.ceil(places / most)
        bins = np.ceil(places / shared)
        spacing = np.where(places > 1, (high - low) / np.maximum(places - 1, 1), 1.0)
        first = low - spacing / 2
        last = first + bins * shared * spacing
        falls = [axis < len(names) and names[axis] == "row" for axis in range(len(bins))]
        low, high = np.where(falls, (last, first), (first, last))
        return cls(tuple(low), tuple(high), tuple(bins.astype(int)), tuple(names))

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.bins)

    @property
    def cell_widths(self) -> np.ndarray:
        """Extent of a cell along each axis, [k] (float64), in their units; negative if it falls."""
        return np.asarray((np.asarray(self.high) - np.asarray(self.low)) / np.asarray(self.bins))

    @functools.cached_property
    def _margins(self) -> np.ndarray:
        """Return the distance from a cell's faces, in cell widths, that rounding cannot cross.

        A point, the corner and their difference are each rounded to float32, by 2⁻²⁴ of the largest
        magnitude among them. The margin allows for four such roundings and four after scaling.
        """
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        bins = np.asarray(self.bins, np.float64)
        return np.asarray(2.0**-22 * (bins + largest / np.abs(self.cell_widths)))

    @overload
    def cell(self, points: Array) -> Array: ...

    @overload
    def cell(self, points: np.ndarray | Sequence[float]) -> np.ndarray: ...

    def cell(self, points: Array | np.ndarray | Sequence[float]) -> Any:
        """Return the cells that hold points; cells at the border hold all points beyond it.

        Args:
            points: [..., k], in the units of the box. NumPy arrays are converted to float64. JAX
                arrays keep their floating dtype; rounding may then put a point near a face on the
                other side.

        Returns:
            Indices [...]: int64 for NumPy, with an error for NaN; int32 for JAX, where NaN gives an
            arbitrary cell, since compiled code cannot raise.
        """
        of: Any = jnp if isinstance(points, Array) else np
        values: Any = points if isinstance(points, Array) else np.asarray(points, np.float64)
        valid = values.ndim >= 1 and values.shape[-1] == len(self.bins)
        require(valid, f"points of shape [..., {len(self.bins)}]", values.shape)
        require(of is jnp or not np.isnan(values).any(), "points without NaN", "NaN")
        dtype = values.dtype if jnp.issubdtype(values.dtype, jnp.floating) else jnp.float32
        shape = (1,) * (values.ndim - 1) + (-1,)
        low, per_unit, last = (
            of.asarray(numbers, dtype).reshape(shape)
            for numbers in (self.low, 1.0 / self.cell_widths, np.asarray(self.bins) - 1)
        )
        # Multiplying by cells per unit agrees with Grid bit by bit on the unit square; dividing by
        # the width of a cell would not.
        steps = of.clip((values.astype(dtype) - low) * per_unit, of.zeros_like(last), last)
        index = of.int32 if of is jnp else of.int64
        strides = of.asarray(self._strides, index).reshape(shape)
        return of.sum(steps.astype(index) * strides, axis=-1, dtype=index)

    def sample(self, key: Array, cell: Array) -> Array:
        """Return a point [k] (float32) drawn uniformly inside a cell [], for JAX.

        Points stay away from the cell's faces by the margin for rounding (see ``_margins``), so
        that they always lie in the cell in which they were drawn.
        """
        margins = jnp.asarray(self._margins, jnp.float32)
        offsets = jax.random.uniform(key, (len(self.bins),), jnp.float32, margins, 1.0 - margins)
        strides, bins = jnp.asarray(self._strides, jnp.int32), jnp.asarray(self.bins, jnp.int32)
        steps = (jnp.broadcast_to(cell, bins.shape).astype(jnp.int32) // strides) % bins
        widths = jnp.asarray(self.cell_widths, jnp.float32)
        low = jnp.asarray(self.low, jnp.float32)
        point: Array = low + (steps.astype(jnp.float32) + offsets) * widths
        return point

    def sample_with(self, generator: np.random.Generator, cells: np.ndarray) -> np.ndarray:
        """Return points [..., k] (float64) drawn as by ``sample`` inside cells [...], for NumPy."""
        steps = self._steps(np.asarray(cells))
        offsets = generator.uniform(self._margins, 1.0 - self._margins, steps.shape)
        return np.asarray(np.asarray(self.low) + (steps + offsets) * self.cell_widths)

    def centres(self) -> np.ndarray:
        """Return the cells' centres [n, k] (float32) in the units of the box, by index."""
        steps = self._steps(np.arange(self.num_cells))
        centres = np.asarray(self.low) + (steps + 0.5) * self.cell_widths
        return np.asarray(centres, np.float32)

    def unit_centres(self) -> np.ndarray:
        """Return the centres [n, k] (float32) with the box mapped to [0, 1]^k, for encoders."""
        steps = self._steps(np.arange(self.num_cells)).astype(np.float32)
        return np.asarray((steps + np.float32(0.5)) / np.asarray(self.bins, np.float32))

    @functools.cached_property
    def _strides(self) -> np.ndarray:
        return np.cumprod([1, *self.bins[:-1]], dtype=np.int64)

    def _steps(self, cells: np.ndarray) -> np.ndarray:
        """Return the position of cells [...] along each axis, [..., k]."""
        return np.asarray((cells[..., None] // self._strides) % np.asarray(self.bins))
