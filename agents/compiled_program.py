"""Agents in environments of pure JAX, as a program of the host loop (``rlreps.training.loop``).

All agents act, remember and learn in one program, distributed over devices if there are several.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import DQN, SUMS, AgentState
from rlreps.agents.keys import Use, key_for, unrolled
from rlreps.agents.program import AgentProgram
from rlreps.envs.core import Environment, TimeStep, step_or_reset
from rlreps.errors import require
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit, jit_briefly, largest_even_share
from rlreps.training.devices import make_placement

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
