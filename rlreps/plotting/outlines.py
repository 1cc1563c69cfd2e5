"""Outlines of puddles."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.errors import InputError
from rlreps.plotting.style import (
    INK,
)


def outline(shape: Shape) -> Path:
    """Return the closed outline of a puddle's shape in the coordinates of the unit square.

    Raises:
        InputError: The shape is not a capsule, disc or convex polygon.
    """
    match shape:
        case Disc():
            x, y = np.asarray(shape.centre, np.float64).tolist()
            return Path.circle((x, y), float(shape.radius))
        case ConvexPolygon():
            vertices = np.asarray(shape.vertices, np.float64)
            return Path(np.concatenate([vertices, vertices[:1]]), closed=True)
        case Capsule():
            # Half a circle about each end point, joined by the two straight sides.
            start, end = (np.asarray(part, np.float64) for part in (shape.start, shape.end))
            heading, radius = np.rad2deg(np.arctan2(*(end - start)[::-1])), float(shape.radius)
            far, near = (Path.arc(heading + turn, heading + turn + 180) for turn in (-90, 90))
            ends = [
                centre + radius * np.asarray(arc.vertices)
                for centre, arc in ((end, far), (start, near))
            ]
            codes = np.concatenate(
                [np.asarray(far.codes), np.asarray(near.codes), [Path.CLOSEPOLY]]
            )
            codes[len(ends[0])] = Path.LINETO
            return Path(np.concatenate([*ends, ends[0][:1]]), codes)
    raise InputError(f"expected a Capsule, Disc or ConvexPolygon, got {type(shape).__name__}")


def draw_outlines(axes: Axes, environment: PuddleWorld, *, linewidth: float = 0.8) -> None:
    """Add the outline of every puddle of `environment` to axes over the unit square."""
    for puddle in environment.puddles:
        edge = PathPatch(
            outline(puddle.shape), fill=False, edgecolor=INK, linewidth=linewidth, zorder=3
        )
        axes.add_patch(edge)
