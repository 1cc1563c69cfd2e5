"""The compiled inner loop of Monte-Carlo rollouts: discounted visit counts of a tile of cells.

Every random number is keyed by (seed, cell, rollout block, step), and visits are counted in whole
numbers, which add up without error and in any order.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from rlreps.errors import require, require_positive
from rlreps.numerics import PRNG
from rlreps.successor.markov_chain import MarkovChain

CELLS = "cells"
"""Name of the mesh axis over which a tile's start cells are spread."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """What the discounted sum is and how many rollouts estimate it.

    Attributes:
        rollouts: Rollouts from each start cell, at least 2: one for each of two halves.
        horizon: Terms of the sum, h.
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ) or with the first
            successor (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw, in [0, 2³²).

    Raises:
        InputError: If a value is outside its range.
    """

    rollouts: int
    horizon: int
    discount: float
    count_start: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.rollouts >= 2, "rollouts >= 2, one for each half", self.rollouts)
        require_positive("horizon", self.horizon)
        require(0.0 < self.discount < 1.0, "discount strictly between 0 and 1", self.discount)
        require(0 <= self.seed < 2**32, "seed in [0, 2**32)", self.seed)


def _visit_weights(settings: RolloutSettings, rollouts: int) -> tuple[np.ndarray, float]:
    """The discounts γᵗ as whole numbers [h] (uint32) of a unit, and that unit, a power of two.

    The unit is the smallest whose sum over all visits of all rollouts fits 32 bits. Float32 sums
    would round each of millions of additions, alike for equal weights: a start cell that is never
    left would miss its row sum by 3e-4. What is rounded here instead is the running sum of the
    discounts, so that the errors of neighbouring steps cancel and the row sum keeps all its digits.
    """
    discounts = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)
    sums = np.cumsum(discounts)
    exponent = math.floor(math.log2((2**32 - rollouts) / (rollouts * sums[-1])))
    units = np.rint(sums * 2.0**exponent)
    return np.diff(units, prepend=0.0).astype(np.uint32), 2.0**-exponent


def rollout_kernel(
    chain: MarkovChain[Any, Any], settings: RolloutSettings, rollouts: int, mesh: Mesh
) -> Callable[[Array, Array], Array]:
    """A jitted (start cells [c], block []) → discounted visits [c, cells] summed over rollouts.

    Cells are spread over the mesh's one axis, so c must be a multiple of its size. Each device
    works on its own share alone: the bits do not depend on the number of devices.
    """
    weights, unit = _visit_weights(settings, rollouts)
    batched_cell = jax.vmap(chain.cell, in_axes=-1)
    batched_draw = jax.vmap(chain.draw, in_axes=(0, 0, None), out_axes=-1)
    batched_advance = jax.vmap(chain.advance, in_axes=-1, out_axes=-1)

    def kernel(cells: Array, block: Array) -> Array:
        num_starts = cells.shape[0]
        base = jax.random.key(settings.seed, impl=PRNG)
        keys = jax.vmap(lambda cell: jax.random.fold_in(jax.random.fold_in(base, cell), block))(
            cells
        )

        def start(key: Array, cell: Array) -> Any:
            rollout_keys = jax.random.split(jax.random.fold_in(key, 0), rollouts)
            return jax.vmap(chain.start, in_axes=(0, None), out_axes=-1)(rollout_keys, cell)

        def draw(time: Array) -> Any:
            return batched_draw(words, rollout_of_lane, time)

        def deposit(visits: Array, state: Any, weight: Array) -> Array:
            return visits.at[start_of_lane, batched_cell(state)].add(weight)

        def step(carry: tuple[Any, Any, Array], inputs: tuple[Array, Array]) -> tuple[Any, None]:
            state, draws, visits = carry
            time, weight = inputs
            if settings.count_start:
                visits = deposit(visits, state, weight)
            state = batched_advance(state, draws)
            if not settings.count_start:
                visits = deposit(visits, state, weight)
            # Drawn a step ahead and carried: within one step XLA would compute each random number
            # again for every use of it, which doubled the time of a whole rollout.
            return (state, draw(time + 1), visits), None

        start_of_lane = jnp.repeat(jnp.arange(num_starts), rollouts)
        rollout_of_lane = jnp.tile(jnp.arange(rollouts, dtype=jnp.uint32), num_starts)
        step_words = jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(key, 1)))(keys)
        words = (step_words[start_of_lane, 0], step_words[start_of_lane, 1])
        state = jax.tree.map(_lanes, jax.vmap(start)(keys, cells))
        visits = jnp.zeros((num_starts, chain.num_cells), jnp.uint32)
        times = jnp.arange(settings.horizon, dtype=jnp.uint32)
        carry = (state, draw(times[0]), visits)
        (_, _, visits), _ = lax.scan(step, carry, (times, jnp.asarray(weights)))
        return visits.astype(jnp.float32) * unit

    # Nothing is shared between devices, so there is nothing whose replication is to be checked.
    spread = jax.shard_map(
        kernel,
        mesh=mesh,
        in_specs=(PartitionSpec(CELLS), PartitionSpec()),
        out_specs=PartitionSpec(CELLS),
        check_vma=False,
    )
    return jax.jit(spread)


def _lanes(leaf: Array) -> Array:
    """[c, ..., rollouts] → [..., c · rollouts], the layout that every step works in."""
    num_starts, *components, rollouts = leaf.shape
    lanes: Array = jnp.moveaxis(leaf, 0, -2).reshape(*components, num_starts * rollouts)
    return lanes
