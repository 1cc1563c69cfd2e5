"""Slow features of PuddleWorld: every contender in a folder of its own, then figures and report."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import as_json, with_sizes
from rlreps.encoders import AtStates, Encoder, WithConstant
from rlreps.experiments.ours.slow_puddle.config import Contender, SlowPuddleConfig
from rlreps.experiments.ours.slow_puddle.figures import ContenderResult
from rlreps.experiments.ours.slow_puddle.measures import measure_features, training_measures
from rlreps.experiments.ours.slow_puddle.problem import (
    Problem,
    make_problem,
    pair_source,
    sparse_graph_operator,
    state_source,
)
from rlreps.experiments.ours.slow_puddle.report import write_slow_puddle_report
from rlreps.losses.base import Params
from rlreps.losses.spectral import Spin
from rlreps.operators import Operator, Slowness
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.sources.matrix import Source
from rlreps.training import train_population
from rlreps.training.update import Learner
from rlreps.workflows.ground_truths import OwnGroundTruth, generation_figures, own_ground_truth

KIND = "slow-puddle"
RUN_KIND = "slow-puddle-run"
RUNS = "runs"

_CHECKPOINTS = 4
"""Checkpoints of a run, at most."""


def run_slow_puddle(
    config: SlowPuddleConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The run's folder: the successor measure, a folder a contender, figures, results, report
            and summary.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``eigenvalues``, the true ones, ``contenders`` with their figures per seed,
        ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds something else, or the chain does not visit all cells.
        ArenaError: For an unknown or invalid arena.
    """
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: SlowPuddleConfig,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    ground = own_ground_truth(config.successor, folder, config.num_features, progress=progress)
    # One eigenfunction more than is learned: the gap after the last decides how well it can be.
    problem = make_problem(config.successor, config.num_features + 1)
    encoder = slow_encoder(config, problem)
    place = _Place(config, folder, problem, ground, encoder, devices, progress)
    results = [_run(place, contender) for contender in config.contenders]
    generated = generation_figures(folder, config.successor)
    return write_slow_puddle_report(config, folder, problem, ground.truth, generated, results)


class _Place(NamedTuple):
    """Where the experiment stands, and what it measures against."""

    config: SlowPuddleConfig
    folder: RunFolder
    problem: Problem
    ground: OwnGroundTruth
    encoder: Encoder
    devices: Sequence[jax.Device] | None
    progress: bool


def folder_name(contender: Contender) -> str:
    """A contender's name as part of a path, in plain letters."""
    return re.sub(r"\W+", "-", contender.name, flags=re.ASCII)


def _run(place: _Place, contender: Contender) -> ContenderResult:
    """All seeds of a contender."""
    config, problem = place.config, place.problem
    folder = RunFolder.create_or_resume(
        place.folder.path / RUNS / folder_name(contender),
        kind=RUN_KIND,
        config={"contender": as_json(contender), "experiment": place.folder.config},
        provenance=place.folder.provenance,
    )
    encoder = place.encoder
    learner, source = make_learner(config, contender, encoder, problem)
    measures = training_measures(encoder, problem, config.dimensions)

    def evaluate(params: Params, _: tuple[()]) -> Mapping[str, Array]:
        return measures(params)

    every = contender.steps // config.evaluations
    result = train_population(
        learner,
        source,
        own_numbers=False,
        steps=contender.steps,
        seeds=range(config.num_seeds),
        evaluate=evaluate,
        evaluate_every=every,
        folder=folder,
        checkpoint_every=every * max(1, config.evaluations // _CHECKPOINTS),
        devices=place.devices,
        description=contender.name,
        progress=place.progress,
    )
    apply = jax.jit(encoder.apply)
    centres = jnp.asarray(problem.centres)
    return ContenderResult(
        contender=contender,
        history=result.history,
        seconds=result.seconds,
        diverged=int(np.sum(result.history[-1]["diverged"])),
        learned=[
            measure_features(apply(result.params(seed), centres), problem, place.ground.truth)
            for seed in range(config.num_seeds)
        ],
    )


def slow_encoder(config: SlowPuddleConfig, problem: Problem) -> Encoder:
    """The network of cell centres [b, 2] → the constant and d features, [b, 1 + d]."""
    encoder = with_sizes(
        config.encoder,
        num_inputs=problem.centres.shape[1],
        num_states=len(problem.centres),
        num_features=config.num_features,
    )
    return WithConstant(encoder)


def make_learner(
    config: SlowPuddleConfig, contender: Contender, encoder: Encoder, problem: Problem
) -> tuple[Learner, Source]:
    """How a contender's updates are made, and where its batches come from."""
    centres = jnp.asarray(problem.centres)
    operator: Operator
    source: Source
    if contender.action == "exact":
        operator, source = sparse_graph_operator(problem.graph), state_source(problem.measure)
        of_batch: Encoder = AtStates(encoder, centres)
    else:
        operator, source = Slowness(), pair_source(problem.chain, centres)
        of_batch = encoder
    objective = Spin(
        1 + config.num_features,
        operator=operator,
        averaging_rate=contender.averaging_rate,
        encoder=encoder,
    )
    learner = Learner(
        encoder=of_batch,
        objective=objective,
        optimizer=with_sizes(contender.optimizer, steps=contender.steps),
        rows=contender.rows,
        tasks=1,
        resets_diverged=True,
    )
    return learner, source
