"""Why returns follow, or do not follow, what auxiliary tasks make of torsos."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison
from rlreps.experiments.ours.agent_arms_findings import enough_seeds, signed
from rlreps.report.page import Section, Table
from rlreps.report.table import format_number
from rlreps.runs.intervals import Interval, interquartile_mean_difference

_RELATED = "subspace_distance"


class TorsoChange(NamedTuple):
    """What an arm's torsos are in the end, less those of the first arm; all better where smaller.

    Attributes:
        label: The arm.
        subspace_distance: Of the distance to the leading components of the successor measure.
        probe_error: Of the share of values' variance that features do not explain.
        mean_return: Of the mean return over training, which is better where it is larger.
    """

    label: str
    subspace_distance: Interval
    probe_error: Interval
    mean_return: Interval

    @property
    def better_torso(self) -> bool:
        """Whether both intervals of the torso lie below 0."""
        return bool(self.subspace_distance.high < 0.0 and self.probe_error.high < 0.0)


def torso_changes(comparison: Comparison) -> list[TorsoChange]:
    """What every arm but the first changed, with 95 % intervals."""
    none = comparison.baseline

    def change(run: ArmRuns, name: str) -> Interval:
        return interquartile_mean_difference(run.measures[name][:, -1], none.measures[name][:, -1])

    return [
        TorsoChange(
            run.label,
            change(run, "subspace_distance"),
            change(run, "probe_error"),
            interquartile_mean_difference(run.mean_returns, none.mean_returns),
        )
        for run in comparison.others
    ]


def rank_correlation(comparison: Comparison) -> float:
    """Spearman's, over all agents, of the last subspace distance and the mean return."""
    distances = np.concatenate([run.measures[_RELATED][:, -1] for run in comparison.runs])
    returns = np.concatenate([run.mean_returns for run in comparison.runs])
    return float(spearmanr(distances, returns).statistic)


def reasons_section(comparison: Comparison) -> Section:
    """Torsos and returns side by side, and what that says of the one as the reason of the other."""
    changes = torso_changes(comparison)
    return Section(
        title="Do better torsos make better agents?",
        text=reasons_text(comparison, changes),
        tables=[
            Table(
                ("", "subspace distance", "probe error", "mean return over training"),
                [
                    (
                        each.label,
                        signed(each.subspace_distance),
                        signed(each.probe_error),
                        signed(each.mean_return),
                    )
                    for each in changes
                ],
                f"Against {comparison.baseline.label}: differences of interquartile means, with "
                "95 % bootstrap intervals. Distances and errors are of the last evaluation, and "
                "better where they are smaller.",
            )
        ],
    )


def reasons_text(comparison: Comparison, changes: Sequence[TorsoChange]) -> str:
    """What the differences say; nothing where there are too few agents."""
    if not enough_seeds(comparison.runs):
        return "There are too few agents to tell."
    taught = [each.label for each in changes if each.better_torso]
    better = [each.label for each in changes if each.mean_return.low > 0.0]
    correlation = format_number(rank_correlation(comparison))
    related = (
        f"Over all agents, the rank correlation of the last subspace distance and the mean return "
        f"is {correlation} (below 0: closer torsos, better returns)."
    )
    if not taught:
        return (
            "No auxiliary task left torsos that are closer to the successor measure and predict "
            f"values better than those of {comparison.baseline.label}. {related}"
        )
    learned = (
        f"Torsos of {', '.join(taught)} end closer to the successor measure than those of "
        f"{comparison.baseline.label}, and predict values of random policies better: what the "
        "auxiliary task teaches is learned."
    )
    if better:
        return f"{learned} Returns are better with {', '.join(better)}. {related}"
    return (
        f"{learned} Returns are no better. So the torso is not what holds these agents back. What "
        "does was not measured here; candidates are how seldom exploration finds the goal, and how "
        "values spread from it, n steps with every copy of the target network. The experiment "
        "representation-transfer takes this to its end, with torsos that know the successor "
        f"measure before the first step. {related}"
    )
