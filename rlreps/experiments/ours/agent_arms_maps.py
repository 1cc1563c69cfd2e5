"""Maps of what an arm's first agent has learned about PuddleWorld."""

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from rlreps.agents.trainer import puddle_world_of
from rlreps.envs import PuddleWorld
from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison, FloatArray, in_path
from rlreps.experiments.results import write_results
from rlreps.plotting import plot_policy_and_value, plot_torso_components
from rlreps.plotting.maps import ACTIONS
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import interquartile_mean
from rlreps.successor.grids import Grid
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.agents import TrainedAgent, load_agents, map_of_values, torso_components


class Maps(NamedTuple):
    """What the first agent of an arm has learned.

    Attributes:
        label: The arm.
        values: Q at the centres of a grid's cells, [bins², actions]; NaN inside walls.
        components: Left singular vectors of the torso's centred features at the ground truth's
            states, [n, k]; None without a ground truth.
    """

    label: str
    values: FloatArray
    components: FloatArray | None


def best_arm(runs: Sequence[ArmRuns]) -> ArmRuns:
    """The arm of the greatest interquartile mean of the mean return over training."""
    return max(runs, key=lambda run: float(interquartile_mean(run.mean_returns)))


def shown_arms(comparison: Comparison) -> list[ArmRuns]:
    """The first arm, and the best of the others."""
    return [comparison.baseline, best_arm(comparison.others)]


def read_maps(run: ArmRuns, truth: GroundTruth | None, components: int) -> Maps:
    """Maps of an arm's first agent, from its last checkpoint.

    Args:
        run: The arm.
        truth: Whose states the torso is looked at.
        components: Principal components, at most.
    """
    world = puddle_world_of(run.config)
    assert world is not None
    loop, state, _ = load_agents(run.folder, run.config)
    with contextlib.closing(loop):
        params = jax.tree.map(lambda leaf: leaf[0], state.memory.learner.params)
        agent = TrainedAgent(loop, run.config, 0, params)
        values = np.asarray(map_of_values(agent, world), np.float64)
        if truth is None:
            return Maps(run.label, values, None)
        learned = np.asarray(torso_components(agent, truth), np.float64)
    return Maps(run.label, values, learned[:, :components])


def write_maps(
    folder: RunFolder,
    runs: Sequence[ArmRuns],
    truth: GroundTruth | None,
    components: int,
) -> list[Maps]:
    """Writes the maps of each arm's first agent, with the numbers behind them.

    ``policy_<arm>`` and, with a ground truth, ``components_<arm>``.
    """
    world = puddle_world_of(runs[0].config)
    assert world is not None
    every = [read_maps(run, truth, components) for run in runs]
    for maps in every:
        _write_policy(folder, world, maps)
        if truth is not None:
            _write_components(folder, world, maps, np.asarray(truth.principal.basis, np.float64))
    return every


def _write_policy(folder: RunFolder, world: PuddleWorld, maps: Maps) -> None:
    centres = np.asarray(Grid(math.isqrt(len(maps.values))).centres())
    rows = [
        {"arm": maps.label, "x": x, "y": y, **dict(zip(ACTIONS, values, strict=True))}
        for (x, y), values in zip(centres, maps.values, strict=True)
    ]
    figure = plot_policy_and_value(
        world, maps.values, value_label="estimated discounted return, max Q"
    )
    write_results(folder, f"policy_{in_path(maps.label)}", rows, figure)


def _write_components(folder: RunFolder, world: PuddleWorld, maps: Maps, basis: FloatArray) -> None:
    assert maps.components is not None
    learned = maps.components
    measure = basis[:, : learned.shape[1]]
    rows = [
        {
            "cell": cell,
            **{f"torso_{index + 1}": value for index, value in enumerate(torso)},
            **{f"successor_measure_{index + 1}": value for index, value in enumerate(true)},
        }
        for cell, (torso, true) in enumerate(zip(learned, measure, strict=True))
    ]
    figure = plot_torso_components(world, learned, measure)
    write_results(folder, f"components_{in_path(maps.label)}", rows, figure)


def map_figures(folder: RunFolder, every: Sequence[Maps]) -> list[tuple[Path, str]]:
    """Files of the maps with their captions."""
    policies = [
        (
            folder.figures / f"policy_{in_path(maps.label)}.png",
            f"{maps.label}, the first agent: value of its greedy action and that action.",
        )
        for maps in every
    ]
    components = [
        (
            folder.figures / f"components_{in_path(maps.label)}.png",
            f"{maps.label}, the first agent: principal components of its torso's centred "
            "features, below those of the successor measure of the same number.",
        )
        for maps in every
        if maps.components is not None
    ]
    return policies + components
