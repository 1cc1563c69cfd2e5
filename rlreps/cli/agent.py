"""The commands below ``rlreps agent``: agents trained, evaluated and drawn."""

import os
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from rlreps.agents import AgentConfig, AuxiliaryConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES, TASKS
from rlreps.agents.config import TORSOS
from rlreps.cli import training
from rlreps.cli.options import Choice, Switch, print_json
from rlreps.cumulants import Cumulants
from rlreps.encoders import Encoder
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.errors import printable
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
    "AuxiliaryConfig.remembered": "auxiliary_rows",
    "Cells.bins": "cells_per_axis",
}
NEEDS: dict[Any, str] = {AuxiliaryConfig: "--auxiliary-weight"}


def train_agents(
    out: Path,
    config: AgentConfig,
    store: Path | None = None,
    quiet: Switch = False,
) -> None:
    """Train agents, with an auxiliary task if it has a weight; the same command resumes.

    Args:
        out: Folder of the run.
        config: The run.
        store: A successor measure of the same arena to measure torsos against (PuddleWorld); by
            default the released one, for the arena sutton.
        quiet: Show no progress bar.
    """
    from rlreps.training.devices import devices_for_small_runs
    from rlreps.workflows import agents
    from rlreps.workflows.agent_report import print_agents

    devices = devices_for_small_runs()
    summary = agents.train_agents(config, out, store=store, devices=devices, progress=not quiet)
    print_agents(summary, config.seed)


def evaluate_agents(
    run_folder: Positional[Path],
    episodes: int = 100,
    best: Switch = False,
    store: Path | None = None,
    env: str | None = None,
) -> None:
    """Fresh greedy episodes of a run's agents, and every measure of their torsos, as JSON.

    Args:
        run_folder: Folder of the run.
        episodes: Episodes of each agent.
        best: Take each agent as it was at its best evaluation during training.
        store: Ground truth to measure against (PuddleWorld); by default that of the run.
        env: The environment of the run, to be named again where its name names a module (MODULE:ID,
            dm_env:MODULE:FUNCTION): a module is imported only if this command line names it.
    """
    from rlreps.workflows import agents

    options: dict[str, Any] = {"best": best, "store": store, "environment": env}
    print_json(agents.evaluate_agents(run_folder, episodes=episodes, **options))


def render_agents(
    run_folder: Positional[Path],
    out: Path | None = None,
    seed_index: int = 0,
    best: Switch = False,
    store: Path | None = None,
    env: str | None = None,
) -> None:
    """Draw an episode of one agent, its policy and components where there are any, and all curves.

    Args:
        run_folder: Folder of the run.
        out: Folder of the pictures; by default figures in that of the run.
        seed_index: Which agent, from 0.
        best: Draw it as it was at its best evaluation during training.
        store: Ground truth of the components (PuddleWorld); by default that of the run.
        env: As for ``evaluate``.
    """
    # Environments draw into memory; without a screen, SDL would complain on standard error.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

    from rlreps.workflows import agent_pictures

    options: dict[str, Any] = {"best": best, "store": store, "environment": env}
    pictures = agent_pictures.render_agents(run_folder, out, seed_index=seed_index, **options)
    for path in pictures.written:
        print(f"wrote {path}")
    for note in pictures.notes:
        print(f"note: {printable(note)}")
