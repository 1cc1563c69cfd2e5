"""One contender's curve for one k: how it is measured, and what is kept of it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.experiments.amid_warmuth_2020.online_pca.config import Contender, OnlinePcaConfig
from rlreps.experiments.amid_warmuth_2020.pca_losses import excess_percent
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_tuning import (
    RatesDivergedError,
    choose_rate,
    decaying_rule,
    rate_to_run,
)
from rlreps.streaming import RULES, Runs, run_passes
from rlreps.streaming.passes import MakeRule

DoubleArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class ExcessCurve:
    """A contender's repeats for one k.

    Attributes:
        contender: The rule.
        k: Components.
        learning_rate: The η0 that was chosen; None for a rule without one.
        all_rates_diverged: Whether every η0 that was tried diverged; the least was taken then.
        rows_seen: Rows that a run had seen at each point, the start included, [points].
        seconds: Time in updates until then, [repeats, points].
        losses: Mean of ‖x − Px‖² over all rows, NaN once diverged, [repeats, points].
        excess: Percent over the exact loss, diverged runs with that of no components, as losses.
        components: The first repeat's, [features, k], where they are to be shown.
    """

    contender: Contender
    k: int
    learning_rate: float | None
    all_rates_diverged: bool
    rows_seen: npt.NDArray[np.int64]
    seconds: DoubleArray
    losses: DoubleArray
    excess: DoubleArray
    components: DoubleArray | None

    @classmethod
    def from_part(
        cls, contender: Contender, k: int, part: Mapping[str, Any], problem: PcaProblem
    ) -> "ExcessCurve":
        """The curve of a part that ``measure`` made."""
        losses = np.asarray(part["losses"], np.float64)
        shown = part.get("components")
        return cls(
            contender,
            k,
            part["learning_rate"] if math.isfinite(part["learning_rate"]) else None,
            bool(part["all_rates_diverged"]),
            np.asarray(part["rows_seen"], np.int64),
            np.asarray(part["seconds"], np.float64),
            losses,
            excess_percent(losses, problem, k),
            None if shown is None else np.asarray(shown, np.float64),
        )

    @property
    def label(self) -> str:
        """The rule's name in figures, with the rows of an update where they are several."""
        title, rows = RULES[self.contender.rule].title, self.contender.rows_per_update
        return title if rows == 1 else f"{title} ({rows:,})"

    @property
    def diverged(self) -> int:
        """Repeats that ended with numbers that are not finite."""
        return int(np.count_nonzero(~np.isfinite(self.losses[:, -1])))

    @property
    def seconds_per_row(self) -> float:
        """Median over repeats."""
        return float(np.median(self.seconds[:, -1]) / self.rows_seen[-1])

    def after_pass(self, figures: DoubleArray, passes: int) -> DoubleArray:
        """Each repeat's loss or excess when it had seen the rows once, [repeats]."""
        once: DoubleArray = figures[:, (len(self.rows_seen) - 1) // passes]
        return once


def measure(
    config: OnlinePcaConfig,
    contender: Contender,
    k: int,
    problem: PcaProblem,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    """Chooses η0 and streams every repeat, one after another: each has the device to itself.

    Args:
        config: The experiment.
        contender: The rule.
        k: Components.
        problem: The rows.
        devices: Over which the choice of η0 is shared out; repeats run on the first one.

    Returns:
        The part of the run's results, as JSON values.
    """
    build = decaying_rule(contender.rule, problem.rows.shape[1], k, contender.power)
    tuned = _choose_rate(config, contender, problem, build, devices)
    runs = [
        run_passes(
            build,
            problem.rows,
            Runs([seed], [rate_to_run(tuned)]),
            evaluate=problem.loss,
            evaluate_every=interval(config, contender, len(problem.rows)),
            rows_per_update=contender.rows_per_update,
            passes=config.passes,
            devices=None if devices is None else devices[:1],
        )
        for seed in config.seeds
    ]
    part = {
        **tuned,
        "rows_seen": runs[0].rows_seen.tolist(),
        "seconds": [run.seconds.tolist() for run in runs],
        "losses": [run.figures[:, 0].tolist() for run in runs],
    }
    if contender.shown and k == config.shown_components:
        part["components"] = runs[0].components[0].tolist()
    return part


def interval(config: OnlinePcaConfig, contender: Contender, count: int) -> int:
    """Rows between evaluations of a contender, whole updates, of ``count`` rows in all."""
    updates = count // contender.rows_per_update
    return contender.rows_per_update * math.ceil(updates / config.evaluations)


def _choose_rate(
    config: OnlinePcaConfig,
    contender: Contender,
    problem: PcaProblem,
    build: MakeRule,
    devices: Sequence[jax.Device] | None,
) -> dict[str, Any]:
    rates = contender.learning_rates
    try:
        tuned = choose_rate(
            config,
            contender.rule,
            build,
            problem,
            rates,
            rows_per_update=contender.rows_per_update,
            devices=devices,
        )
    except RatesDivergedError:
        # Of rates that all diverge, the least: what becomes of it is part of the result.
        lost = [None] * len(rates)
        return {"learning_rate": min(rates), "tuning_losses": lost, "all_rates_diverged": True}
    return {**tuned, "all_rates_diverged": False}
