import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.plotting.variants import Look, VariantLines, plot_variants

LOOKS = {"bold": Look(linewidth=2.0), "faint": Look(linestyle=":", alpha=0.4, marked=False)}


def lines(series, variant, y):
    return VariantLines(series=series, variant=variant, x=[1, 2, 3], y=y)


def draw(panels, looks=LOOKS):
    return plot_variants(panels, looks, x_label="samples", y_label="excess (%)")


def test_a_series_has_one_colour_in_all_panels_and_variants_and_others_have_another():
    figure = draw(
        {
            "k = 1": [lines("a", "bold", [3, 2, 1]), lines("b", "bold", [4, 3, 2])],
            "k = 2": [lines("b", "faint", [4, 3, 2]), lines("a", "faint", [3, 2, 1])],
        }
    )
    first, second = (axes.get_lines() for axes in figure.axes)
    assert first[0].get_color() == second[1].get_color()
    assert first[1].get_color() == second[0].get_color() != first[0].get_color()
    assert [line.get_linestyle() for line in (*first, *second)] == ["-", "-", ":", ":"]
    assert second[0].get_marker() == ""


def test_every_row_is_a_line_and_heights_that_are_not_positive_break_it():
    figure = draw({"k = 1": [lines("a", "bold", [[3, 2, 1], [5, 0, 4]])]})
    first, second = figure.axes[0].get_lines()
    np.testing.assert_array_equal(first.get_ydata(), [3, 2, 1])
    np.testing.assert_array_equal(second.get_ydata(), [5, np.nan, 4])


def test_the_legend_names_series_and_variants_once():
    figure = draw({f"k = {k}": [lines("a", "bold", [3, 2, 1])] for k in (1, 2)})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "bold", "faint"]


def test_the_legend_of_a_single_panel_stays_within_the_figure():
    looks = {"each worker": Look(), "combined": Look(), "one model of all rows": Look()}
    names = ["implicit Krasulina", "explicit Krasulina", "incremental PCA", "Oja"]
    figure = draw({"k = 3": [lines(name, "combined", [3, 2, 1]) for name in names]}, looks)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0.0
    assert box.x1 <= figure.bbox.width


def test_a_variant_without_a_look_and_no_panel_are_refused():
    with pytest.raises(InputError, match="dashed"):
        draw({"k = 1": [lines("a", "dashed", [3, 2, 1])]})
    with pytest.raises(InputError, match="panel"):
        draw({})
