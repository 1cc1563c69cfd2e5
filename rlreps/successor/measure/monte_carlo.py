"""Monte-Carlo estimation of the successor measure, row by row.

Ψ(s, X) = Σ_{t=0}^{h-1} γᵗ P(S_t ∈ X | S_0 = s) for start cells s and cells X (Blier et al. 2021; Le
Lan et al. 2023, App. C.3), estimated from rollouts that start uniformly inside their cell. Each row
is the mean of two independent halves of its rollouts. The difference of the halves shows the error
of the row.

Given cumulants, functions of a state, the columns are their discounted sums instead of visits.

Every random number is keyed by (seed, cell, rollout block, step). Visits are counted in whole
numbers, which add up without error in any order; cumulants are added in one order. The compiled
kernel always works on a tile of fixed shape. The same seed therefore gives the same bits for any
selection of rows, in any order, on any number of devices, with or without an interruption.
"""

import collections
import concurrent.futures
import contextlib
import math
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlreps.errors import require
from rlreps.numerics import PRNG, usable_cores
from rlreps.successor.measure.chains import MarkovChain
from rlreps.successor.measure.rows import (
    RowEstimates,
    RowEstimator,
    checked_cells,
    combine_halves,
)
from rlreps.successor.measure.settings import ROLLOUTS_PER_BLOCK, RolloutSettings

CELLS = "cells"
"""Name of the mesh axis over which a tile's start cells are distributed."""


def _visit_weights(settings: RolloutSettings, rollouts: int) -> tuple[np.ndarray, float]:
    """Return the discounts γᵗ as integer multiples [h] (uint32) of a unit, and the unit.

    The unit is the smallest power of two for which the sum over all visits of all rollouts fits 32
    bits. Float32 sums would repeat the same rounding error millions of times: the row of a cell
    that is never left would miss its sum by 3e-4. Here the cumulative sums of the discounts are
    rounded and then differenced, so that errors of successive steps cancel and row sums keep all
    digits.
    """
    sums = np.cumsum(settings.discounts)
    exponent = math.floor(math.log2((2**32 - rollouts) / (rollouts * sums[-1])))
    units = np.rint(sums * 2.0**exponent)
    return np.diff(units, prepend=0.0).astype(np.uint32), 2.0**-exponent


Cumulant = Callable[[Any], Array]
"""State → numbers [t] (float32), whose discounted sums take the place of visits of cells."""


def rollout_kernel(
    chain: MarkovChain[Any, Any],
    settings: RolloutSettings,
    rollouts: int,
    mesh: Mesh,
    cumulants: Cumulant | None = None,
) -> Callable[[Array, Array], Array]:
    """Return a jitted function (start cells [c], block []) → discounted visits [c, cells].

    The visits are summed over the block's rollouts. With cumulants, it returns their discounted
    sums [c, t] instead. Cells are distributed over the mesh's one axis, so c must be a multiple of
    its size.
    """
    if cumulants is None:
        weights, unit = _visit_weights(settings, rollouts)
    else:
        weights, unit = settings.discounts.astype(np.float32), 1.0
    columns = _num_columns(chain, cumulants)
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
            if cumulants is not None:
                values = jax.vmap(cumulants, in_axes=-1)(state)
                return visits + weight * values.reshape(num_starts, rollouts, columns).sum(axis=1)
            # The visits of cells that do not exist are lost, which ``row_blocks`` refuses.
            entered = visits.at[start_of_lane, batched_cell(state)]
            return entered.add(weight, mode="drop", wrap_negative_indices=False)

        def step(carry: tuple[Any, Any, Array], inputs: tuple[Array, Array]) -> tuple[Any, None]:
            state, draws, visits = carry
            time, weight = inputs
            if settings.count_start:
                visits = deposit(visits, state, weight)
            state = batched_advance(state, draws)
            if not settings.count_start:
                visits = deposit(visits, state, weight)
            # Draw one step ahead and carry the draws. Within one step, XLA would compute each
            # random number again for every use, and a rollout would take twice as long.
            return (state, draw(time + 1), visits), None

        start_of_lane = jnp.repeat(jnp.arange(num_starts), rollouts)
        rollout_of_lane = jnp.tile(jnp.arange(rollouts, dtype=jnp.uint32), num_starts)
        step_words = jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(key, 1)))(keys)
        words = (step_words[start_of_lane, 0], step_words[start_of_lane, 1])
        state = jax.tree.map(_lanes, jax.vmap(start)(keys, cells))
        visits = jnp.zeros((num_starts, columns), weights.dtype)
        times = jnp.arange(settings.horizon, dtype=jnp.uint32)
        carry = (state, draw(times[0]), visits)
        (_, _, visits), _ = lax.scan(step, carry, (times, jnp.asarray(weights)))
        return visits.astype(jnp.float32) * unit

    # Devices share nothing, so there is no replication to check.
    spread = jax.shard_map(
        kernel,
        mesh=mesh,
        in_specs=(PartitionSpec(CELLS), PartitionSpec()),
        out_specs=PartitionSpec(CELLS),
        check_vma=False,
    )
    return jax.jit(spread)


def _num_columns(chain: MarkovChain[Any, Any], cumulants: Cumulant | None) -> int:
    """Return the number of cells, or of cumulants."""
    state = jax.eval_shape(chain.start, jax.random.key(0, impl=PRNG), jnp.int32(0))
    if cumulants is None:
        cell = jax.eval_shape(chain.cell, state)
        fits = cell.shape == () and jnp.issubdtype(cell.dtype, jnp.integer)
        require(fits, "a cell as an integer []", f"{cell.dtype} {list(cell.shape)}")
        return chain.num_cells
    shape = jax.eval_shape(cumulants, state).shape
    require(len(shape) == 1, "cumulants [t] of a state", f"shape {shape}")
    return int(shape[0])


def _lanes(leaf: Array) -> Array:
    """Reshape [c, ..., rollouts] to [..., c · rollouts], the layout of every step."""
    num_starts, *components, rollouts = leaf.shape
    lanes: Array = jnp.moveaxis(leaf, 0, -2).reshape(*components, num_starts * rollouts)
    return lanes


_ROUNDING = 1e-6
"""Share of a row's visits that rounding may lose, besides that of sums of blocks."""

_CELLS_PER_TILE = {"cpu": 32, "gpu": 512, "tpu": 512}


class RowSampler(RowEstimator):
    """Estimates rows of a successor measure; compiled once, for any rows in any order."""

    def __init__(
        self,
        chain: MarkovChain[Any, Any],
        settings: RolloutSettings,
        *,
        devices: Sequence[jax.Device] | None = None,
        cumulants: Cumulant | None = None,
    ) -> None:
        """Prepare the kernels.

        Args:
            chain: The Markov chain.
            settings: The discounted sum and the number of rollouts.
            devices: Devices to use, which do not change the bits; None is every device of this
                process.
            cumulants: Numbers [t] (float32) of a state, whose discounted sums are the columns;
                None counts visits of the chain's cells.

        Raises:
            InputError: If a cell is not one integer, or cumulants are not [t].
        """
        self._row_sum = settings.row_sum if cumulants is None else None
        self.num_starts, self._columns = chain.num_cells, _num_columns(chain, cumulants)
        self._rollouts = settings.rollouts
        # Rollouts in each block of a half: full blocks, then the remainder.
        self._sizes = [
            [min(ROLLOUTS_PER_BLOCK, half - done) for done in range(0, half, ROLLOUTS_PER_BLOCK)]
            for half in (self._rollouts - self._rollouts // 2, self._rollouts // 2)
        ]
        mesh = Mesh(np.asarray(jax.local_devices() if devices is None else devices), (CELLS,))
        self._kernels = {
            size: rollout_kernel(chain, settings, size, mesh, cumulants)
            for size in {*self._sizes[0], *self._sizes[1]}
        }
        self._spread = NamedSharding(mesh, PartitionSpec(CELLS))
        self._everywhere = NamedSharding(mesh, PartitionSpec())
        platform = mesh.devices.flat[0].platform
        self._cells_per_tile = mesh.size * _CELLS_PER_TILE.get(platform, _CELLS_PER_TILE["cpu"])
        # On the CPU, a tile occupies one core for each device of the mesh; as many tiles run at a
        # time as the cores allow. On accelerators a second tile hides the copy to the host.
        self._workers = max(1, usable_cores() // mesh.size) if platform == "cpu" else 2

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """Yield the rows of each block of start cells in order, working ahead on all cores.

        Closing the generator, or an error or interrupt inside it, stops that work.

        Raises:
            InputError: If visits are lost, since the chain leaves its cells.
        """
        checked = (checked_cells(block, self.num_starts) for block in blocks)
        cells = np.concatenate([np.empty(0, np.int32), *checked])
        with contextlib.closing(self._tiles(cells)) as tiles:
            tile = np.empty((2, 0, self._columns), np.float32)
            for block in blocks:
                estimates = np.empty((2, len(block), self._columns), np.float32)
                filled = 0
                while filled < len(block):
                    if tile.shape[1] == 0:
                        tile = next(tiles)
                    count = min(tile.shape[1], len(block) - filled)
                    estimates[:, filled : filled + count] = tile[:, :count]
                    tile = tile[:, count:]
                    filled += count
                if self._row_sum is not None and len(block):
                    sums = estimates[0].sum(axis=1, dtype=np.float64)
                    lost = 1.0 - float(sums.min()) / self._row_sum
                    place = f"cells in [0, {self._columns}) of all states"
                    # Every sum of float32 may round the same way.
                    rounding = _ROUNDING + len(self._sizes[0]) * 2.0**-24
                    require(lost < rounding, place, f"others for {lost:.2g} of a row's visits")
                yield RowEstimates(*estimates)

    def _tiles(self, cells: np.ndarray) -> Generator[np.ndarray, None, None]:
        """Yield the estimates [2, c, cells] of successive tiles, computed ahead of the consumer."""
        size = self._cells_per_tile
        stopped = threading.Event()
        pending: collections.deque[concurrent.futures.Future[np.ndarray]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            try:
                for first in range(0, len(cells), size):
                    pending.append(pool.submit(self._tile, cells[first : first + size], stopped))
                    if len(pending) > 2 * self._workers:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                stopped.set()
                for tile in pending:
                    tile.cancel()

    def _tile(self, cells: np.ndarray, stopped: threading.Event) -> np.ndarray:
        """Return the rows of c cells and their half differences, [2, c, cells].

        The cells, at most a tile, are padded to a whole tile for the kernels only.
        """
        padded = jax.device_put(np.resize(cells, self._cells_per_tile), self._spread)
        first, second = (self._sum_of_half(half, padded, stopped)[: len(cells)] for half in (0, 1))
        return np.stack(combine_halves(first, second, self._rollouts))

    def _sum_of_half(self, half: int, cells: jax.Array, stopped: threading.Event) -> np.ndarray:
        """Sum discounted visits [c, cells] over the rollouts of one half."""
        visits = np.zeros((len(cells), self._columns), np.float32)
        for index, size in enumerate(self._sizes[half]):
            if stopped.is_set():
                raise concurrent.futures.CancelledError
            number = np.int32(half * len(self._sizes[0]) + index)
            block = jax.device_put(number, self._everywhere)
            # The option decides how keys turn into bits; a user's own setting must not change them.
            with jax.threefry_partitionable(True):
                # Wait for each block: otherwise all blocks of the tile would be queued and could
                # not stop.
                visits += jax.device_get(self._kernels[size](cells, block))
        return visits
