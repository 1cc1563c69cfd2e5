"""Moves against an oracle that walks each path with shapely, puddle by puddle, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapely

from rlreps.envs import ARENAS, Capsule, ConvexPolygon, Disc, Puddle, PuddleWorld, load_arena

MOVES = 4000
DIRECTIONS = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])


def core_of(shape):
    """What a round shape is the neighbourhood of."""
    if isinstance(shape, Disc):
        return shapely.Point(shape.centre)
    if shape.start == shape.end:
        return shapely.Point(shape.start)
    return shapely.LineString([shape.start, shape.end])


def bisect(is_past, low, high):
    """Where a predicate that is first false, then true, along each path changes."""
    for _ in range(42):
        middle = (low + high) / 2.0
        past = is_past(middle)
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    return high


def stretch_in_round_shape(shape, paths):
    """Distances at which paths enter and leave, from shapely's distances to the core alone."""
    core, radius = core_of(shape), shape.radius
    enter = shapely.length(paths)
    leave = enter.copy()
    hit = np.flatnonzero(shapely.distance(paths, core) < radius)
    paths, length = paths[hit], enter[hit]

    def distance(along):
        return shapely.distance(shapely.line_interpolate_point(paths, along), core)

    low, high = np.zeros_like(length), length.copy()
    for _ in range(60):  # the distance to a convex set is convex along a line
        third = (high - low) / 3.0
        nearer = distance(low + third) < distance(high - third)
        low, high = np.where(nearer, low, low + third), np.where(nearer, high - third, high)
    nearest = (low + high) / 2.0
    start = np.zeros_like(length)
    enter[hit] = np.where(
        distance(start) <= radius, 0.0, bisect(lambda s: distance(s) <= radius, start, nearest)
    )
    leave[hit] = np.where(
        distance(length) <= radius,
        length,
        bisect(lambda s: distance(s) >= radius, nearest, length),
    )
    return enter, leave


def stretch_in_region(region, paths):
    """Distances at which paths enter and leave a shapely polygon."""
    inside = shapely.intersection(paths, region)
    starts = shapely.get_point(paths, 0)
    size = shapely.length(inside)
    enter = np.where(size > 0.0, shapely.distance(starts, inside), shapely.length(paths))
    return enter, enter + size


def stretch_inside(shape, paths):
    if isinstance(shape, ConvexPolygon):
        return stretch_in_region(shapely.Polygon(shape.vertices), paths)
    return stretch_in_round_shape(shape, paths)


def walk(world, starts, ends):
    """Spend each path's length as a budget, one puddle after the other."""
    ends = ends.copy()
    for puddle in world.puddles:
        moving = np.flatnonzero(np.hypot(*(ends - starts).T) > 0.0)
        origin, target = starts[moving], ends[moving]
        length = np.hypot(*(target - origin).T)
        paths = shapely.linestrings(np.stack([origin, target], axis=1))
        enter, leave = stretch_inside(puddle.shape, paths)
        before, inside = enter, np.where(enter < length, leave - enter, 0.0)
        if puddle.multiplier == 0.0:
            travelled = np.where(inside > 0.0, before, length)
        else:
            left_at_edge = length - before
            cost = inside / puddle.multiplier
            ends_inside = before + left_at_edge * puddle.multiplier
            comes_out = before + inside + (left_at_edge - cost)
            travelled = np.where(cost >= left_at_edge, ends_inside, comes_out)
            travelled = np.where(inside > 0.0, travelled, length)
        ends[moving] = origin + (target - origin) * (travelled / length)[:, None]
    return ends


def unshortened(world, starts, actions, noise):
    return np.clip(starts + DIRECTIONS[actions] * world.step_size + world.noise * noise, 0.0, 1.0)


def random_moves(seed):
    """Starts, actions and noise; float32 numbers, so that both precisions see the same moves."""
    rng = np.random.default_rng(seed)
    starts = rng.uniform(size=(MOVES, 2)).astype(np.float32).astype(np.float64)
    starts[: MOVES // 20] = np.rint(starts[: MOVES // 20])  # corners of the square
    actions = rng.integers(4, size=MOVES)
    noise = rng.standard_normal((MOVES, 2)).astype(np.float32).astype(np.float64)
    return starts, actions, noise


def moved(world, starts, actions, noise, dtype):
    move = jax.jit(jax.vmap(world.move))
    ends = move(
        jnp.asarray(starts, dtype), jnp.asarray(actions, jnp.int32), jnp.asarray(noise, dtype)
    )
    assert ends.dtype == dtype
    return np.asarray(ends, np.float64)


def random_polygon(seed):
    points = np.random.default_rng(seed).uniform(0.2, 0.9, size=(12, 2))
    hull = shapely.MultiPoint(points).convex_hull
    return ConvexPolygon(tuple(map(tuple, np.asarray(hull.exterior.coords)[:-1])))


WORLDS = {name: load_arena(name) for name in ARENAS} | {
    # Moves long enough to pass through several puddles, in any direction.
    "custom": PuddleWorld(
        puddles=(
            Puddle(random_polygon(0), 0.3),
            Puddle(Capsule((0.2, 0.3), (0.7, 0.9), 0.07), 0.8),
            Puddle(Capsule((0.8, 0.2), (0.8, 0.2), 0.1), 0.6),
            Puddle(Disc((0.3, 0.8), 0.12), 0.0),
            Puddle(random_polygon(1), 0.9),
        ),
        step_size=0.15,
        noise=0.2,
    ),
}


MAZES = ("five_corridors", "spiral", "four_rooms")
INTEGRATION = pytest.mark.integration


def forgiven(world, starts):
    """Which starts [n] are in a wall by no more than rounding: the dynamics let them leave."""
    places = jnp.asarray(starts, jnp.float32)
    depths = [np.zeros(len(starts)), *(jax.vmap(wall.depth)(places) for wall in world.walls)]
    deepest = np.max([np.asarray(depth) for depth in depths], axis=0)
    return (deepest > 0.0) & (deepest < 3e-6)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[INTEGRATION] * (name in MAZES)) for name in WORLDS]
)
def test_moves_end_where_shapely_says_in_either_precision(name):
    world, moves = WORLDS[name], random_moves(5)
    left_out = forgiven(world, moves[0])
    assert left_out.sum() <= (1 if name in MAZES else 0)
    starts, actions, noise = (part[~left_out] for part in moves)
    expected = walk(world, starts, unshortened(world, starts, actions, noise))
    ends = moved(world, starts, actions, noise, jnp.float32)
    np.testing.assert_allclose(ends, expected, rtol=0.0, atol=1e-5)
    with jax.enable_x64(True):
        ends = moved(world, starts, actions, noise, jnp.float64)
    np.testing.assert_allclose(ends, expected, rtol=0.0, atol=1e-9)
