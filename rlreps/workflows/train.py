"""Training on a stored successor measure: what ``rlreps train`` runs."""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import with_sizes
from rlreps.configs import EncoderConfig, TrainingConfig, as_json
from rlreps.encoders import Encoder
from rlreps.encoders.registry import make_encoder
from rlreps.errors import InputError, require
from rlreps.runs.complete import finished_summary
from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.progress import progress_bar
from rlreps.runs.provenance import provenance
from rlreps.sources.matrix import MatrixSource, Source, matrix_source
from rlreps.sources.store import StoreReader, StreamedSource, streamed_source
from rlreps.subspace import CentredBlocks
from rlreps.subspace.svd import DEFAULT_RANK, RandomizedSVD
from rlreps.successor.ground_truth import GroundTruth, load_ground_truth
from rlreps.successor.store import MatrixStore, open_store
from rlreps.training import TrainingResult, evaluation, train
from rlreps.training.devices import make_placement
from rlreps.training.hyperparameters import Hyperparameters
from rlreps.training.optimizers import make_optimizer
from rlreps.training.update import Learner

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
    truth = load_ground_truth(
        store_path,
        RandomizedSVD(rank=rank),
        progress=functools.partial(progress_bar, show=progress),
    )
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


def make_learner(
    config: TrainingConfig,
    encoder: Encoder,
    num_tasks: int | None,
    hyperparameters: Hyperparameters | None = None,
) -> Learner:
    """The configured update of an encoder.

    Args:
        config: The run.
        encoder: Its encoder.
        num_tasks: Columns of the matrix; None if the source is live.
        hyperparameters: Those that stand in for the configuration's.
    """
    numbers = hyperparameters
    if numbers is None:
        numbers = Hyperparameters.of(config.objective, config.optimizer.learning_rate)
    objective = with_sizes(
        numbers.of_objective(config.objective),
        num_features=config.num_features,
        num_tasks=num_tasks,
        encoder=encoder,
    )
    return Learner(
        encoder=encoder,
        objective=objective,
        optimizer=make_optimizer(
            config.optimizer, config.steps, learning_rate=numbers.learning_rate
        ),
        rows=config.rows,
        tasks=config.tasks,
    )


def run_training(
    config: TrainingConfig,
    store_path: Path,
    out: Path,
    *,
    truth: GroundTruth | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains on a store in a folder of its own, resuming what was interrupted.

    Args:
        config: The run.
        store_path: A complete store.
        out: The run's folder.
        truth: The store's ground truth, if the caller has loaded it.
        devices: Where to train (see ``placement``); None is JAX's default device. They are no part
            of what the run is: it may resume on others.
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
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    if truth is None:
        truth = ground_truth_for(store_path, config.num_features, progress=progress)
    truth.require_dimension(config.num_features)
    encoder, inputs = encoder_and_inputs(config, truth)
    learner = make_learner(config, encoder, store.shape[1])
    where = {
        "store": str(store_path.absolute()),
        "store_from_run": os.path.relpath(store_path.absolute(), out.absolute()),
    }
    with batches_of(config, store, truth, inputs) as source:
        run = EncoderRun(KIND, described, where, config, learner, source, Target(truth, inputs))
        return train_in_folder(run, out, devices=devices, progress=progress)


class Target(NamedTuple):
    """What an encoder is measured against.

    Attributes:
        truth: The ground truth.
        inputs: Encoder inputs of all its states, [n, ...].
    """

    truth: GroundTruth
    inputs: Array


class EncoderRun(NamedTuple):
    """The training of an encoder, from whatever source.

    Attributes:
        kind: What kind of run it is.
        described: All that decides its result, as JSON values.
        origin: Where its data came from, as JSON values.
        config: How to train.
        learner: The configured update.
        source: Where batches come from.
        target: What the encoder is measured against, during training and at its end, if anything.
    """

    kind: str
    described: dict[str, Any]
    origin: dict[str, Any]
    config: TrainingConfig
    learner: Learner
    source: Source
    target: Target | None


def train_in_folder(
    run: EncoderRun, out: Path, *, devices: Sequence[jax.Device] | None, progress: bool
) -> dict[str, Any]:
    """Trains in a folder, new or of the same run, and returns the summary it wrote there.

    Without a target, the summary's only figure is ``loss``, the mean over the last updates for each
    seed.

    Raises:
        InputError: For anything that does not fit, before the first file is written.
        TrainingDivergedError: If training became non-finite.
    """
    make_placement(devices, run.config.num_seeds)
    run.learner.check(run.source)
    with exclusive(out):
        folder = RunFolder.create_or_resume(
            out, kind=run.kind, config=run.described, provenance={**run.origin, **provenance()}
        )
        result = _train(run, folder, devices, progress)
        summary = {
            "method": run.config.objective.name,
            "encoder": run.config.encoder.name,
            "steps": run.config.steps,
            "seeds": list(result.seeds),
            "seconds": round(result.seconds, 3),
            "compile_seconds": round(result.compile_seconds, 3),
            **_figures(run, result),
        }
        folder.write_summary(summary)
    return summary


def _figures(run: EncoderRun, result: TrainingResult) -> dict[str, Any]:
    """What the summary says of the trained encoder."""
    if run.target is None:
        return {"loss": result.history[-1]["loss"]}
    figures = [
        evaluation.evaluate_encoder(
            run.learner.encoder, result.params(index), run.target.inputs, run.target.truth
        )
        for index in range(run.config.num_seeds)
    ]
    return evaluation.summarise(figures)


@contextlib.contextmanager
def batches_of(
    config: TrainingConfig, store: MatrixStore, truth: GroundTruth, inputs: Array
) -> Iterator[MatrixSource | StreamedSource]:
    """Batches from the matrix in memory, or from its store where it is larger than memory.

    Raises:
        InputError: If the method needs a matrix in memory and there is none.
    """
    all_states = config.objective.needs_population
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
    return {MATRIX: describe_matrix(store), **as_json(config)}


def describe_matrix(store: MatrixStore) -> dict[str, Any]:
    """Which matrix a store holds, as JSON values."""
    states, tasks = store.shape
    return {"checksum": store.content_key(), "states": states, "tasks": tasks}


def _train(
    run: EncoderRun,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> TrainingResult:
    config, learner, evaluate = run.config, run.learner, None
    if run.target is not None:
        basis = run.target.truth.principal.truncated(config.num_features).basis
        evaluate = evaluation.distance_evaluation(learner.encoder, run.target.inputs, basis)
    return train(
        learner.encoder,
        learner.objective,
        run.source,
        optimizer=learner.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=config.tasks,
        seeds=range(config.seed, config.seed + config.num_seeds),
        evaluate=evaluate,
        evaluate_every=config.evaluate_every,
        folder=folder,
        checkpoint_every=config.checkpoint_every,
        devices=devices,
        description=f"{config.objective.name}, d = {config.num_features}",
        progress=progress,
    )
