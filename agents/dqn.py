"""Deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with n-step targets.

One agent as pure functions, read from top to bottom: how it starts, acts, and learns from what
replay gives it. Whatever else shapes its torso comes in as an ``AuxiliaryTask``.
"""

from collections.abc import Callable
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
from rlreps.optimizers import optimizer_step

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


class DQN(NamedTuple):
    """An agent.

    Attributes:
        init: key → state.
        act: (parameters, observations [b, ...], ε [], key) → actions [b], ε-greedy.
        update: (state, sequences [b, n + 1, ...], importance weights [b], sequences of the
            auxiliary task or None, key) → (state, temporal-difference errors [b], metrics).
    """

    init: Callable[[Array], DQNState]
    act: Callable[[Params, Array, Array, Array], Array]
    update: Callable[[DQNState, Rows, Array, Rows | None, Array], tuple[DQNState, Array, Metrics]]


def make_dqn(
    config: DQNConfig,
    network: QNetwork,
    *,
    auxiliary: AuxiliaryTask | None = None,
    auxiliary_weight: float = 1.0,
) -> DQN:
    """An agent that learns by Q-learning and, on the side, by an auxiliary task.

    Its loss is the mean Huber loss of temporal-difference errors, plus the auxiliary task's loss
    times a weight. Both reach the torso; the values' read-out learns from the first alone.

    Args:
        config: Its options.
        network: Torso and values.
        auxiliary: The auxiliary task, if any.
        auxiliary_weight: What its loss counts.
    """
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(config.learning_rate, eps=config.adam_epsilon),
    )

    def init(key: Array) -> DQNState:
        network_key, auxiliary_key = jax.random.split(key)
        params = network.init(network_key)
        return DQNState(
            params=params,
            target_params=params,
            optimizer=optimizer.init(params),
            auxiliary=auxiliary.init(auxiliary_key) if auxiliary is not None else (),
            updates=jnp.zeros((), jnp.int32),
        )

    def act(params: Params, observations: Array, epsilon: Array, key: Array) -> Array:
        values = network.values(params, observations)
        explore_key, action_key = jax.random.split(key)
        count, num_actions = values.shape
        random = jax.random.randint(action_key, (count,), 0, num_actions, jnp.int32)
        explores = jax.random.uniform(explore_key, (count,), jnp.float32) < epsilon
        return jnp.where(explores, random, jnp.argmax(values, axis=1).astype(jnp.int32))

    def temporal_difference_errors(params: Params, target_params: Params, t: Transitions) -> Array:
        if config.freeze_torso:
            # The values are to be fitted to features that stay as they are.
            params = {**params, "torso": lax.stop_gradient(params["torso"])}
        q_tm1 = network.values(params, t.observation)
        q_t_target = network.values(target_params, t.next_observation)
        if not config.double:
            return jax.vmap(rlax.q_learning)(q_tm1, t.action, t.reward, t.discount, q_t_target)
        q_t_online = network.values(params, t.next_observation)
        errors: Array = jax.vmap(rlax.double_q_learning)(
            q_tm1, t.action, t.reward, t.discount, q_t_target, q_t_online
        )
        return errors

    def loss(
        params: Params,
        state: DQNState,
        drawn: Transitions,
        weights: Array,
        auxiliary_rows: Rows | None,
        key: Array,
    ) -> tuple[Array, tuple[Array, Any, Metrics]]:
        errors = temporal_difference_errors(params, state.target_params, drawn)
        value_loss = jnp.mean(weights * rlax.huber_loss(errors, config.huber_delta))
        if auxiliary is None or auxiliary_rows is None:
            return value_loss, (errors, state.auxiliary, {"value_loss": value_loss})
        side_loss, (auxiliary_state, _) = auxiliary.loss(
            params["torso"],
            state.target_params["torso"],
            network.features,
            auxiliary_rows,
            state.auxiliary,
            key,
        )
        metrics = {"value_loss": value_loss, "auxiliary_loss": side_loss}
        return value_loss + auxiliary_weight * side_loss, (errors, auxiliary_state, metrics)

    def update(
        state: DQNState, rows: Rows, weights: Array, auxiliary_rows: Rows | None, key: Array
    ) -> tuple[DQNState, Array, Metrics]:
        drawn = transitions(rows, config.discount)
        drawn = drawn._replace(reward=drawn.reward * config.reward_scale)
        gradients, (errors, auxiliary_state, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state, drawn, weights, auxiliary_rows, key
        )
        params, optimizer_state = optimizer_step(
            optimizer, gradients, state.optimizer, state.params
        )
        updates = state.updates + 1
        refresh = updates % config.target_every == 0
        target_params = jax.tree.map(
            lambda new, old: jnp.where(refresh, new, old), params, state.target_params
        )
        return (
            DQNState(params, target_params, optimizer_state, auxiliary_state, updates),
            errors,
            metrics,
        )

    return DQN(init, act, update)
