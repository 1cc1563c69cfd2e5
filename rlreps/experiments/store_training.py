"""Training on a stored successor measure: what ``rlreps train`` runs."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax import Array

from rlreps import evaluation
from rlreps.configs import EncoderConfig, SubspaceConfig, TrainingConfig, as_json
from rlreps.encoders import Encoder, make_encoder
from rlreps.errors import InputError
from rlreps.ground_truth import DEFAULT_RANK, GroundTruth, load_ground_truth
from rlreps.learner import Learner
from rlreps.locks import exclusive
from rlreps.losses.registry import Problem, make_objective
from rlreps.optimizers import make_optimizer
from rlreps.provenance import provenance
from rlreps.run_folder import RunFolder
from rlreps.sources import MatrixSource, matrix_source
from rlreps.streamed_source import StoreReader, StreamedSource, streamed_source
from rlreps.subspace import CentredBlocks
from rlreps.successor.store import MatrixStore, open_store
from rlreps.training import TrainingResult, train
from rlreps.validation import require

KIND = "train"
MATRIX = "matrix"


def ground_truth_for(store_path: Path, num_features: int, *, progress: bool = False) -> GroundTruth:
    """The ground truth of a store, with components enough for d features.

    Raises:
        InputError: If there is no such store, it is incomplete or corrupt, or d exceeds the
            number of states less one or the rank of the matrix.
    """
    num_states = open_store(store_path).shape[0]
    require(
        num_features < num_states,
        f"d < {num_states}, the number of states (a centred matrix has rank n - 1 at most)",
        num_features,
    )
    rank = num_features if num_features > DEFAULT_RANK else None
    truth = load_ground_truth(store_path, SubspaceConfig(rank=rank), progress=progress)
    truth.require_dimension(num_features)
    return truth


def encoder_and_inputs(config: TrainingConfig, truth: GroundTruth) -> tuple[Encoder, Array]:
    """The configured encoder and its inputs for all states: indices if tabular, else positions."""
    num_inputs = truth.coordinates.shape[1]
    encoder = _encoder(config.encoder, num_inputs, truth.num_states, config.num_features)
    if config.encoder.name == "tabular":
        return encoder, jnp.arange(truth.num_states)
    return encoder, truth.coordinates


@functools.lru_cache(maxsize=32)
def _encoder(config: EncoderConfig, num_inputs: int, num_states: int, num_features: int) -> Encoder:
    """The same object for the same configuration, so that runs share what JAX compiles for it."""
    return make_encoder(
        config, num_inputs=num_inputs, num_states=num_states, num_features=num_features
    )


def make_learner(config: TrainingConfig, encoder: Encoder, num_tasks: int) -> Learner:
    """The configured update of an encoder on a matrix of ``num_tasks`` columns."""
    problem = Problem(config.num_features, num_tasks, config.optimizer.learning_rate)
    return Learner(
        encoder=encoder,
        objective=make_objective(config.objective, problem),
        optimizer=make_optimizer(config.optimizer, config.steps),
        rows=config.rows,
        tasks=config.tasks,
    )


def run_training(
    config: TrainingConfig,
    store_path: Path,
    out: Path,
    *,
    truth: GroundTruth | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains on a store in a folder of its own, resuming what was interrupted.

    Args:
        config: The run.
        store_path: A complete store.
        out: The run's folder.
        truth: The store's ground truth, if the caller has loaded it.
        progress: Whether to show a progress bar.

    Returns:
        The run's summary, as written to ``summary.json``: configuration names, ``steps``,
        ``seconds`` of training, the final figures as means over seeds and each seed's own.

    Raises:
        InputError: For anything about the store, the folder or the configuration that does not fit.
        TrainingDivergedError: If training became non-finite.
    """
    store = open_store(store_path)
    described = _describe(store, config)
    existing = RunFolder.find(out, kind=KIND, config=described)
    finished = existing.read_summary() if existing is not None else None
    if finished is not None:
        return finished
    if truth is None:
        truth = ground_truth_for(store_path, config.num_features, progress=progress)
    truth.require_dimension(config.num_features)
    encoder, inputs = encoder_and_inputs(config, truth)
    learner = make_learner(config, encoder, store.shape[1])
    with _source(config, store, truth, inputs) as source:
        # All that can be wrong with the input has been said before the first file is written.
        learner.check(source)
        with exclusive(out):
            folder = RunFolder.create_or_resume(
                out,
                kind=KIND,
                config=described,
                provenance={
                    "store": str(store_path.absolute()),
                    "store_from_run": os.path.relpath(store_path.absolute(), out.absolute()),
                    **provenance(),
                },
            )
            result = _train(config, learner, source, truth, folder, progress)
    figures = [
        evaluation.evaluate_encoder(encoder, result.params(index), inputs, truth)
        for index in range(config.num_seeds)
    ]
    summary = {
        "method": config.objective.name,
        "encoder": config.encoder.name,
        "steps": config.steps,
        "seeds": list(result.seeds),
        "seconds": round(result.seconds, 3),
        "compile_seconds": round(result.compile_seconds, 3),
        **evaluation.summarise(figures),
    }
    folder.write_summary(summary)
    return summary


@contextlib.contextmanager
def _source(
    config: TrainingConfig, store: MatrixStore, truth: GroundTruth, inputs: Array
) -> Iterator[MatrixSource | StreamedSource]:
    """Batches from the matrix in memory, or from its store where it is larger than memory."""
    all_states = config.objective.name == "oracle"
    if not isinstance(truth.matrix, CentredBlocks):
        assert isinstance(truth.matrix, Array)
        yield matrix_source(truth.matrix, inputs, with_population=all_states)
        return
    if all_states:
        raise InputError(
            "expected a matrix in memory for the oracle, which reads whole columns, got one of "
            f"{store.shape[0]} x {store.shape[1]} entries"
        )
    with StoreReader(store, truth.matrix.means) as reader:
        yield streamed_source(reader, inputs)


def _describe(store: MatrixStore, config: TrainingConfig) -> dict[str, Any]:
    """All that decides a run's result: its configuration, and which matrix it is trained on."""
    states, tasks = store.shape
    matrix = {"checksum": store.content_key(), "states": states, "tasks": tasks}
    return {MATRIX: matrix, **as_json(config)}


def _train(
    config: TrainingConfig,
    learner: Learner,
    source: MatrixSource | StreamedSource,
    truth: GroundTruth,
    folder: RunFolder,
    progress: bool,
) -> TrainingResult:
    basis = truth.principal.truncated(config.num_features).basis
    return train(
        learner.encoder,
        learner.objective,
        source,
        optimizer=learner.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=config.tasks,
        seeds=range(config.seed, config.seed + config.num_seeds),
        evaluate=evaluation.distance_evaluation(learner.encoder, source.inputs, basis),
        evaluate_every=config.evaluate_every,
        folder=folder,
        checkpoint_every=config.checkpoint_every,
        description=f"{config.objective.name}, d = {config.num_features}",
        progress=progress,
    )
