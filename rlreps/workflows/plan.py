"""What a command would take, before it starts: sizes, memory and a rough time. Nothing is written.

Times are those of a moment of work on this machine. They leave out compilation, evaluation, what
processes send each other, and the decomposition of a store that does not keep its own yet.
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
from rlreps.workflows.train import TrainingConfig, learner_for, stored_problem

_TRIED_TRANSITIONS = 2 * 10**7
_TRIED_UPDATES = 10


def plan_generation(measure: SuccessorMeasure, path: Path, count: int) -> dict[str, Any]:
    """Say what ``workflows.generate.generate`` would take in several processes.

    Args:
        measure: What to compute.
        path: The store's folder; blocks that are there are not computed again.
        count: Processes.

    Returns:
        JSON values: sizes of the store, ``missing_blocks``, the least ``memory_bytes`` of a
        process, and ``seconds`` until the last one ends, None where nothing is rolled out.

    Raises:
        InputError: For a store that is there under other settings.
    """
    rows = measure.num_states
    block_rows = min(measure.block_rows, rows)
    missing = math.ceil(rows / block_rows)
    if find_store(path) is not None:
        # It is there: this only compares settings.
        create_or_resume(
            path,
            shape=(rows, rows),
            block_rows=block_rows,
            settings=measure.store_settings(),
            provenance={},
        )
        missing = len(open_estimates(path).missing_blocks())
    seconds = None
    if isinstance(measure, MonteCarlo):
        seconds = round(_seconds_of_block(measure) * math.ceil(missing / count), 1)
    return {
        "store": str(path),
        "states": rows,
        "stored_bytes": measure.stored_bytes,
        "transitions": measure.transitions,
        "missing_blocks": missing,
        "processes": count,
        "memory_bytes": measure.working_bytes,
        "seconds": seconds,
    }


def _seconds_of_block(measure: MonteCarlo) -> float:
    """Time the first block with some of its rollouts, and scale to all of them."""
    rows = min(measure.block_rows, measure.num_states)
    tried = min(measure.rollouts, max(4, _TRIED_TRANSITIONS // (rows * measure.horizon)))
    estimator = dataclasses.replace(measure, rollouts=tried).estimator()
    seconds = 0.0
    for _ in range(2):  # The first compiles.
        began = time.perf_counter()
        list(estimator.row_blocks([range(rows)]))
        seconds = time.perf_counter() - began
    return seconds * measure.rollouts / tried


def _truth_of_no_meaning(store_path: Path, num_features: int) -> GroundTruth:
    """Load a store with a subspace that was not computed: updates take as long by any."""
    num_states, num_tasks = open_store(store_path).shape
    most = min(num_states - 1, num_tasks)
    require(1 <= num_features <= most, f"1 <= d <= {most} components", num_features)
    principal = PrincipalSubspace(
        basis=np.eye(num_states, num_features, dtype=np.float32),
        singular_values=np.ones(num_features, np.float32),
        total_energy=float(num_features),
        method="none",
        settings={},
    )
    return load_ground_truth(store_path, principal=principal)


def plan_training(
    config: TrainingConfig, store_path: Path, count: int, devices: Sequence[jax.Device]
) -> dict[str, Any]:
    """Say what ``workflows.train.run_training`` would take in several processes.

    Args:
        config: The run.
        store_path: A complete store.
        count: Processes.
        devices: Those of one process; the others have as many like them.

    Returns:
        JSON values: what is shared out over all devices, ``memory_bytes`` of matrix, parameters
        and optimizer on those of a process, and ``seconds`` of updates.

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
    return {
        "store": str(store_path),
        "states": store.shape[0],
        "tasks": store.shape[1],
        "processes": count,
        "devices": f"{len(devices)} x {devices[0].device_kind} a process",
        "shared_out": "seeds" if by_seeds else "rows of every batch",
        "memory_bytes": held * len(devices),
        "seconds": round(result.seconds / (2 * updates) * config.steps, 1),
    }
