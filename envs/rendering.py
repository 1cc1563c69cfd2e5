"""Pictures of PuddleWorld as arrays of pixels, drawn with Pillow."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import Puddle, PuddleWorld
from rlreps.errors import InputError, require, require_positive

# Blue, orange and yellow differ under the common kinds of colour blindness (Okabe & Ito 2008),
# and puddles, walls and the agent also differ in lightness.
FLOOR_COLOUR = (248, 248, 244)
PUDDLE_COLOUR = (0, 68, 136)
WALL_COLOUR = (38, 38, 44)
GOAL_COLOUR = (240, 208, 66)
AGENT_COLOUR = (213, 94, 0)
OUTLINE_COLOUR = (255, 255, 255)

AGENT_RADIUS = 0.02
_OVERSAMPLING = 4

Picture = npt.NDArray[np.uint8]


def render_frame(
    environment: PuddleWorld, position: npt.ArrayLike | None = None, size: int = 256
) -> Picture:
    """Draw puddles (the slower the darker, walls almost black), goal and agent.

    Args:
        environment: the environment. The goal is drawn only if it ends an episode.
        position: [2], where to draw the agent; None draws none.
        size: side of the picture in pixels.

    Returns:
        uint8 [size, size, 3], RGB. The y axis points up: row 0 is the top edge, y = 1.

    Raises:
        InputError: ``size`` is less than 1 or ``position`` is not two numbers.
    """
    require_positive("size", size)
    background = _background_of(environment, size)
    if position is None:
        return background.copy()
    point = np.asarray(position, np.float64)
    require(point.shape == (2,), "a position of shape (2,)", point.shape)
    outline = _coverage(Disc((point[0], point[1]), AGENT_RADIUS * 1.4), size)
    body = _coverage(Disc((point[0], point[1]), AGENT_RADIUS), size)
    picture = _paint(background.astype(np.float64), outline, OUTLINE_COLOUR)
    return _to_pixels(_paint(picture, body, AGENT_COLOUR))


@lru_cache(maxsize=16)
def _background_of(environment: PuddleWorld, size: int) -> Picture:
    return draw_background(environment.puddles, environment.goal_region, size)


def draw_background(puddles: tuple[Puddle, ...], goal: Shape | None, size: int) -> Picture:
    """Draw everything that does not move, uint8 [size, size, 3]."""
    speed = np.ones((size, size))
    walls = np.zeros((size, size))
    for puddle in puddles:
        covered = _coverage(puddle.shape, size)
        if puddle.multiplier > 0.0:
            speed *= 1.0 - covered * (1.0 - puddle.multiplier)
        else:
            walls = np.maximum(walls, covered)
    picture = np.broadcast_to(np.asarray(FLOOR_COLOUR, np.float64), (size, size, 3))
    picture = _paint(picture, 1.0 - speed, PUDDLE_COLOUR)
    if goal is not None:
        picture = _paint(picture, _coverage(goal, size), GOAL_COLOUR)
    return _to_pixels(_paint(picture, walls, WALL_COLOUR))


def _coverage(shape: Shape, size: int) -> npt.NDArray[np.float64]:
    """Return how much of each pixel [size, size] a shape covers, from 0 to 1."""
    side = size * _OVERSAMPLING
    image = Image.new("L", (side, side), 0)
    draw = ImageDraw.Draw(image)
    if isinstance(shape, Disc):
        discs, corners = [(shape.centre, shape.radius)], []
    elif isinstance(shape, Capsule):
        discs = [(shape.start, shape.radius), (shape.end, shape.radius)]
        corners = _sides(shape)
    elif isinstance(shape, ConvexPolygon):
        discs, corners = [], [np.asarray(vertex) for vertex in shape.vertices]
    else:
        raise InputError(f"expected a Disc, Capsule or ConvexPolygon to draw, got {shape!r}")
    for centre, radius in discs:
        (x, y), half = _to_picture(centre, side), radius * side
        draw.ellipse((x - half, y - half, x + half, y + half), fill=255)
    if corners:
        draw.polygon([_to_picture(corner, side) for corner in corners], fill=255)
    small = image.resize((size, size), Image.Resampling.BOX)
    return np.asarray(small, np.float64) / 255.0


def _sides(shape: Capsule) -> list[npt.NDArray[np.float64]]:
    """Return the corners of the rectangle between a capsule's discs; none if they coincide."""
    start, end = np.asarray(shape.start), np.asarray(shape.end)
    length = float(np.hypot(*(end - start)))
    if length == 0.0:
        return []
    across = np.array([start[1] - end[1], end[0] - start[0]]) * (shape.radius / length)
    return [start + across, start - across, end - across, end + across]


def _to_picture(point: Any, side: int) -> tuple[float, float]:
    # Pillow's integers are pixel centres, while the square's edges are pixel edges.
    return float(point[0]) * side - 0.5, (1.0 - float(point[1])) * side - 0.5


def _paint(
    picture: npt.NDArray[np.float64], covered: npt.NDArray[np.float64], colour: tuple[int, int, int]
) -> npt.NDArray[np.float64]:
    weight = covered[:, :, None]
    return picture * (1.0 - weight) + np.asarray(colour, np.float64) * weight


def _to_pixels(picture: npt.NDArray[np.float64]) -> Picture:
    return np.rint(picture).astype(np.uint8)
