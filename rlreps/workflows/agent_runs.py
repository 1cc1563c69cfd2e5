"""A run of agents in a folder of its own: what ``rlreps agent train`` and the experiments do."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.compiled_loop import LoopState
from rlreps.agents.config import AgentConfig
from rlreps.agents.loops import Loop, make_loop, puddle_world_of
from rlreps.agents.measurement import make_measure, make_measurement
from rlreps.configs import as_json, from_json
from rlreps.encoders import Encoder
from rlreps.envs import arena_settings
from rlreps.errors import InputError, TrainingDivergedError, require
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.complete import complete_run, finished_summary
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate
from rlreps.runs.progress import progress_bar
from rlreps.successor.ground_truth import GroundTruth

KIND = "agent"
CHECKPOINTS = "checkpoints"
_BESIDE_CONFIG = ("arena", "ground_truth", "start", "own")
"""What decides a run's result beside its ``AgentConfig``."""

FloatArray = npt.NDArray[np.float64]


class StartingTorsos(NamedTuple):
    """Torsos that agents start from.

    Attributes:
        params: Parameters of the configured encoder, every leaf with a leading seed axis.
        origin: What they are, for the run's configuration.
    """

    params: Any
    origin: str


class OwnParts(NamedTuple):
    """What a user brings in place of what a configuration names.

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
    """Trains agents in a folder of their own, resuming what was interrupted.

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
        make_loop(config, devices=devices, torso=own.torso, auxiliary=own.auxiliary)
    ) as loop:
        measure = make_measure(loop.agent.network, make_measurement(config, truth))

        def compute(folder: RunFolder) -> dict[str, Any]:
            _train(config, folder, loop, measure, start, progress)
            return _summary(config, folder, own)

        return complete_run(out, kind=KIND, config=described, compute=compute, origin=origin)


def _train(
    config: AgentConfig,
    folder: RunFolder,
    loop: Loop,
    measure: Callable[[Any], Mapping[str, Any]],
    start: StartingTorsos | None,
    progress: bool,
) -> None:
    with contextlib.closing(Checkpoints(folder.path / CHECKPOINTS)) as checkpoints:
        state, step = _resumed(loop, checkpoints, start)
        kept = folder.keep_metrics_until(step)
        if not kept:
            folder.append_metrics(_evaluated(loop, state, step, measure))
        seconds = max((record["seconds"] for record in kept), default=0.0)
        with progress_bar(
            config.environment,
            total=config.steps,
            done=step,
            unit="steps of each agent",
            show=progress,
        ) as advance:
            while step < config.steps:
                began = time.perf_counter()
                state, metrics = loop.run(state, step, config.evaluate_every)
                jax.block_until_ready(state)
                seconds += time.perf_counter() - began
                step += config.evaluate_every
                _require_finite(config, metrics, state, step, checkpoints.latest_step())
                record = _evaluated(loop, state, step, measure)
                record |= {name: _floats(value) for name, value in metrics.items()}
                folder.append_metrics({**record, "seconds": seconds})
                if step % config.checkpoint_every == 0 or step == config.steps:
                    checkpoints.save(step, jax.device_get(state))
                advance(config.evaluate_every, f"return {np.mean(record['returns']):.1f}")


def _resumed(
    loop: Loop, checkpoints: Checkpoints, start: StartingTorsos | None
) -> tuple[LoopState, int]:
    """The newest checkpoint, or agents before their first step."""
    fresh = loop.init()
    step = checkpoints.latest_step()
    if step is not None:
        return loop.put(checkpoints.restore(step, jax.device_get(fresh))), step
    if start is None:
        return fresh, 0
    learner = fresh.memory.learner
    # Copies: what is handed to a loop is used up, and the caller may start from it again.
    params = {**learner.params, "torso": _copied(start.params)}
    target = _copied(params)
    learner = learner._replace(params=params, target_params=target)
    return loop.put(fresh._replace(memory=fresh.memory._replace(learner=learner))), 0


def _copied(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.copy(), tree)


def _evaluated(
    loop: Loop, state: LoopState, step: int, measure: Callable[[Any], Mapping[str, Any]]
) -> dict[str, Any]:
    """A line of metrics: mean evaluation returns and every measure, [seeds] each."""
    returns = np.asarray(loop.evaluate(state, step), np.float64)
    measures = measure(state.memory.learner.params["torso"])
    return {
        "step": step,
        "seconds": 0.0,
        "returns": returns.mean(axis=1).tolist(),
        **{name: _floats(value) for name, value in measures.items()},
    }


def _floats(values: Any) -> list[float]:
    numbers: list[float] = np.asarray(values, np.float64).tolist()
    return numbers


def _require_finite(
    config: AgentConfig,
    metrics: Mapping[str, Any],
    state: LoopState,
    step: int,
    good: int | None,
) -> None:
    """Stops the run if an agent's losses or parameters are no numbers any more."""
    losses = [value for name, value in metrics.items() if name.endswith("loss")]
    parts = [np.asarray(part) for part in (*losses, *jax.tree.leaves(state.memory.learner.params))]
    broken = [~np.isfinite(part).reshape(config.num_seeds, -1).all(axis=1) for part in parts]
    bad = np.flatnonzero(np.any(broken, axis=0)) + config.seed
    if bad.size:
        last = "none was made yet" if good is None else f"of step {good}"
        raise TrainingDivergedError(
            f"the losses or parameters of seeds {', '.join(map(str, bad))} became NaN or infinite "
            f"before step {step}; the last good checkpoint: {last}; try a smaller --learning-rate"
        )


def history(folder: RunFolder, name: str) -> tuple[FloatArray, FloatArray]:
    """Steps [p] and a figure of every evaluation [seeds, p]; NaN where it was not measured."""
    records = folder.read_metrics()
    steps = np.asarray([record["step"] for record in records], np.float64)
    seeds = len(records[0]["returns"])
    missing = [np.nan] * seeds
    values = np.asarray([record.get(name, missing) for record in records], np.float64)
    return steps, values.T


def _summary(config: AgentConfig, folder: RunFolder, own: OwnParts) -> dict[str, Any]:
    records = folder.read_metrics()
    last = records[-1]
    measures = ("subspace_distance", "effective_rank", "dormant_share", "probe_error")
    seconds = last["seconds"]
    name = own.name if own.auxiliary is not None else str(config.auxiliary.objective.name)
    auxiliary = name if config.auxiliary.weight > 0.0 else None
    return {
        "environment": config.environment,
        "auxiliary": auxiliary,
        "agents": config.num_seeds,
        "steps": config.steps,
        "seconds": seconds,
        "steps_per_second": config.steps * config.num_seeds / seconds if seconds else None,
        "final_returns": last["returns"],
        "final_return": aggregate(last["returns"]),
        "mean_return": aggregate(history(folder, "returns")[1][:, 1:].mean(axis=1)),
        **{name: last[name] for name in measures if name in last},
    }


def load_agent_config(folder: RunFolder) -> AgentConfig:
    """The configuration of a run of agents.

    Raises:
        InputError: If the folder holds another kind of run, or one with parts of the user's own.
    """
    require(folder.kind == KIND, f"a run of agents in {folder.path}", f"kind {folder.kind!r}")
    stored = dict(folder.config)
    own = {name: stored.pop(name, None) for name in _BESIDE_CONFIG}["own"]
    require(own is None, "agents that their configuration describes", own)
    return from_json(AgentConfig, stored)


def load_agents(
    folder: RunFolder, config: AgentConfig, *, devices: Sequence[jax.Device] | None = None
) -> tuple[Loop, LoopState, int]:
    """A run's loop, its newest checkpoint, and the step that is of; the caller closes the loop.

    Raises:
        InputError: If there is no readable checkpoint.
    """
    with contextlib.closing(Checkpoints(folder.path / CHECKPOINTS)) as checkpoints:
        step = checkpoints.latest_step()
        if step is None:
            raise InputError(f"expected a checkpoint in {checkpoints.path}, got none")
        loop = make_loop(config, devices=devices)
        return loop, loop.put(checkpoints.restore(step, jax.device_get(loop.init()))), step
