"""Mazes: nobody crosses a wall, everywhere is connected, and transitions and components know it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import shapely

from rlreps.envs import (
    ConvexPolygon,
    Disc,
    Puddle,
    PuddleWorld,
    load_arena,
)
from rlreps.errors import InputError
from rlreps.subspace import centre_columns, exact_svd
from rlreps.successor import Transition
from rlreps.successor.grids import Grid
from rlreps.successor.kernels.matrix import one_step

INTEGRATION = pytest.mark.integration
MAZES = ("five_corridors", "spiral", "four_rooms", "two_room")
each_maze = pytest.mark.parametrize("name", MAZES)

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


def wall_boxes(name, *, closed):
    """An arena's walls for shapely, with its doors where they are closed."""
    walls = [shapely.Polygon(puddle.shape.vertices) for puddle in load_arena(name).puddles]
    return walls + ([shapely.box(*door) for door in DOORS[name]] if closed else [])


def free_region(name, *, closed=False):
    """The square outside the walls, from shapely alone, its doors open or closed."""
    return shapely.box(0.0, 0.0, 1.0, 1.0) - shapely.union_all(wall_boxes(name, closed=closed))


def rooms_of(name, points):
    """Number of the room [n] that holds each point [n, 2], doors closed; -1 is in none."""
    rooms = shapely.get_parts(free_region(name, closed=True))
    assert len(rooms) == ROOMS[name]
    found = np.full(len(points), -1)
    for number, room in enumerate(rooms):
        found[shapely.intersects_xy(room, points)] = number
    return found


@functools.cache
def wandering():
    @jax.jit
    def paths(world, starts, key):
        """Positions [steps, n, 2] of agents whose actions are random, often the same in a row."""

        def advance(carry, key):
            positions, actions = carry
            keys = jax.random.split(key, 3)
            fresh = jax.random.randint(keys[0], actions.shape, 0, 4)
            keep = jax.random.bernoulli(keys[1], 0.7, actions.shape)
            actions = jnp.where(keep, actions, fresh)
            noise = jax.random.normal(keys[2], positions.shape)
            positions = jax.vmap(world.move)(positions, actions, noise)
            return (positions, actions), positions

        actions = jnp.zeros(len(starts), jnp.int32)
        return jax.lax.scan(advance, (starts, actions), jax.random.split(key, 200))[1]

    return paths


def starts_everywhere(name, *, closed):
    """Places all over the square, and on the very edges and corners of walls, within rounding."""
    region = free_region(name, closed=closed)
    generator = np.random.default_rng(0)
    anywhere = generator.uniform(size=(900, 2))
    anywhere[:200, 0] = np.rint(anywhere[:200, 0])  # On the edges of the square.
    anywhere[200:400, 1] = np.rint(anywhere[200:400, 1])
    along = np.linspace(0.0, region.boundary.length, 800, endpoint=False)
    edges = shapely.get_coordinates(shapely.line_interpolate_point(region.boundary, along))
    starts = np.concatenate([anywhere, edges, shapely.get_coordinates(region)])
    starts = starts[shapely.distance(region, shapely.points(starts)) < 1e-9].astype(np.float32)
    starts += generator.integers(-2, 3, starts.shape) * np.spacing(starts)
    return jnp.asarray(np.resize(starts.clip(0.0, 1.0), (1800, 2)))


def nearest_room(name, points):
    """Number of the room nearest to each point [n, 2]: agents stand at a wall's very edge."""
    rooms = shapely.get_parts(free_region(name, closed=True))
    return np.argmin([shapely.distance(room, shapely.points(points)) for room in rooms], axis=0)


@pytest.mark.parametrize("line", [[(0.6, 0.0), (0.6, 1.0)], [(0.0, 0.4), (1.0, 0.4)]])
def test_the_doors_of_four_rooms_are_a_tenth_of_the_square_wide(line):
    openings = shapely.get_parts(shapely.LineString(line) & free_region("four_rooms"))
    np.testing.assert_allclose(shapely.length(openings), [0.1, 0.1], rtol=1e-9)


@INTEGRATION
@each_maze
def test_no_path_crosses_a_wall_and_no_agent_leaves_a_room_whose_doors_are_closed(name):
    world = load_arena(name)
    doors = tuple(Puddle(rectangle(*door), 0.0) for door in DOORS[name])
    for closed in (True, False):
        arena = PuddleWorld(puddles=(*world.puddles, *doors)) if closed else world
        starts = starts_everywhere(name, closed=closed)
        path = np.asarray(wandering()(arena, starts, jax.random.key(1)), np.float64)
        path = np.concatenate([np.asarray(starts, np.float64)[None], path])
        # Walls that end at the edge of the square go on beyond it, and are shrunk elsewhere.
        corners = np.stack([shapely.bounds(wall) for wall in wall_boxes(name, closed=closed)])
        corners = np.where(corners == 0.0, -1.0, np.where(corners == 1.0, 2.0, corners))
        walls = shapely.union_all(shapely.box(*corners.T)).buffer(-5e-6, join_style="mitre")
        shapely.prepare(walls)
        moves = np.stack([path[:-1], path[1:]], axis=2).reshape(-1, 2, 2)
        assert not shapely.intersects(walls, shapely.linestrings(moves)).any()
        rooms = np.stack([nearest_room(name, path[0]), nearest_room(name, path[-1])])
        if closed:
            np.testing.assert_array_equal(*rooms)
        else:  # Agents get from any room into others.
            assert set(rooms[0, rooms[0] != rooms[1]]) == set(range(ROOMS[name]))


@each_maze
def test_free_places_are_one_region_and_rooms_are_joined_by_their_doors_alone(name):
    assert free_region(name).geom_type == "Polygon"
    assert len(shapely.get_parts(free_region(name, closed=True))) == ROOMS[name]
    # Without one of its doors: a ring of rooms stays whole, a chain of them falls apart.
    for door in DOORS[name]:
        parts = shapely.get_parts(free_region(name) - shapely.box(*door))
        assert len(parts) == (1 if name == "four_rooms" else 2)


AXIS = (np.arange(100) + 0.5) / 100
SQUARES = np.stack([np.tile(AXIS, 100), np.repeat(AXIS, 100)], axis=1)


@functools.cache
def reachable_squares(name):
    """Pairs of squares of a hundredth with ways between them outside shapely's walls.

    Of at most 18 squares, as many as a move crosses.
    """
    free = shapely.contains_xy(free_region(name), SQUARES)
    index = np.arange(10_000).reshape(100, 100)
    pairs = np.concatenate(
        [
            np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()]),
            np.stack([index[:-1].ravel(), index[1:].ravel()]),
        ],
        axis=1,
    )
    pairs = pairs[:, free[pairs].all(axis=0)]
    alone = np.flatnonzero(free)
    rows, columns = np.concatenate([pairs, pairs[::-1], np.stack([alone, alone])], axis=1)
    near = scipy.sparse.csr_array((np.ones(len(rows), bool), (rows, columns)), shape=2 * (10_000,))
    ways = near
    for _ in range(4):  # 2, 4, 8 and 16 steps.
        ways = (ways @ ways).astype(bool)
    return (ways @ near @ near).astype(bool)


def reachable(name, bins):
    """Pairs of a grid's cells with ways between them outside the walls as short as a move."""
    ways = reachable_squares(name)
    owner = (SQUARES[:, 1] * bins).astype(int) * bins + (SQUARES[:, 0] * bins).astype(int)
    gather = scipy.sparse.csr_array((np.ones(10_000, bool), (owner, np.arange(10_000))))
    return (gather @ ways @ gather.T).astype(bool)


@functools.cache
def without_walls(bins):
    return one_step(PuddleWorld(), Grid(bins), points=32, seed=0).first


@INTEGRATION
@each_maze
@pytest.mark.parametrize("bins", [20, 100])
def test_no_transition_leads_through_a_wall(name, bins):
    world = load_arena(name)
    grid = Grid(bins).within(world)
    steps = one_step(world, grid, points=256 if bins == 20 else 32, seed=0)
    ways = reachable(name, bins)
    for matrix in (steps.first, steps.chain):
        np.testing.assert_allclose(matrix.sum(axis=1)[grid.states], 1.0)
        through = matrix - matrix * ways
        assert abs(through).sum() == 0.0
    # The test would see a leak: without the walls there are many such transitions.
    without = without_walls(bins)
    assert abs(without - without * ways).sum() > 0.01 * grid.num_states
    # Every state is reached from every other.
    chain = steps.chain[grid.states][:, grid.states]
    found, _ = scipy.sparse.csgraph.connected_components(chain, connection="strong")
    assert found == 1


@functools.cache
def components(name, bins=20, count=6):
    """Leading components [n, k] at a grid's states, and the states' centres."""
    measure = Transition(arena=name, bins=bins, points=64, discount=0.99)
    rows = measure.estimator().rows(np.arange(measure.num_states))
    basis = exact_svd(np.asarray(centre_columns(jnp.asarray(rows))), count).basis
    return np.asarray(basis, np.float64), np.asarray(measure.grid.centres(), np.float64)


def explained(columns, inputs):
    """R² of the columns [n, k] as linear functions of inputs [n, m]."""
    fitted = inputs @ np.linalg.lstsq(inputs, columns, rcond=None)[0]
    return np.sum(np.square(fitted)) / np.sum(np.square(columns))


@INTEGRATION
@pytest.mark.parametrize("name", ["four_rooms", "two_room"])
def test_leading_components_are_nearly_constant_over_rooms(name):
    basis, centres = components(name)
    count = ROOMS[name] - 1
    rooms = nearest_room(name, centres)
    inside = rooms_of(name, centres) >= 0
    members = np.eye(ROOMS[name])[rooms]
    assert explained(basis[inside, :count], members[inside]) > 0.9
    for first, second in [(0, 1)] if name == "two_room" else []:
        signs = [np.sign(basis[inside & (rooms == room), 0]) for room in (first, second)]
        assert all(abs(each.mean()) == 1.0 for each in signs)
        assert signs[0][0] == -signs[1][0]
    if name == "four_rooms":  # Without its walls, they are not.
        open_basis, open_centres = components("empty")
        share = explained(open_basis[:, :count], np.eye(4)[nearest_room(name, open_centres)])
        assert share < 0.8


# The middle of a corridor, from end to end.
SERPENTINE = [
    *((0.1, 0.0), (0.1, 0.9), (0.3, 0.9), (0.3, 0.1), (0.5, 0.1), (0.5, 0.9)),
    *((0.7, 0.9), (0.7, 0.1), (0.9, 0.1), (0.9, 1.0)),
]
COIL = [
    *((1.0, 0.9), (0.1, 0.9), (0.1, 0.1), (0.9, 0.1), (0.9, 0.7), (0.3, 0.7), (0.3, 0.3)),
    *((0.7, 0.3), (0.7, 0.5), (0.4, 0.5)),
]


@INTEGRATION
@pytest.mark.parametrize(("name", "line"), [("five_corridors", SERPENTINE), ("spiral", COIL)])
def test_leading_components_are_waves_along_the_corridor(name, line):
    """Those of a walk along a line with closed ends: cosines of half a wave, one, and so on."""
    basis, centres = components(name)
    middle = shapely.LineString(line)
    along = shapely.line_locate_point(middle, shapely.points(centres)) / middle.length
    for number in (1, 2, 3):
        wave = np.cos(np.pi * number * along)[:, None]
        both = np.concatenate([wave, np.ones_like(wave)], axis=1)
        found = explained(basis[:, number - 1 : number], both)
        assert found > 0.95, (number, found)
        open_basis, open_centres = components("empty")
        np.testing.assert_array_equal(open_centres, centres)
        assert explained(open_basis[:, number - 1 : number], both) < 0.7


def test_grids_whose_cells_a_wall_divides_have_no_transitions():
    for name, bins, divided in (
        ("five_corridors", 20, 0),
        ("five_corridors", 16, 44),
        ("two_room", 16, 0),
    ):
        grid = Grid(bins).within(load_arena(name))
        assert len(grid.divided) == divided
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
