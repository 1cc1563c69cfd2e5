"""The experiment on pre-trained torsos: the successor measure, encoders, then every arm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.configs import as_json
from rlreps.experiments.agent_arms import RUNS, Arm, run_arms
from rlreps.experiments.agent_runs import StartingTorsos
from rlreps.experiments.complete_run import complete_run
from rlreps.experiments.ground_truths import OwnGroundTruth, own_ground_truth
from rlreps.experiments.representation_transfer.config import (
    FINE_TUNED,
    FROZEN,
    RepresentationTransferConfig,
)
from rlreps.experiments.representation_transfer.report import write_transfer_report
from rlreps.experiments.representation_transfer.whitening import whitened
from rlreps.experiments.store_training import describe_matrix, run_training
from rlreps.experiments.trained_runs import load_encoder
from rlreps.run_folder import RunFolder
from rlreps.successor.store import open_store

KIND = "representation-transfer"
PRETRAINING = "pretraining"


def run_representation_transfer(
    config: RepresentationTransferConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: ``successor`` with the successor measure, ``pretraining`` with the
            encoders, ``runs`` with a folder an arm, ``results``, ``figures``, ``report.html`` and
            ``summary.json``.
        devices: Over which encoders, and the agents of an arm, are shared out; None is JAX's
            default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``pretraining``, ``comparisons``, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds something else.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a loss became NaN or infinite.
    """

    def compute(folder: RunFolder) -> dict[str, Any]:
        ground = own_ground_truth(
            config.successor, folder, config.pretraining.num_features, progress=progress
        )
        trained = run_training(
            config.pretraining,
            ground.path,
            folder.path / PRETRAINING,
            truth=ground.truth,
            devices=devices,
            progress=progress,
        )
        start = _starting_torsos(folder, ground)
        comparison = run_arms(
            folder.path / RUNS,
            [
                Arm(label=label, config=agents, start=start if label in PRETRAINED else None)
                for label, agents in config.arms().items()
            ],
            environment="PuddleWorld",
            threshold=config.threshold,
            truth=ground.truth,
            devices=devices,
            progress=progress,
        )
        return write_transfer_report(config, folder, ground.truth, trained, comparison)

    return complete_run(out, kind=KIND, config=as_json(config), compute=compute)


PRETRAINED = (FINE_TUNED, FROZEN)
"""Arms whose torsos start from the encoders."""


def _starting_torsos(folder: RunFolder, ground: OwnGroundTruth) -> StartingTorsos:
    """The encoders as torsos with white features, one for each agent."""
    trained = load_encoder(RunFolder(folder.path / PRETRAINING), ground.truth)
    matrix = describe_matrix(open_store(ground.path))["checksum"]
    origin = f"whitened encoders of the successor measure {matrix}, after {trained.step} updates"
    return StartingTorsos(whitened(trained.params, trained.features()), origin)
