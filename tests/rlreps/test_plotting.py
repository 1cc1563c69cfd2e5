"""Figures: what is drawn where, in which colour, between which limits."""

import dataclasses
import itertools
import os
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D
from PIL import Image
from scipy import stats

from rlreps import plotting
from rlreps.envs.arenas import load_arena
from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc
from rlreps.envs.puddle_world import Puddle, PuddleWorld
from rlreps.errors import InputError
from rlreps.plotting.outlines import outline
from rlreps.plotting.style import MISSING, OKABE_ITO, series_style

HALF = 1.5 / 255  # Colours are stored as whole numbers of 255ths.


def colour_at(figure: Figure, axes: Axes, x: float, y: float) -> np.ndarray:
    """The colour [3] of the rendered figure at the point (x, y) of `axes`."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    column, up = axes.transData.transform((x, y))
    return pixels[pixels.shape[0] - 1 - int(up), int(column), :3] / 255


def texts(figure: Figure) -> str:
    """All that is written in the figure."""
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return "\n".join(artist.get_text() for artist in found)


def maps_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.images]


def lab_from_srgb(colours: np.ndarray) -> np.ndarray:
    """CIELAB (D65) of sRGB colours [m, 3], the forward formulas of CIE 15 and IEC 61966-2-1."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    ratios = linear @ to_xyz.T / np.array([0.95047, 1.0, 1.08883])
    levels = np.where(ratios > (6 / 29) ** 3, np.cbrt(ratios), ratios * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = levels.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


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


class TestColours:
    def test_equal_steps_of_the_signed_map_are_equal_colour_differences(self):
        colours = plotting.signed_colormap()(np.arange(257))[:, :3]
        steps = np.linalg.norm(np.diff(lab_from_srgb(colours), axis=0), axis=1)
        assert steps.max() / steps.min() < 1.05

    def test_lightness_of_the_signed_map_is_mirrored_and_rises_towards_zero(self):
        lightness = lab_from_srgb(plotting.signed_colormap()(np.arange(257))[:, :3])[:, 0]
        np.testing.assert_allclose(lightness, lightness[::-1], atol=0.1)
        assert (np.diff(lightness[:129]) > 0).all()
        assert lightness[128] - lightness[0] > 60

    def test_neighbouring_series_differ_in_colour_marker_and_dash_and_none_repeat(self):
        looks = [series_style(index) for index in range(280)]
        assert len({tuple(map(str, look.values())) for look in looks}) == 280
        for one, other in itertools.pairwise(looks):
            assert all(one[key] != other[key] for key in ("color", "marker", "linestyle"))


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


class TestSpectrum:
    def test_energy_is_the_cumulative_share_of_the_squares(self):
        values = np.array([4.0, 2.0, 1.0])
        figure = plotting.plot_spectrum(values, 25.0, marks=(1, 3, 50))
        left, right = figure.axes
        np.testing.assert_allclose(left.lines[0].get_ydata(), values)
        np.testing.assert_allclose(right.lines[0].get_ydata(), [64.0, 80.0, 84.0])
        np.testing.assert_array_equal(right.lines[0].get_xdata(), [1, 2, 3])
        assert left.get_yscale() == "log"
        written = texts(figure)
        assert "d = 1: 64.0 %" in written
        assert "d = 3: 84.0 %" in written
        assert "d = 50" not in written
        assert "energy captured (% of total)" in written

    def test_a_matrix_of_lower_rank_is_drawn_without_its_zeros(self):
        figure = plotting.plot_spectrum([3.0, 1.0, 0.0], 10.0, marks=(3,))
        drawn = np.asarray(figure.axes[0].lines[0].get_ydata(), dtype=float)
        np.testing.assert_array_equal(np.isnan(drawn), [False, False, True])
        figure.draw_without_rendering()

    @pytest.mark.parametrize(
        ("values", "energy"),
        [([], 1.0), ([1.0, 2.0], 9.0), ([2.0, np.nan], 9.0), ([2.0, -1.0], 9.0), ([2.0], 3.0)],
    )
    def test_impossible_spectra_are_refused(self, values, energy):
        with pytest.raises(InputError, match="expected"):
            plotting.plot_spectrum(values, energy)


class TestCurves:
    steps = np.arange(4) * 100
    values = np.array([[1.0, 0.5, 0.3, np.nan], [0.9, 0.7, np.nan, np.nan], [1.1, 0.6, 0.2, 0.1]])

    def test_the_band_is_students_interval_of_the_seeds_that_have_values(self):
        curve = plotting.Curve(label="a", steps=self.steps, values=self.values)
        figure = plotting.plot_curves([curve], x_label="steps", y_label="distance", log_y=False)
        (band,) = figure.axes[0].collections
        assert isinstance(band, PolyCollection)
        vertices = band.get_paths()[0].vertices
        for column in range(3):
            seeds = self.values[np.isfinite(self.values[:, column]), column]
            expected = stats.t.interval(
                0.95, seeds.size - 1, loc=seeds.mean(), scale=stats.sem(seeds)
            )
            drawn = vertices[vertices[:, 0] == self.steps[column], 1]
            np.testing.assert_allclose([drawn.min(), drawn.max()], expected, rtol=1e-12)
        assert not (vertices[:, 0] == self.steps[3]).any()  # One seed is left there: no band.
        line = figure.axes[0].lines[0].get_ydata()
        np.testing.assert_allclose(line, np.nanmean(self.values, axis=0))

    def test_on_a_logarithmic_axis_line_and_band_are_those_of_the_logarithms(self):
        curve = plotting.Curve(label="a", steps=self.steps, values=self.values)
        figure = plotting.plot_curves([curve], x_label="steps", y_label="distance")
        (band,) = figure.axes[0].collections
        vertices = band.get_paths()[0].vertices
        for column in range(3):
            logarithms = np.log(self.values[np.isfinite(self.values[:, column]), column])
            expected = stats.t.interval(
                0.95, logarithms.size - 1, loc=logarithms.mean(), scale=stats.sem(logarithms)
            )
            drawn = vertices[vertices[:, 0] == self.steps[column], 1]
            np.testing.assert_allclose([drawn.min(), drawn.max()], np.exp(expected), rtol=1e-12)
        np.testing.assert_allclose(
            figure.axes[0].lines[0].get_ydata(), stats.gmean(self.values, nan_policy="omit")
        )
        assert "geometric mean over seeds" in texts(figure)

    def test_values_that_are_not_finite_count_as_missing(self):
        spoiled = np.where(np.isnan(self.values), np.inf, self.values)
        for one, other in zip(
            plotting.mean_and_interval(self.values),
            plotting.mean_and_interval(spoiled),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)

    def test_a_step_without_any_value_has_no_mean(self):
        mean, lower, upper = plotting.mean_and_interval([[np.nan, 1.0], [np.nan, 3.0]])
        assert np.isnan([mean[0], lower[0], upper[0]]).all()
        assert mean[1] == 2.0

    def test_the_legend_states_the_seeds_and_what_the_band_is(self):
        curves = [
            plotting.Curve(label="some", steps=self.steps, values=self.values),
            plotting.Curve(label="one", steps=self.steps, values=self.values[2]),
            plotting.Curve(label="all", steps=self.steps, values=np.ones((5, 4))),
        ]
        figure = plotting.plot_curves(
            curves, x_label="gradient steps", y_label="loss", title="sutton", noise_floor=0.01
        )
        written = texts(figure)
        legend = ("some (1 to 3 seeds)", "one (1 seed)", "all (5 seeds)", "noise floor")
        for text in (*legend, "95 % confidence interval", "gradient steps", "loss", "sutton"):
            assert text in written

    def test_a_single_seed_has_no_band_and_no_note_about_one(self):
        curve = plotting.Curve(label="one", steps=self.steps, values=[self.values[2]])
        figure = plotting.plot_curves([curve], x_label="steps", y_label="loss")
        assert not figure.axes[0].collections
        assert "confidence" not in texts(figure)

    def test_a_logarithmic_axis_shows_every_positive_mean_and_the_noise_floor(self):
        values = np.array([[1.0, 0.0, 1e-3], [1.0, 0.0, 1.1e-3]])
        curve = plotting.Curve(label="a", steps=[0, 1, 2], values=values)
        figure = plotting.plot_curves([curve], x_label="steps", y_label="loss", noise_floor=1e-5)
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        assert axes.get_yscale() == "log"
        assert low < 1e-5 < 1.0 < high
        np.testing.assert_array_equal(np.isnan(axes.lines[0].get_ydata()), [False, True, False])
        figure.draw_without_rendering()

    def test_an_interval_that_reaches_below_zero_does_not_stretch_a_logarithmic_axis(self):
        values = np.array([[0.5, 0.1], [0.5, 0.9]])
        curve = plotting.Curve(label="a", steps=[0, 1], values=values)
        figure = plotting.plot_curves([curve], x_label="steps", y_label="loss")
        low, high = figure.axes[0].get_ylim()
        assert 0.01 < low < 0.5
        assert high > plotting.mean_and_interval(values)[2][1]
        figure.draw_without_rendering()

    def test_a_curve_without_any_value_is_named_but_not_drawn(self):
        curve = plotting.Curve(label="diverged", steps=[0, 1], values=np.full((2, 2), np.nan))
        figure = plotting.plot_curves([curve], x_label="steps", y_label="loss")
        figure.draw_without_rendering()
        assert "diverged (no values)" in texts(figure)

    @pytest.mark.parametrize(
        ("steps", "values"),
        [([], []), ([0, 1], [[1.0]]), ([[0, 1]], [1.0, 2.0]), ([0, 1], np.zeros((0, 2)))],
    )
    def test_curves_whose_shapes_do_not_fit_are_refused(self, steps, values):
        with pytest.raises(InputError, match="got shape"):
            plotting.Curve(label="a", steps=steps, values=values)

    def test_no_curve_and_an_impossible_noise_floor_are_refused(self):
        curve = plotting.Curve(label="a", steps=[0], values=[1.0])
        with pytest.raises(InputError, match="at least one curve"):
            plotting.plot_curves([], x_label="steps", y_label="loss")
        with pytest.raises(InputError, match="noise floor above 0"):
            plotting.plot_curves([curve], x_label="steps", y_label="loss", noise_floor=0.0)


class TestDistanceByDimension:
    rows = (
        {"method": "a", "d": 10, "subspace_distance": 0.01},
        {"method": "a", "d": 10, "subspace_distance": 0.03},
        {"method": "a", "d": 50, "subspace_distance": [0.1, 0.2, 0.3]},
        {"method": "b", "d": 50, "subspace_distance": 0.5},
    )

    def test_bars_are_students_intervals_of_the_pooled_seeds(self):
        figure = plotting.plot_distance_by_dimension(self.rows)
        line, _, (bars,) = figure.axes[0].containers[0]
        geometric = [stats.gmean([0.01, 0.03]), stats.gmean([0.1, 0.2, 0.3])]
        np.testing.assert_allclose(line.get_ydata(), geometric)
        for segment, seeds in zip(
            bars.get_segments(), ([0.01, 0.03], [0.1, 0.2, 0.3]), strict=True
        ):
            logarithms = np.log(seeds)
            expected = stats.t.interval(
                0.95, len(seeds) - 1, loc=logarithms.mean(), scale=stats.sem(logarithms)
            )
            np.testing.assert_allclose(segment[:, 1], np.exp(expected), rtol=1e-9)

    def test_a_distance_that_is_missing_leaves_the_axis_logarithmic(self):
        rows = [{"method": "diverged", "d": 10, "subspace_distance": np.nan}, *self.rows]
        assert plotting.plot_distance_by_dimension(rows).axes[0].get_yscale() == "log"

    def test_ticks_are_the_dimensions_and_methods_stand_beside_them(self):
        figure = plotting.plot_distance_by_dimension(self.rows)
        axes = figure.axes[0]
        figure.draw_without_rendering()
        assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "50"]
        one, other = (container[0].get_xdata()[-1] for container in axes.containers)
        assert one != other
        np.testing.assert_allclose([one, other], 50, rtol=0.03)
        written = texts(figure)
        for text in ("a (2 to 3 seeds)", "b (1 seed)", "number of features d", "subspace distance"):
            assert text in written

    def test_a_distance_of_zero_is_shown_on_a_linear_axis(self):
        rows = [{"method": "oracle", "d": 10, "subspace_distance": 0.0}, *self.rows]
        axes = plotting.plot_distance_by_dimension(rows).axes[0]
        assert axes.get_yscale() == "linear"
        assert axes.get_ylim()[0] < 0.0
        assert plotting.plot_distance_by_dimension(self.rows).axes[0].get_yscale() == "log"

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([], "at least one row"),
            ([{"method": "a", "d": 10}], "without 'subspace_distance'"),
            ([{"method": "a", "d": 0, "subspace_distance": 0.1}], "at least 1, got 0"),
        ],
    )
    def test_rows_that_cannot_be_drawn_are_refused(self, rows, message):
        with pytest.raises(InputError, match=message):
            plotting.plot_distance_by_dimension(rows)


class TestFiles:
    @pytest.fixture
    def figure(self):
        return plotting.plot_spectrum([2.0, 1.0], 6.0)

    def test_a_png_has_200_dots_per_inch(self, figure, tmp_path):
        path = plotting.save_figure(figure, tmp_path / "new folder" / "spectrum.png")
        with Image.open(path) as image:
            assert image.format == "PNG"
            np.testing.assert_allclose(image.info["dpi"], 200, rtol=1e-3)
            np.testing.assert_allclose(image.size, figure.get_size_inches() * 200, atol=1)

    @pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".PDF", b"%PDF")])
    def test_the_suffix_chooses_the_format(self, figure, tmp_path, suffix, start):
        path = plotting.save_figure(figure, tmp_path / f"spectrum{suffix}")
        assert path.read_bytes().startswith(start)

    @pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
    def test_the_same_arrays_give_the_same_bytes(self, tmp_path, suffix):
        paths = [
            plotting.save_figure(plotting.plot_spectrum([2.0, 1.0], 6.0), tmp_path / f"{i}{suffix}")
            for i in range(2)
        ]
        assert paths[0].read_bytes() == paths[1].read_bytes()

    @pytest.mark.parametrize("name", ["spectrum.jpeg", "spectrum"])
    def test_other_suffixes_are_refused(self, figure, tmp_path, name):
        with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf, got"):
            plotting.save_figure(figure, tmp_path / name)

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(
        self, figure, tmp_path, monkeypatch
    ):
        path = tmp_path / "spectrum.png"
        path.write_bytes(b"old")

        def fail(*_):
            raise OSError("disc is full")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disc is full"):
            plotting.save_figure(figure, path)
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_the_file_is_complete_when_it_takes_its_name(self, figure, tmp_path, monkeypatch):
        seen = []
        replace = os.replace

        def watch(source, target):
            seen.append(os.path.getsize(source))
            assert not os.path.exists(target)
            replace(source, target)

        monkeypatch.setattr(os, "replace", watch)
        path = plotting.save_figure(figure, tmp_path / "spectrum.png")
        assert seen == [path.stat().st_size]


def test_figures_leave_the_settings_of_matplotlib_as_they_were(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = plotting.plot_environment(load_arena("sutton"))
    plotting.save_figure(figure, tmp_path / "arena.svg")
    with pytest.raises(InputError):
        plotting.plot_components({}, bins=2)
    assert dict(matplotlib.rcParams) == before


def test_the_package_loads_without_matplotlib_and_figures_without_pyplot():
    script = (
        "import sys, rlreps\n"
        "assert 'matplotlib' not in sys.modules\n"
        "rlreps.plotting.plot_spectrum([1.0], 1.0)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
