"""Figures, tables and report of the PuddleWorld experiment."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.envs import load_arena
from rlreps.experiments.le_lan_2023.puddle_world.config import PRESETS, PuddleWorldConfig
from rlreps.experiments.results import Claim, all_hold, claims_table, mean_distance, write_results
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.report.method_names import method_name
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate
from rlreps.workflows.ground_truths import OwnGroundTruth

_DISTANCE = "subspace distance (0 equal, 1 orthogonal)"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MethodResult:
    """What became of one method.

    Attributes:
        steps: Updates at which it was measured, [p].
        distances: d → subspace distances, [seeds, p].
        diverged: d → how many runs diverged; their distance is 1.
        aligned: Components of the headline d, first seed, rotated onto the true ones, [n, d].
        evaluation: ``evaluate_features`` of the same run.
        seconds: Time spent in updates of all d and seeds.
    """

    steps: npt.NDArray[np.int64]
    distances: dict[int, npt.NDArray[np.float64]]
    diverged: dict[int, int]
    aligned: npt.NDArray[np.float32]
    evaluation: dict[str, Any]
    seconds: float


Results = Mapping[str, MethodResult]


def write_puddle_world_report(
    config: PuddleWorldConfig,
    folder: RunFolder,
    ground: OwnGroundTruth,
    generated: Mapping[str, Any],
    results: Results,
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary."""
    rows = [
        {
            "method": name,
            "d": d,
            "step": int(result.steps[-1]),
            "diverged": result.diverged[d],
            "noise_floor": ground.floor(d),
            **aggregate(distances[:, -1]),
        }
        for name, result in results.items()
        for d, distances in result.distances.items()
    ]
    write_results(folder, "distance_by_dimension", rows, _by_dimension(config, ground, results))
    write_results(folder, "curves", _curve_rows(results), _curves(config, results))
    write_results(
        folder, "components", _component_rows(results), _components(config, ground, results)
    )
    claims = compare_with_paper(config, results)
    summary = {
        "ground_truth": {**generated, "standard_error": ground.standard_error},
        "distances": rows,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "seconds": {name: round(result.seconds, 3) for name, result in results.items()},
        "report": str(folder.path / "report.html"),
    }
    write_report(
        folder.path / "report.html",
        title="PuddleWorld under the paper's protocol",
        summary=_abstract(config, results),
        sections=_sections(config, folder, rows, claims),
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _line(label: str, x: npt.ArrayLike, values: npt.ArrayLike) -> Line:
    """A line through the means of values [seeds, p]."""
    found = aggregate(values)
    return Line(
        label=label, x=x, mean=found["mean"], low=found["mean_low"], high=found["mean_high"]
    )


def _by_dimension(config: PuddleWorldConfig, ground: OwnGroundTruth, results: Results) -> Figure:
    lines = [
        _line(
            method_name(name),
            config.dimensions,
            np.stack([result.distances[d][:, -1] for d in config.dimensions], axis=1),
        )
        for name, result in results.items()
    ]
    floor = None
    if ground.noise_floor is not None:
        first, last = min(config.dimensions), max(config.dimensions)
        d = np.arange(first, min(last, len(ground.noise_floor)) + 1)
        floor = (d, ground.noise_floor[d - 1])
    return plot_panels(
        [Panel(title=f"after {config.training.steps:,} updates", lines=lines, noise_floor=floor)],
        x_label="number of features d",
        y_label=_DISTANCE,
        log_x=True,
        x_ticks=config.dimensions,
        note=_note(config),
    )


def _curves(config: PuddleWorldConfig, results: Results) -> Figure:
    panels = [
        Panel(
            title=method_name(name),
            lines=[
                _line(f"d = {d}", result.steps, distances)
                for d, distances in result.distances.items()
            ],
        )
        for name, result in results.items()
    ]
    return plot_panels(panels, x_label="update", y_label=_DISTANCE, note=_note(config))


def _components(config: PuddleWorldConfig, ground: OwnGroundTruth, results: Results) -> Figure:
    basis = ground.truth.principal.truncated(config.headline_dimension).basis
    maps = {"ground truth": basis}
    maps |= {method_name(name): result.aligned for name, result in results.items()}
    return plotting.plot_components(
        maps,
        bins=config.successor.bins,
        environment=load_arena(config.successor.arena),
        cosines={
            method_name(name): np.abs(np.sum(result.aligned * basis, axis=0))
            for name, result in results.items()
        },
    )


def _curve_rows(results: Results) -> list[dict[str, Any]]:
    rows = []
    for name, result in results.items():
        for d, distances in result.distances.items():
            found = aggregate(distances)
            for index, step in enumerate(result.steps):
                point = {key: float(part[index]) for key, part in found.items() if key != "runs"}
                rows.append({"method": name, "d": d, "step": int(step), **point})
    return rows


def _component_rows(results: Results) -> list[dict[str, Any]]:
    """Principal angles and matched cosines of the run whose components are drawn."""
    return [
        {
            "method": name,
            "component": index + 1,
            "matched_cosine": cosine,
            "principal_angle": result.evaluation["principal_angles"][index],
        }
        for name, result in results.items()
        for index, cosine in enumerate(result.evaluation["matched_cosines"])
    ]


def compare_with_paper(config: PuddleWorldConfig, results: Results) -> list[Claim]:
    """The paper's ordering at every d, beside the one that was found.

    A run of fewer updates than the paper's is on its way: its ordering decides nothing. Nor does
    one between means over seeds whose intervals overlap.
    """
    whole = config.training.steps >= PRESETS["paper"].training.steps
    claims = []
    for d in config.dimensions:
        ends = {name: mean_distance(result.distances[d][:, -1]) for name, result in results.items()}
        nearest_first = sorted(ends, key=lambda name: ends[name].mean)
        verdict = all_hold(
            ends["danskin_lissa"].below(ends[name])
            for name in ends
            if name != "danskin_lissa" and "danskin_lissa" in ends
        )
        claims.append(
            Claim(
                statement=f"methods at d = {d} after {config.training.steps:,} updates",
                paper="Danskin-LISSA ends closer than explicit weights and large batch",
                found=", ".join(
                    f"{method_name(name)} {ends[name].mean:.3f}" for name in nearest_first
                ),
                holds=verdict if whole else None,
            )
        )
    return claims


def _note(config: PuddleWorldConfig) -> str:
    return (
        f"mean over {config.training.num_seeds} seeds, 95 % bootstrap interval; "
        "a run that diverged counts 1"
    )


def _sections(
    config: PuddleWorldConfig, folder: RunFolder, rows: list[dict[str, Any]], claims: list[Claim]
) -> list[Section]:
    header = ("method", "d", "distance", "low", "high", "middle half", "noise floor", "diverged")
    table = Table(
        header,
        [
            (
                method_name(row["method"]),
                row["d"],
                row["mean"],
                row["mean_low"],
                row["mean_high"],
                row["interquartile_mean"],
                row["noise_floor"],
                f"{row['diverged']} of {row['runs']}",
            )
            for row in rows
        ],
        f"Subspace distance after {config.training.steps:,} updates: {_note(config)}. The middle "
        "half is the interquartile mean.",
    )
    figures = {
        "distance_by_dimension": "Subspace distance against the number of features. The dashed "
        "line is the error of the ground truth itself.",
        "curves": "Subspace distance during training.",
        "components": f"The {config.headline_dimension} leading principal components (top row) and "
        "those learned by the first seed of each method, rotated within their span onto the true "
        "ones. |cos| is the cosine with the true component.",
    }
    return [
        Section(title="Against the paper", tables=[claims_table(claims)]),
        Section(
            title="Distances",
            tables=[table],
            figures=[
                (folder.figures / f"{name}.png", caption) for name, caption in figures.items()
            ],
        ),
    ]


def _abstract(config: PuddleWorldConfig, results: Results) -> str:
    training, published = config.training, PRESETS["paper"].training.steps
    seconds = sum(result.seconds for result in results.values())
    runs = len(config.dimensions) * training.num_seeds
    hidden = " x ".join(map(str, getattr(training.encoder, "hidden", ())))
    fewer = (
        ""
        if training.steps >= published
        else f" The paper takes {published:,} updates; this run took {training.steps:,}, "
        f"{published / training.steps:,.0f} times fewer, so its methods are compared on the way."
    )
    return (
        f"A ReLU network of hidden widths {hidden} on raw coordinates, Adam at "
        f"{training.optimizer.learning_rate:g}, {training.rows} states and one task "
        f"an update. {runs} runs of each method trained together, {seconds:,.0f} s in all.{fewer}"
    )
