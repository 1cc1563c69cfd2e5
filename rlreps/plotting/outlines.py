"""Puddles as matplotlib paths."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.errors import InputError
from rlreps.plotting.style import INK, FloatArray


def outline(shape: Shape) -> Path:
    """The closed outline of a puddle's shape in the coordinates of the unit square.

    Raises:
        InputError: The shape is none of capsule, disc and convex polygon.
    """
    match shape:
        case Disc():
            centre = np.asarray(shape.centre, dtype=np.float64)
            return Path.circle((float(centre[0]), float(centre[1])), float(shape.radius))
        case ConvexPolygon():
            vertices = np.asarray(shape.vertices, dtype=np.float64)
            return Path(np.concatenate([vertices, vertices[:1]]), closed=True)
        case Capsule():
            start, end = (np.asarray(part, dtype=np.float64) for part in (shape.start, shape.end))
            return _capsule_outline(start, end, float(shape.radius))
    raise InputError(f"expected a Capsule, Disc or ConvexPolygon, got {type(shape).__name__}")


def _capsule_outline(start: FloatArray, end: FloatArray, radius: float) -> Path:
    """Half a circle about each end point, joined by the two straight sides."""
    axis = end - start
    heading = float(np.rad2deg(np.arctan2(axis[1], axis[0])))
    far, near = Path.arc(heading - 90, heading + 90), Path.arc(heading + 90, heading + 270)
    corners = [end + radius * np.asarray(far.vertices), start + radius * np.asarray(near.vertices)]
    codes = np.concatenate([np.asarray(far.codes), np.asarray(near.codes), [Path.CLOSEPOLY]])
    codes[len(corners[0])] = Path.LINETO
    return Path(np.concatenate([*corners, corners[0][:1]]), codes)


def draw_outlines(axes: Axes, environment: PuddleWorld, *, linewidth: float = 0.8) -> None:
    """Adds the outline of every puddle of `environment` to axes over the unit square."""
    for puddle in environment.puddles:
        axes.add_patch(
            PathPatch(
                outline(puddle.shape), fill=False, edgecolor=INK, linewidth=linewidth, zorder=3
            )
        )
