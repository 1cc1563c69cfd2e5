"""Runs of agents in folders of their own: trained, loaded, evaluated and drawn.

``rlreps agent`` and the experiments call these functions.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from matplotlib.figure import Figure
from PIL import Image

from rlreps.agents.auxiliary import TASKS, AuxiliaryTask
from rlreps.agents.compiled import Trainer, TrainerState
from rlreps.agents.dqn import TORSOS, AgentConfig, Use, agent_keys, keys_for
from rlreps.agents.environments import environment_seed, imports_code, make_host_environments
from rlreps.agents.measures import COMPONENTS, default_ground_truth, make_measure, make_measurement
from rlreps.agents.trainer import arena_of, make_trainer, puddle_world_of
from rlreps.config import as_json, from_json
from rlreps.encoders import Encoder
from rlreps.envs import OBSERVATIONS, PuddleWorld, arena_settings, load_arena, render_frame
from rlreps.errors import (
    InputError,
    TrainingDivergedError,
    printable,
    require,
    require_positive,
)
from rlreps.losses.base import Params
from rlreps.plotting import plot_learning, plot_policy_and_value, plot_torso_components, save_figure
from rlreps.plotting.animation import write_gif
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table, format_number, with_interval
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder, complete_run, finished_summary, without_nan
from rlreps.runs.intervals import aggregate
from rlreps.runs.locks import exclusive
from rlreps.runs.progress import progress_bar
from rlreps.subspace import centre_columns, exact_svd
from rlreps.successor.grids import Grid
from rlreps.successor.ground_truth import GroundTruth, load_ground_truth
from rlreps.successor.store import open_store
from rlreps.successor.stored_subspace import centring_of
from rlreps.training.loop import Program, run
from rlreps.workflows.evaluate import named_store
from rlreps.workflows.train import METHODS as TRAINING_METHODS

KIND = "agent"
CHECKPOINTS = "checkpoints"
CURVES = "learning-curves.png"
REPORT = "report.html"

METHODS: dict[str, type] = {**TRAINING_METHODS, **TORSOS, **TASKS, **OBSERVATIONS}
"""Name → class of everything that a stored configuration of agents can name."""

_BESIDE_CONFIG = ("arena", "ground_truth", "start", "own")
"""Parts of a run, beside its ``AgentConfig``, that decide its result."""

EPISODES = 100
"""Episodes of an evaluation, where no number is asked for."""

FloatArray = npt.NDArray[np.float64]
Picture = npt.NDArray[np.uint8]

MEASURES = {
    "returns": "return of an evaluation episode",
    "leading_distance": "distance to the ground truth's ten leading components",
    "subspace_distance": "subspace distance to as many as there are features",
    "effective_rank": "effective rank of the features",
    "dormant_share": "share of dormant units",
    "probe_error": "value probe: share of variance not explained",
}
"""Figures of a run's metrics → what they are, as a reader wants them."""

_OF_TORSOS = tuple(name for name in MEASURES if name != "returns")

_BINS = 50
"""Cells along each axis of the maps of values."""

_MOST_FRAMES = 500
_LARGEST_SIDE = 320
"""Pixels; larger pictures are made smaller, so that an animation is a file to send."""

_HELD = 10
"""Frames for which the last one of an episode stands still."""

_FRAMES_PER_SECOND = 25.0


class Best(NamedTuple):
    """Each agent's parameters at the evaluation with its greatest mean return so far.

    Attributes:
        params: Parameters of its network, every leaf with a leading seed axis.
        returns: That mean return, [seeds]; of equal ones, the first counts.
        steps: Environment steps at that evaluation, [seeds] (int32).
    """

    params: Params
    returns: npt.NDArray[np.float32]
    steps: npt.NDArray[np.int32]


class Learning(NamedTuple):
    """Everything that a checkpoint holds.

    Attributes:
        trainer: Agents as they are.
        best: Agents at their best.
    """

    trainer: TrainerState
    best: Best


class StartingTorsos(NamedTuple):
    """Torsos that agents start from.

    Attributes:
        params: Parameters of the configured encoder, every leaf with a leading seed axis.
        origin: What they are, for the run's configuration.
    """

    params: Any
    origin: str


class OwnParts(NamedTuple):
    """Parts of a user's own, in place of those that a configuration names.

    Attributes:
        torso: An encoder.
        auxiliary: An auxiliary task, weighed by the configuration's weight.
        name: What they are, for the run's configuration; required where there are any.
    """

    torso: Encoder | None = None
    auxiliary: AuxiliaryTask | None = None
    name: str | None = None


def run_agents(
    config: AgentConfig,
    out: Path,
    *,
    truth: GroundTruth | None = None,
    start: StartingTorsos | None = None,
    own: OwnParts | None = None,
    origin: Mapping[str, Any] | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train agents in a folder of their own, resuming what was interrupted.

    Args:
        config: The run.
        out: The folder: ``metrics.jsonl`` with a line for every evaluation, ``checkpoints`` and
            ``summary.json``.
        truth: What torsos in PuddleWorld are measured against; see ``make_measurement``.
        start: Torsos to start from in place of fresh ones.
        own: Parts of the user's own.
        origin: Where the ground truth came from, as JSON values; informative only.
        devices: Over which agents are shared out; None is JAX's default device.
        progress: Whether to show a progress bar.

    Returns:
        The summary, as ``summary.json`` holds it.

    Raises:
        InputError: For an environment, ground truth or folder that does not fit, before the first
            file is written.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    own = own if own is not None else OwnParts()
    require(
        own.name is not None or own == OwnParts(),
        "a name for parts of your own, by which their runs are told from others",
        own.name,
    )
    world = puddle_world_of(config)
    described = {
        **as_json(config),
        "arena": None if world is None else arena_settings(world),
        "ground_truth": None if truth is None else dict(truth.settings),
        "start": None if start is None else start.origin,
        "own": own.name,
    }

    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    with contextlib.closing(
        make_trainer(config, devices=devices, torso=own.torso, auxiliary=own.auxiliary)
    ) as trainer:
        program = _Program(config, trainer, truth, start)

        def compute(folder: RunFolder) -> dict[str, Any]:
            run(
                program,
                steps=config.steps,
                evaluate_every=config.evaluate_every,
                checkpoint_every=config.checkpoint_period,
                folder=folder,
                description=config.environment,
                unit="steps of each agent",
                progress=progress,
            )
            return _summary(config, folder, own)

        return complete_run(out, kind=KIND, config=described, compute=compute, origin=origin)


class _Program(Program[Learning]):
    """Agents as the host loop drives them."""

    def __init__(
        self,
        config: AgentConfig,
        trainer: Trainer,
        truth: GroundTruth | None,
        start: StartingTorsos | None,
    ) -> None:
        self._config, self._trainer, self._start = config, trainer, start
        self._measure = make_measure(trainer.agent.network, make_measurement(config, truth))

    def init(self) -> Learning:
        """Make agents before their first step, with the torsos that they start from."""
        return _unevaluated(self._trainer, self._start_agents())

    def _start_agents(self) -> TrainerState:
        fresh = self._trainer.init()
        if self._start is None:
            return fresh
        learner = fresh.memory.learner
        # Copies: a state handed to a trainer is used up, and the caller may start from it again.
        params, target_params = (
            jax.tree.map(jnp.copy, {**learner.params, "torso": self._start.params})
            for _ in range(2)
        )
        learner = learner._replace(params=params, target_params=target_params)
        return self._trainer.put(fresh._replace(memory=fresh.memory._replace(learner=learner)))

    def advance(self, state: Learning, step: int, count: int) -> tuple[Learning, dict[str, Any]]:
        agents, metrics = self._trainer.advance(state.trainer, step, count)
        jax.block_until_ready(agents)
        losses = [value for name, value in metrics.items() if name.endswith("loss")]
        params = self._trainer.whole(agents.memory.learner.params)
        parts = [np.asarray(x) for x in (*losses, *jax.tree.leaves(params))]
        seeds = self._config.num_seeds
        broken = [~np.isfinite(part).reshape(seeds, -1).all(axis=1) for part in parts]
        bad = np.flatnonzero(np.any(broken, axis=0)) + self._config.seed
        if bad.size:
            raise TrainingDivergedError(
                f"the losses or parameters of seeds {', '.join(map(str, bad))} became NaN or "
                f"infinite before step {step + count}; try a smaller --learning-rate"
            )
        return state._replace(trainer=agents), metrics

    def evaluate(self, state: Learning, step: int) -> tuple[Learning, dict[str, Any]]:
        """Compute mean evaluation returns and every measure, [seeds] each; keep what is best."""
        params = self._trainer.whole(state.trainer.memory.learner.params)
        returns = np.asarray(self._trainer.evaluate(state.trainer, step), np.float64).mean(axis=1)
        best = _better(state.best, params, returns.astype(np.float32), step)
        measures = self._measure(params["torso"])
        return state._replace(best=best), {"returns": returns, **measures}

    def note(self, record: Mapping[str, Any]) -> str:
        return f"return {np.mean(record['returns']):.1f}"

    def collect(self, state: Learning) -> Learning:
        return Learning(self._trainer.keep(state.trainer), jax.device_get(state.best))

    def put(self, state: Learning) -> Learning:
        return state._replace(trainer=self._trainer.put(state.trainer))


def _unevaluated(trainer: Trainer, agents: TrainerState) -> Learning:
    """Put agents beside a best that any evaluation betters."""
    # Copies: the agents' own arrays are used up where they go on learning.
    params = jax.tree.map(np.array, trainer.whole(agents.memory.learner.params))
    seeds = len(jax.tree.leaves(params)[0])
    nothing = np.full(seeds, -np.inf, np.float32), np.zeros(seeds, np.int32)
    return Learning(agents, Best(params, *nothing))


def _better(best: Best, params: Params, returns: npt.NDArray[np.float32], step: int) -> Best:
    """Replace those agents whose returns [seeds] at a step are greater than at their best."""
    improved = returns > best.returns

    def chosen(new: Any, old: Any) -> npt.NDArray[Any]:
        kept: npt.NDArray[Any] = np.where(
            improved.reshape(-1, *(1,) * (np.ndim(old) - 1)), new, old
        )
        return kept

    return Best(
        jax.tree.map(chosen, params, best.params),
        chosen(returns, best.returns),
        chosen(np.int32(step), best.steps),
    )


def history(folder: RunFolder, name: str) -> tuple[FloatArray, FloatArray]:
    """Read steps [p] and a figure of every evaluation [seeds, p]; NaN where it was not measured."""
    records = folder.read_metrics()
    try:
        steps = np.asarray([record["step"] for record in records], np.float64)
        missing = [np.nan] * len(records[0]["returns"])
        values = np.asarray([record.get(name, missing) for record in records], np.float64)
        require(values.shape == (len(steps), len(missing)), "a figure of each seed", values.shape)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"expected step and returns in all metrics of {folder.path}, got {error}"
        ) from error
    return steps, values.T


def mean_returns(config: AgentConfig, steps: FloatArray, returns: FloatArray) -> FloatArray:
    """Average returns [seeds, p] over the evaluations at steps [p] after the first update, [seeds].

    The area under a learning curve, divided by its length. What fresh networks happen to do before
    they learn is left out: it depends on the scale of their features.
    """
    means: FloatArray = returns[:, steps > config.dqn.warmup].mean(axis=1)
    return means


def _summary(config: AgentConfig, folder: RunFolder, own: OwnParts) -> dict[str, Any]:
    records = folder.read_metrics()
    last = records[-1]
    seconds = last["seconds"]
    own_task = own.name if own.auxiliary is not None else None
    steps, returns = history(folder, "returns")
    # In single precision, as they were compared.
    at_best = returns.astype(np.float32).argmax(axis=1)
    return {
        "environment": config.environment,
        "auxiliary": own_task or _auxiliary_of(config),
        "agents": config.num_seeds,
        "steps": config.steps,
        "seconds": seconds,
        "steps_per_second": config.steps * config.num_seeds / seconds if seconds else None,
        "final_returns": last["returns"],
        "final_return": aggregate(last["returns"]),
        "best_returns": returns.max(axis=1).tolist(),
        "best_steps": steps[at_best].astype(int).tolist(),
        "mean_return": aggregate(mean_returns(config, steps, returns)),
        **{name: last[name] for name in _OF_TORSOS if name in last},
    }


def _auxiliary_of(config: AgentConfig) -> str | None:
    """Name the objective of a configuration's auxiliary task; None without one."""
    return config.auxiliary.objective.name if config.auxiliary.weight > 0.0 else None


def load_agent_config(folder: RunFolder, environment: str | None = None) -> AgentConfig:
    """Read the configuration of a run of agents.

    Args:
        folder: The run.
        environment: Its environment, as the user names it. One whose name names a module has to be
            named: a folder that came from elsewhere must not decide which code is imported.

    Raises:
        InputError: If the folder holds another kind of run, one with parts of the user's own, or
            one in another environment or one that has to be named.
    """
    folder.require_kind(KIND)
    stored = dict(folder.config)
    own = {name: stored.pop(name, None) for name in _BESIDE_CONFIG}["own"]
    require(own is None, "agents that their configuration describes", own)
    config = from_json(AgentConfig, stored, METHODS)
    name = config.environment
    if environment is None and imports_code(name):
        raise InputError(
            f"expected --env {name} with {folder.path}, whose environment is code that would be "
            "imported, got none; name it again if you trust it"
        )
    require(environment in (None, name), f"--env {name}, in which agents were trained", environment)
    return config


def load_agents(
    folder: RunFolder,
    config: AgentConfig,
    *,
    best: bool = False,
    devices: Sequence[jax.Device] | None = None,
) -> tuple[Trainer, TrainerState, int | list[int]]:
    """Load a run's newest checkpoint: its trainer, which the caller closes, its state and step.

    Args:
        folder: The run.
        config: Its configuration.
        best: Load the parameters of each agent's best evaluation so far in place of the newest,
            with the step of each; target networks, replay and optimizers are the newest still.
        devices: As for ``run_agents``.

    Raises:
        InputError: If there is no readable checkpoint.
    """
    path = folder.path / CHECKPOINTS
    checkpoints = Checkpoints(path, run=folder.identity)
    if checkpoints.latest_step() is None:
        raise InputError(f"expected a checkpoint in {path}, got none")
    with contextlib.ExitStack() as stack:
        trainer = make_trainer(config, devices=devices)
        stack.enter_context(contextlib.closing(trainer))
        like = jax.device_get(_unevaluated(trainer, trainer.init()))
        step, (agents, kept) = checkpoints.restore_latest(like)
        if best:
            step = np.asarray(kept.steps).tolist()
            learner = agents.memory.learner._replace(params=kept.params)
            agents = agents._replace(memory=agents.memory._replace(learner=learner))
        loaded = trainer.put(agents)
        stack.pop_all()  # The caller closes it.
    return trainer, loaded, step


def train_agents(
    config: AgentConfig,
    out: Path,
    *,
    store: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train agents as ``run_agents`` does, measured against a store's ground truth.

    The ``store`` holds a successor measure of the same arena; None is the released one, for
    ``sutton``. A finished run also leaves ``figures/learning-curves.png`` and ``report.html``.

    Raises:
        InputError: As ``run_agents``, or for a store that does not fit.
    """
    truth, origin = None, None
    if store is not None:
        truth = ground_truth_of_store(config, store, progress=progress)
        path = store.absolute()
        origin = {"store": str(path), "store_from_run": os.path.relpath(path, out.absolute())}
    summary = run_agents(
        config, out, truth=truth, origin=origin, devices=devices, progress=progress
    )
    folder = RunFolder(out)
    # Last: where it is there, so is the figure.
    if not (out / REPORT).exists():
        with exclusive(out):
            _write_report(folder, config, summary)
    return summary


def _write_report(folder: RunFolder, config: AgentConfig, summary: Mapping[str, Any]) -> None:
    curves = save_figure(_learning_curves(folder), folder.figures / CURVES)
    task = summary["auxiliary"]
    text = f"{_described(summary)}; {'; '.join(_interquartile_means(summary))}."
    if task is not None:
        text += f" The weight of the auxiliary task is {config.auxiliary.weight:g}."
    write_report(
        folder.path / REPORT,
        title=f"Agents in {config.environment}",
        summary=text,
        sections=[
            Section(
                title="Learning",
                text="Returns are undiscounted, means of greedy episodes apart from training. The "
                "best evaluation is a maximum over noisy ones: rlreps agent evaluate --best plays "
                "other episodes.",
                tables=[_agents_table(summary, config.seed)],
                figures=[(curves, "Every figure of the run's evaluations, over training.")],
            )
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )


def _learning_curves(folder: RunFolder) -> Figure:
    known = folder.read_metrics()[-1]
    tables = {title: history(folder, name)[1] for name, title in MEASURES.items() if name in known}
    return plot_learning(history(folder, "returns")[0], tables)


def ground_truth_of_store(
    config: AgentConfig, store: Path, *, progress: bool = False
) -> GroundTruth:
    """Load a store's ground truth, of the arena that agents act in.

    Raises:
        InputError: If agents act in something else, or the store cannot be read.
        ArenaError: For an unknown or invalid arena.
    """
    arena = arena_of(config)
    if arena is None:
        raise InputError(f"expected no store for {config.environment}, got {store}")
    # Before its subspace is computed, which takes time and is kept beside it.
    measured = open_store(store).settings.get("environment")
    same = measured == arena_settings(load_arena(arena))
    require(same, f"a store of the arena of {config.environment}", measured)
    centring = centring_of(open_store(store).settings)
    # Agents' features are measured without their means over states.
    require(centring != "rows", "a store that is centred over states (columns or both)", centring)
    return load_ground_truth(store, progress=functools.partial(progress_bar, show=progress))


def ground_truth_of_run(
    folder: RunFolder, config: AgentConfig, store: Path | None = None
) -> GroundTruth | None:
    """Load the ground truth that a run is measured against; None is the released one, or none.

    Args:
        folder: The run.
        config: Its configuration.
        store: Another ground truth than its own.

    Raises:
        InputError: If there is no such store or it does not fit, or the run's own is gone or
            another one by now.
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
    run: Path,
    *,
    episodes: int = EPISODES,
    best: bool = False,
    store: Path | None = None,
    environment: str | None = None,
) -> dict[str, Any]:
    """Play greedy episodes with a run's newest checkpoint, and take all measures of its torsos.

    What is best by a maximum of noisy evaluations is judged too well by that maximum; these are
    other episodes.

    Args:
        run: The run's folder.
        episodes: Of each agent; their random keys are of no evaluation during training.
        best: Take each agent as it was at its best evaluation during training.
        store: Ground truth to measure against; None is the run's own.
        environment: As of ``load_agent_config``.

    Returns:
        JSON values: ``returns``, each agent's mean, and ``return``, their ``aggregate``;
        ``measures``, for each its ``values`` by agent beside their ``aggregate``; ``step``, with
        ``best`` one for each agent.

    Raises:
        InputError: If the run or the store cannot be read or do not fit each other.
    """
    require_positive("episodes", episodes)
    folder = RunFolder(run)
    config = load_agent_config(folder, environment)
    config = dataclasses.replace(config, evaluation_episodes=episodes)
    truth = ground_truth_of_run(folder, config, store)
    trainer, state, step = load_agents(folder, config, best=best)
    with contextlib.closing(trainer):
        # Evaluations during training are of steps up to the last one.
        returns = np.asarray(trainer.evaluate(state, config.steps + 1), np.float64).mean(axis=1)
        measure = make_measure(trainer.agent.network, make_measurement(config, truth))
        measures = measure(state.memory.learner.params["torso"])
    described: dict[str, Any] = without_nan(
        {
            "environment": config.environment,
            "auxiliary": _auxiliary_of(config),
            "step": step,
            "episodes": episodes,
            "returns": returns.tolist(),
            "return": aggregate(returns),
            "measures": {name: _aggregated(values) for name, values in measures.items()},
        }
    )
    return described


def _aggregated(values: npt.ArrayLike) -> dict[str, Any]:
    """List values of all agents, and their aggregate where all are finite."""
    numbers = np.asarray(values, np.float64)
    found = aggregate(numbers) if np.isfinite(numbers).all() else {}
    return {"values": numbers.tolist(), **found}


class Pictures(NamedTuple):
    """Pictures of a run that were written, and why others were not, or not in full."""

    written: list[Path]
    notes: list[str]


class TrainedAgent(NamedTuple):
    """One agent of a run.

    Attributes:
        trainer: The run's trainer.
        config: The run's configuration.
        number: Which agent, from 0.
        params: Its network's parameters.
    """

    trainer: Trainer
    config: AgentConfig
    number: int
    params: Params

    def act(self, observation: Array) -> Array:
        """Choose the greedy action [] for one observation."""
        unused = jax.random.key(0)  # What does not explore draws nothing that counts.
        act = self.trainer.agent.act
        action: Array = act(self.params, observation[None], jnp.zeros(()), unused)[0]
        return action


def render_agents(
    run: Path,
    out: Path | None = None,
    *,
    seed_index: int = 0,
    best: bool = False,
    store: Path | None = None,
    environment: str | None = None,
) -> Pictures:
    """Draw one agent of a run, and the learning curves of all.

    ``episode.gif`` and ``learning-curves.png``; of PuddleWorld also ``policy-and-value.png`` and,
    where there is a ground truth, ``components.png``.

    Args:
        run: The run's folder.
        out: Folder of the pictures; by default ``figures`` in that of the run.
        seed_index: Which agent, from 0.
        best: Draw it as it was at its best evaluation during training.
        store: Ground truth of the components; None is the run's own, or the released one.
        environment: As of ``load_agent_config``.

    Raises:
        InputError: If the run or the store cannot be read, or there is no such agent.
    """
    folder = RunFolder(run)
    config = load_agent_config(folder, environment)
    count = config.num_seeds
    require(0 <= seed_index < count, f"a seed index in [0, {count - 1}]", seed_index)
    require(out is None or not out.is_file(), "a folder for the pictures", str(out))
    world, truth = puddle_world_of(config), ground_truth_of_run(folder, config, store)
    trainer, state, _ = load_agents(folder, config, best=best)
    with contextlib.closing(trainer):
        params = jax.tree.map(lambda leaf: leaf[seed_index], state.memory.learner.params)
        agent = TrainedAgent(trainer, config, seed_index, params)
        target = folder.figures if out is None else out
        pictures = Pictures([], [])
        _draw_episode(agent, world, target / "episode.gif", pictures)
        if world is not None:
            figure = plot_policy_and_value(world, map_of_values(agent, world))
            pictures.written.append(save_figure(figure, target / "policy-and-value.png"))
            truth = truth if truth is not None else default_ground_truth(config)
            _draw_components(agent, world, truth, target / "components.png", pictures)
    pictures.written.append(save_figure(_learning_curves(folder), target / CURVES))
    return pictures


def map_of_values(agent: TrainedAgent, world: PuddleWorld, bins: int = _BINS) -> Array:
    """Compute Q of an agent at the cells' centres [bins², actions], in the rewards' own unit.

    NaN in cells that are no state, as in maps of components.
    """
    centres = jnp.asarray(Grid(bins).centres())
    network, scale = agent.trainer.agent.network, agent.config.dqn.reward_scale
    seen = jax.vmap(world.observe_position)(centres)
    values = network.values(agent.params, seen) / scale
    is_state = jnp.asarray(Grid(bins).within(world).is_state)
    shown: Array = jnp.where(is_state[:, None], values, jnp.nan)
    return shown


def torso_components(agent: TrainedAgent, truth: GroundTruth) -> npt.NDArray[Any]:
    """Compute left singular vectors [n, at most 10] of an agent's centred features at all states.

    Raises:
        InputError: If all states have the same features.
    """
    seen = jnp.asarray(truth.coordinates)
    world = puddle_world_of(agent.config)
    if world is not None:
        seen = jax.vmap(world.observe_position)(seen)
    features = agent.trainer.agent.network.features(agent.params["torso"], seen)
    rank = min(COMPONENTS, *features.shape, truth.principal.basis.shape[1])
    return exact_svd(centre_columns(features), rank, at_most=True).basis


def _draw_components(
    agent: TrainedAgent,
    world: PuddleWorld,
    truth: GroundTruth | None,
    out: Path,
    pictures: Pictures,
) -> None:
    try:
        if truth is None:
            raise InputError(
                f"no ground truth comes with {agent.config.environment}; name a store of its "
                "arena (--store)"
            )
        learned = torso_components(agent, truth)
    except InputError as problem:
        pictures.notes.append(f"no {out.name}: {problem}")
        return
    basis, bins = truth.principal.basis, int(truth.settings["bins"])
    figure = plot_torso_components(world, learned, basis, bins=bins)
    pictures.written.append(save_figure(figure, out))


def _draw_episode(
    agent: TrainedAgent, world: PuddleWorld | None, out: Path, pictures: Pictures
) -> None:
    play = _puddle_world_frames(agent, world) if world is not None else _host_frames(agent)
    try:
        frames = list(play)
    except InputError as problem:
        pictures.notes.append(f"no {out.name}: {problem}")
        return
    if len(frames) > _MOST_FRAMES:
        frames = frames[:_MOST_FRAMES]
        pictures.notes.append(f"{out.name} shows the first {_MOST_FRAMES} frames")
    frames += [frames[-1]] * _HELD
    pictures.written.append(write_gif(out, frames, frames_per_second=_FRAMES_PER_SECOND))


def _puddle_world_frames(agent: TrainedAgent, world: PuddleWorld) -> Iterator[Picture]:
    """Draw a greedy episode, one frame more than are shown where it goes on."""
    step = jax.jit(lambda key, state: world.step(key, state, agent.act(world.observe(state))))
    # Of no evaluation during training, as in ``evaluate_agents``.
    keys = keys_for(agent_keys(agent.config), Use.EVALUATE, agent.config.steps + 1)
    reset_key, times_key = jax.random.split(keys[agent.number])
    state = world.reset(reset_key)
    yield render_frame(world, np.asarray(state.position))
    for moment in range(1, _MOST_FRAMES + 1):
        taken = step(jax.random.fold_in(times_key, moment), state)
        state = taken.state
        yield render_frame(world, np.asarray(state.position))
        if taken.terminated or taken.truncated:
            return


def _host_frames(agent: TrainedAgent) -> Iterator[Picture]:
    """Draw a greedy episode on the host, one frame more than are shown where it goes on.

    Raises:
        InputError: If the environment cannot be drawn.
    """
    config, act = agent.config, jax.jit(agent.act)
    # The first episode of ``evaluate_agents``.
    seed = environment_seed(config.seed + agent.number, Use.EVALUATE, config.steps + 1, 0)
    limit = config.max_episode_steps
    with contextlib.closing(
        make_host_environments(config.environment, 1, max_episode_steps=limit, render=True)
    ) as environments:
        seen = environments.reset([seed])
        yield _picture(environments.render)
        for _ in range(_MOST_FRAMES):
            taken = environments.step(np.asarray(act(jnp.asarray(seen[0])))[None])
            seen = taken.observations
            yield _picture(environments.render)
            if taken.terminated[0] or taken.truncated[0]:
                return


def _picture(render: Callable[[], Picture]) -> Picture:
    """Draw an environment, made smaller where the picture is large.

    Raises:
        InputError: If a package that it draws with is not installed.
    """
    try:
        picture = render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise InputError(f"expected a package to draw with, got: {error}") from error
    image = Image.fromarray(picture)
    image.thumbnail((_LARGEST_SIDE,) * 2, Image.Resampling.BOX, reducing_gap=None)
    return np.asarray(image, np.uint8)


def print_agents(summary: Mapping[str, Any], first_seed: int) -> None:
    """Print a run of agents: what was run, every agent, and what they come to together."""
    print(printable(_described(summary)))
    _agents_table(summary, first_seed).print()
    for line in _interquartile_means(summary):
        print(line)


def _described(summary: Mapping[str, Any]) -> str:
    auxiliary = summary["auxiliary"]
    return (
        f"{summary['environment']}, auxiliary task {auxiliary or 'none'}: "
        f"{summary['agents']} x {summary['steps']:,} steps in {summary['seconds']:.1f} s "
        f"({format_number(summary['steps_per_second'])} a second)"
    )


def _agents_table(summary: Mapping[str, Any], first_seed: int) -> Table:
    measures = [name for name in _OF_TORSOS if name in summary]
    columns = ("final_returns", "best_returns", "best_steps", *measures)
    agents = zip(*(summary[name] for name in columns), strict=True)
    header = ("seed", "return", "best", "at step", *(name.replace("_", " ") for name in measures))
    rows = [(seed, *row) for seed, row in enumerate(agents, start=first_seed)]
    return Table(header, rows, "Agents at the end of training, and their best evaluation")


def _interquartile_means(summary: Mapping[str, Any]) -> list[str]:
    parts = (("final_return", "last evaluation"), ("mean_return", "all evaluations"))
    return [
        f"interquartile mean of returns, {title}: "
        + with_interval(summary[name], "interquartile_mean")
        for name, title in parts
    ]
