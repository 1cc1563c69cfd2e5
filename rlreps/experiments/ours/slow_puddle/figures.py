"""The figures of the slow-puddle experiment, each with the numbers behind it."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.envs import load_arena
from rlreps.experiments.ours.slow_puddle.config import Contender, SlowPuddleConfig
from rlreps.experiments.ours.slow_puddle.measures import Learned, successor_distances
from rlreps.experiments.ours.slow_puddle.problem import Problem
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.runs.intervals import aggregate
from rlreps.successor.ground_truth import GroundTruth

Rows: TypeAlias = list[dict[str, object]]
Drawn: TypeAlias = tuple[Rows, Figure]

TRUE = "true slow features"
_LARGEST = 4.0
"""Eigenvalue of slowness that none exceeds."""

_DISTANCE = "subspace distance (0 equal, 1 orthogonal)"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ContenderResult:
    """A contender's finished runs.

    Attributes:
        contender: Its settings.
        history: Records, with ``step``, ``seconds`` of all seeds together and lists over seeds.
        seconds: Training time of all seeds together, without compilation and evaluation.
        diverged: Seeds that diverged.
        learned: What each seed ended with.
    """

    contender: Contender
    history: list[dict[str, Any]]
    seconds: float
    diverged: int
    learned: list[Learned]

    @property
    def name(self) -> str:
        """The contender's name."""
        return self.contender.name

    def final(self, figure: str) -> npt.NDArray[np.float64]:
        """A figure of ``Learned`` of every seed, [seeds, ...]."""
        return np.asarray([getattr(learned, figure) for learned in self.learned])


def draw_curves(config: SlowPuddleConfig, results: Sequence[ContenderResult]) -> dict[str, Drawn]:
    """Distance to the slowest eigenfunctions over training, against updates and against time."""
    rows: Rows = [
        {
            "contender": result.name,
            "d": d,
            "seed": seed,
            "step": record["step"],
            "seconds": record["seconds"],
            "subspace_distance": distance,
        }
        for result in results
        for d in config.dimensions
        for record in result.history
        for seed, distance in enumerate(record[f"distance_{d}"])
    ]

    def figure(x_name: str, x_label: str) -> Figure:
        panels = [
            Panel(
                title=f"slowest {d}",
                lines=[_curve(result, x_name, f"distance_{d}") for result in results],
            )
            for d in config.dimensions
        ]
        return plot_panels(
            panels, x_label=x_label, y_label=_DISTANCE, log_x=True, note=interval_note(config)
        )

    seeds = "1 seed" if config.num_seeds == 1 else f"all {config.num_seeds} seeds"
    return {
        "distance_by_update": (rows, figure("step", "update")),
        "distance_by_time": (rows, figure("seconds", f"training time of {seeds} (s)")),
    }


def _curve(result: ContenderResult, x_name: str, figure: str) -> Line:
    # The first measurement precedes all training: a logarithm has no place for it.
    records = result.history[1:]
    values = aggregate(np.transpose([record[figure] for record in records]))
    return Line(
        label=result.name,
        x=[record[x_name] for record in records],
        mean=values["mean"],
        low=values["mean_low"],
        high=values["mean_high"],
    )


def draw_cosines(config: SlowPuddleConfig, results: Sequence[ContenderResult]) -> Drawn:
    """|cosine| of every eigenfunction with the true one of its place over training."""
    rows: Rows = [
        {
            "contender": result.name,
            "eigenfunction": k,
            "seed": seed,
            "step": record["step"],
            "cosine": cosine,
        }
        for result in results
        for k in range(1, config.num_features + 1)
        for record in result.history
        for seed, cosine in enumerate(record[f"cosine_{k}"])
    ]
    panels = [
        Panel(
            title=f"eigenfunction {k}",
            lines=[_curve(result, "step", f"cosine_{k}") for result in results],
        )
        for k in range(1, config.num_features + 1)
    ]
    figure = plot_panels(
        panels,
        x_label="update",
        y_label="|cosine| with the true eigenfunction of this place",
        log_x=True,
        log_y=False,
        note=interval_note(config),
    )
    return rows, figure


def draw_eigenvalues(
    config: SlowPuddleConfig, problem: Problem, results: Sequence[ContenderResult]
) -> dict[str, Drawn]:
    """Learned eigenvalues beside the true ones at the end of training, and their relative errors.

    A collapsed feature counts with the largest eigenvalue that there can be, 4.
    """
    truth = problem.eigenvalues[: config.num_features]
    numbers = np.arange(1, config.num_features + 1)
    rows: Rows = [
        {
            "contender": result.name,
            "eigenfunction": int(k),
            "seed": seed,
            "true": truth[k - 1],
            "learned": learned.eigenvalues[k - 1],
            "relative_error": learned.eigenvalues[k - 1] / truth[k - 1] - 1.0,
            "matched_cosine": learned.cosines[k - 1],
        }
        for result in results
        for seed, learned in enumerate(result.learned)
        for k in numbers
    ]
    values: list[Line] = []
    errors: list[Line] = []
    for result in results:
        learned = np.nan_to_num(result.final("eigenvalues"), nan=_LARGEST)
        for lines, figures in ((values, learned), (errors, np.abs(learned / truth - 1.0))):
            lines.append(_by_number(result.name, numbers, figures))
    # Last, so that contenders look the same in every figure.
    values.append(Line(label="true", x=numbers, mean=truth, low=truth, high=truth))

    def figure(title: str, lines: list[Line], y_label: str) -> Figure:
        return plot_panels(
            [Panel(title=title, lines=lines)],
            x_label="eigenfunction",
            y_label=y_label,
            x_ticks=numbers.tolist(),
            note=interval_note(config),
        )

    return {
        "eigenvalues": (rows, figure("after training", values, "eigenvalue")),
        "eigenvalue_errors": (rows, figure("after training", errors, "|relative error|")),
    }


def _by_number(name: str, numbers: npt.NDArray[np.int_], figures: npt.NDArray[np.float64]) -> Line:
    """A contender's figures [seeds, numbers] against the numbers."""
    found = aggregate(figures)
    return Line(
        label=name,
        x=numbers,
        mean=found["mean"],
        low=found["mean_low"],
        high=found["mean_high"],
    )


def draw_maps(
    config: SlowPuddleConfig, problem: Problem, results: Sequence[ContenderResult]
) -> Drawn:
    """Eigenfunctions as maps of the arena, the true ones first; of every contender the first seed.

    Signs are the true ones'; nothing is rotated.
    """
    shown = config.shown
    maps = {"true": problem.eigenfunctions[:, :shown]}
    maps |= {result.name: result.learned[0].functions[:, :shown] for result in results}
    measure = problem.measure[:, None]
    cosines = {
        name: np.abs(np.sum(measure * table * maps["true"], axis=0))
        for name, table in maps.items()
        if name != "true"
    }
    rows: Rows = [
        {
            "contender": name,
            "eigenfunction": index + 1,
            "true_eigenvalue": problem.eigenvalues[index],
            "cosine": cosine,
        }
        for name, row in cosines.items()
        for index, cosine in enumerate(row)
    ]
    figure = plotting.plot_components(
        maps,
        bins=config.successor.bins,
        labels=[
            f"{number}: λ = {value:.4f}"
            for number, value in enumerate(problem.eigenvalues[:shown], start=1)
        ],
        environment=load_arena(config.successor.arena),
        cosines=cosines,
    )
    return rows, figure


def draw_successor_distances(
    config: SlowPuddleConfig,
    problem: Problem,
    successor: GroundTruth,
    results: Sequence[ContenderResult],
) -> Drawn:
    """Distance of d slow features to the successor measure's top-d subspace, against d."""
    numbers = np.arange(1, config.num_features + 1)
    floor = successor_distances(problem.eigenfunctions[:, : config.num_features], successor)
    rows: Rows = [
        {"contender": TRUE, "d": int(d), "seed": None, "subspace_distance": floor[d - 1]}
        for d in numbers
    ]
    rows += [
        {
            "contender": result.name,
            "d": int(d),
            "seed": seed,
            "subspace_distance": learned.successor_distances[d - 1],
        }
        for result in results
        for seed, learned in enumerate(result.learned)
        for d in numbers
    ]
    lines = [
        _by_number(result.name, numbers, result.final("successor_distances")) for result in results
    ]
    lines.append(Line(label=TRUE, x=numbers, mean=floor, low=floor, high=floor))
    figure = plot_panels(
        [Panel(title="slow features and the successor measure", lines=lines)],
        x_label="number of features d",
        y_label=_DISTANCE,
        x_ticks=numbers.tolist(),
        note=interval_note(config),
    )
    return rows, figure


def interval_note(config: SlowPuddleConfig) -> str:
    """What bands and bars are."""
    if config.num_seeds == 1:
        return "1 seed"
    return f"mean over {config.num_seeds} seeds, 95 % bootstrap interval"
