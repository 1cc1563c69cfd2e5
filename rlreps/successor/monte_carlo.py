"""Monte-Carlo estimation of the successor measure, row by row.

Ψ(s, X) = Σ_{t=0}^{h-1} γᵗ P(S_t ∈ X | S_0 = s) for start cells s and cells X (Blier et al. 2021;
Le Lan et al. 2023, App. C.3), estimated from rollouts that start uniformly inside their cell.

Every random number is keyed by (seed, cell, rollout block, step), and the compiled kernel always
works on a tile of fixed shape. The same seed therefore gives the same bits whichever rows are asked
for together, in whatever order, before or after an interruption.
"""

import collections
import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.configs import require, require_positive

State = TypeVar("State")
Draws = TypeVar("Draws")

ROLLOUTS_PER_BLOCK = 250
"""Rollouts that share a key: part of what a seed means, so changing it changes every matrix."""

_CELLS_PER_TILE = {"cpu": 32, "gpu": 512, "tpu": 512}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovChain(Generic[State, Draws]):
    """A Markov chain on states that fall into cells: an environment under a policy.

    Attributes:
        num_cells: Number of cells.
        start: (key, cell) → state drawn from the start distribution of that cell.
        draw: (key, count) → the randomness of one step of ``count`` chains; the chain axis of every
            leaf comes last, so that each component is contiguous in memory.
        advance: (state, draws) → next state, for one chain.
        cell: state → index [] (int32) of its cell.
    """

    num_cells: int
    start: Callable[[Array, Array], State]
    draw: Callable[[Array, int], Draws]
    advance: Callable[[State, Draws], State]
    cell: Callable[[State], Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """What the discounted sum is and how many rollouts estimate it.

    Attributes:
        rollouts: Rollouts from each start cell.
        horizon: Terms of the sum, h.
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ) or with the first
            successor (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw.
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


def environment_chain(
    environment: Any,
    *,
    num_cells: int,
    start: Callable[[Array, Array], State],
    cell: Callable[[State], Array],
    policy: Callable[[Array, State], Array] | None = None,
) -> MarkovChain[State, Any]:
    """An environment that meets the contract, under a policy, as a Markov chain on cells.

    Termination is not acted upon: the chain follows whatever ``step`` does in a terminal state.

    Args:
        environment: Anything with ``step(key, state, action) → TimeStep`` and ``num_actions``.
        num_cells: Number of cells.
        start: (key, cell) → start state.
        cell: state → cell index.
        policy: (key, state) → action; None is uniformly random.

    Returns:
        The chain.
    """

    def draw(key: Array, count: int) -> tuple[Array, Array]:
        step_key, policy_key = jax.random.split(key)
        if policy is None:
            return _key_data(step_key, count), _actions(policy_key, count, environment.num_actions)
        return _key_data(step_key, count), _key_data(policy_key, count)

    def advance(state: State, draws: tuple[Array, Array]) -> State:
        step_key, choice = draws
        action = choice if policy is None else policy(jax.random.wrap_key_data(choice), state)
        next_state: State = environment.step(
            jax.random.wrap_key_data(step_key), state, action
        ).state
        return next_state

    return MarkovChain(num_cells=num_cells, start=start, draw=draw, advance=advance, cell=cell)


def _key_data(key: Array, count: int) -> Array:
    """Raw key data [2, count] of as many independent keys."""
    return jnp.moveaxis(jax.random.key_data(jax.random.split(key, count)), 0, -1)


def _actions(key: Array, count: int, num_actions: int) -> Array:
    """Uniformly random actions [count] (int32)."""
    if num_actions & (num_actions - 1) == 0 and num_actions <= 256:
        # A power of two needs only the low bits of one random byte: the kernel's inner loop.
        bits = jax.random.bits(key, (count,), jnp.uint8)
        return (bits & jnp.uint8(num_actions - 1)).astype(jnp.int32)
    return jax.random.randint(key, (count,), 0, num_actions)


def _rollout_kernel(
    chain: MarkovChain[Any, Any], settings: RolloutSettings, rollouts: int
) -> Callable[[Array, Array], Array]:
    """A jitted (start cells [c], block []) → discounted visits [c, cells] summed over rollouts."""
    # Powers taken in float64: a running float32 product would drift over the horizon.
    weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)
    batched_cell = jax.vmap(chain.cell, in_axes=-1)
    batched_advance = jax.vmap(chain.advance, in_axes=-1, out_axes=-1)

    def kernel(cells: Array, block: Array) -> Array:
        num_starts = cells.shape[0]
        base = jax.random.key(settings.seed)
        keys = jax.vmap(lambda cell: jax.random.fold_in(jax.random.fold_in(base, cell), block))(
            cells
        )

        def lanes(leaf: Array) -> Array:
            """[c, ..., rollouts] → [..., c · rollouts], the layout that every step works in."""
            return jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], num_starts * rollouts)

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
            draws = jax.tree.map(lanes, jax.vmap(draw, in_axes=(0, None))(keys, time))
            state = batched_advance(state, draws)
            if not settings.count_start:
                visits = deposit(visits, state, weight)
            return (state, visits), None

        start_of_lane = jnp.repeat(jnp.arange(num_starts), rollouts)
        state = jax.tree.map(lanes, jax.vmap(start)(keys, cells))
        visits = jnp.zeros((num_starts, chain.num_cells), jnp.float32)
        times = jnp.arange(1, settings.horizon + 1)
        (_, visits), _ = lax.scan(step, (state, visits), (times, jnp.asarray(weights, jnp.float32)))
        return visits

    return jax.jit(kernel)


def _block_sizes(rollouts: int) -> list[int]:
    """Rollouts in each block: full blocks, then what is left."""
    full, rest = divmod(rollouts, ROLLOUTS_PER_BLOCK)
    return [ROLLOUTS_PER_BLOCK] * full + ([rest] if rest else [])


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
        self._workers = len(os.sched_getaffinity(0)) if platform == "cpu" else 2

    def rows(self, cells: Sequence[int]) -> np.ndarray:
        """Rows [len(cells), num_cells] (float32) of the matrix for the given start cells."""
        return next(self.row_blocks([cells]))

    def row_blocks(self, blocks: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
        """Yields the rows of each block of start cells in order, working ahead on all cores.

        Args:
            blocks: Start cells of each block, each in [0, num_cells).

        Yields:
            An array [len(block), num_cells] (float32) for each block.
        """
        cells = np.concatenate([np.asarray(block, np.int32) for block in blocks])
        require(
            bool(np.all((cells >= 0) & (cells < self._chain.num_cells))),
            f"start cells in [0, {self._chain.num_cells})",
            (int(cells.min()), int(cells.max())),
        )
        tiles = self._tiles(cells)
        rows = np.empty((0, self._chain.num_cells), np.float32)
        for block in blocks:
            while len(rows) < len(block):
                rows = np.concatenate([rows, next(tiles)])
            yield rows[: len(block)]
            rows = rows[len(block) :]

    def _tiles(self, cells: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the rows of successive tiles of cells, a few tiles ahead of the consumer."""
        size = self._cells_per_tile
        pending: collections.deque[concurrent.futures.Future[np.ndarray]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            try:
                for first in range(0, len(cells), size):
                    pending.append(pool.submit(self._tile, cells[first : first + size]))
                    if len(pending) > 2 * self._workers:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for tile in pending:
                    tile.cancel()

    def _tile(self, cells: np.ndarray) -> np.ndarray:
        """Rows of at most one tile of cells, padded to the tile's fixed shape."""
        padded = jnp.asarray(np.resize(cells, self._cells_per_tile))
        visits = jnp.zeros((self._cells_per_tile, self._chain.num_cells), jnp.float32)
        for block, size in enumerate(self._sizes):
            visits = visits + self._kernels[size](padded, jnp.int32(block))
        return np.asarray(visits)[: len(cells)] / np.float32(self._settings.rollouts)
