"""The page of ``rlreps explore``, from a store and from training runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse

from rlreps.errors import require, require_positive
from rlreps.explore.low_rank import STEPS, LowRank, solve_rows
from rlreps.explore.page import Arrays, MapGrid, render_page, round_numbers
from rlreps.explore.runs import add_run, find_sources, is_released
from rlreps.explore.shown_states import POINTS, count_moves, find_cells, make_cells
from rlreps.files import require_output, write_atomically
from rlreps.plotting.puddle_world import ACTIONS, ARROWS
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.subspace import centring_means
from rlreps.subspace.svd import DEFAULT_RANK, PrincipalSubspace, RandomizedSVD
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.released import load
from rlreps.successor.truth.states import (
    environment_of,
    is_between_states,
    read_states,
    state_cells,
)
from rlreps.successor.truth.store import STORE, MatrixStore, open_store
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import centring_of, principal_subspace
from rlreps.training.on_store import describe_matrix

_MOST_ROWS_KEPT = 1600
"""Largest number of states for which the page holds the whole matrix, with 16 bits per entry."""

_MOST_FRAMES = _MOST_ROWS_KEPT
"""Largest number of states that a page shows by their frames."""

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
    path, runs = find_sources(paths)
    if is_released(path):
        page, matrix = _make_released_page(path.name, components), None
    else:
        store = open_store(path)
        page, matrix = _make_stored_page(store, components, frames), describe_matrix(store)
    for label, run in runs.items():
        add_run(page.arrays, label, RunFolder(run), page.truth, page.kept.basis, matrix)
    text = render_page(page.facts, page.arrays)
    # Names of runs may hold bytes that are not text.
    return write_atomically(out, text.encode(errors="xmlcharrefreplace"))


class _Page(NamedTuple):
    """Facts and arrays of a page, without runs; see ``render_page``."""

    truth: GroundTruth
    kept: PrincipalSubspace
    facts: Mapping[str, Any]
    arrays: Arrays


class _RowSource(NamedTuple):
    """Where a page's rows come from, and their errors; see ``Source`` in ``data.js``.

    Attributes:
        kind: Stored rows, rows computed from the chain or at rank K, or none.
        difference: Root mean square difference from the reference.
        steps: Number of exact steps of the chain.
        reference: What the rows were compared with.
        sampling_error: Root mean square standard error of the matrix, if known.
    """

    kind: Literal["rows", "chain", "rank", "none"]
    difference: float
    steps: int = 0
    reference: str = "the store"
    sampling_error: float | None = None


def _make_stored_page(store: MatrixStore, components: int, frames: int) -> _Page:
    """Gather the page of a store, and measure the errors of the rows that the page computes."""
    seen, settings, (n, tasks) = read_states(store).get("observations"), store.settings, store.shape
    cells = find_cells(store, seen, frames)
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
        grid=grid,
        cells=states,
        observed=None if seen is None else jnp.asarray(seen),
    )
    kept = principal.truncated(min(components, principal.basis.shape[1]))
    moves, blocks = count_moves(settings, cells), StoreBlocks(store)
    task_means, state_means = centring_means(blocks, centring_of(settings))
    rows_mean = np.zeros(n) if state_means is None else state_means
    right, energies = np.zeros((tasks, kept.basis.shape[1])), np.zeros(n)
    square = is_between_states(store)
    whole = square and len(cells.states) <= _MOST_ROWS_KEPT
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
    if whole:
        matrix = chosen[:, cells.shown]
        largest = np.abs(matrix).max(axis=1, keepdims=True) / (2**15 - 1)
        rounding = np.rint(matrix / np.where(largest > 0.0, largest, 1.0)) * largest - matrix
        source = _RowSource("rows", _root_mean_square(rounding))
    elif not square:
        source = _RowSource("none", 0.0)
    elif moves is None:
        energy = np.sum(np.square(kept.singular_values.astype(np.float64)))
        left_out = max(kept.total_energy - energy, 0.0)
        source = _RowSource("rank", float(np.sqrt(left_out) / n))
    else:
        source = _compare_rows(cells, moves, low_rank, settings, wanted, chosen)
    if error is not None:
        source = source._replace(sampling_error=error.standard_error)
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
    from rlreps.successor.measure.transition_kernels.estimator import TransitionEstimator

    truth = load(name)
    settings, environment = truth.settings, environment_of(truth.settings)
    assert environment is not None
    assert truth.grid is not None
    assert truth.cells is not None
    cells = make_cells(truth.grid, truth.cells, settings)
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
    low_rank, moves = LowRank(left, right, means[:, 0], np.zeros(n)), count_moves(settings, cells)
    assert moves is not None
    source = _compare_rows(cells, moves, low_rank, settings, chosen, rows.T)
    source = source._replace(
        reference="the transition method at refinement 1, which forgets places in cells as this "
        "page does,"
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
    source: _RowSource,
    moves: Sequence[Any] | None,
) -> _Page:
    """Make the page of a matrix."""
    rank = f"rank {kept.basis.shape[1]}"
    labels = {"rows": "stored", "chain": "computed", "rank": rank, "none": "none"}
    settings, arrays = truth.settings, Arrays(cells)
    arrays.add_maps("left", kept.basis)
    if source.kind != "none":
        arrays.add_maps("right", low_rank.factors)
        arrays.add_numbers("task_means", low_rank.task_means)
    arrays.add_numbers("state_means", low_rank.state_means)
    if moves is not None:
        arrays.add_moves(moves)
    facts = {
        "title": f"{'Sampled' if source.kind == 'none' else 'Successor'} measure of {name}",
        "about": _describe_settings(settings),
        "discount": settings.get("discount"),
        "horizon": settings.get("horizon"),
        "countStart": bool(settings.get("count_start", True)),
        "components": kept.basis.shape[1],
        "singularValues": round_numbers(truth.principal.singular_values),
        "totalEnergy": truth.principal.total_energy,
        "noiseFloor": None if truth.error is None else round_numbers(truth.error),
        "source": {
            "samplingError": source.sampling_error,
            "steps": source.steps,
            "reference": source.reference,
            "label": labels[source.kind],
            "kind": source.kind,
            "difference": source.difference,
        },
        "moves": None
        if moves is None
        else {"names": ACTIONS, "arrows": ARROWS.tolist(), "points": POINTS},
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
) -> _RowSource:
    """Compute chosen rows as the page does, and measure their distance from the given rows."""
    chain: Any = scipy.sparse.csr_array(sum(moves)) / (len(moves) * POINTS)
    between = scipy.sparse.csr_array(chain[cells.states][:, cells.states])
    differences = solve_rows(between, low_rank, chosen, settings) - rows
    return _RowSource("chain", _root_mean_square(differences), STEPS)


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Describe how a matrix was made, from its settings."""
    names = {
        "world": "world",
        "game": "game",
        "method": "method",
        "policy": "policy",
        "epsilon": "share of random actions",
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
