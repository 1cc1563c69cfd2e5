"""Commands that read stores of successor measures: describe, verify, compare, decompose."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlreps.app.job import Printed, takes
from rlreps.app.options import Choice, Switch
from rlreps.config import from_json
from rlreps.errors import InputError, require
from rlreps.plotting import plot_subspace_error, require_figure, save_figure
from rlreps.runs import processes as share
from rlreps.runs.progress import progress_bar
from rlreps.subspace import nested_distances
from rlreps.subspace.svd import DECOMPOSITIONS, DEFAULT_RANK, Decomposition
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.truth.states import environment_of, state_cells
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.store.estimates import EstimateStore, open_estimates
from rlreps.successor.truth.stored_subspace import (
    DEFAULT_DECOMPOSITION,
    centring_of,
    principal_subspace,
    sampling_error,
)

CHOICES: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}

_LARGEST_FINE_GRID = 40
"""Largest number of sub-cells along an axis for which a transition matrix's error is computed."""


def info(store: Path, figure: Path | None = None, json: Switch = False) -> Iterator[Printed]:
    """Describe what a store holds, how it was made and how far it is from the truth.

    The error of a sampled matrix is computed once and kept in the store. The error of a transition
    matrix is computed in every call.

    Args:
        store: Folder of the store.
        figure: Where to draw the error (.png, .svg or .pdf); not drawn by default.
        json: Print everything as one JSON object and draw nothing.
    """
    if figure is not None:
        require_figure(figure)
    found = open_estimates(store)
    matrix, missing = found.matrix, found.missing_blocks()
    description = {
        "path": str(matrix.path),
        "shape": list(matrix.shape),
        "block_rows": matrix.block_rows,
        "blocks": matrix.num_blocks,
        "missing_blocks": len(missing),
        "checksum": None if missing else matrix.content_key(),
        "settings": dict(matrix.settings),
        "provenance": dict(matrix.provenance),
    }
    error = None if missing else _compute_error(found)
    yield {**description, "error": error} if json else description
    if json or error is None:
        return
    distances = error["subspace_distance"]
    yield f"{error['title']}: subspace distance of the leading d components from the truth"
    yield from _by_dimension(distances)
    if (deviation := error["standard_error"]) is not None:
        yield f"standard error of an entry: {deviation:.3g} (root mean square over all)"
        yield "where singular values are nearly equal, the noise floor may be far too small"
    if figure is not None:
        drawn = plot_subspace_error({error["title"]: distances})
        yield save_figure(drawn, figure)


def verify(store: Path) -> Iterator[str]:
    """Read a whole store back: checksums, missing blocks, finite entries and row sums.

    Args:
        store: Folder of the store.
    """
    found = open_estimates(store)
    row_sum = found.matrix.settings.get("row_sum")
    if problems := found.verify(row_sum):
        raise InputError("; ".join(problem.text for problem in problems))
    checked = "" if row_sum is None else f", rows sum to {row_sum:.6g}"
    blocks, key = found.matrix.num_blocks, found.matrix.content_key()
    yield f"{found.matrix.path}: {blocks} blocks are whole{checked}; checksum {key}"


def compare(store: Path, other: Path, figure: Path | None = None) -> Iterator[Printed]:
    """Print the distances between the leading components of two stores.

    Args:
        store: Folder of a store.
        other: Folder of another over the same states.
        figure: Where to draw the distances beside both noise floors (.png, .svg or .pdf); not drawn
            by default.
    """
    if figure is not None:
        require_figure(figure)
    stores = {str(path): open_estimates(path) for path in (store, other)}
    require(len(stores) == 2, "two different stores", str(store))
    matrices = [each.matrix for each in stores.values()]
    first, second = matrices
    require(first.shape[0] == second.shape[0], f"{first.shape[0]} states", second.shape[0])
    inside = [matrix.settings.get("wall_cells", "") for matrix in matrices]
    require(inside[0] == inside[1], f"the same cells inside walls ({inside[0]})", inside[1])
    bases = [principal_subspace(matrix, progress=progress_bar).basis for matrix in matrices]
    shared = min(basis.shape[1] for basis in bases)
    between = nested_distances(*(basis[:, :shared] for basis in bases))
    distances = {f"distance between {store} and {other}": between.tolist()}
    for name, each in stores.items():
        if (error := _compute_error(each)) is not None:
            distances[f"{error['title']} of {name}"] = error["subspace_distance"]
    yield from _note_shared_rollouts([matrix.settings for matrix in matrices])
    for name, values in distances.items():
        yield name
        yield from _by_dimension(values)
    if figure is not None:
        drawn = plot_subspace_error(distances, y_label="subspace distance")
        yield save_figure(drawn, figure)


@takes("processes")
def svd(store: Path, config: Decomposition = DEFAULT_DECOMPOSITION) -> Iterator[str]:
    """Compute the principal subspace of a store's centred matrix and keep it beside the matrix.

    Several processes share the work if the matrix is larger than memory.

    Args:
        store: Folder of the store.
        config: How to compute it.
    """
    principal = principal_subspace(open_store(store), config, progress=progress_bar, share=share)
    yield f"total energy {principal.total_energy:.6g}"
    yield "component  singular value  energy captured"
    pairs = zip(principal.singular_values, principal.energy_captured(), strict=True)
    for index, (value, part) in enumerate(pairs, start=1):
        yield f"{index:9d}  {value:14.6g}  {100 * part:14.2f} %"


def _by_dimension(values: Sequence[float]) -> Iterator[str]:
    """Yield lines with a number for each d = 1 … k, down columns."""
    cells = [f"{d:4d} {value:9.3g}" for d, value in enumerate(values, start=1)]
    for row in range(min(20, len(cells))):
        yield "   ".join(cells[row::20])


def _note_shared_rollouts(settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a note if two stores share rollouts, which makes their distance too small."""
    first, second = settings
    names = ("method", "seed", "bins", "environment")
    sampled = first.get("method") == "monte_carlo"
    if sampled and all(first.get(name) == second.get(name) for name in names):
        yield (
            f"note: both were sampled with seed {first.get('seed')} and share rollouts: the "
            "distance is smaller than that of independent ones"
        )


def _compute_error(store: EstimateStore) -> dict[str, Any] | None:
    """Compute a store's ``title``, ``subspace_distance`` for d = 1 … k and ``standard_error``.

    The error is None if it is unknown; so is the standard error of a matrix without samples.
    """
    settings = store.matrix.settings
    if settings.get("method") == "transition":
        return _aggregation_error(store.matrix)
    sampled = sampling_error(store, progress=progress_bar)
    if sampled is None:
        return None
    return {
        "title": "noise floor",
        "subspace_distance": sampled.noise_floor.tolist(),
        "standard_error": sampled.standard_error,
    }


def _aggregation_error(store: MatrixStore) -> dict[str, Any] | None:
    """Compute a transition matrix's error.

    The error is None if the environment is unknown, or if the grid is so large that computing it
    would take minutes.
    """
    # Deferred: this part of SciPy takes longer to import than everything else.
    from rlreps.successor.measure.kernels.estimator import aggregation_error

    fields = {field.name for field in dataclasses.fields(TransitionSettings)}
    stored = {name: value for name, value in store.settings.items() if name in fields}
    method, environment = from_json(TransitionSettings, stored), environment_of(store.settings)
    bins, refinement = state_cells(store)[0].bins[0], method.refinement
    if environment is None or bins * refinement > _LARGEST_FINE_GRID:
        return None
    found = aggregation_error(
        environment, Grid(bins), method, rank=DEFAULT_RANK, centring=centring_of(store.settings)
    )
    return {
        "title": f"aggregation error, from refinements {refinement} and {2 * refinement}",
        "subspace_distance": found.distances.tolist(),
        "standard_error": None,
    }
