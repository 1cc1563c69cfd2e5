"""The initial learning rate of a streaming rule, chosen on a part of the rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rlreps.errors import InputError, require
from rlreps.experiments.amid_warmuth_2020.pca_config import RepeatedPcaConfig
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.streaming import RULES, PowerDecay, Runs, StreamingRule, run_passes
from rlreps.streaming.passes import MakeRule
from rlreps.subspace.centring import second_moments


class RatesDivergedError(InputError):
    """Every learning rate that was tried diverged."""


class Tuning(NamedTuple):
    """What was tried.

    Attributes:
        learning_rates: η0.
        losses: Mean of ‖x − Px‖² over the part after one pass over it; NaN where a run diverged.
        best: The learning rate of least loss.
    """

    learning_rates: tuple[float, ...]
    losses: tuple[float, ...]
    best: float


def tune_learning_rate(
    build: MakeRule,
    problem: PcaProblem,
    learning_rates: Sequence[float],
    *,
    seed: int,
    fraction: float = 0.1,
    rows_per_update: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Tuning:
    """Tries learning rates on a random part of the rows, one pass over it each.

    Amid & Warmuth 2020 choose η0 on a tenth of the data; a rate is judged, as in their code, by the
    loss on the part that the pass went over.

    Args:
        build: The rule, for a learning rate.
        problem: The rows.
        learning_rates: What to try, all from the same start and in the same order.
        seed: Of the choice of rows and of the runs.
        fraction: Share of the rows, in (0, 1].
        rows_per_update: Rows of each update.
        devices: As for ``run_passes``.

    Returns:
        The losses and the best rate, the first one of equals.

    Raises:
        InputError: If nothing is to be tried or the part has no whole update.
        RatesDivergedError: If all runs diverge.
    """
    require(len(learning_rates) >= 1, "at least one learning rate", learning_rates)
    require(0.0 < fraction <= 1.0, "fraction in (0, 1]", fraction)
    count = int(len(problem.rows) * fraction)
    require(
        count >= rows_per_update,
        f"a fraction of the {len(problem.rows)} rows with a whole update of {rows_per_update}",
        fraction,
    )
    chosen = np.random.default_rng(seed).permutation(len(problem.rows))[:count]
    part = problem.rows[np.sort(chosen)]
    on_part = problem._replace(rows=part, moments=second_moments(part))
    streamed = run_passes(
        build,
        part,
        Runs([seed] * len(learning_rates), learning_rates),
        evaluate=on_part.loss,
        evaluate_every=count,
        rows_per_update=rows_per_update,
        devices=devices,
    )
    losses = streamed.figures[-1]
    if not np.isfinite(losses).any():
        raise RatesDivergedError(
            f"expected one of the learning rates {list(learning_rates)} not to diverge on "
            f"{problem.name}, got NaN for all"
        )
    best = float(learning_rates[int(np.nanargmin(losses))])
    return Tuning(tuple(learning_rates), tuple(losses.tolist()), best)


def decaying_rule(rule: str, features: int, k: int, power: float) -> MakeRule:
    """Return the builder of a registered rule whose learning rate is η0 / t^power, for η0."""

    def build(initial: jax.Array) -> StreamingRule:
        return RULES[rule].at_rate(features, k, PowerDecay(initial, power))

    return build


def choose_rate(
    config: RepeatedPcaConfig,
    rule: str,
    build: MakeRule,
    problem: PcaProblem,
    learning_rates: Sequence[float],
    *,
    rows_per_update: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """``tune_learning_rate`` of a registered rule, as a part of a run holds it.

    Returns:
        ``learning_rate`` and ``tuning_losses``; None and none of a rule without a learning rate.
    """
    if not RULES[rule].needs_learning_rate:
        return {"learning_rate": None, "tuning_losses": []}
    tuning = tune_learning_rate(
        build,
        problem,
        learning_rates,
        seed=config.seed,
        fraction=config.tuning_fraction,
        rows_per_update=rows_per_update,
        devices=devices,
    )
    return {"learning_rate": tuning.best, "tuning_losses": list(tuning.losses)}


def rate_to_run(tuned: dict[str, Any]) -> float:
    """The chosen η0; any other for a rule without a learning rate, which does not look at it."""
    rate: float | None = tuned["learning_rate"]
    return 1.0 if rate is None else rate
