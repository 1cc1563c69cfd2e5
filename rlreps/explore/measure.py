"""The page of ``rlreps explore``, from a store and from training runs."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.sparse
from matplotlib.transforms import Affine2D

from rlreps.app.evaluate import (
    distance_history,
    features_of,
    load_config,
    trained_store,
)
from rlreps.app.figures import labelled, rotated
from rlreps.app.jobs.train import KIND as TRAIN
from rlreps.app.jobs.train import MATRIX
from rlreps.config import from_json
from rlreps.encoders import Tabular
from rlreps.errors import InputError, reason_of, require, require_positive
from rlreps.explore.low_rank import STEPS, LowRank, solve_rows
from rlreps.explore.page import Arrays, Frames, MapGrid, render_page, round_numbers
from rlreps.files import DAMAGED, read_array, require_output, write_atomically
from rlreps.plotting.images import as_frames
from rlreps.plotting.puddle_world import ACTIONS, ARROWS, outline
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.subspace import centring_means
from rlreps.subspace.svd import DEFAULT_RANK, PrincipalSubspace, RandomizedSVD
from rlreps.successor.fitting.representation import KIND as SUCCESSOR
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.measure.grids import BoxGrid, Grid
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.truth.ground_truth import (
    GroundTruth,
    environment_of,
    read_states,
    state_cells,
)
from rlreps.successor.truth.released import load, released_names
from rlreps.successor.truth.store import STORE, MatrixStore, find_store, open_store
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import centring_of, principal_subspace, sampling_error
from rlreps.training.stored import describe_matrix, recorded_features

_MOST_ROWS_KEPT = 1600
"""Largest number of states for which the page holds the whole matrix, with 16 bits per entry."""

_MOST_FRAMES = _MOST_ROWS_KEPT
"""Largest number of states that a page shows by their frames."""

_POINTS = 1024
"""Moves from each state by each action; their standard error is below that of 1,000 draws."""


_ROWS_MEASURED = 100
"""Number of rows with which the page's own rows are compared."""


def explore(paths: tuple[Path, ...], out: Path, components: int = 50, frames: int = 400) -> Path:
    """Write one self-contained, interactive page of a successor measure.

    States are cells of a plane or, if the store keeps what an encoder sees of them, frames.
    If a run was trained on another matrix, its label says so. Its checkpoints are evaluated at the
    states of this matrix, and its learning curve is left out.

    Args:
        paths: A store or a released ground truth (sutton-100), training runs on it, or the folder
            of a quickstart, which holds both. Without a store, the store of the first run is used.
        out: The page (.html); it needs no server and no network.
        components: Number of principal components on the page, and largest number for each run.
        frames: Most states that are shown by their frames; of more, evenly spaced ones are.

    Returns:
        The path of the page.

    Raises:
        InputError: If there is no such store or run, the matrix is not states by states over a grid
            in the plane and its states have no frames, or a run does not fit the matrix.
    """
    require(out.suffix == ".html", "a page's file ending in .html", str(out))
    require_output(out, file=True)
    require_positive("components", components)
    require_positive("frames", frames, 2, _MOST_FRAMES)
    path, runs = _find_sources(paths)
    if _is_released(path):
        page, matrix = _make_released_page(path.name, components), None
    else:
        store = open_store(path)
        page, matrix = _make_stored_page(store, components, frames), describe_matrix(store)
    for label, run in runs.items():
        _add_run(page, label, RunFolder(run), matrix)
    text = render_page(page.facts, page.arrays)
    # Names of runs may hold bytes that are not text.
    return write_atomically(out, text.encode(errors="xmlcharrefreplace"))


class _Page(NamedTuple):
    """Facts and arrays of a page, without runs; see ``render_page``."""

    truth: GroundTruth
    kept: PrincipalSubspace
    facts: Mapping[str, Any]
    arrays: Arrays


def _make_stored_page(store: MatrixStore, components: int, frames: int) -> _Page:
    """Gather the page of a store, and measure the errors of the rows that the page computes."""
    seen, settings, (n, tasks) = read_states(store).get("observations"), store.settings, store.shape
    cells = _find_cells(store, seen, frames)
    components = min(components, max(1, min(store.shape) - 1))  # Centring removes one component.
    decomposition = RandomizedSVD(rank=components if components > DEFAULT_RANK else None)
    principal = principal_subspace(store, decomposition, progress=progress_bar)
    error = sampling_error(open_estimates(store.path), progress=progress_bar)
    grid, states = state_cells(store)
    truth = GroundTruth(
        coordinates=jnp.asarray(grid.unit_centres()[states]),
        matrix=None,
        principal=principal,
        settings=settings,
        error=None if error is None else error.noise_floor,
        observed=None if seen is None else jnp.asarray(seen),
    )
    kept = principal.truncated(min(components, principal.basis.shape[1]))
    moves, blocks = _count_moves(settings, cells), StoreBlocks(store)
    task_means, state_means = centring_means(blocks, centring_of(settings))
    rows_mean = np.zeros(n) if state_means is None else state_means
    right, energies = np.zeros((tasks, kept.basis.shape[1])), np.zeros(n)
    whole = n == tasks and len(cells.states) <= _MOST_ROWS_KEPT
    wanted = cells.order if whole else _choose_rows(n)
    chosen = np.empty((len(wanted), tasks), np.float32)
    for start, rows in blocks.blocks():
        here = slice(start, start + len(rows))
        centred = rows.astype(np.float64) - task_means - rows_mean[here, None]
        right += centred.T @ kept.basis[here].astype(np.float64)
        energies[here] = np.einsum("ij,ij->i", centred, centred)
        inside = (wanted >= start) & (wanted < here.stop)
        chosen[inside] = rows[wanted[inside] - start]
    low_rank = LowRank(kept.basis.astype(np.float64), right, task_means, rows_mean)
    source: dict[str, Any]
    if whole:
        matrix = chosen[:, cells.shown]
        largest = np.abs(matrix).max(axis=1, keepdims=True) / (2**15 - 1)
        rounding = np.rint(matrix / np.where(largest > 0.0, largest, 1.0)) * largest - matrix
        source = {"kind": "rows", "difference": _root_mean_square(rounding)}
    elif n != tasks:
        source = {"kind": "none", "difference": 0.0}
    elif moves is None:
        energy = np.sum(np.square(kept.singular_values.astype(np.float64)))
        left_out = max(kept.total_energy - energy, 0.0)
        source = {"kind": "rank", "difference": float(np.sqrt(left_out) / n)}
    else:
        source = _compare_rows(cells, moves, low_rank, settings, wanted, chosen)
    source["samplingError"] = None if error is None else error.standard_error
    page = _make_page(
        _name_store(store.path.resolve()), truth, kept, cells, low_rank, source, moves
    )
    page.arrays.add_numbers("row_energies", energies)
    if whole:
        page.arrays.add_maps("rows", chosen.T, later=True)
    return page


def _make_released_page(name: str, components: int) -> _Page:
    """Gather the page of a released truth, whose rows come from the transition method."""
    # Deferred: the transition method's imports take longer than everything else.
    from rlreps.successor.measure.kernels.estimator import TransitionEstimator

    truth = load(name)
    settings, environment = truth.settings, environment_of(truth.settings)
    assert environment is not None
    assert truth.grid is not None
    assert truth.cells is not None
    cells = _make_cells(truth.grid, truth.cells, settings)
    kept = truth.principal.truncated(min(components, truth.principal.basis.shape[1]))
    n, left = truth.num_states, kept.basis.astype(np.float64)
    fields = ("discount", "horizon", "count_start", "points", "seed")
    method = TransitionSettings(**{name: settings[name] for name in fields})
    estimator = TransitionEstimator(environment, Grid(cells.grid.bins[0]), method)
    chosen = _choose_rows(n)
    starts = (np.arange(n)[:, None] == chosen).astype(np.float64)
    products = estimator.transposed(np.column_stack([left, np.full(n, 1.0 / n), starts]))
    right, means, rows = np.split(products, [left.shape[1], left.shape[1] + 1], axis=1)
    right -= means * left.sum(axis=0)
    low_rank, moves = LowRank(left, right, means[:, 0], np.zeros(n)), _count_moves(settings, cells)
    assert moves is not None
    source = _compare_rows(cells, moves, low_rank, settings, chosen, rows.T)
    source["reference"] = (
        "the transition method at refinement 1, which forgets places in cells as this page does,"
    )
    page = _make_page(name, truth, kept, cells, low_rank, source, moves)
    error = np.abs(np.linalg.norm(right, axis=0) / kept.singular_values - 1.0).max()
    page.facts["about"]["factors"] = (
        "ΨᵀU with Ψ of the transition method at refinement 1; their norms are within "
        f"{100 * error:.1f} % of the singular values"
    )
    return page


def _make_page(
    name: str,
    truth: GroundTruth,
    kept: PrincipalSubspace,
    cells: MapGrid,
    low_rank: LowRank,
    source: Mapping[str, Any],
    moves: Sequence[Any] | None,
) -> _Page:
    """Make the page of a matrix; ``source`` states where its rows come from, and their errors."""
    labels = {
        **{"rows": "stored", "chain": "computed", "none": "none"},
        "rank": f"rank {kept.basis.shape[1]}",
    }
    settings, arrays = truth.settings, Arrays(cells)
    arrays.add_maps("left", kept.basis)
    if source["kind"] != "none":
        arrays.add_maps("right", low_rank.factors)
        arrays.add_numbers("task_means", low_rank.task_means)
    arrays.add_numbers("state_means", low_rank.state_means)
    if moves is not None:
        arrays.add_moves(moves)
    facts = {
        "title": f"{'Sampled' if source['kind'] == 'none' else 'Successor'} measure of {name}",
        "about": _describe_settings(settings),
        "discount": settings.get("discount"),
        "horizon": settings.get("horizon"),
        "countStart": bool(settings.get("count_start", True)),
        "components": kept.basis.shape[1],
        "singularValues": round_numbers(truth.principal.singular_values),
        "totalEnergy": truth.principal.total_energy,
        "noiseFloor": None if truth.error is None else round_numbers(truth.error),
        "source": {
            **{"samplingError": None, "steps": 0, "reference": "the store"},
            **{"label": labels[source["kind"]], **source},
        },
        "moves": None
        if moves is None
        else {"names": ACTIONS, "arrows": ARROWS.tolist(), "points": _POINTS},
    }
    return _Page(truth, kept, facts, arrays)


def _choose_rows(n: int) -> np.ndarray:
    """Choose the rows to compare."""
    return np.sort(np.random.default_rng(0).choice(n, min(n, _ROWS_MEASURED), replace=False))


def _compare_rows(
    cells: MapGrid,
    moves: Sequence[Any],
    low_rank: LowRank,
    settings: Mapping[str, Any],
    chosen: np.ndarray,
    rows: np.ndarray,
) -> dict[str, Any]:
    """Compute chosen rows as the page does, and measure their distance from the given rows."""
    chain: Any = scipy.sparse.csr_array(sum(moves)) / (len(moves) * _POINTS)
    between = scipy.sparse.csr_array(chain[cells.states][:, cells.states])
    differences = solve_rows(between, low_rank, chosen, settings) - rows
    return {"kind": "chain", "difference": _root_mean_square(differences), "steps": STEPS}


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def _find_cells(store: MatrixStore, seen: np.ndarray | None, most: int) -> MapGrid:
    """Return the grid in the plane that a store's states and tasks lie on, or else their frames.

    Raises:
        InputError: If there is neither.
    """
    states, tasks = store.shape
    grid, cells = state_cells(store)
    shared = len(cells) - len(np.unique(cells))
    if states != tasks or len(grid.bins) != 2 or shared:
        framed = None if seen is None else _lay_out_frames(store, grid, cells, seen, most)
        if framed is not None:
            return framed
    place = "a store of a successor measure between the cells of a grid in the plane"
    if seen is not None:
        place += f", or whose states are seen as images (not {list(seen.shape[1:])})"
    require(states == tasks, f"{place}, states by states", f"{states} by {tasks}")
    require(len(grid.bins) == 2, place, f"{len(grid.bins)} coordinates")
    require(shared == 0, place, f"{shared} states in the cells of others")
    return _make_cells(grid, cells, store.settings)


def _lay_out_frames(
    store: MatrixStore, grid: BoxGrid, cells: np.ndarray, seen: np.ndarray, most: int
) -> MapGrid | None:
    """Choose the states whose frames the page shows; None if an encoder sees no images."""
    count = min(len(seen), most)
    shown = np.rint(np.linspace(0, len(seen) - 1, count)).astype(np.int64)
    images = as_frames(seen[shown])
    if images is None:
        return None
    images = _crop(images)
    axes: tuple[str, ...] = ("state",)
    places = shown[:, None].astype(np.float64)
    if len(grid.bins) > 1:
        axes, places = ("state", *grid.names), np.c_[places, grid.centres()[cells[shown]]]
    values = store.settings.get("values") or {}
    return MapGrid(
        grid=BoxGrid((0, 0), (count, 1), (count, 1)),
        states=np.arange(count),
        shown=shown,
        frames=Frames(images, axes, places, values, len(seen)),
    )


def _crop(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Leave out the edges of frames [m, height, width, channels] that are the same in all."""
    changing = (images != images[0]).any(axis=(0, 3))
    for axis in (1, 2):
        places = np.flatnonzero(changing.any(axis=2 - axis))
        if places.size:
            margin = 1 + (places[-1] - places[0]) // 8
            kept = slice(max(0, places[0] - margin), places[-1] + margin + 1)
            images = images[:, kept] if axis == 1 else images[:, :, kept]
    return images


def _make_cells(grid: BoxGrid, cells: np.ndarray, settings: Mapping[str, Any]) -> MapGrid:
    environment = environment_of(settings)
    outlines = []
    for puddle in () if environment is None else environment.puddles:
        # Segments of a thousandth of the square are fine enough for curves.
        large = outline(puddle.shape).transformed(Affine2D().scale(1000.0))
        outlines += [np.asarray(line) / 1000.0 for line in large.to_polygons()]
    return MapGrid(grid=grid, states=cells, shown=np.arange(len(cells)), outlines=outlines)


def _count_moves(settings: Mapping[str, Any], cells: MapGrid) -> Sequence[Any] | None:
    """Count the moves of PuddleWorld's actions; None if unknown or if walls divide cells."""
    environment = environment_of(settings)
    names = {"discount", "horizon", "count_start"}
    if environment is None or not names <= settings.keys():
        return None
    from_json(TransitionSettings, {name: settings[name] for name in names})  # Checks the settings.
    grid = Grid(cells.grid.bins[0]).within(environment)
    if not np.array_equal(grid.states, cells.states) or len(grid.divided):
        return None
    # Deferred: this part of SciPy takes longer to import than everything else.
    from rlreps.successor.measure.kernels.matrix import action_steps

    return action_steps(environment, grid, points=_POINTS, seed=0)


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Describe how a matrix was made, from its settings."""
    names = {
        "world": "world",
        "game": "game",
        "method": "method",
        "policy": "policy",
        "rollouts": "rollouts from each state",
        "discount": "discount γ",
        "horizon": "horizon (steps)",
        "refinement": "sub-cells along a side",
        "seed": "seed",
        "command": "made by",
    }
    entries = {label: str(settings[name]) for name, label in names.items() if name in settings}
    if "formula" in settings:
        entries["sum"] = (
            "over t ≥ 0 of γᵗ" if settings.get("count_start", True) else "over t ≥ 1 of γᵗ⁻¹"
        )
    return {**entries, "centring": f"{centring_of(settings)} (for the components)"}


def _name_store(path: Path) -> str:
    """Name a store by its folder, or by the parent folder if it also holds runs."""
    return path.parent.name if path.name == STORE else path.name


def _find_sources(paths: Sequence[Path]) -> tuple[Path, dict[str, Path]]:
    """Find the store and the runs, by label, among the paths."""
    require(len(paths) >= 1, "a store or training runs", "none")
    stores, runs = list[Path](), list[Path]()
    for path in paths:
        if _is_released(path) or find_store(path) is not None:
            stores.append(path)
            continue
        folder = RunFolder(path)
        if folder.kind in (TRAIN, SUCCESSOR):
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
        dict.fromkeys(store if _is_released(store) else store.resolve() for store in stores)
    )
    if not stores:
        place = trained_store(RunFolder(runs[0])) if RunFolder(runs[0]).kind == TRAIN else None
        require(place is not None, f"a store to compare {runs[0]} with", "none")
        assert place is not None
        stores = [place]
    require(len(stores) == 1, "one store", ", ".join(map(str, stores)))
    return stores[0], dict(labelled(runs))


def _is_released(path: Path) -> bool:
    return str(path) in released_names() and not path.exists()


def _find_runs(folder: Path) -> list[Path]:
    """Find the training runs in a folder that have a checkpoint."""
    runs = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(InputError):
            if RunFolder(path).kind == TRAIN and (path / "checkpoints").is_dir():
                runs.append(path)
    return runs


def _add_run(page: _Page, label: str, folder: RunFolder, matrix: Mapping[str, Any] | None) -> None:
    """Rotate a run's features onto the true components, at every step with stored features."""
    curve = None
    # A run's recorded features and its curve belong to its own states and components.
    elsewhere = folder.kind == TRAIN and folder.config.get(MATRIX) != matrix
    if elsewhere:
        tabular = isinstance(load_config(folder).encoder, Tabular)
        require(not tabular, f"the matrix that {folder.path} (tabular) was trained on", "another")
        label = f"{label} (trained on another matrix)"
    elif folder.kind == TRAIN:
        steps, distances = distance_history(folder)
        curve = (steps, distances[0])
    components, cosines = {}, {}
    by_step = _load_features(folder, page.truth, recorded=not elsewhere)
    for step, features in by_step.items():
        basis = page.kept.basis[:, : features.shape[1]]
        components[step], cosines[step] = rotated(features, basis)
    visits = _count_visits(folder, page.arrays.cells) if folder.kind == SUCCESSOR else None
    page.arrays.add_run(label, by_step[max(by_step)].shape[1], components, cosines, curve, visits)


def _count_visits(folder: RunFolder, cells: MapGrid) -> np.ndarray | None:
    """Count the rows of a fit's data that start in each state, [n]; None without positions."""
    seen = SuccessorRepresentation.load(folder.path).solution.recorded.observation
    if seen.shape[1:] != (2,) or cells.frames is not None:
        return None
    return np.bincount(cells.grid.cell(seen), minlength=cells.grid.num_cells)[cells.states]


def _read_recorded(file: Path, num_states: int) -> np.ndarray:
    """Read the features [n, d] that a run recorded."""
    try:
        features = read_array(file)
    except DAMAGED as error:
        raise InputError(f"expected features in {file}, got {reason_of(error)}") from error
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
    steps = Checkpoints(folder.path / "checkpoints", run=folder.identity).complete_steps()
    if not steps:
        raise InputError(f"expected a checkpoint in {folder.path}, got none")
    return {step: np.asarray(features_of(folder, truth, step), np.float32) for step in steps}
