"""Goals anywhere, and what agents see: positions, codes, images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import Code, Disc, Image, Position, PuddleWorldState, load_arena
from rlreps.envs.rendering import AGENT_COLOUR, FLOOR_COLOUR, GOAL_COLOUR, WALL_COLOUR
from rlreps.errors import InputError
from rlreps.successor.measure.grids import Grid

RIGHT, KEY = jnp.asarray(1, jnp.int32), jax.random.key(0)


def at(x, y):
    return PuddleWorldState(jnp.asarray([x, y], jnp.float32), jnp.zeros((), jnp.int32))


def test_a_goals_disc_ends_the_episode_of_an_agent_that_stops_in_it():
    world = load_arena("empty", noise=0.0, goal=(0.5, 0.5, 0.02), step_penalty=True)
    assert world.goal == Disc((0.5, 0.5), 0.02)
    step = jax.jit(lambda state: world.step(KEY, state, RIGHT))
    for x, y, ended in [
        (0.44, 0.5, True),
        (0.44, 0.521, False),
        (0.475, 0.5, False),  # Through it.
        (0.95, 0.99, False),  # The corner is none.
    ]:
        taken = step(at(x, y))
        assert (bool(taken.terminated), float(taken.reward)) == (ended, -1.0)
    assert world.with_task().goal == world.goal


def test_no_episode_starts_in_a_goals_disc_or_a_wall():
    world = load_arena("five_corridors", goal=(0.3, 0.5, 0.3))
    keys = jax.random.split(KEY, 4000)
    starts = np.asarray(jax.jit(jax.vmap(world.reset))(keys).position)
    assert np.hypot(*(starts - [0.3, 0.5]).T).min() >= 0.3 - 1e-6
    assert jax.vmap(Grid(1).within(world).is_free)(starts).all()


def test_codes_are_uniform_draws_of_the_cell_and_of_the_options_alone():
    code = Code(bins=5, size=4, seed=2)
    table = code.table()
    observe = jax.jit(jax.vmap(load_arena("empty", observation=code).observe_position))
    places = np.asarray([[0.01, 0.01], [0.99, 0.01], [0.3, 0.5], [1.0, 1.0], [0.39, 0.41]])
    seen = observe(places.astype(np.float32))
    np.testing.assert_array_equal(seen, table[[0, 4, 11, 24, 11]])
    np.testing.assert_array_equal(table, np.random.default_rng(2).random((25, 4), np.float32))


def test_an_image_shows_walls_and_the_agent_and_not_the_goal():
    world = load_arena("five_corridors", goal=(0.1, 0.1, 0.05), observation=Image(size=40))
    observe = jax.jit(world.observe_position)
    image = np.asarray(observe(jnp.asarray([0.7, 0.3])))
    assert (image.shape, image.dtype) == ((40, 40, 3), np.uint8)

    def colour(x, y):
        return tuple(image[int((1.0 - y) * 40), int(x * 40)].tolist())

    assert colour(0.7, 0.3) == AGENT_COLOUR
    assert colour(0.1, 0.1) == colour(0.3, 0.3) == FLOOR_COLOUR
    assert GOAL_COLOUR not in map(tuple, image.reshape(-1, 3).tolist())
    # A wall half a pixel either side of a line of pixels.
    assert all(
        abs(a - (b + c) / 2) < 25
        for a, b, c in zip(colour(0.2, 0.5), FLOOR_COLOUR, WALL_COLOUR, strict=True)
    )
    # A tenth of a pixel to the right is another picture.
    assert (np.asarray(observe(jnp.asarray([0.7025, 0.3]))) != image).any()


def test_images_of_cells_repeat_exactly_and_show_the_agent_in_the_middle():
    worlds = [load_arena("spiral", observation=Image(size=8, bins=bins)) for bins in (10, None)]
    cells, exact = (jax.jit(jax.vmap(world.observe_position)) for world in worlds)
    places = jnp.asarray([[0.21, 0.39], [0.25, 0.35], [0.2999, 0.3001], [0.31, 0.35], [1.0, 0.0]])
    middles = jnp.asarray([[0.25, 0.35]] * 3 + [[0.35, 0.35], [0.95, 0.05]])
    np.testing.assert_array_equal(cells(places), exact(middles))
    assert (np.asarray(cells(places))[3] != np.asarray(cells(places))[2]).any()


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ("smell", "expected observation to be one of code, image, position, got 'smell'"),
        ({"name": "image", "size": 12_000}, "expected size <= 1,024, got 12000"),
    ],
)
def test_observations_that_cannot_be_made_say_what_was_expected(observation, message):
    with pytest.raises(InputError, match=message):
        load_arena("empty", observation=observation)


def test_states_of_a_grid_have_observations():
    for kind in (Position(), Code(bins=10), Image(size=8), Image(size=8, bins=10)):
        world = load_arena("two_room", observation=kind)
        grid = Grid(10).within(world)
        seen = grid.observations(world)
        assert len(seen) == grid.num_states == 84
        expected = {
            "position": grid.centres(),
            "code": Code(bins=10).table()[grid.states],
            "image": seen,
        }[kind.name]
        np.testing.assert_array_equal(seen, expected)
        if kind.name == "image":
            assert len(np.unique(seen, axis=0)) == 84
