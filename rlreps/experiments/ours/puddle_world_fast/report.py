"""Figures, tables and report of the time-to-distance experiment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps.experiments.ours.puddle_world_fast.config import PuddleWorldFastConfig
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate

_DISTANCE = "subspace distance (0 equal, 1 orthogonal)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FastRun:
    """One seed of one recipe at one d.

    Attributes:
        recipe: The recipe's name.
        d: Number of features.
        seed: The seed.
        steps: Updates at which it was measured, [p].
        seconds: Seconds of training until then, without compilation and evaluation, [p].
        distances: Subspace distances, [p].
        diverged: Whether it diverged; its distance is 1 then.
        released_distance: Final distance to the released ground truth, where it is of the same
            process.
    """

    recipe: str
    d: int
    seed: int
    steps: Sequence[int]
    seconds: Sequence[float]
    distances: Sequence[float]
    diverged: bool
    released_distance: float | None


def write_fast_report(
    config: PuddleWorldFastConfig,
    folder: RunFolder,
    generated: Mapping[str, Any],
    runs: Sequence[FastRun],
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary."""
    rows = [_final_row(run) for run in runs]
    write_results(folder, "distance_by_dimension", rows, _by_dimension(config, runs))
    write_results(folder, "distance_by_time", _time_rows(runs), _by_time(config, runs))
    claims = [*_goals(config, runs), *compare_at_equal_time(config, runs)]
    summary = {
        "ground_truth": dict(generated),
        "runs": rows,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="PuddleWorld: time to a given subspace distance",
        summary=_abstract(config, runs),
        sections=_sections(folder, rows, claims, config),
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _final_row(run: FastRun) -> dict[str, Any]:
    return {
        "recipe": run.recipe,
        "d": run.d,
        "seed": run.seed,
        "updates": run.steps[-1],
        "seconds": run.seconds[-1],
        "subspace_distance": run.distances[-1],
        "released_distance": run.released_distance,
        "diverged": run.diverged,
    }


def _time_rows(runs: Sequence[FastRun]) -> list[dict[str, Any]]:
    return [
        {
            "recipe": run.recipe,
            "d": run.d,
            "seed": run.seed,
            "step": step,
            "seconds": seconds,
            "subspace_distance": distance,
        }
        for run in runs
        for step, seconds, distance in zip(run.steps, run.seconds, run.distances, strict=True)
    ]


def _of(runs: Sequence[FastRun], recipe: str, d: int) -> list[FastRun]:
    return [run for run in runs if run.recipe == recipe and run.d == d]


def _by_dimension(config: PuddleWorldFastConfig, runs: Sequence[FastRun]) -> Figure:
    lines = []
    for recipe in config.recipes:
        ends = [
            aggregate([run.distances[-1] for run in _of(runs, recipe.name, d)])
            for d in config.dimensions
        ]
        lines.append(
            Line(
                label=recipe.name,
                x=config.dimensions,
                mean=[end["mean"] for end in ends],
                low=[end["mean_low"] for end in ends],
                high=[end["mean_high"] for end in ends],
            )
        )
    return plot_panels(
        [Panel(title="after training", lines=lines)],
        x_label="number of features d",
        y_label=_DISTANCE,
        log_x=True,
        x_ticks=config.dimensions,
        note=_note(config),
    )


def _by_time(config: PuddleWorldFastConfig, runs: Sequence[FastRun]) -> Figure:
    panels = []
    for d in config.dimensions:
        lines = []
        for recipe in config.recipes:
            seeds = _of(runs, recipe.name, d)
            curve = aggregate([run.distances for run in seeds])
            # The first measurement precedes all training: a logarithm has no place for it.
            lines.append(
                Line(
                    label=recipe.name,
                    x=np.mean([run.seconds for run in seeds], axis=0)[1:],
                    mean=curve["mean"][1:],
                    low=curve["mean_low"][1:],
                    high=curve["mean_high"][1:],
                )
            )
        panels.append(Panel(title=f"d = {d}", lines=lines))
    return plot_panels(
        panels, x_label="training time (s)", y_label=_DISTANCE, log_x=True, note=_note(config)
    )


def _note(config: PuddleWorldFastConfig) -> str:
    return (
        f"mean over {config.num_seeds} seeds, 95 % bootstrap interval; a run that diverged counts 1"
    )


def _mean_end(runs: Sequence[FastRun]) -> tuple[float, float]:
    """(mean final distance, mean seconds)."""
    return (
        float(np.mean([run.distances[-1] for run in runs])),
        float(np.mean([run.seconds[-1] for run in runs])),
    )


def _goals(config: PuddleWorldFastConfig, runs: Sequence[FastRun]) -> list[Claim]:
    claims = []
    for goal in config.goals:
        if goal.d not in config.dimensions:
            continue
        distance, seconds = _mean_end(_of(runs, config.recipes[0].name, goal.d))
        claims.append(
            Claim(
                statement=f"d = {goal.d}: {config.recipes[0].name}",
                paper=f"{goal.distance:g} within {goal.seconds:g} s",
                found=f"{distance:.4f} after {seconds:.1f} s",
                holds=distance <= goal.distance and seconds <= goal.seconds,
            )
        )
    return claims


def compare_at_equal_time(config: PuddleWorldFastConfig, runs: Sequence[FastRun]) -> list[Claim]:
    """Danskin-LISSA's distance over the winner's at every d, where both have trained as long.

    It cannot be told where it is within the factor after more than 1.05 times the winner's time,
    nor where it is beyond after less than 0.95 times.
    """
    winner, danskin = config.recipes[0].name, config.recipes[1].name
    claims = []
    for d in config.dimensions:
        distance, seconds = _mean_end(_of(runs, winner, d))
        other, other_seconds = _mean_end(_of(runs, danskin, d))
        ratio = other / max(distance, 1e-12)
        within = ratio <= config.factor
        # More time could make up for a larger distance, or be what made it smaller.
        fair = other_seconds <= 1.05 * seconds if within else other_seconds >= 0.95 * seconds
        claims.append(
            Claim(
                statement=f"d = {d}: {danskin}",
                paper=f"within {config.factor:g} times {winner} at equal time",
                found=f"{other:.4f} after {other_seconds:.1f} s against {distance:.4f} after "
                f"{seconds:.1f} s: {ratio:.2f} times",
                holds=within if fair else None,
            )
        )
    return claims


def _sections(
    folder: RunFolder,
    rows: Sequence[Mapping[str, Any]],
    claims: Sequence[Claim],
    config: PuddleWorldFastConfig,
) -> list[Section]:
    header = ("recipe", "d", "seed", "updates", "training s", "distance", "to sutton-100", "")
    table = Table(
        header,
        [
            (
                *(row[name] for name in ("recipe", "d", "seed", "updates", "seconds")),
                row["subspace_distance"],
                row["released_distance"],
                "diverged" if row["diverged"] else "",
            )
            for row in rows
        ],
        "Every run. Training time is without compilation and evaluation; the distance is to the "
        "subspace of the matrix that was trained on, then to the released ground truth.",
    )
    return [
        Section(title="Goals", tables=[claims_table(claims, stated="goal")]),
        Section(
            title="Distance against training time",
            figures=[
                (
                    folder.figures / "distance_by_time.png",
                    f"Subspace distance against time spent in updates, for every d: "
                    f"{_note(config)}.",
                )
            ],
        ),
        Section(
            title="Distance against the number of features",
            figures=[
                (
                    folder.figures / "distance_by_dimension.png",
                    f"Subspace distance at the end of training: {_note(config)}.",
                )
            ],
            tables=[table],
        ),
    ]


def _abstract(config: PuddleWorldFastConfig, runs: Sequence[FastRun]) -> str:
    seconds = sum(run.seconds[-1] for run in runs)
    return (
        f"{len(config.recipes)} recipes at d = {', '.join(map(str, config.dimensions))}, "
        f"{config.num_seeds} seeds each, trained one at a time: {seconds:,.0f} s of training in "
        "all. Every update draws its entries afresh; nothing is trained on the ground truth's "
        "singular vectors."
    )
