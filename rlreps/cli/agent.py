"""The commands below ``rlreps agent``: agents trained, evaluated and drawn."""

import os
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from rlreps.agents import AgentConfig, AuxiliaryConfig, FeatureConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES, TASKS
from rlreps.agents.config import TORSOS
from rlreps.cli import training
from rlreps.cli.options import Choice, print_json
from rlreps.cumulants import Cumulants
from rlreps.encoders import Encoder
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.losses import Objective

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
    from rlreps.training.devices import devices_for_small_runs
    from rlreps.workflows import agents
    from rlreps.workflows.agent_report import print_agents

    devices = devices_for_small_runs()
    summary = agents.train_agents(config, out, store=store, devices=devices)
    print_agents(summary, config.seed)


def evaluate_agents(
    run_folder: Positional[Path],
    episodes: int = 100,
    store: Path | None = None,
    env: str | None = None,
) -> None:
    """Play new greedy episodes of a run's agents, and print all measures of their torsos as JSON.

    Args:
        run_folder: Folder of the run.
        episodes: Episodes of each agent.
        store: Ground truth to measure against (PuddleWorld); by default that of the run.
        env: The environment of the run. It is required if its name includes a module (MODULE:ID,
            dm_env:MODULE:FUNCTION): only modules named on this command line are imported.
    """
    from rlreps.workflows import agents

    found = agents.evaluate_agents(run_folder, episodes=episodes, store=store, environment=env)
    print_json(found)


def render_agents(
    run_folder: Positional[Path],
    out: Path | None = None,
    seed_index: int = 0,
    store: Path | None = None,
    env: str | None = None,
) -> None:
    """Draw an episode of one agent, its policy and components if it has any, and all curves.

    Args:
        run_folder: Folder of the run.
        out: Folder of the pictures; by default figures in that of the run.
        seed_index: Index of the agent, from 0.
        store: Ground truth of the components (PuddleWorld); by default that of the run.
        env: As for ``evaluate``.
    """
    # Environments draw into memory. Without a screen, SDL would complain on standard error.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

    from rlreps.workflows import agent_pictures

    options: dict[str, Any] = {"store": store, "environment": env}
    for path in agent_pictures.render_agents(run_folder, out, seed_index=seed_index, **options):
        print(f"wrote {path}")
