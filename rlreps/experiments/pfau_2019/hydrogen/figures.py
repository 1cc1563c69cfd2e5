"""Figures of the hydrogen experiment."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from rlreps.experiments.pfau_2019.hydrogen.closed_form import energies, level_slices
from rlreps.experiments.pfau_2019.hydrogen.config import NUM_FEATURES, HydrogenConfig
from rlreps.plotting import Line, Panel, plot_panels, plot_signed_images
from rlreps.runs.intervals import aggregate

if TYPE_CHECKING:
    from rlreps.experiments.pfau_2019.hydrogen.report import ContenderResult

_SHOWN = 0.5
"""Share of the box's width that the wavefunctions are shown in."""


def draw_wavefunctions(config: HydrogenConfig, sets: Mapping[str, np.ndarray]) -> Figure:
    """The nine wavefunctions of each set [points², 9] in the middle of the box, y upwards."""
    points = config.grid_points
    margin = round(points * (1.0 - _SHOWN) / 2.0)
    middle = slice(margin, points - margin)
    images = {
        name: functions.T.reshape(NUM_FEATURES, points, points)[:, ::-1][:, middle, middle]
        for name, functions in sets.items()
    }
    exact = energies()
    titles = [_fraction(exact[index]) for index in range(NUM_FEATURES)]
    return plot_signed_images(images, titles=titles)


def _fraction(energy: float) -> str:
    whole = round(-1.0 / energy)
    return "−1" if whole == 1 else f"−1/{whole}"


def draw_energies(config: HydrogenConfig, results: Sequence["ContenderResult"]) -> Figure:
    """Energies of the nine features during training, beside the closed form."""
    panels = []
    for result in results:
        steps = [record["step"] for record in result.history][1:]
        history = result.energy_history()[1:]
        lines = []
        for level, where in enumerate(level_slices()):
            for index in range(where.start, where.stop):
                bands = aggregate(-history[:, :, index].T)
                lines.append(
                    Line(
                        label=_level_label(level),
                        x=steps,
                        mean=bands["mean"],
                        low=bands["mean_low"],
                        high=bands["mean_high"],
                    )
                )
        panels.append(Panel(title=result.contender.name, lines=lines))
    return plot_panels(
        panels,
        x_label="updates",
        y_label="binding energy −E",
        reference_y=([-energy for energy in sorted(set(energies()))], "closed form"),
        note=_note(config) + "; one line for each feature, where it is bound",
        y_limits=(0.01, 2.0),
    )


def _level_label(level: int) -> str:
    where = level_slices()[level]
    if where.stop - where.start == 1:
        return f"feature {where.start + 1}"
    return f"features {where.start + 1} to {where.stop}"


def draw_errors(config: HydrogenConfig, results: Sequence["ContenderResult"]) -> Figure:
    """The largest relative error of the nine energies during training."""
    lines = []
    for result in results:
        bands = aggregate(np.transpose([record["worst_error"] for record in result.history[1:]]))
        lines.append(
            Line(
                label=result.contender.name,
                x=[record["step"] for record in result.history][1:],
                mean=bands["mean"],
                low=bands["mean_low"],
                high=bands["mean_high"],
            )
        )
    return plot_panels(
        [Panel(title="nine energies", lines=lines)],
        x_label="updates",
        y_label="largest relative error",
        reference_y=([config.tolerance], f"{config.tolerance:.0%}"),
        note=_note(config),
    )


def _note(config: HydrogenConfig) -> str:
    return f"mean over {config.num_seeds} seeds, 95 % bootstrap interval"
