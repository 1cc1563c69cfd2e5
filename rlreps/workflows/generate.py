"""From a configuration to a stored successor measure of PuddleWorld."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlreps.configs import SuccessorConfig
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.runs.machine import peak_memory_mib
from rlreps.runs.processes import ALONE, Processes
from rlreps.runs.provenance import provenance
from rlreps.successor.chains import puddle_world_chain
from rlreps.successor.grids import Grid
from rlreps.successor.measure import RowEstimator
from rlreps.successor.monte_carlo import ROLLOUTS_PER_BLOCK, RolloutSettings, RowSampler
from rlreps.workflows.filling import MatrixPlan, fill_store

_FORMULAS = {True: "sum_{t>=0} discount^t", False: "sum_{t>=1} discount^(t-1)"}


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
        "method": config.method,
        "environment": arena_settings(environment),
        "policy": "uniformly random",
        "bins": config.bins,
        "cell_index": "row * bins + column, row from y",
        "start": "uniform inside the cell",
        **_METHOD_SETTINGS[config.method](config),
        "horizon": config.horizon,
        "discount": config.discount,
        "count_start": config.count_start,
        "formula": _FORMULAS[config.count_start],
        "row_sum": config.row_sum,
        "centring": "none",
        "seed": config.seed,
    }


def _monte_carlo_settings(config: SuccessorConfig) -> dict[str, Any]:
    return {
        "rollouts": config.rollouts,
        "rollouts_per_block": ROLLOUTS_PER_BLOCK,
        "halves": 2,
        "random_numbers": "threefry2x32-13 by (seed, cell, block, rollout, step)",
    }


def _transition_settings(config: SuccessorConfig) -> dict[str, Any]:
    return {"refinement": config.refinement, "points": config.points}


def _monte_carlo(config: SuccessorConfig, environment: PuddleWorld) -> RowEstimator:
    return RowSampler(puddle_world_chain(environment, Grid(config.bins)), rollout_settings(config))


def _transition(config: SuccessorConfig, environment: PuddleWorld) -> RowEstimator:
    # Deferred: what it needs of SciPy takes longer to import than all the rest.
    from rlreps.successor.transition.estimator import TransitionEstimator, TransitionSettings

    settings = TransitionSettings(
        discount=config.discount,
        horizon=config.horizon,
        count_start=config.count_start,
        refinement=config.refinement,
        points=config.points,
        seed=config.seed,
    )
    return TransitionEstimator(environment, Grid(config.bins), settings)


_METHOD_SETTINGS: dict[str, Callable[[SuccessorConfig], dict[str, Any]]] = {
    "monte_carlo": _monte_carlo_settings,
    "transition": _transition_settings,
}
_ESTIMATORS: dict[str, Callable[[SuccessorConfig, PuddleWorld], RowEstimator]] = {
    "monte_carlo": _monte_carlo,
    "transition": _transition,
}


def generate(
    config: SuccessorConfig,
    path: Path,
    *,
    repair: bool = False,
    processes: Processes = ALONE,
    progress: bool = True,
) -> dict[str, Any]:
    """Computes the missing row blocks of a store, creating it if need be.

    Args:
        config: What to compute.
        path: The store's folder.
        repair: Whether to compute damaged blocks again instead of refusing to go on.
        processes: Who takes part.
        progress: Whether to show a progress bar.

    Returns:
        The run's own figures as JSON values: ``path``, ``method``, ``computed_rows``, ``seconds``
        and ``peak_memory_mib`` of this call and process; for Monte Carlo also ``transitions`` of
        the whole matrix, ``computed_transitions`` and ``transitions_per_second`` (None if nothing
        was missing).

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If the path holds a store made under other settings or with damaged blocks, or
            anything else; or another run works in it.
        ProcessDiedError: If another process of this run died.
    """
    environment = load_arena(config.arena)
    plan = MatrixPlan(
        shape=(config.num_cells, config.num_cells),
        block_rows=min(config.block_rows, config.num_cells),
        settings=store_settings(config, environment),
        provenance={"arena": config.arena, **provenance()},
        sampled=config.method == "monte_carlo",
        make_estimator=lambda: _ESTIMATORS[config.method](config, environment),
    )
    rows, seconds = fill_store(plan, path, repair=repair, processes=processes, progress=progress)
    figures: dict[str, Any] = {
        "path": str(path),
        "method": config.method,
        "computed_rows": rows,
        "seconds": round(seconds, 3),
        "peak_memory_mib": peak_memory_mib(),
    }
    if config.method == "monte_carlo":
        computed = rows * config.rollouts * config.horizon
        figures |= {
            "transitions": config.transitions,
            "computed_transitions": computed,
            "transitions_per_second": round(computed / seconds) if computed else None,
        }
    return figures
