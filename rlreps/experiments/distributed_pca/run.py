"""The experiment on workers: a part for every rule and k, then table, figure and report."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.configs import as_json
from rlreps.experiments.complete_run import complete_run, finished_summary
from rlreps.experiments.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.distributed_pca.findings import RuleResult
from rlreps.experiments.distributed_pca.report import write_distributed_report
from rlreps.experiments.pca_losses import require_excess
from rlreps.experiments.pca_problem import PcaProblem, make_pca_problem
from rlreps.experiments.pca_tuning import tune_learning_rate
from rlreps.observations import load_observations
from rlreps.progress import progress_bar
from rlreps.run_folder import RunFolder
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.passes import MakeRule, Runs, stream_passes
from rlreps.streaming.registry import RULES, make_rule
from rlreps.streaming.schedules import power_decay
from rlreps.streaming.workers import stream_workers
from rlreps.validation import require

KIND = "distributed-pca"


def run_distributed_pca(
    config: DistributedPcaConfig,
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
        losses by k, ``claims`` and the ``report``'s path.

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
    count, needed = len(observations.rows), config.workers * config.combine_every
    require(
        needed <= count and config.tuning_fraction * count >= 1.0,
        f"{config.combine_every} rows for each of {config.workers} workers, and one for the choice "
        "of η0",
        f"{count} rows",
    )
    problem = make_pca_problem(observations, max(config.components))
    require_excess(problem, max(config.components))
    return complete_run(
        out,
        kind=KIND,
        config=described,
        compute=lambda folder: write_distributed_report(
            config, problem, folder, _results(config, problem, folder, devices, progress)
        ),
    )


def _results(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> list[RuleResult]:
    cells = [(rule, k) for rule in config.rules for k in config.components]
    results = []
    with progress_bar("workers", total=len(cells), unit="rules", show=progress) as advance:
        for rule, k in cells:
            advance(0, f"{rule}, k = {k}")
            compute = functools.partial(_stream, config, problem, rule, k, devices)
            results.append(RuleResult.from_part(rule, k, folder.part(f"{rule}-{k}", compute)))
            advance(1)
    return results


def _stream(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    rule: str,
    k: int,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """A part: the choice of η0, then workers and one model alone, from the same starts."""
    features = problem.rows.shape[1]

    def build(initial: jax.Array) -> StreamingRule:
        return make_rule(rule, features, k, learning_rate=power_decay(initial, config.power))

    tuned = _tune(config, problem, rule, build, devices)
    runs = Runs(list(config.seeds), [tuned.get("learning_rate", 1.0)] * config.repeats)
    spread = stream_workers(
        build,
        problem.rows,
        runs,
        workers=config.workers,
        combine_every=config.combine_every,
        evaluate=problem.loss,
        devices=devices,
    )
    single = stream_passes(
        build,
        problem.rows,
        runs,
        evaluate=problem.loss,
        evaluate_every=config.workers * config.combine_every,
        devices=devices,
    )
    return {
        "learning_rate": None,
        "tuning_losses": [],
        **tuned,
        "rows_seen": spread.rows_seen.tolist(),
        "seconds": float(spread.seconds[-1]),
        "workers": spread.workers.tolist(),
        "combined": spread.combined.tolist(),
        "single": single.figures.tolist(),
    }


def _tune(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    rule: str,
    build: MakeRule,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """The chosen η0 and what it was chosen by; nothing for a rule without a learning rate."""
    if not RULES[rule].needs_learning_rate:
        return {}
    tuning = tune_learning_rate(
        build,
        problem,
        config.learning_rates,
        seed=config.seed,
        fraction=config.tuning_fraction,
        devices=devices,
    )
    return {"learning_rate": tuning.best, "tuning_losses": list(tuning.losses)}
