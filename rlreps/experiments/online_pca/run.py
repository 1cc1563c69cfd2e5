"""The experiment on online principal components: a part for every curve, then figures, report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.configs import as_json
from rlreps.experiments.complete_run import complete_run, finished_summary
from rlreps.experiments.online_pca.config import Contender, OnlinePcaConfig
from rlreps.experiments.online_pca.curves import (
    ExcessCurve,
    measure,
    seconds_per_qr_update,
)
from rlreps.experiments.online_pca.report import write_online_pca_report
from rlreps.experiments.pca_losses import require_excess
from rlreps.experiments.pca_problem import PcaProblem, make_pca_problem
from rlreps.observations import load_observations
from rlreps.progress import progress_bar
from rlreps.run_folder import RunFolder
from rlreps.streaming.registry import RULES
from rlreps.validation import require, require_choice

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
        every contender and k, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the rows cannot be read, are too few or have no variance beyond k components,
            a rule does not exist or has no learning rate, or the folder holds another run.
    """
    observations = load_observations(data)
    described = {"data": observations.fingerprint(), **as_json(config)}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    # Before the folder is made: rows may be too few, or vary too little.
    for contender in config.contenders:
        _check(config, contender, len(observations.rows))
    problem = make_pca_problem(observations, max(config.components))
    require_excess(problem, max(config.components))

    def compute(folder: RunFolder) -> dict[str, Any]:
        curves = _curves(config, problem, folder, devices, progress)
        qr_seconds = {k: _qr_seconds(problem, k, folder, devices) for k in config.components}
        return write_online_pca_report(config, problem, folder, curves, qr_seconds)

    return complete_run(out, kind=KIND, config=described, compute=compute)


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


def _curves(
    config: OnlinePcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> list[ExcessCurve]:
    cells = [(contender, k) for k in config.components for contender in config.contenders]
    curves = []
    with progress_bar("online PCA", total=len(cells), unit="curves", show=progress) as advance:
        for contender, k in cells:
            advance(0, f"{contender.name}, k = {k}")
            part = folder.part(
                f"{contender.name}-k{k}",
                lambda contender=contender, k=k: measure(  # type: ignore[misc]
                    config, contender, k, problem, devices
                ),
            )
            curves.append(ExcessCurve.from_part(contender, k, part, problem))
            advance(1)
    return curves


def _qr_seconds(
    problem: PcaProblem, k: int, folder: RunFolder, devices: Sequence[jax.Device] | None
) -> float:
    part = folder.part(
        f"qr-k{k}", lambda: {"seconds_per_row": seconds_per_qr_update(problem, k, devices)}
    )
    return float(part["seconds_per_row"])
