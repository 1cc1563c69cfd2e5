"""A pass over stored rows: many runs of one rule at once, each with its own order of the rows.

Every row is seen in turn instead of being drawn, and runs may also differ in their learning rates.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import require
from rlreps.numerics import PRNG
from rlreps.streaming.rules.base import StreamingRule

MakeRule = Callable[[Array], StreamingRule]
"""Initial learning rate, [] → rule."""

Evaluate = Callable[[npt.NDArray[np.float32]], float]
"""Components [features, k] → figure."""


class Runs(NamedTuple):
    """Seeds and learning rates of runs.

    Attributes:
        seeds: Seeds of start and row order, [runs], in [0, 2**32); runs may share one.
        learning_rates: Initial learning rates, [runs].
    """

    seeds: Sequence[int]
    learning_rates: Sequence[float]

    def orders(self, count: int) -> npt.NDArray[np.int32]:
        """Draw each run's order of ``count`` rows, [runs, count], by its seed alone."""
        orders = {seed: np.random.default_rng((seed, 0)).permutation(count) for seed in self.seeds}
        return np.stack([orders[seed] for seed in self.seeds]).astype(np.int32)


class PassResult(NamedTuple):
    """Figures over time of a rule's runs.

    Attributes:
        rows_seen: Rows that each run had seen at each point, the start included, [points].
        seconds: Time spent so far in the updates of all runs, without compilation, [points].
        figures: Results of ``evaluate``, [points, runs].
        components: Components at the end, [runs, features, k].
    """

    rows_seen: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    figures: npt.NDArray[np.float64]
    components: npt.NDArray[np.float32]


def run_passes(
    make_rule: MakeRule,
    rows: npt.NDArray[np.float32],
    runs: Runs,
    *,
    evaluate: Evaluate,
    evaluate_every: int,
    rows_per_update: int = 1,
) -> PassResult:
    """Run a rule over permuted rows; rows that do not fill the last interval are left out.

    Args:
        make_rule: Learning rate, which may be traced → rule.
        rows: Centred observations, [n, features].
        runs: Seeds and learning rates.
        evaluate: Measures one run's components, on the host.
        evaluate_every: Rows between evaluations, at most n; rounded down to whole updates.
        rows_per_update: Rows of each update; single rows go through ``update_each``.

    Raises:
        InputError: If an interval has less rows than an update or more than there are.
    """
    interval = evaluate_every - evaluate_every % rows_per_update
    require(
        1 <= interval <= len(rows),
        f"evaluate_every in [{rows_per_update}, {len(rows)}], from an update's rows to all",
        evaluate_every,
    )
    seen, seconds, figures, components = follow_orders(
        runs,
        rows,
        runs.orders(len(rows)),
        interval=interval,
        start=lambda key, rate: make_rule(rate).init(key),
        advance=lambda state, rows, order, rate: scan_updates(
            make_rule(rate), state, rows[order], rows_per_update
        ),
        observe=lambda state, rate: make_rule(rate).components(state),
        measure=lambda components: [evaluate(one) for one in components],
    )
    return PassResult(seen, seconds, np.asarray(figures), components)


def scan_updates(rule: StreamingRule, state: Any, rows: Array, rows_per_update: int) -> Any:
    """Update on rows [n, features] in order, n a multiple of an update's rows."""
    if rows_per_update == 1:
        return rule.update_each(state, rows)
    batches = rows.reshape(-1, rows_per_update, rows.shape[1])
    return jax.lax.scan(lambda state, batch: (rule.update(state, batch), None), state, batches)[0]


def follow_orders(
    runs: Runs,
    rows: npt.NDArray[np.float32],
    orders: npt.NDArray[np.int32],
    *,
    interval: int,
    start: Callable[[Array, Array], Any],
    advance: Callable[[Any, Array, Array, Array], Any],
    observe: Callable[[Any, Array], Any],
    measure: Callable[[Any], Any],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], list[Any], Any]:
    """Advance all runs along their orders of the rows, and measure them at regular intervals.

    Args:
        runs: Seeds and learning rates.
        rows: [n, features].
        orders: Indices of rows, [runs, ..., length]. Rows that do not fill the last interval are
            left out.
        interval: Rows between measurements, along the last axis of the orders.
        start: (key, learning rate) → one run's state.
        advance: (state, rows, order [..., interval], learning rate) → state.
        observe: (state, learning rate) → what ``measure`` needs of one run.
        measure: Observations of all runs, with a leading run axis, on the host → figures.

    Returns:
        Rows seen, seconds in the updates without compilation, and figures, each at every point, the
        start included; and the observations at the last point.
    """

    @jax.jit
    def begin(seeds: Array, rates: Array) -> Any:
        return map_runs(
            lambda seed, rate: start(jax.random.key(seed, impl=PRNG), rate), seeds, rates
        )

    @functools.partial(jax.jit, donate_argnums=0)
    def step(states: Any, rows: Array, orders: Array, rates: Array) -> Any:
        return map_runs(
            lambda state, order, rate: advance(state, rows, order, rate), states, orders, rates
        )

    see = jax.jit(functools.partial(map_runs, observe))
    rates, stored = jnp.asarray(runs.learning_rates, jnp.float32), jnp.asarray(rows)
    states = begin(jnp.asarray(np.asarray(runs.seeds, np.uint32)), rates)
    compiled: Any = None
    observed = jax.tree.map(np.asarray, see(states, rates))
    seen, seconds, figures = [0], [0.0], [measure(observed)]
    for first in range(0, orders.shape[-1] - interval + 1, interval):
        chosen = jnp.asarray(orders[..., first : first + interval])
        if compiled is None:
            compiled = step.lower(states, stored, chosen, rates).compile()
        jax.block_until_ready((states, stored, chosen, rates))
        began = time.perf_counter()
        states = jax.block_until_ready(compiled(states, stored, chosen, rates))
        seconds.append(seconds[-1] + time.perf_counter() - began)
        observed = jax.tree.map(np.asarray, see(states, rates))
        seen.append(seen[-1] + interval)
        figures.append(measure(observed))
    return np.asarray(seen, np.int64), np.asarray(seconds), figures, observed


def map_runs(function: Callable[..., Any], *arguments: Any) -> Any:
    """Map a function over a leading axis: side by side on accelerators, in turn on a CPU.

    A CPU's caches hold the model of one run but not of thirty.
    """

    def in_turn(*arguments: Any) -> Any:
        return jax.lax.map(lambda one: function(*one), arguments)

    return jax.lax.platform_dependent(*arguments, cpu=in_turn, default=jax.vmap(function))
