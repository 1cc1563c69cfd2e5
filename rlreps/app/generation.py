"""Generate a store from a successor measure, on one machine or many and across kills.

This is a command and no job. The folder of a job holds a configuration, a summary and a page. A
store has no such files. The settings in its metadata identify it. It is complete when no block is
missing, and every call checks its blocks again.
"""

import contextlib
import functools
import shutil
import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from rlreps.app.job import takes
from rlreps.app.options import Choice, Switch
from rlreps.errors import InputError, in_gigabytes, require_memory
from rlreps.runs.locks import exclusive
from rlreps.runs.progress import is_visible, progress_bar
from rlreps.runs.provenance import provenance
from rlreps.runs.workers import map_names
from rlreps.successor.measure.methods import METHODS, MonteCarlo, SuccessorMeasure
from rlreps.successor.measure.rows import RowEstimates, RowEstimator
from rlreps.successor.truth.store.estimates import EstimateStore, create_estimates
from rlreps.successor.truth.store.format import require_place

CHOICES: dict[Any, Choice] = {SuccessorMeasure: Choice("method", METHODS)}

DATA, MONTE_CARLO = Path("data"), MonteCarlo()


@takes("executor")
def generate(
    measure: SuccessorMeasure = MONTE_CARLO,
    out: Path | None = None,
    repair: Switch = False,
    *,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Compute a successor measure; run again to resume.

    Args:
        measure: The successor measure.
        out: Folder of the store; by default one under data/ named after the configuration.
        repair: Recompute damaged blocks instead of raising an error.
        executor: Where to compute blocks of rows, which this process writes; it is not shut down.
            By default, this process computes them.

    Returns:
        The run's measurements as JSON values: ``path``, ``method``, ``computed_rows`` and
        ``seconds`` of this call; for Monte Carlo also ``transitions`` of the whole matrix,
        ``computed_transitions`` and ``transitions_per_second`` (None if nothing was missing).

    Raises:
        InputError: For an unknown or invalid arena; if the matrix does not fit the disk or memory;
            if the path holds something else, a store with other settings or damaged blocks; if
            another run is working in the store; or if the disk refused a write.
        WorkerDiedError: If a worker of the executor died.
    """
    path = DATA / measure.store_name if out is None else out
    settings = measure.store_settings()
    _require_room(measure, path)
    require_place(path)
    with exclusive(path):
        store = create_estimates(
            path,
            shape=(measure.num_states, measure.num_states),
            block_rows=min(measure.block_rows, measure.num_states),
            settings=settings,
            provenance={"arena": measure.arena, **provenance()},
            sampled=measure.sampled,
        )
        missing = _without_damage(store, measure.row_sum, repair).missing_blocks()
        blocks = {index: range(*store.matrix.block_range(index)) for index in missing}
        began = time.perf_counter()
        if blocks:
            _compute(measure, store, blocks, executor)
        seconds = time.perf_counter() - began
    rows = sum(map(len, blocks.values()))
    figures: dict[str, Any] = {
        "path": str(path),
        "method": measure.method,
        "computed_rows": rows,
        "seconds": round(seconds, 3),
    }
    if measure.transitions:
        computed = rows * (measure.transitions // measure.num_states)
        figures |= {
            "transitions": measure.transitions,
            "computed_transitions": computed,
            "transitions_per_second": round(computed / seconds) if computed else None,
        }
    return figures


def _without_damage(store: EstimateStore, row_sum: float, repair: bool) -> EstimateStore:
    """Remove damaged blocks, or refuse them."""
    damaged = [fault for fault in store.verify(row_sum) if fault.kind != "missing"]
    if damaged and not repair:
        found = "; ".join(fault.text for fault in damaged)
        raise InputError(f"expected sound blocks to resume from, got {found}")
    for fault in damaged:
        store.remove_block(fault.index)
    return store


def _compute(
    measure: SuccessorMeasure,
    store: EstimateStore,
    blocks: Mapping[int, range],
    executor: Executor | None,
) -> None:
    """Compute and write the missing blocks, given their rows."""
    total = measure.num_states
    if is_visible():
        # Print this first, since the bar estimates the time only after the first block.
        steps = f", {measure.transitions:.3g} transitions" if measure.transitions else ""
        print(
            f"{store.matrix.path}: {total:,} x {total:,} entries, "
            f"{in_gigabytes(measure.stored_bytes)} on disk{steps}",
            file=sys.stderr,
        )
    done = total - sum(map(len, blocks.values()))
    with (
        progress_bar("successor measure", total=total, done=done, unit="rows") as advance,
        contextlib.closing(_estimates(measure, blocks, executor)) as estimates,
    ):
        for index, block in estimates:
            store.write_block(index, block)
            advance(len(block.rows))


def _estimates(
    measure: SuccessorMeasure, blocks: Mapping[int, range], executor: Executor | None
) -> Generator[tuple[int, RowEstimates]]:
    """Yield the index and the rows of each block, on an executor as they come."""
    if executor is not None:
        yield from map_names(functools.partial(_rows, measure, blocks), blocks, executor)
        return
    with contextlib.closing(measure.estimator().row_blocks([*blocks.values()])) as found:
        yield from zip(blocks, found, strict=True)


def _rows(measure: SuccessorMeasure, blocks: Mapping[int, range], index: int) -> RowEstimates:
    """Compute the rows of one block."""
    (found,) = _estimator(measure).row_blocks([blocks[index]])
    return found


@functools.lru_cache(maxsize=1)
def _estimator(measure: SuccessorMeasure) -> RowEstimator:
    """Make the estimator once in a process: it may have a matrix to factorise."""
    return measure.estimator()


def _require_room(measure: SuccessorMeasure, path: Path) -> None:
    """Refuse a matrix that does not fit the disk or memory, before any computation.

    Blocks of a store at the path count as free space.

    Raises:
        InputError: If free disk space or physical memory is too small.
    """
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    there = sum(file.stat().st_size for file in path.rglob("c/*/0")) if path.is_dir() else 0
    free = shutil.disk_usage(folder).free + there
    asked = f"{measure.num_states:,} x {measure.num_states:,} entries"
    if measure.stored_bytes > free:
        raise InputError(
            f"expected a matrix that fits the {in_gigabytes(free)} free at {folder}, got {asked}, "
            f"{in_gigabytes(measure.stored_bytes)}"
        )
    require_memory(f"a matrix of {asked} that can be computed", measure.working_bytes)
