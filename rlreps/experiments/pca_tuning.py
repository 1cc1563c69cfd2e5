"""The initial learning rate of a streaming rule, chosen on a part of the rows."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from rlreps.errors import InputError
from rlreps.experiments.pca_problem import PcaProblem
from rlreps.streaming.passes import MakeRule, Runs, stream_passes
from rlreps.subspace.moments import second_moments
from rlreps.validation import require


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
    make_rule: MakeRule,
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
        make_rule: The rule, for a learning rate.
        problem: The rows.
        learning_rates: What to try, all from the same start and in the same order.
        seed: Of the choice of rows and of the runs.
        fraction: Share of the rows, in (0, 1].
        rows_per_update: Rows of each update.
        devices: As for ``stream_passes``.

    Returns:
        The losses and the best rate, the smallest one of equals.

    Raises:
        InputError: If nothing is to be tried, the part has no whole update, or all runs diverge.
    """
    require(len(learning_rates) >= 1, "at least one learning rate", learning_rates)
    require(0.0 < fraction <= 1.0, "fraction in (0, 1]", fraction)
    count = int(len(problem.rows) * fraction)
    chosen = np.random.default_rng(seed).permutation(len(problem.rows))[:count]
    part = problem.rows[np.sort(chosen)]
    on_part = problem._replace(rows=part, moments=second_moments(part))
    streamed = stream_passes(
        make_rule,
        part,
        Runs([seed] * len(learning_rates), learning_rates),
        evaluate=on_part.loss,
        evaluate_every=count,
        rows_per_update=rows_per_update,
        devices=devices,
    )
    losses = streamed.figures[-1]
    if not np.isfinite(losses).any():
        raise InputError(
            f"expected one of the learning rates {list(learning_rates)} not to diverge on "
            f"{problem.name}, got NaN for all"
        )
    best = float(learning_rates[int(np.nanargmin(losses))])
    return Tuning(tuple(learning_rates), tuple(losses.tolist()), best)
