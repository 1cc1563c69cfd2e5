"""The figure of the experiment on workers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.amid_warmuth_2020.distributed_pca.findings import RuleResult
from rlreps.experiments.amid_warmuth_2020.pca_losses import excess_percent
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.plotting import Line, Look, Panel, plot_panels

_COMBINED, _WORKERS, _SINGLE = "combined", "each worker", "one model of all rows"
_LOOKS = {
    _COMBINED: Look(linewidth=2.4),
    _WORKERS: Look(linewidth=0.6, alpha=0.35, marked=False),
    _SINGLE: Look(linestyle=":", linewidth=1.2, marked=False),
}


def draw_workers(
    config: DistributedPcaConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> Figure:
    """Excess loss of the first repeat against the rows that each worker has seen.

    A worker's line leads from the model that all went on from to its own before the next
    combination.
    """
    panels: dict[str, list[Line]] = {f"k = {k}": [] for k in config.components}
    for result in results:
        combined, workers, single = (
            excess_percent(losses[:, 0], problem, result.k)
            for losses in (result.combined, result.workers, result.single)
        )
        seen, shown = result.rows_seen, slice(first_shown(result), None)
        x, sawteeth = _sawteeth(seen[shown], combined[shown], workers[shown])
        for variant, steps, values in (
            (_WORKERS, x, sawteeth),
            (_SINGLE, seen[shown], single[shown]),
            (_COMBINED, seen[shown], combined[shown]),
        ):
            panels[f"k = {result.k}"].append(
                Line(label=result.title, variant=variant, x=steps, mean=values)
            )
    return plot_panels(
        [Panel(title=title, lines=lines) for title, lines in panels.items()],
        looks=_LOOKS,
        x_label="samples per worker",
        y_label="excess over the exact loss (%)",
        note=f"run 1 of {config.repeats}; {config.workers} workers",
    )


def first_shown(result: RuleResult) -> int:
    """The first point drawn: the start only where all that follows is a single combination.

    What all rules start from is two decades above what tells them apart.
    """
    return 1 if len(result.rows_seen) > 2 else 0


def _sawteeth(
    seen: npt.NDArray[np.int64],
    combined: npt.NDArray[np.float64],
    workers: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Workers' lines between combinations, with gaps between one and the next.

    Args:
        seen: Rows at each combination, [p].
        combined: Of the combined model, [p].
        workers: Of the workers just before it, [p, workers].

    Returns:
        x [3p - 3] and heights [workers, 3p - 3], NaN in every third place.
    """
    gap = np.full(len(seen) - 1, np.nan)
    x = np.stack([seen[:-1], seen[1:], seen[1:]], axis=1).astype(np.float64).ravel()
    heights = [np.stack([combined[:-1], own[1:], gap], axis=1).ravel() for own in workers.T]
    return x, np.asarray(heights)
