"""The error of a ground truth: in a figure of its own, and below what is measured against it."""

import numpy as np
import pytest

from rlreps import plotting
from rlreps.errors import InputError

FLOOR = np.array([0.0005, 0.001, 0.002, 0.004])


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_error_is_a_line_over_all_dimensions_on_logarithmic_axes():
    figure = plotting.plot_subspace_error({"first": FLOOR, "second": 10 * FLOOR[:2]})
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    for line, values in zip(axes.lines, (FLOOR, 10 * FLOOR[:2]), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(values) + 1))
        np.testing.assert_array_equal(line.get_ydata(), values)
    low, high = axes.get_ylim()
    assert low < 0.0005 < 0.01 < high
    assert legend(figure) == ["first", "second"]
    assert axes.get_ylabel() == "subspace distance from the truth"
    assert axes.get_xlim()[0] < 1 < 4 < axes.get_xlim()[1]


def test_an_error_of_zero_is_left_out_and_the_rest_drawn():
    figure = plotting.plot_subspace_error({"a": [0.0, 0.1]}, y_label="distance")
    np.testing.assert_array_equal(np.isnan(figure.axes[0].lines[0].get_ydata()), [True, False])
    assert figure.axes[0].get_ylabel() == "distance"
    figure.draw_without_rendering()
    plotting.plot_subspace_error({"a": [0.0]}).draw_without_rendering()


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({}, "at least one error"),
        ({"a": []}, r"distances \[k\] for 'a', got shape \(0,\)"),
        ({"a": [[0.1]]}, r"distances \[k\] for 'a', got shape \(1, 1\)"),
        ({"a": [0.1, np.nan]}, r"distances in \[0, 1\] for 'a'"),
        ({"a": [1.5]}, r"distances in \[0, 1\] for 'a'"),
        ({"a": [-0.1]}, r"distances in \[0, 1\] for 'a'"),
    ],
)
def test_what_is_no_error_is_refused(errors, message):
    with pytest.raises(InputError, match=message):
        plotting.plot_subspace_error(errors)


def test_distances_by_dimension_are_drawn_above_the_noise_floor_of_their_own_range():
    rows = [
        {"method": "a", "d": 2, "subspace_distance": 0.1},
        {"method": "a", "d": 3, "subspace_distance": 0.2},
    ]
    given = FLOOR.copy()
    figure = plotting.plot_distance_by_dimension(rows, noise_floor=given)
    np.testing.assert_array_equal(given, FLOOR)  # what was handed over is not written to
    floor = next(line for line in figure.axes[0].lines if "noise floor" in str(line.get_label()))
    np.testing.assert_array_equal(floor.get_ydata(), [np.nan, 0.001, 0.002])
    assert figure.axes[0].get_ylim()[0] < 0.001
    assert "noise floor of the ground truth" in legend(figure)
