"""The figures of the Atari experiment, each with the numbers behind it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.experiments.pfau_2019.atari.features import MethodFeatures, exciting_averages
from rlreps.experiments.pfau_2019.atari.frames import DoubleArray
from rlreps.experiments.pfau_2019.atari.problem import Problem
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.plotting.style import styled

Rows: TypeAlias = list[dict[str, object]]

_SCREEN_ASPECT = 210 / 160
"""Height over width of the screen that frames were made from."""

_IMAGE_WIDTH = 0.86
"""Inches."""

_SLOWNESS = "slowness eigenvalue (0 still, 2 unrelated)"


def eigenvalue_rows(methods: Sequence[MethodFeatures]) -> Rows:
    """Every feature's eigenvalue on both sets of pairs."""
    return [
        {
            "method": method.label,
            "feature": index + 1,
            "training_eigenvalue": training,
            "held_out_eigenvalue": held_out,
        }
        for method in methods
        for index, (training, held_out) in enumerate(
            zip(method.training_eigenvalues, method.held_out_eigenvalues, strict=True)
        )
    ]


def draw_eigenvalues(methods: Sequence[MethodFeatures]) -> Figure:
    """Eigenvalues against the feature's number, training and held-out side by side."""

    def panel(title: str, eigenvalues: Mapping[str, DoubleArray]) -> Panel:
        return Panel(
            title=title,
            lines=[
                _line(label, np.arange(1, len(values) + 1), values)
                for label, values in eigenvalues.items()
            ],
        )

    return plot_panels(
        [
            panel("training pairs", {each.label: each.training_eigenvalues for each in methods}),
            panel("held-out pairs", {each.label: each.held_out_eigenvalues for each in methods}),
        ],
        x_label="feature",
        y_label=_SLOWNESS,
        x_ticks=list(range(1, len(methods[0].held_out_eigenvalues) + 1)),
    )


def history_rows(history: Sequence[Mapping[str, Any]], count: int) -> Rows:
    """Every feature's eigenvalue at every measurement of the training."""
    return [
        {
            "step": record["step"],
            "seconds": record["seconds"],
            "feature": number,
            **{
                f"{name}_eigenvalue": record[f"{name}_eigenvalue_{number}"][0]
                for name in ("training", "held_out")
            },
        }
        for record in history
        for number in range(1, count + 1)
    ]


def draw_history(history: Sequence[Mapping[str, Any]], count: int) -> Figure:
    """Eigenvalues of the slow features over training."""
    steps = [record["step"] for record in history]
    panels = [
        Panel(
            title=f"{title} pairs",
            lines=[
                _line(
                    f"feature {number}",
                    steps,
                    [record[f"{name}_eigenvalue_{number}"][0] for record in history],
                )
                for number in range(1, count + 1)
            ],
        )
        for name, title in (("training", "training"), ("held_out", "held-out"))
    ]
    return plot_panels(panels, x_label="update", y_label=_SLOWNESS)


def _line(label: str, x: Any, values: Any) -> Line:
    nothing = np.full(len(values), np.nan)
    return Line(label=label, x=x, mean=values, low=nothing, high=nothing)


@styled
def draw_exciting_frames(method: MethodFeatures, problem: Problem) -> Figure:
    """For each feature: the average of the frames that excite it most, and what sets it apart.

    A row of grey averages; then the same less the mean training frame, in colour, and so for the
    frames that excite it least. Colours of a column share one limit.
    """
    averages = exciting_averages(method.values, problem)
    apart = {name: images - problem.mean for name, images in averages.items()}
    count = method.values.shape[1]
    height = _IMAGE_WIDTH * _SCREEN_ASPECT
    figure = Figure(figsize=(2.1 + _IMAGE_WIDTH * count, 0.5 + 3 * height))
    grid = figure.subplots(3, count, squeeze=False, gridspec_kw={"wspace": 0.04, "hspace": 0.04})
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for index in range(count):
        # Pixels are stretched back to the screen's shape.
        shape = {"aspect": _SCREEN_ASPECT, "origin": "upper"}
        grid[0, index].imshow(averages["most"][index], cmap="gray", vmin=0, vmax=255, **shape)
        limit = max(float(np.abs(images[index]).max()) for images in apart.values()) or 1.0
        for axes, images in zip(grid[1:, index], apart.values(), strict=True):
            colours = {"cmap": plotting.signed_colormap(), "vmin": -limit, "vmax": limit}
            axes.imshow(images[index], **colours, **shape)
        grid[0, index].set_title(
            f"{index + 1}\nλ = {method.held_out_eigenvalues[index]:.2g}", fontsize=8.5
        )
    for axes, text in zip(
        grid[:, 0],
        (
            "most excited\n1 % of frames",
            "the same\nless the mean",
            "least excited\nless the mean",
        ),
        strict=True,
    ):
        axes.set_ylabel(text, rotation=0, horizontalalignment="right", verticalalignment="center")
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), plotting.signed_colormap()),
        ax=grid[1:].ravel().tolist(),
        label="brightness relative to\nits column's largest",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=18,
        pad=0.01,
    )
    return figure


def exciting_rows(method: MethodFeatures, problem: Problem) -> Rows:
    """Of each feature: its extremes, and how far the averages are from the mean frame."""
    averages = exciting_averages(method.values, problem)
    return [
        {
            "method": method.label,
            "feature": index + 1,
            "held_out_eigenvalue": method.held_out_eigenvalues[index],
            "smallest_value": method.values[:, index].min(),
            "largest_value": method.values[:, index].max(),
            **{
                f"{name}_apart_from_mean": float(
                    np.sqrt(np.mean(np.square(images[index] - problem.mean)))
                )
                for name, images in averages.items()
            },
        }
        for index in range(method.values.shape[1])
    ]
