"""Figures of the synthetic experiment, and the names they use."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from rlreps.experiments.le_lan_2023.synthetic.config import Setting, SyntheticConfig
from rlreps.experiments.le_lan_2023.synthetic.problem import SettingResult
from rlreps.plotting.panels import Line, Panel, plot_panels
from rlreps.report.method_names import method_name
from rlreps.runs.intervals import aggregate

Results: TypeAlias = Mapping[Setting, SettingResult]

_DISTANCE = "subspace distance (0 equal, 1 orthogonal)"


def draw_figures(config: SyntheticConfig, results: Results) -> dict[str, Figure]:
    """The four panels of the paper, each with an axes for every spectrum."""
    return {
        "distance_by_dimension": _curves(config, results, "panel_dimensions", "d = {}"),
        "distance_by_total": _curves(config, results, "panel_rows", "{} rows an update"),
        "final_distance_by_method": _by_method(config, results),
        "final_distance_by_kappa": _by_kappa(config, results),
    }


def interval_note(config: SyntheticConfig) -> str:
    """What bands and bars are."""
    return (
        f"mean over {config.num_seeds} runs, 95 % bootstrap interval; a run that diverged counts 1"
    )


def _curves(config: SyntheticConfig, results: Results, panel: str, label: str) -> Figure:
    """Distance during training, a line for each value of what a panel varies."""
    panels = []
    for spectrum in config.spectra:
        lines = []
        for value, setting in getattr(config, panel)(spectrum).items():
            curve = aggregate(results[setting].distances)
            lines.append(
                Line(
                    label=label.format(value),
                    x=results[setting].steps,
                    mean=curve["mean"],
                    low=curve["mean_low"],
                    high=curve["mean_high"],
                )
            )
        panels.append(Panel(title=f"{spectrum} spectrum", lines=lines))
    return plot_panels(
        panels, x_label="update", y_label=_DISTANCE, note=interval_note(config), log_y=True
    )


def _by_method(config: SyntheticConfig, results: Results) -> Figure:
    panels = [
        Panel(
            title=f"{spectrum} spectrum",
            lines=[
                _final_line(method_name(method), by_total, results)
                for method, by_total in config.panel_methods(spectrum).items()
            ],
        )
        for spectrum in config.spectra
    ]
    return plot_panels(
        panels,
        x_label="rows an update, all roles (L)",
        y_label=_DISTANCE,
        log_x=True,
        x_ticks=config.totals,
        note=interval_note(config),
    )


def _by_kappa(config: SyntheticConfig, results: Results) -> Figure:
    panels = [
        Panel(
            title=f"{spectrum} spectrum",
            lines=[
                _final_line(f"d = {d}", by_kappa, results)
                for d, by_kappa in config.panel_kappa(spectrum).items()
            ],
        )
        for spectrum in config.spectra
    ]
    return plot_panels(
        panels,
        x_label="κ0",
        y_label=_DISTANCE,
        reference_x=(2.0, "where the series stops converging"),
        note=interval_note(config),
    )


def _final_line(label: str, settings: Mapping[Any, Setting], results: Results) -> Line:
    ends = [aggregate(results[setting].distances[:, -1]) for setting in settings.values()]
    return Line(
        label=label,
        x=list(settings),
        mean=[end["mean"] for end in ends],
        low=[end["mean_low"] for end in ends],
        high=[end["mean_high"] for end in ends],
    )
