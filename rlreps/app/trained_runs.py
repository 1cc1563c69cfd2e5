"""Training runs, finished or not, read back from their folders."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.app.jobs import train_live as live
from rlreps.app.jobs.train import KIND, MATRIX, OBSERVATION_SHAPE
from rlreps.config import from_json, name_of
from rlreps.encoders import Encoder, Tabular
from rlreps.envs.observations import as_observation
from rlreps.errors import InputError, require
from rlreps.numerics import jit
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.quality import Quality
from rlreps.successor.fitting.representation import KIND as SUCCESSOR
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.store import open_store
from rlreps.training import Learner, evaluation
from rlreps.training.config import METHODS, TrainingConfig
from rlreps.training.on_store import describe_matrix, ground_truth_for, learner_for

OBSERVATION = "observation"
"""Key of a fit's provenance for the observation in PuddleWorld data."""
ELSEWHERE = " (trained on another matrix)"
"""Suffix of the label of a run that was trained on another matrix."""
_STATES = ("states", "box", "wall_cells", "observations")
"""Entries of a matrix's description that tell states apart."""


@dataclasses.dataclass(frozen=True)
class TrainedEncoder:
    """A run's encoder at a checkpoint.

    Attributes:
        config: The run's configuration.
        encoder: The encoder.
        params: Its parameters; every leaf has a leading seed axis.
        inputs: Encoder inputs of all states, [n, ...].
        step: Number of updates.
    """

    config: TrainingConfig
    encoder: Encoder
    params: Any
    inputs: Array
    step: int

    def features(self) -> Array:
        """Compute features of all states for every seed, [seeds, n, d]."""
        return jit(jax.vmap(self.encoder.apply, in_axes=(0, None)))(self.params, self.inputs)


def load_config(folder: RunFolder) -> TrainingConfig:
    """Read the configuration of a training run.

    Raises:
        InputError: If the folder holds another kind of run.
    """
    folder.require_kind(KIND)
    stored = {name: value for name, value in folder.config.items() if name != MATRIX}
    return from_json(TrainingConfig, stored, METHODS)


def load_encoder(folder: RunFolder, truth: GroundTruth, step: int | None = None) -> TrainedEncoder:
    """Load a run's checkpointed encoder of a step; None is the newest.

    Its inputs are the states of ``truth``, which may differ from the run's training truth.

    Raises:
        InputError: If there is no readable checkpoint, or it does not fit the states.
    """
    config = load_config(folder)
    matrix = folder.config[MATRIX]
    if isinstance(config.encoder, Tabular):
        require(
            truth.num_states == matrix["states"],
            f"a ground truth over the {matrix['states']} states of the tabular encoder",
            truth.num_states,
        )
    else:
        own, seen = folder.provenance.get(OBSERVATION_SHAPE), list(truth.observations.shape[1:])
        expected = f"states seen as by the run {folder.path}, observations of shape {own}"
        require(own in (None, seen), expected, seen)
    learner = learner_for(config, truth, matrix["tasks"])
    return restored(folder, config, learner, truth.inputs(learner.encoder), step)


def restored(
    folder: RunFolder,
    config: TrainingConfig,
    learner: Learner,
    inputs: Array,
    step: int | None = None,
) -> TrainedEncoder:
    """Restore the encoder of a run from its checkpoint; see ``load_encoder``."""
    template = jax.eval_shape(jax.vmap(learner.init), jnp.zeros(config.num_seeds, jnp.uint32))
    path = folder.path / "checkpoints"
    checkpoints = Checkpoints(path, run=folder.identity)
    if step is None:
        step, state = checkpoints.restore_latest(template)
    else:
        state = checkpoints.restore(step, template)
    return TrainedEncoder(config, learner.encoder, state.params, inputs, step)


def evaluate_run(run_folder: Path, store: Path | None = None) -> dict[str, Any]:
    """Measure a run's newest checkpoint against a ground truth, or read the quality of a fit.

    Args:
        run_folder: Folder of a run of train or fit.
        store: Ground truth to measure against; by default the store of the training run. A run of
            fit has no store: without this option, the result is its quality on held-out data.

    Returns:
        ``method``, ``encoder``, ``step``, ``store`` and the measures of
        ``evaluation.evaluate_features``, as means over seeds and for each seed. A successor
        representation has no ``step``, and d − 1 of its d features are measured
        (``SuccessorRepresentation.components``); without a store, the result has ``method``,
        ``quality`` and ``warnings``.

    Raises:
        InputError: If the run or the store cannot be read or do not fit each other.
    """
    folder = RunFolder(run_folder)
    if folder.kind == SUCCESSOR:
        return _evaluate_successor(folder, store)
    config = load_config(folder)
    path = required_store(folder, store)
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


def trained_elsewhere(folder: RunFolder, matrix: Mapping[str, Any] | None) -> bool:
    """Tell whether a training run learned from another matrix than the one described.

    Args:
        folder: A training run, or a fit, which has no matrix.
        matrix: Description of the matrix; None for a released truth.

    Raises:
        InputError: For a tabular encoder, if the matrix has other states.
    """
    if folder.kind != KIND or folder.config[MATRIX] == matrix:
        return False
    own = folder.config[MATRIX]
    same = matrix is not None and all(own.get(name) == matrix.get(name) for name in _STATES)
    if isinstance(load_config(folder).encoder, Tabular):
        require(same, f"the states on which {folder.path} (tabular) was trained", "others")
    return True


def features_of(folder: RunFolder, truth: GroundTruth, step: int | None = None) -> Array:
    """Return the features [n, d] of a run's first seed, or of a fit, at a truth's states.

    A fit sees the observation that its folder names; by default, the position.

    Args:
        folder: A training run, or a fitted successor representation.
        truth: The states.
        step: The checkpoint of a training run; None is the newest.

    Raises:
        InputError: As for ``load_encoder``, or if the states are not observed like the data of a
            fit.
    """
    if folder.kind != SUCCESSOR:
        return load_encoder(folder, truth, step).features()[0]
    rep = SuccessorRepresentation.load(folder.path)
    return jnp.asarray(rep.components(_seen_by(rep, folder, truth)))


def _seen_by(rep: SuccessorRepresentation, folder: RunFolder, truth: GroundTruth) -> GroundTruth:
    """Return a truth whose states are given as the fit's observations."""
    named = folder.provenance.get(OBSERVATION)
    if named is not None:
        truth = truth.seen_as(as_observation(named))
    seen = truth.observations
    shape = rep.observed.shape
    if seen.shape[1:] != shape:
        raise InputError(
            f"expected states seen as by the fit of {folder.path}, observations of shape {shape}, "
            f"got shape {seen.shape[1:]}; in Python, choose what it sees (GroundTruth.seen_as)"
        )
    return truth


def _evaluate_successor(folder: RunFolder, store_path: Path | None) -> dict[str, Any]:
    if store_path is None:
        summary = folder.read_summary()
        if summary is None:
            raise InputError(f"expected a finished fit in {folder.path}, got an unfinished one")
        # None means that there were too few rows to hold some out.
        stored = summary["quality"]
        quality = None if stored is None else from_json(Quality, stored)
        figures = {} if quality is None else dataclasses.asdict(quality)
        # The sums are kept for a figure only and are left out here.
        shown = {name: figures[name] for name in figures if name not in ("predicted", "realised")}
        return {
            "method": folder.config.get("method"),
            "quality": shown or None,
            "warnings": [] if quality is None else quality.warnings(),
        }
    rep = SuccessorRepresentation.load(folder.path)
    truth = ground_truth_for(store_path, max(1, rep.num_features - 1))
    seen = _seen_by(rep, folder, truth)
    return {
        "method": name_of(type(rep.config.method)),
        "encoder": rep.config.encoder and rep.config.encoder.name,
        "store": str(store_path),
        **evaluation.evaluate_features(jnp.asarray(rep.components(seen)), truth),
    }


def trained_store(folder: RunFolder) -> Path | None:
    """Find the store that a run was trained on; None if it is missing or has changed.

    Raises:
        InputError: If the files in its place cannot be read.
    """
    path = named_store(folder)
    if not path.exists() or describe_matrix(open_store(path)) != folder.config[MATRIX]:
        return None
    return path


def required_store(folder: RunFolder, given: Path | None) -> Path:
    """Return the store that the user gave, or else the one that the run was trained on.

    Raises:
        InputError: If there is neither.
    """
    path = trained_store(folder) if given is None else given
    if path is None:
        raise InputError(
            f"expected the matrix that {folder.path} was trained on, got another one or none in "
            f"{named_store(folder)}; name a ground truth (--store)"
        )
    return path


def named_store(folder: RunFolder) -> Path:
    """Return the path of a run's store, even if run and store were moved together."""
    stored = folder.provenance.get("store")
    if stored is None:
        raise InputError(f"expected {folder.path} to name its store; name a ground truth (--store)")
    moved = folder.path / str(folder.provenance.get("store_from_run"))
    return moved.resolve() if not Path(stored).exists() and moved.exists() else Path(stored)


def distance_history(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Read a run's learning curve: steps [p] and subspace distances [seeds, p].

    Raises:
        InputError: If the folder holds another kind of run, or one that was not measured.
    """
    if folder.kind != live.KIND:
        folder.require_kind(KIND)
    records = folder.read_metrics()
    measured = [record for record in records if "subspace_distance" in record]
    require(bool(measured), f"subspace distances in the metrics of {folder.path}", "none")
    steps = np.asarray([record["step"] for record in measured])
    distances = np.asarray([record["subspace_distance"] for record in measured], np.float64)
    return steps, distances.T
