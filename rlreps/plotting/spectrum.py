"""The spectrum of a centred successor measure and the energy its leading components hold."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlreps.errors import InputError
from rlreps.plotting.style import (
    MUTED,
    OKABE_ITO,
    FloatArray,
    plain_log_ticks,
    series_style,
    styled,
)


@styled
def plot_spectrum(
    singular_values: npt.ArrayLike,
    total_energy: float,
    *,
    marks: Sequence[int] = (10, 50, 100),
) -> Figure:
    """Singular values (logarithmic) and the energy that the leading ones hold, in percent.

    Args:
        singular_values: The leading singular values [r], largest first. Zeros are not drawn.
        total_energy: Squared Frobenius norm of the whole matrix: the sum of all squared singular
            values, also of those not given.
        marks: Numbers of components whose energy the legend states; those beyond r are
            left out.

    Raises:
        InputError: Singular values that are not finite, of at least 0 and largest first, or that
            hold more than `total_energy`.
    """
    values = _checked(np.asarray(singular_values, dtype=np.float64), float(total_energy))
    index = np.arange(1, values.size + 1)
    captured = np.minimum(100.0 * np.cumsum(values**2) / float(total_energy), 100.0)
    figure = Figure(figsize=(7.2, 3.2))
    left, right = figure.subplots(1, 2)
    marker = "o" if values.size <= 40 else None
    for axes, heights in ((left, np.where(values > 0, values, np.nan)), (right, captured)):
        axes.plot(index, heights, color=OKABE_ITO[0], marker=marker, markersize=3.0)
        axes.grid(visible=True)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set_xlim(0, values.size + 1)
    left.set(yscale="log", xlabel="component i", ylabel="singular value")
    plain_log_ticks(left.yaxis)
    right.set(xlabel="leading components d", ylabel="energy captured (% of total)", ylim=(0, 103))
    right.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=""))
    drawn = sorted({mark for mark in marks if 1 <= mark <= values.size})
    for number, mark in enumerate(drawn, start=1):
        _mark(left, mark, values[mark - 1], number)
        _mark(right, mark, captured[mark - 1], number, f"d = {mark}: {captured[mark - 1]:.1f} %")
    if drawn:
        right.legend(loc="best", handlelength=1.0, frameon=True, framealpha=1.0, edgecolor="white")
    return figure


def _checked(values: FloatArray, total_energy: float) -> FloatArray:
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"expected singular values [r] with r >= 1, got shape {values.shape}")
    if not np.isfinite(values).all() or values.min() < 0 or (np.diff(values) > 0).any():
        raise InputError("expected finite singular values of at least 0, largest first, got others")
    held = float((values**2).sum())
    # Single precision sums of 10^8 entries leave this much room.
    if not np.isfinite(total_energy) or not 0 < held <= total_energy * (1 + 1e-3):
        raise InputError(f"expected total energy of at least {held:.6g}, got {total_energy:.6g}")
    return values


def _mark(axes: Axes, mark: int, height: float, number: int, label: str | None = None) -> None:
    """A vertical line at component `mark` and a marker of its own where it meets the curve."""
    axes.axvline(mark, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    look = series_style(number)
    axes.plot(
        [mark],
        [height if height > 0 else np.nan],
        color=look["color"],
        marker=look["marker"],
        markersize=6.0,
        markeredgecolor="white",
        linestyle="none",
        zorder=3,
        label=label,
    )
