"""Figures of arms: their returns, how likely they improve on the first, their torsos over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison, FloatArray
from rlreps.experiments.ours.agent_arms_findings import advantages, overall_improvement
from rlreps.plotting import Line, Panel, plot_improvements, plot_panels, plot_sample_efficiency
from rlreps.runs.intervals import Interval, aggregate

MEASURE_NAMES = {
    "subspace_distance": "subspace distance to the successor measure",
    "effective_rank": "effective rank of the features",
    "dormant_share": "share of dormant units",
    "probe_error": "value probe: variance not explained",
}
"""Measure → what it is, as a reader wants it."""


def interquartile_curve(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Interquartile mean of [seeds, p] and its interval, [p] each.

    NaN at a point where a seed has no value.
    """
    known = np.isfinite(values).all(axis=0)
    curves = np.full((3, values.shape[1]), np.nan)
    if known.any():
        found = aggregate(values[:, known])
        names = ("interquartile_mean", "interquartile_mean_low", "interquartile_mean_high")
        curves[:, known] = [found[name] for name in names]
    return curves[0], curves[1], curves[2]


def draw_returns(comparison: Comparison) -> Figure:
    """Returns against environment steps, with the threshold.

    The axis holds what interquartile means were once agents had begun to learn: a network that was
    never trained may do far worse than anything later.
    """
    figure = plot_sample_efficiency(
        comparison.baseline.steps,
        {run.label: run.returns for run in comparison.runs},
        title=comparison.environment,
        reference=(comparison.threshold, f"return {comparison.threshold_text}"),
    )
    low, high = _learned_range(comparison)
    bottom, top = figure.axes[0].get_ylim()
    margin = 0.1 * (high - low) or 1.0
    figure.axes[0].set_ylim(max(bottom, low - margin), min(top, high + margin))
    return figure


def _learned_range(comparison: Comparison) -> tuple[float, float]:
    """Least and greatest interquartile mean after the warm-up, and of all intervals in the end.

    With the threshold among them.
    """
    heights = [comparison.threshold]
    for run in comparison.runs:
        mean, low, high = interquartile_curve(run.returns)
        heights += [*mean[run.steps > run.config.dqn.warmup], low[-1], high[-1]]
    return float(np.nanmin(heights)), float(np.nanmax(heights))


def improvements(comparisons: Sequence[Comparison]) -> dict[str, Interval]:
    """Probabilities of improvement over the first arm by row of the figure."""
    if len(comparisons) == 1:
        return {each.label: each.probability for each in advantages(comparisons[0])}
    found = {
        f"{each.label}, {comparison.environment}": each.probability
        for comparison in comparisons
        for each in advantages(comparison)
    }
    every = overall_improvement(comparisons)
    return found | {f"{label}, all environments": each for label, each in every.items()}


def draw_improvements(comparisons: Sequence[Comparison], found: Mapping[str, Interval]) -> Figure:
    """What ``improvements`` found, around a line at 1/2."""
    baseline = comparisons[0].baseline.label
    figure = plot_improvements(found, baseline=baseline)
    # In two lines: beside long names of arms there is no room for one.
    figure.axes[0].set_xlabel(
        f"probability of improvement over {baseline},\n95 % bootstrap interval"
    )
    return figure


def measured(comparisons: Sequence[Comparison]) -> list[str]:
    """Measures that some arm has."""
    every = [name for each in comparisons for run in each.runs for name in run.measures]
    return [name for name in MEASURE_NAMES if name in every]


def draw_measure(comparisons: Sequence[Comparison], name: str) -> Figure:
    """A measure of the torsos against environment steps, a panel for each environment."""
    panels = []
    for comparison in comparisons:
        lines = [_line(run, name) for run in comparison.runs if name in run.measures]
        if lines:
            panels.append(Panel(title=comparison.environment, lines=lines))
    alone = len(panels) == 1
    figure = plot_panels(
        panels,
        x_label="environment steps of an agent",
        y_label="" if alone else MEASURE_NAMES[name],
        log_y=False,
        note="interquartile mean over seeds, 95 % bootstrap interval",
    )
    if alone:
        # Beside the axes: beside the figure it would stand in the middle of axes and legend.
        figure.axes[0].set_ylabel(MEASURE_NAMES[name])
    return figure


def _line(run: ArmRuns, name: str) -> Line:
    mean, low, high = interquartile_curve(run.measures[name])
    return Line(label=run.label, x=run.steps, mean=mean, low=low, high=high)
