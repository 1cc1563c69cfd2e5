"""The commands below ``rlreps agent``: agents trained, evaluated and drawn."""

import dataclasses
import os
from pathlib import Path
from typing import Any, ClassVar

from tyro.conf import Positional

from rlreps.agents import AgentConfig, AuxiliaryConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES, TASKS
from rlreps.agents.config import TORSOS
from rlreps.cli.options import Choice, Switch, print_json
from rlreps.cli.training import METHODS, NAMES
from rlreps.cumulants import Cumulants
from rlreps.encoders import Encoder
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.errors import printable
from rlreps.losses import Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainAgents:
    """Train agents, with an auxiliary task if it has a weight; the same command resumes.

    Attributes:
        out: Folder of the run.
        config: The run.
        store: A successor measure of the same arena to measure torsos against (PuddleWorld); by
            default the released one, for the arena sutton.
        quiet: Show no progress bar.
    """

    out: Path
    config: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    store: Path | None = None
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = {
        **METHODS,
        Encoder: Choice("encoder", TORSOS),
        Objective: Choice("method", AUXILIARY_OBJECTIVES),
        Cumulants: Choice("auxiliary-tasks", TASKS),
        Observation: Choice("observation", OBSERVATIONS),
    }
    names: ClassVar[dict[str, str]] = {
        **NAMES,
        "AgentConfig.environment": "env",
        "AuxiliaryConfig.weight": "auxiliary_weight",
        "AuxiliaryConfig.relative": "relative_weight",
        "AuxiliaryConfig.head": "auxiliary_head",
        "AuxiliaryConfig.remembered": "auxiliary_rows",
        "Cells.bins": "cells_per_axis",
    }
    needs: ClassVar[dict[Any, str]] = {AuxiliaryConfig: "--auxiliary-weight"}

    def run(self) -> None:
        from rlreps.training.devices import devices_for_small_runs
        from rlreps.workflows.agent_report import print_agents
        from rlreps.workflows.agents import train_agents

        summary = train_agents(
            self.config,
            self.out,
            store=self.store,
            devices=devices_for_small_runs(),
            progress=not self.quiet,
        )
        print_agents(summary, self.config.seed)


@dataclasses.dataclass(frozen=True)
class EvaluateAgents:
    """Fresh greedy episodes of a run's agents, and every measure of their torsos, as JSON.

    Attributes:
        run_folder: Folder of the run.
        episodes: Episodes of each agent.
        best: Take each agent as it was at its best evaluation during training.
        store: Ground truth to measure against (PuddleWorld); by default that of the run.
        env: The environment of the run, to be named again where its name names a module (MODULE:ID,
            dm_env:MODULE:FUNCTION): a module is imported only if this command line names it.
    """

    run_folder: Positional[Path]
    episodes: int = 100
    best: Switch = False
    store: Path | None = None
    env: str | None = None

    def run(self) -> None:
        from rlreps.workflows.agents import evaluate_agents

        found = evaluate_agents(
            self.run_folder,
            episodes=self.episodes,
            best=self.best,
            store=self.store,
            environment=self.env,
        )
        print_json(found)


@dataclasses.dataclass(frozen=True)
class RenderAgents:
    """Draw an episode of one agent, its policy and components where there are any, and all curves.

    Attributes:
        run_folder: Folder of the run.
        out: Folder of the pictures; by default figures in that of the run.
        seed_index: Which agent, from 0.
        best: Draw it as it was at its best evaluation during training.
        store: Ground truth of the components (PuddleWorld); by default that of the run.
        env: As for ``evaluate``.
    """

    run_folder: Positional[Path]
    out: Path | None = None
    seed_index: int = 0
    best: Switch = False
    store: Path | None = None
    env: str | None = None

    def run(self) -> None:
        # Environments draw into memory; without a screen, SDL would complain on standard error.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

        from rlreps.workflows.agent_pictures import render_agents

        pictures = render_agents(
            self.run_folder,
            self.out,
            seed_index=self.seed_index,
            best=self.best,
            store=self.store,
            environment=self.env,
        )
        for path in pictures.written:
            print(f"wrote {path}")
        for note in pictures.notes:
            print(f"note: {printable(note)}")
