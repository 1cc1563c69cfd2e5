"""Claims and report of the experiment on agents in classic control."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison
from rlreps.experiments.ours.agent_arms_config import FEWEST_SEEDS
from rlreps.experiments.ours.agent_arms_findings import overall_improvement
from rlreps.experiments.ours.agent_arms_report import (
    comparison_sections,
    probability_text,
    summary_of,
)
from rlreps.experiments.ours.agent_arms_results import write_comparisons
from rlreps.experiments.ours.agent_control.config import AgentControlConfig, Bar
from rlreps.experiments.results import Claim, claims_table
from rlreps.report.page import Section, write_report
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder


def write_control_report(
    config: AgentControlConfig, folder: RunFolder, comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """Writes figures, results and report; returns the summary."""
    write_comparisons(folder, comparisons)
    plain = next(each for each in comparisons if each.environment == config.bar.environment)
    claims = bar_claims(config.bar, plain.baseline)
    summary = {
        "comparisons": [summary_of(each) for each in comparisons],
        "overall": {
            label: found._asdict() for label, found in overall_improvement(comparisons).items()
        },
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="Agents in classic control",
        summary=_abstract(comparisons),
        sections=[
            Section(
                title="Goal",
                text="A check of the agents themselves: they are to solve what is known to be "
                "easy. An environment is named as in Gymnasium, and the return whose samples are "
                "counted is the one at which Gymnasium's registry calls it solved. Evaluations "
                "are greedy and apart from training. Probabilities of improvement over all "
                "environments are means over environments, with agents resampled environment by "
                "environment.",
                tables=[claims_table(claims, stated="our goal")],
            ),
            *comparison_sections(folder, comparisons),
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def bar_claims(bar: Bar, plain: ArmRuns) -> list[Claim]:
    """That enough plain agents reach the bar within its steps, and are still there at their end.

    Neither can be told from fewer than ten agents. That they do not reach it, or stay, cannot be
    told from agents that stopped earlier.
    """
    reached = plain.returns[:, plain.steps <= bar.steps] >= bar.mean_return
    count, whole = len(reached), bool(plain.steps[-1] >= bar.steps)
    needed = math.ceil(bar.share * count - 1e-9)
    goal = f"at least {100 * bar.share:.0f} % of the agents ({needed} of {count})"
    statement = (
        f"{bar.environment}: a mean return of at least {format_number(bar.mean_return)} by plain "
        f"agents within {bar.steps:,} steps"
    )
    some, last = int(reached.any(axis=1).sum()), int(reached[:, -1].sum())
    told = count >= FEWEST_SEEDS
    return [
        Claim(
            statement=f"{statement}, at some evaluation",
            paper=goal,
            found=f"{some} of {count}",
            holds=some >= needed if told and (whole or some >= needed) else None,
        ),
        Claim(
            statement=f"{statement}, at the last of them",
            paper=goal,
            found=f"{last} of {count}; lowest "
            f"{format_number(float(np.min(plain.returns[:, plain.steps <= bar.steps][:, -1])))}",
            holds=last >= needed if told and whole else None,
        ),
    ]


def _abstract(comparisons: Sequence[Comparison]) -> str:
    names = ", ".join(each.environment for each in comparisons)
    first = comparisons[0].baseline
    text = f"Deep Q-networks in {names}: {len(first.returns)} agents an arm."
    if len(comparisons) > 1:
        for label, found in overall_improvement(comparisons).items():
            text += (
                f" Probability that {label} improves on {first.label} in mean return over "
                f"training, over all environments: {probability_text(found)}."
            )
    return text
