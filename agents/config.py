"""Configurations of agents' runs: environment, torso, agent, memory, auxiliary task."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.agents.auxiliary import AuxiliaryConfig, AuxiliaryTask
from rlreps.agents.dqn import DQN, DQNConfig
from rlreps.agents.features import FeatureConfig, WithFitted
from rlreps.agents.network import QNetwork
from rlreps.agents.prior import Prior
from rlreps.agents.replay import ReplayConfig
from rlreps.agents.tasks import make_auxiliary_task
from rlreps.config import checked, import_extra, interval, positive, with_sizes
from rlreps.encoders import MLP, Convolutional, Encoder
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.envs.observations import Observation, Position
from rlreps.errors import require, require_memory, require_positive
from rlreps.numerics import largest_even_share
from rlreps.successor.fitting.basis import MOST_NUMBERS
from rlreps.worlds.environment import TableEnvironment
from rlreps.worlds.from_gymnax import PREFIX
from rlreps.worlds.from_gymnax import GymnaxEnvironment as GymnaxEnvironment
from rlreps.worlds.from_gymnax import gymnax_environment as gymnax_environment
from rlreps.worlds.named import load

PUDDLE_WORLD = "puddle-world"
"""The environment compiled together with the agent; an arena may follow after a colon."""

WORLD = "world:"
"""Prefix of the names of worlds."""

DEFAULT_ARENA = "sutton"

JOINT_UNITS = 64
"""Hidden units of the network that reads features of images together with fitted features."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """A training run of agents that differ only in their seeds.

    Attributes:
        environment: ``puddle-world``, ``puddle-world:ARENA``, ``world:NAME`` or ``gymnax:ID``
            (compiled), the id of a Gymnasium environment, or ``dm_env:MODULE:FUNCTION``, a function
            without arguments.
        observation: What agents see of PuddleWorld.
        goal: Where PuddleWorld's episodes end: a disc (x, y, radius); None is the arena's own goal,
            or the corner x + y >= 1.9.
        encoder: The torso.
        num_features: d, number of features of the torso; values are linear in the features.
        features: Features fitted to replay, which the torso reads beside the observation.
        dqn: The agent.
        replay: Its memory.
        auxiliary: Its auxiliary task.
        num_envs: Number of environments in which each agent acts simultaneously.
        max_episode_steps: Steps after which an episode is truncated if the environment has no limit
            of its own. Most of Gymnasium's environments have a limit.
        steps: Environment steps of each agent; a reset after an episode counts as one.
        evaluate_every: Environment steps between evaluations; the last one follows the last step.
        evaluation_episodes: Episodes of an evaluation, apart from training.
        checkpoint_every: Environment steps between checkpoints, a multiple of ``evaluate_every``;
            None is the largest multiple within a quarter of the run, or ``evaluate_every``.
            After one, those due within a second, or within 19 times as long as it took to write,
            are left out. Environments of Gymnasium and dm_env begin new episodes every
            ``checkpoint_every`` steps, since their state cannot be saved.
        seed: Seed of the first agent.
        num_seeds: Number of agents, with seeds ``seed`` ... ``seed + num_seeds - 1``.
    """

    environment: str = PUDDLE_WORLD
    observation: Observation = dataclasses.field(default=Position())
    goal: tuple[float, float, float] | None = None
    encoder: Encoder = dataclasses.field(default=MLP(hidden=(64, 64)))
    num_features: int = positive(32)
    features: FeatureConfig = dataclasses.field(default_factory=FeatureConfig)
    dqn: DQNConfig = dataclasses.field(default_factory=DQNConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    auxiliary: AuxiliaryConfig = dataclasses.field(default_factory=AuxiliaryConfig)
    num_envs: int = positive(4)
    max_episode_steps: int = positive(200)
    steps: int = positive(100_000)
    evaluate_every: int = positive(5_000)
    evaluation_episodes: int = positive(32)
    checkpoint_every: int | None = None
    seed: int = interval("[0, 2**31)", 0)
    num_seeds: int = positive(1)

    def __post_init__(self) -> None:
        require(
            not (self.dqn.freeze_torso and self.auxiliary.weight > 0.0),
            "no auxiliary task where the torso is frozen",
            self.auxiliary.weight,
        )
        require(self.encoder.name != "tabular", "a torso of observations", self.encoder.name)
        period, warmup = self.dqn.steps_per_update, self.dqn.warmup
        for name, value, unit, base in (
            ("steps_per_update", period, "num_envs", self.num_envs),
            ("warmup", warmup, "steps_per_update", period),
            ("evaluate_every", self.evaluate_every, "steps_per_update", period),
            ("steps", self.steps, "steps_per_update", period),
            ("checkpoint_every", self.checkpoint_period, "evaluate_every", self.evaluate_every),
        ):
            fits = value >= 1 and value % base == 0
            require(fits, f"{name} to be a multiple of {unit}={base}, which may be set too", value)
        require(warmup < self.steps, f"a warmup of less than the run's {self.steps} steps", warmup)
        # The shortest memory of one environment must hold a sequence, and the warm-up must fill it.
        longest = self.sequence_length + 1
        least = longest * self.num_envs
        why = f"a sequence of {longest} for each of {self.num_envs} environments"
        capacity = self.replay.capacity
        require(capacity >= least, f"a replay capacity of at least {least} rows, {why}", capacity)
        require(warmup >= least, f"a warmup of at least {least} steps, {why}", warmup)

    @property
    def checkpoint_period(self) -> int:
        """Environment steps between checkpoints."""
        quarter = self.steps // 4 // self.evaluate_every * self.evaluate_every
        every = self.checkpoint_every
        return max(quarter, self.evaluate_every) if every is None else every

    @property
    def sequence_length(self) -> int:
        """Rows of the longest sequence that is drawn from replay."""
        horizon = self.auxiliary.length if self.auxiliary.weight > 0.0 else 1
        return max(self.dqn.n_step + 1, horizon)

    @property
    def seeds(self) -> range:
        """Seeds of the agents."""
        return range(self.seed, self.seed + self.num_seeds)

    @property
    def num_updates(self) -> int:
        """Updates of each agent."""
        return (self.steps - self.dqn.warmup) // self.dqn.steps_per_update


def find_arena_name(config: AgentConfig) -> str | None:
    """Name the PuddleWorld arena in which agents act; None for any other environment."""
    name, _, arena = config.environment.partition(":")
    return arena or DEFAULT_ARENA if name == PUDDLE_WORLD else None


def load_puddle_world(config: AgentConfig) -> PuddleWorld | None:
    """Load the PuddleWorld, with its task, that a configuration names; None for any other.

    Raises:
        InputError: For an unknown or invalid arena, or PuddleWorld's goal or observation in another
            environment.
    """
    arena, observation, goal = find_arena_name(config), config.observation, config.goal
    if arena is None:
        require(goal is None, f"a goal for {PUDDLE_WORLD} alone", config.environment)
        seen = observation == Position()
        require(seen, f"a kind of observation for {PUDDLE_WORLD} alone", config.environment)
        return None
    # A file may set its own observation, goal and limit of steps.
    changes: dict[str, Any] = {} if observation == Position() else {"observation": observation}
    changes |= {} if goal is None else {"goal": goal}
    world = load_arena(arena, **changes).with_task()
    return dataclasses.replace(world, max_steps=world.max_steps or config.max_episode_steps)


def load_compiled_environment(
    config: AgentConfig,
) -> PuddleWorld | GymnaxEnvironment | TableEnvironment | None:
    """Load the environment that is compiled together with agents; None if it runs on the host.

    Raises:
        InputError: As ``load_puddle_world``, ``gymnax_environment`` and ``worlds.load``.
    """
    world = load_puddle_world(config)
    name = config.environment
    if name.startswith(WORLD):
        return load(name.removeprefix(WORLD)).environment(config.max_episode_steps)
    return gymnax_environment(name) if name.startswith(PREFIX) else world


def describe_environment(config: AgentConfig) -> dict[str, Any]:
    """Describe the arena or the world that a configuration names, whose file may change.

    Returns:
        ``arena``: the settings of PuddleWorld with its task, None for others; and ``world_digest``,
        for an enumerated world alone.
    """
    arena, name = load_puddle_world(config), config.environment
    described = {"arena": None if arena is None else arena_settings(arena)}
    if name.startswith(WORLD):
        return {**described, "world_digest": load(name.removeprefix(WORLD)).digest}
    return described


def make_agent(
    config: AgentConfig,
    observation_shape: Sequence[int],
    num_actions: int,
    *,
    observation_dtype: Any = jnp.float32,
    torso: Encoder | None = None,
    auxiliary: AuxiliaryTask | None = None,
    prior: Prior | None = None,
) -> DQN:
    """Make the agent that a configuration describes.

    Args:
        config: The configuration.
        observation_shape: Shape of one observation.
        num_actions: Discrete actions, numbered from 0.
        observation_dtype: Dtype of observations; bytes are kept as bytes.
        torso: A user's own encoder, with ``config.num_features`` outputs. If the configuration has
            fitted features, its inputs are observations followed by the fitted features.
        auxiliary: A user's own auxiliary task, weighed by the configuration's weight.
        prior: Action values with which the agent begins, in units of scaled rewards.

    Raises:
        InputError: For images without a torso that takes them, an auxiliary task that has no weight
            or does not fit observations or features, or a prior of other actions or another
            discount.
    """
    require_positive("num_actions", num_actions)
    import_extra("rlax", "agents", "agents")
    observation = jax.ShapeDtypeStruct(tuple(observation_shape), observation_dtype)
    encoder = make_torso(config, observation.shape, torso)
    weight = config.auxiliary.weight
    if auxiliary is not None:
        require(weight > 0.0, "an auxiliary weight > 0 for the auxiliary task", weight)
        # The memory and the warm-up were checked for sequences of this length.
        most = config.sequence_length
        fits = f"an auxiliary task of at most {most} rows a sequence (horizon)"
        require(auxiliary.length <= most, fits, auxiliary.length)
    head = None
    if weight > 0.0 and config.auxiliary.head:
        size = config.num_features
        head = MLP(size, num_inputs=size, hidden=config.auxiliary.head)
    if prior is not None:
        count = prior.num_actions
        require(count == num_actions, f"a prior of {num_actions} actions", count)
        discount, given = config.dqn.discount, np.unique(prior.discount).tolist()
        require(np.allclose(given, discount), f"a prior of the discount {discount}", given)
    network = QNetwork(encoder, config.num_features, num_actions, head, prior)
    if auxiliary is None and weight > 0.0:
        auxiliary = make_auxiliary_task(
            dataclasses.replace(config.auxiliary, head=()),  # The head is part of the network.
            num_features=config.num_features,
            observation_shape=observation.shape,
            observation_dtype=observation_dtype,
            num_actions=num_actions,
            encoder=network.auxiliary_encoder,
            learning_rate=config.dqn.learning_rate,
        )
    options = config.dqn
    if prior is not None:
        # Random actions would discard the policy with which the agent begins.
        options = dataclasses.replace(options, epsilon_start=options.epsilon_end)
    return DQN(
        options=options,
        network=network,
        observation=observation,
        replay=config.replay,
        num_envs=config.num_envs,
        num_updates=config.num_updates,
        auxiliary=auxiliary,
        auxiliary_options=config.auxiliary,
    )


def make_torso(
    config: AgentConfig, observation_shape: Sequence[int], network: Encoder | None = None
) -> Encoder:
    """Make the torso that a configuration names, with ``network`` in place of its encoder if given.

    Raises:
        InputError: If observations are not vectors, or not images for a convolutional torso, or too
            large for fitted features.
    """
    shape, name, fits = tuple(observation_shape), config.encoder.name, config.features
    fitted = 0 if fits.kind == "none" else fits.num_components
    if fitted and fits.basis == "auto":
        # Observations of PuddleWorld that have bins are equal within a cell.
        world = load_puddle_world(config)
        bins = None if world is None else getattr(world.observation, "bins", None)
        size = fits.basis_size if bins is None else max(fits.basis_size, bins**2)
        fits = dataclasses.replace(
            fits, basis="fourier" if bins is None else "counted", basis_size=size
        )
    if fitted and fits.basis == "fourier":
        numbers = f"observations of at most {MOST_NUMBERS:,} numbers for random Fourier features"
        require(math.prod(shape) <= MOST_NUMBERS, numbers, math.prod(shape))
    if network is None:
        if isinstance(config.encoder, Convolutional):
            # A picture without channels has one.
            shape = (*shape, 1) if len(shape) == 2 else shape
            require(len(shape) == 3, f"observations that are images, for the torso {name}", shape)
        else:
            expected = f"observations that are vectors, for the torso {name}"
            require(len(shape) == 1, f"{expected}; images need a convolutional one", shape)
        network = with_sizes(
            config.encoder,
            frame_shape=shape,
            num_inputs=shape[0] + fitted,
            num_states=1,
            num_features=config.num_features,
        )
    if not fitted:
        return network
    joint = None
    if len(shape) == 3:
        size = config.num_features
        joint = MLP(size, num_inputs=size + fitted, hidden=(JOINT_UNITS,))
    return WithFitted(network=network, joint=joint, config=fits, num_inputs=math.prod(shape))


def require_memory_for_agents(
    agent: DQN, config: AgentConfig, devices: Sequence[jax.Device] | None = None
) -> None:
    """Raise an ``InputError`` if what the agents of one device hold cannot fit into memory."""
    seeds = config.num_seeds
    if devices is not None and load_compiled_environment(config) is not None:
        seeds //= len(largest_even_share(devices, seeds))
    state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
    network, auxiliary = agent.network, agent.auxiliary
    drawn, cumulants = config.dqn.batch_size * (config.dqn.n_step + 1), 0
    if auxiliary is not None:
        rows = auxiliary.sequences * auxiliary.length
        drawn, cumulants = drawn + rows, rows * getattr(auxiliary, "num_tasks", 0)
    row = _bytes_of(state.replay) // state.replay.action.size
    seen = 4 * (agent.observation.size + network.num_features + network.num_actions)
    played = seen * config.evaluation_episodes
    held = _bytes_of(state) + drawn * row + 4 * cumulants + played
    require_memory(
        f"the state of {seeds:,} agents, replay, an update and an evaluation included", held * seeds
    )
    # Counted features solve sparse equations; the state has their table.
    if isinstance(network.torso, WithFitted) and network.torso.config.basis == "fourier":
        unknowns = network.torso.config.basis_size * network.num_actions
        what = f"{unknowns:,} unknowns (feature_basis_size for each action)"
        require_memory(what, 24 * unknowns**2)


def _bytes_of(tree: Any) -> int:
    # Python's integers do not overflow.
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
