"""Line plots: what lines share, what limits and legends show, what is refused."""

import itertools

import numpy as np
import pytest

from rlreps import plotting
from rlreps.errors import InputError
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.stats import aggregate

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


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


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

    def test_missing_values_are_left_out_point_by_point(self):
        runs = RUNS[:5, :4].copy()
        runs[1:, 2] = runs[:, 3] = np.inf
        found = Line.of_runs("a", np.arange(4), runs)
        np.testing.assert_allclose(found.mean, [*runs[:, :2].mean(axis=0), runs[0, 2], np.nan])
        np.testing.assert_array_equal(np.isnan(found.low), [False, False, True, True])
        np.testing.assert_array_equal(found.high[:2], aggregate(runs[:, :2])["mean_high"])

    def test_points_with_few_of_many_runs_show_these_runs(self):
        runs = np.full((6, 3), np.nan)
        runs[:2, 0], runs[2:4, 1], runs[:, 2] = [0.1, 0.2], [0.3, 0.4], np.linspace(0.0, 1.0, 6)
        found = Line.of_runs("a", np.arange(3), runs)
        np.testing.assert_array_equal(found.runs[:, :2], runs[:, :2])
        assert np.isnan(found.runs[:, 2]).all()
        np.testing.assert_array_equal(np.isnan(found.low), [True, True, False])

    def test_fewer_than_five_runs_are_drawn_in_place_of_an_interval(self):
        found = Line.of_runs("a", np.arange(30), RUNS[:4])
        np.testing.assert_array_equal(found.runs, RUNS[:4])
        np.testing.assert_array_equal(found.mean, RUNS[:4].mean(axis=0))
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()
        assert "each run" in legend(panels_of([[found, Line.of_runs("b", np.arange(30), RUNS)]]))

    def test_a_point_of_a_run_without_neighbours_is_marked(self):
        runs = np.array([[0.1, NAN, 0.3, 0.4], [NAN, 0.2, NAN, NAN]])
        drawn = panels_of([[Line.of_runs("a", np.arange(4), runs)]]).axes[0].lines
        marks = [line.get_markevery() for line in drawn if line.get_marker() == "."]
        assert marks == [[0], [1]]

    def test_bands_leave_gaps_and_intervals_without_neighbours_are_lines(self):
        runs = RUNS[:6].copy()
        runs[:, [11, 13]] = NAN
        (axes,) = panels_of([[Line.of_runs("a", np.arange(30), runs)]]).axes
        band, line = axes.collections
        edges = [path.vertices[:, 0] for path in band.get_paths()]
        assert [(each.min(), each.max()) for each in edges if np.ptp(each)] == [(0, 10), (14, 29)]
        (bar,) = line.get_segments()
        np.testing.assert_array_equal(bar[:, 0], [12, 12])
        assert np.ptp(bar[:, 1]) > 0.0


class TestPanels:
    def test_lines_of_one_name_look_the_same_in_every_panel_and_others_do_not(self):
        names = ["d = 1", "d = 5", "d = 10"]
        panels = [
            [line(name, LONG[:5]) for name in part] for part in (names, ["d = 10", "e", "d = 1"])
        ]
        figure = panels_of(panels)
        first, second = figure.axes
        for name in ("d = 1", "d = 10"):
            assert look(first, name) == look(second, name)
        looks = [look(first, name) for name in names] + [look(second, "e")]
        for one, other in itertools.combinations(looks, 2):
            assert one[0] != other[0]
            assert one[1] != other[1]
        assert legend(figure) == [*names, "e"]

    def test_heights_that_are_not_positive_are_missing_on_a_logarithmic_axis(self):
        mean = np.linspace(0.1, 0.2, 30)
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

    def test_references_are_in_every_panel_and_once_in_the_legend_after_the_series(self):
        floor = ([1, 2], [0.001, 0.002])
        figure = plot_panels(
            [Panel(title=t, lines=[line("a", [0.5, 0.4])], noise_floor=floor) for t in "xy"],
            x_label="κ0",
            y_label="distance",
            reference_x=(2.0, "where it ends"),
            reference_y=([0.3, 4.0], "goal"),
        )
        for axes in figure.axes:
            assert [0.001, 0.002] in [list(each) for each in heights(axes)]
            assert any(list(each.get_xdata()) == [2.0, 2.0] for each in axes.lines)
            assert any(list(each.get_ydata()) == [0.3, 0.3] for each in axes.lines)
            assert axes.get_ylim()[0] < 0.001 < 4.0 < axes.get_ylim()[1]
        names = legend(figure)
        assert names[0] == "a"
        assert sorted(names[1:]) == ["goal", "noise floor of the ground truth", "where it ends"]


class TestSpectrum:
    def test_energy_is_the_cumulative_share_of_the_squares_and_zeros_are_not_drawn(self):
        figure = plotting.plot_spectrum([4.0, 2.0, 1.0, 0.0], 25.0)
        left, right = figure.axes
        np.testing.assert_array_equal(left.lines[0].get_ydata(), [4.0, 2.0, 1.0, np.nan])
        np.testing.assert_allclose(right.lines[0].get_ydata(), [64.0, 80.0, 84.0, 84.0])
        np.testing.assert_array_equal(right.lines[0].get_xdata(), [1, 2, 3, 4])

    def test_the_legend_states_the_energy_of_leading_components_that_are_given(self):
        with pytest.raises(InputError, match="a singular value above zero"):
            plotting.plot_spectrum(np.zeros(3), 0.0)
        _, right = plotting.plot_spectrum(np.ones(12), 24.0).axes
        assert [each.get_text() for each in right.get_legend().get_texts()] == ["d = 10: 41.7 %"]


def test_a_fit_draws_its_sums_and_the_rows_behind_its_components():
    figure = plotting.plot_fit([0.0, 1.0, 2.0], [0.5, 1.0, 4.0], [100.0, 5.0, 0.0], fewest=10.0)
    left, right = figure.axes
    exact, points = left.lines
    np.testing.assert_array_equal(points.get_xydata(), [[0.0, 0.5], [1.0, 1.0], [2.0, 4.0]])
    np.testing.assert_array_equal(exact.get_xdata(), exact.get_ydata())
    floor, rows = right.lines
    assert set(floor.get_ydata()) == {10.0}
    np.testing.assert_array_equal(rows.get_ydata(), [100.0, 5.0, np.nan])
