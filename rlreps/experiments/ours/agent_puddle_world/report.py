"""Figures, claims and report of the experiment on agents in PuddleWorld."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rlreps.agents.measures import default_ground_truth
from rlreps.experiments.ours.agent_arms import Comparison
from rlreps.experiments.ours.agent_arms_findings import improvement_claims
from rlreps.experiments.ours.agent_arms_maps import (
    Maps,
    best_arm,
    map_figures,
    shown_arms,
    write_maps,
)
from rlreps.experiments.ours.agent_arms_report import (
    comparison_sections,
    interquartile,
    summary_of,
)
from rlreps.experiments.ours.agent_arms_results import write_comparisons
from rlreps.experiments.ours.agent_puddle_world.config import AgentPuddleWorldConfig
from rlreps.experiments.ours.agent_puddle_world.reasons import (
    TorsoChange,
    reasons_section,
    torso_changes,
)
from rlreps.experiments.results import Claim, claims_table
from rlreps.report.page import Section, write_report
from rlreps.runs.folder import RunFolder


def write_puddle_world_report(
    config: AgentPuddleWorldConfig, folder: RunFolder, comparison: Comparison
) -> dict[str, Any]:
    """Writes figures, results and report; returns the summary."""
    write_comparisons(folder, [comparison])
    truth = default_ground_truth(config.base)
    maps = write_maps(folder, shown_arms(comparison), truth, config.components)
    claims = improvement_claims(comparison, subject="auxiliary objective")
    summary = {
        "comparisons": [summary_of(comparison)],
        "torsos": [_as_json(change) for change in torso_changes(comparison)],
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="Agents in PuddleWorld with auxiliary tasks",
        summary=_abstract(config, comparison),
        sections=[
            _claims_section(config, claims),
            *comparison_sections(folder, [comparison]),
            reasons_section(comparison),
            _maps_section(folder, comparison, maps),
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _as_json(change: TorsoChange) -> dict[str, Any]:
    parts = change._asdict()
    return {"arm": parts.pop("label")} | {name: part._asdict() for name, part in parts.items()}


def _claims_section(config: AgentPuddleWorldConfig, claims: list[Claim]) -> Section:
    dqn = config.base.dqn
    double = "double " if dqn.double else ""
    objectives = ", ".join(label for label in list(config.arms())[1:])
    return Section(
        title="Goals",
        text=f"A {double}deep Q-network shares its torso with an auxiliary task: {objectives}, or "
        "none. An episode starts anywhere, costs 1 a step and up to 400 times the depth in a "
        "puddle (Sutton 1996), and ends in the corner x + y ≥ 1.9 or after "
        f"{config.base.max_episode_steps} steps. Everything but the auxiliary task is the same. "
        f"Fewer than ten agents an arm give no verdict; here there are {config.base.num_seeds}.",
        tables=[claims_table(claims, stated="our goal")],
    )


def _maps_section(folder: RunFolder, comparison: Comparison, maps: Sequence[Maps]) -> Section:
    best = best_arm(comparison.runs).label
    return Section(
        title="What agents have learned",
        text="The first agent without an auxiliary task, and that of the best auxiliary objective. "
        f"The best arm of all in mean return over training is: {best}.",
        figures=map_figures(folder, maps),
    )


def _abstract(config: AgentPuddleWorldConfig, comparison: Comparison) -> str:
    best, none = best_arm(comparison.others), comparison.baseline
    return (
        f"{config.base.num_seeds} agents an arm, {config.base.steps:,} environment steps each. "
        f"Mean return over training (interquartile mean over agents with its 95 % interval): "
        f"{interquartile(none.mean_returns)} with {none.label}, {interquartile(best.mean_returns)} "
        f"with the best auxiliary objective, {best.label}."
    )
