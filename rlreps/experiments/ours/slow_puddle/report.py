"""Tables, claims and report of the slow-puddle experiment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlreps.experiments.ours.slow_puddle.claims import compare_with_goals, relative_errors
from rlreps.experiments.ours.slow_puddle.config import Contender, SlowPuddleConfig
from rlreps.experiments.ours.slow_puddle.figures import (
    ContenderResult,
    draw_cosines,
    draw_curves,
    draw_eigenvalues,
    draw_maps,
    draw_successor_distances,
    interval_note,
)
from rlreps.experiments.ours.slow_puddle.measures import successor_distances
from rlreps.experiments.ours.slow_puddle.problem import Problem
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate
from rlreps.successor.ground_truth import GroundTruth


def write_slow_puddle_report(
    config: SlowPuddleConfig,
    folder: RunFolder,
    problem: Problem,
    successor: GroundTruth,
    generated: Mapping[str, Any],
    results: Sequence[ContenderResult],
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary."""
    drawn = {
        **draw_curves(config, results),
        "cosines": draw_cosines(config, results),
        **draw_eigenvalues(config, problem, results),
        "maps": draw_maps(config, problem, results),
        "successor_distance": draw_successor_distances(config, problem, successor, results),
    }
    for name, (rows, figure) in drawn.items():
        write_results(folder, name, rows, figure)
    floor = successor_distances(problem.eigenfunctions[:, : config.num_features], successor)
    claims = compare_with_goals(config, problem, floor, results[0])
    summary = {
        "successor_measure": dict(generated),
        "eigenvalues": problem.eigenvalues.tolist(),
        "true_successor_distances": floor.tolist(),
        "contenders": [_contender_summary(config, problem, result) for result in results],
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="Slow features of PuddleWorld's random walk",
        summary=_abstract(config, results),
        sections=_sections(config, folder, summary, claims),
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _contender_summary(
    config: SlowPuddleConfig, problem: Problem, result: ContenderResult
) -> dict[str, Any]:
    """A contender's figures, for every dimension and seed."""
    distances, successor = result.final("distances"), result.final("successor_distances")
    return {
        **dataclasses.asdict(result.contender),
        "runs": len(result.learned),
        "diverged": result.diverged,
        "seconds": round(result.seconds, 3),
        "subspace_distance": {str(d): aggregate(distances[:, d - 1]) for d in config.dimensions},
        "successor_distance": {str(d): aggregate(successor[:, d - 1]) for d in config.dimensions},
        "per_seed": {
            "subspace_distance": distances.tolist(),
            "successor_distance": successor.tolist(),
            "matched_cosines": result.final("cosines").tolist(),
            "eigenvalues": result.final("eigenvalues").tolist(),
            "largest_eigenvalue_error": relative_errors(problem, result).max(axis=1).tolist(),
        },
    }


def _sections(
    config: SlowPuddleConfig, folder: RunFolder, summary: Mapping[str, Any], claims: Sequence[Claim]
) -> list[Section]:
    return [
        Section(
            title="Goals",
            text="The chain is that of the random policy between the cells of a grid, as it goes "
            "on from cells that were entered; states are drawn uniformly over the cells. The true "
            "slow features are the generalised eigenfunctions L u = λ Σ u of its graph Laplacian "
            "after the constant. Learned ones come from one network with the constant before its "
            "features, in the order of training; distances and cosines are in the measure of Σ.",
            tables=[claims_table(claims, stated="goal")],
        ),
        _curves_section(config, folder, summary),
        _eigenvalues_section(config, folder, summary),
        _maps_section(config, folder),
        _successor_section(config, folder, summary),
    ]


def _curves_section(
    config: SlowPuddleConfig, folder: RunFolder, summary: Mapping[str, Any]
) -> Section:
    rows = [
        (
            each["name"],
            each["action"],
            each["averaging_rate"],
            each["rows"],
            each["steps"],
            each["seconds"],
            *(each["subspace_distance"][str(d)]["mean"] for d in config.dimensions),
            min(map(min, each["per_seed"]["matched_cosines"])),
            each["diverged"],
        )
        for each in summary["contenders"]
    ]
    header = (
        *("contender", "operator", "β", "rows", "updates", "training s"),
        *(f"d = {d}" for d in config.dimensions),
        *("smallest |cos|", "diverged"),
    )
    table = Table(
        header,
        rows,
        f"Mean distance over {config.num_seeds} seeds at each d. Training time is of all seeds "
        "together, without compilation and evaluation. A run that diverged counts with distance 1.",
    )
    captions = {
        "distance_by_update": "Subspace distance to the slowest eigenfunctions against updates",
        "distance_by_time": "The same against training time",
        "cosines": "Each learned eigenfunction against the true one of the same place; where two "
        "eigenvalues lie close together their eigenfunctions turn into each other easily",
    }
    return Section(
        title="Distance to the slowest eigenfunctions",
        tables=[table],
        figures=[
            (folder.figures / f"{name}.png", f"{caption}: {interval_note(config)}.")
            for name, caption in captions.items()
        ],
    )


def _eigenvalues_section(
    config: SlowPuddleConfig, folder: RunFolder, summary: Mapping[str, Any]
) -> Section:
    learned = {
        each["name"]: np.asarray(each["per_seed"]["eigenvalues"], np.float64)
        for each in summary["contenders"]
    }
    rows = [
        (k + 1, f"{value:.5f}", *(f"{table[:, k].mean():.5f}" for table in learned.values()))
        for k, value in enumerate(summary["eigenvalues"][: config.num_features])
    ]
    rows.append(
        (
            f"{config.num_features + 1} (not learned)",
            f"{summary['eigenvalues'][config.num_features]:.5f}",
            *("" for _ in learned),
        )
    )
    return Section(
        title="Eigenvalues",
        text="uᵀLu of the learned eigenfunctions over all states, not estimated from samples.",
        tables=[Table(("eigenfunction", "true", *learned), rows, "Eigenvalues, mean over seeds.")],
        figures=[
            (
                folder.figures / "eigenvalues.png",
                f"Learned eigenvalues and the true ones: {interval_note(config)}.",
            ),
            (
                folder.figures / "eigenvalue_errors.png",
                f"Their relative errors: {interval_note(config)}.",
            ),
        ],
    )


def _maps_section(config: SlowPuddleConfig, folder: RunFolder) -> Section:
    return Section(
        title="Maps",
        figures=[
            (
                folder.figures / "maps.png",
                f"The {config.shown} slowest eigenfunctions over the arena and those that the "
                "first seed of each contender learned, in the order of learning. Signs are "
                "aligned, nothing is rotated; limits are shared down each column. |cos| is the "
                "cosine with the true one.",
            )
        ],
    )


def _successor_section(
    config: SlowPuddleConfig, folder: RunFolder, summary: Mapping[str, Any]
) -> Section:
    floor = summary["true_successor_distances"]
    rows = [("true slow features", *(floor[d - 1] for d in config.dimensions))] + [
        (
            each["name"],
            *(each["successor_distance"][str(d)]["mean"] for d in config.dimensions),
        )
        for each in summary["contenders"]
    ]
    return Section(
        title="The successor measure's subspace",
        text="The successor measure sums powers of the chain, so its leading singular vectors are "
        "nearly the slowest eigenfunctions, but not quite: the chain is not symmetric under "
        "uniform states, and its first step starts anywhere in a cell. What the true slow features "
        "are away from it is what to expect of learned ones. Where two eigenvalues lie close "
        "together, as the first two do in sutton, a span that ends between them is open: distances "
        "at d = 1 say little.",
        tables=[
            Table(
                ("features", *(f"d = {d}" for d in config.dimensions)),
                rows,
                "Distance to the successor measure's top-d left singular subspace, mean over "
                "seeds. Features have their mean over states removed, as the matrix has.",
            )
        ],
        figures=[
            (
                folder.figures / "successor_distance.png",
                f"The same for every d: {interval_note(config)}.",
            )
        ],
    )


def _abstract(config: SlowPuddleConfig, results: Sequence[ContenderResult]) -> str:
    first, d = results[0], config.num_features
    distance = float(first.final("distances")[:, -1].mean())
    return (
        f"{_described(first.contender)}, learns the {d} slowest eigenfunctions after the constant "
        f"to a mean subspace distance of {distance:.4f} over {config.num_seeds} seeds, in "
        f"{first.seconds:,.0f} s of training for all of them."
    )


def _described(contender: Contender) -> str:
    return f"Spectral inference ({contender.name}; {contender.steps:,} updates)"
