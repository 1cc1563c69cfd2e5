"""The experiment on learning rates: a part for every rule and k, then tables, figures, report."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlreps.errors import require
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.config import (
    LearningRateSensitivityConfig,
)
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.findings import RuleResult
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.report import (
    write_sensitivity_report,
)
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_runs import run_on_rows
from rlreps.experiments.amid_warmuth_2020.pca_tuning import choose_rate, decaying_rule
from rlreps.streaming import Runs, run_passes

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

    def check(count: int) -> None:
        require(
            config.evaluations <= count and config.tuning_fraction * count >= 1.0,
            f"a row for each of {config.evaluations} evaluations and for the choice of η0",
            f"{count} rows",
        )

    powers = dict(zip(config.rules, config.powers, strict=True))
    cells = [(rule, k) for rule in config.rules for k in config.components]
    return run_on_rows(
        config,
        out,
        kind=KIND,
        data=data,
        progress=progress,
        check=check,
        computations=lambda problem: {
            f"{rule}-{k}": functools.partial(
                _stream, config, problem, rule, powers[rule], k, devices
            )
            for rule, k in cells
        },
        report=lambda problem, folder, parts: write_sensitivity_report(
            config, problem, folder, RuleResult.from_parts(cells, parts)
        ),
    )


def _stream(
    config: LearningRateSensitivityConfig,
    problem: PcaProblem,
    rule: str,
    power: float,
    k: int,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """A part: the choice of η0, and the losses of all scales and repeats over one pass."""
    build = decaying_rule(rule, problem.rows.shape[1], k, power)
    tuned = choose_rate(config, rule, build, problem, config.learning_rates, devices=devices)
    streamed = run_passes(
        build,
        problem.rows,
        Runs(
            [seed for _ in config.scales for seed in config.seeds],
            [tuned["learning_rate"] * scale for scale in config.scales for _ in config.seeds],
        ),
        evaluate=problem.loss,
        evaluate_every=len(problem.rows) // config.evaluations,
        devices=devices,
    )
    shape = (-1, len(config.scales), config.repeats)
    return {
        **tuned,
        "rows_seen": streamed.rows_seen.tolist(),
        "seconds": float(streamed.seconds[-1]),
        "losses": np.reshape(streamed.figures, shape).tolist(),
    }
