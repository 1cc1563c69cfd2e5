"""The hydrogen experiment: every contender in a folder of its own, then tables, figures, report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.config import as_json
from rlreps.experiments.pfau_2019.hydrogen import problem
from rlreps.experiments.pfau_2019.hydrogen.config import NUM_FEATURES, Contender, HydrogenConfig
from rlreps.experiments.pfau_2019.hydrogen.grid_solver import GridSolution, solve_on_grid
from rlreps.experiments.pfau_2019.hydrogen.report import ContenderResult, write_hydrogen_report
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training import TrainingResult, train_population
from rlreps.training.devices import largest_even_share
from rlreps.training.optimizers import GivenOptimizer
from rlreps.training.update import Learner

KIND = "hydrogen"
RUN_KIND = "hydrogen-contender"
RUNS = "runs"

_EVALUATIONS_PER_CHECKPOINT = 5


def run_hydrogen(
    config: HydrogenConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: a folder per contender under ``runs``, ``results``, ``figures``,
            ``report.html`` and ``summary.json``.
        devices: Over which the seeds are shared out evenly; None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``contenders`` with every seed's energies and errors, the ``grid_solver``'s
        energies, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds another run.
    """
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: HydrogenConfig, folder: RunFolder, devices: Sequence[jax.Device] | None, progress: bool
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    grid = solve_on_grid(config.grid_points, config.half_width)
    shared = None if devices is None else largest_even_share(devices, config.num_seeds)
    results = [
        _run(config, contender, index, grid, folder, shared, progress)
        for index, contender in enumerate(config.contenders)
    ]
    return write_hydrogen_report(config, folder, grid, results)


def _run(
    config: HydrogenConfig,
    contender: Contender,
    index: int,
    grid: GridSolution,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> ContenderResult:
    run = RunFolder.create_or_resume(
        folder.path / RUNS / f"{index:02d}",
        kind=RUN_KIND,
        config={
            **as_json(contender),
            "half_width": config.half_width,
            "num_seeds": config.num_seeds,
            "evaluations": config.evaluations,
        },
        provenance=folder.provenance,
    )
    trained = _train(config, contender, run, devices, progress)
    functions = _eigenfunctions(config, contender, trained, grid)
    return ContenderResult(contender, trained.history, trained.seconds, functions)


def _train(
    config: HydrogenConfig,
    contender: Contender,
    run: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> TrainingResult:
    source = problem.make_source(contender, config.half_width)
    encoder = problem.make_encoder(contender, config.half_width)
    learner = Learner(
        encoder=encoder,
        objective=problem.make_objective(contender, encoder, source),
        optimizer=GivenOptimizer(problem.make_optimizer(contender)),
        rows=contender.rows,
        tasks=1,
        resets_diverged=True,
    )
    evaluate = problem.make_evaluation(encoder, config.half_width)
    every = contender.steps // config.evaluations
    return train_population(
        learner,
        source,
        own_numbers=False,
        steps=contender.steps,
        seeds=range(config.num_seeds),
        evaluate=lambda params, _: evaluate(params),
        evaluate_every=every,
        folder=run,
        checkpoint_every=every * _EVALUATIONS_PER_CHECKPOINT,
        devices=devices,
        description=contender.name,
        progress=progress,
    )


def _eigenfunctions(
    config: HydrogenConfig,
    contender: Contender,
    trained: TrainingResult,
    grid: GridSolution,
) -> np.ndarray:
    """The first seed's ordered eigenfunctions at the grid's points, orthonormal there, [m, 9]."""
    encoder = problem.make_encoder(contender, config.half_width)
    positions = jnp.asarray(grid.positions, jnp.result_type(float))
    features = jax.jit(encoder.apply)(trained.params(), positions)
    columns = np.asarray(features, np.float64)
    spectrum = ordered_spectrum(
        jnp.asarray(columns.T @ columns, features.dtype), jnp.eye(NUM_FEATURES)
    )
    return columns @ np.asarray(spectrum.transform, np.float64)
