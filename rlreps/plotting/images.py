"""Small images in rows: grey images, and images of signed values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from rlreps.encoders.networks import channels_first
from rlreps.errors import require, require_positive
from rlreps.plotting.maps import MOST_MAPS, add_signed_bar, draw_signed, magnitudes
from rlreps.plotting.style import OKABE_ITO, styled
from rlreps.typing import ArrayLike, DoubleArray

_SIDE, _LABEL, _MARGIN, _TITLE = 0.62, 1.85, 0.1, 0.2
"""Inches: width of one small image, width of row labels, height of the figure's margins, and height
of column titles or of a line below every row."""

_CODES = 32
"""Bytes that are all smaller are codes, not brightness."""


def as_frames(observations: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Return a picture of each state from what an encoder sees; None for vectors.

    Images of bytes with one or three channels stay as they are. Codes and other numbers are
    stretched from black, their least, to white. Of several objects, zeros and ones in a channel
    each, a pixel shows the last one present, as a colour; of other numbers of channels, the last
    channel. Shapes alone tell images from vectors, so that any table [a, b] is an image.

    Args:
        observations: [n, ...]; images may have their channels first or last, or none.

    Returns:
        [n, height, width, 1 or 3].
    """
    seen = observations[..., None] if observations.ndim == 3 else observations
    if seen.ndim != 4 or seen.size == 0:
        return None
    if channels_first(seen.shape[1:]):
        seen = np.moveaxis(seen, 1, -1)
    channels = seen.shape[3]
    if channels > 1 and seen.max() <= 1 and np.isin(seen, (0, 1)).all():
        last = np.max(np.arange(1, channels + 1) * (seen > 0), axis=3)
        colours = [(0, 0, 0), *(to_rgb(OKABE_ITO[each % 6]) for each in range(channels))]
        return np.asarray(np.rint(255 * np.asarray(colours))[last], np.uint8)
    if channels not in (1, 3):
        seen = seen[..., -1:]
    if seen.dtype == np.uint8 and seen.max() >= _CODES:
        return seen
    low, high = float(seen.min()), float(seen.max())
    stretched = (seen.astype(np.float32) - low) * (255.0 / (high - low or 1.0))
    return np.asarray(np.rint(stretched), np.uint8)


@styled
def plot_reconstructions(
    rows: Mapping[str, ArrayLike], *, notes: Mapping[str, str] | None = None
) -> Figure:
    """Draw a row of grey images for each name, the same image in each column.

    All images share one scale: 0 is black, 1 is white, and values outside are clipped.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        notes: Second line of a row's label, such as the mean error.
    """
    tables = {name: np.asarray(images, np.float64) for name, images in rows.items()}
    remarks = notes or {}
    figure, grid = _image_grid(tables, len(next(iter(tables.values()))), 1, text_height=0.0)
    for (name, images), line in zip(tables.items(), grid, strict=True):
        for image, axes in zip(images, line, strict=True):
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, origin="upper")
        _label_row(line[0], f"{name}\n{remarks[name]}" if name in remarks else name)
    return figure


@styled
def plot_signed_images(
    rows: Mapping[str, ArrayLike],
    *,
    titles: Sequence[str],
    cosines: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """Draw a row of images of signed values for each name, such as principal components.

    The images of one column share their limits, symmetric about zero: the largest magnitude among
    them. The caller must match signs and order beforehand. More than ten columns wrap into blocks
    of rows.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        titles: Column titles [count].
        cosines: |cosine| [count] by name, written below each image of the names given.

    Raises:
        InputError: Titles or cosines that do not match the images.
    """
    tables = {name: np.asarray(images, np.float64) for name, images in rows.items()}
    matches = magnitudes(cosines, tables, titles)
    blocks = math.ceil(len(titles) / MOST_MAPS)
    columns = math.ceil(len(titles) / blocks)
    figure, grid = _image_grid(tables, columns, blocks, text_height=_TITLE * (1 + len(matches)))
    for axes, name, index, _ in draw_signed(grid, tables, columns):
        if name == next(iter(tables)):
            axes.set_title(titles[index], fontsize=8.5)
        if index % columns == 0:
            _label_row(axes, f"{name}\n|cos|, below" if name in matches else name)
        if name in matches:
            axes.set_xlabel(f"{matches[name][index]:.3f}", fontsize=7.5, labelpad=2)
    add_signed_bar(figure, "value relative to\nits column's largest", aspect=18)
    return figure


@styled
def plot_extremes(components: ArrayLike, frames: ArrayLike, *, each: int = 4) -> Figure:
    """Draw the frames at both ends of each component, as Pfau et al. (2019) show them.

    Args:
        components: Components of the states, [n, k]; a row of the figure for each.
        frames: Picture of every state, [n, height, width, 1 or 3], uint8; the top row first.
        each: Frames at each end.

    Raises:
        InputError: For frames of another shape or type.
    """
    require_positive("each", each)
    table, seen = np.asarray(components, np.float64), np.asarray(frames)
    images = seen.ndim == 4 and seen.shape[3] in (1, 3) and seen.dtype == np.uint8
    require(images, "frames [n, height, width, 1 or 3], uint8", (seen.dtype.name, seen.shape))
    require(
        table.ndim == 2 and len(table) == len(seen), f"components [{len(seen)}, k]", table.shape
    )
    require(len(seen) >= 2, "at least two frames", len(seen))
    each = min(each, len(seen) // 2)
    order = np.argsort(table, axis=0, kind="stable")
    chosen = np.concatenate([order[:each], order[len(order) - each :]])
    blank = np.zeros((2 * each, *seen.shape[1:3]))
    rows = {str(index + 1): blank for index in range(table.shape[1])}
    figure, grid = _image_grid(rows, 2 * each, 1, text_height=_TITLE)
    for index, line in enumerate(grid):
        for axes, state in zip(line, chosen[:, index], strict=True):
            frame = seen[state] if seen.shape[3] == 3 else seen[state, :, :, 0]
            axes.imshow(frame, cmap="gray", vmin=0, vmax=255, origin="upper")
        _label_row(line[0], f"component {index + 1}")
    grid[0, 0].set_title("least", fontsize=8.5, loc="left")
    grid[0, -1].set_title("greatest", fontsize=8.5, loc="right")
    return figure


def _image_grid(
    tables: Mapping[str, DoubleArray], columns: int, blocks: int, *, text_height: float
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Make a figure with axes for each image and ``text_height`` inches of text per block."""
    _, height, width = next(iter(tables.values())).shape
    block_height = _SIDE * height / width * len(tables) + text_height
    figure = Figure(figsize=(_LABEL + _SIDE * columns, _MARGIN + block_height * blocks))
    spacing = {"wspace": 0.04}
    grid = figure.subplots(len(tables) * blocks, columns, squeeze=False, gridspec_kw=spacing)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure, grid


def _label_row(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, rotation=0, horizontalalignment="right", verticalalignment="center")
