"""Figures that compare agents: heights, intervals, what is filled, what is refused."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from scipy import stats

from rlreps.errors import InputError
from rlreps.plotting.agents import plot_improvements, plot_sample_efficiency
from rlreps.runs.intervals import aggregate

NAN = float("nan")


def returns(points, seeds=6, seed=0):
    return np.random.default_rng(seed).normal(size=(seeds, points)).cumsum(axis=1)


class TestSampleEfficiency:
    @pytest.mark.parametrize("points", [5, 30], ids=["bars", "bands"])
    def test_lines_are_interquartile_means_over_seeds(self, points):
        steps = 1000 * np.arange(1, points + 1)
        tables = {"none": returns(points), "large_batch": returns(points, seed=1)}
        figure = plot_sample_efficiency(steps, tables)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        lines = [line for line in axes.lines if line.get_linestyle() != "None"]
        for line, table in zip(lines, tables.values(), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), steps)
            np.testing.assert_allclose(line.get_ydata(), stats.trim_mean(table, 0.25, axis=0))
        legend = figure.legends[0]
        assert [text.get_text() for text in legend.get_texts()] == [
            "none (6 seeds)",
            "large_batch (6 seeds)",
        ]
        assert "95 % bootstrap interval" in legend.get_title().get_text()

    def test_the_band_is_the_bootstrap_interval(self):
        table = returns(30)
        (axes,) = plot_sample_efficiency(np.arange(30), {"none": table}).axes
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices
        found = aggregate(table)
        for step in (0, 12, 29):
            ends = heights[heights[:, 0] == step, 1]
            assert ends.min() == pytest.approx(found["interquartile_mean_low"][step])
            assert ends.max() == pytest.approx(found["interquartile_mean_high"][step])

    def test_a_reference_return_is_a_named_line(self):
        figure = plot_sample_efficiency(
            [1, 2], {"none": returns(2)}, reference=(475.0, "solved"), title="CartPole"
        )
        (axes,) = figure.axes
        assert [475.0, 475.0] in [list(line.get_ydata()) for line in axes.lines]
        assert "solved" in [text.get_text() for text in figure.legends[0].get_texts()]
        assert axes.get_title() == "CartPole"

    @pytest.mark.parametrize(
        ("tables", "message"),
        [
            ({}, "expected at least one method, got 0"),
            (
                {"none": returns(3)},
                r"expected returns \[seeds, 2\] of 'none', got 'shape \(6, 3\)'",
            ),
            ({"none": [1.0, 2.0]}, r"expected returns \[seeds, 2\] of 'none'"),
            ({"none": [[1.0, NAN]]}, "expected finite values"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, tables, message):
        with pytest.raises(InputError, match=message):
            plot_sample_efficiency([1, 2], tables)


class TestImprovements:
    ESTIMATES = {  # noqa: RUF012
        "better": (0.8, 0.6, 0.9),
        "unclear": (0.6, 0.4, 0.8),
        "worse": (0.2, 0.1, 0.4),
        "single": (0.7, NAN, NAN),
    }

    def drawn(self):
        figure = plot_improvements(self.ESTIMATES, baseline="none")
        figure.draw_without_rendering()
        return figure.axes[0]

    def test_each_method_has_a_row_from_the_top_with_its_interval(self):
        axes = self.drawn()
        assert [label.get_text() for label in axes.get_yticklabels()] == list(self.ESTIMATES)
        low, high = axes.get_ylim()
        assert low > high  # rows are counted downwards
        bars = [line for line in axes.lines if line.get_linewidth() > 2]
        points = [line for line in axes.lines if line.get_marker() == "o"]
        for row, (bar, point, estimate) in enumerate(
            zip(bars, points, self.ESTIMATES.values(), strict=True)
        ):
            np.testing.assert_array_equal(bar.get_xdata(), estimate[1:])
            np.testing.assert_array_equal(bar.get_ydata(), [row, row])
            assert list(point.get_xdata()) == [estimate[0]]
            assert list(point.get_ydata()) == [row]
        assert "over none" in axes.get_xlabel()

    def test_a_line_stands_where_neither_is_better(self):
        (dotted,) = [line for line in self.drawn().lines if line.get_linestyle() == ":"]
        assert list(dotted.get_xdata()) == [0.5, 0.5]

    def test_only_intervals_on_one_side_of_it_are_filled(self):
        points = [line for line in self.drawn().lines if line.get_marker() == "o"]
        white = [to_rgb(point.get_markerfacecolor()) == to_rgb("white") for point in points]
        assert white == [False, True, False, True]

    @pytest.mark.parametrize("bad", [(0.5, 0.4), (0.5, -0.1, 0.6), (0.5, 0.4, 1.2), (0.5,) * 4])
    def test_other_numbers_are_refused(self, bad):
        with pytest.raises(InputError, match=r"expected \(probability, low, high\) in \[0, 1\]"):
            plot_improvements({"a": bad})

    def test_no_method_is_refused(self):
        with pytest.raises(InputError, match="expected at least one method, got 0"):
            plot_improvements({})
