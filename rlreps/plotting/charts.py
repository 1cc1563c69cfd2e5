"""The charts of this toolkit, made of arrays and rows and drawn by ``plot_panels``."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlreps.errors import require
from rlreps.plotting.lines import REFERENCE, Line, Panel, have_intervals, joined, plot_panels
from rlreps.plotting.style import OKABE_ITO, plain_log_ticks, series_style, styled
from rlreps.typing import ArrayLike

DISTANCE_FROM_TRUTH = "subspace distance from the truth"


def plot_curves(
    curves: Iterable[Line],
    *,
    x_label: str,
    y_label: str,
    noise_floor: float | None = None,
    **options: Any,
) -> Figure:
    """Draw curves in one panel, by default with a logarithmic vertical axis.

    Args:
        curves: The curves, at least one, as from ``Line.of_runs``.
        x_label: Text of the horizontal axis, with its unit.
        y_label: Text of the vertical axis, with its unit.
        noise_floor: Error of the ground truth itself, drawn as a dashed line. Below it, a method
            cannot be distinguished from a perfect one.
        **options: Further arguments of ``plot_panels``.
    """
    lines, floor = list(curves), None
    if noise_floor is not None:
        ends = joined(line.x for line in lines)
        floor = ([ends.min(), ends.max()], [noise_floor, noise_floor])
    kinds = ["95 % interval"] * have_intervals(lines)
    kinds += ["thin: each of them"] * any(line.runs is not None for line in lines)
    return plot_panels(
        [Panel(title="", lines=lines, noise_floor=floor)],
        x_label=x_label,
        y_label=y_label,
        note=f"mean over seeds, {' or '.join(kinds)}" if kinds else None,
        **options,
    )


def plot_subspace_error(
    errors: Mapping[str, ArrayLike], *, y_label: str = DISTANCE_FROM_TRUTH
) -> Figure:
    """Draw subspace distances that represent an error over d = 1 … k, both axes logarithmic.

    Args:
        errors: Label → distances [k] for d = 1 … k. Zeros are not drawn.
        y_label: Text of the vertical axis.
    """
    lines = [
        Line(label=label, x=np.arange(1, np.size(distances) + 1), mean=distances)
        for label, distances in errors.items()
    ]
    return plot_curves(lines, x_label="number of components d", y_label=y_label, log_x=True)


@styled
def plot_fit(
    predicted: ArrayLike,
    realised: ArrayLike,
    effective_rows: ArrayLike,
    *,
    fewest: float,
) -> Figure:
    """Draw a fit's predicted against realised sums, and the effective rows of its components.

    Args:
        predicted: Predicted sums, standardised, [n]; an empty array leaves the panel empty.
        realised: Realised sums, standardised in the same way, [n].
        effective_rows: Effective number of rows of each component, [d]; zeros are not drawn.
        fewest: Number of effective rows below which a component has too few.
    """
    points = np.asarray([predicted, realised], np.float64)
    rows = np.asarray(effective_rows, np.float64)
    figure = Figure(figsize=(7.2, 3.2))
    left, right = figure.subplots(1, 2)
    reach = 1.05 * max(1.0, float(np.abs(points).max(initial=0.0)))
    left.plot([-reach, reach], [-reach, reach], linestyle=":", label="exact", **REFERENCE)
    left.plot(*points, "o", color=OKABE_ITO[0], markersize=2.5, alpha=0.5, markeredgewidth=0.0)
    left.set(
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        xlabel="predicted sum (standard deviations)",
        ylabel="realised sum",
    )
    if points.size == 0:
        left.text(0.0, 0.0, "no sum is complete", ha="center", va="center")
    heights = np.where(rows > 0.0, rows, np.nan)
    right.axhline(fewest, linestyle=":", label=f"{fewest:g} rows", **REFERENCE)
    marker = "o" if rows.size <= 40 else None
    right.plot(1 + np.arange(rows.size), heights, OKABE_ITO[0], marker=marker, markersize=3.0)
    right.set(yscale="log", xlabel="component i", ylabel="effective rows")
    right.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    right.set_xlim(0, rows.size + 1)
    plain_log_ticks(right.yaxis)
    for axes in (left, right):
        axes.grid(visible=True)
        axes.legend(loc="best", handlelength=1.5)
    return figure


@styled
def plot_spectrum(singular_values: ArrayLike, total_energy: float) -> Figure:
    """Draw singular values (logarithmic) and the energy of the leading ones, in percent.

    The legend states the energy of the leading 10, 50 and 100, as far as they are given.

    Args:
        singular_values: The leading singular values [r], largest first. Zeros are not drawn.
        total_energy: Squared Frobenius norm of the whole matrix: the sum of all squared singular
            values, including those not given.

    Raises:
        InputError: If all singular values are zero.
    """
    values = np.asarray(singular_values, np.float64)
    require(bool((values > 0.0).any()), "a singular value above zero", values)
    # Single-precision sums of 10^8 entries may slightly exceed the whole.
    captured = np.minimum(100.0 * np.cumsum(values**2) / float(total_energy), 100.0)
    figure = Figure(figsize=(7.2, 3.2))
    left, right = figure.subplots(1, 2)
    drawn = [mark for mark in (10, 50, 100) if mark <= values.size]
    for axes, heights in ((left, np.where(values > 0, values, np.nan)), (right, captured)):
        marker = "o" if values.size <= 40 else None
        axes.plot(1 + np.arange(values.size), heights, OKABE_ITO[0], marker=marker, markersize=3.0)
        axes.grid(visible=True)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set_xlim(0, values.size + 1)
        for number, mark in enumerate(drawn, start=1):
            axes.axvline(mark, linewidth=0.8, linestyle=(0, (3, 3)), **REFERENCE)
            point = {**series_style(number), "linestyle": "none", "markersize": 6.0}
            label = f"d = {mark}: {captured[mark - 1]:.1f} %" if axes is right else None
            axes.plot(mark, heights[mark - 1], markeredgecolor="white", label=label, **point)
    left.set(yscale="log", xlabel="component i", ylabel="singular value")
    plain_log_ticks(left.yaxis)
    right.set(xlabel="leading components d", ylabel="energy captured (% of total)", ylim=(0, 103))
    right.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=""))
    if drawn:
        right.legend(loc="best", handlelength=1.0, frameon=True, framealpha=1.0, edgecolor="white")
    return figure
