"""The PuddleWorld experiment: a program for each method, a report over all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps import subspace
from rlreps.config import as_json
from rlreps.experiments.le_lan_2023.puddle_world.config import PuddleWorldConfig
from rlreps.experiments.le_lan_2023.puddle_world.members import (
    masked_evaluation,
    masked_learners,
    masks,
)
from rlreps.experiments.le_lan_2023.puddle_world.report import (
    MethodResult,
    write_puddle_world_report,
)
from rlreps.losses import Objective
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.runs.provenance import provenance
from rlreps.successor.store import open_store
from rlreps.training import TrainingResult, evaluation, train_population
from rlreps.training.devices import make_placement
from rlreps.workflows.ground_truths import OwnGroundTruth, generation_figures, own_ground_truth
from rlreps.workflows.train import TrainingConfig, batches_of, inputs_for, learner_for

KIND = "puddle-world"
GROUP_KIND = "puddle-world-group"
RUNS = "runs"


class _Place(NamedTuple):
    """Where the experiment stands, and what it measures against."""

    config: PuddleWorldConfig
    folder: RunFolder
    ground: OwnGroundTruth
    devices: Sequence[jax.Device] | None
    progress: bool


class _Member(NamedTuple):
    d: int
    seed: int


class _Outcome(NamedTuple):
    """One member's curve [p] and end; features [n, d] of the one that is drawn."""

    steps: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    diverged: bool
    features: npt.NDArray[np.float32] | None


def run_puddle_world(
    config: PuddleWorldConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The run's folder: the ground truth, a folder a program, figures, results, report and
            summary.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``ground_truth``, ``distances`` (one row for each method and d), ``claims`` and
        the ``report``'s path.

    Raises:
        InputError: If the folder holds something else.
        ArenaError: For an unknown or invalid arena.
    """
    make_placement(devices, 1)
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: PuddleWorldConfig,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    ground = own_ground_truth(config.successor, folder, max(config.dimensions), progress=progress)
    place = _Place(config, folder, ground, devices, progress)
    results = {str(objective.name): _method(place, objective) for objective in config.objectives}
    figures = generation_figures(folder, config.successor)
    return write_puddle_world_report(config, folder, ground, figures, results)


def _method(place: _Place, objective: Objective) -> MethodResult:
    """Trains all d and seeds of a method, as many at once as the configuration lets it."""
    config, training = place.config, place.config.method(objective)
    seeds = range(training.seed, training.seed + training.num_seeds)
    members = [_Member(d, seed) for d in config.dimensions for seed in seeds]
    outcomes: dict[_Member, _Outcome] = {}
    seconds = 0.0
    for number, start in enumerate(range(0, len(members), config.members)):
        part = members[start : start + config.members]
        result = _train(place, training, part, number)
        outcomes |= _outcomes(place, training, part, result)
        seconds += result.seconds
    headline = outcomes[_Member(config.headline_dimension, training.seed)]
    assert headline.features is not None
    features = jnp.asarray(headline.features)
    basis = place.ground.truth.principal.truncated(config.headline_dimension).basis
    by_d = {d: [outcomes[_Member(d, seed)] for seed in seeds] for d in config.dimensions}
    return MethodResult(
        steps=headline.steps,
        distances={d: np.stack([each.distances for each in runs]) for d, runs in by_d.items()},
        diverged={d: sum(each.diverged for each in runs) for d, runs in by_d.items()},
        aligned=np.asarray(subspace.align(features, jnp.asarray(basis))),
        evaluation=evaluation.evaluate_features(features, place.ground.truth),
        seconds=seconds,
    )


def _train(
    place: _Place, training: TrainingConfig, members: Sequence[_Member], number: int
) -> TrainingResult:
    """Trains members in one program, in a folder of their own."""
    ground, largest = place.ground, training.num_features
    described = {
        "experiment": as_json(place.config),
        "members": [member._asdict() for member in members],
    }
    folder = RunFolder.create_or_resume(
        place.folder.path / RUNS / f"{training.objective.name}-{number}",
        kind=GROUP_KIND,
        config=described,
        provenance=provenance(),
    )
    store = open_store(ground.path)
    learner = learner_for(training, ground.truth, store.shape[1], resets_diverged=True)
    encoder, inputs = learner.encoder, inputs_for(learner.encoder, ground.truth)
    mask = masks([member.d for member in members], largest)
    basis = jnp.asarray(ground.truth.principal.truncated(largest).basis)
    with batches_of(training.objective, store, ground.truth, inputs) as source:
        return train_population(
            masked_learners(learner, mask),
            source,
            steps=training.steps,
            seeds=[member.seed for member in members],
            evaluate=masked_evaluation(encoder, inputs, basis),
            measured=mask,
            evaluate_every=training.evaluate_every,
            folder=folder,
            checkpoint_every=training.checkpoint_every,
            devices=place.devices,
            description=f"{training.objective.name}, {len(members)} runs",
            progress=place.progress,
        )


def _outcomes(
    place: _Place, training: TrainingConfig, members: Sequence[_Member], result: TrainingResult
) -> dict[_Member, _Outcome]:
    steps = np.asarray([record["step"] for record in result.history])
    distances = np.asarray([record["subspace_distance"] for record in result.history]).T
    diverged = result.history[-1]["diverged"]
    shown = _Member(place.config.headline_dimension, training.seed)
    return {
        member: _Outcome(
            steps,
            distances[index],
            diverged[index],
            _features(place, training, result, index, member.d) if member == shown else None,
        )
        for index, member in enumerate(members)
    }


def _features(
    place: _Place, training: TrainingConfig, result: TrainingResult, index: int, d: int
) -> npt.NDArray[np.float32]:
    """The d features of one member at all states, [n, d]."""
    encoder = learner_for(training, place.ground.truth, None).encoder
    inputs = inputs_for(encoder, place.ground.truth)
    return np.asarray(jax.jit(encoder.apply)(result.params(index), inputs)[:, :d])
