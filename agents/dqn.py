"""Deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

One agent as pure functions, read from top to bottom: its options, its network, how it acts, what it
remembers, and how it learns from what it remembers. Whatever else shapes its torso comes in as an
``AuxiliaryTask``. Everything is for one agent; trainers ``vmap``.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.agents.auxiliary import AuxiliaryConfig, AuxiliaryTask, as_inputs, make_auxiliary_task
from rlreps.agents.replay import (
    Replay,
    ReplayConfig,
    Rows,
    add,
    draw_prioritised,
    draw_uniform,
    init_replay,
    set_priorities,
    transitions,
)
from rlreps.config import with_sizes
from rlreps.encoders import ENCODERS, MLP, Convolutional, Encoder, FunctionEncoder
from rlreps.envs.observations import Observation, Position
from rlreps.errors import (
    InputError,
    require,
    require_choice,
    require_interval,
    require_positive,
)
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import optimizer_step
from rlreps.training.optimizers import SCHEDULES, Schedule

_DECAY = 0.99
"""Of running averages, an update."""

TORSOS: dict[str, type[Encoder]] = {**ENCODERS, "convolutional": Convolutional}
"""Name → class of the torsos that a configuration can name; images need the convolutional one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """A deep Q-network (Mnih et al. 2015), double by default (van Hasselt et al. 2016).

    Three-step returns (Hessel et al. 2018) and a learning rate that falls to zero keep what agents
    have learned: in CartPole-v1, 20,000 steps, one-step agents at a constant rate reached a mean
    evaluation of 417 and fell to 171; these stayed between 460 and 500 (six seeds each).

    Attributes:
        double: Choose the next action by the online network and value it by the target network.
        n_step: Rewards of a transition before its value is bootstrapped.
        discount: γ, in [0, 1).
        learning_rate: Adam's, at the first update.
        schedule: What becomes of it over the run: ``constant``, or ``cosine`` or ``linear`` decay
            to zero.
        adam_epsilon: Adam's ε.
        max_gradient_norm: Global norm beyond which gradients are scaled down.
        huber_delta: Where the loss of a temporal-difference error turns from square to linear.
        target_every: Updates between changes of the target network.
        target_rate: Share of the way to the online parameters that it then goes, in (0, 1]; 1
            copies them.
        reward_scale: What rewards are multiplied by before they are learned from.
        batch_size: Transitions of an update.
        warmup: Environment steps before learning starts.
        steps_per_update: Environment steps from one update to the next.
        epsilon_start: Share of random actions until learning starts.
        epsilon_end: Share of random actions in the end.
        epsilon_steps: Environment steps after the warm-up over which it falls, linearly.
        freeze_torso: Learn the values' read-out alone, from features as they are.
    """

    double: bool = True
    n_step: int = 3
    discount: float = 0.99
    learning_rate: float = 1e-3
    schedule: Schedule = "linear"
    adam_epsilon: float = 1e-5
    max_gradient_norm: float = 10.0
    huber_delta: float = 1.0
    target_every: int = 250
    target_rate: float = 1.0
    reward_scale: float = 1.0
    batch_size: int = 64
    warmup: int = 1_000
    steps_per_update: int = 4
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    freeze_torso: bool = False

    def __post_init__(self) -> None:
        counts = ("n_step", "target_every", "batch_size", "warmup", "steps_per_update")
        for name in (*counts, "epsilon_steps"):
            require_positive(name, getattr(self, name))
        require_interval("discount", self.discount, "[0, 1)")
        sizes = ("learning_rate", "adam_epsilon", "max_gradient_norm", "huber_delta")
        for name in (*sizes, "reward_scale"):
            require_interval(name, getattr(self, name), "(0, inf)")
        require_choice("schedule", self.schedule, get_args(Schedule))
        require_interval("target_rate", self.target_rate, "(0, 1]")
        for name in ("epsilon_start", "epsilon_end"):
            require_interval(name, getattr(self, name), "[0, 1]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """A training run of agents that differ in their seeds alone.

    Attributes:
        environment: ``puddle-world`` or ``puddle-world:ARENA`` (compiled), the id of a Gymnasium
            environment, or ``dm_env:MODULE:FUNCTION`` for what a function without arguments makes.
        observation: What agents see of PuddleWorld.
        goal: Where PuddleWorld's episodes end: a disc (x, y, radius); None is the arena's own goal,
            or the corner x + y >= 1.9.
        encoder: The torso.
        num_features: d, its features; values are linear in them.
        normalise_features: Whether the values' read-out sees each state's features divided by the
            root of their mean square (``QNetwork``).
        dqn: The agent.
        replay: Its memory.
        auxiliary: Its auxiliary task.
        num_envs: Environments that each agent acts in at a time.
        max_episode_steps: Steps after which an episode is cut where the environment has no limit
            of its own, as those of Gymnasium mostly have.
        steps: Environment steps of each agent.
        evaluate_every: Environment steps between evaluations.
        evaluation_episodes: Episodes of an evaluation, apart from training.
        checkpoint_every: Environment steps between checkpoints, a multiple of ``evaluate_every``;
            None is the largest such within a quarter of the run, or ``evaluate_every``.
            Environments other than PuddleWorld begin new episodes there, as their state cannot be
            saved.
        seed: Seed of the first agent.
        num_seeds: Agents, with seeds ``seed`` ... ``seed + num_seeds - 1``.
    """

    environment: str = "puddle-world"
    observation: Observation = dataclasses.field(default=Position())
    goal: tuple[float, float, float] | None = None
    encoder: Encoder = dataclasses.field(default=MLP(hidden=(64, 64)))
    num_features: int = 32
    normalise_features: bool = False
    dqn: DQNConfig = dataclasses.field(default_factory=DQNConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    auxiliary: AuxiliaryConfig = dataclasses.field(default_factory=AuxiliaryConfig)
    num_envs: int = 4
    max_episode_steps: int = 200
    steps: int = 100_000
    evaluate_every: int = 5_000
    evaluation_episodes: int = 32
    checkpoint_every: int | None = None
    seed: int = 0
    num_seeds: int = 1

    def __post_init__(self) -> None:
        counts = ("num_features", "num_envs", "max_episode_steps", "steps", "num_seeds")
        for name in (*counts, "evaluate_every", "evaluation_episodes"):
            require_positive(name, getattr(self, name))
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        episodes = self.num_seeds * self.evaluation_episodes
        for name, value in (("num_seeds", self.num_seeds), ("evaluation episodes", episodes)):
            require(value <= 10**6, f"{name} <= 1,000,000 of all agents together", value)
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
            ("steps", self.steps, "evaluate_every", self.evaluate_every),
            ("checkpoint_every", self.checkpoint_period, "evaluate_every", self.evaluate_every),
        ):
            fits = value >= 1 and value % base == 0
            require(fits, f"{name} to be a multiple of {unit} ({base})", value)
        require(warmup < self.steps, f"a warmup of less than the run's {self.steps} steps", warmup)
        # The shortest memory of one environment must hold a sequence, and warm-up fill it.
        longest = self.sequence_length + 1
        least = longest * self.num_envs
        why = f"a sequence of {longest} for each of {self.num_envs} environments"
        capacity = self.replay.capacity
        require(capacity >= least, f"a replay capacity of at least {least} rows, {why}", capacity)
        require(warmup >= least, f"a warmup of at least {least} steps, {why}", warmup)
        fixed = self.auxiliary.weight > 0.0 and self.auxiliary.remembered == "warmup"
        most = f"a replay capacity >= {self.steps}, all steps, to remember those of the warmup"
        require(not fixed or capacity >= self.steps, most, capacity)

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


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """Values Q(s, ·) = φ(s)ᵀW + b, linear in the features φ of a torso.

    Parameters are ``{"torso": ..., "head": {"weights": [d, a], "biases": [a]}}``. Observations that
    are bytes, as of images, are divided by 255 on their way in.

    With ``normalised``, the head reads √d φ(s) / ‖φ(s)‖ (RMSNorm; Zhang & Sennrich 2019), so that
    features that grow do not multiply its steps. Values are then linear in directions of features,
    no longer in the features themselves.

    Attributes:
        torso: The encoder φ.
        num_features: d.
        num_actions: a.
        normalised: Whether the head reads features of mean square 1.
        auxiliary_head: Encoder [b, d] → [b, d] between φ and what an auxiliary task sees, with
            parameters ``auxiliary_head``; None shows it φ itself.
    """

    torso: Encoder
    num_features: int
    num_actions: int
    normalised: bool = False
    auxiliary_head: Encoder | None = None

    def init(self, key: Array) -> Params:
        """Draw parameters."""
        torso_key, head_key = jax.random.split(key)
        scaled = jax.nn.initializers.lecun_normal()
        weights = scaled(head_key, (self.num_features, self.num_actions), jnp.float32)
        head = {"weights": weights, "biases": jnp.zeros((self.num_actions,), jnp.float32)}
        params = {"torso": self.torso.init(torso_key), "head": head}
        if self.auxiliary_head is not None:
            params["auxiliary_head"] = self.auxiliary_head.init(jax.random.fold_in(head_key, 1))
        return params

    def features(self, torso_params: Params, observations: Array) -> Array:
        """Compute features [b, d] of observations [b, ...]."""
        return self.torso.apply(torso_params, as_inputs(observations))

    def values(self, params: Params, observations: Array) -> Array:
        """Compute one value an action [b, a] for observations [b, ...]."""
        head = params["head"]
        features = self.features(params["torso"], observations)
        if self.normalised:
            square = jnp.mean(jnp.square(features), axis=1, keepdims=True)
            features = features * lax.rsqrt(square + float(np.finfo(np.float32).eps))
        values: Array = features @ head["weights"] + head["biases"][None]
        return values

    @property
    def auxiliary_encoder(self) -> Encoder:
        """What an auxiliary task teaches: the torso, with any head of its own behind it."""
        head = self.auxiliary_head
        if head is None:
            return self.torso

        def init(key: Array) -> Params:
            return self.auxiliary_params(self.init(key))

        return FunctionEncoder(init, self.auxiliary_features)

    def auxiliary_params(self, params: Params) -> Params:
        """Return the parameters that an auxiliary task learns: the torso's, with any own head's."""
        if self.auxiliary_head is None:
            return params["torso"]
        return {name: params[name] for name in ("torso", "auxiliary_head")}

    def auxiliary_features(self, params: Params, observations: Array) -> Array:
        """Compute what an auxiliary task sees [b, d], of ``auxiliary_params``."""
        if self.auxiliary_head is None:
            return self.features(params, observations)
        features = self.features(params["torso"], observations)
        return self.auxiliary_head.apply(params["auxiliary_head"], features)

    def hidden(self, torso_params: Params, observations: Array) -> list[Array] | None:
        """Compute activations of the torso's hidden layers; None where it does not tell."""
        return self.torso.hidden_activations(torso_params, as_inputs(observations))


class GradientNorms(NamedTuple):
    """Decayed sums of squared norms of two gradients at the torso; their weights are the same.

    Attributes:
        values: Of the temporal-difference loss's, [].
        auxiliary: Of the auxiliary task's, [].
    """

    values: Array
    auxiliary: Array

    @property
    def auxiliary_to_values(self) -> Array:
        """Ratio of the root mean squares, []; between the ends of what single precision squares."""
        least = float(np.finfo(np.float32).tiny)
        # Roots before the quotient, which else can be subnormal, flushed to 0: explicit weights
        # start at 0, and so does the task's gradient.
        values, auxiliary = (jnp.sqrt(jnp.maximum(norm, least)) for norm in self)
        return auxiliary / values


class DQNState(NamedTuple):
    """Everything that an agent learns.

    Attributes:
        params: The online network's parameters.
        target_params: The target network's.
        optimizer: The optimizer's state.
        auxiliary: The auxiliary task's state; () without one.
        norms: Of the gradients of both losses at the torso; () without an auxiliary task.
        updates: Updates so far, [] (int32).
    """

    params: Params
    target_params: Params
    optimizer: Any
    auxiliary: Any
    norms: Any
    updates: Array


class Memory(NamedTuple):
    """Parameters and memory of an agent."""

    learner: DQNState
    replay: Replay


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN:
    """An agent that learns by Q-learning and, on the side, by an auxiliary task.

    Its loss is the mean Huber loss of temporal-difference errors. To this loss's gradient at the
    torso the auxiliary task's is added, times a weight; the values' read-out learns from the first
    alone.

    Attributes:
        config: The run it is for.
        network: Torso and values.
        observation: Shape and dtype of an observation.
        auxiliary: The auxiliary task, if any.
    """

    config: AgentConfig
    network: QNetwork
    observation: jax.ShapeDtypeStruct
    auxiliary: AuxiliaryTask | None = None

    def init(self, key: Array) -> Memory:
        """Make an agent before its first step."""
        network_key, auxiliary_key = jax.random.split(key)
        params = self.network.init(network_key)
        nothing = jnp.zeros((), jnp.float32)
        learner = DQNState(
            params=params,
            target_params=params,
            optimizer=self._optimizer().init(params),
            auxiliary=() if self.auxiliary is None else self.auxiliary.init(auxiliary_key),
            norms=() if self.auxiliary is None else GradientNorms(nothing, nothing),
            updates=jnp.zeros((), jnp.int32),
        )
        empty = init_replay(self.config.replay, self.observation, self.config.num_envs)
        return Memory(learner, empty)

    def epsilon(self, count: Array) -> Array:
        """Compute the share of random actions [] after ``count`` rows of each environment.

        It falls once learning starts: a network that was never updated explores nothing.
        """
        options = self.config.dqn
        steps = (count * self.config.num_envs - options.warmup).astype(jnp.float32)
        share = jnp.clip(steps / options.epsilon_steps, 0.0, 1.0)
        return options.epsilon_start + (options.epsilon_end - options.epsilon_start) * share

    def act(self, params: Params, observations: Array, epsilon: Array, key: Array) -> Array:
        """Choose actions [b] for observations [b, ...]: greedy, but random with probability ε."""
        values = self.network.values(params, observations)
        explore_key, action_key = jax.random.split(key)
        count, num_actions = values.shape
        random = jax.random.randint(action_key, (count,), 0, num_actions, jnp.int32)
        explores = jax.random.uniform(explore_key, (count,), jnp.float32) < epsilon
        return jnp.where(explores, random, jnp.argmax(values, axis=1).astype(jnp.int32))

    def remember(self, memory: Memory, count: Array, rows: Rows) -> Memory:
        """Add one more row of each environment to the memory.

        Args:
            memory: What it has learned and remembers.
            count: Rows that each environment added before, [] (int32).
            rows: [environments, ...].
        """
        length = self.config.dqn.n_step + 1
        return memory._replace(replay=add(memory.replay, count, rows, length))

    def learn(self, memory: Memory, count: Array, key: Array) -> tuple[Memory, Metrics]:
        """Make one update from replayed sequences.

        Args:
            memory: What the agent has learned and remembers.
            count: Rows that each environment has added, [] (int32).
            key: Random key.

        Returns:
            The same after the update, and its losses.
        """
        value_key, auxiliary_key, loss_key = jax.random.split(key, 3)
        replay, options = memory.replay, self.config.replay
        wanted = (value_key, replay, count, self.config.dqn.batch_size, self.config.dqn.n_step + 1)
        if options.prioritised:
            drawn = draw_prioritised(*wanted, options.importance_exponent)
        else:
            drawn = draw_uniform(*wanted)
        task, rows = self.auxiliary, None
        if task is not None:
            held = count
            if self.config.auxiliary.remembered == "warmup":
                held = jnp.minimum(count, self.config.dqn.warmup // self.config.num_envs)
            rows = draw_uniform(auxiliary_key, replay, held, task.sequences, task.length).rows
        learner, errors, metrics = self.update(
            memory.learner, drawn.rows, drawn.weights, rows, loss_key
        )
        if options.prioritised:
            replay = set_priorities(replay, drawn.starts, errors, options.priority_exponent)
        return Memory(learner, replay), metrics

    def update(
        self, state: DQNState, rows: Rows, weights: Array, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[DQNState, Array, Metrics]:
        """Take one step of the optimizer.

        Args:
            state: What the agent has learned.
            rows: Sequences [b, n + 1, ...], no first row of which is ``last``.
            weights: Importance weights [b].
            auxiliary_rows: Sequences for the auxiliary task; None without one.
            key: Random key.

        Returns:
            The new state, temporal-difference errors [b], and metrics.
        """
        gradients, errors, (auxiliary_state, norms), metrics = self.gradients(
            state, rows, weights, auxiliary_rows, key
        )
        params, optimizer_state = optimizer_step(
            self._optimizer(), gradients, state.optimizer, state.params
        )
        updates = state.updates + 1
        options = self.config.dqn
        refresh = updates % options.target_every == 0
        share = jnp.where(refresh, options.target_rate, 0.0)
        target_params = jax.tree.map(
            lambda new, old: share * new + (1.0 - share) * old, params, state.target_params
        )
        learned = DQNState(params, target_params, optimizer_state, auxiliary_state, norms, updates)
        return learned, errors, metrics

    def gradients(
        self, state: DQNState, rows: Rows, weights: Array, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[Params, Array, tuple[Any, Any], Metrics]:
        """Compute the joint gradient; arguments as for ``update``.

        The auxiliary task's is added times the configured weight and, where that is ``relative``,
        divided by the ratio of both gradients' root mean square norms at the torso, running
        averages of decay 0.99 up to this update. That this update counts bounds the gradient that
        is added: whatever came before, it is at most ten weights times as large as its share. Its
        1 % makes the factor depend a little on the rows that it multiplies.

        Returns:
            The gradient, errors [b], the auxiliary task's new state and norms, and metrics, those
            of the auxiliary task under ``auxiliary_`` and their names.
        """
        gradients, (errors, metrics) = jax.grad(self.value_loss, has_aux=True)(
            state.params, state.target_params, rows, weights
        )
        if self.auxiliary is None or auxiliary_rows is None:
            return gradients, errors, (state.auxiliary, state.norms), metrics
        network, options = self.network, self.config.auxiliary
        (loss, (auxiliary_state, reported)), side = jax.value_and_grad(
            self.auxiliary.loss, has_aux=True
        )(
            network.auxiliary_params(state.params),
            network.auxiliary_params(state.target_params),
            network.auxiliary_features,
            auxiliary_rows,
            state.auxiliary,
            key,
        )
        added = side if network.auxiliary_head is not None else {"torso": side}
        squares = GradientNorms(*(_squared_norm(of["torso"]) for of in (gradients, added)))
        norms = jax.tree.map(lambda old, new: _DECAY * old + new, state.norms, squares)
        ratio = norms.auxiliary_to_values
        factor = options.weight / ratio if options.relative else jnp.float32(options.weight)
        joint = {
            name: jax.tree.map(lambda own, other: own + factor * other, gradients[name], part)
            for name, part in added.items()
        }
        # In one type: a trainer averages them.
        reported = {
            f"auxiliary_{name}": jnp.asarray(value, jnp.float32) for name, value in reported.items()
        }
        metrics = {**metrics, **reported, "auxiliary_loss": loss, "gradient_ratio": ratio}
        return {**gradients, **joint}, errors, (auxiliary_state, norms), metrics

    def value_loss(
        self, params: Params, target_params: Params, rows: Rows, weights: Array
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """Compute the mean Huber loss [], and with it errors [b] and metrics; as for ``update``."""
        errors = self.errors(params, target_params, rows)
        huber = _rlax().huber_loss(errors, self.config.dqn.huber_delta)
        value_loss = jnp.mean(weights * huber)
        return value_loss, (errors, {"value_loss": value_loss})

    def errors(self, params: Params, target_params: Params, rows: Rows) -> Array:
        """Compute temporal-difference errors [b] of sequences [b, n + 1, ...]."""
        options = self.config.dqn
        step = transitions(rows, options.discount)
        if options.freeze_torso:
            # The values are to be fitted to features that stay as they are.
            params = {**params, "torso": lax.stop_gradient(params["torso"])}
        q_tm1 = self.network.values(params, step.observation)
        q_t_target = self.network.values(target_params, step.next_observation)
        rewards = step.reward * options.reward_scale
        # The target is a constant: rlax stops its gradient.
        known: tuple[Array, ...] = (q_tm1, step.action, rewards, step.discount, q_t_target)
        rule = _rlax().q_learning
        if options.double:
            q_t_online = self.network.values(params, step.next_observation)
            rule, known = _rlax().double_q_learning, (*known, q_t_online)
        errors: Array = jax.vmap(rule)(*known)
        return errors

    def _optimizer(self) -> optax.GradientTransformation:
        options = self.config.dqn
        updates = (self.config.steps - options.warmup) // options.steps_per_update
        rate = SCHEDULES[options.schedule](options.learning_rate, updates)
        return optax.chain(
            optax.clip_by_global_norm(options.max_gradient_norm),
            optax.adam(rate, eps=options.adam_epsilon),
        )


def _squared_norm(tree: Params) -> Array:
    """Sum the squares of all numbers of a pytree, []."""
    squares = (jnp.sum(jnp.square(leaf), dtype=jnp.float32) for leaf in jax.tree.leaves(tree))
    return sum(squares, jnp.zeros((), jnp.float32))


def _rlax() -> Any:
    """Import rlax, which takes a second and comes with the extra ``agents`` alone."""
    try:
        import rlax
    except ImportError as error:
        raise InputError(
            f'expected the package rlax for agents, got: {error}; pip install "rlreps[agents]"'
        ) from error
    return rlax


def make_agent(
    config: AgentConfig,
    observation_shape: Sequence[int],
    num_actions: int,
    *,
    observation_dtype: Any = jnp.float32,
    torso: Encoder | None = None,
    auxiliary: AuxiliaryTask | None = None,
) -> DQN:
    """Make the agent that a configuration describes.

    Args:
        config: The configuration.
        observation_shape: Of one observation.
        num_actions: Discrete actions, numbered from 0.
        observation_dtype: Of observations; bytes are kept as bytes.
        torso: An encoder of the user's own, with ``config.num_features`` outputs.
        auxiliary: An auxiliary task of the user's own, weighed by the configuration's weight.

    Raises:
        InputError: For images without a torso that takes them, or an auxiliary task that has no
            weight or does not fit observations or features.
    """
    _rlax()
    observation = jax.ShapeDtypeStruct(tuple(observation_shape), observation_dtype)
    encoder = torso if torso is not None else make_torso(config, observation.shape)
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
    network = QNetwork(encoder, config.num_features, num_actions, config.normalise_features, head)
    if auxiliary is None and weight > 0.0:
        auxiliary = make_auxiliary_task(
            config.auxiliary,
            num_features=config.num_features,
            observation_shape=observation.shape,
            observation_dtype=observation_dtype,
            num_actions=num_actions,
            encoder=network.auxiliary_encoder,
            learning_rate=config.dqn.learning_rate,
        )
    return DQN(config=config, network=network, observation=observation, auxiliary=auxiliary)


def make_torso(config: AgentConfig, observation_shape: Sequence[int]) -> Encoder:
    """Make the torso that a configuration names.

    Raises:
        InputError: If observations are no vectors, or no images for a convolutional torso.
    """
    shape, name = tuple(observation_shape), config.encoder.name
    if isinstance(config.encoder, Convolutional):
        require(len(shape) == 3, f"observations that are images, for the torso {name}", shape)
    else:
        expected = f"observations that are vectors, for the torso {name}"
        require(len(shape) == 1, f"{expected}; images need a convolutional one", shape)
    return with_sizes(
        config.encoder,
        frame_shape=shape,
        num_inputs=shape[0],
        num_states=1,
        num_features=config.num_features,
    )


class Use(enum.IntEnum):
    """Purposes of random keys."""

    NETWORK = 0
    RESET = 1
    ACT = 2
    STEP = 3
    LEARN = 4
    EVALUATE = 5
    MEASURE = 6


def agent_keys(config: AgentConfig) -> Array:
    """Make one key a seed, [seeds]."""
    keys: Array = jax.vmap(jax.random.key)(
        config.seed + jnp.arange(config.num_seeds, dtype=jnp.int32)
    )
    return keys


def keys_for(keys: Array, use: Use, count: int | Array) -> Array:
    """Derive keys [seeds] for one use at one time: no chunk or resume changes them.

    Args:
        keys: ``agent_keys``.
        use: What for.
        count: Rows that each environment had added, or steps; [].
    """
    fold = jax.random.fold_in
    folded: Array = jax.vmap(lambda key: fold(fold(key, use), count))(keys)
    return folded
