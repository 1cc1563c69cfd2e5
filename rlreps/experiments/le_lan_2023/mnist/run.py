"""The MNIST experiment: every method in a folder of its own, then tables, figures and report."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.config import as_json
from rlreps.encoders import Tabular
from rlreps.errors import require
from rlreps.experiments.le_lan_2023.mnist.config import MnistConfig
from rlreps.experiments.le_lan_2023.mnist.figures import MethodResult
from rlreps.experiments.le_lan_2023.mnist.problem import (
    Problem,
    evaluation,
    fingerprint,
    make_problem,
    orthonormal,
    reconstruction_errors,
)
from rlreps.experiments.le_lan_2023.mnist.report import (
    EIGENGAME,
    compare_with_paper,
    write_mnist_report,
)
from rlreps.losses import DanskinLissa
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.intervals import aggregate
from rlreps.sources.images import load_images
from rlreps.streaming import Eigengame
from rlreps.subspace import subspace_distance
from rlreps.training import Optimizer, train_population
from rlreps.training.optimizers import SCHEDULES
from rlreps.training.streams import fit_stream
from rlreps.training.update import Learner

KIND = "mnist"
RUN_KIND = "mnist-method"
RUNS = "runs"

_CHECKPOINT_EVALUATIONS = 10
"""Evaluations between checkpoints."""


class _Trained(NamedTuple):
    """What a run leaves.

    Attributes:
        features: [seeds, pixels, d].
        history: Its records.
        seconds: Time in updates.
        entries: Matrix entries one update read.
    """

    features: jax.Array
    history: list[dict[str, Any]]
    seconds: float
    entries: int


def run_mnist(
    config: MnistConfig, out: Path, *, data: Path | None = None, progress: bool = True
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: a folder per method under ``runs``, ``results``, ``figures``,
            ``report.html`` and ``summary.json``.
        data: Folder with MNIST's IDX files; None downloads MNIST.
        progress: Whether to show progress bars.

    Returns:
        The summary, as in ``summary.json``: ``exact`` errors, ``methods`` with their figures per
        seed and over seeds, the ``best`` Danskin-LISSA's test error over the exact one, and
        ``claims``, what the paper states beside what was found.

    Raises:
        InputError: If there are no images or they cannot be used, d exceeds the number of pixels,
            or the folder holds another run.
    """
    images = load_images(data)
    require(
        config.num_components <= images.num_pixels,
        f"num_components <= {images.num_pixels}, the pixels of an image",
        config.num_components,
    )
    described = {"data": fingerprint(images), **as_json(config)}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    # Before the folder is made: images may have too few components.
    problem = make_problem(images, config.num_components)
    return complete_run(
        out,
        kind=KIND,
        config=described,
        compute=lambda folder: _compute(config, problem, folder, progress),
    )


def _compute(
    config: MnistConfig, problem: Problem, folder: RunFolder, progress: bool
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    results = _run_methods(config, problem, folder, progress)
    summary = _summary(config, problem, results, folder)
    claims = compare_with_paper(config, problem, summary)
    write_mnist_report(config, problem, results, folder, summary, claims)
    return {**summary, "claims": [dataclasses.asdict(each) for each in claims]}


def _run_methods(
    config: MnistConfig, problem: Problem, folder: RunFolder, progress: bool
) -> list[MethodResult]:
    results = []
    for pixels, rate in zip(config.danskin.pixels, config.danskin.learning_rates, strict=True):
        name = f"danskin-lissa-{pixels}"
        run = _method_folder(folder, name, {"pixels": pixels, "learning_rate": rate})
        trained = _train_danskin(config, problem, pixels, rate, run, progress)
        results.append(_measure(f"Danskin-LISSA, N = {pixels}", name, problem, trained, run))
    run = _method_folder(folder, EIGENGAME, {})
    trained = _train_eigengame(config, problem, run, progress)
    results.append(_measure("EigenGame, whole images", EIGENGAME, problem, trained, run))
    return results


def _method_folder(folder: RunFolder, name: str, options: dict[str, Any]) -> RunFolder:
    return RunFolder.create_or_resume(
        folder.path / RUNS / name,
        kind=RUN_KIND,
        config={"method": name, **options, "experiment": folder.config},
        provenance=folder.provenance,
    )


def _train_danskin(
    config: MnistConfig,
    problem: Problem,
    pixels: int,
    learning_rate: float,
    run: RunFolder,
    progress: bool,
) -> _Trained:
    """Danskin-LISSA with N = M = J = ``pixels``."""
    options, num_pixels = config.danskin, problem.source.images.shape[1]
    encoder = Tabular(config.num_components, num_states=num_pixels)
    learner = Learner(
        encoder=encoder,
        objective=DanskinLissa(
            config.num_components,
            gradient_rows=pixels,
            weight_rows=pixels,
            covariance_rows=pixels,
            kappa0=options.kappa0,
            feature_norm=options.feature_norm,
            permutations=options.permutations,
            whitening=options.whitening,
        ),
        optimizer=Optimizer(
            learning_rate=learning_rate, schedule=options.schedule, steps=options.steps
        ),
        rows=5 * pixels,
        tasks=options.images,
        resets_diverged=True,
    )
    evaluate, all_pixels = evaluation(problem), jnp.arange(num_pixels)
    every = options.steps // config.evaluations
    result = train_population(
        learner,
        problem.source,
        own_numbers=False,
        steps=options.steps,
        seeds=config.seeds,
        evaluate=lambda params, _: evaluate(encoder.apply(params, all_pixels)),
        evaluate_every=every,
        folder=run,
        checkpoint_every=every * _CHECKPOINT_EVALUATIONS,
        description=f"Danskin-LISSA, {pixels} pixels",
        progress=progress,
    )
    features = jax.vmap(encoder.apply, in_axes=(0, None))(result.state.params, all_pixels)
    entries = learner.rows * options.images
    return _Trained(features, result.history, result.seconds, entries)


def _train_eigengame(
    config: MnistConfig, problem: Problem, run: RunFolder, progress: bool
) -> _Trained:
    """EigenGame on mini-batches of whole images."""
    options, num_pixels = config.eigengame, problem.source.images.shape[1]
    schedule = SCHEDULES[options.schedule](options.learning_rate, options.steps)

    def learning_rate(step: jax.Array) -> jax.Array:
        # Optax mixes integer counts with floats, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            return jnp.asarray(schedule(step))

    every = options.steps // config.evaluations
    result = fit_stream(
        Eigengame(num_pixels, config.num_components, learning_rate=learning_rate),
        problem.source,
        lambda source, key: source.whole_images(key, options.images),
        steps=options.steps,
        seeds=config.seeds,
        evaluate=evaluation(problem),
        evaluate_every=every,
        folder=run,
        checkpoint_every=every * _CHECKPOINT_EVALUATIONS,
        description="EigenGame",
        progress=progress,
    )
    entries = options.images * num_pixels
    return _Trained(result.components, result.history, result.seconds, entries)


def _measure(
    label: str, name: str, problem: Problem, trained: _Trained, run: RunFolder
) -> MethodResult:
    """A run's final figures, its test errors in float64 from the images themselves."""
    target = jnp.asarray(problem.basis, trained.features.dtype)
    bases = [orthonormal(features) for features in trained.features]
    distances = jax.vmap(subspace_distance, in_axes=(0, None))(trained.features, target)
    errors = [float(reconstruction_errors(problem.test, basis).mean()) for basis in bases]
    last = trained.history[-1]
    summary = {
        "steps": last["step"],
        "seconds": round(trained.seconds, 3),
        "entries_read": trained.entries * last["step"],
        "runs": len(bases),
        "diverged": int(np.sum(last["diverged"])),
        "per_seed": {
            "subspace_distance": np.asarray(distances).tolist(),
            "test_error": errors,
            "test_error_ratio": [error / problem.test_error for error in errors],
        },
    }
    for figure, values in list(summary["per_seed"].items()):
        summary[figure] = aggregate(values)
    run.write_summary(summary)
    return MethodResult(label, name, trained.entries, trained.history, bases, summary)


def _summary(
    config: MnistConfig,
    problem: Problem,
    results: list[MethodResult],
    folder: RunFolder,
) -> dict[str, Any]:
    danskin = results[: len(config.danskin.pixels)]
    best = min(danskin, key=lambda result: float(result.summary["test_error"]["mean"]))
    return {
        "data": folder.config["data"],
        "d": config.num_components,
        "exact": {"test_error": problem.test_error, "train_error": problem.train_error},
        "methods": {result.name: result.summary for result in results},
        "best": {
            "method": best.name,
            "test_error": best.summary["test_error"]["mean"],
            "test_error_ratio": best.summary["test_error_ratio"]["mean"],
        },
        "seconds": round(sum(result.summary["seconds"] for result in results), 3),
        "report": str(folder.path / "report.html"),
    }
