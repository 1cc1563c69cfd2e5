"""Small images in rows of the same name: reconstructions in grey, components in colour."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rlreps.errors import InputError
from rlreps.plotting.style import FloatArray, signed_colormap, styled

_SIDE = 0.62
"""Width of one image in inches."""

_LABEL = 1.85
"""Width of the row labels in inches."""

_MARGIN = 0.1
"""Height of the figure's margins in inches."""

_TITLE = 0.2
"""Height of column titles and of a line below every row, in inches."""

_WIDEST = 10
"""Most signed images side by side; more wrap into blocks of rows."""


@styled
def plot_reconstructions(
    rows: Mapping[str, npt.ArrayLike], *, notes: Mapping[str, str] | None = None
) -> Figure:
    """A row of grey images for each name, the same image in each column.

    All images share one scale: 0 is black and 1 is white, and what lies outside is clipped.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        notes: Second line of a row's label, such as its mean error.

    Raises:
        InputError: No row, images of different shapes, or notes of a row that is not there.
    """
    tables, remarks = _as_tables(rows), dict(notes or {})
    _require_known(remarks, tables, "notes")
    count = len(next(iter(tables.values())))
    figure, grid = _panels(tables, count, 1, text_height=0.0)
    for (name, images), line in zip(tables.items(), grid, strict=True):
        for image, axes in zip(images, line, strict=True):
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, origin="upper")
        _label_row(line[0], f"{name}\n{remarks[name]}" if name in remarks else name)
    return figure


@styled
def plot_signed_images(
    rows: Mapping[str, npt.ArrayLike],
    *,
    titles: Sequence[str],
    cosines: Mapping[str, npt.ArrayLike] | None = None,
) -> Figure:
    """A row of images of signed values for each name, such as principal components.

    The images of one column share their limits, symmetric about zero: the largest magnitude among
    them. Signs and order are the caller's to match beforehand. More than ten columns wrap into
    blocks of rows.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        titles: Column titles [count].
        cosines: For names given here, |cosine| [count] written below each image.

    Raises:
        InputError: No row, images of different shapes, titles or cosines that do not match them.
    """
    tables = _as_tables(rows)
    matches = {name: np.abs(np.asarray(row, float)) for name, row in (cosines or {}).items()}
    _require_known(matches, tables, "cosines")
    count = len(next(iter(tables.values())))
    for what, given in (("titles", titles), *matches.items()):
        if len(given) != count:
            raise InputError(f"expected {count} entries of {what}, got {len(given)}")
    limits = np.max(np.abs(np.stack(list(tables.values()))), axis=(0, 2, 3))
    blocks = math.ceil(count / _WIDEST)
    columns = math.ceil(count / blocks)
    figure, grid = _panels(tables, columns, blocks, text_height=_TITLE * (1 + len(matches)))
    for index in range(count):
        block, column = divmod(index, columns)
        panels = grid[block * len(tables) : (block + 1) * len(tables), column]
        limit = float(limits[index]) or 1.0
        for axes, (name, images) in zip(panels, tables.items(), strict=True):
            axes.imshow(
                images[index], cmap=signed_colormap(), vmin=-limit, vmax=limit, origin="upper"
            )
            if name in matches:
                axes.set_xlabel(f"{matches[name][index]:.3f}", fontsize=7.5, labelpad=2)
            if column == 0:
                _label_row(axes, f"{name}\n|cos|, below" if name in matches else name)
        panels[0].set_title(titles[index], fontsize=8.5)
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=grid.ravel().tolist(),
        label="value relative to\nits column's largest",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=18,
        pad=0.01,
    )
    return figure


def _panels(
    tables: Mapping[str, FloatArray], columns: int, blocks: int, *, text_height: float
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """A figure with one axes an image; each block has ``text_height`` inches for text beside."""
    _, height, width = next(iter(tables.values())).shape
    block_height = _SIDE * height / width * len(tables) + text_height
    figure = Figure(figsize=(_LABEL + _SIDE * columns, _MARGIN + block_height * blocks))
    grid = figure.subplots(
        len(tables) * blocks, columns, squeeze=False, gridspec_kw={"wspace": 0.04}
    )
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure, grid


def _label_row(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, rotation=0, horizontalalignment="right", verticalalignment="center")


def _require_known(
    given: Mapping[str, object], tables: Mapping[str, FloatArray], what: str
) -> None:
    for name in given:
        if name not in tables:
            raise InputError(f"expected {what} of {', '.join(map(repr, tables))}, got {name!r}")


def _as_tables(rows: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
    """Every row as images [count, height, width]."""
    if not rows:
        raise InputError("expected at least one row of images, got none")
    tables = {name: np.asarray(images, dtype=np.float64) for name, images in rows.items()}
    shape = next(iter(tables.values())).shape
    for name, images in tables.items():
        if images.ndim != 3 or images.shape != shape or images.size == 0:
            raise InputError(
                f"expected images [count, height, width] of one shape, got {images.shape} for "
                f"{name!r}"
            )
    return tables
