"""Shapes: intervals and depths at hand-computed and degenerate places, and bad shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapely

from rlreps.envs import Capsule, ConvexPolygon, Disc
from rlreps.errors import InputError

SQUARE = ConvexPolygon(((0.4, 0.4), (0.6, 0.4), (0.6, 0.6), (0.4, 0.6)))
SHAPES = {
    "disc": Disc((0.5, 0.5), 0.2),
    "capsule": Capsule((0.3, 0.5), (0.7, 0.6), 0.1),
    "point_capsule": Capsule((0.5, 0.5), (0.5, 0.5), 0.2),
    "polygon": ConvexPolygon(((0.2, 0.3), (0.8, 0.2), (0.9, 0.6), (0.4, 0.9))),
}
CASES = [
    (Disc((0.5, 0.5), 0.25), (0.0, 0.5), (1.0, 0.0), (0.25, 0.75)),
    (Disc((0.5, 0.5), 0.25), (0.5, 0.5), (0.5, 0.0), (0.0, 0.5)),
    (Capsule((0.4, 0.5), (0.6, 0.5), 0.1), (0.0, 0.5), (1.0, 0.0), (0.3, 0.7)),
    (Capsule((0.4, 0.5), (0.6, 0.5), 0.1), (0.0, 0.56), (1.0, 0.0), (0.32, 0.68)),
    (Capsule((0.5, 0.5), (0.5, 0.5), 0.25), (0.0, 0.5), (1.0, 0.0), (0.25, 0.75)),
    (SQUARE, (0.0, 0.5), (1.0, 0.0), (0.4, 0.6)),
    (SQUARE, (0.5, 0.5), (0.0, -0.2), (0.0, 0.5)),
    (SQUARE, (0.3, 0.5), (0.2, 0.2), (0.5, 0.5)),  # cuts no more than a corner
]
MISSES = [(0.0, 0.0, 0.05, 0.0), (0.0, 1.0, 0.9, 0.0), (0.45, 0.0, 0.0, 0.1), (1.0, 0.0, 0.0, 0.5)]


interval_of = jax.jit(lambda shape, origin, displacement: shape.interval(origin, displacement))


@pytest.mark.parametrize(("shape", "origin", "displacement", "expected"), CASES)
def test_intervals_match_hand_computed_ones(shape, origin, displacement, expected):
    interval = interval_of(shape, jnp.asarray(origin), jnp.asarray(displacement))
    np.testing.assert_allclose(interval, expected, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_intervals_are_fractions_and_never_nan_and_a_miss_leaves_before_it_enters(name):
    for move in MISSES:
        enter, leave = interval_of(SHAPES[name], jnp.asarray(move[:2]), jnp.asarray(move[2:]))
        assert 0.0 <= leave <= enter <= 1.0
    rng = np.random.default_rng(0)
    origins = rng.uniform(-1.0, 2.0, size=(4000, 2)).astype(np.float32)
    displacements = rng.normal(size=(4000, 2)) * 10.0 ** rng.uniform(-44, 1, size=(4000, 1))
    displacements[:1000] = 0.0
    displacements[1000:1500, 0] = 0.0
    displacements[1500:2000, 1] = 0.0
    shape = SHAPES[name]
    if name == "capsule":  # along and across its axis, and from its ends
        displacements[2000:2500] = (0.4, 0.1)
        displacements[2500:3000] = (-0.1, 0.4)
        origins[2400:2600] = shape.start
    enter, leave = jax.jit(jax.vmap(shape.interval))(origins, displacements.astype(np.float32))
    for fraction in (enter, leave):
        assert ((fraction >= 0.0) & (fraction <= 1.0)).all()


@pytest.mark.parametrize("name", SHAPES)
def test_depth_is_the_distance_to_the_edge_inside_and_zero_outside(name):
    shape = SHAPES[name]
    points = np.random.default_rng(1).uniform(size=(5000, 2)).astype(np.float32)
    located = shapely.points(points.astype(np.float64))
    if name == "polygon":
        region = shapely.Polygon(shape.vertices)
        inside = shapely.contains(region, located)
        expected = np.where(inside, shapely.distance(region.exterior, located), 0.0)
    else:
        centre = shape.centre if name == "disc" else None
        core = (
            shapely.Point(centre) if centre else shapely.MultiPoint([shape.start, shape.end])
        ).convex_hull
        expected = np.maximum(shape.radius - shapely.distance(core, located), 0.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(shape.depth))(points), expected, atol=3e-7)


def test_neither_a_clockwise_order_nor_a_vertex_in_the_middle_of_a_side_changes_anything():
    corners = SQUARE.vertices
    assert ConvexPolygon((corners[0], *reversed(corners[1:]))) == SQUARE
    longer = ConvexPolygon((corners[0], (0.5, 0.4), *corners[1:]))
    origins, moves = np.float32(np.random.default_rng(2).uniform(size=(2, 500, 2)))
    found, expected = (jax.vmap(each.interval)(origins, moves) for each in (longer, SQUARE))
    np.testing.assert_allclose(found, expected, atol=1e-6)


STAR = [(np.cos(angle), np.sin(angle)) for angle in np.arange(5) * 4.0 * np.pi / 5.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Disc((0.5, 0.5), 0.0), r"expected radius in \(0, 1000\], got 0.0"),
        (lambda: ConvexPolygon(((0, 0), (0, 0), (1, 0), (0, 1))), "expected distinct vertices"),
        (lambda: ConvexPolygon(tuple(STAR)), "expected a convex polygon"),
    ],
)
def test_shapes_that_make_no_sense_say_what_was_expected(build, message):
    with pytest.raises(InputError, match=message) as error:
        build()
    assert "\n" not in str(error.value)
