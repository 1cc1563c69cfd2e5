"""Deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

One agent as pure functions, to be read from top to bottom: its options, its state, how it acts and
remembers, and how it learns. Its values are a ``QNetwork``; an ``AuxiliaryTask`` may also train the
torso. Everything is for one agent; ``AgentProgram`` runs many side by side.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.agents.auxiliary import AuxiliaryConfig, AuxiliaryGradient, AuxiliaryTask, GradientNorms
from rlreps.agents.keys import Use, key_for
from rlreps.agents.network import QNetwork
from rlreps.agents.replay import (
    NStepTransitions,
    ReplayConfig,
    ReplayRows,
    add,
    draw,
    draw_transitions,
    init_replay,
)
from rlreps.config import checked, interval, positive
from rlreps.envs.core import TimeStep
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import optimizer_step
from rlreps.training.optimizers import SCHEDULES, Schedule

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
        n_step: Number of rewards in a transition before its value is bootstrapped. With more than
            one, values are partly those of the policies in the replay, exploration included.
        discount: γ, in [0, 1).
        learning_rate: Adam's learning rate at the first update.
        schedule: Learning rate over the run: ``constant``, or ``cosine`` or ``linear`` decay to
            zero.
        adam_epsilon: Adam's ε.
        max_gradient_norm: Global norm above which gradients are scaled down.
        huber_delta: Temporal-difference error at which the loss turns from quadratic to linear.
            Beyond it, the loss learns medians, which ignore rare failures. None: squared loss.
        target_every: Updates between changes of the target network. Values approach the sum of
            1/(1 − γ) rewards in as many changes, divided by ``n_step``.
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
    huber_delta: float | None = interval("(0, inf)", None)
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
    replay: ReplayRows
    acting: Any


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN:
    """An agent that learns by Q-learning and, in addition, by an auxiliary task.

    The loss is the mean squared (or Huber) loss of temporal-difference errors. At the torso, the
    auxiliary task's gradient times a weight is added to the gradient of this loss; the values' head
    learns from this loss alone.

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

    def start(self, states: Any, observations: Array, key: Array) -> AgentState:
        """Make an agent before its first step, in environments that have started."""
        never = jnp.zeros((self.num_envs,), bool)
        acting = Acting(states, observations, never, never.astype(jnp.float32))
        return self.init(key_for(key, Use.NETWORK, 0))._replace(acting=acting)

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
        rows = ReplayRows(
            acting.observations, actions, taken.reward, taken.terminated, acting.ended
        )
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

    @property
    def period(self) -> int:
        """Number of rows of each environment from one update to the next."""
        return self.options.steps_per_update // self.num_envs

    def learn(self, state: AgentState, begun: Array, key: Array) -> tuple[AgentState, Metrics]:
        """Make the update after a period that began after ``begun`` rows, and return its losses."""
        key, count = key_for(key, Use.LEARN, begun), begun + self.period
        value_key, auxiliary_key, loss_key = jax.random.split(key, 3)
        learner, replay, options = state.learner, state.replay, self.options
        batch, steps = options.batch_size, options.n_step
        drawn = draw_transitions(value_key, replay, count, batch, steps, options.discount)
        task, added = self.auxiliary, None
        if task is not None:
            rows = draw(auxiliary_key, replay, count, task.sequences, task.length)
            targets = self.target_params(learner)
            added = task.gradient(
                self.network, learner.params, targets, rows, learner.auxiliary, loss_key
            )
        learner, metrics = self.update(learner, drawn, added)
        return state._replace(learner=learner), metrics

    def update(
        self, state: DQNState, drawn: NStepTransitions, auxiliary: AuxiliaryGradient | None = None
    ) -> tuple[DQNState, Metrics]:
        """Take one step of the optimizer.

        Args:
            state: What the agent has learned.
            drawn: The transitions, [b, ...].
            auxiliary: The auxiliary task's gradient, if there is a task.

        Returns:
            The new state, and metrics.
        """
        gradients, norms, metrics = self.gradients(state, drawn, auxiliary)
        split, options = self.network.split, self.options
        learned, fixed = split(state.params)
        learned, optimizer_state = optimizer_step(
            self._optimizer(), split(gradients)[0], state.optimizer, learned
        )
        updates = state.updates + 1
        refresh = updates % options.target_every == 0
        share = jnp.where(refresh, options.target_rate, 0.0)
        target_params = jax.tree.map(
            lambda new, old: share * new + (1.0 - share) * old, learned, state.target_params
        )
        params = self.network.joined(learned, fixed)
        kept = state.auxiliary if auxiliary is None else auxiliary.state
        return DQNState(params, target_params, optimizer_state, kept, norms, updates), metrics

    def gradients(
        self, state: DQNState, drawn: NStepTransitions, auxiliary: AuxiliaryGradient | None = None
    ) -> tuple[Params, Any, Metrics]:
        """Compute the joint gradient, its norms and metrics; arguments as for ``update``."""
        target_params = self.target_params(state)

        def value_loss(params: Params) -> Array:
            errors, delta = self.td_errors(params, target_params, drawn), self.options.huber_delta
            if delta is None:
                return jnp.mean(optax.l2_loss(errors))
            return jnp.mean(optax.huber_loss(errors, delta=delta))

        loss, gradients = jax.value_and_grad(value_loss)(state.params)
        metrics = {"value_loss": loss}
        if auxiliary is None:
            return gradients, state.norms, metrics
        joint, norms, reported = auxiliary.added_to(gradients, state.norms, self.auxiliary_options)
        return joint, norms, {**metrics, **reported}

    def target_params(self, state: DQNState) -> Params:
        """Return all parameters of the target network."""
        # XLA computes the fixed parts of both networks once, since they are the same arrays.
        return self.network.joined(state.target_params, self.network.split(state.params)[1])

    def td_errors(self, params: Params, target_params: Params, drawn: NStepTransitions) -> Array:
        """Compute temporal-difference errors [b] of transitions [b, ...].

        rlax forms the target, reward plus discount times the target network's value;
        ``draw_transitions`` adds up the rewards of n steps.
        """
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
