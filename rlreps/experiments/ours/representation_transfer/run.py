"""The experiment on pre-trained torsos: the successor measure, encoders, then every arm."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rlreps.agents import AgentConfig
from rlreps.agents.trainer import make_trainer
from rlreps.config import as_json
from rlreps.experiments.ours.agent_arms import RUNS, Arm, run_arms
from rlreps.experiments.ours.representation_transfer.config import (
    FINE_TUNED,
    FROZEN,
    RANDOM,
    RepresentationTransferConfig,
)
from rlreps.experiments.ours.representation_transfer.report import write_transfer_report
from rlreps.experiments.ours.representation_transfer.whitening import whitened
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.successor.store import open_store
from rlreps.workflows.agents import StartingTorsos
from rlreps.workflows.evaluate import load_encoder
from rlreps.workflows.ground_truths import OwnGroundTruth, own_ground_truth
from rlreps.workflows.train import describe_matrix, run_training

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
        known, random = _starting_torsos(folder, ground), _random_torsos(config.base, ground)
        starts = {FINE_TUNED: known, FROZEN: known, RANDOM: random}
        comparison = run_arms(
            folder.path / RUNS,
            [
                Arm(label=label, config=agents, start=starts.get(label))
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


def _starting_torsos(folder: RunFolder, ground: OwnGroundTruth) -> StartingTorsos:
    """The encoders as torsos with white features, one for each agent."""
    trained = load_encoder(RunFolder(folder.path / PRETRAINING), ground.truth)
    matrix = describe_matrix(open_store(ground.path))["checksum"]
    origin = f"whitened encoders of the successor measure {matrix}, after {trained.step} updates"
    return StartingTorsos(whitened(trained.params, trained.features()), origin)


def _random_torsos(agents: AgentConfig, ground: OwnGroundTruth) -> StartingTorsos:
    """The torsos that agents would have had, with white features as the encoders have."""
    with contextlib.closing(make_trainer(agents)) as loop:
        torsos = loop.init().memory.learner.params["torso"]
        encode = jax.jit(jax.vmap(loop.agent.network.features, in_axes=(0, None)))
        features = encode(torsos, ground.truth.coordinates)
    return StartingTorsos(whitened(torsos, features), "whitened fresh torsos")
