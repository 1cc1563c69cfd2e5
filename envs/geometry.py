"""Convex shapes: the part of a straight move inside a shape, and the depth of a point in it.

A convex shape meets a straight path in a single interval, so that every answer is a closed form
without branches. All functions take one point and one move; callers ``vmap``. The arithmetic is
written on scalars, coordinate by coordinate, so that a batch compiles to one fused loop.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.envs.core import as_number, as_point, pytree_dataclass
from rlreps.errors import require

PathInterval = tuple[jax.Array, jax.Array]
Point = tuple[float, float]


@runtime_checkable
class Shape(Protocol):
    """A convex region of the plane."""

    def interval(self, origin: jax.Array, displacement: jax.Array) -> PathInterval:
        """Return where the segment from ``origin`` along ``displacement`` lies inside.

        Args:
            origin: [2], start of the segment.
            displacement: [2], its end minus its start. If it is zero, the interval is finite but
                arbitrary: no fraction of such a move takes the agent anywhere.

        Returns:
            Scalars (enter, leave), fractions in [0, 1] of the segment. ``enter >= leave`` means
            that the segment misses the shape (or only touches it).
        """

    def depth(self, point: jax.Array) -> jax.Array:
        """Return the distance from ``point`` [2] to the shape's edge, 0 outside the shape."""


@pytree_dataclass()
@dataclass(frozen=True)
class Disc:
    """All points within ``radius`` of ``centre``.

    Attributes:
        centre: [2].
        radius: greater than 0.

    Raises:
        InputError: a number is not finite or the radius is not positive.
    """

    centre: Point
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", as_point(self.centre, "centre"))
        object.__setattr__(self, "radius", as_number(self.radius, "radius", "(0, 1000]"))

    def interval(self, origin: jax.Array, displacement: jax.Array) -> PathInterval:
        """See ``Shape.interval``."""
        x, y = origin[0] - self.centre[0], origin[1] - self.centre[1]
        d_x, d_y = displacement[0], displacement[1]
        middle, half = _disc_chord(x, y, d_x, d_y, self.radius, d_x * d_x + d_y * d_y)
        leave = jnp.where(_turns_away(x, y, d_x, d_y, self.radius), 0.0, middle + half)
        return _to_fraction(middle - half), _to_fraction(leave)

    def depth(self, point: jax.Array) -> jax.Array:
        """See ``Shape.depth``."""
        x, y = point[0] - self.centre[0], point[1] - self.centre[1]
        return jnp.maximum(self.radius - jnp.sqrt(x * x + y * y), 0.0)


@pytree_dataclass()
@dataclass(frozen=True)
class Capsule:
    """All points within ``radius`` of the segment from ``start`` to ``end``.

    Attributes:
        start: [2].
        end: [2]; may equal ``start``, which makes the capsule a disc.
        radius: greater than 0.

    Raises:
        InputError: a number is not finite or the radius is not positive.
    """

    start: Point
    end: Point
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", as_point(self.start, "start"))
        object.__setattr__(self, "end", as_point(self.end, "end"))
        object.__setattr__(self, "radius", as_number(self.radius, "radius", "(0, 1000]"))

    def interval(self, origin: jax.Array, displacement: jax.Array) -> PathInterval:
        """See ``Shape.interval``.

        In the capsule's own frame (along its axis, across it) the path crosses the infinite strip
        |across| <= radius between two points. If such a point lies beside the axis, it lies on the
        capsule. If it lies beyond an end, the path meets the disc about that end instead. A path
        that misses the strip, or meets it beyond an end and misses the disc, has ``enter >=
        leave``.
        """
        along, across, length, axis = self._frame(origin)
        d_x, d_y = displacement[0], displacement[1]
        d_along, d_across = axis[0] * d_x + axis[1] * d_y, axis[0] * d_y - axis[1] * d_x

        squared_length = d_x * d_x + d_y * d_y  # in the given frame: every puddle shares it

        floor = _division_floor(d_across)
        safe = jnp.where(jnp.abs(d_across) < floor, jnp.copysign(floor, d_across), d_across)
        per_width = 1.0 / safe
        middle, half = -across * per_width, self.radius * jnp.abs(per_width)
        beyond = along - jnp.clip(along, 0.0, length)
        away = _turns_away(beyond, across, d_along, d_across, self.radius)

        def meet(strip_fraction: jax.Array, side: float) -> jax.Array:
            reached = along + strip_fraction * d_along
            nearest = jnp.clip(reached, 0.0, length)
            middle, half = _disc_chord(
                along - nearest, across, d_along, d_across, self.radius, squared_length
            )
            on_disc = middle + side * half
            return _to_fraction(jnp.where(reached == nearest, strip_fraction, on_disc))

        enter, leave = meet(middle - half, -1.0), meet(middle + half, 1.0)
        return enter, jnp.where(away, 0.0, leave)

    def depth(self, point: jax.Array) -> jax.Array:
        """See ``Shape.depth``."""
        along, across, length, _ = self._frame(point)
        beyond = along - jnp.clip(along, 0.0, length)
        return jnp.maximum(self.radius - jnp.sqrt(beyond * beyond + across * across), 0.0)

    def _frame(
        self, point: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, tuple[jax.Array, jax.Array]]:
        """Return a point along and across the axis, the axis' length, and its direction.

        The direction is (1, 0) if the length is zero.
        """
        to_x, to_y = self.end[0] - self.start[0], self.end[1] - self.start[1]
        length = jnp.sqrt(to_x * to_x + to_y * to_y)
        degenerate = length == 0.0
        divisor = jnp.where(degenerate, 1.0, length)
        axis = (jnp.where(degenerate, 1.0, to_x / divisor), to_y / divisor)
        x, y = point[0] - self.start[0], point[1] - self.start[1]
        return axis[0] * x + axis[1] * y, axis[0] * y - axis[1] * x, length, axis


@pytree_dataclass()
@dataclass(frozen=True)
class ConvexPolygon:
    """The inside of a convex polygon.

    Attributes:
        vertices: [v, 2], at least three, in order around the polygon; either direction is accepted
            and stored counter-clockwise. Vertices in the middle of a straight side are allowed.

    Raises:
        InputError: fewer than three vertices, one repeated, no area, or not convex.
    """

    vertices: tuple[Point, ...]

    def __post_init__(self) -> None:
        require(
            hasattr(self.vertices, "__iter__"), "vertices to be a list of points", self.vertices
        )
        vertices = tuple(as_point(v, f"vertices[{i}]") for i, v in enumerate(self.vertices))
        if not any(isinstance(c, jax.Array) for v in vertices for c in v):
            vertices = _counter_clockwise(vertices)
        object.__setattr__(self, "vertices", vertices)

    def interval(self, origin: jax.Array, displacement: jax.Array) -> PathInterval:
        """See ``Shape.interval``: the path clipped by the half-plane of each edge in turn."""
        d_x, d_y = displacement[0], displacement[1]
        floor = _division_floor(d_x)
        enter, leave = jnp.zeros_like(d_x), jnp.ones_like(d_x)
        for (x, y), (next_x, next_y) in self._edges():
            normal_x, normal_y = y - next_y, next_x - x
            inside = normal_x * (origin[0] - x) + normal_y * (origin[1] - y)
            rate = normal_x * d_x + normal_y * d_y
            inwards = rate > 0.0
            # A path on the edge, or inside by a rounding error, is outside unless it heads inwards.
            slack = _rounding(d_x) * (1.0 + abs(x) + abs(y)) * (abs(normal_x) + abs(normal_y))
            room = jnp.where(inwards, -inside, jnp.where(inside > slack, inside, 0.0))
            crossing = room / jnp.maximum(jnp.abs(rate), floor)
            enter = jnp.maximum(enter, jnp.where(inwards, crossing, 0.0))
            leave = jnp.minimum(leave, jnp.where(inwards, 1.0, crossing))
        return jnp.minimum(enter, 1.0), leave

    def depth(self, point: jax.Array) -> jax.Array:
        """See ``Shape.depth``; inside, the depth is the least distance to the line of an edge."""
        nearest = jnp.full_like(point[0], jnp.inf)
        for (x, y), (next_x, next_y) in self._edges():
            normal_x, normal_y = y - next_y, next_x - x
            length = jnp.sqrt(normal_x * normal_x + normal_y * normal_y)
            inside = normal_x * (point[0] - x) + normal_y * (point[1] - y)
            nearest = jnp.minimum(nearest, inside / length)
        return jnp.maximum(nearest, 0.0)

    def _edges(self) -> list[tuple[Point, Point]]:
        return list(zip(self.vertices, (*self.vertices[1:], self.vertices[0]), strict=True))


def _disc_chord(
    x: Any, y: Any, d_x: Any, d_y: Any, radius: Any, squared_length: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the middle and half the length of a line's chord, in fractions of the displacement.

    The half chord comes from the distance between line and centre (a cross product), which keeps
    its digits where the textbook discriminant b^2 - 4ac cancels. It is 0 if the line misses.
    """
    cross = x * d_y - y * d_x
    scale = 1.0 / jnp.maximum(squared_length, float(np.finfo(squared_length.dtype).tiny))
    chord = jnp.sqrt(jnp.maximum(radius * radius * squared_length - cross * cross, 0.0))
    return -(x * d_x + y * d_y) * scale, chord * scale


def _turns_away(
    x: jax.Array, y: jax.Array, d_x: jax.Array, d_y: jax.Array, radius: float
) -> jax.Array:
    """Return whether a path from (x, y) about a disc's centre starts outside and never enters.

    A path that starts on the edge counts as outside, and so does one that starts inside by a
    rounding error: an agent that a wall has stopped stands there, and must be free to leave.
    """
    edge = radius - _rounding(d_x) * (1.0 + radius)
    return (x * x + y * y >= edge * abs(edge)) & (x * d_x + y * d_y >= 0.0)


def _to_fraction(value: jax.Array) -> jax.Array:
    return jnp.clip(value, 0.0, 1.0)


def _division_floor(value: jax.Array) -> float:
    """Return the smallest divisor to use: its reciprocal times a displacement is finite."""
    return math.sqrt(np.finfo(value.dtype).tiny)


def _rounding(value: jax.Array) -> float:
    """Return the distance, relative to the coordinates' size, that rounding can blur."""
    return 8.0 * float(np.finfo(value.dtype).eps)


def _counter_clockwise(vertices: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the vertices of a convex polygon counter-clockwise; ``InputError`` for any other."""
    require(len(vertices) >= 3, "a polygon of at least 3 vertices", len(vertices))
    # Vertices that are equal in single precision have no edge between them.
    corners = np.asarray(vertices, np.float32).astype(np.float64) @ np.array([1.0, 1.0j])
    edges = np.roll(corners, -1) - corners
    require(bool(np.all(edges != 0.0)), "distinct vertices, one after another", vertices)
    area = float(np.sum(corners.conj() * np.roll(corners, -1)).imag) / 2.0
    require(abs(area) >= 1e-12, "a polygon with an area", abs(area))
    turn = math.copysign(1.0, area)
    angles = turn * np.angle(edges.conj() * np.roll(edges, -1))
    # Rounding may bend a straight side by 1e-9; a convex polygon turns round exactly once.
    convex = abs(np.sum(angles) - 2.0 * math.pi) <= 1e-6 and np.min(angles) >= -1e-9
    require(bool(convex), "a convex polygon", vertices)
    return vertices if turn > 0.0 else (vertices[0], *reversed(vertices[1:]))
