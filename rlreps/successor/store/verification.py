"""Verification of a store: check every block and report all damage."""

from dataclasses import dataclass

import numpy as np

from rlreps.errors import InputError
from rlreps.successor.store.format import MatrixStore, first_part, runs


@dataclass(frozen=True)
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

    def __str__(self) -> str:
        return self.text


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
        InputError: If a block is a link that leads out of the store, or lies beyond the last.
    """
    found: list[BlockProblem] = []
    size = row_sum if scale is None else scale
    tolerance = relative_tolerance * abs(size or 0.0)

    def report(kind: str, finding: str) -> None:
        found.append(BlockProblem(index, kind, f"{store.describe_block(index)}: {finding}"))

    gaps = {gap[0]: gap for gap in runs(store.missing_blocks())}
    missing = {index for gap in gaps.values() for index in gap}
    for index in range(store.num_blocks):
        if index in missing:
            if len(gap := gaps.get(index, [])) == 1:
                report("missing", "missing")
            elif gap:
                first, last = store.block_range(index)[0], store.block_range(gap[-1])[1] - 1
                text = f"blocks {index}-{gap[-1]} (rows {first}-{last}): missing"
                found.append(BlockProblem(index, "missing", text))
            continue
        try:
            rows = store.read_block(index)
        except InputError as error:
            reason = first_part(error.__cause__ or error)
            report("corrupt", f"corrupt, to be computed again by generate --repair ({reason})")
            continue
        finite = np.isfinite(rows)
        if not finite.all():
            report("not finite", f"{np.count_nonzero(~finite)} values are NaN or infinite")
        whole = np.flatnonzero(finite.all(axis=1))
        if row_sum is None or whole.size == 0:
            continue
        sums = rows.sum(axis=1, dtype=np.float64, where=finite)[whole]
        worst = int(np.argmax(np.abs(sums - row_sum)))
        if abs(float(sums[worst]) - row_sum) > tolerance:
            report(
                "deviating",
                f"expected rows that sum to {row_sum:.9g} within {tolerance:.3g}, got "
                f"{sums[worst]:.9g} in row {store.block_range(index)[0] + int(whole[worst])}",
            )
    return found
