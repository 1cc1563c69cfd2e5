"""Many runs of one compiled program over the same stored rows, each in an order of its own."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import require, require_positive
from rlreps.numerics import PRNG
from rlreps.training.devices import largest_even_share, make_placement


class Runs(NamedTuple):
    """What distinguishes the runs.

    Attributes:
        seeds: Of the start and of the order of the rows, [runs], in [0, 2**32); runs may share one.
        learning_rates: Initial learning rates, [runs].
    """

    seeds: Sequence[int]
    learning_rates: Sequence[float]

    def check(self) -> None:
        """Raises an ``InputError`` unless there are runs, each with a seed and a rate."""
        require_positive("runs", len(self.seeds))
        require(
            len(self.seeds) == len(self.learning_rates),
            f"a learning rate for each of the {len(self.seeds)} seeds",
            self.learning_rates,
        )

    def orders(self, index: int, count: int) -> npt.NDArray[np.int32]:
        """Each run's order of ``count`` rows in its pass number ``index``, [runs, count]."""
        orders = {
            seed: np.random.default_rng((seed, index)).permutation(count) for seed in self.seeds
        }
        return np.stack([orders[seed] for seed in self.seeds]).astype(np.int32)


class Lanes:
    """The states of all runs, and the compiled functions that move and show them.

    Attributes:
        seconds: Time spent in moving them, without compilation, in total.
    """

    def __init__(
        self,
        runs: Runs,
        rows: npt.NDArray[np.float32],
        *,
        start: Callable[[Array, Array], Any],
        advance: Callable[[Any, Array, Array, Array], Any],
        observe: Callable[[Any, Array], Any],
        devices: Sequence[jax.Device] | None,
    ) -> None:
        """Starts all runs.

        Args:
            runs: Seeds and learning rates.
            rows: [n, features].
            start: (key, learning rate) → one run's state.
            advance: (state, rows, order, learning rate) → state, where ``order`` are the indices of
                the rows to go on with, in any shape that its caller gives it.
            observe: (state, learning rate) → what is to be seen of one run.
            devices: Over which runs are shared out evenly; None is JAX's default device.
        """
        shared = None if devices is None else largest_even_share(devices, len(runs.seeds))
        self._placement = make_placement(shared, len(runs.seeds))
        rates = jnp.asarray(runs.learning_rates, jnp.float32)
        begin = jax.jit(functools.partial(over_lanes, lambda seed, rate: start(_key(seed), rate)))
        states = begin(jnp.asarray(runs.seeds, jnp.uint32), rates)
        self._states = self._placement.put_seeds(states)
        self._rates = self._placement.put_seeds(rates)
        self._rows = self._placement.put(jnp.asarray(rows))
        spread = self._placement.spread_seeds(
            lambda states, rows, orders, rates: over_lanes(
                lambda state, order, rate: advance(state, rows, order, rate), states, orders, rates
            ),
            own_sources=False,
        )
        self._advance = jax.jit(spread, donate_argnums=0)
        self._observe = jax.jit(functools.partial(over_lanes, observe))
        self._compiled: dict[tuple[int, ...], Any] = {}
        self.seconds = 0.0

    def advance(self, orders: npt.NDArray[np.int32]) -> None:
        """Moves every run on along its rows, indices [runs, ...]."""
        placed = self._placement.put_seeds(jnp.asarray(orders))
        arguments = (self._states, self._rows, placed, self._rates)
        if orders.shape not in self._compiled:
            self._compiled[orders.shape] = self._advance.lower(*arguments).compile()
        jax.block_until_ready(arguments)
        began = time.perf_counter()
        self._states = jax.block_until_ready(self._compiled[orders.shape](*arguments))
        self.seconds += time.perf_counter() - began

    def observe(self) -> Any:
        """What is to be seen of every run, with a leading run axis, on the host."""
        return jax.tree.map(np.asarray, self._observe(self._states, self._rates))


def over_lanes(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of one lane for all of them: side by side on accelerators, in turn on a CPU.

    A CPU's caches hold the model of one run and not of thirty.

    Args:
        function: What is done for one lane.
        arguments: Pytrees with a leading lane axis.
    """

    def in_turn(*arguments: Any) -> Any:
        return jax.lax.map(lambda one: function(*one), arguments)

    return jax.lax.platform_dependent(*arguments, cpu=in_turn, default=jax.vmap(function))


def _key(seed: Array) -> Array:
    return jax.random.key(seed, impl=PRNG)
