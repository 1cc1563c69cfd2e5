import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.plotting import figure_bytes
from rlreps.plotting.sweeps import SweepLine, plot_sweep


def line(places, mean, *, label="", width=0.0, diverged=()):
    half = [width] * len(mean)
    return SweepLine(
        label=label,
        places=places,
        mean=mean,
        low=[m - h for m, h in zip(mean, half, strict=True)] if width else [None] * len(mean),
        high=[m + h for m, h in zip(mean, half, strict=True)] if width else [None] * len(mean),
        diverged=[index in diverged for index in range(len(mean))],
    )


def tick_labels(figure):
    figure.canvas.draw()
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def test_lines_lie_where_their_means_are_beside_each_other():
    first, second = [0.5, 0.01], [0.4, 0.02]
    lines = [line([1e-3, 1e-1], mean, label=str(mean[0])) for mean in (first, second)]
    axes = plot_sweep(lines, x_label="rate", y_label="distance").axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    drawn = [container[0] for container in axes.containers]
    for curve, mean in zip(drawn, (first, second), strict=True):
        np.testing.assert_array_equal(curve.get_ydata(), mean)
        np.testing.assert_allclose(curve.get_xdata(), [1e-3, 1e-1], rtol=0.05)
    assert np.all(drawn[0].get_xdata() < drawn[1].get_xdata())


def test_values_close_together_have_linear_axes():
    figure = plot_sweep([line([2, 3], [0.5, 0.4])], x_label="d", y_label="distance")
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("linear", "linear")
    assert tick_labels(figure) == ["2", "3"]
    assert legend(figure) == []


def test_names_stand_side_by_side_in_their_order():
    lines = [line(["sgd", "adam"], [0.5, 0.4]), line(["sgd", "adam"], [0.3, 0.2])]
    assert tick_labels(plot_sweep(lines, x_label="", y_label="")) == ["sgd", "adam"]


def test_points_with_diverged_runs_are_crossed_and_named_once():
    lines = [
        line([1, 2, 3], [1.0, 0.5, 1.0], label="a", width=0.1, diverged=(0, 2)),
        line([1, 2, 3], [0.2, 1.0, 0.2], label="b", width=0.1, diverged=(1,)),
    ]
    figure = plot_sweep(lines, x_label="x", y_label="y")
    assert legend(figure) == ["a", "b", "some runs diverged"]
    crosses = [curve for curve in figure.axes[0].lines if curve.get_marker() == "x"]
    assert [cross.get_ydata().tolist() for cross in crosses] == [[1.0, 1.0], [1.0]]
    assert figure.legends[0].get_title().get_text() == "mean over runs, 95 % bootstrap interval"
    assert figure_bytes(figure) == figure_bytes(plot_sweep(lines, x_label="x", y_label="y"))


def test_one_point_and_a_perfect_one_can_be_drawn():
    for mean in ([0.3], [0.0]):
        assert figure_bytes(plot_sweep([line([5], mean)], x_label="d", y_label="distance"))


def test_what_is_no_line_is_refused():
    with pytest.raises(InputError, match="at least one line"):
        plot_sweep([], x_label="", y_label="")
    with pytest.raises(InputError, match="one length"):
        line([1, 2], [0.1])
    with pytest.raises(InputError, match="at least 1"):
        line([], [])
