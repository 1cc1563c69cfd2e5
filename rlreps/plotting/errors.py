"""The error of a ground truth itself, against the number of components."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from rlreps.errors import InputError
from rlreps.plotting.seeds import legend_below, set_limits
from rlreps.plotting.style import series_style, styled

DISTANCE_FROM_TRUTH = "subspace distance from the truth"
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@styled
def plot_subspace_error(
    errors: Mapping[str, npt.ArrayLike], *, y_label: str = DISTANCE_FROM_TRUTH
) -> Figure:
    """Subspace distances that stand for an error, one line each, over d = 1 … k, both logarithmic.

    Args:
        errors: Label → distances [k] for d = 1 … k. Zeros are not drawn.
        y_label: Text of the vertical axis.

    Raises:
        InputError: Nothing to draw, or distances that are not finite, not in [0, 1] or not [k].
    """
    if not errors:
        raise InputError("expected at least one error to draw, got none")
    figure = Figure(figsize=(6.4, 4.0))
    axes = figure.add_subplot()
    axes.grid(visible=True)
    heights, longest = [], 1
    for index, (label, values) in enumerate(errors.items()):
        distances = _checked(label, np.asarray(values, dtype=np.float64))
        drawn = np.where(distances > 0, distances, np.nan)
        look = series_style(index)
        axes.plot(
            np.arange(1, len(distances) + 1),
            drawn,
            label=label,
            color=look["color"],
            linestyle=look["linestyle"],
            marker=look["marker"] if len(distances) <= 40 else None,
            markersize=3.5,
        )
        heights.append(drawn)
        longest = max(longest, len(distances))
    everything = np.concatenate(heights)
    if np.isfinite(everything).any():
        set_limits(axes, everything, everything, log_y=True)
    axes.set_xscale("log")
    axes.set_xlim(0.9, longest * 1.1)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= longest]))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="number of components d", ylabel=y_label)
    legend_below(figure, axes, has_intervals=False, logarithmic=True)
    return figure


def _checked(label: str, distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if distances.ndim != 1 or distances.size == 0:
        raise InputError(f"expected distances [k] for {label!r}, got shape {distances.shape}")
    if not (np.isfinite(distances) & (distances >= 0) & (distances <= 1)).all():
        raise InputError(f"expected distances in [0, 1] for {label!r}, got others")
    return distances
