"""Runs of agents by their folders: trained against a store, and evaluated afterwards."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.agents.config import AgentConfig
from rlreps.agents.loops import DEFAULT_ARENA, PUDDLE_WORLD
from rlreps.agents.measurement import make_measure, make_measurement
from rlreps.configs import SubspaceConfig
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError, require, require_positive
from rlreps.runs.folder import RunFolder, without_nan
from rlreps.runs.intervals import aggregate
from rlreps.successor.ground_truth import GroundTruth, load_ground_truth
from rlreps.successor.store import open_store
from rlreps.workflows.agent_runs import load_agent_config, load_agents, run_agents
from rlreps.workflows.evaluate import named_store

EPISODES = 100
"""Episodes of an evaluation, where no number is asked for."""


def train_agents(
    config: AgentConfig,
    out: Path,
    *,
    store: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """``run_agents``, measured against a store's ground truth.

    Args:
        config: The run.
        out: Its folder.
        store: A successor measure of the same arena; None is the released one, for ``sutton``.
        devices: Over which agents are shared out.
        progress: Whether to show progress bars.

    Returns:
        The summary.

    Raises:
        InputError: As ``run_agents``, or for a store that does not fit.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    truth, origin = None, None
    if store is not None:
        truth = ground_truth_of_store(config, store, progress=progress)
        path = store.absolute()
        origin = {"store": str(path), "store_from_run": os.path.relpath(path, out.absolute())}
    return run_agents(config, out, truth=truth, origin=origin, devices=devices, progress=progress)


def ground_truth_of_store(
    config: AgentConfig, store: Path, *, progress: bool = False
) -> GroundTruth:
    """A store's ground truth, of the arena that agents act in.

    Raises:
        InputError: If agents act in something else, or the store cannot be read.
        ArenaError: For an unknown or invalid arena.
    """
    name, _, arena = config.environment.partition(":")
    if name != PUDDLE_WORLD:
        raise InputError(f"expected no store for {config.environment}, got {store}")
    # Before its subspace is computed, which takes time and is kept beside it.
    measured = open_store(store).settings.get("environment")
    same = measured == arena_settings(load_arena(arena or DEFAULT_ARENA))
    require(same, f"a store of the arena of {config.environment}", measured)
    return load_ground_truth(store, SubspaceConfig(), progress=progress)


def ground_truth_of_run(
    folder: RunFolder, config: AgentConfig, store: Path | None = None
) -> GroundTruth | None:
    """The ground truth that a run is to be measured against; None is the released one, or none.

    Args:
        folder: The run.
        config: Its configuration.
        store: Another ground truth than its own.

    Raises:
        InputError: If there is no such store or it does not fit, or the run's own is gone or
            another one by now.
        ArenaError: For an unknown or invalid arena.
    """
    settings = folder.config.get("ground_truth")
    if store is not None or settings is None:
        return None if store is None else ground_truth_of_store(config, store)
    path = named_store(folder)
    if not path.exists() or dict(open_store(path).settings) != settings:
        raise InputError(
            f"expected the ground truth that {folder.path} was measured against in {path}, got "
            "none or another one; name one to measure against (--store)"
        )
    return ground_truth_of_store(config, path)


def evaluate_agents(
    run: Path, *, episodes: int = EPISODES, store: Path | None = None
) -> dict[str, Any]:
    """Fresh greedy episodes of a run's newest checkpoint, and all measures of its torsos.

    Args:
        run: The run's folder.
        episodes: Of each agent; their random keys are of no evaluation during training.
        store: Ground truth to measure against; None is the run's own.

    Returns:
        JSON values: ``returns``, each agent's mean, and ``return``, their ``aggregate``;
        ``measures``, for each its ``values`` by agent beside their ``aggregate``.

    Raises:
        InputError: If the run or the store cannot be read or do not fit each other.
    """
    require_positive("episodes", episodes)
    folder = RunFolder(run)
    config = dataclasses.replace(load_agent_config(folder), evaluation_episodes=episodes)
    truth = ground_truth_of_run(folder, config, store)
    loop, state, step = load_agents(folder, config)
    with contextlib.closing(loop):
        # Evaluations during training are of steps up to the last one.
        returns = np.asarray(loop.evaluate(state, config.steps + 1), np.float64).mean(axis=1)
        measure = make_measure(loop.agent.network, make_measurement(config, truth))
        measures = measure(state.memory.learner.params["torso"])
    auxiliary = config.auxiliary
    described: dict[str, Any] = without_nan(
        {
            "environment": config.environment,
            "auxiliary": auxiliary.objective.name if auxiliary.weight > 0.0 else None,
            "step": step,
            "episodes": episodes,
            "returns": returns.tolist(),
            "return": aggregate(returns),
            "measures": {name: _aggregated(values) for name, values in measures.items()},
        }
    )
    return described


def _aggregated(values: npt.ArrayLike) -> dict[str, Any]:
    """Values of all agents, and their aggregate where there is one of all."""
    numbers = np.asarray(values, np.float64)
    found = aggregate(numbers) if np.isfinite(numbers).all() else {}
    return {"values": numbers.tolist(), **found}
