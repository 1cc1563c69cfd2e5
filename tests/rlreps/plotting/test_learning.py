"""The figure of how a run of agents went: a panel a measure, each with limits of its own."""

import numpy as np
import pytest
from scipy import stats

from rlreps.errors import InputError
from rlreps.plotting.learning import plot_learning
from rlreps.runs.intervals import aggregate

STEPS = np.arange(6) * 1000


def table(seeds=4, seed=0):
    return np.random.default_rng(seed).normal(size=(seeds, len(STEPS)))


def test_each_panel_shows_every_agent_their_interquartile_mean_and_its_interval():
    tables = {"return": 100.0 * table(), "effective rank": table(seed=1), "probe": table(seed=2)}
    figure = plot_learning(STEPS, tables)
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == list(tables)
    for axes, values in zip(panels, tables.values(), strict=True):
        *agents, mean = axes.lines
        for line, expected in zip(agents, values, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), expected)
        np.testing.assert_allclose(mean.get_ydata(), stats.trim_mean(values, 0.25, axis=0))
        np.testing.assert_array_equal(mean.get_xdata(), STEPS)
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(aggregate(values)["interquartile_mean_low"].min())
    assert panels[0].get_ylim()[1] > 10 * panels[1].get_ylim()[1]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["95 % bootstrap interval", "each agent", "interquartile mean (4 seeds)"]


def test_one_agent_is_one_line():
    figure = plot_learning(STEPS, {"return": table(seeds=1)})
    (axes,) = figure.axes
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_ydata(), table(seeds=1)[0])
    assert not axes.collections
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one agent"]


def test_a_value_that_is_not_there_leaves_a_gap():
    values = table()
    values[2, 3] = np.nan
    (axes,) = plot_learning(STEPS, {"return": values}).axes
    mean = axes.lines[-1].get_ydata()
    assert np.isnan(mean[3])
    assert np.isfinite(np.delete(mean, 3)).all()


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ({}, "at least one measure, got 0"),
        ({"return": np.zeros((2, 5))}, r"values \[seeds, 6\] of 'return', got 'shape \(2, 5\)'"),
        ({"return": np.zeros(6)}, r"values \[seeds, 6\] of 'return', got 'shape \(6,\)'"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(measures, message):
    with pytest.raises(InputError, match=message):
        plot_learning(STEPS, measures)
