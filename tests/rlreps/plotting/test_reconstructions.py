import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.plotting import figure_bytes
from rlreps.plotting.reconstructions import plot_reconstructions, plot_signed_images

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
