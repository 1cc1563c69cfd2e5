"""Figures of the experiment on online principal components, each with the numbers behind it."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps import subspace
from rlreps.experiments.amid_warmuth_2020.online_pca.config import PAPER_RULES, OnlinePcaConfig
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.plotting import Line, Panel, plot_panels, plot_signed_images
from rlreps.runs.intervals import aggregate

Rows: TypeAlias = list[dict[str, object]]
Against: TypeAlias = Literal["rows_seen", "seconds"]

_POINTS = 25
"""Most points of a drawn curve, evenly spaced on a logarithmic axis as far as there are any."""

_X_LABELS: dict[Against, str] = {
    "rows_seen": "rows seen",
    "seconds": "seconds in updates",
}


def figure_groups(curves: Sequence[ExcessCurve]) -> dict[str, list[ExcessCurve]]:
    """The curves of each figure by the beginning of its name, no more than can be told apart.

    ``excess`` has the rules that see one row an update, as the paper's figures have; ``batches``
    the others, beside implicit Krasulina on single rows.
    """
    singles = [each for each in curves if each.contender.rows_per_update == 1]
    batches = [each for each in curves if each.contender.rows_per_update > 1]
    reference = [each for each in singles if each.contender.rule == PAPER_RULES[0]]
    groups = {"excess": singles, "batches": [*reference, *batches] if batches else []}
    return {name: group for name, group in groups.items() if group}


def draw_excess(
    config: OnlinePcaConfig, curves: Sequence[ExcessCurve], against: Against
) -> tuple[Rows, Figure]:
    """Percent excess loss of contenders, a panel for each k, on logarithmic axes.

    Args:
        config: The experiment.
        curves: Of each contender for every k.
        against: Rows seen, or the mean over repeats of the seconds spent in updates.

    Returns:
        What is drawn, and the figure.
    """
    rows: Rows = []
    panels = []
    for k in config.components:
        lines = []
        for curve in (each for each in curves if each.k == k):
            points = _points(curve, against)
            rows += [
                {"rule": curve.contender.name, "k": k, **dict(zip(points, values, strict=True))}
                for values in zip(*points.values(), strict=True)
            ]
            lines.append(
                Line(
                    label=curve.label,
                    x=points[against],
                    mean=points["excess_percent"],
                    low=points["excess_percent_low"],
                    high=points["excess_percent_high"],
                )
            )
        panels.append(Panel(title=f"k = {k}", lines=lines))
    return rows, plot_panels(
        panels,
        x_label=_X_LABELS[against],
        y_label="excess loss over the exact components (%)",
        log_x=True,
        note=note(curves),
    )


def note(curves: Sequence[ExcessCurve]) -> str:
    """What lines and bands are, and what stands in brackets."""
    repeats = len(curves[0].losses)
    text = "one run" if repeats == 1 else f"mean over {repeats} runs, 95 % bootstrap interval"
    if any(curve.contender.rows_per_update > 1 for curve in curves):
        text += "; in brackets: rows of an update, where more than one"
    return text


def _points(curve: ExcessCurve, against: Against) -> dict[str, npt.NDArray[Any]]:
    """Columns of a drawn curve; the start is left out, where no row and no time is behind."""
    last = len(curve.rows_seen) - 1
    chosen = np.arange(1, last + 1)
    if last > _POINTS:
        chosen = np.unique(np.geomspace(1, last, _POINTS).round().astype(int))
    bands = aggregate(curve.excess[:, chosen])
    x = curve.rows_seen if against == "rows_seen" else curve.seconds.mean(axis=0)
    return {
        against: x[chosen],
        "excess_percent": bands["mean"],
        "excess_percent_low": bands["mean_low"],
        "excess_percent_high": bands["mean_high"],
    }


def draw_components(
    config: OnlinePcaConfig, problem: PcaProblem, curves: Sequence[ExcessCurve]
) -> tuple[Rows, Figure] | None:
    """Exact components above learned ones, which are rotated in their span onto them.

    Args:
        config: The experiment.
        problem: The rows; of images with channels, the mean over channels is drawn.
        curves: For every contender and k.

    Returns:
        |cosines| and the figure; None where rows are not images or nothing is to be shown.
    """
    shown = [curve for curve in curves if curve.components is not None]
    shape = problem.image_shape
    if shape is None or len(shape) not in (2, 3) or not shown:
        return None
    exact = problem.basis[:, : config.shown_components]
    pictures, cosines = {"exact": exact}, {}
    rows: Rows = []
    for curve in shown:
        components = np.nan_to_num(np.asarray(curve.components, np.float32))
        aligned = np.asarray(subspace.align(components, exact.astype(np.float32)), np.float64)
        pictures[curve.label] = aligned
        cosines[curve.label] = np.abs(np.sum(aligned * exact, axis=0))
        rows += [
            {"rule": curve.contender.name, "component": index + 1, "cosine": float(cosine)}
            for index, cosine in enumerate(cosines[curve.label])
        ]
    images = {label: _as_images(basis, shape) for label, basis in pictures.items()}
    titles = [str(number) for number in range(1, config.shown_components + 1)]
    return rows, plot_signed_images(images, titles=titles, cosines=cosines)


def _as_images(basis: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    images = basis.T.reshape(-1, *shape)
    return images if len(shape) == 2 else images.mean(axis=-1)
