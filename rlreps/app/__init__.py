"""Run things in folders of their own, and the command line.

``run_job(job, out)`` runs a job, goes on with it, or returns what a finished one found. Names load
on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.app.evaluate import evaluate_run as evaluate_run
    from rlreps.app.evaluate import features_of as features_of
    from rlreps.app.export import export_run as export_run
    from rlreps.app.generation import generate as generate
    from rlreps.app.job import Context as Context
    from rlreps.app.job import Job as Job
    from rlreps.app.job import run_job as run_job
    from rlreps.app.jobs.agents import OwnParts as OwnParts
    from rlreps.app.jobs.agents import StartingTorsos as StartingTorsos
    from rlreps.app.jobs.agents import TrainAgents as TrainAgents
    from rlreps.app.jobs.agents import evaluate_agents as evaluate_agents
    from rlreps.app.jobs.agents import load_agents as load_agents
    from rlreps.app.jobs.fit import Collection as Collection
    from rlreps.app.jobs.fit import FitData as FitData
    from rlreps.app.jobs.train import Train as Train
    from rlreps.app.jobs.train_live import LiveConfig as LiveConfig
    from rlreps.app.jobs.train_live import TrainLive as TrainLive

_NAMES = {
    "evaluate": "evaluate_run features_of",
    "export": "export_run",
    "generation": "generate",
    "job": "Context Job run_job",
    "jobs.agents": "OwnParts StartingTorsos TrainAgents evaluate_agents load_agents",
    "jobs.fit": "Collection FitData",
    "jobs.train": "Train",
    "jobs.train_live": "LiveConfig TrainLive",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.app' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlreps.app.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
