"""Training on a stored successor measure: what ``rlreps train`` runs."""

import contextlib
import dataclasses
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import as_json, checked, interval, positive, with_sizes
from rlreps.encoders import ENCODERS, Encoder, FourierMLP, Tabular
from rlreps.errors import InputError, require, require_memory
from rlreps.files import write_atomically
from rlreps.losses import OBJECTIVES, Explicit, LargeBatch, Objective
from rlreps.numerics import jit
from rlreps.runs import processes
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.progress import progress_bar
from rlreps.sources.matrix import Source, matrix_source
from rlreps.sources.store import StoreReader, streamed_source
from rlreps.subspace import CentredBlocks
from rlreps.subspace.svd import DEFAULT_RANK, RandomizedSVD
from rlreps.successor.truth.ground_truth import GroundTruth, distance_evaluation, load_ground_truth
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.stored_subspace import centring_of
from rlreps.training import Learner, Optimizer, TrainingResult, evaluation, train_population
from rlreps.training.devices import make_placement
from rlreps.training.masked import masked_evaluation, masked_learners, masks
from rlreps.training.population import Observe

KIND = "train"
MATRIX = "matrix"
FEATURES = "features"

_RECORDED_STEPS = 25

_RECORDED_BYTES = 2**25
"""Largest number of evaluations at which a run keeps its features, and their largest size."""

METHODS: dict[str, type] = {**OBJECTIVES, **ENCODERS}
"""Name → class, for everything that a stored configuration can name."""

States: TypeAlias = Literal["centres", "uniform"]
"""Positions of the states that encoders see: the centres of cells, or anywhere inside cells."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training run: an encoder trained on entries of a stored matrix.

    The defaults are the recommended recipe, with which networks learn fastest.

    Attributes:
        encoder: The encoder.
        objective: The objective.
        optimizer: The encoder's optimizer.
        num_features: d, number of features of the encoder.
        steps: Number of updates.
        rows: b, states drawn per update, which a method divides among its estimates.
        tasks: t, columns drawn per update.
        states: ``centres`` trains on the centres of the drawn cells; ``uniform`` trains on
            positions drawn uniformly inside the cells, that is over the whole square, with Ψ
            constant within a cell (Le Lan et al. 2023, Sec. 5.3). Evaluation is at the centres.
        seed: Seed of the first run.
        num_seeds: Independent runs trained together, seeds ``seed`` … ``seed + num_seeds - 1``.
        evaluate_every: Updates between evaluations against the ground truth.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    encoder: Encoder = dataclasses.field(default=FourierMLP())
    objective: Objective = dataclasses.field(
        default=LargeBatch(precondition=1e-2, leave_one_out=True)
    )
    optimizer: Optimizer = dataclasses.field(default=Optimizer())
    num_features: int = positive(10)
    steps: int = positive(1000)
    rows: int = positive(1000)
    tasks: int = positive(1000)
    states: States = "centres"
    seed: int = interval("[0, 2**31)", 0)
    num_seeds: int = positive(1, most=10**6)
    evaluate_every: int = positive(100)
    checkpoint_every: int = positive(500)

    def __post_init__(self) -> None:
        require(
            self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        require_memory("batches of all seeds", 4 * self.rows * self.tasks * self.num_seeds)
        require(
            self.states == "centres" or not isinstance(self.encoder, Tabular),
            "an encoder of positions for states drawn inside their cells",
            self.encoder.name,
        )
        with_sizes(self.objective, num_features=self.num_features).require_rows(self.rows)

    @property
    def seeds(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.num_seeds)


def make_learner(
    config: TrainingConfig,
    *,
    num_inputs: int,
    num_states: int = 1,
    num_tasks: int | None = None,
    resets_diverged: bool = False,
) -> Learner:
    """Make the configured update for data of given sizes.

    Args:
        config: The run.
        num_inputs: Number of coordinates of a state.
        num_states: n, for a tabular encoder.
        num_tasks: Number of columns of the matrix; None if the source is live.
        resets_diverged: Whether runs that diverge are set to zero.
    """
    rate, objective = config.optimizer.learning_rate, config.objective
    if isinstance(objective, Explicit) and objective.weight_learning_rate is None:
        # Runs with their own learning rates use the same program.
        objective = dataclasses.replace(objective, weight_learning_rate=rate)
    encoder = with_sizes(
        config.encoder,
        num_features=config.num_features,
        num_inputs=num_inputs,
        num_states=num_states,
    )
    return Learner(
        encoder=encoder,
        objective=with_sizes(
            objective,
            num_features=config.num_features,
            num_tasks=num_tasks,
            encoder=encoder,
            encoder_learning_rate=rate,
        ),
        optimizer=with_sizes(config.optimizer, steps=config.steps),
        rows=config.rows,
        tasks=config.tasks,
        resets_diverged=resets_diverged,
    )


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
    """Make the configured update for the states of a ground truth."""
    sizes = {"num_inputs": truth.coordinates.shape[1], "num_states": truth.num_states}
    return make_learner(config, **sizes, num_tasks=num_tasks, resets_diverged=resets_diverged)


class Problem(NamedTuple):
    """Batches to train an encoder on, and a ground truth to measure it against.

    Attributes:
        source: Draws the batches.
        target: The ground truth, if there is one, and the encoder inputs of all its states,
            [n, ...].
    """

    source: Source
    target: tuple[GroundTruth, Array] | None = None


@contextlib.contextmanager
def stored_problem(
    config: TrainingConfig, store: MatrixStore, truth: GroundTruth
) -> Iterator[Problem]:
    """Yield batches from the matrix in memory, or from its store if it is larger than memory.

    Raises:
        InputError: If the method needs a matrix in memory and there is none.
    """
    inputs = truth.inputs(config.encoder)
    needs_population = config.objective.needs_population
    widths = truth.cell_widths if config.states == "uniform" else None
    if config.states == "uniform":
        start = str(truth.settings.get("start", ""))
        # If a wall covers part of a cell, a position drawn inside the cell may not be a state.
        allowed = widths is not None and "outside the walls" not in start
        require(allowed, "cells without walls, for states anywhere inside them", start)
    if not isinstance(truth.matrix, CentredBlocks):
        assert isinstance(truth.matrix, Array)
        whole = matrix_source(
            truth.matrix, inputs, with_population=needs_population, cell_widths=widths
        )
        yield Problem(whole, (truth, inputs))
        return
    if needs_population:
        raise InputError(
            f"expected a matrix in memory for {config.objective.label}, which takes whole columns, "
            f"got one of {store.shape[0]} x {store.shape[1]} entries"
        )
    reader = StoreReader(store, truth.matrix.means, truth.matrix.row_means)
    yield Problem(streamed_source(reader, inputs, cell_widths=widths), (truth, inputs))


def train_masked(
    config: TrainingConfig,
    store_path: Path,
    truth: GroundTruth,
    members: Sequence[tuple[int, int]],
    **options: Any,
) -> tuple[TrainingResult, Callable[[int], Array]]:
    """Train runs that differ in d and in their seed, in one program.

    Args:
        config: The training, with enough features for the largest d.
        store_path: The successor measure.
        truth: Its ground truth.
        members: d and seed of each run.
        **options: ``folder``, ``devices`` and the like, as for ``train_population``.

    Returns:
        The result, whose history has each run's ``subspace_distance`` to its own leading
        components, and the features [n, d] of a run by its number.
    """
    store = open_store(store_path)
    learner = learner_for(config, truth, store.shape[1], resets_diverged=True)
    inputs = truth.inputs(learner.encoder)
    basis = jnp.asarray(truth.principal.truncated(config.num_features).basis)
    mask = masks([d for d, _ in members], config.num_features)
    with stored_problem(config, store, truth) as problem:
        result = train_population(
            masked_learners(learner, mask),
            problem.source,
            steps=config.steps,
            seeds=[seed for _, seed in members],
            evaluate=masked_evaluation(learner.encoder, inputs, basis),
            measured=mask,
            evaluate_every=config.evaluate_every,
            checkpoint_every=config.checkpoint_every,
            **options,
        )

    def features(index: int) -> Array:
        return jit(learner.encoder.apply)(result.params(index), inputs)[:, : members[index][0]]

    return result, features


def describe_matrix(store: MatrixStore) -> dict[str, Any]:
    """Identify the matrix of a store, as JSON values."""
    states, tasks = store.shape
    described = {"checksum": store.content_key(), "states": states, "tasks": tasks}
    # The same stored bytes give another matrix if other means are subtracted.
    centring = centring_of(store.settings)
    return described if centring == "columns" else {**described, "centring": centring}


def describe_place(store_path: Path, out: Path) -> dict[str, str]:
    """Return the path of a run's store, also relative to the run, as JSON values."""
    return {
        "store": str(store_path.absolute()),
        "store_from_run": os.path.relpath(store_path.absolute(), out.absolute()),
    }


def run_training(
    config: TrainingConfig,
    store_path: Path,
    out: Path,
    *,
    truth: GroundTruth | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """Train on a store in a folder, resuming an interrupted run.

    Args:
        config: The run.
        store_path: A complete store.
        out: The run's folder.
        truth: The store's ground truth, if the caller has loaded it.
        devices: Where to train (see ``training.devices``); None is JAX's default device. A run may
            resume on other devices.

    Returns:
        The run's summary, as written to ``summary.json``: configuration names, ``steps``,
        ``seconds`` of training, the final measures as means over seeds and for each seed.

    Raises:
        InputError: If the store, the folder or the configuration is invalid.
        TrainingDivergedError: If training became non-finite.
    """
    store = open_store(store_path)
    described = {MATRIX: describe_matrix(store), **as_json(config)}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    if truth is None:
        truth = ground_truth_for(store_path, config.num_features)
    truth.require_dimension(config.num_features)
    learner = learner_for(config, truth, store.shape[1])
    with stored_problem(config, store, truth) as problem:
        return train_in_folder(
            config,
            learner,
            problem,
            out,
            kind=KIND,
            described=described,
            origin=describe_place(store_path, out),
            devices=devices,
        )


def train_in_folder(
    config: TrainingConfig,
    learner: Learner,
    problem: Problem,
    out: Path,
    *,
    kind: str,
    described: Mapping[str, Any],
    origin: Mapping[str, Any],
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """Train in a folder, new or of the same run; see ``complete_run``.

    Returns:
        The summary written there. Without a ground truth its only measure is ``loss``, the mean
        over the last updates for each seed.

    Raises:
        InputError: If anything is invalid, before the first file is written.
        TrainingDivergedError: If training became non-finite.
    """
    require_room(learner, config.num_seeds, devices)
    learner.check(problem.source)

    def compute(folder: RunFolder) -> dict[str, Any]:
        record = None
        if problem.target is not None:
            record = feature_record(config, folder, learner.encoder, problem.target[1])
        result, measures = train_and_measure(
            config,
            learner,
            problem,
            folder,
            seeds=config.seeds,
            own_numbers=False,
            observe=record,
            description=f"{config.objective.name}, d = {config.num_features}",
            devices=devices,
        )
        loss = {"loss": result.history[-1]["loss"]}
        figures = evaluation.summarise(measures) if measures else loss
        return {
            "method": config.objective.name,
            "encoder": config.encoder.name,
            "steps": config.steps,
            "seeds": list(result.seeds),
            **rounded_seconds(result),
            **figures,
        }

    return complete_run(out, kind=kind, config=described, compute=compute, origin=origin)


def require_room(
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
) -> Observe:
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
