"""Sweeps over a stored successor measure: what ``rlreps sweep`` runs."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.configs import as_json
from rlreps.configs.sweep import SweepConfig
from rlreps.losses.base import Params
from rlreps.runs.complete import finished_summary
from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.provenance import provenance
from rlreps.sources.matrix import MatrixSource
from rlreps.sources.store import StreamedSource
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.store import MatrixStore, open_store
from rlreps.training import TrainingResult, evaluation, train_members
from rlreps.training.devices import make_placement
from rlreps.training.hyperparameters import Hyperparameters
from rlreps.training.population import Members
from rlreps.training.update import Learner
from rlreps.workflows.sweep.grid import Group, groups_of
from rlreps.workflows.sweep.report import gather, write_sweep_report
from rlreps.workflows.train import (
    MATRIX,
    batches_of,
    describe_matrix,
    encoder_and_inputs,
    ground_truth_for,
    make_learner,
)

KIND = "sweep"
GROUP_KIND = "sweep_group"
GROUPS = "groups"


class _Ground(NamedTuple):
    """What all groups of a sweep are trained on and measured against."""

    store: MatrixStore
    truth: GroundTruth


class _Place(NamedTuple):
    """Where a sweep trains, and what it shows of it."""

    folder: RunFolder
    devices: Sequence[jax.Device] | None
    progress: bool


class _Prepared(NamedTuple):
    """A group's learner under default numbers, its batches, the inputs of all states."""

    learner: Learner
    source: MatrixSource | StreamedSource
    inputs: Array


def run_sweep(
    config: SweepConfig,
    store_path: Path,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains at every point of a grid in a folder of its own, resuming what was interrupted.

    Points that differ in seeds and numeric hyperparameters alone are trained in one compiled
    program, the others one after the other. A run that diverges stops no other: it counts with the
    worst values there are, those of features that are zero.

    Args:
        config: The sweep.
        store_path: A complete store.
        out: The sweep's folder: a folder a program under ``groups/``, ``results/sweep.csv`` and
            ``.json``, ``figures/sweep.png``, ``report.html`` and ``summary.json``.
        devices: Where to train, as for ``run_training``.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``fields``, the ``points`` as rows of the table (see ``report.gather``),
        ``groups``, ``seconds`` of training, ``compile_seconds`` and the path of the ``report``.

    Raises:
        InputError: For anything about the store, the folder or a point that does not fit, before
            the first file is written.
    """
    store = open_store(store_path)
    described = {MATRIX: describe_matrix(store), **config.as_json()}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    largest = max(point.config.num_features for point in config.points)
    ground = _Ground(store, ground_truth_for(store_path, largest, progress=progress))
    groups = groups_of(config)
    for group in groups:
        make_placement(devices, len(group.members))
        with _prepared(group, ground) as prepared:
            prepared.learner.check(prepared.source)
    where = {
        "store": str(store_path.absolute()),
        "store_from_run": os.path.relpath(store_path.absolute(), out.absolute()),
    }
    with exclusive(out):
        folder = RunFolder.create_or_resume(
            out, kind=KIND, config=described, provenance={**where, **provenance()}
        )
        place = _Place(folder, devices, progress)
        results = [
            _group_result(index, group, ground, place)
            for index, group in enumerate(groups, start=1)
        ]
        summary = _summarise(config, gather(config, groups, results), results, folder)
        folder.write_summary(summary)
    return summary


def _summarise(
    config: SweepConfig,
    rows: list[dict[str, Any]],
    results: Sequence[Mapping[str, Any]],
    folder: RunFolder,
) -> dict[str, Any]:
    """Writes the table, the figure and the report; returns the sweep's summary."""
    report = write_sweep_report(config, folder, rows)
    return {
        "fields": [axis.field for axis in config.grid],
        "points": rows,
        "groups": len(results),
        "seconds": round(sum(result["seconds"] for result in results), 3),
        "compile_seconds": round(sum(result["compile_seconds"] for result in results), 3),
        "report": str(report),
    }


def _group_result(index: int, group: Group, ground: _Ground, place: _Place) -> dict[str, Any]:
    """The summary of a group, trained if it has not been."""
    out = place.folder.path / GROUPS / f"{index:03d}"
    described = {
        MATRIX: describe_matrix(ground.store),
        **as_json(group.config),
        "members": [
            {"seed": member.seed, **member.hyperparameters._asdict()} for member in group.members
        ],
    }
    finished = finished_summary(out, GROUP_KIND, described)
    if finished is not None:
        return finished
    folder = RunFolder.create_or_resume(
        out, kind=GROUP_KIND, config=described, provenance=provenance()
    )
    with _prepared(group, ground) as prepared:
        result = _train(group, ground, prepared, folder, place, f"group {index}")
    summary = {
        "seconds": round(result.seconds, 3),
        "compile_seconds": round(result.compile_seconds, 3),
        "members": _measure(result, prepared, ground.truth),
    }
    folder.write_summary(summary)
    return summary


@contextlib.contextmanager
def _prepared(group: Group, ground: _Ground) -> Iterator[_Prepared]:
    encoder, inputs = encoder_and_inputs(group.config, ground.truth)
    learner = make_learner(group.config, encoder, ground.store.shape[1])
    with batches_of(group.config, ground.store, ground.truth, inputs) as source:
        yield _Prepared(learner, source, inputs)


def _train(
    group: Group,
    ground: _Ground,
    prepared: _Prepared,
    folder: RunFolder,
    place: _Place,
    title: str,
) -> TrainingResult:
    config, encoder = group.config, prepared.learner.encoder
    basis = ground.truth.principal.truncated(config.num_features).basis
    distance = evaluation.distance_evaluation(encoder, prepared.inputs, basis)

    def build(numbers: Hyperparameters) -> Learner:
        learner = make_learner(config, encoder, ground.store.shape[1], numbers)
        return dataclasses.replace(learner, resets_diverged=True)

    def evaluate(params: Params, _: Hyperparameters) -> Mapping[str, Array]:
        return distance(params)

    numbers = zip(*(member.hyperparameters for member in group.members), strict=True)
    return train_members(
        Members(build),
        prepared.source,
        Hyperparameters(*(jnp.asarray(values, jnp.float32) for values in numbers)),
        steps=config.steps,
        seeds=[member.seed for member in group.members],
        evaluate=evaluate,
        evaluate_every=config.evaluate_every,
        folder=folder,
        checkpoint_every=config.checkpoint_every,
        devices=place.devices,
        description=title,
        progress=place.progress,
    )


def _measure(
    result: TrainingResult, prepared: _Prepared, truth: GroundTruth
) -> list[dict[str, Any]]:
    """Each member's final figures; one that diverged has zero features, and so the worst ones."""
    diverged, encoder = result.history[-1]["diverged"], prepared.learner.encoder
    return [
        {
            "seed": seed,
            "diverged": bool(diverged[index]),
            **evaluation.evaluate_encoder(encoder, result.params(index), prepared.inputs, truth),
        }
        for index, seed in enumerate(result.seeds)
    ]
