"""Line plots: what lines share, what limits and legends show, what is refused."""

import itertools

import numpy as np
import pytest
from matplotlib.lines import Line2D

from rlreps import plotting
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.plotting.lines import over_runs
from rlreps.runs.intervals import aggregate

NAN = float("nan")
LONG = np.linspace(1.0, 0.1, 30)
RUNS = np.random.default_rng(0).lognormal(size=(6, 30))


def line(label, mean, **parts):
    mean = np.asarray(mean, float)
    given = {"x": np.arange(1, len(mean) + 1), "low": 0.8 * mean, "high": 1.2 * mean, **parts}
    return Line(label=label, mean=mean, **given)


def panels_of(panels, **options):
    return plot_panels(
        [Panel(title=str(number), lines=lines) for number, lines in enumerate(panels)],
        **{"x_label": "update", "y_label": "distance", **options},
    )


def drawn(panels, **options):
    figure = panels_of(panels, **options)
    figure.draw_without_rendering()
    return figure


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def note(figure):
    return figure.legends[0].get_title().get_text()


def heights(axes):
    """Heights of the lines, without references and bars."""
    return [each.get_ydata() for each in axes.lines if each.get_linestyle() not in ("None", ":")]


def look(axes, label):
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    main = handles[label].lines[0] if hasattr(handles[label], "lines") else handles[label]
    return main.get_color(), main.get_marker(), main.get_linestyle()


class TestLine:
    @pytest.mark.parametrize(("name", "middle"), [("mean", False), ("interquartile_mean", True)])
    def test_a_line_of_runs_has_the_interval_that_tables_have(self, name, middle):
        found, expected = Line.of_runs("a", np.arange(30), RUNS, middle=middle), aggregate(RUNS)
        np.testing.assert_array_equal(found.mean, expected[name])
        np.testing.assert_array_equal(found.low, expected[f"{name}_low"])
        np.testing.assert_array_equal(found.high, expected[f"{name}_high"])

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_missing_values_are_left_out_point_by_point(self, bad):
        runs = RUNS[:5, :4].copy()
        runs[1:, 2] = runs[:, 3] = bad
        found = Line.of_runs("a", np.arange(4), runs)
        np.testing.assert_allclose(found.mean, [*runs[:, :2].mean(axis=0), runs[0, 2], np.nan])
        np.testing.assert_array_equal(np.isnan(found.low), [False, False, True, True])
        np.testing.assert_array_equal(found.high[:2], aggregate(runs[:, :2])["mean_high"])

    def test_fewer_than_five_runs_are_drawn_in_place_of_an_interval(self):
        found = Line.of_runs("a", np.arange(30), RUNS[:4])
        np.testing.assert_array_equal(found.runs, RUNS[:4])
        np.testing.assert_array_equal(found.mean, RUNS[:4].mean(axis=0))
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()
        assert "each run" in legend(panels_of([[found, Line.of_runs("b", np.arange(30), RUNS)]]))
        assert [over_runs(count) for count in (1, 4)] == [
            "one seed",
            "mean over 4 seeds, thin: each of them",
        ]
        assert over_runs(5, "run") == "mean over 5 runs, 95 % interval"


class TestPanels:
    @pytest.mark.parametrize("mean", [LONG[:5], LONG], ids=["bars", "bands"])
    def test_lines_of_one_name_look_the_same_in_every_panel_and_others_do_not(self, mean):
        names = ["d = 1", "d = 5", "d = 10"]
        panels = [[line(name, mean) for name in part] for part in (names, ["d = 10", "e", "d = 1"])]
        figure = panels_of(panels)
        first, second = figure.axes
        for name in ("d = 1", "d = 10"):
            assert look(first, name) == look(second, name)
        looks = [look(first, name) for name in names] + [look(second, "e")]
        for one, other in itertools.combinations(looks, 2):
            assert one[0] != other[0]
            assert one[1] != other[1]
        assert legend(figure) == [*names, "e"]

    @pytest.mark.parametrize("count", [3, 30])
    def test_heights_that_are_not_positive_are_missing_on_a_logarithmic_axis(self, count):
        mean = np.linspace(0.1, 0.2, count)
        mean[1:3] = 0.0, -0.3
        (shown,) = heights(panels_of([[line("a", mean)]]).axes[0])
        np.testing.assert_array_equal(np.isnan(shown[:3]), [False, True, True])
        linear = panels_of([[line("a", mean)]], log_y=False).axes[0]
        np.testing.assert_array_equal(heights(linear)[0], mean)
        assert linear.get_ylim()[0] < -0.3

    def test_bands_and_bars_end_where_their_intervals_do(self):
        low = 0.5 * LONG
        low[:10] = NAN
        (band,) = panels_of([[line("a", LONG, low=low, high=2.0 * LONG)]]).axes[0].collections
        corners = band.get_paths()[0].vertices
        assert (corners[:, 0].min(), corners[:, 0].max()) == (11, 30)
        assert corners[:, 1].min() == pytest.approx(low[-1])
        assert corners[:, 1].max() == pytest.approx(2.0 * LONG[10])
        figure = panels_of([[line("a", [0.5, 0.4], low=[0.3, NAN], high=[0.9, NAN])]])
        (bars,) = figure.axes[0].collections
        first, second = (segment[:, 1] for segment in bars.get_segments())
        np.testing.assert_allclose(first, [0.3, 0.9])
        np.testing.assert_allclose(second, [0.4, 0.4])

    @pytest.mark.parametrize("seeds", [1, 2, 5])
    def test_bars_are_drawn_named_and_stood_apart_only_where_there_are_intervals(self, seeds):
        lines = [Line.of_runs(name, [1, 2], np.full((seeds, 2), 0.5)) for name in "ab"]
        figure = panels_of([lines])
        (axes,) = figure.axes
        assert len(axes.containers) == (2 if seeds == 5 else 0)
        handles = dict(zip("ab", figure.legends[0].legend_handles, strict=False))
        assert {isinstance(each, Line2D) for each in handles.values()} == {seeds < 5}
        for drawn in axes.lines:
            if seeds < 5:
                np.testing.assert_array_equal(drawn.get_xdata(), [1, 2])

    def test_references_are_in_every_panel_and_once_in_the_legend_after_the_series(self):
        floor = ([1, 2], [0.001, 0.002])
        figure = plot_panels(
            [Panel(title=t, lines=[line("a", [0.5, 0.4])], noise_floor=floor) for t in "xy"],
            x_label="κ0",
            y_label="distance",
            reference_x=(2.0, "where it ends"),
            reference_y=([0.3, 4.0], "goal"),
            note="what the bars are",
        )
        for axes in figure.axes:
            assert [0.001, 0.002] in [list(each) for each in heights(axes)]
            assert any(list(each.get_xdata()) == [2.0, 2.0] for each in axes.lines)
            assert any(list(each.get_ydata()) == [0.3, 0.3] for each in axes.lines)
            assert axes.get_ylim()[0] < 0.001 < 4.0 < axes.get_ylim()[1]
        names = legend(figure)
        assert names[0] == "a"
        assert sorted(names[1:]) == ["goal", "noise floor of the ground truth", "where it ends"]
        assert note(figure) == "what the bars are"

    def test_variants_share_a_series_colour_and_are_named_after_the_series(self):
        looks = {
            "bold": {"linewidth": 2.0},
            "faint": {"linestyle": ":", "alpha": 0.4, "marker": ""},
        }
        several = Line(label="a", variant="faint", x=[1, 2, 3], mean=[[3, 2, 1], [5, 0, 4]])
        bold = [line(name, [3, 2, 1], variant="bold") for name in "ab"]
        figure = panels_of([bold, [line("b", [3, 2, 1], variant="faint"), several]], looks=looks)
        first, second = (axes.get_lines() for axes in figure.axes)
        assert first[0].get_color() == second[1].get_color() == second[2].get_color()
        assert first[1].get_color() == second[0].get_color() != first[0].get_color()
        assert [each.get_linestyle() for each in (*first, *second)] == ["-", "-", ":", ":", ":"]
        assert second[0].get_marker() == ""
        np.testing.assert_array_equal(second[2].get_ydata(), [5, np.nan, 4])
        assert legend(figure) == ["a", "b", "bold", "faint"]


class TestCurves:
    def test_names_stand_side_by_side(self):
        lines = [line(name, [1.0, 0.5, 1.0], x=[0, 1, 2]) for name in "ab"]
        names = ["sgd", "adam", "rmsprop"]
        ticks = dict(enumerate(names))
        figure = plotting.plot_curves(lines, x_label="x", y_label="y", x_ticks=ticks)
        figure.draw_without_rendering()
        assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == names
        assert legend(figure) == ["a", "b"]
        assert note(figure) == "mean over seeds, 95 % interval"


class TestTexts:
    METHOD = "explicit (weights from N(0, 1²), one optimizer for all), 20 columns an update"

    def test_long_titles_of_neighbouring_panels_do_not_overlap(self):
        panels = [Panel(title=self.METHOD, lines=[line("a", [0.5, 0.4])]) for _ in range(3)]
        figure = plot_panels(panels, x_label="update", y_label="distance")
        figure.draw_without_rendering()
        boxes = [axes.title.get_window_extent() for axes in figure.axes]
        for left, right in itertools.pairwise(boxes):
            assert left.x1 < right.x0
        assert boxes[-1].x1 <= figure.bbox.x1
        assert boxes[0].y1 <= figure.bbox.y1

    @pytest.mark.parametrize("number", [3, 8])
    def test_a_long_legend_leaves_room_for_the_text_of_the_axis(self, number):
        lines = [line(f"{self.METHOD} {each}", [0.5, 0.4]) for each in range(number)]
        text = "subspace distance (0 equal, 1 orthogonal)"
        figure = drawn([lines], y_label=text, note="mean over 3 seeds")
        box = figure.axes[0].yaxis.label.get_window_extent()
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


class TestSpectrum:
    def test_energy_is_the_cumulative_share_of_the_squares_and_zeros_are_not_drawn(self):
        figure = plotting.plot_spectrum([4.0, 2.0, 1.0, 0.0], 25.0, marks=(1, 3, 50))
        left, right = figure.axes
        np.testing.assert_array_equal(left.lines[0].get_ydata(), [4.0, 2.0, 1.0, np.nan])
        np.testing.assert_allclose(right.lines[0].get_ydata(), [64.0, 80.0, 84.0, 84.0])
        np.testing.assert_array_equal(right.lines[0].get_xdata(), [1, 2, 3, 4])
        assert left.get_yscale() == "log"
        shown = [text.get_text() for text in right.get_legend().get_texts()]
        assert shown == ["d = 1: 64.0 %", "d = 3: 84.0 %"]


def test_a_fit_draws_its_sums_and_the_rows_behind_its_components():
    figure = plotting.plot_fit([0.0, 1.0, 2.0], [0.5, 1.0, 4.0], [100.0, 5.0, 0.0], fewest=10.0)
    left, right = figure.axes
    exact, points = left.lines
    np.testing.assert_array_equal(points.get_xydata(), [[0.0, 0.5], [1.0, 1.0], [2.0, 4.0]])
    assert left.get_xlim() == left.get_ylim() == (-4.2, 4.2)
    np.testing.assert_array_equal(exact.get_xdata(), exact.get_ydata())
    floor, rows = right.lines
    assert set(floor.get_ydata()) == {10.0}
    np.testing.assert_array_equal(rows.get_ydata(), [100.0, 5.0, np.nan])
    empty = plotting.plot_fit([], [], [0.0], fewest=10.0)
    assert empty.axes[0].texts[0].get_text() == "no sum is complete"
