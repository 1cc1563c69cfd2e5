"""Statistics over seeds, and what the figures that show them have in common."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from rlreps.plotting.style import MUTED, FloatArray, plain_log_ticks

CONFIDENCE = 0.95

NOISE_FLOOR: Mapping[str, Any] = {
    "color": MUTED,
    "linestyle": (0, (4, 3)),
    "linewidth": 1.1,
    "zorder": 1,
    "label": "noise floor of the ground truth",
}
"""How the error of the ground truth itself is drawn below what was measured against it."""

_INTERVAL = "mean over seeds, 95 % confidence interval (Student's t)"
_LOG_INTERVAL = (
    "geometric mean over seeds, 95 % confidence interval (Student's t of the logarithms)"
)


def mean_and_interval(
    values: npt.ArrayLike, *, logarithmic: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over seeds with its 95 % confidence interval, from Student's t with count - 1 degrees.

    Values that are not finite are left out, point by point.

    Args:
        values: [seeds, p].
        logarithmic: Take both on the logarithms and return the geometric mean and its interval,
            which is never negative: what a logarithmic axis shows evenly. Values that are not
            positive are left out too.

    Returns:
        Mean, lower and upper end, each [p]. The mean is NaN where no seed has a value, the ends are
        NaN where fewer than two have one.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if logarithmic:
        logarithms = np.log(table, where=table > 0, out=np.full_like(table, np.nan))
        mean, lower, upper = mean_and_interval(logarithms)
        return np.exp(mean), np.exp(lower), np.exp(upper)
    finite = np.isfinite(table)
    count = finite.sum(axis=0)
    kept = np.where(finite, table, 0.0)
    mean = np.where(count > 0, kept.sum(axis=0) / np.maximum(count, 1), np.nan)
    deviations = np.where(finite, table - mean, 0.0)
    freedom = np.maximum(count - 1, 1)
    standard_error = np.sqrt((deviations**2).sum(axis=0) / freedom / np.maximum(count, 1))
    half_width = stats.t.ppf(0.5 + CONFIDENCE / 2, freedom) * standard_error
    half_width = np.where(count > 1, half_width, np.nan)
    return mean, mean - half_width, mean + half_width


def seed_count(values: npt.ArrayLike) -> str:
    """How many seeds the points of [seeds, p] rest on: "5 seeds", or "3 to 5 seeds" with gaps."""
    count = np.isfinite(np.atleast_2d(np.asarray(values, dtype=np.float64))).sum(axis=0)
    count = count[count > 0]
    if count.size == 0:
        return "no values"
    low, high = int(count.min()), int(count.max())
    return f"{low} to {high} seeds" if low != high else f"{high} seed{'s' if high > 1 else ''}"


def set_limits(axes: Axes, means: FloatArray, ends: FloatArray, *, log_y: bool) -> None:
    """Vertical scale and limits that show every mean and every end of an interval.

    On a logarithmic axis an interval over many orders of magnitude, as of two seeds, would flatten
    everything else: the axis ends at a tenth of the lowest mean and ten times the highest.

    Args:
        axes: Whose limits to set.
        means: Any shape; values that are not finite are ignored.
        ends: Ends of intervals, any shape; values that are not finite are ignored.
        log_y: Whether the axis is logarithmic.
    """
    axes.set_yscale("log" if log_y else "linear")
    means, ends = (
        part[np.isfinite(part) & ((part > 0) | (not log_y))]
        for part in (means.ravel(), ends.ravel())
    )
    if means.size == 0:
        return
    shown = np.clip(ends, means.min() / 10, means.max() * 10) if log_y else ends
    heights = np.concatenate([means, shown])
    low, high = float(heights.min()), float(heights.max())
    if log_y:
        margin = max((high / low) ** 0.05, 1.05)
        axes.set_ylim(low / margin, high * margin)
        plain_log_ticks(axes.yaxis)
    else:
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        axes.set_ylim(low - margin, high + margin)


def legend_below(figure: Figure, axes: Axes, *, has_intervals: bool, logarithmic: bool) -> None:
    """Legend under the axes, where it hides no data; its title says what bands or bars mean."""
    note = _LOG_INTERVAL if logarithmic else _INTERVAL
    handles, labels = axes.get_legend_handles_labels()
    widest = max(len(label) for label in labels)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=1 if widest > 48 else 2 if widest > 24 else 3,
        title=note if has_intervals else None,
        handlelength=3.2,
    )
