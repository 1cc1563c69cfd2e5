"""Training runs on the page: find them, and add what they have learned."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.app.jobs.train import KIND as TRAIN
from rlreps.app.jobs.train_live import KIND as LIVE
from rlreps.app.plots import labelled, rotated
from rlreps.app.trained_runs import (
    ELSEWHERE,
    distance_history,
    features_of,
    trained_elsewhere,
    trained_store,
)
from rlreps.errors import InputError, require, require_value
from rlreps.explore.page import MapGrid, PageArrays
from rlreps.files import read_array
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.representation import KIND as SUCCESSOR
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.released import released_names
from rlreps.successor.truth.store import STORE, find_store
from rlreps.training.on_store import recorded_features


def find_sources(paths: Sequence[Path]) -> tuple[Path, dict[str, Path]]:
    """Find the store and the runs, by label, among the paths."""
    require(len(paths) >= 1, "a store or training runs", "none")
    stores, runs = list[Path](), list[Path]()
    for path in paths:
        if is_released(path) or find_store(path) is not None:
            stores.append(path)
            continue
        require(path.is_dir(), "the folder of a store or of training runs", str(path))
        folder = RunFolder(path)
        if folder.kind in (TRAIN, LIVE, SUCCESSOR):
            runs.append(path)
        elif find_store(path / STORE) is not None:
            stores.append(path / STORE)
            runs += _find_runs(path / "runs")
        else:
            raise InputError(
                f"expected a store, training runs or a folder with both, got {path}, the folder of "
                f"a run of {folder.kind}"
            )
    stores = list(
        dict.fromkeys(store if is_released(store) else store.resolve() for store in stores)
    )
    if not stores:
        trained = [folder for folder in map(RunFolder, runs) if folder.kind == TRAIN]
        place = trained_store(trained[0]) if trained else None
        stores = [require_value(place, f"a store beside {runs[0]}, to compare it with", "none")]
    require(len(stores) == 1, "one store", ", ".join(map(str, stores)))
    return stores[0], dict(labelled(runs))


def is_released(path: Path) -> bool:
    """Tell whether a path is the name of a released ground truth, and nothing lies there."""
    return str(path) in released_names() and not path.exists()


def _find_runs(folder: Path) -> list[Path]:
    """Find the training runs in a folder that have a checkpoint."""
    runs = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(InputError):
            if RunFolder(path).kind == TRAIN and (path / "checkpoints").is_dir():
                runs.append(path)
    return runs


def add_run(
    arrays: PageArrays,
    label: str,
    folder: RunFolder,
    truth: GroundTruth,
    basis: np.ndarray,
    matrix: Mapping[str, Any] | None,
) -> None:
    """Rotate a run's features onto the true components, at every step with stored features.

    Args:
        arrays: Those of the page, to which the run is added.
        label: Name of the run.
        folder: The run.
        truth: The page's ground truth.
        basis: The components on the page, [n, K].
        matrix: Description of the page's matrix; None for a released truth.

    Raises:
        InputError: If the run does not fit the matrix, or has no checkpoint.
    """
    curve = None
    if folder.kind == LIVE:
        measured, own = folder.config["target"], None if matrix is None else matrix["checksum"]
        if measured is None or not recorded_features(folder):
            raise InputError(
                f"expected features that {folder.path} recorded, got none; train-live records them "
                "with a store of the same states (--store)"
            )
        same = measured["checksum"] == own
        require(same, f"the store against which {folder.path} was measured", "another")
    # A run's recorded features and its curve belong to its own states and components.
    elsewhere = trained_elsewhere(folder, matrix)
    if elsewhere:
        label = f"{label}{ELSEWHERE}"
    elif folder.kind == TRAIN:
        steps, distances = distance_history(folder)
        curve = (steps, distances[0])
    components, cosines = {}, {}
    by_step = _load_features(folder, truth, recorded=not elsewhere)
    for step, features in by_step.items():
        components[step], cosines[step] = rotated(features, basis[:, : features.shape[1]])
    visits, fitted = None, folder.kind == SUCCESSOR
    if fitted:
        visits = _count_visits(folder, arrays.cells)
        own, stored = folder.config["discount"], truth.settings.get("discount")
        label += "" if own == stored else f" (discount {own:g})"
    num_features = by_step[max(by_step)].shape[1]
    arrays.add_run(label, num_features, components, cosines, curve, visits, fitted)


def _count_visits(folder: RunFolder, cells: MapGrid) -> np.ndarray | None:
    """Count the rows of a fit's data that start in each state, [n]; None without positions."""
    seen = SuccessorRepresentation.load(folder.path).solution.recorded.observation
    if seen.shape[1:] != (2,) or cells.frames is not None:
        return None
    return np.bincount(cells.grid.cell(seen), minlength=cells.grid.num_cells)[cells.states]


def _read_recorded(file: Path, num_states: int) -> np.ndarray:
    """Read the features [n, d] that a run recorded."""
    features = read_array(file)
    fits = features.ndim == 2 and len(features) == num_states and features.dtype.kind == "f"
    got = f"{features.dtype} {features.shape}"
    require(fits, f"features of {num_states} states in {file}", got)
    return features


def _load_features(
    folder: RunFolder, truth: GroundTruth, *, recorded: bool
) -> dict[int, np.ndarray]:
    """Return the features [n, d] of a run's first seed by step: recorded, or of checkpoints."""
    if folder.kind == SUCCESSOR:
        return {0: np.asarray(features_of(folder, truth), np.float32)}
    files = recorded_features(folder) if recorded else {}
    if files:
        return {step: _read_recorded(file, truth.num_states) for step, file in files.items()}
    steps = Checkpoints(folder.path / "checkpoints", run=folder.identity).steps()
    if not steps:
        raise InputError(f"expected a checkpoint in {folder.path}, got none")
    return {step: np.asarray(features_of(folder, truth, step), np.float32) for step in steps}
