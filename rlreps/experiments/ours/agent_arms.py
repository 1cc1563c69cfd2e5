"""Arms of an experiment: agents that are trained alike but for one thing, and then compared."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.agents import AgentConfig
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import samples_to_reach
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.agents import StartingTorsos, history, run_agents

FloatArray = npt.NDArray[np.float64]

RUNS = "runs"
MEASURES = ("subspace_distance", "effective_rank", "dormant_share", "probe_error")
"""What torsos are measured on beside the return."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """Agents to train.

    Attributes:
        label: What figures and tables call them.
        config: The agents.
        start: Torsos to start from in place of fresh ones.
    """

    label: str
    config: AgentConfig
    start: StartingTorsos | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ArmRuns:
    """Agents that have been trained.

    Attributes:
        label: What figures and tables call them.
        config: The agents.
        folder: Their folder.
        steps: Environment steps of each agent at each evaluation, [p], from 0.
        returns: Mean return of each evaluation's episodes, [seeds, p].
        measures: Name → measure of the torsos at each evaluation, [seeds, p].
        seconds: Time of acting and learning of all agents together.
    """

    label: str
    config: AgentConfig
    folder: RunFolder
    steps: FloatArray
    returns: FloatArray
    measures: Mapping[str, FloatArray]
    seconds: float

    @cached_property
    def final_returns(self) -> FloatArray:
        """Returns of the last evaluation, [seeds]."""
        return self.returns[:, -1]

    @cached_property
    def mean_returns(self) -> FloatArray:
        """Mean over all evaluations after the first update, [seeds].

        The area under a learning curve, divided by its length. What fresh networks happen to do
        before they learn is left out: it depends on the scale of their features.
        """
        learned = self.steps > self.config.dqn.warmup
        means: FloatArray = self.returns[:, learned].mean(axis=1)
        return means

    def samples(self, threshold: float) -> FloatArray:
        """Environment steps to a return, [seeds]; infinite for an agent that never got there."""
        return samples_to_reach(self.steps, self.returns, threshold)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Arms that were run in one environment.

    Attributes:
        environment: Its name.
        threshold: Return whose samples are counted.
        runs: The arms; the others are compared with the first.
    """

    environment: str
    threshold: float
    runs: Sequence[ArmRuns]

    @property
    def threshold_text(self) -> str:
        """The threshold, in full."""
        return f"{self.threshold:,g}".replace("-", "\N{MINUS SIGN}")

    @property
    def baseline(self) -> ArmRuns:
        """The first arm."""
        return self.runs[0]

    @property
    def others(self) -> Sequence[ArmRuns]:
        """All arms but the first."""
        return self.runs[1:]


def in_path(name: str) -> str:
    """A name as part of a path, in plain letters."""
    return re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-")


def run_arms(
    home: Path,
    arms: Sequence[Arm],
    *,
    environment: str,
    threshold: float,
    truth: GroundTruth | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> Comparison:
    """Trains every arm in a folder of its own.

    An experiment that was interrupted goes on with the arm that it stopped in, and that with its
    newest checkpoint.

    Args:
        home: The folder of their folders, below the experiment's.
        arms: The arms, of different labels; the first is what the others are compared with.
        environment: Its name, for readers.
        threshold: Return whose samples are counted.
        truth: What torsos in PuddleWorld are measured against; see ``make_measurement``.
        devices: Over which the agents of an arm are shared out.
        progress: Whether to show progress bars.

    Raises:
        InputError: For an environment or a folder that does not fit.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    runs = []
    for arm in arms:
        out = home / in_path(arm.label)
        summary = run_agents(
            arm.config, out, truth=truth, start=arm.start, devices=devices, progress=progress
        )
        runs.append(_runs_of(arm, RunFolder(out), summary))
    return Comparison(environment=environment, threshold=threshold, runs=runs)


def _runs_of(arm: Arm, folder: RunFolder, summary: Mapping[str, Any]) -> ArmRuns:
    steps, returns = history(folder, "returns")
    measures = {name: history(folder, name)[1] for name in MEASURES}
    return ArmRuns(
        label=arm.label,
        config=arm.config,
        folder=folder,
        steps=steps,
        returns=returns,
        measures={
            name: values for name, values in measures.items() if np.isfinite(values[:, -1]).any()
        },
        seconds=float(summary["seconds"]),
    )
