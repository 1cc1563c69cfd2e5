"""A pass over stored rows: many runs of one rule at once, each with its own order of the rows.

Every row is seen exactly once, and runs may also differ in their learning rates.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.numerics import PRNG, compile_once
from rlreps.streaming import StreamingRule, scan_updates
from rlreps.typing import DoubleArray

MakeRule = Callable[[Array], StreamingRule]
"""Initial learning rate, [] → rule."""

Combine = Callable[[StreamingRule, Any, Array], Any]
"""(rule, workers' states, weights [workers]) → combined state."""


def draw_orders(seeds: Sequence[int], count: int) -> npt.NDArray[np.int32]:
    """Draw each run's order of ``count`` rows, [runs, count]; it depends on the seed only."""
    orders = {seed: np.random.default_rng((seed, 0)).permutation(count) for seed in seeds}
    return np.stack([orders[seed] for seed in seeds]).astype(np.int32)


class PassResult(NamedTuple):
    """Measures of a rule's runs over time.

    Attributes:
        rows_seen: Rows that each worker had seen at each point, the start included, [points].
        seconds: Time spent so far in the updates of all runs, without compilation, [points].
        workers: Measure of each worker's model just before the combination, [points, runs,
            workers].
        figures: Measure of the combined model, [points, runs].
        components: The combined model's components at the end, [runs, features, k].
    """

    rows_seen: npt.NDArray[np.int64]
    seconds: DoubleArray
    workers: DoubleArray
    figures: DoubleArray
    components: npt.NDArray[np.float32]


def run_passes(
    make_rule: MakeRule,
    rows: npt.NDArray[np.float32],
    seeds: Sequence[int],
    learning_rates: Sequence[float],
    *,
    evaluate: Callable[[npt.NDArray[np.float32]], float],
    evaluate_every: int,
    rows_per_update: int = 1,
    workers: int = 1,
    combine: Combine = lambda rule, states, weights: rule.combine(states, weights),
) -> PassResult:
    """Run a rule once over permuted rows.

    Several workers simulate distributed learning: between evaluations each learns from its own
    share of the rows, and at each evaluation their models are combined with equal weights. Rows
    that do not fill a worker's last interval are left out.

    Args:
        make_rule: Learning rate, which may be traced → rule.
        rows: Centred observations, [n, features].
        seeds: Seeds of start and row order, [runs], in [0, 2**32); runs may share one.
        learning_rates: Initial learning rates, [runs].
        evaluate: Measures a model's components, on the host.
        evaluate_every: Number of rows of each worker between evaluations, at most all of its rows;
            rounded down to whole updates.
        rows_per_update: Rows of each update; single rows go through ``update_each``.
        workers: Number of workers of each run.
        combine: Combines the workers' models; the rule's own ``combine`` by default.
    """
    per_worker = len(rows) // workers
    interval = evaluate_every - evaluate_every % rows_per_update
    weights = jnp.ones(workers)

    @jax.jit
    def begin(seeds: Array, rates: Array) -> Any:
        def start(seed: Array, rate: Array) -> Any:
            return make_rule(rate).init(jax.random.key(seed, impl=PRNG))

        return map_runs(start, seeds, rates)

    def step(states: Any, rows: Array, orders: Array, rates: Array) -> Any:
        def advance(state: Any, order: Array, rate: Array) -> tuple[Any, Any]:
            rule = make_rule(rate)
            if workers == 1:
                state = scan_updates(rule, state, rows[order[0]], rows_per_update)
                return jax.tree.map(lambda leaf: leaf[None], state), state
            learned = map_runs(
                lambda own: scan_updates(rule, state, own, rows_per_update), rows[order]
            )
            return learned, combine(rule, learned, weights)

        return map_runs(advance, states, orders, rates)

    @jax.jit
    def observe(learned: Any, states: Any, rates: Array) -> Any:
        def components(learned: Any, state: Any, rate: Array) -> tuple[Array, Array]:
            rule = make_rule(rate)
            return map_runs(rule.components, learned), rule.components(state)

        return map_runs(components, learned, states, rates)

    orders = draw_orders(seeds, len(rows))[:, : workers * per_worker].reshape(
        -1, workers, per_worker
    )
    rates, stored = jnp.asarray(learning_rates, jnp.float32), jnp.asarray(rows)
    states = begin(jnp.asarray(np.asarray(seeds, np.uint32)), rates)
    learned = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], workers, axis=1), states)
    compiled: Any = None
    seconds, own, combined = [0.0], [], []
    for first in [None, *range(0, per_worker - interval + 1, interval)]:
        if first is not None:
            chosen = jax.device_put(orders[..., first : first + interval])
            arguments = (states, stored, chosen, rates)
            compiled = compiled or compile_once(step, *arguments, donate_argnums=0)
            jax.block_until_ready(arguments)
            began = time.perf_counter()
            learned, states = jax.block_until_ready(compiled(*arguments))
            seconds.append(seconds[-1] + time.perf_counter() - began)
        before, components = jax.device_get(observe(learned, states, rates))
        combined.append([evaluate(one) for one in components])
        alone = [[figure] for figure in combined[-1]]
        own.append([[evaluate(one) for one in run] for run in before] if workers > 1 else alone)
    seen = interval * np.arange(len(seconds), dtype=np.int64)
    return PassResult(seen, np.asarray(seconds), np.asarray(own), np.asarray(combined), components)


def map_runs(function: Callable[..., Any], *arguments: Any) -> Any:
    """Map a function over a leading axis: in parallel on accelerators, in turn on a CPU.

    A CPU's caches hold the model of one run, but not the models of thirty runs.
    """

    def in_turn(*arguments: Any) -> Any:
        return jax.lax.map(lambda one: function(*one), arguments)

    return jax.lax.platform_dependent(*arguments, cpu=in_turn, default=jax.vmap(function))
