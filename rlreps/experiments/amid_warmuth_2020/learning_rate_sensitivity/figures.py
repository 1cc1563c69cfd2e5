"""Figures of the experiment on learning rates."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.config import (
    LearningRateSensitivityConfig,
)
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.findings import RuleResult
from rlreps.experiments.amid_warmuth_2020.pca_losses import excess_percent
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.plotting import Line, Look, Panel, plot_panels

EXCESS = "excess over the exact loss (%)"

_CHOSEN = "the chosen η0"
_LOOKS = {_CHOSEN: Look()}
_WORSE_LOOK = Look(linestyle=(0, (4, 2)), linewidth=1.2, marked=False)


def draw_curves(
    config: LearningRateSensitivityConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> Figure:
    """Excess loss against rows: with the chosen η0, and with the scaled one that ended worst."""
    others = [scale for scale in config.scales if scale != 1.0]
    worse = worse_label(config)
    panels: dict[str, list[Line]] = {f"k = {k}": [] for k in config.components}
    for result in results:
        excess = excess_percent(result.losses[1:], problem, result.k)
        shown = {_CHOSEN: config.scales.index(1.0)}
        if others:
            shown[worse] = result.worse_scale(config, problem)
        for variant, index in shown.items():
            values = excess[:, index]
            panels[f"k = {result.k}"].append(
                Line(
                    label=result.title,
                    variant=variant,
                    x=result.rows_seen[1:],
                    mean=values.mean(axis=1),
                    low=values.min(axis=1) if variant == _CHOSEN else None,
                    high=values.max(axis=1) if variant == _CHOSEN else None,
                )
            )
    return plot_panels(
        [Panel(title=title, lines=lines) for title, lines in panels.items()],
        looks=_LOOKS | ({worse: _WORSE_LOOK} if others else {}),
        x_label="samples",
        y_label=EXCESS,
        note=f"mean over {config.repeats} runs; bands from the least to the greatest run",
    )


def worse_label(config: LearningRateSensitivityConfig) -> str:
    """What the dashed curves are."""
    others = [f"{scale:g} η0" for scale in config.scales if scale != 1.0]
    return f"the worse of {' and '.join(others)}" if len(others) > 1 else others[0]


def draw_scales(
    config: LearningRateSensitivityConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> Figure:
    """Final excess loss against the factor of the chosen η0."""
    order = sorted(range(len(config.scales)), key=config.scales.__getitem__)
    scales = [config.scales[index] for index in order]
    panels = []
    for k in config.components:
        lines = []
        for result in results:
            if result.k == k:
                values = excess_percent(result.losses[-1], problem, k)[order]
                lines.append(
                    Line(
                        label=result.title,
                        x=scales,
                        mean=values.mean(axis=1),
                        low=values.min(axis=1),
                        high=values.max(axis=1),
                    )
                )
        panels.append(Panel(title=f"k = {k}", lines=lines))
    return plot_panels(
        panels,
        x_label="factor of the chosen η0",
        y_label=EXCESS,
        log_x=len(scales) > 1,
        x_ticks=scales,
        note=f"mean over {config.repeats} runs; bars from the least to the greatest run",
    )
