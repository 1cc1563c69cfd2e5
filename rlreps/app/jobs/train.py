"""Train an encoder, on a stored successor measure (``rlreps train``) or on other batches."""

import abc
import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rlreps.app.job import Context, Job
from rlreps.app.options import Choice
from rlreps.config import as_json, no_option
from rlreps.cumulants import CUMULANTS, Cumulants
from rlreps.encoders import EVERY_ENCODER, Encoder
from rlreps.losses import OBJECTIVES, Objective
from rlreps.runs.folder import RunFolder
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.store import open_store
from rlreps.training import Learner, evaluation
from rlreps.training.config import TrainingConfig
from rlreps.training.on_store import (
    Problem,
    describe_matrix,
    feature_record,
    ground_truth_for,
    learner_for,
    require_memory_for_runs,
    rounded_seconds,
    stored_problem,
    train_and_measure,
)

KIND = "train"
MATRIX = "matrix"
OBSERVATION_SHAPE = "observation_shape"
"""Key of a run's provenance for the shape of what encoders see of a state."""

CHOICES: dict[Any, Choice] = {
    Encoder: Choice("encoder", EVERY_ENCODER),
    Objective: Choice("method", OBJECTIVES),
    Cumulants: Choice("cumulants", CUMULANTS),
}
NAMES = {
    "Optimizer.name": "optimizer",
    # ``--hidden`` is the option of encoders.
    "RandomNetwork.hidden": "cumulant_hidden",
    "RandomIndicators.hidden": "cumulant_hidden",
    **{f"Code.{name}": f"code_{name}" for name in ("size", "bins", "seed")},
    **{f"Image.{name}": f"image_{name}" for name in ("size", "bins")},
}


class TrainingJob(Job[Mapping[str, Any]]):
    """A training run in a folder, whatever its batches come from.

    Its summary has the names of the configuration, ``steps``, ``seconds`` of training, and the
    final measures as means over seeds and for each seed. Without a ground truth the only measure is
    ``loss``, the mean over the last updates for each seed.
    """

    takes: ClassVar = ("processes", "devices")

    @property
    @abc.abstractmethod
    def training(self) -> TrainingConfig:
        """Return how to train."""

    @property
    @abc.abstractmethod
    def learner(self) -> Learner:
        """Return the update."""

    @property
    @abc.abstractmethod
    def problem(self) -> Problem:
        """Return the batches and the ground truth."""

    def check(self, context: Context) -> None:
        require_memory_for_runs(self.learner, self.training.num_seeds, context.devices)
        self.learner.check(self.problem.source)

    def compute(self, folder: RunFolder, context: Context) -> Mapping[str, Any]:
        """Train, and measure the encoder of every seed.

        Raises:
            TrainingDivergedError: If training became non-finite.
        """
        config, learner = self.training, self.learner
        problem = self.problem
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
            devices=context.devices,
        )
        loss = {"loss": result.history[-1]["loss"]}
        return {
            "method": config.objective.name,
            "encoder": config.encoder.name,
            "steps": config.steps,
            "seeds": list(result.seeds),
            **rounded_seconds(result),
            **(evaluation.summarise(measures) if measures else loss),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(TrainingJob):
    """Train an encoder on a store; the same command resumes an interrupted run.

    Attributes:
        store: Folder of the store.
        config: The run.
        truth: The store's ground truth, if the caller has loaded it.
    """

    kind: ClassVar = KIND

    store: Path
    config: TrainingConfig = dataclasses.field(default=TrainingConfig())
    truth: GroundTruth | None = no_option(None)

    @property
    def training(self) -> TrainingConfig:
        return self.config

    def describe(self) -> Mapping[str, Any]:
        return {MATRIX: describe_matrix(open_store(self.store)), **as_json(self.config)}

    def locate(self, out: Path) -> Mapping[str, Any]:
        shape = list(self.ground_truth.observations.shape[1:])
        return {**describe_place(self.store, out), OBSERVATION_SHAPE: shape}

    @functools.cached_property
    def ground_truth(self) -> GroundTruth:
        """Load the ground truth, with components enough for the features."""
        if self.truth is None:
            return ground_truth_for(self.store, self.config.num_features)
        self.truth.require_dimension(self.config.num_features)
        return self.truth

    @functools.cached_property
    def learner(self) -> Learner:
        return learner_for(self.config, self.ground_truth, open_store(self.store).shape[1])

    @functools.cached_property
    def problem(self) -> Problem:
        return stored_problem(self.config, open_store(self.store), self.ground_truth)


def describe_place(store: Path, out: Path) -> dict[str, str]:
    """Return the path of a run's store, also relative to the run, as JSON values."""
    return {
        "store": str(store.absolute()),
        "store_from_run": os.path.relpath(store.absolute(), out.absolute()),
    }
