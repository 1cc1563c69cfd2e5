"""The experiment on online principal components: a part for every curve, then figures, report."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.errors import require, require_choice
from rlreps.experiments.amid_warmuth_2020.online_pca.config import Contender, OnlinePcaConfig
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve, measure
from rlreps.experiments.amid_warmuth_2020.online_pca.report import write_online_pca_report
from rlreps.experiments.amid_warmuth_2020.online_pca.timing import seconds_per_row
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_runs import run_on_rows
from rlreps.runs.folder import RunFolder
from rlreps.streaming import RULES

KIND = "online-pca"


def run_online_pca(
    config: OnlinePcaConfig,
    out: Path,
    *,
    data: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: ``parts`` for every contender and k, ``results``, ``figures``,
            ``report.html`` and ``summary.json``.
        data: Rows, for ``load_observations``; None is MNIST.
        devices: Over which the choice of learning rates is shared out evenly; curves are of the
            first one alone, so that their times are those of one stream. None is JAX's default
            device.
        progress: Whether to show a progress bar.

    Returns:
        The summary: ``data``, ``exact`` losses by k, ``curves`` with η0, final excess and time of
        every contender and k, ``seconds_per_row`` of single updates, ``claims`` and the
        ``report``'s path.

    Raises:
        InputError: If the rows cannot be read, are too few or have no variance beyond k components,
            a rule does not exist or has no learning rate, or the folder holds another run.
    """

    def check(count: int) -> None:
        for contender in config.contenders:
            _check(config, contender, count)

    cells = [(contender, k) for k in config.components for contender in config.contenders]

    def report(
        problem: PcaProblem, folder: RunFolder, parts: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        curves = [
            ExcessCurve.from_part(contender, k, part, problem)
            for (contender, k), part in zip(cells, parts, strict=True)
        ]
        times = {
            k: folder.part(
                f"times-k{k}", functools.partial(seconds_per_row, problem, k, curves, devices)
            )
            for k in config.components
        }
        return write_online_pca_report(config, problem, folder, curves, times)

    return run_on_rows(
        config,
        out,
        kind=KIND,
        data=data,
        progress=progress,
        check=check,
        computations=lambda problem: {
            f"{contender.name}-k{k}": functools.partial(
                measure, config, contender, k, problem, devices
            )
            for contender, k in cells
        },
        report=report,
    )


def _check(config: OnlinePcaConfig, contender: Contender, count: int) -> None:
    require_choice("rule", contender.rule, tuple(RULES))
    needs = RULES[contender.rule].needs_learning_rate
    require(
        needs == bool(contender.learning_rates),
        f"{'learning rates' if needs else 'no learning rate'} to choose from for {contender.rule}",
        contender.learning_rates,
    )
    available = int(count * config.tuning_fraction) if needs else count
    where = f"the {config.tuning_fraction:.0%} that η0 is chosen on" if needs else "all"
    require(
        contender.rows_per_update <= available,
        f"at least {contender.rows_per_update} rows, an update of {contender.rule}, in {where}",
        available,
    )
