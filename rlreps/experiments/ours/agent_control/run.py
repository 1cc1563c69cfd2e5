"""The experiment on agents in classic control: every arm in a folder of its own, then the report.

Environments run on the host, so that there is nothing to share out over devices.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.agents.environments import describe
from rlreps.config import as_json
from rlreps.experiments.ours.agent_arms import RUNS, Arm, in_path, run_arms
from rlreps.experiments.ours.agent_control.config import AgentControlConfig
from rlreps.experiments.ours.agent_control.report import write_control_report
from rlreps.runs.folder import RunFolder, complete_run, finished_summary

KIND = "agent-control"


def run_agent_control(
    config: AgentControlConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: ``runs`` with a folder an environment and arm, ``results``, ``figures``,
            ``report.html`` and ``summary.json``.
        devices: Over which the agents of an arm are shared out, where they can be.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``comparisons``, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds something else, or an environment cannot be made.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    described = as_json(config)
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    # A package that the last environment lacks is better known before the first has been learned.
    for compared in config.environments:
        describe(compared.base.environment)

    def compute(folder: RunFolder) -> dict[str, Any]:
        comparisons = [
            run_arms(
                folder.path / RUNS / in_path(compared.base.environment),
                [Arm(label=label, config=agents) for label, agents in compared.arms().items()],
                environment=compared.base.environment,
                threshold=compared.threshold,
                devices=devices,
                progress=progress,
            )
            for compared in config.environments
        ]
        return write_control_report(config, folder, comparisons)

    return complete_run(out, kind=KIND, config=described, compute=compute)
