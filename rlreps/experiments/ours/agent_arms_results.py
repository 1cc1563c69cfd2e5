"""The numbers and figures that every experiment on arms leaves behind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison, in_path
from rlreps.experiments.ours.agent_arms_figures import (
    draw_improvements,
    draw_measure,
    draw_returns,
    improvements,
    interquartile_curve,
    measured,
)
from rlreps.experiments.ours.agent_arms_findings import advantages, corrected_confidence
from rlreps.experiments.results import write_results
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import Interval


def write_comparisons(folder: RunFolder, comparisons: Sequence[Comparison]) -> None:
    """Writes results and figures of all arms."""
    for comparison in comparisons:
        name = returns_figure(comparison, comparisons)
        rows = [row for run in comparison.runs for row in _curve_rows(run, run.returns, "return")]
        write_results(folder, name, rows, draw_returns(comparison))
    found = improvements(comparisons)
    rows = [{"arm": label, **_estimate_cells(each)} for label, each in found.items()]
    write_results(folder, "improvement", rows, draw_improvements(comparisons, found))
    for name in measured(comparisons):
        rows = [
            {"environment": comparison.environment, **row}
            for comparison in comparisons
            for run in comparison.runs
            if name in run.measures
            for row in _curve_rows(run, run.measures[name], name)
        ]
        write_results(folder, name, rows, draw_measure(comparisons, name))
    write_results(folder, "agents", [row for each in comparisons for row in _agent_rows(each)])
    write_results(
        folder, "differences", [row for each in comparisons for row in _difference_rows(each)]
    )


def returns_figure(comparison: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Name of the figure of an environment's returns."""
    only = len(comparisons) == 1
    return "returns" if only else f"returns_{in_path(comparison.environment)}"


def _curve_rows(run: ArmRuns, values: npt.NDArray[np.float64], name: str) -> list[dict[str, Any]]:
    """A row for each evaluation: interquartile mean, its interval, and each agent's value."""
    curves = zip(run.steps, *interquartile_curve(values), values.T, strict=True)
    first = run.config.seed
    return [
        {
            "arm": run.label,
            "step": int(step),
            name: mean,
            "low": low,
            "high": high,
            **{f"seed_{first + index}": value for index, value in enumerate(each)},
        }
        for step, mean, low, high, each in curves
    ]


def _estimate_cells(estimate: Interval, prefix: str = "") -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in estimate._asdict().items()}


def _agent_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row for each agent."""
    return [
        {
            "environment": comparison.environment,
            "arm": run.label,
            "seed": run.config.seed + index,
            "final_return": run.final_returns[index],
            "best_return": run.returns[index].max(),
            "mean_return": run.mean_returns[index],
            "samples": run.samples(comparison.threshold)[index],
            **{name: values[index, -1] for name, values in run.measures.items()},
        }
        for run in comparison.runs
        for index in range(len(run.returns))
    ]


def _difference_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row for each arm but the first, and each confidence."""
    rows = []
    for name, confidence in (("95 %", None), ("corrected", corrected_confidence(comparison))):
        options = {} if confidence is None else {"confidence": confidence}
        rows += [
            {
                "environment": comparison.environment,
                "arm": each.label,
                "against": comparison.baseline.label,
                "interval": name,
                **_estimate_cells(each.probability, "probability_"),
                **_estimate_cells(each.mean_return, "mean_return_"),
                **_estimate_cells(each.samples, "samples_"),
            }
            for each in advantages(comparison, **options)
        ]
    return rows
