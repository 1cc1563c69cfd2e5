"""The figures of the MNIST experiment, each with the numbers behind it."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from rlreps import plotting, subspace
from rlreps.experiments.le_lan_2023.mnist.config import MnistConfig
from rlreps.experiments.le_lan_2023.mnist.problem import (
    DoubleArray,
    Problem,
    reconstruction_errors,
)
from rlreps.plotting import plot_reconstructions, plot_signed_images

Rows: TypeAlias = list[dict[str, object]]


@dataclasses.dataclass(frozen=True, eq=False)
class MethodResult:
    """A method's finished runs.

    Attributes:
        label: Its name, as the figures show it.
        name: Its folder's name.
        entries_per_update: Matrix entries that one update of a run reads.
        history: Records of its runs, with ``step`` and lists over seeds.
        bases: An orthonormal basis [pixels, d] of each seed's features.
        summary: Its ``summary.json``.
    """

    label: str
    name: str
    entries_per_update: int
    history: list[dict[str, Any]]
    bases: list[DoubleArray]
    summary: dict[str, Any]


def draw_curves(config: MnistConfig, results: Sequence[MethodResult]) -> dict[str, Figure]:
    """Subspace distance of every method, against updates and against entries read."""

    def figure(x_label: str, entries: bool) -> Figure:
        return plotting.plot_curves(
            [_curve(result, entries) for result in results],
            x_label=x_label,
            y_label=f"subspace distance to the exact {config.num_components} components",
        )

    return {
        "curves": figure("update", False),
        "curves_by_entries": figure("matrix entries read (millions)", True),
    }


def _curve(result: MethodResult, entries: bool) -> plotting.Line:
    steps = np.asarray([record["step"] for record in result.history])
    return plotting.Line.of_runs(
        result.label,
        steps * (result.entries_per_update / 1e6) if entries else steps,
        np.transpose([record["subspace_distance"] for record in result.history]),
        counted=True,
    )


def curve_rows(results: Sequence[MethodResult]) -> Rows:
    """The numbers behind the curves."""
    return [
        {
            "method": result.name,
            "run": run,
            "step": record["step"],
            "entries_read": record["step"] * result.entries_per_update,
            "seconds": record["seconds"],
            "subspace_distance": distance,
            "test_error_ratio": ratio,
        }
        for result in results
        for record in result.history
        for run, (distance, ratio) in enumerate(
            zip(record["subspace_distance"], record["test_error_ratio"], strict=True)
        )
    ]


def draw_reconstructions(
    config: MnistConfig, problem: Problem, results: Sequence[MethodResult]
) -> tuple[Rows, Figure]:
    """The first test images under exact and learned components (of the first seed)."""
    centred = problem.test[: config.shown_images]
    bases = {"exact PCA": problem.basis, **{each.label: each.bases[0] for each in results}}
    pictures = {"test image": centred.astype(np.float64)}
    pictures |= {label: (centred @ basis) @ basis.T for label, basis in bases.items()}
    errors = {
        label: np.sum(np.square(centred - images), axis=1)
        for label, images in pictures.items()
        if label in bases
    }
    rows: Rows = [
        {"image": index, "components": label, "squared_error": float(error)}
        for label, row in errors.items()
        for index, error in enumerate(row)
    ]
    notes = {
        label: f"error {reconstruction_errors(problem.test, basis).mean():.2f}"
        for label, basis in bases.items()
    }
    shown = {
        label: (images + problem.mean).reshape(-1, *problem.shape)
        for label, images in pictures.items()
    }
    return rows, plot_reconstructions(shown, notes=notes)


def draw_components(problem: Problem, shown: Sequence[MethodResult]) -> tuple[Rows, Figure]:
    """Exact components above those of some methods, aligned to them (first seed)."""
    count = problem.basis.shape[1]
    pictures, cosines = {"exact PCA": problem.basis}, {}
    for result in shown:
        aligned = np.asarray(subspace.align(result.bases[0].astype(np.float32), problem.basis))
        pictures[result.label] = aligned.astype(np.float64)
        cosines[result.label] = np.abs(np.sum(aligned * problem.basis, axis=0))
    rows: Rows = [
        {"method": result.name, "component": index + 1, "cosine": float(cosine)}
        for result in shown
        for index, cosine in enumerate(cosines[result.label])
    ]
    images = {label: basis.T.reshape(-1, *problem.shape) for label, basis in pictures.items()}
    titles = [str(number) for number in range(1, count + 1)]
    return rows, plot_signed_images(images, titles=titles, cosines=cosines)
