"""Verification of a store: check every block and report all damage."""

import dataclasses

import numpy as np

from rlreps.errors import InputError
from rlreps.successor.store.format import MatrixStore, first_part, runs


@dataclasses.dataclass(frozen=True)
class BlockProblem:
    """A fault of one block.

    Attributes:
        index: The block; of several missing in a row, the first.
        kind: ``missing`` (never written), ``corrupt`` (cannot be read: the checksum does not match,
            or the file is cut short), ``not finite`` (contains NaN or infinity) or ``deviating`` (a
            row has another sum).
        text: One line with the block's rows and file.
    """

    index: int
    kind: str
    text: str


def verify(
    store: MatrixStore,
    *,
    row_sum: float | None = None,
    relative_tolerance: float = 1e-5,
    scale: float | None = None,
) -> list[BlockProblem]:
    """Read a store block by block and report all damage.

    Args:
        store: The store.
        row_sum: The sum that every row should have, or None to skip the check. For a discounted
            sum over h steps it is (1 - discount^h) / (1 - discount).
        relative_tolerance: Largest |sum - row_sum| / |scale| that passes; sums are computed in
            float64, so that only the rounding of float32 entries remains.
        scale: Size of the summed numbers; None is the row sum itself.

    Returns:
        The faults in the order of the blocks; damage to a block raises nothing.

    Raises:
        InputError: If a block is a link that leads out of the store.
    """
    found: list[BlockProblem] = []
    tolerance = relative_tolerance * abs((row_sum if scale is None else scale) or 0.0)

    def report(index: int, kind: str, finding: str) -> None:
        found.append(BlockProblem(index, kind, f"{store.describe_block(index)}: {finding}"))

    gaps = runs(store.missing_blocks())
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
