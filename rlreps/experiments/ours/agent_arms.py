"""Arms: agents whose training differs in one thing only, and their figures and tables.

The frame has a row for each environment, arm, seed and evaluation. Arms are compared with
``NO_TASK``.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps.agents import AgentConfig
from rlreps.experiments.harness import (
    Axis,
    Curve,
    DoubleArray,
    Drawn,
    Frame,
    Measure,
    Part,
    Results,
    Rows,
    Run,
    Tabulated,
    in_path,
)
from rlreps.plotting import plot_improvements
from rlreps.report.table import format_number
from rlreps.runs.contrasts import as_columns, contrast_rows
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import (
    Interval,
    interquartile_mean_interval,
    probability_of_improvement,
    samples_to_reach,
)
from rlreps.workflows.agent_report import history
from rlreps.workflows.agents import OwnParts, StartingTorsos, mean_returns, run_agents

NO_TASK = "no auxiliary task"
"""Label of the arm that arms with auxiliary tasks are compared with."""

SIGNIFICANCE = 0.05
_RESAMPLES = 20_000

MEASURES = {
    "leading_distance": (
        "distance to the ten leading components",
        "The distance to the ten leading components is the share of these components of the "
        "successor measure, under a uniformly random policy, that the features cannot express.",
    ),
    "subspace_distance": (
        "subspace distance to all components",
        "The subspace distance is the same for as many components as there are features.",
    ),
    "effective_rank": (
        "effective rank of the features",
        "The effective rank is the exponential of the entropy of the features' singular values "
        "(Roy & Vetterli 2007).",
    ),
    "dormant_share": (
        "share of dormant units",
        "A unit is dormant if its mean activation is at most 0.025 of its layer's (Sokar et al. "
        "2023).",
    ),
    "probe_error": (
        "value probe: variance not explained",
        "The value probe fits values of held-out policies and rewards linearly to the features of "
        "half of its states, and reports the unexplained share of their variance at the others.",
    ),
}
"""Measure of a torso → its name in figures and tables, its definition."""

INTERVALS = (
    "Agents of an arm differ only in their seeds. Arms share seeds, and with them starts and "
    "fresh networks: differences are between agents with the same seed. Returns are undiscounted, "
    "of greedy episodes apart from training. The mean return over training averages all "
    "evaluations after the first update: the area under the learning curve divided by its length. "
    "Intervals are at 95 %: percentile bootstraps over agents for interquartile means, over pairs "
    "for mean differences, and arm by arm for probabilities of improvement (Agarwal et al. 2021). "
    "p-values are two-sided, by sign flips of the differences, and adjusted for their number (Holm "
    "1979). A return counts as reached at the second evaluation at or above it of any three in a "
    "row. An agent that never reaches it counts with the length of training."
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """Agents to train.

    Attributes:
        label: Their name in figures and tables.
        start: Torsos to start from in place of fresh ones.
        own: Parts in place of those that the configuration names.
    """

    label: str
    config: AgentConfig
    start: StartingTorsos | None = None
    own: OwnParts | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ArmRuns(Arm):
    """Agents that have been trained.

    Attributes:
        steps: Environment steps of each agent at each evaluation, [p], from 0.
        returns: Mean return of each evaluation's episodes, [seeds, p].
        measures: Name → measure of the torsos at each evaluation, [seeds, p].
        seconds: Time of acting and learning of all agents together.
    """

    folder: RunFolder
    steps: DoubleArray
    returns: DoubleArray
    measures: Mapping[str, DoubleArray]
    seconds: float

    @property
    def seeds(self) -> range:
        """The agents' seeds, [seeds]."""
        return range(self.config.seed, self.config.seed + len(self.returns))

    @cached_property
    def mean_returns(self) -> DoubleArray:
        """Mean return of each agent over the evaluations after its first update, [seeds]."""
        return mean_returns(self.config, self.steps, self.returns)

    def samples(self, threshold: float) -> DoubleArray:
        """Count environment steps to a return, [seeds]; infinite for agents that never reach it."""
        return samples_to_reach(self.steps, self.returns, threshold)


def train_arm(run: Run[Any], name: str, arm: Arm) -> ArmRuns:
    """Train an arm in ``runs/<name>``, from its newest checkpoint if it was interrupted.

    Raises:
        InputError: For an environment or a folder that does not fit.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    home = run.folder.path / "runs" / name
    summary = run_agents(
        arm.config,
        home,
        start=arm.start,
        own=arm.own,
        devices=run.devices,
    )
    folder = RunFolder(home)
    steps, returns = history(folder, "returns")
    measures = {measure: history(folder, measure)[1] for measure in MEASURES}
    return ArmRuns(
        **vars(arm),
        folder=folder,
        steps=steps,
        returns=returns,
        measures={key: each for key, each in measures.items() if np.isfinite(each[:, -1]).any()},
        seconds=float(summary["seconds"]),
    )


def frame_of(found: ArmRuns, environment: str, threshold: float) -> Frame:
    """List returns and measures by step, and what an agent has of its whole training.

    Args:
        found: The agents.
        environment: Its name.
        threshold: Return whose samples are counted.
    """
    samples, config = found.samples(threshold), found.config
    of_agents = {
        "mean_return": found.mean_returns,
        "best_return": found.returns.max(axis=1),
        "samples": np.minimum(samples, config.steps),
        "reached": np.isfinite(samples),
    }
    return Frame.grid(
        {
            "return": found.returns,
            **found.measures,
            **{name: each[:, None] for name, each in of_agents.items()},
            "learning": found.steps > config.dqn.warmup,
        },
        environment=environment,
        threshold=threshold,
        arm=found.label,
        seconds=found.seconds,
        seed=found.seeds,
        step=found.steps.astype(int),
    )


# --- Tables ---------------------------------------------------------------------------------------


def found_in(results: Results[Any]) -> dict[str, dict[str, Frame]]:
    """Return environment → arm → the last evaluation of its agents, the baseline first."""
    return {
        name: found.labelled("arm") for name, found in results.ends.labelled("environment").items()
    }


def agents(results: Results[Any]) -> Rows:
    """List every agent at its end; samples are infinite where it never reaches the threshold."""
    ends = results.ends
    samples = np.where(ends["reached"], ends["samples"], np.inf)
    returns = ("final_return", "best_return", "mean_return")
    return ends.adding(final_return=ends["return"], samples=samples).rows(
        "environment", "arm", "seed", *returns, "samples", *measured(results)
    )


def _middle(found: Frame, **columns: str) -> dict[str, float]:
    """Return interquartile means over agents with their intervals, name → column."""
    means: dict[str, float] = {}
    for name, column in columns.items():
        means |= as_columns(name, interquartile_mean_interval(found[column].astype(float)))
    return means


def comparisons(results: Results[Any]) -> Rows:
    """Tabulate returns and samples of every arm: interquartile means."""
    return [
        {
            "environment": environment,
            "arm": arm,
            "agents": len(found),
            **_middle(found, mean_return="mean_return", final_return="return"),
            "threshold": found["threshold"][0],
            "reached": int(found["reached"].sum()),
            **_middle(found, steps="samples"),
            "seconds": found["seconds"][0],
        }
        for (environment, arm), found in results.ends.groups("environment", "arm").items()
    ]


def differences(results: Results[Any]) -> Rows:
    """Compare every arm with the first, with p-values adjusted within its environment."""
    rows, names = [], ("mean_return", "samples")
    for environment, (baseline, *others) in found_in(results).items():
        end = partial(results.end, environment=environment)
        pairs = list(itertools.product(others, names))
        contrasts: list[Any] = [
            ({}, end(name, arm=arm).against(end(name, arm=baseline))) for arm, name in pairs
        ]
        found = dict(zip(pairs, contrast_rows(contrasts), strict=True))
        for arm in others:
            returns = (end("mean_return", arm=each).values for each in (arm, baseline))
            better = probability_of_improvement(*returns, resamples=_RESAMPLES)
            row: dict[str, Any] = {"environment": environment, "arm": arm, "against": baseline}
            row |= as_columns("probability", better)
            for name in names:
                own = found[arm, name]
                row |= {f"{name}{each}": own[f"difference{each}"] for each in ("", "_low", "_high")}
                row[f"{name}_p"] = own["p_value"]
            rows.append(row)
    return rows


def improvements(results: Results[Any]) -> dict[str, Interval]:
    """Collect the probabilities of improvement over the first arm, by row of their figure.

    Those over all environments are of arms that all have, with as many agents everywhere.
    """
    environments, rows = found_in(results), results.once(differences)
    found = {}
    for row in rows:
        label = row["arm"] if len(environments) == 1 else f"{row['arm']}, {row['environment']}"
        found[str(label)] = Interval(*(row[f"probability{end}"] for end in ("", "_low", "_high")))
    if len(environments) == 1:
        return found
    for arm in dict.fromkeys(str(row["arm"]) for row in rows):
        parts = [(each.get(arm), next(iter(each.values()))) for each in environments.values()]
        known = [(ours, theirs) for ours, theirs in parts if ours is not None]
        if len(known) == len(parts) and len({len(each) for pair in known for each in pair}) == 1:
            ours, theirs = (
                np.stack([each["mean_return"].astype(float) for each in side], axis=1)
                for side in zip(*known, strict=True)
            )
            every = probability_of_improvement(ours, theirs, resamples=_RESAMPLES)
            found[f"{arm}, all environments"] = every
    return found


def torsos(results: Results[Any]) -> Rows:
    """Tabulate the measures of torsos after training: interquartile means."""
    rows = []
    for (environment, arm), found in results.ends.groups("environment", "arm").items():
        known = [name for name in measured(results) if np.isfinite(found[name].astype(float)).all()]
        means = _middle(found, **dict(zip(known, known, strict=True)))
        rows.append({"environment": environment, "arm": arm, **means})
    return rows


def measured(results: Results[Any]) -> list[str]:
    """Name the measures that some torso has."""
    return [name for name in MEASURES if name in results.frame.columns]


# --- Figures and sections -------------------------------------------------------------------------


def _heights(results: Results[Any], environment: str) -> Mapping[str, Any]:
    """Set limits that hold the means after the warm-up, the last intervals and the threshold.

    Untrained networks may do far worse than anything later.
    """
    frame = results.frame.where(environment=environment)
    threshold = float(frame["threshold"][0])
    heights = [threshold]
    for found in frame.where(learning=True).labelled("arm").values():
        table, _, _ = found.pivot("return", "seed", "step")
        whole = interquartile_mean_interval(table)
        heights += [*whole.value, whole.low[-1], whole.high[-1]]
    least, greatest = float(np.nanmin(heights)), float(np.nanmax(heights))
    margin = 0.1 * (greatest - least) or 1.0
    return {
        "reference_y": ([threshold], f"return {format_number(threshold)}"),
        "y_limits": (least - margin, greatest + margin),
    }


def _steps(name: str, y: Measure, caption: str, **options: Any) -> Curve:
    """Draw a measure over training: interquartile means over agents."""
    x = Axis("step", "environment steps of an agent")
    return Curve(name=name, caption=caption, x=x, y=y, line="arm", middle=True, **options)


def _returns(results: Results[Any]) -> Sequence[Tabulated | Curve]:
    """Show returns: a figure each environment."""
    environments = list(found_in(results))
    curves = [
        _steps(
            "returns" if len(environments) == 1 else f"returns_{in_path(environment)}",
            Measure(value="return", label="return of an evaluation episode"),
            f"Returns in {environment}, and the return whose samples are counted (dotted). The "
            "axis leaves out lower returns of untrained networks.",
            title=environment,
            of={"environment": environment},
            axes=partial(_heights, environment=environment),
        )
        for environment in environments
    ]
    table = Tabulated(
        name="comparisons",
        rows=comparisons,
        caption="Mean over training, last evaluation, and environment steps to the threshold: "
        "interquartile means over agents; how many reached it. Seconds are of all agents together, "
        "with compilation and without evaluation, while other arms ran if there were several jobs.",
    )
    return [table, Tabulated(name="agents", rows=agents, shown=False), *curves]


def _draw_improvements(results: Results[Any]) -> tuple[Rows, Figure]:
    found = improvements(results)
    figure = plot_improvements(found, baseline=NO_TASK)
    # Three lines: one is too long beside long names of arms.
    words = f"probability of improvement\nover {NO_TASK},\n95 % bootstrap interval"
    figure.axes[0].set_xlabel(words)
    return [{"arm": label, **each._asdict()} for label, each in found.items()], figure


def _torsos(results: Results[Any]) -> Sequence[Tabulated | Curve]:
    """Show the measures of torsos: a figure each."""
    curves = [
        _steps(
            name,
            Measure(value=name, label=MEASURES[name][0]),
            f"{MEASURES[name][0].capitalize()}, over training.",
            panel="environment",
            of={name: lambda column: np.isfinite(np.asarray(column, np.float64))},
        )
        for name in measured(results)
    ]
    caption = "Torsos after training, interquartile means over agents."
    return [Tabulated(rows=torsos, caption=caption), *curves]


SECTIONS: Mapping[str, Sequence[Part]] = {
    "Returns": [
        INTERVALS,
        _returns,
    ],
    f"Against {NO_TASK}": [
        Tabulated(
            name="differences",
            rows=differences,
            caption=f"Against {NO_TASK}: mean differences over seeds of mean returns over "
            "training, and of environment steps to the threshold (negative: fewer), with 95 % "
            "intervals. p-values are adjusted for all comparisons in the environment (Holm).",
        ),
        Drawn(
            name="improvement",
            caption="Probability that an agent of an arm has a greater mean return over "
            f"training than one of {NO_TASK}. Filled: the interval excludes 1/2. If all agents of "
            "one arm are above all of the other, the interval has no width, which is a limit of "
            "the bootstrap, not certainty.",
            draw=_draw_improvements,
        ),
    ],
    "Torsos while agents learn": [
        lambda r: " ".join(MEASURES[name][1] for name in measured(r)),
        _torsos,
    ],
}
"""Returns, differences to the first arm, and torsos of all arms."""
