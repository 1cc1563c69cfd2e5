"""Agents in PuddleWorld, goal and penalties on: no auxiliary task against each objective."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.measures import default_ground_truth
from rlreps.cumulants import RandomFourier
from rlreps.encoders import Cosine, FourierMLP
from rlreps.errors import require, require_positive
from rlreps.experiments.harness import Experiment, Findings, Run, in_path
from rlreps.experiments.ours.agent_arms import (
    SIGNIFICANCE,
    Arm,
    ArmRuns,
    ComparedAgents,
    Comparison,
    comparison_sections,
    improvement_claims,
    interquartile,
    intervals_of,
    map_figures,
    signed,
    train_arm,
)
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective, Spin
from rlreps.report.page import Section
from rlreps.report.table import Table, format_number
from rlreps.runs.intervals import Interval, interquartile_mean, paired_difference
from rlreps.workflows.agents import StartingTorsos


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ComparedAgents):
    """Deep Q-networks in PuddleWorld without an auxiliary task, and with each of several.

    Attributes:
        components: Principal components of torsos to show, at most ten.
    """

    components: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("components", self.components)
        name = self.base.environment.partition(":")[0]
        require(name == "puddle-world", "the environment puddle-world", self.base.environment)


COSINES = "fixed cosines"
"""Label of the control: agents whose features need no data."""

_LARGE_BATCH = LargeBatch(precondition=1e-2, leave_one_out=True)

OBJECTIVES: tuple[Objective, ...] = (
    _LARGE_BATCH,
    # Features of an agent are far from white.
    DanskinLissa(whitening=True, permutations=8),
    Explicit(),
    Spin(),
)

TASK = AuxiliaryConfig(
    tasks=RandomFourier(length_scale=0.2),
    num_tasks=32,
    discount_low=0.8,
    discount_high=0.95,
    horizon=16,
    sequences=128,
    weight=0.1,
)
"""Task columns, targets and weight beside the temporal-difference loss, of every objective."""

LAPTOP = AgentConfig(
    environment="puddle-world",
    encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    num_features=32,
    # Sutton's penalties reach -40 a step: scaled, an error of one step of -1 is within the Huber
    # loss's square part, and values stay near 1.
    dqn=DQNConfig(reward_scale=0.1, n_step=5, warmup=5_000, schedule="constant"),
    num_envs=4,
    steps=100_000,
    evaluate_every=5_000,
    evaluation_episodes=32,
    checkpoint_every=25_000,
    num_seeds=10,
)

SMOKE = dataclasses.replace(
    LAPTOP,
    encoder=FourierMLP(hidden=(16, 16), frequencies=2),
    num_features=8,
    # Steps to warm up are those of an evaluation: one program less to compile.
    dqn=dataclasses.replace(LAPTOP.dqn, warmup=500, batch_size=16, epsilon_steps=500),
    replay=ReplayConfig(capacity=2_000),
    max_episode_steps=50,
    steps=2_000,
    evaluate_every=500,
    evaluation_episodes=4,
    checkpoint_every=1_000,
    num_seeds=2,
)

PAPER = dataclasses.replace(
    LAPTOP,
    encoder=FourierMLP(hidden=(256, 256), frequencies=4),
    num_features=64,
    steps=500_000,
    evaluate_every=10_000,
    evaluation_episodes=100,
    checkpoint_every=100_000,
    num_seeds=30,
)


def _preset(base: AgentConfig, objectives: Sequence[Objective] = OBJECTIVES, **task: Any) -> Config:
    tasks = tuple(
        dataclasses.replace(TASK, objective=objective, **task) for objective in objectives
    )
    return Config(base=base, tasks=tasks, threshold=-40.0)


PRESETS = {
    "smoke": dataclasses.replace(
        _preset(SMOKE, (_LARGE_BATCH, Explicit()), num_tasks=8, horizon=8, sequences=32),
        components=3,
    ),
    "laptop": _preset(LAPTOP),
    "paper": _preset(PAPER),
}


class TorsoChange(NamedTuple):
    """Differences, by seed, of an arm's last torsos to those of the first arm.

    Attributes:
        leading_distance: To the ten leading components of the successor measure; better below 0.
        probe_error: Share of values' variance that features do not explain; better below 0.
        mean_return: Mean return over training; better above 0.
    """

    leading_distance: Interval
    probe_error: Interval
    mean_return: Interval

    @property
    def better_torso(self) -> bool:
        """Tell whether both intervals of the torso lie below 0."""
        return bool(self.leading_distance.high < 0.0 and self.probe_error.high < 0.0)


def torso_changes(comparison: Comparison) -> dict[str, TorsoChange]:
    """Compare every arm with the first, with 95 % intervals; by label."""

    def figures(run: ArmRuns) -> list[Any]:
        last = (run.measures[name][:, -1] for name in TorsoChange._fields[:2])
        return [*last, run.mean_returns]

    first = figures(comparison.baseline)
    return {
        run.label: TorsoChange(*map(paired_difference, figures(run), first))
        for run in comparison.others
    }


def rank_correlation(comparison: Comparison) -> float:
    """Compute Spearman's correlation of last leading distance and mean return over agents.

    Those of the control are left out: their features were not learned.
    """
    runs = [run for run in comparison.runs if run.label != COSINES]
    distances = [run.measures["leading_distance"][:, -1] for run in runs]
    returns = [run.mean_returns for run in runs]
    return float(spearmanr(np.concatenate(distances), np.concatenate(returns)).statistic)


def reasons(comparison: Comparison, changes: Mapping[str, TorsoChange]) -> str:
    """Tell whether better torsos came with better returns, if there are enough agents."""
    if not comparison.enough_seeds:
        return "There are too few agents to tell."
    none = comparison.baseline.label
    control = {run.label: run for run in comparison.others}.get(COSINES)
    own = {label: each for label, each in changes.items() if label != COSINES}
    taught = ", ".join(label for label, each in own.items() if each.better_torso)
    better = ", ".join(
        label
        for label, each in own.items()
        if each.mean_return.value > 0.0 and comparison.adjusted[label].mean_return < SIGNIFICANCE
    )
    related = (
        "Over all agents that learn features, the rank correlation of the last distance to the ten "
        f"leading components and the mean return is {format_number(rank_correlation(comparison))} "
        "(below 0: closer torsos, better returns)."
    )
    if control is not None:
        distance, error = (control.measures[name][:, -1] for name in TorsoChange._fields[:2])
        related += (
            f" As many {COSINES} are at distance {interquartile(distance)} with probe error "
            f"{interquartile(error)}: what a task teaches is to be read beside these."
        )
    if not taught:
        return (
            "No auxiliary task left torsos that are closer to the successor measure and predict "
            f"values better than those of {none}. {related}"
        )
    learned = (
        f"Torsos of {taught} end closer to the successor measure than those of {none}, and predict "
        "values of random policies better (95 % intervals, each by itself): agents learn what the "
        "auxiliary task teaches."
    )
    if better:
        return f"{learned} Returns are better with {better}. {related}"
    return (
        f"{learned} No difference in returns was found. In this environment that says little of "
        f"torsos: (x, y) is observed, and its values are smooth. {related}"
    )


def cosines(base: AgentConfig) -> tuple[AgentConfig, StartingTorsos]:
    """Make agents with fixed features that need no data: cosines of the lowest frequencies.

    The d products of cosines of x and y, without the constant, in order of k_x² + k_y².
    """
    size = base.num_features
    frequencies = next(k for k in itertools.count(1) if (1 + k) ** 2 > size)
    multiples = np.indices((1 + frequencies,) * 2).reshape(2, -1)
    chosen = np.argsort(np.sum(multiples**2, axis=0), kind="stable")[1 : 1 + size]
    weights = np.zeros((base.num_seeds, multiples.shape[1], size), np.float32)
    weights[:, chosen, np.arange(size)] = 1.0
    config = dataclasses.replace(
        base,
        encoder=Cosine(frequencies=frequencies),
        dqn=dataclasses.replace(base.dqn, freeze_torso=True),
        auxiliary=dataclasses.replace(base.auxiliary, weight=0.0),
    )
    return config, StartingTorsos(weights, f"the {size} cosines of the lowest frequencies")


def cells(run: Run[Config]) -> dict[str, Arm]:
    """List the arms, with fixed cosines as a control."""
    arms = {
        in_path(label): Arm(label=label, config=agents)
        for label, agents in run.config.arms().items()
    }
    config, start = cosines(run.config.base)
    return {**arms, in_path(COSINES): Arm(label=COSINES, config=config, start=start)}


def report(run: Run[Config], found: dict[str, ArmRuns]) -> Findings:
    """Compare the arms and relate returns to torsos."""
    base = run.config.base
    arena = base.environment.partition(":")[2]
    comparison = Comparison(
        environment=f"PuddleWorld, arena {arena}" if arena else "PuddleWorld",
        threshold=run.config.threshold,
        runs=list(found.values()),
    )
    changes = torso_changes(comparison)

    def mean_return(arm: ArmRuns) -> float:
        return float(interquartile_mean(arm.mean_returns))

    labels = [label for label in changes if label != COSINES]
    taught = [arm for arm in comparison.others if arm.label in labels]
    none, best = comparison.baseline, max(taught, key=mean_return)
    goals = Section(
        title="Goals",
        text=f"A {'double ' if base.dqn.double else ''}deep Q-network shares its torso with an "
        f"auxiliary task: {', '.join(labels)}, or none. An episode starts anywhere, costs 1 a "
        "step and up to 400 times the depth in a puddle (Sutton 1996), and ends in the corner "
        f"x + y ≥ 1.9 or after {base.max_episode_steps} steps. Everything but the auxiliary task "
        "is the same. A control has frozen features that need no data: as many "
        f"{COSINES} of x and y, of the lowest frequencies. Fewer than ten agents an arm give no "
        f"verdict; here there are {base.num_seeds}.",
    )
    torsos = Section(
        title="Do better torsos make better agents?",
        text=reasons(comparison, changes),
        tables=[
            Table(
                ("", "distance to ten components", "probe error", "mean return over training"),
                [(label, *map(signed, change)) for label, change in changes.items()],
                f"Against {none.label}: interquartile means of differences by seed, with 95 % "
                "bootstrap intervals. Distances and errors are of the last evaluation; smaller is "
                "better.",
            )
        ],
    )
    maps = Section(
        title="What agents have learned",
        text="The first agent without an auxiliary task, and that of the best auxiliary objective. "
        "The best arm of all in mean return over training is: "
        f"{max(comparison.runs, key=mean_return).label}.",
        figures=map_figures(run, [none, best], default_ground_truth(base), run.config.components),
    )
    return Findings(
        abstract=f"{base.num_seeds} agents an arm, {base.steps:,} environment steps each. Mean "
        "return over training (interquartile mean over agents with its 95 % interval): "
        f"{interquartile(none.mean_returns)} with {none.label}, "
        f"{interquartile(best.mean_returns)} with the best auxiliary objective, {best.label}.",
        claims=improvement_claims(comparison, subject="auxiliary objective", labels=labels),
        sections=[goals, *comparison_sections(run, [comparison]), torsos, maps],
        summary={
            "comparisons": [comparison.summary()],
            "torsos": [{"arm": label, **intervals_of(each)} for label, each in changes.items()],
        },
    )


EXPERIMENT = Experiment(
    name="agent-puddle-world",
    title="Agents in PuddleWorld with auxiliary tasks",
    paper="Our own experiment; intervals follow Agarwal et al. 2021.",
    presets=PRESETS,
    cells=cells,
    measure=train_arm,
    report=report,
    keeps_parts=False,
    stated="our goal",
)
