"""The page of ``rlreps explore``, from a store and from training runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlreps.errors import require, require_positive
from rlreps.explore.page import MapGrid, PageArrays, render_page, round_numbers
from rlreps.explore.rows import (
    LowRank,
    RowSource,
    choose_rows,
    measure_chain_rows,
    measure_rank_rows,
    measure_stored_rows,
    read_rows,
)
from rlreps.explore.runs import add_run, find_sources, is_released
from rlreps.explore.shown_states import POINTS, count_moves, find_cells, make_cells
from rlreps.files import require_output, write_atomically
from rlreps.plotting.puddle_world import ACTIONS, ARROWS
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.subspace.svd import DEFAULT_RANK, PrincipalSubspace, RandomizedSVD
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.truth.ground_truth import GroundTruth, truth_of_store
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.released import load
from rlreps.successor.truth.states import (
    environment_of,
    is_between_states,
    read_states,
)
from rlreps.successor.truth.store import STORE, MatrixStore, open_store
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import centring_of, principal_subspace
from rlreps.training.on_store import describe_matrix

_MOST_ROWS_KEPT = 1600
"""Largest number of states for which the page holds the whole matrix, with 16 bits per entry."""

_MOST_FRAMES = _MOST_ROWS_KEPT
"""Largest number of states that a page shows by their frames."""


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
    arrays: PageArrays


def _make_stored_page(store: MatrixStore, components: int, frames: int) -> _Page:
    """Gather the page of a store, and measure the errors of the rows that the page computes."""
    settings, square = store.settings, is_between_states(store)
    cells = find_cells(store, read_states(store).get("observations"), frames)
    components = min(components, max(1, min(store.shape) - 1))  # Centring removes one component.
    decomposition = RandomizedSVD(rank=components if components > DEFAULT_RANK else None)
    principal = principal_subspace(store, decomposition, progress=progress_bar)
    error = sampling_error(open_estimates(store.path), progress=progress_bar)
    truth = truth_of_store(store, principal, error=None if error is None else error.noise_floor)
    kept = principal.truncated(min(components, principal.basis.shape[1]))
    moves = count_moves(settings, cells)
    whole = square and len(cells.states) <= _MOST_ROWS_KEPT
    chosen = cells.order if whole else choose_rows(truth.num_states)
    low_rank, energies, rows = read_rows(store, kept.basis, chosen)
    if whole:
        source = measure_stored_rows(rows[:, cells.shown])
    elif not square:
        source = RowSource("none")
    elif moves is None:
        source = measure_rank_rows(kept)
    else:
        source = measure_chain_rows(cells, moves, low_rank, settings, chosen, rows)
    if error is not None:
        source = source._replace(sampling_error=error.standard_error)
    name = _name_store(store.path.resolve())
    page = _make_page(name, truth, kept, cells, low_rank, source, moves)
    page.arrays.add_numbers("row_energies", energies)
    if whole:
        page.arrays.add_maps("rows", rows.T, later=True)
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
    chosen = choose_rows(n)
    starts = (np.arange(n)[:, None] == chosen).astype(np.float64)
    products = estimator.transposed(np.column_stack([left, np.full(n, 1.0 / n), starts]))
    right, means, rows = np.split(products, [left.shape[1], left.shape[1] + 1], axis=1)
    right -= means * left.sum(axis=0)
    low_rank, moves = LowRank(left, right, means[:, 0], np.zeros(n)), count_moves(settings, cells)
    assert moves is not None
    source = measure_chain_rows(cells, moves, low_rank, settings, chosen, rows.T)
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
    source: RowSource,
    moves: Sequence[Any] | None,
) -> _Page:
    """Make the page of a matrix."""
    rank = f"rank {kept.basis.shape[1]}"
    labels = {"rows": "stored", "chain": "computed", "rank": rank, "none": "none"}
    settings, arrays = truth.settings, PageArrays(cells)
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
        "puddleWorld": arrays.frames is None and environment_of(settings) is not None,
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
