"""The commands below ``rlreps agent``: agents trained, evaluated and drawn."""

from pathlib import Path
from typing import Any

from rlreps.agents import AgentConfig, AuxiliaryConfig, FeatureConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES, TASKS
from rlreps.agents.config import TORSOS
from rlreps.app import command_training as training
from rlreps.app.agent_pictures import render_agents
from rlreps.app.agent_report import print_agents
from rlreps.app.jobs import agents
from rlreps.app.jobs.agents import evaluate_agents
from rlreps.app.options import Choice
from rlreps.cumulants import Cumulants
from rlreps.encoders import Encoder
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.losses import Objective
from rlreps.training.devices import devices_for_small_runs

__all__ = ["evaluate_agents", "render_agents", "train_agents"]

CHOICES: dict[Any, Choice] = {
    Encoder: Choice("encoder", TORSOS),
    Objective: Choice("method", AUXILIARY_OBJECTIVES),
    Cumulants: Choice("auxiliary-tasks", TASKS),
    Observation: Choice("observation", OBSERVATIONS),
}
NAMES = {
    **training.NAMES,
    "AgentConfig.environment": "env",
    "AuxiliaryConfig.weight": "auxiliary_weight",
    "AuxiliaryConfig.relative": "relative_weight",
    "AuxiliaryConfig.head": "auxiliary_head",
    "Cells.bins": "cells_per_axis",
    "FeatureConfig.kind": "features",
    "FeatureConfig.basis": "feature_basis",
    "FeatureConfig.basis_size": "feature_basis_size",
    "FeatureConfig.num_components": "num_components",
}
NEEDS: dict[Any, str] = {AuxiliaryConfig: "--auxiliary-weight", FeatureConfig: "--features"}


def train_agents(
    out: Path,
    config: AgentConfig,
    store: Path | None = None,
) -> None:
    """Train agents, with an auxiliary task if it has a weight; the same command resumes.

    Args:
        out: Folder of the run.
        config: The run.
        store: A successor measure of the same arena against which torsos are measured
            (PuddleWorld); by default the released one, for the arena sutton.
    """
    devices = devices_for_small_runs()
    summary = agents.train_agents(config, out, store=store, devices=devices)
    print_agents(summary, config.seed)
