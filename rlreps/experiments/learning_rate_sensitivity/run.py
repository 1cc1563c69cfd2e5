"""The experiment on learning rates: a part for every rule and k, then tables, figures, report."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlreps.configs import as_json
from rlreps.experiments.complete_run import complete_run, finished_summary
from rlreps.experiments.learning_rate_sensitivity.config import LearningRateSensitivityConfig
from rlreps.experiments.learning_rate_sensitivity.findings import RuleResult
from rlreps.experiments.learning_rate_sensitivity.report import write_sensitivity_report
from rlreps.experiments.pca_losses import require_excess
from rlreps.experiments.pca_problem import PcaProblem, make_pca_problem
from rlreps.experiments.pca_tuning import tune_learning_rate
from rlreps.observations import load_observations
from rlreps.progress import progress_bar
from rlreps.run_folder import RunFolder
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.passes import Runs, stream_passes
from rlreps.streaming.registry import make_rule
from rlreps.streaming.schedules import power_decay
from rlreps.validation import require

KIND = "learning-rate-sensitivity"


def run_learning_rate_sensitivity(
    config: LearningRateSensitivityConfig,
    out: Path,
    *,
    data: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: ``parts`` for every rule and k, ``results``, ``figures``, ``report.html``
            and ``summary.json``.
        data: Rows, for ``load_observations``; None is MNIST.
        devices: Over which the runs of a rule are shared out evenly; None is JAX's default device.
        progress: Whether to show a progress bar.

    Returns:
        The summary: ``data``, ``exact`` losses by k, ``rules`` with the chosen η0 and the final
        losses by k and scale, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the rows cannot be read or are too few, do not vary beyond k components,
            a rule diverges for every learning rate, or the folder holds another run.
    """
    observations = load_observations(data)
    described = {"data": observations.fingerprint(), **as_json(config)}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    # Before the folder is made: rows may be too few, or too poor.
    count = len(observations.rows)
    require(
        config.evaluations <= count and config.tuning_fraction * count >= 1.0,
        f"a row for each of {config.evaluations} evaluations and for the choice of η0",
        f"{count} rows",
    )
    problem = make_pca_problem(observations, max(config.components))
    require_excess(problem, max(config.components))
    return complete_run(
        out,
        kind=KIND,
        config=described,
        compute=lambda folder: write_sensitivity_report(
            config, problem, folder, _results(config, problem, folder, devices, progress)
        ),
    )


def _results(
    config: LearningRateSensitivityConfig,
    problem: PcaProblem,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> list[RuleResult]:
    cells = [
        (rule, power, k)
        for rule, power in zip(config.rules, config.powers, strict=True)
        for k in config.components
    ]
    results = []
    with progress_bar("learning rates", total=len(cells), unit="rules", show=progress) as advance:
        for rule, power, k in cells:
            advance(0, f"{rule}, k = {k}")
            compute = functools.partial(_stream, config, problem, rule, power, k, devices)
            part = folder.part(f"{rule}-{k}", compute)
            results.append(RuleResult.from_part(rule, k, part))
            advance(1)
    return results


def _stream(
    config: LearningRateSensitivityConfig,
    problem: PcaProblem,
    rule: str,
    power: float,
    k: int,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """A part: the choice of η0, and the losses of all scales and repeats over one pass."""
    features = problem.rows.shape[1]

    def build(initial: jax.Array) -> StreamingRule:
        return make_rule(rule, features, k, learning_rate=power_decay(initial, power))

    tuning = tune_learning_rate(
        build,
        problem,
        config.learning_rates,
        seed=config.seed,
        fraction=config.tuning_fraction,
        devices=devices,
    )
    streamed = stream_passes(
        build,
        problem.rows,
        Runs(
            [seed for _ in config.scales for seed in config.seeds],
            [tuning.best * scale for scale in config.scales for _ in config.seeds],
        ),
        evaluate=problem.loss,
        evaluate_every=len(problem.rows) // config.evaluations,
        devices=devices,
    )
    shape = (-1, len(config.scales), config.repeats)
    return {
        "learning_rate": tuning.best,
        "tuning_losses": list(tuning.losses),
        "rows_seen": streamed.rows_seen.tolist(),
        "seconds": float(streamed.seconds[-1]),
        "losses": np.reshape(streamed.figures, shape).tolist(),
    }
