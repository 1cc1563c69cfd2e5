"""Streams of stored rows: many runs of one rule at once, each in an order of its own.

The counterpart of ``fitting`` where every row is seen in turn instead of being drawn, and where
runs may differ in their learning rates too. Runs that are too short to be worth a checkpoint: what
survives a kill is what the caller keeps of finished ones.
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

from rlreps.placement import largest_even_share, make_placement
from rlreps.streaming.base import StreamingRule
from rlreps.successor.markov_chain import PRNG
from rlreps.validation import require, require_positive

MakeRule = Callable[[Array], StreamingRule]
"""Initial learning rate, [] → rule."""

Evaluate = Callable[[npt.NDArray[np.float32]], float]
"""Components [features, k] → figure."""


class Runs(NamedTuple):
    """What distinguishes the runs.

    Attributes:
        seeds: Of the start and of the order of the rows, [runs], in [0, 2**32); runs may share one.
        learning_rates: Initial learning rates, [runs].
    """

    seeds: Sequence[int]
    learning_rates: Sequence[float]


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
    for name, value in (
        ("rows_per_update", rows_per_update), ("passes", passes), ("runs", len(runs.seeds))
    ):  # fmt: skip
        require_positive(name, value)
    require(
        len(runs.seeds) == len(runs.learning_rates),
        f"a learning rate for each of the {len(runs.seeds)} seeds",
        runs.learning_rates,
    )
    interval = evaluate_every - evaluate_every % rows_per_update
    require(
        1 <= interval <= len(rows),
        f"evaluate_every in [{rows_per_update}, {len(rows)}], from an update's rows to all",
        evaluate_every,
    )
    loop = _Loop(make_rule, rows, runs, rows_per_update, devices)
    intervals = len(rows) // interval
    seen, seconds, figures = [0], [0.0], [loop.measure(evaluate)]
    for index in range(passes):
        orders = _orders(runs.seeds, index, len(rows))
        for start in range(0, intervals * interval, interval):
            elapsed = loop.advance(orders[:, start : start + interval])
            seen.append(seen[-1] + interval)
            seconds.append(seconds[-1] + elapsed)
            figures.append(loop.measure(evaluate))
    return StreamedPasses(
        np.asarray(seen, np.int64), np.asarray(seconds), np.asarray(figures), loop.components()
    )


class _Loop:
    """The states of all runs, and the compiled interval that moves them on."""

    def __init__(
        self,
        make_rule: MakeRule,
        rows: npt.NDArray[np.float32],
        runs: Runs,
        rows_per_update: int,
        devices: Sequence[jax.Device] | None,
    ) -> None:
        shared = None if devices is None else largest_even_share(devices, len(runs.seeds))
        self._placement = make_placement(shared, len(runs.seeds))
        self._rates = self._placement.put_seeds(jnp.asarray(runs.learning_rates, jnp.float32))
        self._rows = self._placement.put(jnp.asarray(rows))

        def start(seed: Array, rate: Array) -> Any:
            return make_rule(rate).init(_key(seed))

        def advance(state: Any, rows: Array, order: Array, rate: Array) -> Any:
            rule = make_rule(rate)
            if rows_per_update == 1:
                return rule.update_each(state, rows[order])
            batches = order.reshape(-1, rows_per_update)
            step = lambda state, batch: (rule.update(state, rows[batch]), None)  # noqa: E731
            return jax.lax.scan(step, state, batches)[0]

        def components(state: Any, rate: Array) -> Array:
            return make_rule(rate).components(state)

        started = jax.jit(functools.partial(_over_runs, start))(
            jnp.asarray(runs.seeds, jnp.uint32), jnp.asarray(runs.learning_rates, jnp.float32)
        )
        self._states = self._placement.put_seeds(started)
        spread = self._placement.spread_seeds(
            lambda states, rows, orders, rates: _over_runs(
                lambda state, order, rate: advance(state, rows, order, rate), states, orders, rates
            ),
            own_sources=False,
        )
        self._advance = jax.jit(spread, donate_argnums=0)
        self._components = jax.jit(functools.partial(_over_runs, components))
        self._compiled: Any = None

    def advance(self, orders: npt.NDArray[np.int32]) -> float:
        """Moves every run on along its rows [runs, rows]; returns the seconds that took."""
        placed = self._placement.put_seeds(jnp.asarray(orders))
        arguments = (self._states, self._rows, placed, self._rates)
        if self._compiled is None:
            self._compiled = self._advance.lower(*arguments).compile()
        jax.block_until_ready(arguments)
        began = time.perf_counter()
        self._states = jax.block_until_ready(self._compiled(*arguments))
        return time.perf_counter() - began

    def components(self) -> npt.NDArray[np.float32]:
        """[runs, features, k]."""
        return np.asarray(self._components(self._states, self._rates))

    def measure(self, evaluate: Evaluate) -> list[float]:
        """One figure a run."""
        return [evaluate(components) for components in self.components()]


def _over_runs(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of one run for all of them: side by side on accelerators, in turn on a CPU.

    A CPU's caches hold the model of one run and not of thirty.
    """

    def in_turn(*arguments: Any) -> Any:
        return jax.lax.map(lambda one: function(*one), arguments)

    return jax.lax.platform_dependent(*arguments, cpu=in_turn, default=jax.vmap(function))


def _orders(seeds: Sequence[int], index: int, count: int) -> npt.NDArray[np.int32]:
    """Each run's order of the rows in its pass number ``index``, [runs, count]."""
    orders = {seed: np.random.default_rng((seed, index)).permutation(count) for seed in seeds}
    return np.stack([orders[seed] for seed in seeds]).astype(np.int32)


def _key(seed: Array) -> Array:
    return jax.random.key(seed, impl=PRNG)
