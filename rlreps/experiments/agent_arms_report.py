"""What every experiment on arms leaves behind: results, figures, tables and sections."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.agent_arms import ArmRuns, Comparison, in_path
from rlreps.experiments.agent_arms_figures import (
    MEASURE_NAMES,
    draw_improvements,
    draw_measure,
    draw_returns,
    improvements,
    interquartile_curve,
    measured,
)
from rlreps.experiments.agent_arms_findings import (
    Advantage,
    advantages,
    corrected_confidence,
    signed,
)
from rlreps.experiments.results import write_results
from rlreps.formatting import format_number
from rlreps.improvement import Estimate
from rlreps.report import Section, Table
from rlreps.run_folder import RunFolder
from rlreps.statistics import aggregate

INTERVALS = (
    "Agents differ in their seeds alone, and seeds mean nothing across arms. Returns are "
    "undiscounted, of greedy episodes apart from training. The mean return over training is that "
    "of all evaluations but the first, the area under the learning curve divided by its length. "
    "Intervals are percentile bootstraps over agents, resampled arm by arm (Agarwal et al. 2021); "
    "of ten agents they are somewhat too narrow. A return counts as reached at the second "
    "evaluation at or above it of any three in a row, and an agent that never gets there counts "
    "with the length of training."
)
"""How numbers are to be read."""


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


def _estimate_cells(estimate: Estimate, prefix: str = "") -> dict[str, float]:
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


def comparison_sections(folder: RunFolder, comparisons: Sequence[Comparison]) -> list[Section]:
    """Sections on returns, on what arms have over the first, and on the torsos."""
    returns = Section(
        title="Returns",
        text=INTERVALS,
        tables=[_returns_table(each) for each in comparisons],
        figures=[
            (
                folder.figures / f"{returns_figure(each, comparisons)}.png",
                f"Returns in {each.environment}: interquartile mean over agents with its 95 % "
                "bootstrap interval, and the return whose samples are counted (dotted).",
            )
            for each in comparisons
        ],
    )
    baseline = comparisons[0].baseline.label
    against = Section(
        title=f"Against {baseline}",
        tables=[_differences_table(each) for each in comparisons],
        figures=[
            (
                folder.figures / "improvement.png",
                "Probability that an agent of an arm has a greater mean return over training than "
                f"one of {baseline}. Filled: the interval leaves out 1/2. Where all agents of "
                "one arm are above all of the other, the interval has no width: a limit of the "
                "bootstrap and no certainty.",
            )
        ],
    )
    return [returns, against, _torso_section(folder, comparisons)]


def _returns_table(comparison: Comparison) -> Table:
    threshold = comparison.threshold_text
    rows = []
    for run in comparison.runs:
        samples = run.samples(comparison.threshold)
        capped = np.minimum(samples, run.config.steps)
        rows.append(
            (
                run.label,
                len(run.returns),
                interquartile(run.mean_returns),
                interquartile(run.final_returns),
                f"{int(np.isfinite(samples).sum())} of {len(samples)}",
                interquartile(capped),
                run.seconds,
            )
        )
    header = (
        *("", "agents", "mean over training", "last evaluation"),
        *(f"reached {threshold}", f"steps to {threshold}", "training s"),
    )
    return Table(
        header,
        rows,
        f"{comparison.environment}: interquartile mean over agents with its 95 % bootstrap "
        "interval. Training time is that of all agents together, with compilation and without "
        "evaluation.",
    )


def _differences_table(comparison: Comparison) -> Table:
    confidence = corrected_confidence(comparison)
    corrected = advantages(comparison, confidence=confidence)
    rows = [
        (
            each.label,
            probability_text(each.probability),
            *_both(each),
            *_both(strict),
        )
        for each, strict in zip(advantages(comparison), corrected, strict=True)
    ]
    share = f"{100 * confidence:.2f} %"
    header = (
        *("", "probability of improvement", "mean return, 95 %", "steps, 95 %"),
        *(f"mean return, {share}", f"steps, {share}"),
    )
    return Table(
        header,
        rows,
        f"{comparison.environment}, against {comparison.baseline.label}: differences of "
        "interquartile means of the mean return over training, and of environment steps to a "
        f"return of {comparison.threshold_text} (negative: fewer). Intervals at 95 % are "
        f"not corrected for how many are looked at; those at {share} are (Bonferroni, "
        f"{2 * len(comparison.others)} comparisons).",
    )


def _both(each: Advantage) -> tuple[str, str]:
    return signed(each.mean_return), signed(each.samples)


def _torso_section(folder: RunFolder, comparisons: Sequence[Comparison]) -> Section:
    names = measured(comparisons)
    tables = [
        Table(
            ("", *(MEASURE_NAMES[name] for name in names)),
            [
                (run.label, *(_last(run.measures.get(name)) for name in names))
                for run in comparison.runs
            ],
            f"{comparison.environment}: torsos after training, interquartile mean over agents with "
            "its 95 % bootstrap interval.",
        )
        for comparison in comparisons
    ]
    return Section(
        title="Torsos while agents learn",
        text=_torso_text(names),
        tables=tables,
        figures=[
            (folder.figures / f"{name}.png", f"{MEASURE_NAMES[name].capitalize()}, over training.")
            for name in names
        ],
    )


def _torso_text(names: Sequence[str]) -> str:
    """What the measures are."""
    explained = {
        "subspace_distance": "The subspace distance is the share of the successor measure's "
        "leading components, under a uniformly random policy, that the features cannot express.",
        "effective_rank": "The effective rank is the exponential of the entropy of the features' "
        "singular values (Roy & Vetterli 2007).",
        "dormant_share": "A unit is dormant whose mean activation is at most 0.025 of its layer's "
        "(Sokar et al. 2023).",
        "probe_error": "The value probe fits values of held-out policies and rewards linearly to "
        "the features of half of its states, and tells what is left of their variance at the "
        "others.",
    }
    return " ".join(explained[name] for name in names)


def _last(values: npt.NDArray[np.float64] | None) -> str | None:
    known = None if values is None else values[:, -1]
    return None if known is None or not np.isfinite(known).all() else interquartile(known)


def interquartile(values: npt.ArrayLike) -> str:
    """An interquartile mean [runs] with its 95 % interval, as text."""
    found = aggregate(values)
    names = ("interquartile_mean", "interquartile_mean_low", "interquartile_mean_high")
    mean, low, high = (format_number(found[name]) for name in names)
    return mean if np.isnan(found["interquartile_mean_low"]) else f"{mean} [{low}, {high}]"


def probability_text(estimate: Estimate) -> str:
    """A probability with its interval, as text."""
    if np.isnan(estimate.low):
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def summary_of(comparison: Comparison) -> dict[str, Any]:
    """An environment's part of a summary, as JSON values."""
    found = {each.label: each for each in advantages(comparison)}
    return {
        "environment": comparison.environment,
        "threshold": comparison.threshold,
        "arms": [
            {
                "arm": run.label,
                "agents": len(run.returns),
                "seconds": round(run.seconds, 3),
                "mean_return": aggregate(run.mean_returns),
                "final_return": aggregate(run.final_returns),
                "final_returns": run.final_returns.tolist(),
                "samples": run.samples(comparison.threshold).tolist(),
                "against_first": _advantage_summary(found.get(run.label)),
            }
            for run in comparison.runs
        ],
    }


def _advantage_summary(each: Advantage | None) -> Mapping[str, Any] | None:
    if each is None:
        return None
    return {
        name: getattr(each, name)._asdict() for name in ("probability", "mean_return", "samples")
    }
