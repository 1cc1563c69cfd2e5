"""Pictures of one agent of a run: an episode, its policy and values, its components."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure
from PIL import Image

from rlreps.agents.config import AgentConfig, load_compiled_environment, load_puddle_world
from rlreps.agents.dqn import DQN
from rlreps.agents.host_environments import HostEnvironments
from rlreps.agents.keys import Use, evaluation_seeds, key_for
from rlreps.agents.metrics import COMPONENTS, default_ground_truth
from rlreps.app.agent_report import CURVES, learning_curves
from rlreps.app.jobs.agents import ground_truth_of_run, load_agent_config, load_agents
from rlreps.envs import PuddleWorld, render_frame
from rlreps.envs.rendering import Picture
from rlreps.errors import InputError, require
from rlreps.files import require_free, write_atomically
from rlreps.losses.base import Params
from rlreps.numerics import make_keys
from rlreps.plotting import plot_components, plot_policy_and_value, save_figure
from rlreps.runs.folder import RunFolder
from rlreps.subspace import centre_columns, exact_svd
from rlreps.successor.measure.grids import Grid
from rlreps.successor.truth.ground_truth import GroundTruth

_BINS = 50
"""Cells along each axis of the maps of values."""

_MAPS, _COMPONENTS, _EPISODE = "policy-and-value.png", "components.png", "episode.gif"

_MOST_FRAMES = 500
_LARGEST_SIDE = 320
"""Most pixels along a side; larger pictures are shrunk to keep files small."""

_SHOWN, _HELD = 40, 400
"""Milliseconds for which a frame is shown, and for which the last frame is shown."""


class TrainedAgent(NamedTuple):
    """One agent of a run.

    Attributes:
        agent: The agent, which all seeds share.
        config: The run's configuration.
        number: Index of the agent, from 0.
        params: Its network's parameters.
    """

    agent: DQN
    config: AgentConfig
    number: int
    params: Params

    def act(self, observation: Array) -> Array:
        """Choose the greedy action [] for one observation."""
        unused = jax.random.key(0)  # Greedy actions use no random draws.
        return self.agent.act(self.params, observation[None], jnp.zeros(()), unused)[0]


def render_agents(
    run_folder: Path,
    out: Path | None = None,
    seed_index: int = 0,
    store: Path | None = None,
    env: str | None = None,
) -> list[Path]:
    """Draw one agent's episode, its policy and components where available, and all curves.

    Writes ``learning-curves.png`` and ``episode.gif``, at most 500 frames of an episode; for
    PuddleWorld also ``policy-and-value.png`` and, with a ground truth, ``components.png``.

    Args:
        run_folder: Folder of the run.
        out: Folder of the pictures; by default figures/ in the run's folder.
        seed_index: Index of the agent, from 0.
        store: Ground truth of the components (PuddleWorld); by default the run's own.
        env: As for ``evaluate``.

    Returns:
        The paths of the pictures.

    Raises:
        InputError: If the run or the store cannot be read, there is no such agent, or the
            environment cannot be drawn, in which case all other pictures have been written.
    """
    if out is not None:
        require_free(out, "pictures", own=(CURVES, _MAPS, _COMPONENTS, _EPISODE))
    # Environments draw into memory. Without a screen, SDL would print warnings on standard error.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    folder = RunFolder(run_folder)
    config = load_agent_config(folder, env)
    count = config.num_seeds
    require(0 <= seed_index < count, f"a seed index in [0, {count - 1}]", seed_index)
    world, truth = load_puddle_world(config), ground_truth_of_run(folder, config, store)
    program, state, _ = load_agents(folder, config)
    target = folder.figures if out is None else out
    written = [save_figure(learning_curves(folder), target / CURVES)]
    with contextlib.closing(program):
        params = jax.tree.map(lambda leaf: leaf[seed_index], state.learner.params)
        agent = TrainedAgent(program.agent, config, seed_index, params)
        if world is not None:
            figure = plot_policy_and_value(world, map_of_values(agent, world))
            written.append(save_figure(figure, target / _MAPS))
            truth = truth if truth is not None else default_ground_truth(config)
            if truth is not None:
                figure = _components(agent, world, truth)
                written.append(save_figure(figure, target / _COMPONENTS))
        play = _host_frames(agent) if world is None else _puddle_world_frames(agent, world)
        written.append(write_gif(target / _EPISODE, [*play]))
    return written


def write_gif(path: Path, frames: Sequence[Picture]) -> Path:
    """Write frames, uint8 [height, width, 3] each, as a GIF that plays for ever."""
    # Without dithering, parts that do not move do not flicker.
    images = [Image.fromarray(each).quantize(dither=Image.Dither.NONE) for each in frames]
    shown = [*[_SHOWN] * (len(images) - 1), _HELD]
    buffer = io.BytesIO()
    images[0].save(
        buffer, format="GIF", save_all=True, append_images=images[1:], duration=shown, loop=0
    )
    return write_atomically(path, buffer.getvalue())


def map_of_values(agent: TrainedAgent, world: PuddleWorld, bins: int = _BINS) -> Array:
    """Compute Q of an agent at the cells' centres [bins², actions], in the rewards' own unit.

    Cells that are not states are NaN, as in maps of components.
    """
    centres = jnp.asarray(Grid(bins).centres())
    network, scale = agent.agent.network, agent.config.dqn.reward_scale
    seen = jax.vmap(world.observe_position)(centres)
    values = network.values(agent.params, seen) / scale
    is_state = jnp.asarray(Grid(bins).within(world).is_state)
    return jnp.where(is_state[:, None], values, jnp.nan)


def _components(agent: TrainedAgent, world: PuddleWorld, truth: GroundTruth) -> Figure:
    """Draw the torso's components in descending variance below the true components.

    The sign of each component follows the true component of the same index; components are not
    matched in any other way.
    """
    seen = jax.vmap(world.observe_position)(jnp.asarray(truth.coordinates))
    features = centre_columns(agent.agent.network.features(agent.params["torso"], seen))
    rank = min(COMPONENTS, *features.shape, truth.principal.basis.shape[1])
    learned = exact_svd(features, rank, at_most=True).basis
    basis = truth.principal.basis[:, : learned.shape[1]]
    cosines = np.sum(learned * basis, axis=0)
    return plot_components(
        {"successor measure": basis, "torso": learned * np.where(cosines < 0.0, -1.0, 1.0)},
        bins=int(truth.settings["bins"]),
        environment=world,
        cosines={"torso": cosines},
    )


def _puddle_world_frames(agent: TrainedAgent, world: PuddleWorld) -> Iterator[Picture]:
    """Draw a greedy episode."""
    step = jax.jit(lambda key, state: world.step(key, state, agent.act(world.observe(state))))
    # No evaluation during training used this key; ``evaluate_agents`` uses it too.
    own = make_keys(agent.config.seeds)[agent.number]
    reset_key, times_key = jax.random.split(key_for(own, Use.EVALUATE, agent.config.steps + 1))
    state = world.reset(reset_key)
    yield render_frame(world, np.asarray(state.position))
    for moment in range(1, _MOST_FRAMES):
        taken = step(jax.random.fold_in(times_key, moment), state)
        state = taken.state
        yield render_frame(world, np.asarray(state.position))
        if taken.terminated or taken.truncated:
            return


def _host_frames(agent: TrainedAgent) -> Iterator[Picture]:
    """Draw a greedy episode on the host.

    Raises:
        InputError: If the environment cannot be drawn.
    """
    config, act = agent.config, jax.jit(agent.act)
    drawn = load_compiled_environment(config) is None
    what = "an environment that can be drawn, which gymnax's games and worlds cannot"
    require(drawn, what, config.environment)
    # The first episode of ``evaluate_agents``.
    seeds = evaluation_seeds(config.seeds[agent.number], config.steps + 1, 1)
    limit = config.max_episode_steps
    with contextlib.closing(
        HostEnvironments(config.environment, 1, max_episode_steps=limit, render=True)
    ) as environments:
        seen: Any = environments.reset(seeds)
        yield _picture(environments.render)
        for _ in range(1, _MOST_FRAMES):
            taken = environments.step(np.asarray(act(jnp.asarray(seen[0])))[None])
            seen = taken.observation
            yield _picture(environments.render)
            if taken.terminated[0] or taken.truncated[0]:
                return


def _picture(render: Callable[[], Picture]) -> Picture:
    """Draw an environment; a large picture is shrunk.

    Raises:
        InputError: If a package that it needs for drawing is not installed.
    """
    try:
        picture = render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise InputError(f"expected a package to draw with, got: {error}") from error
    image = Image.fromarray(picture)
    image.thumbnail((_LARGEST_SIDE,) * 2, Image.Resampling.BOX, reducing_gap=None)
    return np.asarray(image, np.uint8)
