"""The experiment on agents in PuddleWorld: every arm in a folder of its own, then the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.config import as_json
from rlreps.experiments.ours.agent_arms import RUNS, Arm, run_arms
from rlreps.experiments.ours.agent_puddle_world.config import AgentPuddleWorldConfig
from rlreps.experiments.ours.agent_puddle_world.report import write_puddle_world_report
from rlreps.runs.folder import RunFolder, complete_run

KIND = "agent-puddle-world"


def run_agent_puddle_world(
    config: AgentPuddleWorldConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: ``runs`` with a folder an arm, ``results``, ``figures``, ``report.html``
            and ``summary.json``.
        devices: Over which the agents of an arm are shared out; None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``comparisons``, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds something else.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a loss became NaN or infinite.
    """

    def compute(folder: RunFolder) -> dict[str, Any]:
        comparison = run_arms(
            folder.path / RUNS,
            [Arm(label=label, config=agents) for label, agents in config.arms().items()],
            environment=config.title,
            threshold=config.threshold,
            devices=devices,
            progress=progress,
        )
        return write_puddle_world_report(config, folder, comparison)

    return complete_run(out, kind=KIND, config=as_json(config), compute=compute)
