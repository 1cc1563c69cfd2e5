"""Plans of several processes, before any starts: shares, sizes and time of each.

Times come from rates that are measured here and now, for a moment, on this machine. They leave out
what processes send each other, compilation, evaluation, and the decomposition of a store that does
not keep its own yet. Nothing is written.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlreps.errors import require
from rlreps.subspace import PrincipalSubspace
from rlreps.successor.ground_truth import GroundTruth, load_ground_truth
from rlreps.successor.measure import MonteCarlo, SuccessorMeasure
from rlreps.successor.store import open_store
from rlreps.successor.store.estimates import open_estimates
from rlreps.successor.store.format import create_or_resume, find_store
from rlreps.training import train_population
from rlreps.workflows.train import (
    TrainingConfig,
    learner_for,
    stored_problem,
)

_TRIED_TRANSITIONS = 2 * 10**7
_TRIED_UPDATES = 10


def plan_generation(measure: SuccessorMeasure, path: Path, count: int) -> dict[str, Any]:
    """Say what each of several processes would do in ``workflows.generate.generate``.

    Args:
        measure: What to compute.
        path: The store's folder; blocks that are there are not computed again.
        count: Processes.

    Returns:
        JSON values: sizes of the whole, and for each process its ``blocks``, ``rows``,
        ``written_bytes``, least ``memory_bytes`` and, where rollouts were timed, ``seconds``.

    Raises:
        InputError: For a store that is there under other settings.
    """
    rows = measure.num_states
    block_rows = min(measure.block_rows, rows)
    missing = list(range(math.ceil(rows / block_rows)))
    if find_store(path) is not None:
        # It is there: this only compares settings.
        create_or_resume(
            path,
            shape=(rows, rows),
            block_rows=block_rows,
            settings=measure.store_settings(),
            provenance={},
        )
        missing = open_estimates(path).missing_blocks()
    speed = _rows_per_second(measure) if isinstance(measure, MonteCarlo) else None
    each = []
    for index in range(count):
        own = [min(block_rows, rows - block * block_rows) for block in missing[index::count]]
        each.append(
            {
                "process": index,
                "blocks": len(own),
                "rows": sum(own),
                "written_bytes": measure.stored_bytes // rows * sum(own),
                "memory_bytes": measure.working_bytes,
                "seconds": None if speed is None else round(sum(own) / speed, 1),
            }
        )
    return {
        "store": str(path),
        "states": rows,
        "stored_bytes": measure.stored_bytes,
        "transitions": measure.transitions,
        "rows_per_second_here": None if speed is None else round(speed, 3),
        "processes": each,
    }


def _rows_per_second(measure: MonteCarlo) -> float:
    """Time a block's rows with two small numbers of rollouts, and continue the line."""
    rows = min(measure.block_rows, measure.num_states)
    most = min(measure.rollouts, max(4, _TRIED_TRANSITIONS // (rows * measure.horizon)))
    counts = np.array([max(2, most // 4), most])
    seconds = [_seconds_of(dataclasses.replace(measure, rollouts=int(each))) for each in counts]
    # A row costs time of its own, which does not grow with its rollouts.
    slope = max(0.0, float(np.diff(seconds)[0])) / max(1, int(np.diff(counts)[0]))
    return rows / (seconds[1] + slope * (measure.rollouts - most))


def _seconds_of(measure: MonteCarlo) -> float:
    """Time the rows of the first block."""
    block = range(min(measure.block_rows, measure.num_states))
    estimator, seconds = measure.estimator(), 0.0
    for _ in range(2):  # The first compiles.
        began = time.perf_counter()
        list(estimator.row_blocks([block]))
        seconds = time.perf_counter() - began
    return seconds


def _truth_of_no_meaning(store_path: Path, num_features: int) -> GroundTruth:
    """Load a store with a subspace that was not computed: updates take as long by any."""
    num_states, num_tasks = open_store(store_path).shape
    most = min(num_states - 1, num_tasks)
    require(1 <= num_features <= most, f"1 <= d <= {most} components", num_features)
    basis = np.eye(num_states, num_features, dtype=np.float32)
    ones = np.ones(num_features, np.float32)
    principal = PrincipalSubspace(
        basis=basis,
        singular_values=ones,
        total_energy=float(num_features),
        method="none",
        settings={},
    )
    return load_ground_truth(store_path, principal=principal)


def plan_training(
    config: TrainingConfig, store_path: Path, count: int, devices: Sequence[jax.Device]
) -> dict[str, Any]:
    """Say what each of several processes would do in ``workflows.train.run_training``.

    Args:
        config: The run.
        store_path: A complete store.
        count: Processes.
        devices: Those of one process; the others have as many like them.

    Returns:
        JSON values: what is shared out, and for each process its ``seeds`` or ``rows`` of every
        batch, ``memory_bytes`` of matrix, parameters and optimizer on all its devices, and
        ``seconds`` of updates.

    Raises:
        InputError: For anything about the store or the configuration that does not fit.
    """
    store = open_store(store_path)
    truth = _truth_of_no_meaning(store_path, config.num_features)
    total, seeds = count * len(devices), list(config.seeds)
    by_seeds = len(seeds) % total == 0
    own_seeds = len(seeds) // total if by_seeds else len(seeds)
    own_rows = config.rows if by_seeds else math.ceil(config.rows / total)
    learner = dataclasses.replace(learner_for(config, truth, store.shape[1]), rows=own_rows)
    updates = min(_TRIED_UPDATES, config.steps)
    with stored_problem(config, store, truth) as problem:
        learner.check(problem.source)
        result = train_population(
            learner,
            problem.source,
            steps=2 * updates,
            seeds=seeds[:own_seeds],
            own_numbers=False,
            evaluate_every=updates,
            checkpoint_every=updates,
            progress=False,
        )
        held = sum(leaf.nbytes for leaf in jax.tree.leaves((problem.source, result.state)))
    second = result.seconds / (2 * updates)
    each = []
    for index in range(count):
        first = index * len(devices)
        if by_seeds:
            share: dict[str, Any] = {
                "seeds": seeds[first * own_seeds : (first + len(devices)) * own_seeds]
            }
        else:
            bounds = [min(config.rows, own_rows * place) for place in (first, first + len(devices))]
            share = {"rows": bounds[1] - bounds[0]}
        seconds = round(second * config.steps, 1)
        each.append(
            {"process": index, **share, "memory_bytes": held * len(devices), "seconds": seconds}
        )
    return {
        "store": str(store_path),
        "devices": f"{len(devices)} x {devices[0].device_kind} a process",
        "shared_out": "seeds" if by_seeds else "rows of every batch",
        "seconds_per_update_here": round(second, 6),
        "processes": each,
    }
