"""Maps of what an arm's first agent has learned about PuddleWorld."""

import contextlib
from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from rlreps.agents.loops import puddle_world_of
from rlreps.envs import PuddleWorld
from rlreps.experiments.agent_arms import ArmRuns, Comparison, FloatArray
from rlreps.experiments.agent_pictures import TrainedAgent, map_of_values, torso_components
from rlreps.experiments.agent_runs import load_agents
from rlreps.experiments.results import write_results
from rlreps.ground_truth import GroundTruth
from rlreps.plotting.policies import ACTIONS, plot_policy_and_value, plot_torso_components
from rlreps.run_folder import RunFolder
from rlreps.statistics import interquartile_mean
from rlreps.successor.grid import Grid


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


def best_arm(runs: list[ArmRuns]) -> ArmRuns:
    """The arm of the greatest interquartile mean of the mean return over training."""
    return max(runs, key=lambda run: float(interquartile_mean(run.mean_returns)))


def shown_arms(comparison: Comparison) -> list[ArmRuns]:
    """The first arm, and the best of the others."""
    return [comparison.baseline, best_arm(list(comparison.others))]


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


def write_policy(folder: RunFolder, name: str, world: PuddleWorld, maps: Maps) -> None:
    """Writes policy and values with the numbers behind them."""
    centres = np.asarray(Grid(round(len(maps.values) ** 0.5)).centres())
    rows = [
        {"arm": maps.label, "x": x, "y": y, **dict(zip(ACTIONS, values, strict=True))}
        for (x, y), values in zip(centres, maps.values, strict=True)
    ]
    figure = plot_policy_and_value(
        world, maps.values, value_label="estimated discounted return, max Q"
    )
    write_results(folder, name, rows, figure)


def write_components(
    folder: RunFolder,
    name: str,
    world: PuddleWorld,
    maps: Maps,
    truth: npt.NDArray[np.floating],
) -> None:
    """Writes a torso's components beside those of the successor measure, [n, at least k]."""
    assert maps.components is not None
    learned = maps.components
    measure = np.asarray(truth, np.float64)[:, : learned.shape[1]]
    rows = [
        {
            "cell": cell,
            **{f"torso_{index + 1}": value for index, value in enumerate(torso)},
            **{f"successor_measure_{index + 1}": value for index, value in enumerate(true)},
        }
        for cell, (torso, true) in enumerate(zip(learned, measure, strict=True))
    ]
    write_results(folder, name, rows, plot_torso_components(world, learned, measure))
