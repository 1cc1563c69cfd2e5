"""From a configuration to a stored successor measure of PuddleWorld."""

import contextlib
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax import Array

from rlreps.configs import SuccessorConfig
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.errors import InputError
from rlreps.progress import progress_bar
from rlreps.provenance import provenance
from rlreps.successor.counter_random import standard_normal, threefry2x32
from rlreps.successor.grid import Grid
from rlreps.successor.markov_chain import MarkovChain, Words
from rlreps.successor.monte_carlo import ROLLOUTS_PER_BLOCK, RolloutSettings, RowSampler
from rlreps.successor.store import MatrixStore, create_or_resume, verify

_FORMULAS = {True: "sum_{t>=0} discount^t", False: "sum_{t>=1} discount^(t-1)"}


def puddle_world_chain(
    environment: PuddleWorld, grid: Grid
) -> MarkovChain[Array, tuple[Array, Array, Array]]:
    """PuddleWorld under the uniformly random policy, started uniformly inside a cell of a grid.

    ``environment_chain`` would do; this one spends a single block of random bits on a whole step.

    Args:
        environment: The dynamics.
        grid: The cells.

    Returns:
        The chain; its states are positions [2].
    """

    def draw(words: Words, rollout: Array, time: Array) -> tuple[Array, Array, Array]:
        first, second = threefry2x32(words, (rollout, time))
        # Normals use the high bits of each word, the action two of the low ones.
        action = (first & jnp.uint32(environment.num_actions - 1)).astype(jnp.int32)
        return standard_normal(first), standard_normal(second), action

    def advance(position: Array, draws: tuple[Array, Array, Array]) -> Array:
        noise_x, noise_y, action = draws
        return environment.move(position, action, jnp.stack([noise_x, noise_y]))

    return MarkovChain(
        num_cells=grid.num_cells, start=grid.sample, draw=draw, advance=advance, cell=grid.cell
    )


def rollout_settings(config: SuccessorConfig) -> RolloutSettings:
    """The discounted sum and the number of rollouts that a configuration asks for."""
    return RolloutSettings(
        rollouts=config.rollouts,
        horizon=config.horizon,
        discount=config.discount,
        count_start=config.count_start,
        seed=config.seed,
    )


def store_settings(config: SuccessorConfig, environment: PuddleWorld) -> dict[str, Any]:
    """Everything that decides a matrix, under the names and conventions of its store."""
    return {
        "quantity": "successor measure",
        "method": "monte_carlo",
        "environment": arena_settings(environment),
        "policy": "uniformly random",
        "bins": config.bins,
        "cell_index": "row * bins + column, row from y",
        "start": "uniform inside the cell",
        "rollouts": config.rollouts,
        "rollouts_per_block": ROLLOUTS_PER_BLOCK,
        "horizon": config.horizon,
        "discount": config.discount,
        "count_start": config.count_start,
        "formula": _FORMULAS[config.count_start],
        "row_sum": config.row_sum,
        "centring": "none",
        "seed": config.seed,
    }


def generate(config: SuccessorConfig, path: Path, *, progress: bool = True) -> dict[str, Any]:
    """Computes the missing row blocks of a store, creating it if need be.

    Args:
        config: What to compute.
        path: The store's folder.
        progress: Whether to show a progress bar.

    Returns:
        The run's own figures as JSON values: ``path``, ``transitions`` of the whole matrix,
        ``computed_transitions``, ``seconds`` and ``transitions_per_second`` of this call (the last
        None if nothing was missing).

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If the path holds a store made under other settings or with damaged blocks, or
            anything else.
    """
    environment = load_arena(config.arena)
    store = create_or_resume(
        path,
        shape=(config.num_cells, config.num_cells),
        block_rows=min(config.block_rows, config.num_cells),
        settings=store_settings(config, environment),
        provenance={"arena": config.arena, **provenance()},
    )
    _require_sound(store)
    missing = store.missing_blocks()
    start = time.perf_counter()
    _compute(config, environment, store, missing, progress)
    seconds = time.perf_counter() - start
    rows = sum(stop - first for first, stop in map(store.block_range, missing))
    computed = rows * config.rollouts * config.horizon
    return {
        "path": str(path),
        "transitions": config.transitions,
        "computed_transitions": computed,
        "seconds": round(seconds, 3),
        "transitions_per_second": round(computed / seconds) if computed else None,
    }


def _require_sound(store: MatrixStore) -> None:
    """Raises an ``InputError`` that names every damaged block among those already written."""
    report = verify(store)
    damaged = [*report.corrupt_blocks, *report.non_finite_blocks]
    if damaged:
        raise InputError(
            f"{store.path}: expected sound blocks to resume from, got "
            + "; ".join(str(problem) for problem in damaged)
        )


def _compute(
    config: SuccessorConfig,
    environment: PuddleWorld,
    store: MatrixStore,
    missing: list[int],
    progress: bool,
) -> None:
    if not missing:
        return
    chain = puddle_world_chain(environment, Grid(config.bins))
    sampler = RowSampler(chain, rollout_settings(config))
    blocks = [range(*store.block_range(index)) for index in missing]
    done = config.num_cells - sum(map(len, blocks))
    with (
        progress_bar(
            "successor measure", total=config.num_cells, done=done, unit="rows", show=progress
        ) as advance,
        contextlib.closing(sampler.row_blocks(blocks)) as row_blocks,
    ):
        for index, rows in zip(missing, row_blocks, strict=True):
            store.write_block(index, rows)
            advance(len(rows))
