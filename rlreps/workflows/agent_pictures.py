"""Pictures of trained agents: an episode, a policy and its values, components, learning curves."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from PIL import Image

from rlreps.agents.agent import Use, agent_keys, keys_for
from rlreps.agents.config import AgentConfig
from rlreps.agents.host_environments import make_host_environments
from rlreps.agents.host_interface import environment_seed
from rlreps.agents.loops import Loop, puddle_world_of
from rlreps.agents.measurement import COMPONENTS, default_ground_truth
from rlreps.agents.networks import Params
from rlreps.envs import PuddleWorld, render_frame
from rlreps.errors import InputError, require
from rlreps.plotting import save_figure
from rlreps.plotting.animation import write_gif
from rlreps.plotting.learning import plot_learning
from rlreps.plotting.policies import plot_policy_and_value, plot_torso_components
from rlreps.runs.folder import RunFolder
from rlreps.subspace import centre_columns, exact_svd
from rlreps.successor.grids import Grid
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.agent_evaluation import ground_truth_of_run
from rlreps.workflows.agent_runs import history, load_agent_config, load_agents

Picture = npt.NDArray[np.uint8]

MEASURES = {
    "returns": "return of an evaluation episode",
    "subspace_distance": "subspace distance to the ground truth",
    "effective_rank": "effective rank of the features",
    "dormant_share": "share of dormant units",
    "probe_error": "value probe: share of variance not explained",
}
"""Figures of a run's metrics → what they are, as a reader wants them."""

_BINS = 50
"""Cells along each axis of the maps of values."""

_MOST_FRAMES = 500
_LARGEST_SIDE = 320
"""Pixels; larger pictures are made smaller, so that an animation is a file to send."""

_HELD = 10
"""Frames for which the last one of an episode stands still."""

_FRAMES_PER_SECOND = 25.0


@dataclasses.dataclass(frozen=True)
class Pictures:
    """What became of the pictures of a run.

    Attributes:
        written: Files.
        notes: Why others were not written, or not in full.
    """

    written: list[Path]
    notes: list[str]


class TrainedAgent(NamedTuple):
    """One agent of a run.

    Attributes:
        loop: The run's loop.
        config: The run's configuration.
        number: Which agent, from 0.
        params: Its network's parameters.
    """

    loop: Loop
    config: AgentConfig
    number: int
    params: Params

    def act(self, observation: Array) -> Array:
        """The greedy action [] for one observation."""
        unused = jax.random.key(0)  # What does not explore draws nothing that counts.
        act = self.loop.agent.dqn.act
        action: Array = act(self.params, observation[None], jnp.zeros(()), unused)[0]
        return action


def render_agents(
    run: Path, out: Path | None = None, *, seed_index: int = 0, store: Path | None = None
) -> Pictures:
    """Draws one agent of a run, and the learning curves of all.

    ``episode.gif`` and ``learning-curves.png``; of PuddleWorld also ``policy-and-value.png`` and,
    where there is a ground truth, ``components.png``.

    Args:
        run: The run's folder.
        out: Folder of the pictures; by default ``figures`` in that of the run.
        seed_index: Which agent, from 0.
        store: Ground truth of the components; None is the run's own, or the released one.

    Raises:
        InputError: If the run or the store cannot be read, or there is no such agent.
    """
    folder = RunFolder(run)
    config = load_agent_config(folder)
    count = config.num_seeds
    require(0 <= seed_index < count, f"a seed index in [0, {count - 1}]", seed_index)
    require(out is None or not out.is_file(), "a folder for the pictures", str(out))
    world, truth = puddle_world_of(config), ground_truth_of_run(folder, config, store)
    loop, state, _ = load_agents(folder, config)
    with contextlib.closing(loop):
        params = jax.tree.map(lambda leaf: leaf[seed_index], state.memory.learner.params)
        agent = TrainedAgent(loop, config, seed_index, params)
        target = folder.figures if out is None else out
        pictures = Pictures([], [])
        _draw_episode(agent, world, target / "episode.gif", pictures)
        if world is not None:
            figure = plot_policy_and_value(world, map_of_values(agent, world))
            pictures.written.append(save_figure(figure, target / "policy-and-value.png"))
            truth = truth if truth is not None else default_ground_truth(config)
            _draw_components(agent, world, truth, target / "components.png", pictures)
    pictures.written.append(draw_learning(folder, target / "learning-curves.png"))
    return pictures


def draw_learning(folder: RunFolder, out: Path) -> Path:
    """Draws returns and every measure of a run over its steps; returns the figure's path."""
    known = folder.read_metrics()[-1]
    tables = {title: history(folder, name)[1] for name, title in MEASURES.items() if name in known}
    return save_figure(plot_learning(history(folder, "returns")[0], tables), out)


def map_of_values(agent: TrainedAgent, world: PuddleWorld, bins: int = _BINS) -> Array:
    """Q of an agent at the cells' centres [bins², actions], in the rewards' own unit.

    NaN inside walls, where nobody ever is.
    """
    centres = jnp.asarray(Grid(bins).centres())
    values = agent.loop.agent.network.values(agent.params, centres) / agent.config.dqn.reward_scale
    blocked = jnp.zeros(len(centres), bool)
    for puddle in world.puddles:
        if puddle.multiplier <= 0.0:
            blocked |= jax.vmap(puddle.shape.depth)(centres) > 0.0
    shown: Array = jnp.where(blocked[:, None], jnp.nan, values)
    return shown


def torso_components(agent: TrainedAgent, truth: GroundTruth) -> npt.NDArray[Any]:
    """Left singular vectors [n, at most 10] of an agent's centred features at all states.

    Raises:
        InputError: If all states have the same features.
    """
    features = agent.loop.agent.network.features(agent.params["torso"], truth.coordinates)
    rank = min(COMPONENTS, *features.shape, truth.principal.basis.shape[1])
    return exact_svd(centre_columns(features), rank, at_most=True).basis


def _draw_components(
    agent: TrainedAgent,
    world: PuddleWorld,
    truth: GroundTruth | None,
    out: Path,
    pictures: Pictures,
) -> None:
    if truth is None:
        pictures.notes.append(
            f"no {out.name}: no ground truth comes with {agent.config.environment}; name a store "
            "of its arena (--store)"
        )
        return
    try:
        learned = torso_components(agent, truth)
    except InputError as problem:
        pictures.notes.append(f"no {out.name}: {problem}")
        return
    figure = plot_torso_components(world, learned, truth.principal.basis)
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
    """Pictures of a greedy episode, one more than are shown where it goes on."""
    step = jax.jit(lambda key, state: world.step(key, state, agent.act(world.observe(state))))
    # Of no evaluation during training, as in ``evaluate_agents``.
    keys = keys_for(agent_keys(agent.config), Use.EVALUATE, agent.config.steps + 1)
    key = keys[agent.number]
    reset_key, times_key = jax.random.split(key)
    state = world.reset(reset_key)
    yield render_frame(world, np.asarray(state.position))
    for time in range(1, _MOST_FRAMES + 1):
        taken = step(jax.random.fold_in(times_key, time), state)
        state = taken.state
        yield render_frame(world, np.asarray(state.position))
        if taken.terminated or taken.truncated:
            return


def _host_frames(agent: TrainedAgent) -> Iterator[Picture]:
    """Pictures of a greedy episode on the host, one more than are shown where it goes on.

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
    """What an environment draws, made smaller where it is large.

    Raises:
        InputError: If a package that it draws with is not installed.
    """
    try:
        picture = render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise InputError(f"expected a package to draw with, got: {error}") from error
    largest = max(picture.shape[:2])
    if largest <= _LARGEST_SIDE:
        return picture
    width, height = (
        max(1, round(side * _LARGEST_SIDE / largest)) for side in (picture.shape[1], len(picture))
    )
    small = Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)
    return np.asarray(small, np.uint8)
