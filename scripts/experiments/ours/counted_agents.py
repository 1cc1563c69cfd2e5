"""Agents that plan with a model of the transitions that they have counted, without a network.

An agent numbers the observations that it has seen. It counts how often each action led from one
observation to another, and averages the rewards. Its action values are optimal in this counted
model. While it learns, an action that it has not tried has the best possible value, so that the
agent tries it (R-max with one visit, Brafman & Tennenholtz 2002); it also takes random actions as
often as agents with networks. In evaluations, an action that it has not tried has the worst value,
and the agent takes the first action at an observation that it has not seen.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import spsolve

from rlreps.agents import (
    AgentConfig,
    AgentState,
    CompiledProgram,
    Prior,
    ReplayRows,
    load_compiled_environment,
    make_agent,
    make_value_table,
    number_observations,
)
from rlreps.encoders import FunctionEncoder
from rlreps.envs import observation_struct
from rlreps.errors import require
from rlreps.study import replace_nested
from rlreps.typing import DoubleArray
from rlreps.worlds import World

_TIE = 1e-9
"""Gain for which policy iteration does not change an action."""


class CountedModel:
    """Counts of one agent's transitions.

    Args:
        size: Largest number of states.
        num_actions: Number of actions.

    Attributes:
        states: Numbers of the states that were seen.
    """

    def __init__(self, size: int, num_actions: int) -> None:
        self.states: DoubleArray = np.zeros(0)
        self._size, self._num_actions = size, num_actions
        # The last column counts transitions that ended the task.
        self._visits: Any = csr_array((size * num_actions, size + 1))
        self._rewards = np.zeros(size * num_actions)
        self._lowest = 0.0
        # The last plan, from which the next one starts.
        self._policy = np.zeros(size, np.int64)

    def add(self, steps: DoubleArray) -> None:
        """Count the steps [N, 5] of ``new_steps``.

        Raises:
            InputError: If there are more than ``size`` states.
        """
        before, action, reward, terminated, after = steps.T
        seen = np.concatenate([before, after])
        self.states = np.concatenate([self.states, np.setdiff1d(seen, self.states)])
        count = len(self.states)
        least = f"at most {self._size} observations to count (feature_basis_size)"
        require(count <= self._size, least, count)
        order = np.argsort(self.states)
        start, end = order[np.searchsorted(self.states, seen, sorter=order)].reshape(2, -1)
        tried = start * self._num_actions + action.astype(np.int64)
        reached = np.where(terminated, self._size, end)
        self._visits += csr_array((np.ones(len(tried)), (tried, reached)), self._visits.shape)
        np.add.at(self._rewards, tried, reward)
        self._lowest = min(self._lowest, float(reward.min(initial=0.0)))

    def action_values(self, discount: float, bound: float | None) -> DoubleArray:
        """Compute the optimal action values [n, A] of the states seen, by policy iteration.

        Args:
            discount: γ.
            bound: Value of actions that were not tried; None is the value of the lowest reward for
                ever, or of 0 if all rewards are positive.
        """
        untried = self._lowest / (1.0 - discount) if bound is None else bound
        count = len(self.states)
        visits = self._visits[: count * self._num_actions]
        total = visits.sum(axis=1)
        shares = 1.0 / np.maximum(total, 1.0)
        chances = diags_array(shares, format="csr") @ visits[:, :count]
        rewards = self._rewards[: len(total)] * shares
        # No transition follows an action that was not tried.
        rewards = np.where(total > 0.0, rewards, untried)
        states, policy = np.arange(count), self._policy[:count]
        while True:
            chosen = states * self._num_actions + policy
            kernel = eye_array(count, format="csc") - discount * chances[chosen].tocsc()
            values = spsolve(kernel, rewards[chosen])
            found = rewards + discount * (chances @ values)
            backed_up: DoubleArray = found.reshape(count, self._num_actions)
            gains = backed_up.max(axis=1) - backed_up[states, policy]
            if not np.any(gains > _TIE):
                return backed_up
            policy = np.where(gains > _TIE, backed_up.argmax(axis=1), policy)
            if bound is not None:
                self._policy[:count] = policy

    def table(self, discount: float, elsewhere: float, bound: float | None) -> dict[str, Any]:
        """Return ``action_values`` less ``elsewhere``, in the form of ``Prior.parts``."""
        values = self.action_values(discount, bound) - elsewhere
        table: dict[str, Any] = make_value_table(self.states, values, self._size)
        return table


def train_counted(
    config: AgentConfig,
    bound: float,
    plan_every: int,
    devices: Sequence[jax.Device] | None = None,
    game: World | None = None,
) -> DoubleArray:
    """Let agents explore and plan; return the mean return of each evaluation, [seeds, p].

    Args:
        config: The agents, in an environment that is compiled with them. They have no torso.
        bound: Upper bound of the action values.
        plan_every: Environment steps from one plan to the next: a multiple of ``steps_per_update``
            that divides ``evaluate_every``. Replay holds the rows of more steps than these.
        devices: Devices over which agents are distributed.
        game: A world to play in, in place of the environment that the configuration names.

    Raises:
        InputError: If an agent sees more observations than ``features.basis_size``.
    """
    every, discount, size = plan_every, config.dqn.discount, config.features.basis_size
    limit = config.max_episode_steps
    world: Any = load_compiled_environment(config) if game is None else game.environment(limit)
    config = dataclasses.replace(config, max_episode_steps=world.max_steps or limit)
    # The warm-up lasts longer than the run, so that nothing learns by gradients.
    waiting = replace_nested(config, warmup=config.steps, steps=2 * config.steps)
    actions, sight = world.num_actions, observation_struct(world)
    models = [CountedModel(size, actions) for _ in config.seeds]
    empty = models[0].table(discount, bound, bound)
    nothing = FunctionEncoder(
        lambda key: (), lambda params, seen: jnp.zeros((len(seen), config.num_features))
    )
    agent = make_agent(
        waiting,
        sight.shape,
        actions,
        observation_dtype=sight.dtype,
        torso=nothing,
        prior=Prior((empty,), np.float32(bound), np.float32(discount)),
    )
    # Agents with a prior hardly explore; these explore as agents without one do.
    agent = dataclasses.replace(agent, options=config.dqn)
    program = CompiledProgram(waiting, world, agent, devices=devices)

    def planned(state: AgentState, bound_of_untried: float | None) -> AgentState:
        """Give every agent the table of its plan."""
        tables = [each.table(discount, bound, bound_of_untried) for each in models]
        table = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves), jnp.float32), *tables)
        prior = state.learner.params["prior"]._replace(parts=(table,))
        params = agent.network.joined(state.learner.params, {"prior": prior})
        return program.put(state._replace(learner=state.learner._replace(params=params)))

    state, found = program.init(), list[DoubleArray]()
    for step in range(0, config.steps + 1, every):
        if step:
            state, _ = program.advance(planned(state, bound), step - every, every)
            rows = new_steps(state.replay, step // config.num_envs, every // config.num_envs)
            for model, steps in zip(models, rows, strict=True):
                model.add(steps)
        if step % config.evaluate_every == 0:
            figures = program.evaluate(planned(state, None), step)[1]
            found.append(figures["returns"])
    return np.stack(found, axis=1)


def new_steps(replay: ReplayRows, count: int, new: int) -> list[DoubleArray]:
    """List each agent's latest steps: state, action, reward, whether it ended the task, next state.

    Args:
        replay: The agents' memories, [seeds, slots, environments, ...].
        count: Rows that each environment has added.
        new: Rows since the steps that were listed before, fewer than there are slots.

    Returns:
        For each agent [steps, 5]; states are the numbers of ``number_observations``.
    """
    # A step needs the row after it, so the last row listed before comes first.
    rows = np.arange(max(count - new - 1, 0), count) % replay.action.shape[1]
    held: Any = jax.tree.map(lambda leaf: np.asarray(leaf[:, rows]), replay)
    seen = held.observation.reshape(held.action.size, -1)
    states = number_observations(seen).reshape(held.action.shape)
    columns = (states, held.action, held.reward, held.terminated)
    parts = np.stack([*(each[:, :-1] for each in columns), states[:, 1:]], axis=-1)
    return [
        part[~last] for part, last in zip(parts.astype(np.float64), held.last[:, :-1], strict=True)
    ]
