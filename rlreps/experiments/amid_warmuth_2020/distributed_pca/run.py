"""The experiment on workers: a part for every rule and k, then table, figure and report."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.errors import require
from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.amid_warmuth_2020.distributed_pca.findings import RuleResult
from rlreps.experiments.amid_warmuth_2020.distributed_pca.report import write_distributed_report
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_runs import run_on_rows
from rlreps.experiments.amid_warmuth_2020.pca_tuning import choose_rate, decaying_rule, rate_to_run
from rlreps.streaming import Runs, run_passes, run_workers

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
        The summary: ``data``, ``exact`` losses by k, ``combine_every`` as it was,
        ``rules`` with the chosen η0 and the final losses by k, ``claims`` and the ``report``'s
        path.

    Raises:
        InputError: If the rows cannot be read or are too few, do not vary beyond k components,
            a rule diverges for every learning rate, or the folder holds another run.
    """

    def check(count: int) -> None:
        require(
            config.workers <= count and config.tuning_fraction * count >= 1.0,
            f"a row for each of {config.workers} workers and for the choice of η0",
            f"{count} rows",
        )

    cells = [(rule, k) for rule in config.rules for k in config.components]
    return run_on_rows(
        config,
        out,
        kind=KIND,
        data=data,
        progress=progress,
        check=check,
        computations=lambda problem: {
            f"{rule}-{k}": functools.partial(_stream, config, problem, rule, k, devices)
            for rule, k in cells
        },
        report=lambda problem, folder, parts: write_distributed_report(
            config, problem, folder, RuleResult.from_parts(cells, parts)
        ),
    )


def _stream(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    rule: str,
    k: int,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """A part: the choice of η0, then workers and one model alone, from the same starts."""
    build = decaying_rule(rule, problem.rows.shape[1], k, config.power)
    tuned = choose_rate(config, rule, build, problem, config.learning_rates, devices=devices)
    runs = Runs(list(config.seeds), [rate_to_run(tuned)] * config.repeats)
    interval = config.interval(len(problem.rows))
    spread = run_workers(
        build,
        problem.rows,
        runs,
        workers=config.workers,
        combine_every=interval,
        evaluate=problem.loss,
        devices=devices,
    )
    single = run_passes(
        build,
        problem.rows,
        runs,
        evaluate=problem.loss,
        evaluate_every=config.workers * interval,
        devices=devices,
    )
    return {
        **tuned,
        "rows_seen": spread.rows_seen.tolist(),
        "seconds": float(spread.seconds[-1]),
        "workers": spread.workers.tolist(),
        "combined": spread.combined.tolist(),
        "single": single.figures.tolist(),
    }
