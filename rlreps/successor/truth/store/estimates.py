"""A sampled matrix on disk, and the difference of its halves, which shows its error.

The matrix is the store itself. The half differences (see ``RowEstimates``) lie in a store of the
same form inside it, in ``half_difference/``. A block counts as written once both stores have it.
The half difference is written first, so that no matrix ever lacks its error.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlreps.config import checked
from rlreps.errors import InputError
from rlreps.successor.truth.store.format import (
    HALF_DIFFERENCE,
    MatrixStore,
    create_or_resume,
    find_store,
    first_part,
    open_store,
    require_place,
    split_into_runs,
)

if TYPE_CHECKING:
    from rlreps.successor.measure.rows import RowEstimates

_TOLERANCE = 1e-5


@checked
@dataclasses.dataclass(frozen=True)
class BlockProblem:
    """A fault of one block.

    Attributes:
        index: Index of the block; for a run of missing blocks, the index of the first.
        kind: ``missing`` (never written), ``corrupt`` (cannot be read: the checksum does not match,
            or the file is cut short), ``not finite`` (contains NaN or infinity) or ``deviating`` (a
            row does not have the expected sum).
        text: One line with the block's rows and file.
    """

    index: int
    kind: str
    text: str


def verify(
    store: MatrixStore,
    *,
    row_sum: float | None = None,
    scale: float | None = None,
) -> list[BlockProblem]:
    """Read a store block by block and report all damage.

    Args:
        store: The store.
        row_sum: The sum that every row should have, or None to skip the check. For a discounted
            sum over h steps it is (1 - discount^h) / (1 - discount). Sums in float64 may differ by
            1e-5 of the scale, since entries are rounded to float32.
        scale: Size of the summed numbers; None is the row sum itself.

    Returns:
        The faults in the order of the blocks; damage to a block raises nothing.
    """
    found: list[BlockProblem] = []
    tolerance = _TOLERANCE * abs((row_sum if scale is None else scale) or 0.0)

    def report(index: int, kind: str, finding: str) -> None:
        found.append(BlockProblem(index, kind, f"{store.describe_block(index)}: {finding}"))

    gaps = split_into_runs(store.missing_blocks())
    missing = {index for gap in gaps for index in gap}
    for first, *rest in gaps:
        report(first, "missing", f"missing{f', like all up to block {rest[-1]}' if rest else ''}")
    for index in sorted({*range(store.num_blocks)} - missing):
        try:
            rows = store.read_block(index)
        except InputError as error:
            reason = first_part(error.__cause__ or error)
            report(
                index, "corrupt", f"corrupt, to be computed again by generate --repair ({reason})"
            )
            continue
        finite = np.isfinite(rows)
        if not finite.all():
            bad = np.count_nonzero(~finite)
            report(index, "not finite", f"{bad} values are NaN or infinite")
        whole = np.flatnonzero(finite.all(axis=1))
        if row_sum is None or whole.size == 0:
            continue
        sums = rows.sum(axis=1, dtype=np.float64, where=finite)[whole]
        worst = int(np.argmax(np.abs(sums - row_sum)))
        if abs(float(sums[worst]) - row_sum) > tolerance:
            row = store.block_range(index)[0] + int(whole[worst])
            report(
                index,
                "deviating",
                f"expected rows that sum to {row_sum:.9g} within {tolerance:.3g}, got "
                f"{sums[worst]:.9g} in row {row}",
            )
    return sorted(found, key=lambda problem: problem.index)


@dataclasses.dataclass(frozen=True)
class EstimateStore:
    """The store of Ψ, and the store of (A - B) / 2 for its halves; None if nothing was sampled."""

    matrix: MatrixStore
    half_difference: MatrixStore | None

    def stores(self) -> list[MatrixStore]:
        """Return both stores, or the only one; the matrix last."""
        return [store for store in (self.half_difference, self.matrix) if store is not None]

    def missing_blocks(self) -> list[int]:
        """Return indices of the blocks that are not written in full, in order."""
        return sorted({index for store in self.stores() for index in store.missing_blocks()})

    def write_block(self, index: int, estimates: "RowEstimates") -> None:
        """Write a block of both; see ``MatrixStore.write_block``."""
        if self.half_difference is not None:
            if estimates.half_difference is None:
                raise InputError(f"{self.matrix.path}: expected half differences, got none")
            self.half_difference.write_block(index, estimates.half_difference)
        self.matrix.write_block(index, estimates.rows)

    def verify(self, row_sum: float | None) -> list[BlockProblem]:
        """Check both stores: half differences sum to 0, rows to ``row_sum``; see ``verify``."""
        found = []
        for store in self.stores():
            total = row_sum if store is self.matrix or row_sum is None else 0.0
            for problem in verify(store, row_sum=total, scale=row_sum):
                text = f"{store.path}: {problem.text}"
                found.append(dataclasses.replace(problem, text=text))
        if self.matrix.settings.get("halves") and self.half_difference is None:
            text = (
                f"{self.matrix.path}: expected the difference of its halves in {HALF_DIFFERENCE}, "
                "got none; generate computes it again"
            )
            found.append(BlockProblem(0, "missing", text))
        return found

    def remove_block(self, index: int) -> None:
        """Delete a block, so that it counts as missing."""
        for store in self.stores():
            store.remove_block(index)


def create_estimates(
    path: Path,
    *,
    shape: tuple[int, int],
    block_rows: int,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any],
    sampled: bool,
) -> EstimateStore:
    """Make the stores of a matrix, or open existing ones made under the same settings.

    Arguments are as for ``create_or_resume``; ``sampled`` says whether rows have half differences.
    """
    create = functools.partial(
        create_or_resume, shape=shape, block_rows=block_rows, provenance=provenance
    )
    matrix = create(path, settings=settings)
    if not sampled:
        return EstimateStore(matrix, None)
    other = {**settings, "quantity": f"half difference of a {settings['quantity']}"}
    return EstimateStore(matrix, create(matrix.path / HALF_DIFFERENCE, settings=other))


def open_estimates(path: str | Path) -> EstimateStore:
    """Open the stores of a matrix, complete or not; see ``open_store``."""
    matrix = open_store(path)
    beside = matrix.path / HALF_DIFFERENCE
    half_difference = find_store(beside)
    if half_difference is None and beside.exists():
        require_place(beside)  # Lock files of a killed process may stay; blocks may not.
    return EstimateStore(matrix, half_difference)
