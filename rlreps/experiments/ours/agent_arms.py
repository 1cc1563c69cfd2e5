"""Arms: agents that are trained alike but for one thing, compared with the first arm.

Shared by experiments with agents: training, intervals, figures and sections of the report.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.agents import AgentConfig
from rlreps.errors import require
from rlreps.experiments.harness import Run, in_path
from rlreps.plotting import (
    Line,
    Panel,
    plot_improvements,
    plot_panels,
    plot_sample_efficiency,
)
from rlreps.report.page import Section
from rlreps.report.table import Table, format_number
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import (
    Interval,
    aggregate,
    holm,
    interquartile_mean_interval,
    paired_difference,
    probability_of_improvement,
    samples_to_reach,
    sign_flip_p_value,
)
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.agents import (
    OwnParts,
    StartingTorsos,
    history,
    mean_returns,
    run_agents,
)

FloatArray = npt.NDArray[np.float64]

NO_TASK = "no auxiliary task"
"""Label of the arm that arms with auxiliary tasks are compared with."""

SIGNIFICANCE = 0.05
_RESAMPLES = 20_000

MEASURES = {
    "leading_distance": (
        "distance to the ten leading components",
        "The distance to the ten leading components is the share of them, of the successor measure "
        "under a uniformly random policy, that the features cannot express.",
    ),
    "subspace_distance": (
        "subspace distance to all components",
        "The subspace distance is the same of as many components as there are features.",
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
    "Agents of an arm differ in their seeds alone. Arms share seeds, and with them starts and "
    "fresh networks: differences are those of agents with the same seed. Returns are undiscounted, "
    "of greedy episodes apart from training. The mean return over training averages all "
    "evaluations after the first update: the area under the learning curve divided by its length. "
    "Intervals are percentile bootstraps over agents, those of differences over pairs, those of "
    "probabilities of improvement arm by arm (Agarwal et al. 2021); with ten agents they are "
    "somewhat too narrow. p-values are two-sided, of sign flips of the differences, and adjusted "
    "for their number (Holm 1979). A return counts as reached at the second evaluation at or above "
    "it of any three in a row. An agent that never reaches it counts with the length of training."
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """Agents to train.

    Attributes:
        label: Their name in figures and tables.
        config: The agents.
        start: Torsos to start from in place of fresh ones.
        truth: What torsos in PuddleWorld are measured against; see ``make_measurement``.
        own: Parts in place of those that the configuration names.
    """

    label: str
    config: AgentConfig
    start: StartingTorsos | None = None
    truth: GroundTruth | None = None
    own: OwnParts | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ArmRuns(Arm):
    """Agents that have been trained.

    Attributes:
        folder: Their folder.
        steps: Environment steps of each agent at each evaluation, [p], from 0.
        returns: Mean return of each evaluation's episodes, [seeds, p].
        measures: Name → measure of the torsos at each evaluation, [seeds, p].
        seconds: Time of acting and learning of all agents together.
    """

    folder: RunFolder
    steps: FloatArray
    returns: FloatArray
    measures: Mapping[str, FloatArray]
    seconds: float

    @property
    def seeds(self) -> range:
        """The agents' seeds, [seeds]."""
        return range(self.config.seed, self.config.seed + len(self.returns))

    @cached_property
    def mean_returns(self) -> FloatArray:
        """Mean return of each agent over the evaluations after its first update, [seeds]."""
        return mean_returns(self.config, self.steps, self.returns)

    def samples(self, threshold: float) -> FloatArray:
        """Count environment steps to a return, [seeds]; infinite for agents that never reach it."""
        return samples_to_reach(self.steps, self.returns, threshold)


class Advantage(NamedTuple):
    """The difference between an arm and another.

    Attributes:
        probability: That an agent of the arm has the greater mean return over training.
        mean_return: Interquartile mean over seeds of differences of the mean return over training.
        samples: The same of environment steps to the threshold, at most the length of training;
            negative where the arm needs fewer.
    """

    probability: Interval
    mean_return: Interval
    samples: Interval


class Adjusted(NamedTuple):
    """Holm's p-values of an arm's differences to another; fields as in ``Advantage``."""

    mean_return: float
    samples: float


def advantage(x: ArmRuns, y: ArmRuns, threshold: float) -> Advantage:
    """Compare one arm with another of the same seeds, with percentile bootstrap intervals.

    Raises:
        InputError: For arms of other seeds.
    """
    ours, theirs = _paired(x, threshold), _paired(y, threshold)
    seeds = [range(arm.config.seed, arm.config.seed + len(arm.returns)) for arm in (x, y)]
    require(seeds[0] == seeds[1], f"agents of the seeds of {y.label}, {seeds[1]}", seeds[0])
    options: dict[str, Any] = {"resamples": _RESAMPLES}
    return Advantage(
        probability_of_improvement(x.mean_returns, y.mean_returns, **options),
        *(paired_difference(*pair, **options) for pair in zip(ours, theirs, strict=True)),
    )


def _paired(arm: ArmRuns, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return what agents are compared in: mean returns, and steps to a return, at most all."""
    return arm.mean_returns, np.minimum(arm.samples(threshold), arm.config.steps)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Arms that were run in one environment.

    Attributes:
        environment: Its name.
        threshold: Return whose samples are counted.
        runs: The arms; the others are compared with the first.
    """

    environment: str
    threshold: float
    runs: Sequence[ArmRuns]

    @property
    def threshold_text(self) -> str:
        """The threshold with all of its digits."""
        return f"{self.threshold:,g}".replace("-", "\N{MINUS SIGN}")

    @property
    def baseline(self) -> ArmRuns:
        """The first arm."""
        return self.runs[0]

    @property
    def others(self) -> Sequence[ArmRuns]:
        """All arms but the first."""
        return self.runs[1:]

    @property
    def num_comparisons(self) -> int:
        """Number of p-values: two measures of every arm but the first."""
        return 2 * len(self.others)

    @cached_property
    def advantages(self) -> dict[str, Advantage]:
        """Label of each arm but the first → its advantage over the first, at 95 %."""
        return {run.label: advantage(run, self.baseline, self.threshold) for run in self.others}

    @cached_property
    def adjusted(self) -> dict[str, Adjusted]:
        """Label of each arm but the first → p-values, adjusted for the number of all of them."""
        first = _paired(self.baseline, self.threshold)
        found = [
            sign_flip_p_value(ours, theirs)
            for run in self.others
            for ours, theirs in zip(_paired(run, self.threshold), first, strict=True)
        ]
        pairs = holm(found).reshape(-1, 2).tolist()
        return {run.label: Adjusted(*pair) for run, pair in zip(self.others, pairs, strict=True)}

    def summary(self) -> dict[str, Any]:
        """Return this environment's part of a summary, JSON values."""
        against = {label: intervals_of(each) for label, each in self.advantages.items()}
        adjusted = {label: each._asdict() for label, each in self.adjusted.items()}
        return {
            "environment": self.environment,
            "threshold": self.threshold,
            "arms": [
                {
                    "arm": run.label,
                    "agents": len(run.returns),
                    "seconds": round(run.seconds, 3),
                    "mean_return": aggregate(run.mean_returns),
                    "final_return": aggregate(run.returns[:, -1]),
                    "final_returns": run.returns[:, -1].tolist(),
                    "samples": run.samples(self.threshold).tolist(),
                    "against_first": against.get(run.label),
                    "p_values": adjusted.get(run.label),
                }
                for run in self.runs
            ],
        }


def intervals_of(found: NamedTuple) -> dict[str, Any]:
    """Turn a tuple of intervals into JSON values."""
    return {name: interval._asdict() for name, interval in found._asdict().items()}


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
        truth=arm.truth,
        start=arm.start,
        own=arm.own,
        devices=run.devices,
        progress=run.progress,
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


def overall_improvement(comparisons: Sequence[Comparison]) -> dict[str, Interval]:
    """Compute the probability of improvement over all environments of each arm that all have.

    Arms whose number of agents differs between environments are left out.
    """
    found = {}
    for label in [run.label for run in comparisons[0].others]:
        pairs = [
            (run.mean_returns, comparison.baseline.mean_returns)
            for comparison in comparisons
            for run in comparison.others
            if run.label == label
        ]
        sizes = {tuple(map(len, pair)) for pair in pairs}
        if len(pairs) == len(comparisons) and len(sizes) == 1:
            ours, theirs = (np.stack(part, axis=1) for part in zip(*pairs, strict=True))
            found[label] = probability_of_improvement(ours, theirs, resamples=_RESAMPLES)
    return found


def improvements(comparisons: Sequence[Comparison]) -> dict[str, Interval]:
    """Collect the probabilities of improvement over the first arm, by row of their figure."""
    if len(comparisons) == 1:
        return {label: each.probability for label, each in comparisons[0].advantages.items()}
    found = {
        f"{label}, {comparison.environment}": each.probability
        for comparison in comparisons
        for label, each in comparison.advantages.items()
    }
    every = overall_improvement(comparisons)
    return found | {f"{label}, all environments": each for label, each in every.items()}


def _text(estimate: Interval, form: Callable[[float], str]) -> str:
    """Format an estimate with its interval, if it has one."""
    value, low, high = map(form, estimate)
    return value if np.isnan(estimate.low) else f"{value} [{low}, {high}]"


def signed(estimate: Interval) -> str:
    """Format a difference with its interval and signs."""
    return _text(estimate, lambda number: ("+" if number > 0.0 else "") + format_number(number))


def interquartile(values: npt.ArrayLike) -> str:
    """Format an interquartile mean [runs] with its 95 % interval."""
    return _text(interquartile_mean_interval(values), format_number)


def probability_text(estimate: Interval) -> str:
    """Format a probability with its interval."""
    return _text(estimate, "{:.2f}".format)


def interquartile_curve(values: FloatArray) -> Interval:
    """Compute the interquartile mean of [seeds, p] and its interval, [p] each.

    NaN at a point where a seed has no value.
    """
    known = np.isfinite(values).all(axis=0)
    curves = np.full((3, values.shape[1]), np.nan)
    if known.any():
        curves[:, known] = interquartile_mean_interval(values[:, known])
    return Interval(*curves)


def comparison_sections(run: Run[Any], comparisons: Sequence[Comparison]) -> list[Section]:
    """Write figures and results of all arms.

    Returns:
        Sections on returns, on differences to the first arm, and on the torsos.
    """
    return [
        _returns_section(run, comparisons),
        _differences_section(run, comparisons),
        _torso_section(run, comparisons),
    ]


def _returns_section(run: Run[Any], comparisons: Sequence[Comparison]) -> Section:
    agents, tables, figures = [], [], []
    for comparison in comparisons:
        environment, threshold = comparison.environment, comparison.threshold_text
        rows = []
        for arm in comparison.runs:
            samples = arm.samples(comparison.threshold)
            agents += [
                {
                    "environment": environment,
                    "arm": arm.label,
                    "seed": arm.config.seed + index,
                    "final_return": returns[-1],
                    "best_return": returns.max(),
                    "mean_return": arm.mean_returns[index],
                    "samples": samples[index],
                    **{name: values[index, -1] for name, values in arm.measures.items()},
                }
                for index, returns in enumerate(arm.returns)
            ]
            rows.append(
                (
                    arm.label,
                    len(arm.returns),
                    interquartile(arm.mean_returns),
                    interquartile(arm.returns[:, -1]),
                    f"{int(np.isfinite(samples).sum())} of {len(samples)}",
                    interquartile(np.minimum(samples, arm.config.steps)),
                    arm.seconds,
                )
            )
        header = ["", "agents", "mean over training", "last evaluation"]
        header += [f"reached {threshold}", f"steps to {threshold}", "training s"]
        caption = (
            f"{environment}: interquartile mean over agents with its 95 % bootstrap interval. "
            "Training time is that of all agents together, with compilation and without "
            "evaluation, beside other arms where there were several jobs."
        )
        tables.append(Table(header, rows, caption))
        figures.append(
            run.show(
                "returns" if len(comparisons) == 1 else f"returns_{in_path(environment)}",
                f"Returns in {environment}: interquartile mean over agents with its 95 % "
                "bootstrap interval, and the return whose samples are counted (dotted). The axis "
                "leaves out lower returns of untrained networks.",
                [row for arm in comparison.runs for row in _curve_rows(arm, arm.returns, "return")],
                draw_returns(comparison),
            )
        )
    run.write_rows("agents", agents)
    return Section(title="Returns", text=INTERVALS, tables=tables, figures=figures)


def draw_returns(comparison: Comparison) -> Figure:
    """Plot returns against environment steps, with the threshold.

    The axis covers the interquartile means after the warm-up, the last intervals and the
    threshold: untrained networks may do far worse than anything later.
    """
    figure = plot_sample_efficiency(
        comparison.baseline.steps,
        {run.label: run.returns for run in comparison.runs},
        title=comparison.environment,
        reference=(comparison.threshold, f"return {comparison.threshold_text}"),
    )
    heights = [comparison.threshold]
    for run in comparison.runs:
        mean, low, high = interquartile_curve(run.returns)
        heights += [*mean[run.steps > run.config.dqn.warmup], low[-1], high[-1]]
    least, greatest = float(np.nanmin(heights)), float(np.nanmax(heights))
    bottom, top = figure.axes[0].get_ylim()
    margin = 0.1 * (greatest - least) or 1.0
    figure.axes[0].set_ylim(max(bottom, least - margin), min(top, greatest + margin))
    return figure


def _curve_rows(run: ArmRuns, values: FloatArray, name: str) -> list[dict[str, Any]]:
    """Return a row for each evaluation: interquartile mean, interval and each agent's value."""
    curves = zip(run.steps, *interquartile_curve(values), values.T, strict=True)
    return [
        {
            "arm": run.label,
            "step": int(step),
            name: mean,
            "low": low,
            "high": high,
            **{f"seed_{seed}": value for seed, value in enumerate(each, start=run.config.seed)},
        }
        for step, mean, low, high, each in curves
    ]


def _differences_section(run: Run[Any], comparisons: Sequence[Comparison]) -> Section:
    baseline, differences, tables = comparisons[0].baseline.label, [], []
    for comparison in comparisons:
        differences += [
            {
                "environment": comparison.environment,
                "arm": label,
                "against": baseline,
                **{
                    f"{measure}_{end}": value
                    for measure, ends in intervals_of(each).items()
                    for end, value in ends.items()
                },
                **{f"{name}_p": p for name, p in comparison.adjusted[label]._asdict().items()},
            }
            for label, each in comparison.advantages.items()
        ]
        header = ["", "probability of improvement", "mean return", "p", "steps", "p"]
        rows = [
            (
                label,
                probability_text(each.probability),
                signed(each.mean_return),
                comparison.adjusted[label].mean_return,
                signed(each.samples),
                comparison.adjusted[label].samples,
            )
            for label, each in comparison.advantages.items()
        ]
        caption = (
            f"{comparison.environment}, against {baseline}: interquartile means over seeds of the "
            "differences of mean returns over training, and of environment steps to a return of "
            f"{comparison.threshold_text} (negative: fewer), with 95 % intervals. p-values are "
            f"adjusted for {comparison.num_comparisons} comparisons (Holm)."
        )
        tables.append(Table(header, rows, caption))
    run.write_rows("differences", differences)
    probabilities = improvements(comparisons)
    figure = plot_improvements(probabilities, baseline=baseline)
    # Three lines: one is too long beside long names of arms.
    figure.axes[0].set_xlabel(
        f"probability of improvement\nover {baseline},\n95 % bootstrap interval"
    )
    shown = run.show(
        "improvement",
        "Probability that an agent of an arm has a greater mean return over training than one of "
        f"{baseline}. Filled: the interval excludes 1/2. Where all agents of one arm are above all "
        "of the other, the interval has no width: a limit of the bootstrap, not certainty.",
        [{"arm": label, **each._asdict()} for label, each in probabilities.items()],
        figure,
    )
    return Section(title=f"Against {baseline}", tables=tables, figures=[shown])


def _torso_section(run: Run[Any], comparisons: Sequence[Comparison]) -> Section:
    every = {name for each in comparisons for arm in each.runs for name in arm.measures}
    names = [name for name in MEASURES if name in every]
    unknown = np.full((1, 1), np.nan)

    def last(values: FloatArray) -> str | None:
        return interquartile(values[:, -1]) if np.isfinite(values[:, -1]).all() else None

    tables = [
        Table(
            ("", *(MEASURES[name][0] for name in names)),
            [
                (arm.label, *(last(arm.measures.get(name, unknown)) for name in names))
                for arm in comparison.runs
            ],
            f"{comparison.environment}: torsos after training, interquartile mean over agents "
            "with its 95 % bootstrap interval.",
        )
        for comparison in comparisons
    ]
    figures = []
    for name in names:
        rows, panels = [], []
        for comparison in comparisons:
            lines = []
            for arm in comparison.runs:
                if name in arm.measures:
                    values = arm.measures[name]
                    environment = {"environment": comparison.environment}
                    rows += [environment | row for row in _curve_rows(arm, values, name)]
                    mean, low, high = interquartile_curve(values)
                    lines.append(Line(label=arm.label, x=arm.steps, mean=mean, low=low, high=high))
            if lines:
                panels.append(Panel(title=comparison.environment, lines=lines))
        label, _ = MEASURES[name]
        figure = plot_panels(
            panels,
            x_label="environment steps of an agent",
            y_label=label,
            log_y=False,
            note="interquartile mean over seeds, 95 % bootstrap interval",
        )
        figures.append(run.show(name, f"{label.capitalize()}, over training.", rows, figure))
    return Section(
        title="Torsos while agents learn",
        text=" ".join(MEASURES[name][1] for name in names),
        tables=tables,
        figures=figures,
    )
