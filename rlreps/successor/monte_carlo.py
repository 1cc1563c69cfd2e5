"""Monte-Carlo estimation of the successor measure, row by row.

Ψ(s, X) = Σ_{t=0}^{h-1} γᵗ P(S_t ∈ X | S_0 = s) for start cells s and cells X (Blier et al. 2021;
Le Lan et al. 2023, App. C.3), estimated from rollouts that start uniformly inside their cell.

Every random number is keyed by (seed, cell, rollout block, step), and the compiled kernel always
works on a tile of fixed shape. Visits are counted in whole numbers, which add up without error and
in any order. The same seed therefore gives the same bits whichever rows are asked for together, in
whatever order, before or after an interruption.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import math
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.configs import require, require_positive
from rlreps.successor.markov_chain import PRNG, MarkovChain, environment_chain

__all__ = [
    "ROLLOUTS_PER_BLOCK",
    "MarkovChain",
    "RolloutSettings",
    "RowSampler",
    "environment_chain",
]

ROLLOUTS_PER_BLOCK = 250
"""Rollouts that share a key: part of what a seed means, so changing it changes every matrix."""

_CELLS_PER_TILE = {"cpu": 32, "gpu": 512, "tpu": 512}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """What the discounted sum is and how many rollouts estimate it.

    Attributes:
        rollouts: Rollouts from each start cell.
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
        require_positive("rollouts", self.rollouts)
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


def _rollout_kernel(
    chain: MarkovChain[Any, Any], settings: RolloutSettings, rollouts: int
) -> Callable[[Array, Array], Array]:
    """A jitted (start cells [c], block []) → discounted visits [c, cells] summed over rollouts."""
    weights, unit = _visit_weights(settings, rollouts)
    batched_cell = jax.vmap(chain.cell, in_axes=-1)
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

        def draw(key: Array, time: Array) -> Any:
            return chain.draw(jax.random.fold_in(key, time), rollouts)

        def deposit(visits: Array, state: Any, weight: Array) -> Array:
            return visits.at[start_of_lane, batched_cell(state)].add(weight)

        def step(carry: tuple[Any, Array], inputs: tuple[Array, Array]) -> tuple[Any, None]:
            state, visits = carry
            time, weight = inputs
            if settings.count_start:
                visits = deposit(visits, state, weight)
            draws = jax.tree.map(_lanes, jax.vmap(draw, in_axes=(0, None))(keys, time))
            state = batched_advance(state, draws)
            if not settings.count_start:
                visits = deposit(visits, state, weight)
            return (state, visits), None

        start_of_lane = jnp.repeat(jnp.arange(num_starts), rollouts)
        state = jax.tree.map(_lanes, jax.vmap(start)(keys, cells))
        visits = jnp.zeros((num_starts, chain.num_cells), jnp.uint32)
        times = jnp.arange(1, settings.horizon + 1, dtype=jnp.int32)
        (_, visits), _ = lax.scan(step, (state, visits), (times, jnp.asarray(weights)))
        return visits.astype(jnp.float32) * unit

    return jax.jit(kernel)


def _lanes(leaf: Array) -> Array:
    """[c, ..., rollouts] → [..., c · rollouts], the layout that every step works in."""
    num_starts, *components, rollouts = leaf.shape
    lanes: Array = jnp.moveaxis(leaf, 0, -2).reshape(*components, num_starts * rollouts)
    return lanes


def _usable_cores() -> int:
    """Cores this process may run on, or all where the system (macOS, Windows) cannot say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _block_sizes(rollouts: int) -> list[int]:
    """Rollouts in each block: full blocks, then what is left."""
    full, rest = divmod(rollouts, ROLLOUTS_PER_BLOCK)
    return [ROLLOUTS_PER_BLOCK] * full + ([rest] if rest else [])


_NO_CELLS = np.empty(0, np.int32)


class RowSampler:
    """Estimates rows of a successor measure; compiled once, for any rows in any order."""

    def __init__(self, chain: MarkovChain[Any, Any], settings: RolloutSettings) -> None:
        """Prepares the kernels.

        Args:
            chain: The Markov chain.
            settings: The discounted sum and the number of rollouts.
        """
        self._chain = chain
        self._settings = settings
        self._sizes = _block_sizes(settings.rollouts)
        self._kernels = {size: _rollout_kernel(chain, settings, size) for size in set(self._sizes)}
        platform = jax.default_backend()
        self._cells_per_tile = _CELLS_PER_TILE.get(platform, _CELLS_PER_TILE["cpu"])
        # One tile keeps one core busy; on an accelerator a second one hides the copy to the host.
        self._workers = _usable_cores() if platform == "cpu" else 2

    def rows(self, cells: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows [len(cells), num_cells] (float32) of the matrix for the given start cells.

        Raises:
            InputError: If a cell is not an integer in [0, num_cells).
        """
        with contextlib.closing(self.row_blocks([cells])) as blocks:
            return next(blocks)

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[np.ndarray, None, None]:
        """Yields the rows of each block of start cells in order, working ahead on all cores.

        Closing the generator, or an error or interrupt inside it, stops that work.

        Args:
            blocks: Start cells of each block, each in [0, num_cells).

        Yields:
            An array [len(block), num_cells] (float32) for each block.

        Raises:
            InputError: If a cell is not an integer in [0, num_cells).
        """
        cells = np.concatenate([_NO_CELLS, *(self._checked(block) for block in blocks)])
        with contextlib.closing(self._tiles(cells)) as tiles:
            tile = np.empty((0, self._chain.num_cells), np.float32)
            for block in blocks:
                rows = np.empty((len(block), self._chain.num_cells), np.float32)
                filled = 0
                while filled < len(rows):
                    if len(tile) == 0:
                        tile = next(tiles)
                    count = min(len(tile), len(rows) - filled)
                    rows[filled : filled + count] = tile[:count]
                    tile = tile[count:]
                    filled += count
                yield rows

    def _checked(self, block: Sequence[int] | np.ndarray) -> np.ndarray:
        """Start cells as int32."""
        cells = np.asarray(block)
        if cells.size == 0:
            return _NO_CELLS
        require(np.issubdtype(cells.dtype, np.integer), "integer start cells", cells.dtype.name)
        lowest, highest = int(cells.min()), int(cells.max())
        valid = lowest >= 0 and highest < self._chain.num_cells
        require(valid, f"start cells in [0, {self._chain.num_cells})", (lowest, highest))
        return cells.astype(np.int32)

    def _tiles(self, cells: np.ndarray) -> Generator[np.ndarray, None, None]:
        """Yields the rows of successive tiles of cells, a few tiles ahead of the consumer."""
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
        """Rows of at most one tile of cells, padded to the tile's fixed shape."""
        padded = jnp.asarray(np.resize(cells, self._cells_per_tile))
        visits = jnp.zeros((self._cells_per_tile, self._chain.num_cells), jnp.float32)
        for block, size in enumerate(self._sizes):
            if stopped.is_set():
                raise concurrent.futures.CancelledError
            # Waiting for each block keeps the rest of the tile from being queued behind it.
            # The option decides how keys turn into bits; a user's own setting must not.
            with jax.threefry_partitionable(True):
                rows = self._kernels[size](padded, jnp.int32(block))
            visits = jax.block_until_ready(visits + rows)
        return np.asarray(visits)[: len(cells)] / np.float32(self._settings.rollouts)
