"""Programs of agents in their environments, as the host loop (``rlreps.training.loop``) runs them.

Agents differ only in their seeds and run on a leading seed axis. They never exchange data.

**In an environment of pure JAX** all agents act, remember and learn in one program, distributed
over devices if there are several.

**In environments on the host**, Gymnasium's and dm_env's, one call steps the environments of all
agents. Steps between updates need a compiled call for their actions alone. At the end of a period,
one compiled call remembers all of its outcomes, learns if an update is due, and chooses the next
actions. The state of such an environment cannot be saved. So that a run resumed from a
checkpoint is bit-identical to one that never stopped, both reset the environments at every
checkpoint, with seeds that depend on the agent's seed and the step. Running episodes end there, as
by a time limit, and count in no return.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from rlreps.agents.config import (
    AgentConfig,
    load_compiled_environment,
    make_agent,
    require_memory_for_agents,
)
from rlreps.agents.dqn import DQN, SUMS, Acting, AgentState
from rlreps.agents.host_observations import Inputs
from rlreps.agents.hosts import HostEnvironments, HostStep
from rlreps.agents.keys import Use, environment_seed, key_for, unrolled
from rlreps.agents.program import AgentProgram
from rlreps.envs.core import Environment, TimeStep, observation_struct, step_or_reset
from rlreps.errors import require
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit, jit_briefly, largest_even_share
from rlreps.training.devices import make_placement

MOST_COPIES = 16
"""Number of environments in which an agent is evaluated at once."""

_SEQUENCES_BETWEEN_CUTS = 4

Own: TypeAlias = tuple[Environment, Environment] | tuple[()]
"""Each agent's own environments, to learn and to be evaluated in, with a leading seed axis; () if
all agents share them."""


class CompiledProgram(AgentProgram):
    """Agents in a JAX environment.

    Args:
        config: The run.
        environment: The environment, which must end or cut its episodes itself.
        agent: The agent that ``make_agent`` made for it.
        evaluation: The environment of evaluations, for example one without reward shaping; None is
            the same environment.
        own_environments: Whether each agent has its own environment: every leaf of both
            environments has a leading seed axis.
        seeds: One for each agent instead of the configuration's, so that agents in different
            environments may share seeds.
        devices: Devices to use: the largest number of them that divides the seeds evenly. None is
            JAX's default device.
    """

    def __init__(
        self,
        config: AgentConfig,
        environment: Environment,
        agent: DQN,
        *,
        evaluation: Environment | None = None,
        own_environments: bool = False,
        seeds: Sequence[int] | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        super().__init__(config, agent, seeds)
        count = config.num_seeds
        require(seeds is None or len(seeds) == count, f"{count} seeds", len(seeds or ()))
        self._worlds = (environment, environment if evaluation is None else evaluation)
        shared = None if devices is None else largest_even_share(devices, count)
        placement = self._placement = make_placement(shared, count)
        # Environments that all agents share are constants of the programs.
        self._placed = placement.put_seeds((self._keys, self._worlds if own_environments else ()))
        # Each device makes its own agents: the memories of all agents may not fit on one device.
        spread, each = placement.spread_seeds, (True, False, True, True)
        self._begin = jit_briefly(spread(self._begin_all, (True, True)))
        self._train = jit_briefly(spread(self._train_all, each), donate_argnums=0)
        self._play = jit_briefly(spread(self._play_all, each))

    def begin(self) -> AgentState:
        return self.put(self._begin(*self._placed))

    def train(self, state: AgentState, step: int, count: int) -> tuple[AgentState, Metrics]:
        learning = self._num_updates(step + count) - self._num_updates(step)
        warm = count // self._config.dqn.steps_per_update - learning
        span = [step // self._config.num_envs, warm, learning]
        placed = self._placement.put(np.asarray(span, np.int32))
        state, metrics = self._train(state, placed, *self._placed)
        return state, self._placement.collect(metrics)

    def play(self, state: AgentState, step: int) -> Array:
        at = self._placement.put(np.asarray(step, np.int32))
        played = self._play(state.learner.params, at, *self._placed)
        returns: Array = self._placement.collect(played)
        return returns

    def put(self, kept: AgentState) -> AgentState:
        return self._placement.put_seeds(kept)

    def _begin_all(self, keys: Array, own: Own) -> AgentState:
        """Make agents before their first step, and start their environments."""
        agent = self.agent

        def begin(key: Array, own: Own) -> AgentState:
            environment = (own or self._worlds)[0]
            resets = jax.random.split(key_for(key, Use.RESET, 0), agent.num_envs)
            states = jax.vmap(environment.reset)(resets)
            return agent.start(states, jax.vmap(environment.observe)(states), key)

        return jax.vmap(begin)(keys, own)

    def _train_all(
        self, states: AgentState, span: Array, keys: Array, own: Own
    ) -> tuple[AgentState, Metrics]:
        """Act, remember and learn for a while.

        Args:
            states: The current states, [agents, ...].
            span: Rows that each environment has added, then numbers of periods without and with an
                update, [3] (int32). Loops of any length share one program.
            keys: The agents' keys, [agents].
            own: Their own environments, if any.

        Returns:
            The new states, and sums of the metrics over steps and updates, [agents].
        """
        agent, keys = self.agent, unrolled(keys)

        def step(states: AgentState, count: Array) -> tuple[AgentState, Metrics]:
            """Take and remember a step of every environment, or begin an episode after an end."""
            anywhere = jnp.any(states.acting.ended)  # If it is false, no resets are drawn.

            def one(state: AgentState, key: Array, own: Own) -> tuple[AgentState, Metrics]:
                acting, params = state.acting, state.learner.params
                actions = agent.explore(params, acting.observations, count, key)
                moves = jax.random.split(key_for(key, Use.STEP, count), agent.num_envs)
                taken = step_or_reset(
                    (own or self._worlds)[0], moves, acting.states, actions, acting.ended, anywhere
                )
                return agent.remember(state, actions, taken, count)

            return jax.vmap(one)(states, keys, own)

        @jit  # Traced once for both loops.
        def act(states: AgentState, begun: Array) -> tuple[AgentState, Metrics]:
            counts = begun + jnp.arange(agent.period, dtype=jnp.int32)
            states, metrics = lax.scan(step, states, counts)
            return states, {name: value.sum(axis=0) for name, value in metrics.items()}

        @jit
        def act_and_learn(states: AgentState, begun: Array) -> tuple[AgentState, Metrics]:
            states, metrics = act(states, begun)
            states, losses = jax.vmap(agent.learn, in_axes=(0, None, 0))(states, begun, keys)
            return states, {**metrics, **losses}

        def repeat(
            period: Callable[[AgentState, Array], tuple[AgentState, Metrics]],
            states: AgentState,
            first: Array,
            periods: Array,
        ) -> tuple[AgentState, Metrics]:
            """Add up the metrics of periods, the first of which begins after ``first`` rows."""
            shapes = jax.eval_shape(period, states, first)[1]
            zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

            def body(index: Array, carry: Any) -> Any:
                states, found = period(carry[0], first + agent.period * index)
                return states, jax.tree.map(jnp.add, carry[1], found)

            repeated: tuple[AgentState, Metrics] = lax.fori_loop(0, periods, body, (states, zeros))
            return repeated

        first, warm, learning = span
        states, before = repeat(act, states, first, warm)
        states, metrics = repeat(act_and_learn, states, first + agent.period * warm, learning)
        return states, {**metrics, **{name: before[name] + metrics[name] for name in SUMS}}

    def _play_all(self, params: Params, step: Array, keys: Array, own: Own) -> Array:
        """Play greedy episodes of at most ``max_episode_steps``: returns [agents, episodes]."""
        agent, config, keys = self.agent, self._config, unrolled(keys)
        episodes, limit = config.evaluation_episodes, config.max_episode_steps

        def begin(key: Array, own: Own) -> tuple[Any, Array]:
            reset_key, times_key = jax.random.split(key_for(key, Use.EVALUATE, step))
            resets = jax.random.split(reset_key, episodes)
            return jax.vmap((own or self._worlds)[1].reset)(resets), times_key

        def move(params: Params, states: Any, key: Array, time: Array, own: Own) -> TimeStep:
            environment = (own or self._worlds)[1]
            act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
            seen = jax.vmap(environment.observe)(states)
            actions = agent.act(params, seen, jnp.zeros(()), act_key)
            return jax.vmap(environment.step)(jax.random.split(step_key, episodes), states, actions)

        def advance(carry: Any) -> Any:
            states, alive, returns, time = carry
            taken = jax.vmap(move, in_axes=(0, 0, 0, None, 0))(
                params, states, times_keys, time, own
            )
            returns = returns + jnp.where(alive, taken.reward, 0.0)
            return taken.state, alive & ~(taken.terminated | taken.truncated), returns, time + 1

        states, times_keys = jax.vmap(begin)(keys, own)
        alive = jnp.ones((len(keys), episodes), bool)
        start = states, alive, jnp.zeros(alive.shape, jnp.float32), jnp.int32(1)
        # Until the last agent's last episode has ended.
        found: Array = lax.while_loop(
            lambda carry: jnp.any(carry[1]) & (carry[3] <= limit), advance, start
        )[2]
        return found


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
                actions = self._explore(state.learner.params, seen, np.int32(row), self._keys)
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

        def act(seen: Inputs) -> npt.NDArray[Any]:
            actions = self._greedy(state.learner.params, self._grouped(seen), self._keys)
            return np.asarray(actions).reshape(-1)

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
        """Take a step; at a checkpoint, or if environments are not at this step, begin episodes.

        At step 0, environments that are elsewhere are reset and then take the step.
        """
        begins = self._stands_at != step or (
            step > 0 and step % self._config.checkpoint_period == 0
        )
        # The step is unknown if an error or an interruption stops the environments.
        self._stands_at = None
        if begins:
            seen = self._reset(step)
        if begins and step > 0:
            # Running episodes end with the last observation and are not counted in returns.
            acting = acting._replace(
                ended=jnp.ones_like(acting.ended), returns=jnp.zeros_like(acting.returns)
            )
            never = np.zeros(len(seen), np.bool_)
            taken = HostStep(seen, never.astype(np.float32), never, never)
        else:
            taken = self._environments.step(np.asarray(acting.states).reshape(-1))
        self._stands_at = step + self._config.num_envs
        return acting, TimeStep((), *(self._grouped(part) for part in taken))

    def _reset(self, step: int) -> Inputs:
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
        # Checkpoints, which cut episodes, must leave whole sequences.
        least = _SEQUENCES_BETWEEN_CUTS * config.sequence_length * config.num_envs
        require(
            config.checkpoint_period >= least,
            f"checkpoint_every >= {least} for {config.environment}, whose episodes are cut at "
            f"checkpoints ({_SEQUENCES_BETWEEN_CUTS} sequences of {config.sequence_length} rows of "
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
    """Make the program of a configuration: compiled for PuddleWorld and gymnax, else on the host.

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
