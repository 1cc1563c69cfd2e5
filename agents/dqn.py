"""Deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

One agent as pure functions, read from top to bottom: how it starts, acts, and learns from what
replay gives it. Whatever else shapes its torso comes in as an ``AuxiliaryTask``.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.config import DQNConfig
from rlreps.agents.networks import Params, QNetwork
from rlreps.agents.rows import Rows, Transitions, transitions
from rlreps.errors import InputError
from rlreps.numerics import optimizer_step

try:
    import rlax
except ImportError as error:
    raise InputError(
        f'expected the package rlax for agents, got: {error}; pip install "rlreps[agents]"'
    ) from error

Metrics = dict[str, Array]


class DQNState(NamedTuple):
    """Everything that an agent learns.

    Attributes:
        params: The online network's parameters.
        target_params: The target network's.
        optimizer: The optimizer's state.
        auxiliary: The auxiliary task's state; () without one.
        updates: Updates so far, [] (int32).
    """

    params: Params
    target_params: Params
    optimizer: Any
    auxiliary: Any
    updates: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN:
    """An agent that learns by Q-learning and, on the side, by an auxiliary task.

    Its loss is the mean Huber loss of temporal-difference errors, plus the auxiliary task's loss
    times a weight. Both reach the torso; the values' read-out learns from the first alone.

    Attributes:
        config: Its options.
        network: Torso and values.
        auxiliary: The auxiliary task, if any.
        auxiliary_weight: What its loss counts.
    """

    config: DQNConfig
    network: QNetwork
    auxiliary: AuxiliaryTask | None = None
    auxiliary_weight: float = 1.0

    def init(self, key: Array) -> DQNState:
        """An agent before its first update."""
        network_key, auxiliary_key = jax.random.split(key)
        params = self.network.init(network_key)
        return DQNState(
            params=params,
            target_params=params,
            optimizer=self._optimizer().init(params),
            auxiliary=() if self.auxiliary is None else self.auxiliary.init(auxiliary_key),
            updates=jnp.zeros((), jnp.int32),
        )

    def act(self, params: Params, observations: Array, epsilon: Array, key: Array) -> Array:
        """Actions [b] for observations [b, ...]: greedy, but random ones with probability ε []."""
        values = self.network.values(params, observations)
        explore_key, action_key = jax.random.split(key)
        count, num_actions = values.shape
        random = jax.random.randint(action_key, (count,), 0, num_actions, jnp.int32)
        explores = jax.random.uniform(explore_key, (count,), jnp.float32) < epsilon
        return jnp.where(explores, random, jnp.argmax(values, axis=1).astype(jnp.int32))

    def update(
        self, state: DQNState, rows: Rows, weights: Array, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[DQNState, Array, Metrics]:
        """One step of the optimizer.

        Args:
            state: What the agent has learned.
            rows: Sequences [b, n + 1, ...], no first row of which is ``last``.
            weights: Importance weights [b].
            auxiliary_rows: Sequences for the auxiliary task; None without one.
            key: Random key.

        Returns:
            The new state, temporal-difference errors [b], and metrics.
        """
        drawn = transitions(rows, self.config.discount)
        drawn = drawn._replace(reward=drawn.reward * self.config.reward_scale)
        gradients, (errors, auxiliary_state, metrics) = jax.grad(self._loss, has_aux=True)(
            state.params, state, drawn, weights, auxiliary_rows, key
        )
        params, optimizer_state = optimizer_step(
            self._optimizer(), gradients, state.optimizer, state.params
        )
        updates = state.updates + 1
        refresh = updates % self.config.target_every == 0
        target_params = jax.tree.map(
            lambda new, old: jnp.where(refresh, new, old), params, state.target_params
        )
        learned = DQNState(params, target_params, optimizer_state, auxiliary_state, updates)
        return learned, errors, metrics

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.config.max_gradient_norm),
            optax.adam(self.config.learning_rate, eps=self.config.adam_epsilon),
        )

    def _loss(
        self,
        params: Params,
        state: DQNState,
        drawn: Transitions,
        weights: Array,
        auxiliary_rows: Rows | None,
        key: Array,
    ) -> tuple[Array, tuple[Array, Any, Metrics]]:
        errors = self._errors(params, state.target_params, drawn)
        value_loss = jnp.mean(weights * rlax.huber_loss(errors, self.config.huber_delta))
        if self.auxiliary is None or auxiliary_rows is None:
            return value_loss, (errors, state.auxiliary, {"value_loss": value_loss})
        side_loss, (auxiliary_state, _) = self.auxiliary.loss(
            params["torso"],
            state.target_params["torso"],
            self.network.features,
            auxiliary_rows,
            state.auxiliary,
            key,
        )
        metrics = {"value_loss": value_loss, "auxiliary_loss": side_loss}
        loss = value_loss + self.auxiliary_weight * side_loss
        return loss, (errors, auxiliary_state, metrics)

    def _errors(self, params: Params, target_params: Params, t: Transitions) -> Array:
        """Temporal-difference errors [b]."""
        if self.config.freeze_torso:
            # The values are to be fitted to features that stay as they are.
            params = {**params, "torso": lax.stop_gradient(params["torso"])}
        q_tm1 = self.network.values(params, t.observation)
        q_t_target = self.network.values(target_params, t.next_observation)
        step = (q_tm1, t.action, t.reward, t.discount, q_t_target)
        errors: Array
        if not self.config.double:
            errors = jax.vmap(rlax.q_learning)(*step)
        else:
            q_t_online = self.network.values(params, t.next_observation)
            errors = jax.vmap(rlax.double_q_learning)(*step, q_t_online)
        return errors
