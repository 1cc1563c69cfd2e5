"""Deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

One agent as pure functions, to be read from top to bottom: its options, its state, how it acts and
remembers, how it learns, and its training loop in an environment of pure JAX. Its values are a
``QNetwork``; an ``AuxiliaryTask`` may also train the torso. Everything is for one agent; trainers
``vmap`` over the axis ``AGENTS``.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.agents.auxiliary import AuxiliaryConfig, AuxiliaryTask, GradientNorms
from rlreps.agents.keys import Use, key_for
from rlreps.agents.network import QNetwork
from rlreps.agents.replay import (
    ReplayConfig,
    Rows,
    Transitions,
    add,
    draw,
    draw_transitions,
    init_replay,
)
from rlreps.config import checked, interval, positive
from rlreps.envs.core import Environment, TimeStep, step_or_reset
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit, optimizer_step
from rlreps.training.optimizers import SCHEDULES, Schedule

AGENTS = "agents"
"""Axis over which trainers ``vmap`` an agent's training loop."""

SUMS = ("episodes", "returns")
"""Metrics of training that are sums; the others are means over updates."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """A deep Q-network (Mnih et al. 2015), double by default (van Hasselt et al. 2016).

    Three-step returns (Hessel et al. 2018) and a learning rate that falls to zero keep what agents
    have learned. In CartPole-v1, 20,000 steps, one-step agents at a constant rate reached a mean
    evaluation of 417 and fell to 171. With the defaults, agents reached 500 and ended at 467 (six
    seeds each).

    Attributes:
        double: Choose the next action by the online network and value it by the target network.
        n_step: Number of rewards in a transition before its value is bootstrapped.
        discount: γ, in [0, 1).
        learning_rate: Adam's learning rate at the first update.
        schedule: Learning rate over the run: ``constant``, or ``cosine`` or ``linear`` decay to
            zero.
        adam_epsilon: Adam's ε.
        max_gradient_norm: Global norm above which gradients are scaled down.
        huber_delta: Temporal-difference error at which the loss turns from quadratic to linear.
        target_every: Updates between changes of the target network.
        target_rate: Share of the way to the online parameters that the target network moves at each
            change, in (0, 1]; 1 copies the parameters.
        reward_scale: Factor of rewards in learning.
        batch_size: Transitions of an update.
        warmup: Environment steps before learning starts.
        steps_per_update: Environment steps from one update to the next.
        epsilon_start: Share of random actions until learning starts, without a prior.
        epsilon_end: Share of random actions at the end.
        epsilon_steps: Environment steps after the warm-up over which the share falls linearly.
        freeze_torso: Learn only the values' head, from fixed features.
    """

    double: bool = True
    n_step: int = positive(3)
    discount: float = interval("[0, 1)", 0.99)
    learning_rate: float = interval("(0, inf)", 1e-3)
    schedule: Schedule = "linear"
    adam_epsilon: float = interval("(0, inf)", 1e-5)
    max_gradient_norm: float = interval("(0, inf)", 10.0)
    huber_delta: float = interval("(0, inf)", 1.0)
    target_every: int = positive(250)
    target_rate: float = interval("(0, 1]", 1.0)
    reward_scale: float = interval("(0, inf)", 1.0)
    batch_size: int = positive(64)
    warmup: int = positive(1_000)
    steps_per_update: int = positive(4)
    epsilon_start: float = interval("[0, 1]", 1.0)
    epsilon_end: float = interval("[0, 1]", 0.05)
    epsilon_steps: int = positive(10_000)
    freeze_torso: bool = False


class DQNState(NamedTuple):
    """Everything that an agent learns.

    Attributes:
        params: The online network's parameters.
        target_params: The target network's learned parameters (``QNetwork.split``); its fixed ones
            are those of the online network.
        optimizer: The optimizer's state.
        auxiliary: The auxiliary task's state; () without one.
        norms: Norms of the gradients of both losses at the torso; () without an auxiliary task.
        updates: Number of updates so far, [] (int32).
    """

    params: Params
    target_params: Params
    optimizer: Any
    auxiliary: Any
    norms: Any
    updates: Array


class Acting(NamedTuple):
    """State of an agent in its environments; leading axis [environments].

    Attributes:
        states: The environments' states; on the host, the actions chosen for ``observations``.
        observations: What the agent sees.
        ended: Whether the observation is the last of an episode: the next action is then ignored
            and an episode begins.
        returns: Undiscounted sum of the episode's rewards so far.
    """

    states: Any
    observations: Array
    ended: Array
    returns: Array


class AgentState(NamedTuple):
    """The complete state of an agent; it resumes exactly from a checkpoint.

    Attributes:
        learner: Everything that it has learned.
        replay: Its memory.
        acting: Its state in the environments; () before it has met one.
    """

    learner: DQNState
    replay: Rows
    acting: Any


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN:
    """An agent that learns by Q-learning and, in addition, by an auxiliary task.

    The loss is the mean Huber loss of temporal-difference errors. At the torso, the auxiliary
    task's gradient times a weight is added to the gradient of this loss; the values' head learns
    from this loss alone.

    Attributes:
        options: Its options.
        network: Torso and values.
        observation: Shape and dtype of an observation.
        replay: Options of its memory.
        num_envs: Number of environments in which it acts simultaneously.
        num_updates: Updates of its whole training, over which the learning rate falls.
        auxiliary: The auxiliary task, if any.
        auxiliary_options: Weight of the auxiliary task.
    """

    options: DQNConfig
    network: QNetwork
    observation: jax.ShapeDtypeStruct
    replay: ReplayConfig
    num_envs: int
    num_updates: int
    auxiliary: AuxiliaryTask | None = None
    auxiliary_options: AuxiliaryConfig = dataclasses.field(default_factory=AuxiliaryConfig)

    def init(self, key: Array) -> AgentState:
        """Make an agent that has not met its environments."""
        network_key, auxiliary_key = jax.random.split(key)
        params = self.network.init(network_key)
        learned, nothing = self.network.split(params)[0], jnp.zeros((), jnp.float32)
        learner = DQNState(
            params=params,
            target_params=learned,
            optimizer=self._optimizer().init(learned),
            auxiliary=() if self.auxiliary is None else self.auxiliary.init(auxiliary_key),
            norms=() if self.auxiliary is None else GradientNorms(nothing, nothing),
            updates=jnp.zeros((), jnp.int32),
        )
        return AgentState(learner, init_replay(self.replay, self.observation, self.num_envs), ())

    def epsilon(self, count: Array) -> Array:
        """Compute the share of random actions [] after ``count`` rows of each environment.

        It falls only once learning starts: greedy actions of an untrained network do not explore.
        """
        options = self.options
        steps = (count * self.num_envs - options.warmup).astype(jnp.float32)
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

    def explore(self, params: Params, observations: Array, count: Array, key: Array) -> Array:
        """Choose actions [environments] after ``count`` rows of each, by the agent's own key."""
        return self.act(params, observations, self.epsilon(count), key_for(key, Use.ACT, count))

    def remember(
        self, state: AgentState, actions: Array, taken: TimeStep, count: Array
    ) -> tuple[AgentState, Metrics]:
        """Add one more row of each environment to the memory.

        Args:
            state: The current state.
            actions: The actions taken, [environments].
            taken: Their outcomes, [environments, ...].
            count: Rows that each environment added before, [] (int32).

        Returns:
            The new state, and the ``SUMS``: episodes that ended, and their undiscounted returns.
        """
        acting = state.acting
        rows = Rows(acting.observations, actions, taken.reward, taken.terminated, acting.ended)
        replay = add(state.replay, count, rows)
        returns = acting.returns + taken.reward
        ended = taken.terminated | taken.truncated
        metrics = {
            "episodes": jnp.sum(ended, dtype=jnp.float32),
            "returns": jnp.sum(jnp.where(ended, returns, 0.0)),
        }
        acting = Acting(taken.state, taken.observation, ended, jnp.where(ended, 0.0, returns))
        return AgentState(state.learner, replay, acting), metrics

    # Learning.

    def learn(self, state: AgentState, begun: Array, key: Array) -> tuple[AgentState, Metrics]:
        """Make the update after a period that began after ``begun`` rows, and return its losses."""
        key, count = key_for(key, Use.LEARN, begun), begun + self.period
        value_key, auxiliary_key, loss_key = jax.random.split(key, 3)
        replay, options = state.replay, self.options
        batch, steps = options.batch_size, options.n_step
        drawn = draw_transitions(value_key, replay, count, batch, steps, options.discount)
        task, rows = self.auxiliary, None
        if task is not None:
            rows = draw(auxiliary_key, replay, count, task.sequences, task.length)
        learner, metrics = self.update(state.learner, drawn, rows, loss_key)
        return state._replace(learner=learner), metrics

    def update(
        self, state: DQNState, drawn: Transitions, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[DQNState, Metrics]:
        """Take one step of the optimizer.

        Args:
            state: What the agent has learned.
            drawn: Transitions, [b, ...].
            auxiliary_rows: Sequences for the auxiliary task; None without one.
            key: Random key.

        Returns:
            The new state, and metrics.
        """
        gradients, (auxiliary_state, norms), metrics = self.gradients(
            state, drawn, auxiliary_rows, key
        )
        split = self.network.split
        learned, fixed = split(state.params)
        learned, optimizer_state = optimizer_step(
            self._optimizer(), split(gradients)[0], state.optimizer, learned
        )
        updates = state.updates + 1
        options = self.options
        refresh = updates % options.target_every == 0
        share = jnp.where(refresh, options.target_rate, 0.0)
        target_params = jax.tree.map(
            lambda new, old: share * new + (1.0 - share) * old, learned, state.target_params
        )
        params = self.network.joined(learned, fixed)
        return DQNState(
            params, target_params, optimizer_state, auxiliary_state, norms, updates
        ), metrics

    def gradients(
        self, state: DQNState, drawn: Transitions, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[Params, tuple[Any, Any], Metrics]:
        """Compute the joint gradient; arguments as for ``update``.

        The auxiliary task's gradient is added times the configured weight. If the weight is
        ``relative``, it is first divided by the ratio of the root mean square norms of the two
        gradients at the torso, running averages of decay 0.99 that include this update. This update
        has a weight of 1 % in the averages. So the norm of the added gradient is at most ten times
        the weight times the average norm of the other gradient, whatever the earlier gradients
        were. The factor depends slightly on the rows of this update.

        Returns:
            The gradient, the auxiliary task's new state and norms, and metrics. The auxiliary
            task's metrics have the prefix ``auxiliary_``.
        """
        network, options = self.network, self.auxiliary_options
        # XLA computes the fixed parts of both networks once, since they are the same arrays.
        target_params = network.joined(state.target_params, network.split(state.params)[1])

        def value_loss(params: Params) -> Array:
            errors = self.errors(params, target_params, drawn)
            return jnp.mean(optax.huber_loss(errors, delta=self.options.huber_delta))

        loss, gradients = jax.value_and_grad(value_loss)(state.params)
        metrics = {"value_loss": loss}
        if self.auxiliary is None or auxiliary_rows is None:
            return gradients, (state.auxiliary, state.norms), metrics
        task_loss = jax.value_and_grad(self.auxiliary.loss, has_aux=True)
        (loss, (auxiliary_state, reported)), side = task_loss(
            network.auxiliary_params(state.params),
            network.auxiliary_params(target_params),
            network.auxiliary_features,
            auxiliary_rows,
            state.auxiliary,
            key,
        )
        added = side if network.auxiliary_head is not None else {"torso": side}
        norms = state.norms.add(gradients["torso"], added["torso"])
        ratio = norms.auxiliary_to_values
        factor = options.weight / ratio if options.relative else jnp.float32(options.weight)
        joint = {
            name: jax.tree.map(lambda own, other: own + factor * other, gradients[name], part)
            for name, part in added.items()
        }
        # In one type, so that a trainer can average them.
        reported = {
            f"auxiliary_{name}": jnp.asarray(value, jnp.float32) for name, value in reported.items()
        }
        metrics = {**metrics, **reported, "auxiliary_loss": loss, "gradient_ratio": ratio}
        return {**gradients, **joint}, (auxiliary_state, norms), metrics

    def errors(self, params: Params, target_params: Params, drawn: Transitions) -> Array:
        """Compute temporal-difference errors [b] of transitions [b, ...]."""
        import rlax  # Takes a second to import, and only the extra ``agents`` installs it.

        options = self.options
        if options.freeze_torso:
            # Fit the values to fixed features.
            params = {**params, "torso": lax.stop_gradient(params["torso"])}
        values = self.network.values
        q_tm1 = values(params, drawn.observation)
        q_t_target = values(target_params, drawn.next_observation)
        rewards = drawn.reward * options.reward_scale
        # The target is a constant: rlax stops its gradient.
        known: tuple[Array, ...] = (q_tm1, drawn.action, rewards, drawn.discount, q_t_target)
        rule = rlax.q_learning
        if options.double:
            q_t_online = values(params, drawn.next_observation)
            rule, known = rlax.double_q_learning, (*known, q_t_online)
        errors: Array = jax.vmap(rule)(*known)
        return errors

    def _optimizer(self) -> optax.GradientTransformation:
        options = self.options
        rate = SCHEDULES[options.schedule](options.learning_rate, self.num_updates)
        # Update one vector of all parameters, since an update of many small arrays is slow.
        return optax.flatten(
            optax.chain(
                optax.clip_by_global_norm(options.max_gradient_norm),
                optax.adam(rate, eps=options.adam_epsilon),
            )
        )

    # The training loop.

    @property
    def period(self) -> int:
        """Number of rows of each environment from one update to the next."""
        return self.options.steps_per_update // self.num_envs

    def begin(self, environment: Environment, key: Array) -> AgentState:
        """Make an agent before its first step, and start its environments."""
        keys = jax.random.split(key_for(key, Use.RESET, 0), self.num_envs)
        states = jax.vmap(environment.reset)(keys)
        seen = jax.vmap(environment.observe)(states)
        return self.start(states, seen, key)

    def start(self, states: Any, observations: Array, key: Array) -> AgentState:
        """Make an agent before its first step, in environments that have started."""
        never = jnp.zeros((self.num_envs,), bool)
        acting = Acting(states, observations, never, never.astype(jnp.float32))
        return self.init(key_for(key, Use.NETWORK, 0))._replace(acting=acting)

    def train(
        self, environment: Environment, state: AgentState, span: Array, key: Array
    ) -> tuple[AgentState, Metrics]:
        """Act, remember and learn for a while.

        Args:
            environment: The environment, which must end or cut its episodes itself.
            state: The current state.
            span: Rows that each environment has added, then numbers of periods without and with an
                update, [3] (int32). Loops of any length share one program.
            key: The agent's key.

        Returns:
            The new state, and sums of the metrics over steps and updates.
        """

        def step(state: AgentState, count: Array) -> tuple[AgentState, Metrics]:
            return self.step(environment, state, count, key)

        @jit  # Traced once for both loops.
        def play(state: AgentState, begun: Array) -> tuple[AgentState, Metrics]:
            counts = begun + jnp.arange(self.period, dtype=jnp.int32)
            state, metrics = lax.scan(step, state, counts)
            return state, {name: value.sum() for name, value in metrics.items()}

        @jit
        def play_and_learn(state: AgentState, begun: Array) -> tuple[AgentState, Metrics]:
            state, metrics = play(state, begun)
            state, losses = self.learn(state, begun, key)
            return state, {**metrics, **losses}

        def repeat(
            period: Callable[[AgentState, Array], tuple[AgentState, Metrics]],
            state: AgentState,
            first: Array,
            periods: Array,
        ) -> tuple[AgentState, Metrics]:
            """Add up the metrics of periods, the first of which begins after ``first`` rows."""
            shapes = jax.eval_shape(period, state, first)[1]
            zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

            def body(index: Array, carry: Any) -> Any:
                state, found = period(carry[0], first + self.period * index)
                return state, jax.tree.map(jnp.add, carry[1], found)

            repeated: tuple[AgentState, Metrics] = lax.fori_loop(0, periods, body, (state, zeros))
            return repeated

        first, warm, learning = span
        state, before = repeat(play, state, first, warm)
        state, metrics = repeat(play_and_learn, state, first + self.period * warm, learning)
        return state, {**metrics, **{name: before[name] + metrics[name] for name in SUMS}}

    def step(
        self, environment: Environment, state: AgentState, count: Array, key: Array
    ) -> tuple[AgentState, Metrics]:
        """Take and remember one step of every environment, or begin an episode after an end."""
        acting = state.acting
        actions = self.explore(state.learner.params, acting.observations, count, key)
        keys = jax.random.split(key_for(key, Use.STEP, count), self.num_envs)
        # Whether any agent needs a reset; if none does, no resets are drawn.
        anywhere = lax.pmax(jnp.any(acting.ended).astype(jnp.int32), AGENTS) > 0
        taken = step_or_reset(environment, keys, acting.states, actions, acting.ended, anywhere)
        return self.remember(state, actions, taken, count)

    def evaluate(
        self, environment: Environment, params: Params, key: Array, *, episodes: int, limit: int
    ) -> Array:
        """Return undiscounted returns [episodes] of greedy episodes of at most ``limit`` steps.

        Callers ``vmap`` over the axis ``AGENTS``.
        """
        reset_key, times_key = jax.random.split(key)

        def advance(carry: Any) -> Any:
            states, alive, returns, time, _ = carry
            act_key, step_key = jax.random.split(jax.random.fold_in(times_key, time))
            seen = jax.vmap(environment.observe)(states)
            actions = self.act(params, seen, jnp.zeros(()), act_key)
            keys = jax.random.split(step_key, episodes)
            taken = jax.vmap(environment.step)(keys, states, actions)
            returns = returns + jnp.where(alive, taken.reward, 0.0)
            alive = alive & ~(taken.terminated | taken.truncated)
            # Whether any agent still plays.
            anyone = lax.pmax(jnp.any(alive).astype(jnp.int32), AGENTS) > 0
            return taken.state, alive, returns, time + 1, anyone & (time < limit)

        states = jax.vmap(environment.reset)(jax.random.split(reset_key, episodes))
        alive, returns = jnp.ones((episodes,), bool), jnp.zeros((episodes,), jnp.float32)
        start = states, alive, returns, jnp.int32(1), jnp.array(True)
        found: Array = lax.while_loop(lambda carry: carry[4], advance, start)[2]
        return found
