"""Maps: what is drawn where, in which colour, between which limits."""

import dataclasses
import functools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.quiver import Quiver
from matplotlib.transforms import Affine2D

from rlreps import plotting
from rlreps.envs import PuddleWorld, load_arena
from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc
from rlreps.envs.puddle_world import Puddle
from rlreps.errors import InputError
from rlreps.plotting import (
    figure_bytes,
    plot_policy_and_value,
    plot_reconstructions,
    plot_signed_images,
    plot_torso_components,
)
from rlreps.plotting.maps import ACTIONS, outline
from rlreps.plotting.style import MISSING, OKABE_ITO

HALF = 1.5 / 255  # Colours are stored as whole numbers of 255ths.


@functools.lru_cache(maxsize=4)
def rendered(figure: Figure) -> np.ndarray:
    """The figure's pixels [height, width, 4]; every figure is drawn once."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def colour_at(figure: Figure, axes: Axes, x: float, y: float) -> np.ndarray:
    """The colour [3] of the rendered figure at the point (x, y) of `axes`."""
    pixels = rendered(figure)
    column, up = axes.transData.transform((x, y))
    return pixels[pixels.shape[0] - 1 - int(up), int(column), :3] / 255


def texts(figure: Figure) -> str:
    """All that is written in the figure."""
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return "\n".join(artist.get_text() for artist in found)


def maps_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.images]


class TestComponents:
    def test_the_cell_of_small_x_and_large_y_is_drawn_at_the_top_left(self):
        bins = 4
        cells = np.zeros((bins * bins, 1))
        cells[(bins - 1) * bins + 0] = 1.0
        figure = plotting.plot_components({"truth": cells}, bins=bins)
        (axes,) = maps_of(figure)
        centres = (np.arange(bins) + 0.5) / bins
        positive, zero = (np.array(plotting.signed_colormap()(level)[:3]) for level in (1.0, 0.5))
        for x in centres:
            for y in centres:
                expected = positive if (x, y) == (centres[0], centres[-1]) else zero
                assert np.allclose(colour_at(figure, axes, x, y), expected, atol=HALF)
        box = axes.get_window_extent()
        corner = axes.transData.transform((centres[0], centres[-1]))
        assert corner[0] < box.x0 + box.width / 2
        assert corner[1] > box.y0 + box.height / 2

    def test_opposite_values_get_the_two_ends_of_the_map_and_zero_its_centre(self):
        cells = np.array([[-3.0], [0.0], [1.0], [3.0]])
        figure = plotting.plot_components({"truth": cells}, bins=2)
        (axes,) = maps_of(figure)
        colormap = plotting.signed_colormap()
        for (x, y), level in (((0.25, 0.25), 0.0), ((0.75, 0.25), 0.5), ((0.75, 0.75), 1.0)):
            assert np.allclose(colour_at(figure, axes, x, y), colormap(level)[:3], atol=HALF)

    def test_one_component_has_the_same_symmetric_limits_in_every_set(self):
        generator = np.random.default_rng(0)
        truth, learned = generator.normal(size=(2, 9, 3))
        learned[:, 1] *= 7
        figure = plotting.plot_components({"truth": truth, "learned": learned}, bins=3)
        limits = np.array([axes.images[0].get_clim() for axes in maps_of(figure)]).reshape(2, 3, 2)
        largest = np.maximum(np.abs(truth).max(axis=0), np.abs(learned).max(axis=0))
        for row in limits:
            np.testing.assert_allclose(row, np.stack([-largest, largest], axis=1))

    def test_a_component_of_zeros_is_drawn_at_the_centre_of_the_map(self):
        figure = plotting.plot_components({"truth": np.zeros((4, 1))}, bins=2)
        (axes,) = maps_of(figure)
        centre = plotting.signed_colormap()(0.5)[:3]
        assert np.allclose(colour_at(figure, axes, 0.25, 0.25), centre, atol=HALF)

    def test_a_missing_cell_is_grey_and_does_not_spoil_the_limits(self):
        cells = np.array([[np.nan], [1.0], [-2.0], [0.5]])
        figure = plotting.plot_components({"truth": cells}, bins=2)
        (axes,) = maps_of(figure)
        assert axes.images[0].get_clim() == (-2.0, 2.0)
        assert np.allclose(colour_at(figure, axes, 0.25, 0.25), to_rgb(MISSING), atol=HALF)

    def test_sets_columns_limits_axes_and_cosines_are_written(self):
        components = {"ground truth": np.full((4, 2), 0.25), "large batch": np.full((4, 2), -0.5)}
        cosines = {"large batch": np.array([-0.9876, 0.5])}
        figure = plotting.plot_components(
            components, bins=2, labels=["first", "second"], cosines=cosines
        )
        written = texts(figure)
        expected = ("ground truth", "large batch", "first\n±0.50", "second\n±0.50", "|cos| 0.988")
        for text in (*expected, "|cos| 0.500", "value relative to ± limit"):
            assert text in written
        assert {"x", "y"} <= set(written.split("\n"))

    def test_more_than_ten_components_wrap_into_blocks_of_rows(self):
        components = {name: np.eye(25)[:, :24] for name in ("truth", "learned")}
        figure = plotting.plot_components(components, bins=5)
        figure.draw_without_rendering()
        assert [
            axes.get_title().split("\n")[0] for axes in maps_of(figure) if axes.get_title()
        ] == [str(number) for number in range(1, 25)]
        places = [axes.get_position() for axes in maps_of(figure)]
        assert len(places) == 48
        assert len({round(place.x0, 3) for place in places}) == 8
        assert len({round(place.y0, 3) for place in places}) == 6

    def test_an_uneven_last_block_leaves_no_empty_axes(self):
        figure = plotting.plot_components({"truth": np.eye(16)[:, :11]}, bins=4)
        figure.draw_without_rendering()
        assert len(figure.axes) == 11 + 1  # The maps and the colour bar.

    def test_every_map_carries_the_outline_of_every_puddle(self):
        arena = load_arena("sutton")
        figure = plotting.plot_components({"truth": np.eye(4)[:, :2]}, bins=2, environment=arena)
        assert [len(axes.patches) for axes in maps_of(figure)] == [len(arena.puddles)] * 2

    @pytest.mark.parametrize(
        ("components", "options", "message"),
        [
            ({}, {}, "at least one set"),
            ({"a": np.zeros((5, 2))}, {}, r"'a' to be \[4, k\].*got shape \(5, 2\)"),
            ({"a": np.zeros(4)}, {}, r"got shape \(4,\)"),
            ({"a": np.zeros((4, 2)), "b": np.zeros((4, 3))}, {}, "'b'"),
            ({"a": np.zeros((4, 2))}, {"labels": ["one"]}, "expected 2 labels.*got 1"),
            ({"a": np.zeros((4, 2))}, {"cosines": {"b": np.ones(2)}}, "got 'b'"),
            ({"a": np.zeros((4, 2))}, {"cosines": {"a": np.ones(3)}}, "expected 2 cosines"),
        ],
    )
    def test_sets_that_do_not_fit_are_refused(self, components, options, message):
        with pytest.raises(InputError, match=message):
            plotting.plot_components(components, bins=2, **options)


class TestEnvironment:
    @pytest.mark.parametrize(
        ("place", "product"),
        [((0.1, 0.1), 1.0), ((0.15, 0.72), 0.5), ((0.43, 0.43), 0.5), ((0.43, 0.73), 0.25)],
    )
    def test_the_shade_is_that_of_the_product_of_multipliers(self, place, product):
        figure = plotting.plot_environment(load_arena("sutton"))
        shade = product * np.ones(3) + (1 - product) * np.array(to_rgb(OKABE_ITO[0]))
        axes, bar = figure.axes
        assert np.allclose(colour_at(figure, axes, *place), shade, atol=2 * HALF)
        assert np.allclose(colour_at(figure, bar, 0.5, min(product, 0.99)), shade, atol=3 * HALF)
        assert sorted(bar.get_yticks()) == [0.25, 0.5, 1.0]

    @pytest.mark.parametrize(
        "shape",
        [
            Capsule((0.2, 0.7), (0.6, 0.35), 0.15),
            Capsule((0.5, 0.5), (0.5, 0.5), 0.2),
            Disc((0.4, 0.6), 0.3),
            ConvexPolygon(((0.1, 0.2), (0.8, 0.3), (0.7, 0.9), (0.3, 0.7))),
        ],
    )
    def test_outlines_enclose_the_points_at_positive_depth(self, shape):
        points = np.random.default_rng(1).uniform(size=(400, 2)).astype(np.float32)
        depth = np.array([float(shape.depth(point)) for point in points])
        # Matplotlib flattens curves to within a fraction of a pixel: make the square 10^4 pixels.
        scale = Affine2D().scale(1e4)
        inside = outline(shape).transformed(scale).contains_points(scale.transform(points))
        np.testing.assert_array_equal(inside, depth > 0)
        assert inside.any()
        assert not inside.all()

    def test_a_wall_is_opaque_hatched_and_explained(self):
        arena = load_arena("two_room")
        figure = plotting.plot_environment(arena)
        hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
        assert len(hatched) == len(arena.puddles)
        assert all(patch.get_alpha() is None for patch in hatched)
        assert "wall" in texts(figure)
        assert len(figure.axes) == 1  # A colour bar would have nothing to say.

    def test_a_wall_hides_the_puddle_drawn_after_it(self):
        wall, puddle = Puddle(Disc((0.5, 0.5), 0.2), 0.0), Puddle(Disc((0.5, 0.5), 0.4), 0.5)
        shown = [
            plotting.figure_bytes(plotting.plot_environment(PuddleWorld(puddles=order)))
            for order in ((wall, puddle), (puddle, wall))
        ]
        assert shown[0] == shown[1]

    def test_the_goal_corner_is_drawn_only_where_the_task_has_one(self):
        arena = load_arena("empty")
        without = plotting.plot_environment(arena)
        with_goal = plotting.plot_environment(dataclasses.replace(arena, goal=True))
        assert "goal" not in texts(without)
        assert "goal, x + y ≥ 1.9" in texts(with_goal)
        for place, is_goal in (((0.97, 0.97), True), ((0.93, 0.93), False)):
            white = np.allclose(colour_at(with_goal, with_goal.axes[0], *place), 1.0)
            assert white != is_goal

    def test_the_cell_grid_has_a_line_between_all_neighbours(self):
        figure = plotting.plot_environment(load_arena("empty"), bins=5)
        lines = [item for item in figure.axes[0].collections if isinstance(item, LineCollection)]
        places = sorted(
            round(float(segment[0].max() if np.ptp(segment[:, 0]) == 0 else segment[0, 1]), 6)
            for collection in lines
            for segment in collection.get_segments()
        )
        assert places == sorted([0.2, 0.4, 0.6, 0.8] * 2)

    def test_fewer_than_two_bins_are_refused(self):
        with pytest.raises(InputError, match="at least 2 bins, got 1"):
            plotting.plot_environment(load_arena("empty"), bins=1)


BINS = 4
CENTRES = (np.arange(BINS) + 0.5) / BINS
Y, X = (part.ravel() for part in np.meshgrid(CENTRES, CENTRES, indexing="ij"))


def quarters():
    """Q [BINS², 4]: each quarter of the square prefers one action; and the preferred ones [n]."""
    preferred = np.select([(X < 0.5) & (Y < 0.5), X < 0.5, Y < 0.5], [0, 1, 3], default=2)
    values = np.full((BINS**2, 4), -50.0)
    values[np.arange(BINS**2), preferred] = 10.0 * X + Y
    return values, preferred


class TestPolicyAndValue:
    def test_the_first_map_shows_the_largest_value_of_each_cell_in_its_place(self):
        values, _ = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        (image,) = figure.axes[0].images
        shown = np.asarray(image.get_array())
        for row, y in enumerate(CENTRES):
            for column, x in enumerate(CENTRES):
                assert shown[row, column] == pytest.approx(10 * x + y)
                expected = image.cmap(image.norm(10 * x + y))[:3]
                # Off the cell's middle, where no line is drawn.
                found = colour_at(figure, figure.axes[0], x + 0.05, y + 0.05)
                np.testing.assert_allclose(found, expected, atol=0.02)
        assert image.cmap.name == "viridis"
        assert "discounted return" in texts(figure)

    def test_every_cell_has_the_colour_that_the_legend_gives_its_action(self):
        values, preferred = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        legend = figure.legends[0]
        names = [text.get_text() for text in legend.get_texts()]
        assert names == list(ACTIONS) == ["up", "right", "down", "left"]
        colours = [patch.get_facecolor()[:3] for patch in legend.get_patches()]
        assert len({tuple(colour) for colour in colours}) == 4
        for cell, action in enumerate(preferred):
            found = colour_at(figure, figure.axes[1], X[cell] + 0.1, Y[cell] + 0.1)
            np.testing.assert_allclose(found, colours[action], atol=0.01)

    def test_arrows_point_where_the_environment_moves(self):
        values, preferred = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        environment = PuddleWorld(noise=0.0)
        for (x, y), u, v in zip(arrows.get_offsets(), arrows.U, arrows.V, strict=True):
            cell = int(y * BINS) * BINS + int(x * BINS)
            start = np.array([x, y], np.float32)
            end = environment.move(start, preferred[cell], np.zeros(2, np.float32))
            np.testing.assert_allclose([u, v], np.asarray(end - start) / 0.05, atol=1e-5)
        assert len(arrows.U) == BINS**2

    @pytest.mark.parametrize("bins", [13, 14, 50])
    def test_there_are_no_more_arrows_than_can_be_read_and_all_lie_inside(self, bins):
        figure = plot_policy_and_value(PuddleWorld(), np.zeros((bins**2, 4)))
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        assert 36 <= len(arrows.U) <= 169
        assert np.all((arrows.get_offsets() > 0.02) & (arrows.get_offsets() < 0.98))

    def test_cells_without_values_are_grey_and_without_an_arrow(self):
        values, _ = quarters()
        values[0, 1] = np.nan
        figure = plot_policy_and_value(PuddleWorld(), values)
        for axes in figure.axes[:2]:
            found = colour_at(figure, axes, 0.125, 0.125)
            np.testing.assert_allclose(found, to_rgb(MISSING), atol=0.01)
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        assert len(arrows.U) == BINS**2 - 1

    def test_puddles_are_outlined_on_both_maps_and_a_goal_is_named_where_there_is_one(self):
        values, _ = quarters()
        for environment, goals in (
            (load_arena("sutton"), 0),
            (load_arena("sutton").with_task(), 1),
        ):
            figure = plot_policy_and_value(environment, values)
            for axes in figure.axes[:2]:
                assert len([part for part in axes.patches if isinstance(part, PathPatch)]) == 2
                assert len(axes.lines) == goals
            assert ("goal, x + y ≥ 1.9" in texts(figure)) == bool(goals)

    @pytest.mark.parametrize("shape", [(16,), (15, 4), (16, 3), (0, 4)])
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(InputError, match=r"expected .*, got"):
            plot_policy_and_value(PuddleWorld(), np.zeros(shape))


class TestTorsoComponents:
    def test_learned_components_take_the_sign_of_the_true_ones_and_their_limits(self):
        generator = np.random.default_rng(0)
        truth = np.linalg.qr(generator.standard_normal((16, 4)))[0]
        learned = np.stack([-3.0 * truth[:, 0], truth[:, 1] + truth[:, 2]], axis=1)
        figure = plot_torso_components(load_arena("sutton"), learned, truth)
        maps = [axes for axes in figure.axes if axes.images]
        assert len(maps) == 4
        shown = [np.asarray(axes.images[0].get_array()).ravel() for axes in maps]
        np.testing.assert_allclose(shown[0], truth[:, 0])
        np.testing.assert_allclose(shown[2], truth[:, 0], atol=1e-12)
        np.testing.assert_allclose(shown[3], (truth[:, 1] + truth[:, 2]) / np.sqrt(2))
        for above, below in ((0, 2), (1, 3)):
            limits = [maps[index].images[0].get_clim() for index in (above, below)]
            assert limits[0] == limits[1]
        written = texts(figure)
        assert "|cos| 1.000" in written
        assert "|cos| 0.707" in written

    @pytest.mark.parametrize(
        ("learned", "truth"),
        [((16, 3), (16, 2)), ((9, 2), (16, 2)), ((15, 2), (15, 2)), ((16,), (16, 1))],
    )
    def test_shapes_that_do_not_fit_are_refused(self, learned, truth):
        with pytest.raises(InputError, match=r"expected .*, got"):
            plot_torso_components(PuddleWorld(), np.ones(learned), np.ones(truth))


IMAGES = np.random.default_rng(0).uniform(size=(3, 4, 5))


def drawn(figure):
    """The images of a figure, row by row."""
    return [axes.images[0] for axes in figure.axes if axes.images]


def test_rows_are_drawn_in_order_on_one_grey_scale_with_the_top_row_of_pixels_on_top():
    rows = {"given": IMAGES, "rebuilt": 1.5 * IMAGES}
    figure = plot_reconstructions(rows, notes={"rebuilt": "error 0.25"})
    pictures = drawn(figure)
    assert len(pictures) == 6
    for picture, image in zip(pictures, [*IMAGES, *(1.5 * IMAGES)], strict=True):
        np.testing.assert_array_equal(picture.get_array(), image)
        assert picture.get_clim() == (0.0, 1.0)
        assert picture.origin == "upper"
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert [label for label in labels if label] == ["given", "rebuilt\nerror 0.25"]
    assert figure_bytes(figure).startswith(b"\x89PNG")


def test_signed_images_share_limits_about_zero_down_each_column():
    rows = {"exact": IMAGES - 0.5, "learned": 2.0 * (0.5 - IMAGES)}
    figure = plot_signed_images(rows, titles=["1", "2", "3"], cosines={"learned": [1, -0.5, 0.25]})
    pictures = drawn(figure)[:6]
    for column in range(3):
        limit = np.abs(2.0 * (IMAGES[column] - 0.5)).max()
        for row in range(2):
            assert pictures[3 * row + column].get_clim() == pytest.approx((-limit, limit))
    texts = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert texts == ["1.000", "0.500", "0.250"]
    assert figure_bytes(figure).startswith(b"\x89PNG")


def test_more_than_ten_signed_images_wrap_into_blocks_of_rows():
    images = np.random.default_rng(1).normal(size=(13, 4, 4))
    titles = [str(number) for number in range(13)]
    figure = plot_signed_images({"a": images, "b": -images}, titles=titles)
    pictures = drawn(figure)[:26]
    order = [*range(7), *range(7), *range(7, 13), *range(7, 13)]
    signs = [1] * 7 + [-1] * 7 + [1] * 6 + [-1] * 6
    for picture, index, sign in zip(pictures, order, signs, strict=True):
        np.testing.assert_array_equal(picture.get_array(), sign * images[index])
    shown = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert shown == titles


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_reconstructions({}), "at least one row of images, got none"),
        (lambda: plot_reconstructions({"a": IMAGES[0]}), r"\[count, height, width\].*got \(4, 5\)"),
        (
            lambda: plot_reconstructions({"a": IMAGES, "b": IMAGES[:2]}),
            r"of one shape, got \(2, 4, 5\) for 'b'",
        ),
        (
            lambda: plot_reconstructions({"a": IMAGES}, notes={"b": "?"}),
            "expected notes of 'a', got 'b'",
        ),
        (
            lambda: plot_signed_images({"a": IMAGES}, titles=["1"]),
            "expected 3 entries of titles, got 1",
        ),
        (
            lambda: plot_signed_images({"a": IMAGES}, titles="123", cosines={"a": [1.0]}),
            "expected 3 entries of a, got 1",
        ),
        (
            lambda: plot_signed_images({"a": IMAGES}, titles="123", cosines={"b": [1.0] * 3}),
            "expected cosines of 'a', got 'b'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
