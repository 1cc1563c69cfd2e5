"""Learning curves: the mean over seeds with its confidence band."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from rlreps.errors import InputError
from rlreps.plotting.seeds import (
    NOISE_FLOOR,
    legend_below,
    mean_and_interval,
    seed_count,
    set_limits,
)
from rlreps.plotting.style import FloatArray, series_style, styled


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One method's curve.

    Attributes:
        label: The method's name, as the legend shows it.
        steps: Where it was measured [p], increasing.
        values: What was measured [seeds, p]; NaN where a seed has no value. One seed may be [p].

    Raises:
        InputError: The shapes do not fit together.
    """

    label: str
    steps: npt.ArrayLike
    values: npt.ArrayLike

    def __post_init__(self) -> None:
        steps, values = np.asarray(self.steps), np.asarray(self.values)
        if steps.ndim != 1 or steps.size == 0:
            raise InputError(f"expected steps [p] with p >= 1, got shape {steps.shape}")
        if values.ndim not in (1, 2) or values.shape[-1] != steps.size or values.size == 0:
            raise InputError(
                f"expected values [seeds, {steps.size}] for curve {self.label!r}, "
                f"got shape {values.shape}"
            )


@styled
def plot_curves(
    curves: Iterable[Curve],
    *,
    x_label: str,
    y_label: str,
    log_y: bool = True,
    noise_floor: float | None = None,
    title: str | None = None,
) -> Figure:
    """Mean over seeds of each curve, with a 95 % confidence band where there are two seeds or more.

    The legend states each curve's number of seeds. On a logarithmic axis means and bands are those
    of the logarithms, and values that are not positive count as missing.

    Args:
        curves: The curves, at least one.
        x_label: Text of the horizontal axis, with its unit.
        y_label: Text of the vertical axis, with its unit.
        log_y: Whether the vertical axis is logarithmic.
        noise_floor: Error of the ground truth itself, drawn as a dashed line: below it no method
            can be told from a perfect one.
        title: Text above the axes.

    Raises:
        InputError: No curve, or a noise floor that is not positive on a logarithmic axis.
    """
    chosen = tuple(curves)
    if not chosen:
        raise InputError("expected at least one curve, got none")
    if noise_floor is not None and log_y and not noise_floor > 0:
        raise InputError(f"expected a noise floor above 0 on a logarithmic axis, got {noise_floor}")
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.add_subplot()
    axes.grid(visible=True)
    drawn = [_draw_curve(axes, curve, index, log_y) for index, curve in enumerate(chosen)]
    means = np.concatenate([mean for mean, _ in drawn])
    ends = np.concatenate([part for _, part in drawn])
    if noise_floor is not None:
        means = np.append(means, noise_floor)
        axes.axhline(noise_floor, **NOISE_FLOOR)
    set_limits(axes, means, ends, log_y=log_y)
    _count_steps(axes, chosen)
    axes.set(xlabel=x_label, ylabel=y_label)
    if title is not None:
        axes.set_title(title)
    legend_below(figure, axes, has_intervals=bool(np.isfinite(ends).any()), logarithmic=log_y)
    return figure


def _draw_curve(axes: Axes, curve: Curve, index: int, log_y: bool) -> tuple[FloatArray, FloatArray]:
    """Draws one curve; returns its means [p] and the ends of its intervals [2 p]."""
    steps = np.asarray(curve.steps, dtype=np.float64)
    mean, lower, upper = mean_and_interval(curve.values, logarithmic=log_y)
    look = series_style(index)
    if np.isfinite(upper).any():
        axes.fill_between(steps, lower, upper, color=look["color"], alpha=0.2, linewidth=0)
    axes.plot(
        steps,
        mean,
        label=f"{curve.label} ({seed_count(curve.values)})",
        markevery=_marker_places(steps.size, index),
        markeredgecolor="white",
        markeredgewidth=0.6,
        **look,
    )
    return mean, np.concatenate([lower, upper])


def _marker_places(points: int, index: int) -> list[int]:
    """At most about ten markers, staggered so that curves close together keep theirs apart."""
    stride = max(1, points // 10)
    return list(range((index * stride // 3) % stride, points, stride))


def _count_steps(axes: Axes, curves: tuple[Curve, ...]) -> None:
    """Whole-number ticks with thousands separators, where the steps are whole numbers."""
    if all(np.issubdtype(np.asarray(curve.steps).dtype, np.integer) for curve in curves):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
