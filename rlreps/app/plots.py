"""Single figures from stores and runs: what ``rlreps plot`` draws."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array
from matplotlib.figure import Figure

from rlreps import plotting, subspace
from rlreps.app.jobs.train import KIND
from rlreps.app.options import Choice
from rlreps.app.trained_runs import (
    ELSEWHERE,
    distance_history,
    features_of,
    load_config,
    trained_elsewhere,
    trained_store,
)
from rlreps.envs import load_arena
from rlreps.errors import require, require_positive
from rlreps.plotting.images import as_frames
from rlreps.plotting.maps import cell_means
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.states import environment_of
from rlreps.successor.truth.store import open_store
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import DEFAULT_DECOMPOSITION, principal_subspace
from rlreps.training.on_store import describe_matrix, ground_truth_for

MOST_DRAWN_BINS = 1000

_MOST_NUMBERS, _STATES_A_CELL = 30, 4
"""Most numbers of an observation among which two are chosen for maps, and states in a cell."""


CHOICES: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}


def draw_environment(
    out: Path,
    arena: str = "sutton",
    bins: int | None = None,
    goal: tuple[float, float, float] | None = None,
) -> Path:
    """Draw an arena.

    Args:
        out: Figure file (.png, .svg or .pdf).
        arena: Name of an arena, or path of a TOML file.
        bins: Also draw the cells of a bins x bins grid; none by default.
        goal: Also draw a goal, a disc (x, y, radius); none by default.
    """
    require(bins is None or bins <= MOST_DRAWN_BINS, f"bins <= {MOST_DRAWN_BINS} to draw", bins)
    plotting.require_figure(out)
    environment = load_arena(arena, **({} if goal is None else {"goal": goal}))
    return plotting.save_figure(plotting.plot_environment(environment, bins=bins), out)


def draw_spectrum(store: Path, out: Path, config: Decomposition = DEFAULT_DECOMPOSITION) -> Path:
    """Draw the singular values of a store and the energy they capture.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        config: How the principal subspace is computed.
    """
    plotting.require_figure(out)
    principal = principal_subspace(open_store(store), config)
    figure = plotting.plot_spectrum(principal.singular_values, principal.total_energy)
    return plotting.save_figure(figure, out)


def draw_components(
    store: Path,
    out: Path,
    runs: tuple[Path, ...] = (),
    d: int = 10,
) -> Path:
    """Draw the leading principal components of a store, and those that runs have learned.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        runs: Training runs to draw beside the ground truth, aligned to it.
        d: Number of components.

    Raises:
        InputError: If d exceeds the components of the store, a run has fewer than d features, or a
            tabular encoder learned from another matrix.
    """
    require_positive("d", d)
    plotting.require_figure(out)
    truth = ground_truth_for(store, d)
    matrix, folders = describe_matrix(open_store(store)), dict[str, RunFolder]()
    for label, run in labelled(runs):
        folder = RunFolder(run)
        folders[label + ELSEWHERE * trained_elsewhere(folder, matrix)] = folder
    return plotting.save_figure(plot_learned_components(truth, folders, d), out)


def plot_learned_components(truth: GroundTruth, runs: Mapping[str, RunFolder], d: int) -> Figure:
    """Draw d leading components above the components that runs have learned, by label.

    A game's components are maps over the first two coordinates for each value of the others. A
    game without coordinates shows the frames at both ends of each component, or maps over two
    numbers of its observations.
    """
    components, cosines = {"ground truth": truth.principal.truncated(d).basis}, {}
    for label, folder in runs.items():
        components[label], cosines[label] = aligned_components(folder, truth, d)
    grid, seen = truth.grid, truth.observed
    if grid is not None and len(grid.bins) > 2 and truth.cells is not None and seen is not None:
        values = truth.settings.get("values", {})
        return plotting.plot_slices(
            components, grid=grid, cells=truth.cells, values=values, cosines=cosines
        )
    frames = None if seen is None else as_frames(np.asarray(seen))
    if grid is not None and len(grid.bins) == 1 and frames is not None:
        return plotting.plot_extremes(components["ground truth"], frames)
    placed = None if seen is None else _telling_places(np.asarray(seen), components["ground truth"])
    if grid is not None and len(grid.bins) == 1 and placed is not None:
        grid, cells = placed
        return plotting.plot_components(components, grid=grid, cells=cells, cosines=cosines)
    return plotting.plot_components(
        components,
        grid=truth.grid,
        cells=truth.cells,
        environment=environment_of(truth.settings),
        cosines=cosines,
    )


def _telling_places(
    observations: np.ndarray, components: np.ndarray
) -> tuple[BoxGrid, np.ndarray] | None:
    """Return cells over two numbers of observations [n, p], and the cell of each state, [n].

    The means over these cells, at least some four states to a cell, explain more of the components
    than those over any other two. None if fewer than two of the numbers take more than two values.
    """
    if observations.ndim != 2:
        return None
    numbers = observations.astype(np.float64)
    varied = [i for i in range(numbers.shape[1]) if len(np.unique(numbers[:, i])) > 2]
    if not 2 <= len(varied) <= _MOST_NUMBERS:
        return None
    most = max(4, round(math.sqrt(len(numbers) / _STATES_A_CELL)))

    def place(pair: tuple[int, int]) -> tuple[float, BoxGrid, np.ndarray]:
        names = [f"number {i + 1} of the observation" for i in pair]
        grid = BoxGrid.spanning(numbers[:, pair], names, most=most)
        cells = np.asarray(grid.cell(numbers[:, pair]))
        means = cell_means(components, cells, grid.num_cells)
        unexplained = float(np.square(components - means[cells]).sum())
        # Adjusted for the number of cells, since means over more cells explain more by chance.
        return unexplained / max(1, len(numbers) - len(np.unique(cells))), grid, cells

    _, grid, cells = min(map(place, itertools.combinations(varied, 2)), key=lambda each: each[0])
    return grid, cells


def aligned_components(
    folder: RunFolder, truth: GroundTruth, d: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rotate a run's components within their span onto the true ones.

    These are the components of the first seed at the run's newest checkpoint, or of a successor
    representation.

    Returns:
        The components [n, d] and each one's |cosine| [d] with the true component.

    Raises:
        InputError: If the run has fewer than d features.
    """
    features = features_of(folder, truth)
    available = features.shape[1]
    require(d <= available, f"d <= {available}, the features of {folder.path}", d)
    return rotated(features, truth.principal.truncated(d).basis)


def rotated(features: Array | np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotate features [n, d] within their span onto a basis [n, k]; return |cosines| [k] too."""
    aligned = np.asarray(subspace.align(features, basis))
    return aligned, np.abs(np.sum(aligned * basis, axis=0))


def draw_coverage(run_folder: Path, out: Path, coordinates: tuple[int, ...] = (0, 1)) -> Path:
    """Draw how many observations in the data of a fit lie in each part of the world.

    Args:
        run_folder: Folder of the fit, to indices of states or to vectors.
        out: Figure file (.png, .svg or .pdf).
        coordinates: One or two coordinates of the vectors, counted from 0.

    Raises:
        InputError: If the folder holds no fit, or its observations have no such coordinates.
    """
    plotting.require_figure(out)
    seen = SuccessorRepresentation.load(run_folder).solution.recorded.observation
    if seen.ndim == 1:
        return plotting.save_figure(plotting.plot_coverage(seen, names=["state"]), out)
    require(seen.ndim == 2, "indices of states or vectors", f"observations {seen.shape[1:]}")
    chosen, count = coordinates[: seen.shape[1]], seen.shape[1]
    known = 1 <= len(chosen) <= 2 and all(0 <= each < count for each in chosen)
    require(known, f"one or two coordinates in [0, {count})", coordinates)
    names = [f"coordinate {each}" for each in chosen]
    return plotting.save_figure(plotting.plot_coverage(seen[:, list(chosen)], names=names), out)


def draw_curves(runs: tuple[Path, ...], out: Path) -> Path:
    """Draw the learning curves of training runs.

    Args:
        runs: Folders of training runs.
        out: Figure file (.png, .svg or .pdf).
    """
    require(len(runs) >= 1, "at least one training run", list(runs))
    plotting.require_figure(out)
    folders = {label: RunFolder(run) for label, run in labelled(runs)}
    figure = plot_distances(folders, _common_noise_floor([*folders.values()]))
    return plotting.save_figure(figure, out)


def plot_distances(runs: Mapping[str, RunFolder], noise_floor: float | None) -> Figure:
    """Draw the learning curves of training runs, by label."""
    curves = [
        plotting.Line.of_runs(label, *distance_history(run), within=(0.0, 1.0))
        for label, run in runs.items()
    ]
    return plotting.plot_curves(
        curves, x_label="update", y_label="subspace distance", noise_floor=noise_floor
    )


def _common_noise_floor(folders: Sequence[RunFolder]) -> float | None:
    """Find the noise floor of all runs; None unless they share d and one sampled matrix."""
    if any(folder.kind != KIND for folder in folders):
        return None
    dimensions = {load_config(folder).num_features for folder in folders}
    stores = {trained_store(folder) for folder in folders}
    if len(dimensions) > 1 or len(stores) > 1 or None in stores:
        return None
    (d,), (store,) = dimensions, stores
    assert store is not None
    error = sampling_error(open_estimates(store), progress=progress_bar)
    return None if error is None else error.floor(d)


def labelled(runs: Sequence[Path]) -> list[tuple[str, Path]]:
    """Label each run by its folder's name, or by its path if two folders share a name."""
    names = [run.resolve().name for run in runs]
    unique = len(set(names)) == len(names)
    return [(name if unique else str(run), run) for name, run in zip(names, runs, strict=True)]
