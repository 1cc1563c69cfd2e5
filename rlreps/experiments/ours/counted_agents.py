"""Agents that plan with a model of the transitions that they have counted: a control.

An agent numbers the observations that it has seen. It counts how often each action led from one
observation to another, and averages the rewards. Its action values are optimal in this counted
model. An action that it has not tried has the best possible value, so that the agent tries it
(R-max with one visit, Brafman & Tennenholtz 2002). It plans again at a fixed interval, and explores
like the agents with networks.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from rlreps.agents import AgentConfig, AgentState, CompiledTrainer, Prior, make_agent
from rlreps.agents.config import compiled_world_of
from rlreps.agents.fitted import UNUSED, state_numbers
from rlreps.agents.replay import Rows, as_inputs
from rlreps.envs.core import observation_struct
from rlreps.errors import require
from rlreps.experiments.harness import DoubleArray, varied

PLAN_EVERY = 1_000
"""Largest number of environment steps from one plan to the next."""

_TOLERANCE = 1e-4


def train_counted(
    config: AgentConfig, best: float, devices: Sequence[jax.Device] | None = None
) -> DoubleArray:
    """Let agents explore and plan; return the mean return of each evaluation, [seeds, p].

    Args:
        config: The agents. Their networks are not used.
        best: The best possible value of an action.
        devices: Devices over which agents are distributed.

    Raises:
        InputError: If an agent sees more observations than ``features.basis_size``.
    """
    world, size, seeds = compiled_world_of(config), config.features.basis_size, config.num_seeds
    assert world is not None
    # The warm-up lasts for the whole run, so that networks do not learn.
    waiting = varied(
        config,
        warmup=config.steps,
        steps=2 * config.steps,
        max_episode_steps=world.max_steps,
    )
    actions, sight = world.num_actions, observation_struct(world)
    empty = {
        "states": np.full((size,), UNUSED, np.float32),
        "weights": np.zeros((size, actions), np.float32),
    }
    prior = Prior((empty,), np.float32(best), np.float32(config.dqn.discount))
    agent = make_agent(waiting, sight.shape, actions, observation_dtype=sight.dtype, prior=prior)
    agent = dataclasses.replace(agent, options=config.dqn)
    trainer = CompiledTrainer(waiting, world, agent, devices=devices)
    state, found = trainer.init(), list[DoubleArray]()
    steps = [np.zeros((0, 5))] * seeds
    every = math.gcd(PLAN_EVERY, config.evaluate_every)
    for step in range(0, config.steps + 1, every):
        if step:
            state, _ = trainer.advance(state, step - every, every)
            new = new_steps(state.replay, step // config.num_envs, every // config.num_envs)
            steps = [np.concatenate(each) for each in zip(steps, new, strict=True)]
            plans = [planned(each, size, actions, config.dqn.discount, best) for each in steps]
            state = trainer.put(with_plans(agent, state, plans))
        if step % config.evaluate_every == 0:
            found.append(np.asarray(trainer.evaluate(state, step), np.float64).mean(axis=1))
    return np.stack(found, axis=1)


def new_steps(replay: Rows, count: int, new: int) -> list[DoubleArray]:
    """List each agent's latest steps: state, action, reward, whether it ended the task, next state.

    Args:
        replay: The agents' memories, [seeds, slots, environments, ...].
        count: Rows that each environment has added.
        new: Rows since the steps that were listed before.

    Returns:
        For each agent [steps, 5]; states are the numbers of ``state_numbers``.
    """
    # A step needs the row after it, so the last row listed before comes first.
    rows = np.arange(max(count - new - 1, 0), count) % replay.action.shape[1]
    held: Any = jax.tree.map(lambda leaf: np.asarray(leaf[:, rows]), replay)
    flat = held.observation.reshape(held.action.size, -1)
    states = state_numbers(as_inputs(flat)).reshape(held.action.shape)
    columns = (states, held.action, held.reward, held.terminated)
    parts = np.stack([*(each[:, :-1] for each in columns), states[:, 1:]], axis=-1)
    return [
        part[~last] for part, last in zip(parts.astype(np.float64), held.last[:, :-1], strict=True)
    ]


def planned(
    steps: DoubleArray, size: int, num_actions: int, discount: float, best: float
) -> dict[str, Any]:
    """Compute optimal action values of the model counted from steps [N, 5], less ``best``.

    Returns:
        A table of at most ``size`` states, in the form of ``Prior.parts``.
    """
    before, action, reward, terminated, after = steps.T
    numbers, index = np.unique(np.concatenate([before, after]), return_inverse=True)
    count = len(numbers)
    require(count <= size, f"at most {size} observations to count (feature_basis_size)", count)
    start, end = index.reshape(2, -1)
    tried = start * num_actions + action.astype(np.int64)
    visits = np.bincount(tried, minlength=count * num_actions)
    rewards = np.bincount(tried, reward, visits.size) / np.maximum(visits, 1)
    going_on = (1.0 - terminated) / visits[tried]
    moves = csr_array((going_on, (tried, end)), shape=(visits.size, count))
    values, change = np.full(count, best), np.inf
    while change > _TOLERANCE:
        backed_up = np.where(visits > 0, rewards + discount * (moves @ values), best)
        greedy = backed_up.reshape(count, num_actions).max(axis=1)
        change, values = float(np.abs(greedy - values).max()), greedy
    weights = backed_up.reshape(count, num_actions) - best
    rest = size - count
    return {
        "states": np.pad(numbers, (0, rest), constant_values=UNUSED).astype(np.float32),
        "weights": np.pad(weights, [(0, rest), (0, 0)]).astype(np.float32),
    }


def with_plans(agent: Any, state: AgentState, plans: Sequence[Any]) -> AgentState:
    """Give every agent its plan."""
    learner = state.learner
    table = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *plans)
    prior = learner.params["prior"]._replace(parts=(table,))
    params = agent.network.joined(learner.params, {"prior": prior})
    return state._replace(learner=learner._replace(params=params))
