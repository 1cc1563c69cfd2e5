"""Walls and rounding: nobody gets in, nobody gets through, nobody gets stuck."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapely

from rlreps.envs import Capsule, ConvexPolygon, Disc, Puddle, PuddleWorld, load_arena

TOLERANCE = 1e-6
INTEGRATION = pytest.mark.integration
WALLS = {
    "rectangle": ConvexPolygon(((0.4, 0.6), (0.6, 0.6), (0.6, 1.0), (0.4, 1.0))),
    "triangle": ConvexPolygon(((0.31, 0.27), (0.73, 0.41), (0.47, 0.83))),
    "disc": Disc((0.53, 0.47), 0.23),
    "capsule": Capsule((0.31, 0.42), (0.67, 0.58), 0.13),
}
REGIONS = {
    "rectangle": shapely.Polygon(WALLS["rectangle"].vertices),
    "triangle": shapely.Polygon(WALLS["triangle"].vertices),
    "disc": shapely.Point(0.53, 0.47).buffer(0.23, quad_segs=512),
    "capsule": shapely.LineString([(0.31, 0.42), (0.67, 0.58)]).buffer(0.13, quad_segs=512),
}


def trajectories(world, starts, seed, steps):
    """Positions [steps + 1, agents, 2] of agents that act at random."""

    def advance(positions, key):
        noise_key, action_key = jax.random.split(key)
        actions = jax.random.randint(action_key, (len(positions),), 0, 4)
        noise = jax.random.normal(noise_key, positions.shape)
        positions = jax.vmap(world.move)(positions, actions, noise)
        return positions, positions

    keys = jax.random.split(jax.random.key(seed), steps)
    _, visited = jax.jit(lambda p: jax.lax.scan(advance, p, keys))(jnp.asarray(starts, jnp.float32))
    return np.concatenate([np.asarray(starts, np.float32)[None], np.asarray(visited)])


def longest_rest(path):
    """The most steps in a row, over all agents, in which one did not move."""
    longest, current = 0, np.zeros(path.shape[1], int)
    for still in (path[1:] == path[:-1]).all(axis=2):
        current = np.where(still, current + 1, 0)
        longest = max(longest, int(current.max()))
    return longest


def deepest(wall, positions):
    depth = jax.jit(jax.vmap(wall.depth))(jnp.asarray(positions.reshape(-1, 2)))
    return float(jnp.max(depth))


@pytest.mark.parametrize(
    "name",
    ["rectangle", "disc", *(pytest.param(n, marks=INTEGRATION) for n in ("triangle", "capsule"))],
)
def test_agents_at_the_edge_neither_sink_in_nor_stick_and_those_inside_stay(name):
    wall, region = WALLS[name], REGIONS[name]
    boundary = region.exterior
    along = np.linspace(0.0, boundary.length, 300, endpoint=False)
    edge = shapely.get_coordinates(shapely.line_interpolate_point(boundary, along))
    corners = np.asarray(boundary.coords)[:: 1 + len(boundary.coords) // 100]
    starts = np.concatenate([edge, corners]).clip(0.0, 1.0).astype(np.float32)
    ulps = np.random.default_rng(0).integers(-2, 3, size=starts.shape)
    starts = (starts + ulps * np.spacing(starts)).clip(0.0, 1.0).astype(np.float32)
    starts = np.concatenate([starts, shapely.get_coordinates(region.centroid)])
    path = trajectories(PuddleWorld(puddles=(Puddle(wall, 0.0),)), starts, seed=2, steps=200)
    path, inside = path[:, :-1], path[:, -1]
    assert (inside == inside[0]).all()  # An agent that starts well inside a wall stays there.
    # A wall reaches past the square: whoever is between its corners on the square's edge is inside.
    shut = (path[0, :, 1] > 1.0 - 1e-6) & (np.abs(path[0, :, 0] - 0.5) < 0.0999)
    assert shut.any() == (name == "rectangle")
    assert np.abs(path[:, shut] - path[0, shut]).max(initial=0.0) < 1e-5
    path = path[:, ~shut]
    assert deepest(wall, path) <= TOLERANCE
    assert longest_rest(path) < 100
    moves = np.stack([path[:-1], path[1:]], axis=2).reshape(-1, 2, 2).astype(np.float64)
    shrunk = region.buffer(-5e-6)
    shapely.prepare(shrunk)
    assert not shapely.intersects(shrunk, shapely.linestrings(moves)).any()


@pytest.mark.parametrize("name", ["rectangle"])
def test_many_tiny_moves_do_not_creep_into_a_wall(name):
    wall, boundary = WALLS[name], REGIONS[name].exterior
    along = np.linspace(0.0, boundary.length, 500, endpoint=False)
    starts = shapely.get_coordinates(shapely.line_interpolate_point(boundary, along))
    # On the square's edge, but for its corners, the wall has no edge.
    starts = starts[(starts[:, 1] < 1.0) | (np.abs(starts[:, 0] - 0.5) > 0.0999)]
    world = PuddleWorld(puddles=(Puddle(wall, 0.0),), step_size=2e-7, noise=2e-7)
    path = trajectories(world, starts.clip(0.0, 1.0), seed=3, steps=2000)
    assert deepest(wall, path) <= TOLERANCE


def test_reset_draws_uniformly_from_the_square_outside_walls():
    world = load_arena("two_room")
    keys = jax.random.split(jax.random.key(5), 20_000)
    positions = np.asarray(jax.jit(jax.vmap(world.reset))(keys).position)
    for puddle in world.puddles:
        assert deepest(puddle.shape, positions) == 0.0
    # 0.84 of the square is free, 0.4 of it lies left of the walls, 0.04 in the door.
    for low, high, area in [(0.0, 0.4, 0.4), (0.4, 0.6, 0.04), (0.6, 1.0, 0.4)]:
        share = ((positions[:, 0] >= low) & (positions[:, 0] < high)).mean()
        expected = area / 0.84
        error = np.sqrt(expected * (1.0 - expected) / len(positions))
        assert abs(share - expected) < 4.0 * error


# From the square's lower edge to its upper one: by sides, corners, tips, or a point of the rim.
PARTITIONS = {
    "side": ConvexPolygon(((0.4, 0.0), (0.6, 0.0), (0.6, 1.0), (0.4, 1.0))),
    "corner": ConvexPolygon(((0.5, 0.0), (0.9, 0.5), (0.5, 1.0), (0.1, 0.5))),
    "tip": Capsule((0.5, 0.1), (0.5, 0.9), 0.1),
    "rim": Disc((0.5, 0.5), 0.5),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", PARTITIONS)
def test_nobody_crosses_a_wall_along_the_edge_of_the_square(name, dtype):
    """Agents on the edges of the square, with and without noise, on either side of the wall."""
    agents, steps = 400, 60
    generator = np.random.default_rng(0)
    x = generator.uniform(0.0, 0.3, agents)
    x[agents // 2 :] = 1.0 - x[agents // 2 :]
    left = x < 0.5
    starts = np.stack([x, generator.integers(2, size=agents)], axis=1)
    towards = np.tile(np.where(left, 1, 3), (steps, 1))
    world = PuddleWorld(puddles=(Puddle(PARTITIONS[name], 0.0),))

    @jax.jit
    def paths(starts, actions, noise):
        def advance(position, step):
            position = jax.vmap(world.move)(position, *step)
            return position, position

        return jax.lax.scan(advance, starts, (actions, noise))[1]

    with jax.enable_x64(dtype == jnp.float64):
        for actions, scale in (
            (towards, 0.0),
            (towards, 1.0),
            (generator.integers(4, size=(steps, agents)), 1.0),
        ):
            noise = scale * generator.standard_normal((steps, agents, 2))
            given = jnp.asarray(starts, dtype), jnp.asarray(actions, jnp.int32)
            side = np.asarray(paths(*given, jnp.asarray(noise, dtype)))[..., 0]
            assert side.dtype == dtype
            np.testing.assert_array_equal(side < 0.5, np.broadcast_to(left, side.shape))
            reached = np.where(left, side.max(axis=0), 1.0 - side.min(axis=0))
            assert scale or np.all(reached > 0.39 if name == "side" else reached > 0.48)
