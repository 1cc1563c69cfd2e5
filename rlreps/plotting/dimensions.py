"""Subspace distance against the number of features."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from rlreps.errors import InputError
from rlreps.plotting.seeds import (
    NOISE_FLOOR,
    legend_below,
    mean_and_interval,
    seed_count,
    set_limits,
)
from rlreps.plotting.style import FloatArray, series_style, styled

_KEYS = ("method", "d", "subspace_distance")


@styled
def plot_distance_by_dimension(
    rows: Iterable[Mapping[str, object]], *, noise_floor: npt.ArrayLike | None = None
) -> Figure:
    """Subspace distance against the number of features, one line a method, error bars over seeds.

    Bars are 95 % confidence intervals of the mean, absent where there is one seed. The vertical
    axis is logarithmic, and means and bars are those of the logarithms, unless a distance is zero
    or less.

    Args:
        rows: One mapping a result with the keys `method` (str), `d` (int) and `subspace_distance`
            (a number, or one number a seed); rows of the same method and d are pooled as seeds.
            Values that are not finite are left out.
        noise_floor: Error of the ground truth itself for d = 1 … k, [k], drawn as a dashed line.

    Raises:
        InputError: No row, a row without one of the keys, or a d below 1.
    """
    tables = _tables_by_method(rows)
    dimensions = sorted({d for distances in tables.values() for d in distances})
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.add_subplot()
    axes.grid(visible=True)
    log_y = not any(value <= 0 for table in tables.values() for d in table.values() for value in d)
    drawn = [
        # A little to the side, so that the bars of two methods do not cover each other.
        _draw_method(
            axes, method, distances, index, 1.025 ** (index - (len(tables) - 1) / 2), log_y
        )
        for index, (method, distances) in enumerate(tables.items())
    ]
    means = np.concatenate([mean for mean, _ in drawn])
    ends = np.concatenate([part for _, part in drawn])
    if noise_floor is not None:
        floor = np.array(noise_floor, dtype=np.float64)[: dimensions[-1]]
        floor[: dimensions[0] - 1] = np.nan
        axes.plot(np.arange(1, len(floor) + 1), floor, **NOISE_FLOOR)
        means = np.concatenate([means, floor])
    set_limits(axes, means, ends, log_y=log_y)
    axes.set_xscale("log")
    axes.set_xlim(dimensions[0] / 1.25, dimensions[-1] * 1.25)
    axes.xaxis.set_major_locator(FixedLocator(dimensions))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="number of features d", ylabel="subspace distance (0 equal, 1 orthogonal)")
    legend_below(figure, axes, has_intervals=bool(np.isfinite(ends).any()), logarithmic=log_y)
    return figure


def _tables_by_method(
    rows: Iterable[Mapping[str, object]],
) -> dict[str, dict[int, list[float]]]:
    """Distances over seeds by method and, inside, by d, in the order in which methods come."""
    tables: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        missing = [key for key in _KEYS if key not in row]
        if missing:
            raise InputError(
                f"expected rows with {', '.join(_KEYS)}, got one without {missing[0]!r}"
            )
        dimension = int(np.asarray(row["d"]).item())
        if dimension < 1:
            raise InputError(f"expected d of at least 1, got {dimension}")
        distances = np.ravel(np.asarray(row["subspace_distance"], dtype=np.float64))
        table = tables.setdefault(str(row["method"]), {})
        table.setdefault(dimension, []).extend(distances.tolist())
    if not tables:
        raise InputError("expected at least one row, got none")
    return tables


def _draw_method(
    axes: Axes,
    method: str,
    distances: dict[int, list[float]],
    index: int,
    shift: float,
    log_y: bool,
) -> tuple[FloatArray, FloatArray]:
    """Draws one method; returns its means [p] and the ends of its intervals [2 p]."""
    dimensions = sorted(distances)
    values = np.full((max(map(len, distances.values())), len(dimensions)), np.nan)
    for column, dimension in enumerate(dimensions):
        values[: len(distances[dimension]), column] = distances[dimension]
    mean, lower, upper = mean_and_interval(values, logarithmic=log_y)
    look = series_style(index)
    axes.errorbar(
        np.array(dimensions) * shift,
        mean,
        yerr=np.nan_to_num([mean - lower, upper - mean]),
        label=f"{method} ({seed_count(values)})",
        capsize=3.0,
        elinewidth=1.2,
        **look,
    )
    return mean, np.concatenate([lower, upper])
