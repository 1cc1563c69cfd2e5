"""Generation of a store from a successor measure: by several processes, through kills."""

import contextlib
import functools
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlreps.errors import InputError, ProcessDiedError, in_gigabytes, require_memory
from rlreps.runs.machine import peak_memory_mib
from rlreps.runs.processes import ALONE, Processes
from rlreps.runs.progress import progress_bar
from rlreps.runs.provenance import provenance
from rlreps.successor.measure import SuccessorMeasure
from rlreps.successor.store.estimates import EstimateStore, create_estimates, open_estimates
from rlreps.successor.store.format import find_store, require_place

_POLL_SECONDS = 0.2


def generate(
    measure: SuccessorMeasure,
    path: Path,
    *,
    repair: bool = False,
    processes: Processes = ALONE,
    progress: bool = True,
) -> dict[str, Any]:
    """Compute the missing row blocks of a store, creating it if need be.

    Args:
        measure: What to compute.
        path: The store's folder, shared by all processes.
        repair: Whether to compute damaged blocks again instead of refusing to go on.
        processes: Who takes part; each computes and writes its own blocks.
        progress: Whether to show a progress bar.

    Returns:
        The run's own figures as JSON values: ``path``, ``method``, ``computed_rows``, ``seconds``
        and ``peak_memory_mib`` of this call and process; for Monte Carlo also ``transitions`` of
        the whole matrix, ``computed_transitions`` and ``transitions_per_second`` (None if nothing
        was missing).

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If the matrix cannot fit the disk or memory; the path holds something else, a
            store made under other settings or one with damaged blocks; another run is at work in
            it; the disk refused a write; or the store was moved meanwhile.
        ProcessDiedError: If another process of this run died before it had written its blocks.
    """
    settings = measure.store_settings()
    _require_room(measure, path)
    create = functools.partial(
        create_estimates,
        path,
        shape=(measure.num_states, measure.num_states),
        block_rows=min(measure.block_rows, measure.num_states),
        settings=settings,
        provenance={"arena": measure.arena, **provenance()},
        sampled=measure.sampled,
    )
    rows, seconds = 0, 0.0
    # A complete store may lie where nothing can be written.
    if processes.count > 1 or not _is_finished(measure, path, create):
        with processes.together(
            path,
            check=lambda: require_place(path),
            prepare=lambda: _prepare(measure, create, repair),
        ) as store:
            missing = processes.share(store.missing_blocks())
            start = time.perf_counter()
            rows = _compute(measure, store, missing, processes, progress)
            seconds = time.perf_counter() - start
            while processes.count > 1 and store.missing_blocks():
                _require_others(store, processes)
                time.sleep(_POLL_SECONDS)
            if find_store(path) is None or store.missing_blocks():
                raise InputError(
                    f"expected the store to stay in {path} while it was computed, got it moved or "
                    "deleted; bring its parts together and start again"
                )
    figures: dict[str, Any] = {
        "path": str(path),
        "method": measure.method,
        "computed_rows": rows,
        "seconds": round(seconds, 3),
        "peak_memory_mib": peak_memory_mib(),
    }
    if measure.transitions:
        computed = rows * (measure.transitions // measure.num_states)
        figures |= {
            "transitions": measure.transitions,
            "computed_transitions": computed,
            "transitions_per_second": round(computed / seconds) if computed else None,
        }
    return figures


def _is_finished(
    measure: SuccessorMeasure, path: Path, create: Callable[[], EstimateStore]
) -> bool:
    """Return whether the store is complete and sound; write nothing."""
    if find_store(path) is None:
        return False
    found = open_estimates(path)
    if found.missing_blocks() or measure.sampled != (found.half_difference is not None):
        return False
    # Both are there: creating them only compares settings.
    return not _damaged(create(), measure.row_sum)


def _prepare(
    measure: SuccessorMeasure, create: Callable[[], EstimateStore], repair: bool
) -> EstimateStore:
    """Create or open the store, with nothing damaged in it."""
    store = create()
    damaged = _damaged(store, measure.row_sum)
    if damaged and not repair:
        raise InputError(
            f"{store.matrix.path}: expected sound blocks to resume from, got "
            + "; ".join(finding for _, finding in damaged)
        )
    for index, _ in damaged:
        store.remove_block(index)
    return store


def _damaged(store: EstimateStore, row_sum: float) -> list[tuple[int, str]]:
    """List index and description of everything wrong with blocks that are there."""
    reports = store.verify(row_sum)
    return [(problem.index, str(problem)) for one in reports for problem in one.damaged_blocks]


def _compute(
    measure: SuccessorMeasure,
    store: EstimateStore,
    missing: list[int],
    processes: Processes,
    progress: bool,
) -> int:
    """Compute and write this process's missing blocks; return how many rows they have."""
    if not missing:
        return 0
    matrix = store.matrix
    blocks = [range(*matrix.block_range(index)) for index in missing]
    rows = sum(map(len, blocks))
    mine = processes.share(list(range(matrix.num_blocks)))
    total = sum(len(range(*matrix.block_range(index))) for index in mine)
    show = progress and processes.index == 0
    if show:
        # Before the work, whose time the bar estimates from the first block on.
        steps = f", {measure.transitions:.3g} transitions" if measure.transitions else ""
        print(
            f"{matrix.path}: {measure.num_states:,} x {measure.num_states:,} entries, "
            f"{in_gigabytes(measure.stored_bytes)} on disk{steps}",
            file=sys.stderr,
        )
    with (
        progress_bar(
            "successor measure",
            total=total,
            done=total - rows,
            unit="rows",
            show=show,
        ) as advance,
        contextlib.closing(measure.estimator().row_blocks(blocks)) as estimates,
    ):
        for index, block in zip(missing, estimates, strict=True):
            store.write_block(index, block)
            advance(len(block.rows))
            _require_others(store, processes)
    return rows


def _require_others(store: EstimateStore, processes: Processes) -> None:
    """Raise ``ProcessDiedError`` if a process is gone that has not written all its blocks."""
    gone = processes.dead(store.matrix.path)
    if not gone:
        return
    owing = {processes.owner(index) for index in store.missing_blocks()}
    died = [index for index in gone if index in owing]
    if died:
        raise ProcessDiedError(
            f"expected {processes.count} processes to work on {store.matrix.path}, got none any "
            f"more as process {', '.join(map(str, died))}, which still owes blocks; the same "
            "command, started everywhere, goes on from here"
        )


def _require_room(measure: SuccessorMeasure, path: Path) -> None:
    """Refuse a matrix that fits neither the disk nor memory, before anything is computed.

    Blocks that a store at the path already holds count as room.

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
