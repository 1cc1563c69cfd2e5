"""Figures, claims and report of the experiment on agents in PuddleWorld."""

import dataclasses
from typing import Any

import numpy as np

from rlreps.agents.loops import puddle_world_of
from rlreps.agents.measurement import default_ground_truth
from rlreps.experiments.agent_arms import Comparison
from rlreps.experiments.agent_arms_findings import improvement_claims
from rlreps.experiments.agent_arms_maps import (
    Maps,
    best_arm,
    read_maps,
    shown_arms,
    write_components,
    write_policy,
)
from rlreps.experiments.agent_arms_report import (
    comparison_sections,
    interquartile,
    summary_of,
    write_comparisons,
)
from rlreps.experiments.agent_puddle_world.config import AgentPuddleWorldConfig
from rlreps.experiments.results import Claim, claims_table
from rlreps.report import Section, write_report
from rlreps.run_folder import RunFolder

BASELINE, AUXILIARY = "without", "with"
"""Parts of the names of figures of agents without and with an auxiliary task."""


def write_puddle_world_report(
    config: AgentPuddleWorldConfig, folder: RunFolder, comparison: Comparison
) -> dict[str, Any]:
    """Writes figures, results and report; returns the summary."""
    write_comparisons(folder, [comparison])
    maps = _write_maps(config, folder, comparison)
    claims = improvement_claims(comparison, subject="auxiliary objective")
    summary = {
        "comparisons": [summary_of(comparison)],
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
            _maps_section(folder, comparison, maps),
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _write_maps(
    config: AgentPuddleWorldConfig, folder: RunFolder, comparison: Comparison
) -> list[Maps]:
    """Maps of the first agent without an auxiliary task, and of the best arm with one."""
    world, truth = puddle_world_of(config.base), default_ground_truth(config.base)
    assert world is not None
    every = [read_maps(run, truth, config.components) for run in shown_arms(comparison)]
    for name, maps in zip((BASELINE, AUXILIARY), every, strict=True):
        write_policy(folder, f"policy_{name}", world, maps)
        if truth is not None:
            basis = np.asarray(truth.principal.basis)
            write_components(folder, f"components_{name}", world, maps, basis)
    return every


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


def _maps_section(folder: RunFolder, comparison: Comparison, maps: list[Maps]) -> Section:
    figures = []
    for name, each in zip((BASELINE, AUXILIARY), maps, strict=True):
        figures.append(
            (
                folder.figures / f"policy_{name}.png",
                f"{each.label}, the first agent: value of its greedy action and that action.",
            )
        )
    for name, each in zip((BASELINE, AUXILIARY), maps, strict=True):
        if each.components is not None:
            figures.append(
                (
                    folder.figures / f"components_{name}.png",
                    f"{each.label}, the first agent: principal components of its torso's centred "
                    "features, below those of the successor measure of the same number.",
                )
            )
    best = best_arm(list(comparison.runs)).label
    return Section(
        title="What agents have learned",
        text="The first agent without an auxiliary task, and that of the best auxiliary objective. "
        f"The best arm of all in mean return over training is: {best}.",
        figures=figures,
    )


def _abstract(config: AgentPuddleWorldConfig, comparison: Comparison) -> str:
    best, none = best_arm(list(comparison.others)), comparison.baseline
    return (
        f"{config.base.num_seeds} agents an arm, {config.base.steps:,} environment steps each. "
        f"Mean return over training (interquartile mean over agents with its 95 % interval): "
        f"{interquartile(none.mean_returns)} with {none.label}, {interquartile(best.mean_returns)} "
        f"with the best auxiliary objective, {best.label}."
    )
