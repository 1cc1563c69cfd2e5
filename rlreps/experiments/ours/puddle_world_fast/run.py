"""Time to a given distance: every recipe at every d, one seed at a time."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import as_json
from rlreps.experiments.ours.puddle_world_fast.config import PuddleWorldFastConfig
from rlreps.experiments.ours.puddle_world_fast.report import FastRun, write_fast_report
from rlreps.losses.base import Params
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.runs.provenance import provenance
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.released import load
from rlreps.successor.store import open_store
from rlreps.training import train_population
from rlreps.training.evaluation import distance_evaluation
from rlreps.workflows.ground_truths import OwnGroundTruth, generation_figures, own_ground_truth
from rlreps.workflows.train import TrainingConfig, batches_of, inputs_for, learner_for

KIND = "puddle-world-fast"
RUN_KIND = "puddle-world-fast-run"
RUNS = "runs"
RELEASED = "sutton-100"


def run_puddle_world_fast(
    config: PuddleWorldFastConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The run's folder: the ground truth, a folder a run, figures, results, report and
            summary.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``runs`` (a row for each recipe, d and seed), ``claims`` (the goals) and the
        ``report``'s path.

    Raises:
        InputError: If the folder holds something else.
        ArenaError: For an unknown or invalid arena.
    """
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: PuddleWorldFastConfig,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    ground = own_ground_truth(config.successor, folder, max(config.dimensions), progress=progress)
    place = _Place(folder, ground, _released(config), devices, progress)
    runs = [
        _run(place, recipe.name, dataclasses.replace(training, seed=seed))
        for recipe in config.recipes
        for training in recipe.trainings
        for seed in range(config.num_seeds)
    ]
    figures = generation_figures(folder, config.successor)
    return write_fast_report(config, folder, figures, runs)


class _Place(NamedTuple):
    """Where the experiment stands, and what it measures against."""

    folder: RunFolder
    ground: OwnGroundTruth
    released: GroundTruth | None
    devices: Sequence[jax.Device] | None
    progress: bool


def _released(config: PuddleWorldFastConfig) -> GroundTruth | None:
    """The released ground truth, where it is of the process that the encoders learn."""
    truth = load(RELEASED)
    names = ("bins", "discount", "horizon", "count_start")
    same = all(getattr(config.successor, name) == truth.settings[name] for name in names)
    return truth if same and config.successor.arena == "sutton" else None


def _in_path(name: str) -> str:
    """A recipe's name as part of a path."""
    return re.sub(r"\W+", "-", name)


def _run(place: _Place, recipe: str, training: TrainingConfig) -> FastRun:
    """One seed of one recipe at one d, alone on the machine: its time is its own."""
    ground, d = place.ground, training.num_features
    folder = RunFolder.create_or_resume(
        place.folder.path / RUNS / f"{_in_path(recipe)}-d{d}-seed{training.seed}",
        kind=RUN_KIND,
        config=as_json(training),
        provenance=provenance(),
    )
    store = open_store(ground.path)
    learner = learner_for(training, ground.truth, store.shape[1], resets_diverged=True)
    encoder, inputs = learner.encoder, inputs_for(learner.encoder, ground.truth)
    measure = distance_evaluation(encoder, inputs, ground.truth.principal.truncated(d).basis)

    def evaluate(params: Params, _: tuple[()]) -> Mapping[str, Array]:
        return measure(params)

    with batches_of(training.objective, store, ground.truth, inputs) as source:
        result = train_population(
            learner,
            source,
            own_numbers=False,
            steps=training.steps,
            seeds=[training.seed],
            evaluate=evaluate,
            evaluate_every=training.evaluate_every,
            folder=folder,
            checkpoint_every=training.checkpoint_every,
            devices=place.devices,
            description=f"{recipe}, d = {d}, seed {training.seed}",
            progress=place.progress,
        )
    released = None
    if place.released is not None:
        features = jax.jit(encoder.apply)(result.params(), jnp.asarray(inputs))
        released = float(place.released.distance(features))
    return FastRun(
        recipe=recipe,
        d=d,
        seed=training.seed,
        steps=[record["step"] for record in result.history],
        seconds=[record["seconds"] for record in result.history],
        distances=[record["subspace_distance"][0] for record in result.history],
        diverged=bool(result.history[-1]["diverged"][0]),
        released_distance=released,
    )
