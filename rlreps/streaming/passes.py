"""Streams of stored rows: many runs of one rule at once, each in an order of its own.

The counterpart of ``fitting`` where every row is seen in turn instead of being drawn, and where
runs may differ in their learning rates too. Runs that are too short to be worth a checkpoint: what
survives a kill is what the caller keeps of finished ones.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import require, require_positive
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.lanes import Lanes, Runs

__all__ = ["Evaluate", "MakeRule", "Runs", "StreamedPasses", "stream_passes", "updates_on"]

MakeRule = Callable[[Array], StreamingRule]
"""Initial learning rate, [] → rule."""

Evaluate = Callable[[npt.NDArray[np.float32]], float]
"""Components [features, k] → figure."""


class StreamedPasses(NamedTuple):
    """What runs left behind.

    Attributes:
        rows_seen: Rows that each run had seen at each point, the start included, [points].
        seconds: Time spent in the updates of all runs until then, without compilation, [points].
        figures: What was evaluated, [points, runs].
        components: At the end, [runs, features, k].
    """

    rows_seen: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    figures: npt.NDArray[np.float64]
    components: npt.NDArray[np.float32]


def stream_passes(
    make_rule: MakeRule,
    rows: npt.NDArray[np.float32],
    runs: Runs,
    *,
    evaluate: Evaluate,
    evaluate_every: int,
    rows_per_update: int = 1,
    passes: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> StreamedPasses:
    """Runs a rule over permuted rows, once or several times.

    Each pass has an order of its own, keyed by (seed, pass). Rows that do not fill the last
    interval between evaluations are left out of a pass.

    Args:
        make_rule: The rule, for a learning rate that may be traced.
        rows: Centred observations, [n, features].
        runs: Seeds and learning rates.
        evaluate: Measures one run's components, on the host.
        evaluate_every: Rows between evaluations, at most n; rounded down to whole updates.
        rows_per_update: Rows of each update; single rows go through ``update_each``.
        passes: Times that every row is seen.
        devices: Over which runs are shared out evenly; None is JAX's default device.

    Returns:
        Figures over time.

    Raises:
        InputError: For counts below 1, more rows an interval than there are, or runs whose seeds
            and learning rates are not as many.
    """
    runs.check()
    require_positive("rows_per_update", rows_per_update)
    require_positive("passes", passes)
    interval = evaluate_every - evaluate_every % rows_per_update
    require(
        1 <= interval <= len(rows),
        f"evaluate_every in [{rows_per_update}, {len(rows)}], from an update's rows to all",
        evaluate_every,
    )
    lanes = Lanes(
        runs,
        rows,
        start=lambda key, rate: make_rule(rate).init(key),
        advance=lambda state, rows, order, rate: updates_on(
            make_rule(rate), state, rows[order], rows_per_update
        ),
        observe=lambda state, rate: make_rule(rate).components(state),
        devices=devices,
    )
    components = lanes.observe()
    seen, seconds, figures = [0], [0.0], [[evaluate(one) for one in components]]
    for index in range(passes):
        orders = runs.orders(index, len(rows))
        for start in range(0, len(rows) - interval + 1, interval):
            lanes.advance(orders[:, start : start + interval])
            components = lanes.observe()
            seen.append(seen[-1] + interval)
            seconds.append(lanes.seconds)
            figures.append([evaluate(one) for one in components])
    return StreamedPasses(
        np.asarray(seen, np.int64), np.asarray(seconds), np.asarray(figures), components
    )


def updates_on(rule: StreamingRule, state: Any, rows: Array, rows_per_update: int) -> Any:
    """The state after updates on rows [n, features] in order, n a multiple of an update's rows."""
    if rows_per_update == 1:
        return rule.update_each(state, rows)
    batches = rows.reshape(-1, rows_per_update, rows.shape[1])
    return jax.lax.scan(lambda state, batch: (rule.update(state, batch), None), state, batches)[0]
