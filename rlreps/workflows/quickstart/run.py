"""The whole pipeline in one command: ground truth, training, evaluation, pictures, report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlreps.config import as_json
from rlreps.envs import load_arena
from rlreps.errors import require
from rlreps.plotting import Line
from rlreps.report.method_names import method_name
from rlreps.runs.folder import RunFolder
from rlreps.runs.provenance import provenance
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.evaluate import distance_history
from rlreps.workflows.figures import aligned_components
from rlreps.workflows.ground_truths import STORE, generation_figures, own_ground_truth
from rlreps.workflows.quickstart.config import QuickstartConfig
from rlreps.workflows.quickstart.report import RecipeResult, write_quickstart_report
from rlreps.workflows.train import TrainingConfig, run_training

KIND = "quickstart"
RUNS = "runs"


def run_quickstart(config: QuickstartConfig, out: Path, *, progress: bool = True) -> dict[str, Any]:
    """Runs the pipeline in a folder, resuming whatever part was interrupted.

    Args:
        config: A preset.
        out: The run's folder: the store, a folder per training run, figures, ``report.html`` and
            ``summary.json``.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``ground_truth`` and, under ``methods``, each method's headline figures under
        the recommended recipe with all its ``runs``.

    Raises:
        InputError: If the folder holds another run, or a dimension exceeds the matrix's rank.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a training run became non-finite.
    """
    environment = load_arena(config.successor.arena)
    cells = config.successor.num_cells
    require(max(config.dimensions) < cells, f"dimensions below {cells} cells", config.dimensions)
    folder = RunFolder.create_or_resume(
        out, kind=KIND, config=as_json(config), provenance=provenance()
    )
    truth, truth_summary = _ground_truth(config, folder, progress)
    results = {
        "paper": _recipe(config, config.paper_runs(), "paper", folder, truth, progress),
        "recommended": _recipe(
            config, config.recommended_runs(), "recommended", folder, truth, progress
        ),
    }
    summary = {
        "ground_truth": truth_summary,
        "methods": _by_method(config, results),
        "report": str(folder.path / "report.html"),
    }
    write_quickstart_report(config, folder, truth, environment, results, summary)
    folder.write_summary(summary)
    return summary


def _ground_truth(
    config: QuickstartConfig, folder: RunFolder, progress: bool
) -> tuple[GroundTruth, dict[str, Any]]:
    ground = own_ground_truth(config.successor, folder, max(config.dimensions), progress=progress)
    assert ground.noise_floor is not None, "quickstarts use Monte Carlo"
    principal = ground.truth.principal
    return ground.truth, {
        **generation_figures(folder, config.successor),
        "store": str(ground.path),
        "bins": config.successor.bins,
        "singular_values": [float(value) for value in principal.singular_values],
        "energy_captured": [float(value) for value in principal.energy_captured()],
        "standard_error": ground.standard_error,
        "noise_floor": ground.noise_floor.tolist(),
    }


def _recipe(
    config: QuickstartConfig,
    runs: Sequence[TrainingConfig],
    recipe: str,
    folder: RunFolder,
    truth: GroundTruth,
    progress: bool,
) -> RecipeResult:
    result = RecipeResult([], [], {}, {})
    for run in runs:
        method, d = run.objective.name, run.num_features
        out = folder.path / RUNS / f"{recipe}-{method}-d{d}"
        summary = run_training(run, folder.path / STORE, out, truth=truth, progress=progress)
        result.summaries.append({"recipe": recipe, **summary})
        if d == config.headline_dimension:
            steps, distances = distance_history(RunFolder(out))
            result.curves.append(
                Line.of_runs(method_name(str(method)), steps, distances, counted=True)
            )
            aligned, cosines = aligned_components(RunFolder(out), truth, d)
            result.components[method], result.cosines[method] = aligned, cosines
    return result


def _by_method(
    config: QuickstartConfig, results: Mapping[str, RecipeResult]
) -> dict[str, dict[str, Any]]:
    """The summary's ``methods``: headline figures first, every run beside them."""
    methods = {}
    for objective in config.objectives:
        runs = [
            run
            for result in results.values()
            for run in result.summaries
            if run["method"] == objective.name
        ]
        headline = next(
            run
            for run in runs
            if run["recipe"] == "recommended" and run["d"] == config.headline_dimension
        )
        names = (
            "recipe",
            "subspace_distance",
            "relative_excess_loss",
            "d",
            "steps",
            "seconds",
        )
        methods[str(objective.name)] = {**{name: headline[name] for name in names}, "runs": runs}
    return methods
