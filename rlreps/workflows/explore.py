"""The page of ``rlreps explore``, from a store and from training runs."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from matplotlib.transforms import Affine2D

from rlreps import subspace
from rlreps.config import from_json
from rlreps.encoders import Tabular
from rlreps.envs.observations import Observation
from rlreps.errors import InputError, require, require_positive
from rlreps.plotting.maps import ACTIONS
from rlreps.plotting.outlines import outline
from rlreps.report.explore import Cells, Exact, Exploration, Learned, Moves, write_exploration
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.subspace import centring_means
from rlreps.subspace.svd import DEFAULT_RANK, PrincipalSubspace, RandomizedSVD
from rlreps.successor.grids import BoxGrid, Grid
from rlreps.successor.ground_truth import GroundTruth, environment_of, state_cells
from rlreps.successor.low_rank import STEPS, LowRank, solved_rows
from rlreps.successor.released import load, released_names
from rlreps.successor.representation import KIND as SUCCESSOR
from rlreps.successor.settings import TransitionSettings
from rlreps.successor.store import MatrixStore, find_store, open_store
from rlreps.successor.store.blocks import StoreBlocks
from rlreps.successor.store.estimates import open_estimates
from rlreps.successor.stored_subspace import centring_of, principal_subspace, sampling_error
from rlreps.workflows.evaluate import (
    distance_history,
    load_config,
    load_encoder,
    successor_components,
    trained_store,
)
from rlreps.workflows.features import recorded_features
from rlreps.workflows.ground_truths import STORE
from rlreps.workflows.train import KIND as TRAIN
from rlreps.workflows.train import MATRIX, describe_matrix

COMPONENTS = 50
_MOST_ROWS_KEPT = 1600
"""States up to which the page holds every row of the matrix, in 16 bits an entry."""

_POINTS = 1024
"""Moves from each state by each action; their standard error is below that of a thousand draws."""


_ROWS_MEASURED = 100


class Shown(NamedTuple):
    """What is shown beside a measure.

    Attributes:
        runs: Label → folder of a run.
        observation: What successor representations among them see of the states.
    """

    runs: Mapping[str, Path]
    observation: Observation | None = None


def explore(
    paths: Sequence[Path],
    out: Path,
    *,
    components: int = COMPONENTS,
    observation: Observation | None = None,
    progress: bool = True,
) -> Path:
    """Write an interactive page of a successor measure and of what runs learned of it.

    A run that was trained on another matrix says so in its label: its checkpoints are evaluated at
    the states of this one, and its learning curve is left out.

    Args:
        paths: A store, or the name of a released ground truth; training runs on it; or a folder
            that holds both (a quickstart's). Without a store, the one that the first run was
            trained on.
        out: The page's file.
        components: K, singular vectors on the page, and most components of a run; no more than the
            matrix has.
        observation: What successor representations among the runs see of the states.
        progress: Whether to show progress bars.

    Returns:
        The path of the page.

    Raises:
        InputError: If there is no such store or run, the matrix is not one of states by states over
            a grid in the plane, or a run does not fit it.
    """
    require_positive("components", components)
    path, runs = _sources(paths)
    kinds = [RunFolder(run).kind for run in runs.values()]
    fitting = observation is None or SUCCESSOR in kinds
    require(fitting, "a run of rlreps fit with an observation", ", ".join(kinds) or "none")
    shown = Shown(runs, observation)
    if _is_released(path):
        return write_exploration(out, _released_page(path.name, components, shown))
    store = open_store(path)
    cells = store_cells(store)
    show = functools.partial(progress_bar, show=progress)
    components = min(components, max(1, min(store.shape) - 1))  # Centred, it has no more.
    rank = components if components > DEFAULT_RANK else None
    principal = principal_subspace(store, RandomizedSVD(rank=rank), progress=show)
    error = sampling_error(open_estimates(path), progress=show)
    grid, states = state_cells(store)
    truth = GroundTruth(
        coordinates=jnp.asarray(grid.unit_centres()[states]),
        matrix=None,
        principal=principal,
        settings=store.settings,
    )
    page = exploration(
        store,
        truth,
        cells,
        components=components,
        noise_floor=None if error is None else error.noise_floor,
        standard_error=None if error is None else error.standard_error,
        shown=shown,
    )
    return write_exploration(out, page)


def exploration(
    store: MatrixStore,
    truth: GroundTruth,
    cells: Cells,
    *,
    components: int,
    noise_floor: np.ndarray | None,
    standard_error: float | None,
    shown: Shown,
) -> Exploration:
    """Gather what is on the page: the store's factors, moves and exact rows, and its runs."""
    settings = store.settings
    kept = truth.principal.truncated(min(components, truth.principal.basis.shape[1]))
    blocks = StoreBlocks(store)
    task_means, state_means = centring_means(blocks, centring_of(settings))
    rows_mean = np.zeros(store.shape[0]) if state_means is None else state_means
    right = np.zeros(kept.basis.shape)
    energies = np.zeros(store.shape[0])
    for start, rows in blocks.blocks():
        here = slice(start, start + len(rows))
        centred = rows.astype(np.float64) - task_means - rows_mean[here, None]
        right += centred.T @ kept.basis[here].astype(np.float64)
        energies[here] = np.einsum("ij,ij->i", centred, centred)
    moves = _moves(settings, cells)
    low_rank = LowRank(kept.basis.astype(np.float64), right, task_means, rows_mean)
    exact = _exact(store, cells, moves, low_rank, kept, standard_error)
    return _page(
        *(_name(store.path.resolve()), truth, cells, kept, low_rank, exact, moves, shown),
        matrix=describe_matrix(store),
        row_energies=energies,
        noise_floor=noise_floor,
    )


def _released_page(name: str, components: int, shown: Shown) -> Exploration:
    """Gather the page of a released truth, whose rows the transition method has all but stored."""
    # Deferred: the transition method imports what takes longer than all the rest.
    from rlreps.successor.kernels.estimator import TransitionEstimator

    truth = load(name)
    settings = truth.settings
    environment = environment_of(settings)
    assert environment is not None
    assert truth.grid is not None
    assert truth.cells is not None
    cells = _plane(truth.grid, truth.cells, settings)
    kept = truth.principal.truncated(min(components, truth.principal.basis.shape[1]))
    n, left = truth.num_states, kept.basis.astype(np.float64)
    names = ("discount", "horizon", "count_start", "points", "seed")
    method = TransitionSettings(**{each: settings[each] for each in names})
    estimator = TransitionEstimator(environment, Grid(cells.columns), method)
    chosen = _measured_rows(n)
    starts = (np.arange(n)[:, None] == chosen).astype(np.float64)
    found = estimator.transposed(np.column_stack([left, np.full(n, 1.0 / n), starts]))
    right, means, rows = np.split(found, [left.shape[1], left.shape[1] + 1], axis=1)
    right -= means * left.sum(axis=0)
    low_rank = LowRank(left, right, means[:, 0], np.zeros(n))
    moves = _moves(settings, cells)
    assert moves is not None
    exact = _solved(cells, moves, low_rank, settings, chosen, rows.T)
    said = "the transition method at refinement 1, which forgets places in cells as this page does,"
    exact = dataclasses.replace(exact, reference=said)
    page = _page(name, truth, cells, kept, low_rank, exact, moves, shown, noise_floor=truth.error)
    apart = np.abs(np.linalg.norm(right, axis=0) / kept.singular_values - 1.0).max()
    factors = (
        "ΨᵀU with Ψ of the transition method at refinement 1; their norms are within "
        f"{100 * apart:.1f} % of the singular values"
    )
    return dataclasses.replace(page, about={**page.about, "factors": factors})


def _page(
    name: str,
    truth: GroundTruth,
    cells: Cells,
    kept: PrincipalSubspace,
    low_rank: LowRank,
    exact: Exact,
    moves: Moves | None,
    shown: Shown,
    *,
    matrix: Mapping[str, Any] | None = None,
    row_energies: np.ndarray | None = None,
    noise_floor: np.ndarray | None,
) -> Exploration:
    settings = truth.settings
    return Exploration(
        title=f"Successor measure of {name}",
        about=_about(settings),
        cells=cells,
        discount=settings.get("discount"),
        horizon=settings.get("horizon"),
        count_start=bool(settings.get("count_start", True)),
        left=kept.basis,
        right=low_rank.factors,
        task_means=low_rank.task_means,
        state_means=low_rank.state_means,
        row_energies=row_energies,
        singular_values=truth.principal.singular_values,
        total_energy=truth.principal.total_energy,
        noise_floor=noise_floor,
        exact=exact,
        moves=moves,
        runs=[
            _learned(label, RunFolder(run), truth, kept, matrix, shown.observation)
            for label, run in shown.runs.items()
        ],
    )


def _exact(
    store: MatrixStore,
    cells: Cells,
    moves: Moves | None,
    low_rank: LowRank,
    principal: PrincipalSubspace,
    standard_error: float | None,
) -> Exact:
    """Decide what exact is on the page, and measure how far it is from the store."""
    n = store.shape[0]
    if n <= _MOST_ROWS_KEPT:
        rows = np.concatenate([rows for _, rows in StoreBlocks(store).blocks()])
        largest = np.abs(rows).max(axis=1, keepdims=True) / (2**15 - 1)
        rounding = np.rint(rows / np.where(largest > 0.0, largest, 1.0)) * largest - rows
        return Exact(
            kind="rows",
            difference=float(np.sqrt(np.mean(np.square(rounding, dtype=np.float64)))),
            sampling_error=standard_error,
            rows=rows,
        )
    if moves is None:
        energy = np.sum(np.square(principal.singular_values.astype(np.float64)))
        left_out = max(principal.total_energy - energy, 0.0)
        return Exact(
            kind="rank",
            difference=float(np.sqrt(left_out) / n),
            sampling_error=standard_error,
        )
    chosen = _measured_rows(n)
    stored = np.concatenate(
        [
            rows[chosen[(chosen >= start) & (chosen < start + len(rows))] - start]
            for start, rows in StoreBlocks(store).blocks()
        ]
    )
    exact = _solved(cells, moves, low_rank, store.settings, chosen, stored)
    return dataclasses.replace(exact, sampling_error=standard_error)


def _measured_rows(n: int) -> np.ndarray:
    """Choose the rows that what the page solves for is compared with."""
    return np.sort(np.random.default_rng(0).choice(n, min(n, _ROWS_MEASURED), replace=False))


def _solved(
    cells: Cells,
    moves: Moves,
    low_rank: LowRank,
    settings: Mapping[str, Any],
    chosen: np.ndarray,
    rows: np.ndarray,
) -> Exact:
    """Solve for chosen rows as the page does, and measure how far they are from those given."""
    chain: Any = scipy.sparse.csr_array(sum(moves.counts)) / (len(moves.counts) * moves.points)
    between = scipy.sparse.csr_array(chain[cells.states][:, cells.states])
    off = solved_rows(between, low_rank, chosen, settings) - rows
    return Exact(kind="chain", difference=float(np.sqrt(np.mean(off**2))), steps=STEPS)


def store_cells(store: MatrixStore) -> Cells:
    """Return the grid in the plane that a store's states and tasks lie on.

    Raises:
        InputError: If there is none.
    """
    states, tasks = store.shape
    place = "a store of a successor measure between the cells of a grid in the plane"
    require(states == tasks, f"{place}, states by states", f"{states} by {tasks}")
    grid, cells = state_cells(store)
    require(len(grid.bins) == 2, place, f"{len(grid.bins)} coordinates")
    return _plane(grid, cells, store.settings)


def _plane(grid: BoxGrid, cells: np.ndarray, settings: Mapping[str, Any]) -> Cells:
    environment = environment_of(settings)
    outlines = []
    for puddle in () if environment is None else environment.puddles:
        # Curves are divided as finely as a thousandth of the square asks for.
        large = outline(puddle.shape).transformed(Affine2D().scale(1000.0))
        outlines += [np.asarray(line) / 1000.0 for line in large.to_polygons()]
    return Cells(
        columns=grid.bins[0],
        rows=grid.bins[1],
        states=cells,
        low=(grid.low[0], grid.low[1]),
        high=(grid.high[0], grid.high[1]),
        axes=(grid.names[0], grid.names[1]),
        outlines=outlines,
    )


def _moves(settings: Mapping[str, Any], cells: Cells) -> Moves | None:
    """Count where PuddleWorld's actions lead; None where that is unknown or walls divide cells."""
    environment = environment_of(settings)
    names = {"discount", "horizon", "count_start"}
    if environment is None or not names <= settings.keys():
        return None
    from_json(TransitionSettings, {name: settings[name] for name in names})  # Checks them.
    grid = Grid(cells.columns).within(environment)
    if not np.array_equal(grid.states, cells.states) or len(grid.divided):
        return None
    # Deferred: what it needs of SciPy takes longer to import than all the rest.
    from rlreps.successor.kernels.matrix import action_steps

    return Moves(
        names=ACTIONS,
        arrows=((0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)),
        counts=action_steps(environment, grid, points=_POINTS, seed=0),
        points=_POINTS,
    )


def _about(settings: Mapping[str, Any]) -> dict[str, str]:
    """Say how a matrix was made, by what its settings hold."""
    names = {
        "method": "method",
        "policy": "policy",
        "rollouts": "rollouts from each state",
        "discount": "discount γ",
        "horizon": "horizon (steps)",
        "refinement": "sub-cells along a side",
        "seed": "seed",
        "command": "made by",
    }
    found = {label: str(settings[name]) for name, label in names.items() if name in settings}
    if "formula" in settings:
        found["sum"] = (
            "over t ≥ 0 of γᵗ" if settings.get("count_start", True) else "over t ≥ 1 of γᵗ⁻¹"
        )
    return {**found, "centring": f"{centring_of(settings)} (for the components)"}


def _name(path: Path) -> str:
    """Name a store by its folder, or by the folder that holds it among runs."""
    return path.parent.name if path.name == STORE else path.name


def _sources(paths: Sequence[Path]) -> tuple[Path, dict[str, Path]]:
    """Find the one store, and the runs by label, that paths name."""
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
            runs += _runs_below(path / "runs")
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
    names = [run.resolve().name for run in runs]
    unique = len(set(names)) == len(names)
    return stores[0], {
        name if unique else str(run): run for name, run in zip(names, runs, strict=True)
    }


def _is_released(path: Path) -> bool:
    return str(path) in released_names() and not path.exists()


def _runs_below(folder: Path) -> list[Path]:
    """Find the training runs in a folder that have come to a checkpoint."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(InputError):
            if RunFolder(path).kind == TRAIN and (path / "checkpoints").is_dir():
                found.append(path)
    return found


def _learned(
    label: str,
    folder: RunFolder,
    truth: GroundTruth,
    principal: PrincipalSubspace,
    matrix: Mapping[str, Any] | None,
    observation: Observation | None,
) -> Learned:
    """Rotate what a run learned onto the true components, at every step that it has kept."""
    curve = None
    # What a run recorded is of the states, and its curve of the components, of its own matrix.
    elsewhere = folder.kind == TRAIN and folder.config.get(MATRIX) != matrix
    if elsewhere:
        tabular = isinstance(load_config(folder).encoder, Tabular)
        require(not tabular, f"the matrix that {folder.path} (tabular) was trained on", "another")
        label = f"{label} (trained on another matrix)"
    elif folder.kind == TRAIN:
        steps, distances = distance_history(folder)
        curve = (steps.tolist(), distances[0].tolist())
    components, cosines = {}, {}
    num_features = 0
    for step, features in _features(folder, truth, observation, recorded=not elsewhere).items():
        require(
            features.ndim == 2 and len(features) == truth.num_states,
            f"features of {truth.num_states} states in {folder.path}",
            features.shape,
        )
        num_features = features.shape[1]
        basis = principal.basis[:, :num_features]
        aligned = np.asarray(subspace.align(jnp.asarray(features), jnp.asarray(basis)))
        components[step] = aligned
        cosines[step] = np.abs(np.sum(aligned * basis, axis=0))
    return Learned(
        label=label,
        num_features=num_features,
        components=components,
        cosines=cosines,
        curve=curve,
    )


def _features(
    folder: RunFolder, truth: GroundTruth, observation: Observation | None, *, recorded: bool
) -> dict[int, np.ndarray]:
    """Return the features [n, d] of a run's first seed by step: recorded, or of checkpoints."""
    if folder.kind == SUCCESSOR:
        return {0: np.asarray(successor_components(folder, truth, observation), np.float32)}
    files = recorded_features(folder) if recorded else {}
    if files:
        return {step: np.load(file, allow_pickle=False) for step, file in files.items()}
    steps = Checkpoints(folder.path / "checkpoints", run=folder.identity).complete_steps()
    if not steps:
        raise InputError(f"expected a checkpoint in {folder.path}, got none")
    return {
        step: np.asarray(load_encoder(folder, truth, step).features()[0], np.float32)
        for step in steps
    }
