"""Training on a stored successor measure: what ``rlreps train`` and ``rlreps evaluate`` run."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps import evaluation
from rlreps.checkpoints import Checkpoints
from rlreps.configs import (
    EncoderConfig,
    ObjectiveConfig,
    OptimizerConfig,
    SubspaceConfig,
    TrainingConfig,
    as_json,
    require,
)
from rlreps.encoders import Encoder, make_encoder
from rlreps.errors import InputError
from rlreps.ground_truth import GroundTruth, default_rank, load_ground_truth
from rlreps.losses.registry import Problem, make_objective
from rlreps.optimizers import make_optimizer
from rlreps.provenance import provenance
from rlreps.run_folder import RunFolder
from rlreps.sources import MatrixSource, matrix_source
from rlreps.successor.store import open_store
from rlreps.training import Learner, TrainingResult, train

KIND = "train"


@dataclasses.dataclass(frozen=True)
class TrainedEncoder:
    """A run's encoder as far as it got.

    Attributes:
        config: The run's configuration.
        encoder: The encoder.
        params: Its parameters; every leaf has a leading seed axis.
        inputs: Encoder inputs of all states, [n, ...].
        step: Updates made.
    """

    config: TrainingConfig
    encoder: Encoder
    params: Any
    inputs: Array
    step: int

    def features(self) -> Array:
        """Features of all states for every seed, [seeds, n, d]."""
        features: Array = jax.jit(jax.vmap(self.encoder.apply, in_axes=(0, None)))(
            self.params, self.inputs
        )
        return features


def ground_truth_for(store_path: Path, num_features: int) -> GroundTruth:
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
    rank = default_rank(num_states, num_features)
    return load_ground_truth(store_path, SubspaceConfig(rank=rank))


def encoder_and_inputs(config: TrainingConfig, truth: GroundTruth) -> tuple[Encoder, Array]:
    """The configured encoder and its inputs for all states: indices if tabular, else positions."""
    encoder = make_encoder(
        config.encoder,
        num_inputs=truth.coordinates.shape[1],
        num_states=truth.num_states,
        num_features=config.num_features,
    )
    if config.encoder.name == "tabular":
        return encoder, jnp.arange(truth.num_states)
    return encoder, truth.coordinates


def _learner(config: TrainingConfig, encoder: Encoder, num_tasks: int) -> Learner:
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
    folder = RunFolder.create_or_resume(
        out,
        kind=KIND,
        config={"matrix": store.content_key(), **as_json(config)},
        provenance={"store": str(store_path), **provenance()},
    )
    finished = folder.read_summary()
    if finished is not None:
        return finished
    truth = ground_truth_for(store_path, config.num_features) if truth is None else truth
    truth.require_dimension(config.num_features)
    encoder, inputs = encoder_and_inputs(config, truth)
    result = _train(config, encoder, inputs, truth, folder, progress)
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


def _train(
    config: TrainingConfig,
    encoder: Encoder,
    inputs: Array,
    truth: GroundTruth,
    folder: RunFolder,
    progress: bool,
) -> TrainingResult:
    with_population = config.objective.name == "oracle"
    source: MatrixSource = matrix_source(truth.matrix, inputs, with_population=with_population)
    learner = _learner(config, encoder, source.num_tasks)
    basis = truth.principal.truncated(config.num_features).basis
    return train(
        encoder,
        learner.objective,
        source,
        optimizer=learner.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=config.tasks,
        seeds=range(config.seed, config.seed + config.num_seeds),
        evaluate=evaluation.distance_evaluation(encoder, inputs, basis),
        evaluate_every=config.evaluate_every,
        folder=folder,
        checkpoint_every=config.checkpoint_every,
        description=f"{config.objective.name}, {config.encoder.name}",
        progress=progress,
    )


def load_config(folder: RunFolder) -> TrainingConfig:
    """The configuration of a training run.

    Raises:
        InputError: If the folder holds another kind of run.
    """
    if folder.kind != KIND:
        raise InputError(
            f"expected a training run in {folder.path}, got one of kind {folder.kind!r}"
        )
    stored = {name: value for name, value in folder.config.items() if name != "matrix"}
    try:
        encoder = {**stored.pop("encoder")}
        encoder["hidden"] = tuple(encoder["hidden"])
        return TrainingConfig(
            encoder=EncoderConfig(**encoder),
            objective=ObjectiveConfig(**stored.pop("objective")),
            optimizer=OptimizerConfig(**stored.pop("optimizer")),
            **stored,
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"expected a training configuration in {folder.path}, got {error}"
        ) from error


def load_encoder(folder: RunFolder, truth: GroundTruth) -> TrainedEncoder:
    """The newest checkpointed encoder of a run.

    Args:
        folder: The run.
        truth: A ground truth over the same states (not necessarily the one trained on).

    Returns:
        The encoder.

    Raises:
        InputError: If there is no readable checkpoint, or it does not fit the states.
    """
    config = load_config(folder)
    encoder, inputs = encoder_and_inputs(config, truth)
    learner = _learner(config, encoder, truth.matrix.shape[1])
    checkpoints = Checkpoints(folder.path / "checkpoints")
    step = checkpoints.latest_step()
    if step is None:
        raise InputError(f"expected a checkpoint in {checkpoints.path}, got none")
    template = jax.eval_shape(jax.vmap(learner.init), jnp.zeros(config.num_seeds, jnp.uint32))
    state = checkpoints.restore(step, template)
    return TrainedEncoder(config, encoder, state.params, inputs, step)


def evaluate_run(run: Path, store_path: Path | None = None) -> dict[str, Any]:
    """Measures a run's newest checkpoint against a ground truth.

    Args:
        run: The run's folder.
        store_path: The ground truth's store; None is the one trained on.

    Returns:
        ``method``, ``encoder``, ``step``, ``store`` and the figures of
        ``evaluation.evaluate_features``, as means over seeds and each seed's own.

    Raises:
        InputError: If the run or the store cannot be read or do not fit each other.
    """
    folder = RunFolder(run)
    config = load_config(folder)
    path = store_of(folder) if store_path is None else store_path
    truth = ground_truth_for(path, config.num_features)
    trained = load_encoder(folder, truth)
    figures = [evaluation.evaluate_features(features, truth) for features in trained.features()]
    return {
        "method": config.objective.name,
        "encoder": config.encoder.name,
        "step": trained.step,
        "store": str(path),
        **evaluation.summarise(figures),
    }


def store_of(folder: RunFolder) -> Path:
    """The store that a run was trained on.

    Raises:
        InputError: If the run does not say.
    """
    stored = folder.provenance.get("store")
    if not isinstance(stored, str):
        raise InputError(f"expected {folder.path} to name its store, got {stored!r}")
    return Path(stored)


def distance_history(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """A run's learning curve: steps [p] and subspace distances [seeds, p]."""
    records = folder.read_metrics()
    if not records:
        raise InputError(f"expected metrics in {folder.path}, got none")
    steps = np.asarray([record["step"] for record in records])
    return steps, np.asarray([record["subspace_distance"] for record in records]).T
