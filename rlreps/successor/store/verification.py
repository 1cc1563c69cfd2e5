"""Verification of a store: every block is checked, and all that is wrong is reported."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlreps.errors import InputError
from rlreps.successor.store.format import MatrixStore, as_bytes, first_part


@dataclass(frozen=True, kw_only=True)
class BlockProblem:
    """A finding about one block: its index, its place (rows and file) and the finding."""

    index: int
    place: str
    finding: str

    def __str__(self) -> str:
        return f"{self.place}: {self.finding}"


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Findings of ``verify``.

    Attributes:
        num_blocks: Number of blocks that the store should have.
        missing_blocks: Never written.
        corrupt_blocks: Cannot be read: the checksum does not match, or the file is cut short.
        non_finite_blocks: Hold NaN or infinity.
        deviating_blocks: Hold a row whose sum is further from ``row_sum`` than the tolerance.
        worst_deviation: Largest |sum - row_sum| over all finite rows, within the tolerance or
            not; None if no row sum was checked.
        digest: ``MatrixStore.digest``, or None if a block is missing or corrupt.
    """

    num_blocks: int
    missing_blocks: tuple[BlockProblem, ...]
    corrupt_blocks: tuple[BlockProblem, ...]
    non_finite_blocks: tuple[BlockProblem, ...]
    deviating_blocks: tuple[BlockProblem, ...]
    worst_deviation: float | None
    digest: str | None

    @property
    def damaged_blocks(self) -> tuple[BlockProblem, ...]:
        """Written but wrong: corrupt, not finite or with a row that sums to something else."""
        found = (*self.corrupt_blocks, *self.non_finite_blocks, *self.deviating_blocks)
        return tuple(sorted(found, key=lambda problem: problem.index))

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems()

    def problems(self) -> list[str]:
        """One line for each problem, in order of blocks."""
        found = (*self.missing_blocks, *self.damaged_blocks)
        return [str(problem) for problem in sorted(found, key=lambda problem: problem.index)]


def verify(
    store: MatrixStore,
    *,
    row_sum: float | None = None,
    relative_tolerance: float = 1e-5,
    scale: float | None = None,
) -> VerifyReport:
    """Read a store block by block and report everything that is wrong with it.

    Args:
        store: The store.
        row_sum: What every row should sum to, or None to leave the sums alone. For a discounted
            sum over h steps it is (1 - discount^h) / (1 - discount).
        relative_tolerance: Largest |sum - row_sum| / |scale| that passes; the sums themselves are
            taken in float64, so what is left is the rounding of float32 entries.
        scale: Size of what was summed; None is the row sum itself.

    Returns:
        The report; nothing is raised for what is wrong with the matrix.
    """
    hasher = hashlib.sha256()
    found: dict[str, list[BlockProblem]] = {
        kind: [] for kind in ("missing", "corrupt", "non_finite", "deviating")
    }
    deviations: list[float] = []
    size = row_sum if scale is None else scale
    tolerance = relative_tolerance * abs(size or 0.0)
    for index in range(store.num_blocks):
        findings, deviation = _check_block(store, index, hasher.update, row_sum, tolerance)
        for kind, finding in findings.items():
            problem = BlockProblem(index=index, place=store.describe_block(index), finding=finding)
            found[kind].append(problem)
        if deviation is not None:
            deviations.append(deviation)
    readable = not found["missing"] and not found["corrupt"]
    return VerifyReport(
        num_blocks=store.num_blocks,
        missing_blocks=tuple(found["missing"]),
        corrupt_blocks=tuple(found["corrupt"]),
        non_finite_blocks=tuple(found["non_finite"]),
        deviating_blocks=tuple(found["deviating"]),
        worst_deviation=max(deviations, default=None),
        digest=hasher.hexdigest() if readable else None,
    )


def _check_block(
    store: MatrixStore,
    index: int,
    consume: Callable[[bytes], object],
    row_sum: float | None,
    tolerance: float,
) -> tuple[dict[str, str], float | None]:
    """Return findings on one block by kind, and the worst deviation of its finite rows' sums.

    ``consume`` is handed the block's bytes, if it can be read.
    """
    if not store.block_file(index).is_file():
        return {"missing": "missing"}, None
    try:
        rows = store.read_block(index)
    except InputError as error:
        reason = first_part(error.__cause__ or error)
        return {"corrupt": f"corrupt, to be computed again by generate --repair ({reason})"}, None
    consume(as_bytes(rows))
    findings: dict[str, str] = {}
    finite = np.isfinite(rows)
    if not finite.all():
        count = int(np.count_nonzero(~finite))
        findings["non_finite"] = f"{count} values are NaN or infinite"
    whole = np.flatnonzero(finite.all(axis=1))
    if row_sum is None or whole.size == 0:
        return findings, None
    sums = rows.sum(axis=1, dtype=np.float64, where=finite)[whole]
    worst = int(np.argmax(np.abs(sums - row_sum)))
    deviation = abs(float(sums[worst]) - row_sum)
    if deviation > tolerance:
        row = store.block_range(index)[0] + int(whole[worst])
        findings["deviating"] = (
            f"expected rows that sum to {row_sum:.9g} within {tolerance:.3g}, "
            f"got {sums[worst]:.9g} in row {row}"
        )
    return findings, deviation
