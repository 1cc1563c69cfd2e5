"""Claims and report of the experiment on pre-trained torsos."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison
from rlreps.experiments.ours.agent_arms_findings import (
    advantage,
    enough_seeds,
    improvement_claims,
    signed,
)
from rlreps.experiments.ours.agent_arms_maps import map_figures, write_maps
from rlreps.experiments.ours.agent_arms_report import (
    comparison_sections,
    interquartile,
    summary_of,
)
from rlreps.experiments.ours.agent_arms_results import write_comparisons
from rlreps.experiments.ours.representation_transfer.config import (
    FINE_TUNED,
    FROZEN,
    RANDOM,
    SCRATCH,
    RepresentationTransferConfig,
)
from rlreps.experiments.results import Claim, claims_table
from rlreps.report.method_names import method_name
from rlreps.report.page import Section, write_report
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder
from rlreps.successor.ground_truth import GroundTruth


def write_transfer_report(
    config: RepresentationTransferConfig,
    folder: RunFolder,
    truth: GroundTruth,
    trained: Mapping[str, Any],
    comparison: Comparison,
) -> dict[str, Any]:
    """Writes figures, results and report; returns the summary.

    Args:
        config: The experiment.
        folder: Its folder.
        truth: The successor measure.
        trained: Summary of the pre-training.
        comparison: The arms.
    """
    write_comparisons(folder, [comparison])
    runs = {run.label: run for run in comparison.runs}
    shown = [runs[label] for label in (SCRATCH, FINE_TUNED, FROZEN)]
    maps = write_maps(folder, shown, truth, config.components)
    claims = transfer_claims(comparison)
    summary = {
        "pretraining": dict(trained),
        "comparisons": [summary_of(comparison)],
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="Agents whose torsos know the successor measure",
        summary=_abstract(config, runs),
        sections=[
            _claims_section(config, trained, claims),
            *comparison_sections(folder, [comparison]),
            Section(
                title="What agents have learned",
                text="The first agent that learned from scratch and those of the pre-trained "
                "torsos. Pre-training determines the features' span; principal components within "
                "it, in the order of variance, are left free.",
                figures=map_figures(folder, maps),
            ),
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def transfer_claims(comparison: Comparison) -> list[Claim]:
    """That pre-training helps against learning from scratch, and frozen against chance."""
    runs = {run.label: run for run in comparison.runs}
    return [
        *improvement_claims(
            comparison, subject="use of pre-trained torsos", labels=(FINE_TUNED, FROZEN)
        ),
        _frozen_claim(runs[FROZEN], runs[RANDOM], comparison),
    ]


def _frozen_claim(frozen: ArmRuns, random: ArmRuns, comparison: Comparison) -> Claim:
    found = advantage(frozen, random, comparison.threshold)
    known = enough_seeds([frozen, random])
    return Claim(
        statement=f"{comparison.environment}: frozen torsos beat random frozen ones in mean return "
        "over training if they are pre-trained",
        paper="a 95 % interval that excludes 0, not corrected",
        found=signed(found.mean_return),
        holds=found.better_return if known else None,
    )


def _claims_section(
    config: RepresentationTransferConfig, trained: Mapping[str, Any], claims: Sequence[Claim]
) -> Section:
    base, pretraining, successor = config.base, config.pretraining, config.successor
    return Section(
        title="Goals",
        text=f"{base.num_seeds} encoders with {base.num_features} features learn the successor "
        f"measure of the random policy on a grid of {successor.bins} x {successor.bins} cells "
        f"({method_name(pretraining.objective.name)}, {pretraining.steps:,} updates), to a mean "
        f"subspace distance of {format_number(trained['subspace_distance'])}. A linear map "
        "makes their features white over the grid, which changes no span. Each is the torso that "
        "one agent starts from, whose read-out of the values starts fresh: it is learned on "
        "(fine-tuned), or left as it is (frozen). Those that learn from scratch have fresh torsos "
        "of the same shape; of random, frozen ones, whitened too, only the read-out learns. "
        "Pre-training knows the dynamics and neither goal nor penalties, and took no step of the "
        "agents' own: counts of environment steps leave it out. Fewer than ten agents an arm give "
        "no verdict; "
        f"here there are {base.num_seeds}.",
        tables=[claims_table(claims, stated="our goal")],
    )


def _abstract(config: RepresentationTransferConfig, runs: Mapping[str, ArmRuns]) -> str:
    means = "; ".join(f"{label}: {interquartile(run.mean_returns)}" for label, run in runs.items())
    return (
        f"{config.base.num_seeds} agents an arm, {config.base.steps:,} environment steps each. "
        "Mean return over training (interquartile mean over agents with its 95 % interval): "
        f"{means}."
    )
