"""Ground truths, generated in an experiment's folder."""

import dataclasses
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from rlreps.app.generation import generate
from rlreps.numerics import usable_cores
from rlreps.runs.folder import RunFolder
from rlreps.subspace.svd import Decomposition
from rlreps.successor.measure.methods import MonteCarlo, SuccessorMeasure
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.noise_floor import SamplingError, sampling_error
from rlreps.successor.truth.store import STORE
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.stored_subspace import DEFAULT_DECOMPOSITION
from rlreps.training.on_store import ground_truth_for


@dataclasses.dataclass(frozen=True)
class OwnGroundTruth:
    """A ground truth and the sampling error of its matrix.

    Attributes:
        path: Its store.
        truth: The centred matrix and its principal subspace.
        error: Error of a Monte-Carlo matrix; None for a method without sampling noise.
    """

    path: Path
    truth: GroundTruth
    error: SamplingError | None


def own_ground_truth(
    config: SuccessorMeasure,
    folder: RunFolder,
    num_features: int,
    *,
    halves: Decomposition = DEFAULT_DECOMPOSITION,
    executor: Executor | None = None,
) -> OwnGroundTruth:
    """Generate a successor measure in an experiment's folder, or continue it, and load it.

    Args:
        config: The successor measure.
        folder: The experiment's folder; its metrics get a record of every generation.
        num_features: Largest d that will be needed.
        halves: How to compute the subspaces of the two halves for the noise floor, and up to which
            d.
        executor: As for ``generate``.

    Returns:
        The ground truth, with enough components for d features.

    Raises:
        InputError: For an unknown or invalid arena, or if the folder's store holds another matrix
            or is damaged.
    """
    path = folder.path / STORE
    generated = generate(config, path, executor=executor)
    if generated["computed_rows"]:
        folder.append_metrics({"stage": STORE, **generated})
    # Each half gets half of the cores: if both used all cores, their threads would wait for each
    # other.
    threads = max(1, usable_cores() // 2)
    with threadpool_limits(threads, user_api="blas"), ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(sampling_error, open_estimates(path), halves)
        truth = ground_truth_for(path, num_features)
        return OwnGroundTruth(path, truth, pending.result())


def generation_record(folder: RunFolder, config: MonteCarlo) -> dict[str, Any]:
    """Return the ground truth's time, summed over a run's resumptions, and its transitions.

    A killed process leaves blocks but records no time, so the rate leaves its transitions out.
    """
    records = [record for record in folder.read_metrics() if record.get("stage") == STORE]
    seconds = sum(record["seconds"] for record in records)
    computed = sum(record["computed_transitions"] for record in records)
    return {
        "transitions": config.transitions,
        "computed_transitions": computed,
        "seconds": round(seconds, 3),
        "transitions_per_second": round(computed / seconds) if seconds else 0,
    }
