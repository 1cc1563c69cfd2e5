"""Pictures: what is where, and in which colour."""

import numpy as np
import pytest

from rlreps.envs import (
    Capsule,
    ConvexPolygon,
    Disc,
    Puddle,
    PuddleWorld,
    load_arena,
    render_frame,
)
from rlreps.envs.rendering import (
    AGENT_COLOUR,
    FLOOR_COLOUR,
    GOAL_COLOUR,
    PUDDLE_COLOUR,
    WALL_COLOUR,
)

SIZE = 200


def colour_at(frame, x, y):
    """The pixel that contains a point of the unit square."""
    size = len(frame)
    return tuple(int(c) for c in frame[min(int((1.0 - y) * size), size - 1), int(x * size)])


def blend(amount):
    floor, puddle = np.asarray(FLOOR_COLOUR), np.asarray(PUDDLE_COLOUR)
    return pytest.approx(tuple(floor + (puddle - floor) * amount), abs=1)


def test_the_agent_is_drawn_where_it_is_with_y_pointing_up():
    for x, y in [(0.2, 0.9), (0.8, 0.3), (0.01, 0.01)]:
        frame = render_frame(load_arena("empty"), np.asarray([x, y], np.float32), size=SIZE)
        assert colour_at(frame, x, y) == AGENT_COLOUR
        assert colour_at(frame, 1.0 - x, 1.0 - y) == FLOOR_COLOUR
        rows, columns = np.nonzero((frame == AGENT_COLOUR).all(axis=2))
        if x > 0.1:  # not cut by the picture's edge
            assert (columns.mean() + 0.5) / SIZE == pytest.approx(x, abs=0.005)
            assert 1.0 - (rows.mean() + 0.5) / SIZE == pytest.approx(y, abs=0.005)


@pytest.mark.parametrize(
    ("arena", "fields", "point", "expected"),
    [
        # Slower places are darker and overlaps compound.
        ("hydrogen", {}, (0.05, 0.05), FLOOR_COLOUR),
        ("hydrogen", {}, (0.5, 0.72), blend(0.5)),
        ("hydrogen", {}, (0.5, 0.5), blend(0.75)),
        # Walls are solid and slow walls are not.
        ("two_room", {}, (0.5, 0.9), WALL_COLOUR),
        ("two_room", {}, (0.5, 0.5), FLOOR_COLOUR),
        ("two_room_slow", {}, (0.5, 0.9), blend(0.5)),
        # The goal corner shows only where it ends an episode.
        ("empty", {"goal": True}, (0.98, 0.98), GOAL_COLOUR),
        ("empty", {"goal": True}, (0.93, 0.93), FLOOR_COLOUR),
        ("empty", {}, (0.98, 0.98), FLOOR_COLOUR),
    ],
)
def test_every_place_has_its_colour(arena, fields, point, expected):
    assert colour_at(render_frame(load_arena(arena, **fields), size=SIZE), *point) == expected


@pytest.mark.parametrize(
    "shape",
    [
        Disc((0.4, 0.6), 0.2),
        Capsule((0.2, 0.3), (0.6, 0.7), 0.1),
        Capsule((0.5, 0.5), (0.5, 0.5), 0.2),
        ConvexPolygon(((0.1, 0.2), (0.9, 0.3), (0.5, 0.8))),
    ],
    ids=["disc", "capsule", "point_capsule", "polygon"],
)
def test_a_drawn_shape_is_the_shape_of_the_dynamics(shape):
    frame = render_frame(PuddleWorld(puddles=(Puddle(shape, 0.0),)), size=SIZE)
    centres = (np.arange(SIZE) + 0.5) / SIZE
    points = np.stack(np.meshgrid(centres, centres[::-1]), axis=-1)
    depths = np.asarray(
        [[float(shape.depth(point)) for point in row[::10]] for row in points[::10]]
    )
    drawn = frame[::10, ::10]
    assert ((drawn == WALL_COLOUR).all(axis=2) >= (depths > 2.0 / SIZE)).all()
    grown = (drawn == FLOOR_COLOUR).all(axis=2)
    assert (~grown | (depths < 2.0 / SIZE)).all()
    area = (frame.astype(float) - FLOOR_COLOUR)[..., 0] / (WALL_COLOUR[0] - FLOOR_COLOUR[0])
    assert area.mean() == pytest.approx(area_of(shape), rel=0.02)


def area_of(shape):
    if isinstance(shape, Disc):
        return np.pi * shape.radius**2
    if isinstance(shape, Capsule):
        length = np.hypot(shape.end[0] - shape.start[0], shape.end[1] - shape.start[1])
        return np.pi * shape.radius**2 + 2.0 * shape.radius * length
    (a, b, c) = np.asarray(shape.vertices)
    return abs((b - a)[0] * (c - a)[1] - (b - a)[1] * (c - a)[0]) / 2.0
