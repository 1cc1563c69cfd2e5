"""Mazes: nobody crosses a wall, everywhere is connected, and transitions and components know it."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
import shapely

from rlreps.envs import ConvexPolygon, Disc, Puddle, PuddleWorld, load_arena
from rlreps.errors import InputError
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.transition_kernels.matrix import one_step

INTEGRATION = pytest.mark.integration
MAZES = ("five_corridors", "spiral", "four_rooms", "two_room")

# Doors as (left, bottom, right, top): what closes every opening, and how many rooms that makes.
# Those of a corridor are its ends: where it turns.
DOORS = {
    "five_corridors": [
        (0.19, 0.8, 0.21, 1.0),
        (0.39, 0.0, 0.41, 0.2),
        (0.59, 0.8, 0.61, 1.0),
        (0.79, 0.0, 0.81, 0.2),
    ],
    "spiral": [
        (0.0, 0.79, 0.2, 0.81),
        (0.19, 0.0, 0.21, 0.2),
        (0.8, 0.19, 1.0, 0.21),
        (0.79, 0.6, 0.81, 0.8),
        (0.2, 0.59, 0.4, 0.61),
        (0.39, 0.2, 0.41, 0.4),
        (0.59, 0.4, 0.61, 0.6),
    ],
    "four_rooms": [
        (0.59, 0.14, 0.61, 0.26),
        (0.59, 0.64, 0.61, 0.76),
        (0.24, 0.39, 0.36, 0.41),
        (0.74, 0.39, 0.86, 0.41),
    ],
    "two_room": [(0.4, 0.39, 0.6, 0.61)],
}
ROOMS = {"five_corridors": 5, "spiral": 8, "four_rooms": 4, "two_room": 2}


def rectangle(left, bottom, right, top):
    return ConvexPolygon(((left, bottom), (right, bottom), (right, top), (left, top)))


def free_region(name, *, closed=False):
    """The square outside the walls, from shapely alone, its doors open or closed."""
    walls = [shapely.Polygon(puddle.shape.vertices) for puddle in load_arena(name).puddles]
    walls += [shapely.box(*door) for door in DOORS[name]] if closed else []
    return shapely.box(0.0, 0.0, 1.0, 1.0) - shapely.union_all(walls)


@pytest.mark.parametrize("line", [[(0.6, 0.0), (0.6, 1.0)], [(0.0, 0.4), (1.0, 0.4)]])
def test_the_doors_of_four_rooms_are_a_tenth_of_the_square_wide(line):
    openings = shapely.get_parts(shapely.LineString(line) & free_region("four_rooms"))
    np.testing.assert_allclose(shapely.length(openings), [0.1, 0.1], rtol=1e-9)


@pytest.mark.parametrize("name", MAZES)
def test_free_places_are_one_region_and_rooms_are_joined_by_their_doors_alone(name):
    assert free_region(name).geom_type == "Polygon"
    assert len(shapely.get_parts(free_region(name, closed=True))) == ROOMS[name]
    # Without one of its doors: a ring of rooms stays whole, a chain of them falls apart.
    for door in DOORS[name]:
        parts = shapely.get_parts(free_region(name) - shapely.box(*door))
        assert len(parts) == (1 if name == "four_rooms" else 2)


@INTEGRATION
@pytest.mark.parametrize(("name", "bins"), [("spiral", 20), ("five_corridors", 20)])
def test_transitions_lead_through_doors_alone(name, bins):
    """Behind closed doors the states of different rooms do not reach each other."""
    world = load_arena(name)
    doors = tuple(Puddle(rectangle(*door), 0.0) for door in DOORS[name])
    shut = dataclasses.replace(world, puddles=(*world.puddles, *doors))
    for maze, rooms in ((world, 1), (shut, ROOMS[name])):
        grid = Grid(bins).within(maze)
        chain = one_step(maze, grid, points=16, seed=0).chain
        chain = chain[grid.states][:, grid.states]
        np.testing.assert_allclose(chain.sum(axis=1), 1.0)
        found, _ = scipy.sparse.csgraph.connected_components(chain, connection="strong")
        assert found == rooms


def test_grids_whose_cells_a_wall_divides_have_no_transitions():
    with pytest.raises(InputError, match=r"expected cells that no wall divides.*, got '44 such c"):
        one_step(load_arena("five_corridors"), Grid(16), points=4, seed=0)


def test_cells_are_divided_by_walls_that_cut_them_and_not_by_the_ends_of_walls():
    def divided(shape, bins=10):
        return Grid(bins).within(PuddleWorld(puddles=(Puddle(shape, 0.0),))).divided.tolist()

    # Along the middle of column 4, from below up into row 5, where one can walk around its end.
    assert divided(rectangle(0.44, 0.0, 0.46, 0.55)) == [4, 14, 24, 34]
    assert divided(rectangle(0.39, 0.0, 0.41, 0.55)) == []
    # With a face on the line between two columns, rounding decides where an agent there counts.
    assert divided(rectangle(0.38, 0.0, 0.4, 1.0)) == list(range(3, 100, 10))
    assert divided(rectangle(0.3, 0.0, 0.4, 1.0)) == []
    # Next to a sliver of a cell.
    assert divided(rectangle(0.399, 0.0, 0.401, 1.0), 20) == []
    assert divided(rectangle(0.3505, 0.0, 0.39, 1.0), 20) == list(range(7, 400, 20))
    assert divided(Disc((0.5, 0.5), 0.33)) == []
