"""The style of figures: colours and markers of series, the colour map of signed values, files."""

import functools
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.axis import Axis
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rlreps.errors import require, require_choice
from rlreps.files import require_output, write_atomically

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

RESOLUTION = 200
"""Dots per inch of every PNG."""

INK = "#1b1b1b"
"""Colour of text and outlines."""

MUTED = "#5f5f5f"
"""Colour of references, such as a noise floor."""

MISSING = "#bdbdbd"
"""Colour of cells without a value."""

# The keys are literals to matplotlib 3.11's type stubs and plain strings to earlier ones.
STYLE: Mapping[Any, object] = {
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    # Users choose the names of runs and axes: "$" is an ordinary character.
    "text.parse_math": False,
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.facecolor": "white",
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.8,
    "image.interpolation": "nearest",
    "image.origin": "lower",
    "legend.fontsize": 8.5,
    "legend.title_fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "savefig.dpi": RESOLUTION,
    "savefig.facecolor": "white",
    # The same figure gives the same bytes, and text in vector files stays text.
    "svg.hashsalt": "rlreps",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}

# Okabe & Ito (2008), "Color universal design", without yellow, which is too pale on white.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2, 1.2, 2, 1.2, 2)))


def styled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run `function` under `STYLE` and restore matplotlib's settings afterwards."""

    @functools.wraps(function)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with matplotlib.rc_context(dict(STYLE)):
            return function(*args, **kwargs)

    return wrapper


def series_style(index: int) -> dict[str, Any]:
    """Return `color`, `marker` and `linestyle` of series `index`; the cycles differ in length.

    No two of the first 280 series share all three, and neighbours differ in each, so that lines
    differ in grey print and for colour-blind readers.
    """
    return {
        "color": OKABE_ITO[index % len(OKABE_ITO)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _LINES[index % len(_LINES)],
    }


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis, whose limits are set, with plain numbers, not powers of ten."""
    low, high = axis.get_view_interval()
    few_decades = high / low < 10**2.5
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few_decades else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def signed_colormap() -> Colormap:
    """Return a diverging map: blue below zero, white at zero, red above, grey for no value."""
    return matplotlib.colormaps["RdBu_r"].with_extremes(bad=MISSING)


# No date in the file: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


@styled
def figure_bytes(figure: Figure, *, image_format: str = "png") -> bytes:
    """Return the contents of an image file of `figure`.

    Args:
        figure: The figure.
        image_format: "png" (200 dots per inch), "svg" or "pdf".
    """
    buffer = io.BytesIO()
    require_choice("image format", image_format, tuple(_METADATA))
    figure.savefig(buffer, format=image_format, dpi=RESOLUTION, metadata=_METADATA[image_format])
    return buffer.getvalue()


def require_figure(path: str | os.PathLike[str]) -> str:
    """Return the image format of a figure's path; raise an ``InputError`` if none can be written.

    Commands that compute a figure for long call this first.
    """
    target = Path(path)
    image_format = target.suffix.removeprefix(".").lower()
    suffixes = ", ".join(f".{name}" for name in _METADATA)
    require(image_format in _METADATA, f"a figure file ending in {suffixes}", str(target))
    require_output(target, file=True)
    return image_format


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write `figure` to `path` in the format of its suffix and return the path.

    Missing folders are made. The file appears at `path` only when it is complete.

    Raises:
        InputError: As ``require_figure``.
    """
    image_format = require_figure(path)
    return write_atomically(path, figure_bytes(figure, image_format=image_format))
