"""Commands that read stores of successor measures: describe, verify, compare, decompose."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlreps.app.job import Printed, takes
from rlreps.app.options import Choice, Switch
from rlreps.errors import InputError, require
from rlreps.plotting import plot_subspace_error, require_figure, save_figure
from rlreps.runs import processes as share
from rlreps.runs.progress import progress_bar
from rlreps.subspace import nested_distances
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.store import open_store
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import DEFAULT_DECOMPOSITION, principal_subspace

_SMALL = 0.05
"""Noise floor beyond which its first-order estimate was 0.4 to 0.7 of true distances."""

CHOICES: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}


def info(store: Path, figure: Path | None = None, json: Switch = False) -> Iterator[Printed]:
    """Describe what a store holds, how it was made and how far it is from the truth.

    The error of a sampled matrix is computed once and kept in the store.

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
    error = None if missing else sampling_error(found, progress=progress_bar)
    if json:
        yield {**description, "error": None if error is None else error.as_json()}
        return
    yield description
    if error is None:
        require(figure is None, "a complete store with sampling noise, for --figure", str(store))
        return
    yield "noise floor: subspace distance of the leading d components from the truth"
    yield from _by_dimension(error.noise_floor.tolist())
    yield f"standard error of an entry: {error.standard_error:.3g} (root mean square over all)"
    yield "where singular values are nearly equal, the noise floor may be far too small"
    if error.noise_floor.max() > _SMALL:
        yield f"above {_SMALL} it is too small, too: it is a first-order estimate"
    if figure is not None:
        yield save_figure(plot_subspace_error({"noise floor": error.noise_floor}), figure)


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
        if (error := sampling_error(each, progress=progress_bar)) is not None:
            distances[f"noise floor of {name}"] = error.noise_floor.tolist()
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
