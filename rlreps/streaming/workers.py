"""Several workers on one model: each learns from its own rows, then their models are combined."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.config import configurable
from rlreps.errors import require
from rlreps.streaming.passes import Evaluate, MakeRule, Runs, follow_orders, map_runs, scan_updates
from rlreps.streaming.rules.base import WrappedRule
from rlreps.streaming.rules.combining import online_em_average
from rlreps.streaming.rules.orthonormal import orthonormalize


@configurable
@dataclasses.dataclass(frozen=True)
class MeanThenQR(WrappedRule):
    """A rule on orthonormal vectors whose models combine by the QR factor Q of their mean.

    The baseline of Amid & Warmuth 2020, who know no systematic way to combine orthonormal matrices.
    ``projection_average`` and the mean of second moments, which the rules of rlreps use, are
    extensions. The energies of incremental PCA are lost and set to one, as in the authors' code.
    """

    def combine(self, states: Any, weights: Array) -> Any:
        combined = self.rule.combine(states, weights)
        if hasattr(combined, "energies"):
            combined = combined._replace(energies=jnp.ones_like(combined.energies))
        return combined._replace(rows=orthonormalize(online_em_average(states.rows, weights)))


class WorkerResult(NamedTuple):
    """Measures over time of runs of several workers; the first point is the start.

    Attributes:
        rows_seen: Rows that each worker had seen at each point, [points].
        seconds: Time in the updates and combinations of all workers and runs so far, [points].
        workers: Each worker's measure just before the combination, [points, runs, workers].
        combined: The combined model's measure, [points, runs].
        components: The combined model's components at the end, [runs, features, k].
    """

    rows_seen: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    workers: npt.NDArray[np.float64]
    combined: npt.NDArray[np.float64]
    components: npt.NDArray[np.float32]


def run_workers(
    make_rule: MakeRule,
    rows: npt.NDArray[np.float32],
    runs: Runs,
    *,
    workers: int,
    combine_every: int,
    evaluate: Evaluate,
    rows_per_update: int = 1,
) -> WorkerResult:
    """Run a rule with simulated workers, each on its share of the permuted rows.

    Every run has M ``workers``. Between combinations each learns from ``combine_every`` rows, in
    whole updates. Rows that do not fill a worker's last interval are left out. All workers have
    equal weights. Other arguments are those of ``run_passes``.

    Raises:
        InputError: For an interval between combinations that a worker's rows do not fill, or that
            is not a whole number of updates.
    """
    each = len(rows) // workers
    require(
        1 <= combine_every <= each and combine_every % rows_per_update == 0,
        f"combine_every in [1, {each}], the rows of a worker, and a multiple of rows_per_update "
        f"({rows_per_update})",
        combine_every,
    )

    def broadcast(state: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *leaf.shape)), state)

    def start(key: Array, rate: Array) -> Any:
        state = make_rule(rate).init(key)
        return broadcast(state), state

    def advance(state: Any, rows: Array, order: Array, rate: Array) -> Any:
        _, combined = state
        rule = make_rule(rate)
        before = map_runs(
            lambda state, rows: scan_updates(rule, state, rows, rows_per_update),
            broadcast(combined),
            rows[order],
        )
        return before, rule.combine(before, jnp.ones(workers))

    def observe(state: Any, rate: Array) -> Any:
        before, combined = state
        rule = make_rule(rate)
        return map_runs(rule.components, before), rule.components(combined)

    def measure(observed: Any) -> tuple[list[list[float]], list[float]]:
        before, combined = observed
        return [[evaluate(one) for one in run] for run in before], [*map(evaluate, combined)]

    seen, seconds, figures, (_, components) = follow_orders(
        runs,
        rows,
        runs.orders(len(rows))[:, : workers * each].reshape(-1, workers, each),
        interval=combine_every,
        start=start,
        advance=advance,
        observe=observe,
        measure=measure,
    )
    before, combined = zip(*figures, strict=True)
    return WorkerResult(seen, seconds, np.asarray(before), np.asarray(combined), components)
