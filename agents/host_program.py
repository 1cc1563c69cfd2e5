"""Agents in environments on the host, Gymnasium's and dm_env's, as a program of the host loop.

``make_program`` makes the program of any configuration, compiled where its environment is.

One call steps the environments of all agents. Steps between updates need a compiled call for their
actions alone. At the end of a period, one compiled call remembers all of its outcomes, learns if an
update is due, and chooses the next actions. The state of such an environment cannot be saved. So
that a run resumed from a checkpoint is bit-identical to one that never stopped, both reset the
environments every ``checkpoint_every`` steps, with seeds that depend on the agent's seed and the
step. Running episodes end there, as by a time limit, and count in no return.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from rlreps.agents.compiled_program import CompiledProgram
from rlreps.agents.config import (
    AgentConfig,
    load_compiled_environment,
    make_agent,
    require_memory_for_agents,
)
from rlreps.agents.dqn import DQN, Acting, AgentState
from rlreps.agents.host_environments import HostEnvironments
from rlreps.agents.host_observations import HostInputs
from rlreps.agents.keys import Use, environment_seed
from rlreps.agents.program import AgentProgram
from rlreps.envs.core import TimeStep, observation_struct
from rlreps.errors import require
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit_briefly

MOST_COPIES = 16
"""Number of environments in which an agent is evaluated at once."""

_SEQUENCES_BETWEEN_CUTS = 4


class HostProgram(AgentProgram):
    """Agents in environments on the host.

    Its states are those of ``CompiledProgram``, except for ``acting.states``: the actions chosen
    for ``acting.observations``, [seeds, environments].

    Args:
        config: The run.
        make_environments: Number of copies → environments, which must end or cut their episodes
            themselves.
        agent: The agent that ``make_agent`` made for them.
    """

    def __init__(
        self,
        config: AgentConfig,
        make_environments: Callable[[int], HostEnvironments],
        agent: DQN,
    ) -> None:
        super().__init__(config, agent)
        self._make = make_environments
        self._environments = make_environments(config.num_seeds * config.num_envs)
        self._evaluation: HostEnvironments | None = None
        # The step at which the environments are, if any.
        self._stands_at: int | None = None

        def begin(seen: Array, key: Array) -> AgentState:
            state = agent.start((), seen, key)
            return choose(state, jnp.zeros((), jnp.int32), key)

        def choose(state: AgentState, count: Array, key: Array) -> AgentState:
            """Choose the next actions after ``count`` rows of each environment."""
            acting = state.acting
            actions = agent.explore(state.learner.params, acting.observations, count, key)
            return state._replace(acting=acting._replace(states=actions))

        def advance(
            learns: bool, state: AgentState, rows: tuple[Array, TimeStep], count: Array, key: Array
        ) -> tuple[AgentState, Metrics]:
            """Remember a period's actions and outcomes, learn if an update is due, choose again."""

            def remember(state: AgentState, row: Any) -> tuple[AgentState, Metrics]:
                actions, taken, added = row
                return agent.remember(state, actions, taken, count + added)

            bare = state._replace(acting=state.acting._replace(states=()))
            added = jnp.arange(agent.period, dtype=jnp.int32)
            state, each = lax.scan(remember, bare, (*rows, added))
            metrics = {name: value.sum(axis=0) for name, value in each.items()}
            if learns:
                state, losses = agent.learn(state, count, key)
                metrics = {**metrics, **losses}
            return choose(state, count + agent.period, key), metrics

        def greedy(params: Params, seen: Array, key: Array) -> Array:
            return agent.act(params, seen, jnp.zeros(()), key)

        self._begin = jit_briefly(jax.vmap(begin))
        explore = jax.vmap(agent.explore, in_axes=(0, 0, None, 0))
        self._explore: Callable[..., Array] = jit_briefly(explore)
        self._advance = {
            learns: jit_briefly(
                jax.vmap(partial(advance, learns), in_axes=(0, 0, None, 0)), donate_argnums=0
            )
            for learns in (False, True)
        }
        self._greedy = jit_briefly(jax.vmap(greedy))

    def begin(self) -> AgentState:
        state = self._begin(self._grouped(self._reset(0)), self._keys)
        self._stands_at = 0
        return state

    def train(self, state: AgentState, step: int, count: int) -> tuple[AgentState, Metrics]:
        num_envs, period, found = self._config.num_envs, self.agent.period, list[Metrics]()
        for first in range(step // num_envs, (step + count) // num_envs, period):
            learns = first * num_envs >= self._config.dqn.warmup
            acting, taken = self._step(state.acting, first * num_envs)
            state, rows = state._replace(acting=acting), [(acting.states, taken)]
            for row in range(first + 1, first + period):
                seen = taken.observation
                actions = jax.device_get(
                    self._explore(state.learner.params, seen, np.int32(row), self._keys)
                )
                _, taken = self._step(acting._replace(states=actions), row * num_envs)
                rows.append((actions, taken))
            period_rows = jax.tree.map(lambda *each: np.stack(each, axis=1), *rows)
            state, metrics = self._advance[learns](state, period_rows, np.int32(first), self._keys)
            found.append(metrics)
        sums: dict[str, Any] = {}
        for metrics in jax.device_get(found):
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0) + value
        return state, sums

    def play(self, state: AgentState, step: int) -> Array:
        episodes = self._config.evaluation_episodes
        rounds = -(-episodes // MOST_COPIES)
        # Distribute episodes evenly over the rounds; the last round may play a few too many.
        copies = -(-episodes // rounds)
        if self._evaluation is None:
            self._evaluation = self._make(self._config.num_seeds * copies)

        def act(seen: HostInputs) -> npt.NDArray[Any]:
            actions = self._greedy(state.learner.params, self._grouped(seen), self._keys)
            return np.asarray(jax.device_get(actions)).reshape(-1)

        returns = []
        for first in range(0, episodes, copies):
            seeds = self._seeds(Use.EVALUATE, step, range(first, first + copies))
            played = self._evaluation.play(act, seeds, self._config.max_episode_steps)
            returns.append(self._grouped(played))
        return jnp.asarray(np.concatenate(returns, axis=1)[:, :episodes])

    def put(self, kept: AgentState) -> AgentState:
        placed: AgentState = jax.tree.map(jnp.asarray, kept)
        return placed

    def close(self) -> None:
        self._environments.close()
        if self._evaluation is not None:
            self._evaluation.close()

    def _step(self, acting: Acting, step: int) -> tuple[Acting, TimeStep]:
        """Take a step; begin episodes every ``checkpoint_every`` steps, or where none stand here.

        At step 0, environments that are elsewhere are reset and then take the step.
        """
        begins = self._stands_at != step or (
            step > 0 and step % self._config.checkpoint_period == 0
        )
        # The step is unknown if an error or an interruption stops the environments.
        self._stands_at = None
        if begins:
            seen: Any = self._reset(step)
        if begins and step > 0:
            # Running episodes end with the last observation and are not counted in returns.
            acting = acting._replace(
                ended=jnp.ones_like(acting.ended), returns=jnp.zeros_like(acting.returns)
            )
            never: Any = np.zeros(len(seen), np.bool_)
            taken = TimeStep((), seen, never.astype(np.float32), never, never)
        else:
            taken = self._environments.step(jax.device_get(acting.states).reshape(-1))
        self._stands_at = step + self._config.num_envs
        return acting, jax.tree.map(self._grouped, taken)

    def _reset(self, step: int) -> HostInputs:
        """Begin episodes of training, [seeds x environments, ...]."""
        return self._environments.reset(self._seeds(Use.RESET, step, range(self._config.num_envs)))

    def _grouped(self, values: npt.NDArray[Any]) -> Any:
        """Reshape values [seeds x copies, ...] to [seeds, copies, ...].

        They stay NumPy arrays, which compiled calls accept.
        """
        return values.reshape(self._config.num_seeds, -1, *values.shape[1:])

    def _seeds(self, use: Use, step: int, copies: Iterable[int]) -> list[int]:
        """Derive the seeds of some copies of every agent, [seeds x copies]."""
        return [
            environment_seed(seed, use, step, copy)
            for seed in self._config.seeds
            for copy in copies
        ]


def make_agent_for(config: AgentConfig, **own: Any) -> DQN:
    """Make the agent of a configuration for its environment, which is opened to see its shapes.

    Args:
        config: The run.
        **own: A user's own parts, as for ``make_agent``.

    Raises:
        InputError: For an environment that does not exist or does not fit the agent.
    """
    world = load_compiled_environment(config)
    if world is not None:
        sight, actions = observation_struct(world), world.num_actions
    else:
        # What cuts episodes must leave whole sequences.
        least = _SEQUENCES_BETWEEN_CUTS * config.sequence_length * config.num_envs
        require(
            config.checkpoint_period >= least,
            f"checkpoint_every >= {least} for {config.environment}, whose episodes it cuts "
            f"({_SEQUENCES_BETWEEN_CUTS} sequences of {config.sequence_length} rows of "
            f"{config.num_envs} environments)",
            config.checkpoint_period,
        )
        seen = HostEnvironments(config.environment, 1)
        seen.close()
        sight = jax.ShapeDtypeStruct(seen.observation_shape, seen.observation_dtype)
        actions = seen.num_actions
    return make_agent(config, sight.shape, actions, observation_dtype=sight.dtype, **own)


def make_program(
    config: AgentConfig,
    agent: DQN | None = None,
    *,
    devices: Sequence[jax.Device] | None = None,
    **own: Any,
) -> AgentProgram:
    """Make the program of a configuration: on the host, or compiled.

    Args:
        config: The run.
        agent: Its agent; by default ``make_agent_for`` makes it.
        devices: Devices over which seeds are distributed, if the program is compiled.
        **own: A user's own parts, as for ``make_agent``.

    Raises:
        InputError: As for ``make_agent_for``, or if the agents do not fit into memory.
    """
    agent = make_agent_for(config, **own) if agent is None else agent
    require_memory_for_agents(agent, config, devices)
    world = load_compiled_environment(config)
    if world is None:
        limit = config.max_episode_steps
        make = partial(HostEnvironments, config.environment, max_episode_steps=limit)
        return HostProgram(config, make, agent)
    # The environment's own limit of steps counts, if it has one.
    assert world.max_steps is not None
    config = dataclasses.replace(config, max_episode_steps=world.max_steps)
    return CompiledProgram(config, world, agent, devices=devices)
