"""What every report of an experiment on arms holds: tables and sections, and the summary."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.ours.agent_arms import Comparison
from rlreps.experiments.ours.agent_arms_figures import MEASURE_NAMES, measured
from rlreps.experiments.ours.agent_arms_findings import (
    Advantage,
    advantages,
    corrected_confidence,
    num_comparisons,
    signed,
)
from rlreps.experiments.ours.agent_arms_results import returns_figure
from rlreps.report.page import Section, Table
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import Interval, aggregate

INTERVALS = (
    "Agents of an arm differ in their seeds alone. Arms share seeds, and with them starts and "
    "fresh networks; intervals take them for independent. Returns are undiscounted, of greedy "
    "episodes apart from training. The mean return over training is that of all evaluations after "
    "the first update, the area under the learning curve divided by its length. "
    "Intervals are percentile bootstraps over agents, resampled arm by arm (Agarwal et al. 2021); "
    "of ten agents they are somewhat too narrow. A return counts as reached at the second "
    "evaluation at or above it of any three in a row, and an agent that never gets there counts "
    "with the length of training."
)
"""How numbers are to be read."""


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
                "bootstrap interval, and the return whose samples are counted (dotted). What "
                "untrained networks did worse lies below the axis.",
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
        f"{num_comparisons(comparison)} comparisons).",
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


def probability_text(estimate: Interval) -> str:
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
