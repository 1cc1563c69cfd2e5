"""Estimates of a command's sizes, memory and time before it starts. Nothing is written.

Times come from a short run of work on this machine. They leave out compilation, evaluation,
communication between processes, and the decomposition of a store that does not keep one yet.
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
from rlreps.successor.ground_truth import load_ground_truth
from rlreps.successor.measure import MonteCarlo, SuccessorMeasure
from rlreps.successor.store import open_store
from rlreps.training import train_population
from rlreps.workflows.train import TrainingConfig, learner_for, stored_problem

_TRIED_TRANSITIONS = 2 * 10**7
_TRIED_UPDATES = 10


def plan_generation(measure: SuccessorMeasure, count: int) -> dict[str, Any]:
    """Estimate the cost of ``workflows.generate.generate`` in several processes.

    Returns:
        JSON values: sizes of the store, the least ``memory_bytes`` of a process, and ``seconds``
        until the last one ends; None without rollouts.
    """
    rows, seconds = measure.num_states, float("nan")
    block_rows = min(measure.block_rows, rows)
    if isinstance(measure, MonteCarlo):
        # Time the first block with some of its rollouts, and scale to all of them.
        tried = max(4, _TRIED_TRANSITIONS // (block_rows * measure.horizon))
        tried = min(measure.rollouts, tried)
        estimator = dataclasses.replace(measure, rollouts=tried).estimator()
        for _ in range(2):  # The first pass compiles.
            began = time.perf_counter()
            list(estimator.row_blocks([range(block_rows)]))
            seconds = time.perf_counter() - began
        seconds *= measure.rollouts / tried * math.ceil(math.ceil(rows / block_rows) / count)
    return {
        "states": rows,
        "stored_bytes": measure.stored_bytes,
        "transitions": measure.transitions,
        "processes": count,
        "memory_bytes": measure.working_bytes,
        "seconds": None if math.isnan(seconds) else round(seconds, 1),
    }


def plan_training(
    config: TrainingConfig, store_path: Path, count: int, devices: Sequence[jax.Device]
) -> dict[str, Any]:
    """Estimate the cost of ``workflows.train.run_training`` in several processes.

    Args:
        config: The run.
        store_path: A complete store.
        count: Number of processes.
        devices: Devices of one process; the other processes have the same number.

    Returns:
        JSON values: what is distributed over all devices, ``memory_bytes`` of matrix, parameters
        and optimizer on the devices of a process, and ``seconds`` of updates.

    Raises:
        InputError: If the store or the configuration is invalid.
    """
    store = open_store(store_path)
    states, d = store.shape[0], config.num_features
    most = min(states - 1, store.shape[1])
    require(1 <= d <= most, f"1 <= d <= {most} components", d)
    # Any subspace will do: the time of updates does not depend on it.
    none = PrincipalSubspace(
        basis=np.eye(states, d, dtype=np.float32),
        singular_values=np.ones(d, np.float32),
        total_energy=float(d),
        method="none",
        settings={},
    )
    truth = load_ground_truth(store_path, principal=none)
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
        "states": states,
        "tasks": store.shape[1],
        "processes": count,
        "devices": f"{len(devices)} x {devices[0].device_kind} a process",
        "shared_out": "seeds" if by_seeds else "rows of every batch",
        "memory_bytes": held * len(devices),
        "seconds": round(result.seconds / (2 * updates) * config.steps, 1),
    }
