"""Train agents in a folder of their own, and load and evaluate them: ``rlreps agent``."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import Array

from rlreps.agents import AgentConfig, AuxiliaryConfig, FeatureConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES, TASKS, AuxiliaryTask
from rlreps.agents.config import (
    describe_environment,
    find_arena_name,
    require_memory_for_agents,
)
from rlreps.agents.dqn import DQN, AgentState
from rlreps.agents.host_environments import reaches_out
from rlreps.agents.host_program import make_agent_for, make_program
from rlreps.agents.metrics import make_measure, make_measurement
from rlreps.agents.prior import Prior
from rlreps.agents.program import AgentProgram
from rlreps.app.agent_report import OF_TORSOS, history, lines_of_agents, page_of_agents
from rlreps.app.job import Context, Job, Printed
from rlreps.app.jobs import train
from rlreps.app.jobs.train import describe_place
from rlreps.app.options import Choice
from rlreps.app.trained_runs import named_store
from rlreps.config import as_json, from_json, no_option
from rlreps.cumulants import Cumulants
from rlreps.encoders import Encoder
from rlreps.envs import OBSERVATIONS, arena_settings, load_arena
from rlreps.envs.observations import Observation
from rlreps.errors import InputError, require, require_positive
from rlreps.losses import CumulantDifferences, Objective
from rlreps.losses.base import Params
from rlreps.numerics import digest_of_leaves
from rlreps.report.page import Page
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder, without_nan
from rlreps.runs.progress import progress_bar
from rlreps.stats import aggregate
from rlreps.successor.truth.ground_truth import GroundTruth, load_ground_truth
from rlreps.successor.truth.store import open_store
from rlreps.successor.truth.stored_subspace import centring_of
from rlreps.training import config as training_config
from rlreps.training import loop
from rlreps.typing import ArrayLike, DoubleArray

CHOICES: dict[Any, Choice] = {
    **train.CHOICES,
    Objective: Choice("method", AUXILIARY_OBJECTIVES),
    Cumulants: Choice("auxiliary-tasks", TASKS),
    Observation: Choice("observation", OBSERVATIONS),
}
NAMES = {
    **train.NAMES,
    "AgentConfig.environment": "env",
    "AuxiliaryConfig.weight": "auxiliary_weight",
    "AuxiliaryConfig.relative": "relative_weight",
    "AuxiliaryConfig.head": "auxiliary_head",
    "Cells.bins": "cells_per_axis",
    "FeatureConfig.kind": "features",
    "FeatureConfig.basis": "feature_basis",
    "FeatureConfig.basis_size": "feature_basis_size",
    "FeatureConfig.num_components": "num_components",
    # ``--discount`` is the agent's.
    **{f"{cls.__name__}.discount": "method_discount" for cls in AUXILIARY_OBJECTIVES.values()},
}
NEEDS: dict[Any, str] = {AuxiliaryConfig: "--auxiliary-weight", FeatureConfig: "--features"}

KIND = "agent"

METHODS: dict[str, type] = {**training_config.METHODS, **TASKS, **OBSERVATIONS}
"""Name → class, for everything that a stored configuration of agents can name."""

_BESIDE_CONFIG = ("arena", "world_digest", "ground_truth", "own", "prior")
"""Parts of a run, besides its ``AgentConfig``, that decide its result."""


class CustomParts(NamedTuple):
    """A user's own parts, instead of those that a configuration names.

    Attributes:
        torso: An encoder.
        auxiliary: An auxiliary task, weighed by the configuration's weight.
        name: A name for these parts in the run's configuration; required if there are any parts.
        prior: Action values with which all agents begin (``rlreps.agents.prior_of``).
        start: Parameters of torsos with which agents begin, every leaf with a leading seed axis.
    """

    torso: Encoder | None = None
    auxiliary: AuxiliaryTask | None = None
    name: str | None = None
    prior: Prior | None = None
    start: Params | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainAgents(Job[Mapping[str, Any]]):
    """Train agents, with an auxiliary task if it has a weight; the same command resumes.

    The folder has ``metrics.jsonl`` with a line for every evaluation, ``checkpoints`` and
    ``summary.json``; a page shows the learning curves.

    Attributes:
        config: The run.
        store: A successor measure of the same arena against which torsos are measured
            (PuddleWorld); by default the released one, for the arena sutton.
        truth: Ground truth of torsos in PuddleWorld, instead of a store; see ``make_measurement``.
        own: The user's own parts.
        page: Whether to write the page.
    """

    kind: ClassVar = KIND
    shares_devices: ClassVar = True

    config: AgentConfig = dataclasses.field(default=AgentConfig())
    store: Path | None = None
    truth: GroundTruth | None = no_option(None)
    own: CustomParts = no_option(CustomParts())
    page: bool = no_option(True)

    @functools.cached_property
    def _truth(self) -> GroundTruth | None:
        """Return the ground truth; load the store's."""
        return self.truth if self.store is None else ground_truth_of_store(self.config, self.store)

    def describe(self) -> Mapping[str, Any]:
        """Describe the run.

        Raises:
            InputError: For an unknown or invalid arena, a store that does not fit, or the user's
                own parts without a name.
        """
        own = self.own
        named = own.name is not None or own == CustomParts()
        require(named, "a name for your own parts, which tells their runs from others", own.name)
        return {
            **as_json(self.config),
            **describe_environment(self.config),
            "ground_truth": None if self._truth is None else dict(self._truth.settings),
            "own": own.name,
            **({} if own.prior is None else {"prior": digest_of_leaves(own.prior)}),
        }

    def locate(self, out: Path) -> Mapping[str, Any]:
        return {} if self.store is None else describe_place(self.store, out)

    @functools.cached_property
    def _agent(self) -> DQN:
        own = self.own
        parts = {"torso": own.torso, "auxiliary": own.auxiliary, "prior": own.prior}
        return make_agent_for(self.config, **parts)

    @functools.cached_property
    def _measure(self) -> Callable[[Params], Mapping[str, Array]]:
        return make_measure(self._agent.network, make_measurement(self.config, self._truth))

    def check(self, context: Context) -> None:
        _require_effects(self.config)
        require_memory_for_agents(self._agent, self.config, context.devices)
        _ = self._measure

    def compute(self, folder: RunFolder, context: Context) -> Mapping[str, Any]:
        """Train.

        Raises:
            TrainingDivergedError: If a loss became NaN or infinite.
        """
        config = self.config
        with contextlib.closing(
            make_program(config, self._agent, devices=context.devices)
        ) as program:
            program.measure = self._measure
            program.torsos = self.own.start
            loop.run(
                program,
                steps=config.steps,
                evaluate_every=config.evaluate_every,
                checkpoint_every=config.checkpoint_period,
                folder=folder,
                description=config.environment,
            )
        return _summarise_run(config, folder, self.own)

    def report(self, folder: RunFolder, found: Mapping[str, Any]) -> Page | None:
        return page_of_agents(folder, self.config, found) if self.page else None

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield every agent and their aggregates."""
        return lines_of_agents(summary, self.config.seed)


def _require_effects(config: AgentConfig) -> None:
    """Refuse options that the objective, or the kind of features, would ignore."""
    task, fits = config.auxiliary, config.features
    ignored: list[tuple[Any, str, str]] = []
    if task.weight > 0.0 and task.objective.needs_clips:
        what = f"{task.objective.name}, which sees pairs of states"
        ignored += [(task, each, what) for each in ("tasks", "discount_low", "discount_high")]
        if task.pair_discount == 0.0:
            ignored.append((task, "horizon", f"{what} that follow each other"))
        if not isinstance(task.objective, CumulantDifferences):
            ignored.append((task, "num_tasks", what))
    elif task.weight > 0.0:
        what = f"{task.objective.name}, which sees no pairs"
        ignored.append((task, "pair_discount", what))
    if fits.kind == "fitted_once":
        ignored.append((fits, "refit_at", "features that are fitted once"))
    elif max(fits.refit_at, default=0) > config.steps:
        ignored.append((fits, "refit_at", f"a step after the run's {config.steps}"))
    for options, name, what in ignored:
        given = getattr(options, name)
        require(given == getattr(type(options)(), name), f"no {name} for {what}", given)


def mean_returns(config: AgentConfig, steps: DoubleArray, returns: DoubleArray) -> DoubleArray:
    """Average returns [seeds, p] over the evaluations at steps [p] after the first update, [seeds].

    For even intervals, this is the area under a learning curve, divided by its length. The returns
    of fresh networks are left out: they depend on the scale of the features.
    """
    means: DoubleArray = returns[:, steps > config.dqn.warmup].mean(axis=1)
    return means


def _summarise_run(config: AgentConfig, folder: RunFolder, own: CustomParts) -> dict[str, Any]:
    records = folder.read_metrics()
    last = records[-1]
    # Agents compile in the first steps of each process, and where learning begins.
    taken, spent = (np.diff([each[name] for each in records[1:]]) for name in ("step", "seconds"))
    rates = config.num_seeds * taken / np.maximum(spent, 1e-3)
    fits = [np.mean(record["fit_seconds"]) for record in records if "fit_seconds" in record]
    own_task = own.name if own.auxiliary is not None else None
    steps, returns = history(folder, "returns")
    return {
        "environment": config.environment,
        "auxiliary": own_task or _name_objective(config),
        "agents": config.num_seeds,
        "steps": config.steps,
        "seconds": last["seconds"],
        "steps_per_second": float(np.median(rates)) if rates.size else None,
        "final_returns": last["returns"],
        "final_return": aggregate(last["returns"]),
        "mean_return": aggregate(mean_returns(config, steps, returns)),
        **({"fit_seconds": float(np.sum(fits))} if fits else {}),
        **{name: last[name] for name in OF_TORSOS if name in last},
    }


def _name_objective(config: AgentConfig) -> str | None:
    """Name the objective of a configuration's auxiliary task; None without one."""
    return config.auxiliary.objective.name if config.auxiliary.weight > 0.0 else None


def load_agent_config(folder: RunFolder, environment: str | None = None) -> AgentConfig:
    """Read the configuration of a run of agents.

    Args:
        folder: The run.
        environment: Its environment, as the user names it. It is required if its name includes a
            module or a file, so that a folder from elsewhere cannot decide which code is imported
            or which file is read.

    Raises:
        InputError: If the folder holds another kind of run, a run with a user's own parts, or a run
            in another environment; if the environment must be named and is not; or if the file of
            its arena or its world has changed since.
    """
    folder.require_kind(KIND)
    own = folder.config.get("own")
    require(own is None, "agents that their configuration describes", own)
    stored = {name: folder.config[name] for name in folder.config if name not in _BESIDE_CONFIG}
    config = from_json(AgentConfig, stored, METHODS)
    name = config.environment
    if environment is None and reaches_out(name):
        raise InputError(
            f"expected --env {name} with {folder.path}, whose environment is code or a file "
            "outside the folder, got none; name it again if you trust it"
        )
    require(environment in (None, name), f"--env {name}, in which agents were trained", environment)
    for part, now in describe_environment(config).items():
        same = folder.config.get(part, now) == now
        require(same, f"{name} as the agents of {folder.path} knew it", f"another {part}")
    return config


def load_agents(folder: RunFolder, config: AgentConfig) -> tuple[AgentProgram, AgentState, int]:
    """Load a run's newest checkpoint: its program, which the caller closes, its state and step.

    Args:
        folder: The run.
        config: Its configuration.

    Raises:
        InputError: If there is no readable checkpoint.
    """
    checkpoints = Checkpoints(folder.path / "checkpoints", run=folder.identity)
    require(checkpoints.latest_step() is not None, f"a checkpoint in {checkpoints.path}", None)
    with contextlib.ExitStack() as stack:
        program = make_program(config)
        stack.enter_context(contextlib.closing(program))
        step, kept = checkpoints.restore_latest(program.collect(program.init()))
        loaded = program.put(kept)
        stack.pop_all()  # The caller closes it.
    return program, loaded, step


def ground_truth_of_store(config: AgentConfig, store: Path) -> GroundTruth:
    """Load a store's ground truth of the arena in which agents act.

    Raises:
        InputError: If agents act in another environment, the arena is unknown or invalid, or the
            store cannot be read.
    """
    arena = find_arena_name(config)
    if arena is None:
        raise InputError(f"expected no store for {config.environment}, got {store}")
    # Check this before the store's subspace is computed and kept, which takes time.
    measured = open_store(store).settings.get("environment")
    same = measured == arena_settings(load_arena(arena))
    require(same, f"a store of the arena of {config.environment}", measured)
    centring = centring_of(open_store(store).settings)
    # The means of agents' features over states are removed before measuring.
    require(centring != "rows", "a store that is centred over states (columns or both)", centring)
    return load_ground_truth(store, progress=progress_bar)


def ground_truth_of_run(
    folder: RunFolder, config: AgentConfig, store: Path | None = None
) -> GroundTruth | None:
    """Load the ground truth of a run: its own, the released one, or another; None without one.

    Args:
        folder: The run.
        config: Its configuration.
        store: A ground truth to use instead of the run's own.

    Raises:
        InputError: For a store that does not exist or does not fit. Also if the run's own ground
            truth is missing or has changed.
    """
    settings = folder.config.get("ground_truth")
    if store is not None or settings is None:
        return None if store is None else ground_truth_of_store(config, store)
    path = named_store(folder)
    if not path.exists() or dict(open_store(path).settings) != settings:
        raise InputError(
            f"expected the ground truth that {folder.path} was measured against in {path}, got "
            "none or another one; name one to measure against (--store)"
        )
    return ground_truth_of_store(config, path)


def evaluate_agents(
    run_folder: Path,
    episodes: int = 100,
    store: Path | None = None,
    env: str | None = None,
) -> dict[str, Any]:
    """Play new greedy episodes of a run's agents, and compute all measures of their torsos.

    The random keys of the episodes differ from those of every evaluation during training.

    Args:
        run_folder: Folder of the run.
        episodes: Episodes of each agent.
        store: Ground truth to measure against (PuddleWorld); by default the run's own.
        env: The environment of the run. It is required if its name includes a module (MODULE:ID,
            dm_env:MODULE:FUNCTION): only modules named on this command line are imported.

    Returns:
        JSON values: ``returns``, the mean return of each agent, and ``return``, their
        ``aggregate``; ``measures``, each with its ``values`` by agent and their ``aggregate``; and
        ``step``.

    Raises:
        InputError: If the run or the store cannot be read or do not fit each other.
    """
    require_positive("episodes", episodes)
    folder = RunFolder(run_folder)
    config = load_agent_config(folder, env)
    config = dataclasses.replace(config, evaluation_episodes=episodes)
    truth = ground_truth_of_run(folder, config, store)
    program, state, step = load_agents(folder, config)
    with contextlib.closing(program):
        program.measure = make_measure(program.agent.network, make_measurement(config, truth))
        # Evaluations during training use keys of steps up to the last one.
        found = {**program.evaluate(state, config.steps + 1)[1]}
    returns = np.asarray(found.pop("returns"))
    described: dict[str, Any] = without_nan(
        {
            "environment": config.environment,
            "auxiliary": _name_objective(config),
            "step": step,
            "episodes": episodes,
            "returns": returns.tolist(),
            "return": aggregate(returns),
            "measures": {name: _summarise_measure(name, found[name]) for name in found},
        }
    )
    return described


def _summarise_measure(name: str, values: ArrayLike) -> dict[str, Any]:
    """List the values of all agents, and their aggregate if all are finite."""
    numbers = np.asarray(values, np.float64)
    within = None if name == "effective_rank" else (0.0, 1.0)
    found = aggregate(numbers, within=within) if np.isfinite(numbers).all() else {}
    return {"values": numbers.tolist(), **found}
