"""Training on the entries of a stored matrix, measured against its ground truth."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from rlreps.encoders import Convolutional, Encoder
from rlreps.encoders.networks import channels_first
from rlreps.errors import InputError, require, require_memory
from rlreps.files import write_atomically
from rlreps.numerics import jit
from rlreps.runs import processes
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.sources.matrix import Source, matrix_source
from rlreps.sources.store import StoreReader, streamed_source
from rlreps.subspace import CentredBlocks
from rlreps.subspace.svd import DEFAULT_RANK, RandomizedSVD
from rlreps.successor.truth.ground_truth import GroundTruth, distance_evaluation, load_ground_truth
from rlreps.successor.truth.states import STATES, environment_of
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.stored_subspace import centring_of
from rlreps.training import evaluation
from rlreps.training.config import TrainingConfig, make_learner
from rlreps.training.devices import make_placement
from rlreps.training.population import Observer, TrainingResult, train_population
from rlreps.training.update import Learner

FEATURES = "features"

_RECORDED_STEPS = 25

_RECORDED_BYTES = 2**25
"""Largest number of evaluations at which a run keeps its features, and their largest size."""


def ground_truth_for(store_path: Path, num_features: int) -> GroundTruth:
    """Load the ground truth of a store, with components enough for d features.

    Raises:
        InputError: If there is no such store, if it is incomplete or corrupt, or if d is at least
            the number of states or exceeds the rank of the matrix.
    """
    num_states = open_store(store_path).shape[0]
    require(
        num_features < num_states,
        f"d < {num_states}, the number of states (a centred matrix has rank n - 1 at most)",
        num_features,
    )
    rank = num_features if num_features > DEFAULT_RANK else None
    svd = RandomizedSVD(rank=rank)
    truth = load_ground_truth(store_path, svd, progress=progress_bar, share=processes)
    truth.require_dimension(num_features)
    return truth


def learner_for(
    config: TrainingConfig,
    truth: GroundTruth,
    num_tasks: int,
    *,
    resets_diverged: bool = False,
) -> Learner:
    """Make the configured update for the states of a ground truth.

    Raises:
        InputError: For a convolutional network on images whose channels come first.
    """
    seen = truth.inputs(config.encoder).shape[1:]
    last = not (isinstance(config.encoder, Convolutional) and channels_first(seen))
    require(last, "images [height, width, channels], of which the channels come last", seen)
    sizes = {"num_inputs": seen[-1] if seen else 1, "num_states": truth.num_states}
    return make_learner(
        config,
        **sizes,
        frame_shape=seen,
        num_tasks=num_tasks,
        resets_diverged=resets_diverged,
    )


class Problem(NamedTuple):
    """Batches to train an encoder on, and a ground truth to measure it against.

    Attributes:
        source: Draws the batches.
        target: The ground truth, if there is one, and the encoder inputs of all its states,
            [n, ...].
    """

    source: Source
    target: tuple[GroundTruth, Array] | None = None


def stored_problem(config: TrainingConfig, store: MatrixStore, truth: GroundTruth) -> Problem:
    """Return batches from the matrix in memory, or from its store if it is larger than memory.

    Raises:
        InputError: If the method needs a matrix in memory and there is none.
    """
    inputs = truth.inputs(config.encoder)
    needs_population = config.objective.needs_population
    widths = truth.cell_widths if config.states == "uniform" else None
    if config.states == "uniform":
        # If a wall covers part of a cell, a position drawn inside the cell may not be a state.
        environment = environment_of(truth.settings)
        walls = environment is not None and bool(environment.walls)
        allowed = widths is not None and not walls
        got = "walls" if walls else "states without cells"
        require(allowed, "cells without walls (or states='centres')", got)
    if not isinstance(truth.matrix, CentredBlocks):
        assert isinstance(truth.matrix, Array)
        whole = matrix_source(
            truth.matrix, inputs, with_population=needs_population, cell_widths=widths
        )
        return Problem(whole, (truth, inputs))
    if needs_population:
        raise InputError(
            f"expected a matrix in memory for {config.objective.label}, which takes whole columns, "
            f"got one of {store.shape[0]} x {store.shape[1]} entries"
        )
    reader = StoreReader(store, truth.matrix.means, truth.matrix.row_means)
    return Problem(streamed_source(reader, inputs, cell_widths=widths), (truth, inputs))


def describe_matrix(store: MatrixStore) -> dict[str, Any]:
    """Identify the matrix of a store and what encoders see of its states, as JSON values."""
    (states, tasks), settings = store.shape, store.settings
    described = {"checksum": store.content_key(), "states": states, "tasks": tasks}
    # The same stored bytes give another matrix if other means are subtracted.
    if (centring := centring_of(settings)) != "columns":
        described["centring"] = centring
    # Only in a store of a user's own can equal matrices belong to other states.
    if "box" in settings:
        seen = {"box": "box", "wall_cells": "wall_cells", "observations": STATES}
        described |= {name: settings[key] for name, key in seen.items() if key in settings}
    return described


def require_memory_for_runs(
    learner: Learner, count: int, devices: Sequence[jax.Device] | None, batch: int = 0
) -> None:
    """Check that devices can share runs of a learner and hold their states.

    Args:
        learner: The learner of one run.
        count: Number of runs that one program trains.
        devices: Devices; None is JAX's default device.
        batch: Bytes of a run's batch, held beside its state.

    Raises:
        InputError: If the devices do not share the runs evenly, or memory is too small.
    """
    held = math.ceil(make_placement(devices, count).share * count)
    member = jax.eval_shape(learner.init, jax.ShapeDtypeStruct((), np.uint32))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(member))
    beside = " and batches" if batch else ""
    require_memory(f"the states{beside} of {held:,} runs", (size + batch) * held)


def feature_record(
    config: TrainingConfig, folder: RunFolder, encoder: Encoder, inputs: Array
) -> Observer:
    """Keep the first seed's features at all states, at some evaluations: ``features/STEP.npy``.

    From these files ``rlreps explore`` shows how components emerge. A resumed run writes the files
    after its checkpoint again, bit for bit. Early evaluations are kept more densely than late ones,
    in at most ``_RECORDED_BYTES``.

    Args:
        config: The training.
        folder: The run.
        encoder: The encoder being trained.
        inputs: Its inputs for all states, [n, ...].
    """
    room = _RECORDED_BYTES // (4 * len(inputs) * config.num_features)
    last, most = -(-config.steps // config.evaluate_every), min(room, _RECORDED_STEPS)
    places = np.rint(last * np.linspace(0.0, 1.0, most) ** 2) if most >= 2 else np.zeros(0)
    chosen = {min(int(place) * config.evaluate_every, config.steps) for place in places}
    apply = jit(encoder.apply)

    def observe(step: int, params: Callable[[], Any]) -> None:
        if step in chosen:
            content = io.BytesIO()
            np.save(content, np.asarray(apply(params(), inputs), np.float32))
            if processes.process_index() == 0:
                path = folder.path / FEATURES / f"{step:09d}.npy"
                write_atomically(path, content.getvalue())

    return observe


def recorded_features(folder: RunFolder) -> dict[int, Path]:
    """Find the files of the features that a run recorded, by step."""
    return {int(file.stem): file for file in sorted((folder.path / FEATURES).glob("*[0-9].npy"))}


def train_and_measure(
    config: TrainingConfig, learner: Learner, problem: Problem, folder: RunFolder, **options: Any
) -> tuple[TrainingResult, list[dict[str, Any]]]:
    """Train members in one program, and measure each member's end if there is a ground truth.

    ``options`` are those of ``train_population`` outside the configuration: ``seeds``, ``devices``
    and the like. Returns the result of the training, and the measures of
    ``evaluation.evaluate_encoder`` of every member.
    """
    distance = None
    if problem.target is not None:
        truth, inputs = problem.target
        basis = truth.principal.truncated(config.num_features).basis
        distance = distance_evaluation(learner.encoder, inputs, basis)
    result = train_population(
        learner,
        problem.source,
        steps=config.steps,
        evaluate=None if distance is None else lambda params, _: distance(params),
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.checkpoint_every,
        folder=folder,
        **options,
    )
    if problem.target is None:
        return result, []

    def measured() -> list[dict[str, Any]]:
        return [
            evaluation.evaluate_encoder(learner.encoder, result.params(index), inputs, truth)
            for index in range(len(result.seeds))
        ]

    return result, processes.first_does(measured)


def rounded_seconds(result: TrainingResult) -> dict[str, float]:
    """Return the seconds of training and of compilation for summaries."""
    return {
        "seconds": round(result.seconds, 3),
        "compile_seconds": round(result.compile_seconds, 3),
    }
