"""Pictures: what is where, and in which colour."""

import numpy as np
import pytest

from rlreps.envs import load_arena, render_frame
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
