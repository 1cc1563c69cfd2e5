"""Panels side by side: what lines share, what limits show, what is refused."""

import itertools

import matplotlib
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.plotting.panels import Line, Panel, plot_panels

MISSING = float("nan")


def line(label, mean, *, x=None, low=None, high=None):
    mean = np.asarray(mean, float)
    return Line(
        label=label,
        x=np.arange(1, len(mean) + 1) if x is None else x,
        mean=mean,
        low=0.8 * mean if low is None else low,
        high=1.2 * mean if high is None else high,
    )


def drawn(panels, **options):
    figure = plot_panels(
        [Panel(title=str(number), lines=lines) for number, lines in enumerate(panels)],
        **{"x_label": "update", "y_label": "distance", **options},
    )
    figure.draw_without_rendering()
    return figure


def look(axes, label):
    """Colour, marker and dashes of the line that the legend would name so."""
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
        if name == label:
            main = handle.lines[0] if hasattr(handle, "lines") else handle
            # Dashes of the unscaled pattern are private; the drawn ones tell lines apart as well.
            return main.get_color(), main.get_marker(), main.get_linestyle()
    raise AssertionError(label)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def main_lines(axes):
    return [entry for entry in axes.lines if entry.get_linestyle() != "None"]


LONG = np.linspace(1.0, 0.1, 30)


@pytest.mark.parametrize("mean", [LONG[:5], LONG], ids=["bars", "bands"])
def test_lines_of_one_name_look_the_same_in_every_panel_and_others_do_not(mean):
    names = ["d = 1", "d = 5", "d = 10"]
    figure = drawn(
        [
            [line(name, mean) for name in names],
            # In another order, with one missing and one of its own.
            [line(name, mean) for name in ("d = 10", "other", "d = 1")],
        ]
    )
    first, second = figure.axes
    for name in ("d = 1", "d = 10"):
        assert look(first, name) == look(second, name)
    looks = [look(first, name) for name in names] + [look(second, "other")]
    for one, other in itertools.combinations(looks, 2):
        assert one[0] != other[0]
        assert one[1] != other[1]
    assert legend(figure) == [*names, "other"]


def test_panels_share_the_limits_that_show_all_of_them():
    figure = drawn([[line("a", [0.5, 0.4])], [line("a", [0.02, 0.01], x=[5, 90])]])
    first, second = figure.axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    low, high = second.get_ylim()
    assert low < 0.8 * 0.01
    assert high > 1.2 * 0.5
    assert first.get_xlim()[0] < 1 < 90 < first.get_xlim()[1]
    assert [axes.get_title() for axes in figure.axes] == ["0", "1"]
    assert figure.get_supylabel() == "distance"
    assert [axes.get_xlabel() for axes in figure.axes] == ["update", "update"]


def test_panels_wrap_into_even_rows_and_the_lowest_of_each_column_names_its_axis():
    figure = drawn([[line("a", [0.5, 0.4])]] * 5)
    boxes = [axes.get_position() for axes in figure.axes[:5]]
    assert boxes[0].y0 == boxes[1].y0 == boxes[2].y0 > boxes[3].y1
    assert boxes[3].x0 == boxes[0].x0
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", *["update"] * 3, ""]
    for axes in figure.axes[2:5]:
        assert any(tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks())
    assert not figure.axes[5].axison
    square = drawn([[line("a", [0.5, 0.4])]] * 4)
    assert [axes.get_xlabel() for axes in square.axes] == ["", "", "update", "update"]
    boxes = [axes.get_position() for axes in square.axes]
    assert boxes[0].y0 == boxes[1].y0 > boxes[2].y1
    assert boxes[2].x0 == boxes[0].x0


@pytest.mark.parametrize("count", [3, 30])
def test_heights_that_are_not_positive_are_missing_on_a_logarithmic_axis(count):
    mean = np.linspace(0.1, 0.2, count)
    mean[1] = 0.0
    mean[2] = -0.3
    figure = drawn([[line("a", mean)]])
    heights = np.asarray(main_lines(figure.axes[0])[0].get_ydata())
    np.testing.assert_array_equal(np.isnan(heights[:3]), [False, True, True])
    np.testing.assert_array_equal(heights[3:], mean[3:])
    linear = drawn([[line("a", mean)]], log_y=False)
    np.testing.assert_array_equal(main_lines(linear.axes[0])[0].get_ydata(), mean)
    assert linear.axes[0].get_yscale() == "linear"
    assert linear.axes[0].get_ylim()[0] < -0.3


def test_an_interval_that_reaches_zero_does_not_flatten_a_logarithmic_panel():
    figure = drawn([[line("a", [0.5, 0.2], low=[1e-12, 0.0], high=[0.6, 0.3])]])
    low, high = figure.axes[0].get_ylim()
    assert 0.01 < low < 0.2
    assert 0.6 < high < 3.0


@pytest.mark.parametrize("count", [3, 30])
def test_a_line_without_intervals_is_drawn_all_the_same(count):
    nowhere = np.full(count, MISSING)
    figure = drawn([[line("a", np.linspace(0.1, 0.2, count), low=nowhere, high=nowhere)]])
    axes = figure.axes[0]
    np.testing.assert_array_equal(main_lines(axes)[0].get_ydata(), np.linspace(0.1, 0.2, count))
    bands = [entry for entry in axes.collections if np.ptp(entry.get_datalim(axes.transData).y1)]
    assert not bands
    assert legend(figure) == ["a"]


def test_a_band_covers_the_points_that_have_an_interval():
    mean = np.linspace(0.1, 0.2, 30)
    low, high = 0.5 * mean, 2.0 * mean
    low[:10] = MISSING
    figure = drawn([[line("a", mean, low=low, high=high)]])
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 0].min() == 11
    assert corners[:, 0].max() == 30
    assert corners[:, 1].min() == pytest.approx(low[10])
    assert corners[:, 1].max() == pytest.approx(high[-1])


def test_bars_end_where_their_intervals_do():
    figure = drawn([[line("a", [0.5, 0.4], low=[0.3, MISSING], high=[0.9, MISSING])]])
    (bars,) = figure.axes[0].collections
    first, second = (segment[:, 1] for segment in bars.get_segments())
    np.testing.assert_allclose(first, [0.3, 0.9])
    np.testing.assert_allclose(second, [0.4, 0.4])


def test_references_are_in_every_panel_and_once_in_the_legend():
    floor = ([1, 2], [0.001, 0.002])
    figure = plot_panels(
        [Panel(title=title, lines=[line("a", [0.5, 0.4])], noise_floor=floor) for title in "xy"],
        x_label="κ0",
        y_label="distance",
        reference_x=(2.0, "where it ends"),
        note="what the bars are",
    )
    for axes in figure.axes:
        heights = [list(entry.get_ydata()) for entry in main_lines(axes)]
        assert [0.001, 0.002] in heights
        assert any(list(entry.get_xdata()) == [2.0, 2.0] for entry in axes.lines)
        assert axes.get_ylim()[0] < 0.001
    assert sorted(legend(figure)) == ["a", "noise floor of the ground truth", "where it ends"]
    assert figure.legends[0].get_title().get_text() == "what the bars are"


def test_asked_for_ticks_are_the_only_ones_and_read_as_plain_numbers():
    figure = drawn([[line("a", [0.5, 0.4], x=[15, 300])]], log_x=True, x_ticks=(15, 75, 300))
    axis = figure.axes[0].xaxis
    assert figure.axes[0].get_xscale() == "log"
    np.testing.assert_array_equal(axis.get_majorticklocs(), [15, 75, 300])
    assert [tick.get_text() for tick in axis.get_majorticklabels()] == ["15", "75", "300"]
    assert len(axis.get_minorticklocs()) == 0


def test_settings_of_matplotlib_are_left_as_they_were():
    before = dict(matplotlib.rcParams)
    drawn([[line("a", [0.5])]])
    assert dict(matplotlib.rcParams) == before


def test_a_figure_without_panels_or_a_panel_without_lines_is_refused():
    with pytest.raises(InputError, match="at least one panel, got 0"):
        drawn([])
    with pytest.raises(InputError, match="at least one line in every panel"):
        drawn([[line("a", [0.5])], []])
