"""Agents in an environment of pure JAX: acting, memory and learning in one compiled ``scan``.

Several agents, which differ in their seeds alone, run side by side on a leading seed axis, shared
out over devices where there are several. They never exchange a number.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.agent import Agent, Memory, Use, agent_keys, keys_for
from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import Metrics
from rlreps.agents.rows import Rows
from rlreps.envs.core import Environment, TimeStep
from rlreps.training.devices import Placement, largest_even_share, make_placement

_SUMS = ("episodes", "returns")
"""Metrics that add up over a chunk; the others are means over its updates."""


class Acting(NamedTuple):
    """Where agents are in their environments; leading axes [seeds, environments].

    Attributes:
        states: The environments' states.
        observations: What agents see.
        ended: Whether that is the last observation of an episode: the next action will be ignored
            and an episode begun.
        returns: Undiscounted rewards of the episode so far.
    """

    states: Any
    observations: Array
    ended: Array
    returns: Array


class LoopState(NamedTuple):
    """Everything there is; a checkpoint of it resumes exactly.

    Attributes:
        memory: What agents have learned and remember, [seeds, ...].
        acting: Where they are, [seeds, environments, ...].
    """

    memory: Memory
    acting: Acting


class CompiledLoop:
    """Trains agents in a JAX environment."""

    def __init__(
        self,
        config: AgentConfig,
        environment: Environment,
        agent: Agent,
        *,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        """Nothing is computed yet.

        Args:
            config: The run.
            environment: The environment, which must end or cut its episodes itself.
            agent: What ``make_agent`` made for it.
            devices: Devices of which as many are used as share the seeds out evenly; None is JAX's
                default device.
        """
        self._config = config
        self._environment = environment
        self.agent = agent
        count = config.num_seeds
        self._placement = (
            Placement()
            if devices is None
            else make_placement(largest_even_share(devices, count), count)
        )
        self._keys = agent_keys(config)
        # With or without learning, between which there is no branch at run time.
        self._run = {
            learns: jax.jit(
                self._placement.spread_seeds(self._chunk(learns), own_sources=False),
                donate_argnums=0,
            )
            for learns in (False, True)
        }
        self._evaluate = jax.jit(self._placement.spread_seeds(self._episodes, own_sources=False))

    def init(self) -> LoopState:
        """Agents before their first step."""

        @jax.jit
        def start(keys: Array) -> LoopState:
            memories = jax.vmap(self.agent.init)(keys_for(keys, Use.NETWORK, 0))
            reset_keys = self._split(keys_for(keys, Use.RESET, 0))
            states = _each(self._environment.reset)(reset_keys)
            flags = jnp.zeros(reset_keys.shape, bool)
            acting = Acting(
                states,
                _each(self._environment.observe)(states),
                flags,
                flags.astype(jnp.float32),
            )
            return LoopState(memories, acting)

        return self.put(start(self._keys))

    def put(self, state: LoopState) -> LoopState:
        """A state shared out over the devices, such as one from a checkpoint."""
        return self._placement.put_seeds(state)

    def close(self) -> None:
        """Nothing is held."""

    def run(self, state: LoopState, step: int, steps: int) -> tuple[LoopState, Metrics]:
        """Lets every agent act and learn for a while; the state handed in is used up.

        Args:
            state: Where things stand.
            step: Environment steps that each agent has taken; a multiple of ``steps_per_update``.
            steps: How many more; a multiple, too.

        Returns:
            The new state, and metrics [seeds]: means over the updates, ``episodes`` that ended, and
            the mean ``training_return`` of those (NaN where none did).
        """
        warm = min(max(self._config.dqn.warmup - step, 0), steps)
        metrics: Metrics = {}
        for start, length, learns in ((step, warm, False), (step + warm, steps - warm, True)):
            if length:
                state, found = self._run[learns](
                    state, self._span(start, length), self._keys, self._keys
                )
                metrics = _merged(metrics, found)
        ended, total = metrics.pop("episodes"), metrics.pop("returns")
        metrics = {**metrics, "episodes": ended, "training_return": total / ended}
        return state, metrics

    def evaluate(self, state: LoopState, step: int) -> Array:
        """Undiscounted returns [seeds, episodes] of greedy episodes, apart from training.

        Args:
            state: What agents have learned; not changed.
            step: Environment steps that each agent has taken; decides the episodes' randomness.
        """
        params = state.memory.learner.params
        counts = jnp.asarray(step, jnp.int32)
        returns: Array = self._evaluate(params, counts, self._keys, self._keys)
        return returns

    def _span(self, start: int, steps: int) -> Array:
        """Rows added before a chunk, and its periods from one update to the next, [2] (int32)."""
        first = start // self._config.num_envs
        return jnp.asarray([first, steps // self._config.dqn.steps_per_update], jnp.int32)

    def _split(self, keys: Array) -> Array:
        """A key [seeds, environments] for each environment of every agent."""
        split: Array = jax.vmap(lambda key: jax.random.split(key, self._config.num_envs))(keys)
        return split

    def _chunk(
        self, learns: bool
    ) -> Callable[[LoopState, Array, Array, Array], tuple[LoopState, Metrics]]:
        rows = self._config.dqn.steps_per_update // self._config.num_envs

        def period(carry: LoopState, count: Array, keys: Array) -> tuple[LoopState, Metrics]:
            def step(carry: LoopState, offset: Array) -> tuple[LoopState, Metrics]:
                return self._step(carry, count + offset, keys)

            carry, metrics = lax.scan(step, carry, jnp.arange(rows, dtype=jnp.int32))
            summed = {name: value.sum(axis=0) for name, value in metrics.items()}
            if not learns:
                return carry, summed
            learn_keys = keys_for(keys, Use.LEARN, count)
            memory, found = jax.vmap(self.agent.learn, in_axes=(0, None, 0))(
                carry.memory, count + rows, learn_keys
            )
            return carry._replace(memory=memory), {**summed, **found}

        def chunk(
            state: LoopState, span: Array, keys: Array, _: Array
        ) -> tuple[LoopState, Metrics]:
            first, periods = span
            # A loop of any number of periods is compiled once, whatever a warm-up leaves of one.
            shapes = jax.eval_shape(period, state, first, keys)[1]
            zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

            def body(index: Array, carry: tuple[LoopState, Metrics]) -> tuple[LoopState, Metrics]:
                state, found = period(carry[0], first + rows * index, keys)
                return state, jax.tree.map(jnp.add, carry[1], found)

            state, metrics = lax.fori_loop(0, periods, body, (state, zeros))
            count = periods.astype(jnp.float32)
            return state, {
                name: value if name in _SUMS else value / count for name, value in metrics.items()
            }

        return chunk

    def _step(self, carry: LoopState, count: Array, keys: Array) -> tuple[LoopState, Metrics]:
        """One step of every environment of every agent, remembered."""
        memory, acting = carry
        epsilon = self.agent.epsilon(count)
        act_keys = keys_for(keys, Use.ACT, count)
        actions = jax.vmap(self.agent.dqn.act, in_axes=(0, 0, None, 0))(
            memory.learner.params, acting.observations, epsilon, act_keys
        )
        step_keys = self._split(keys_for(keys, Use.STEP, count))
        taken = self._advance(acting, actions, step_keys)
        rows = Rows(acting.observations, actions, taken.reward, taken.terminated, acting.ended)
        memory = jax.vmap(self.agent.remember, in_axes=(0, None, 0))(memory, count, rows)
        returns = acting.returns + taken.reward
        ended = taken.terminated | taken.truncated
        metrics = {
            "episodes": jnp.sum(ended, axis=1, dtype=jnp.float32),
            "returns": jnp.sum(jnp.where(ended, returns, 0.0), axis=1),
        }
        acting = Acting(taken.state, taken.observation, ended, jnp.where(ended, 0.0, returns))
        return LoopState(memory, acting), metrics

    def _advance(self, acting: Acting, actions: Array, keys: Array) -> TimeStep:
        """Steps environments, and resets in place of it those whose episode has ended."""
        taken = _each(self._environment.step)(keys, acting.states, actions)

        def with_resets(taken: TimeStep) -> TimeStep:
            fresh = _each(self._environment.reset)(keys)
            begun = TimeStep(
                state=fresh,
                observation=_each(self._environment.observe)(fresh),
                reward=jnp.zeros_like(taken.reward),
                terminated=jnp.zeros_like(taken.terminated),
                truncated=jnp.zeros_like(taken.truncated),
            )
            chosen: TimeStep = jax.tree.map(
                lambda new, old: jnp.where(_like(acting.ended, old), new, old), begun, taken
            )
            return chosen

        # A reset costs more than a step: none is drawn where no episode of any agent has ended.
        result: TimeStep = lax.cond(jnp.any(acting.ended), with_resets, lambda same: same, taken)
        return result

    def _episodes(self, params: Any, step: Array, keys: Array, _: Array) -> Array:
        """Returns [seeds, episodes] of greedy episodes, each of its own start."""
        environment, count = self._environment, self._config.evaluation_episodes

        def own(params: Any, key: Array) -> Array:
            reset_key, times_key = jax.random.split(key)
            states = jax.vmap(environment.reset)(jax.random.split(reset_key, count))

            def advance(carry: Any, time: Array) -> tuple[Any, None]:
                states, alive, returns = carry
                time_key = jax.random.fold_in(times_key, time)
                seen = jax.vmap(environment.observe)(states)
                act_key, step_key = jax.random.split(time_key)
                actions = self.agent.dqn.act(params, seen, jnp.zeros(()), act_key)
                taken = jax.vmap(environment.step)(
                    jax.random.split(step_key, count), states, actions
                )
                returns = returns + jnp.where(alive, taken.reward, 0.0)
                alive = alive & ~(taken.terminated | taken.truncated)
                return (taken.state, alive, returns), None

            start = (states, jnp.ones((count,), bool), jnp.zeros((count,), jnp.float32))
            times = 1 + jnp.arange(self._config.max_episode_steps, dtype=jnp.int32)
            (_, _, returns), _ = lax.scan(advance, start, times)
            return returns

        return jax.vmap(own)(params, keys_for(keys, Use.EVALUATE, step))


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one environment for [seeds, environments] of them."""
    return jax.vmap(jax.vmap(function))


def _like(flags: Array, leaf: Array) -> Array:
    """Flags [seeds, environments] that broadcast against a leaf."""
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - flags.ndim))


def _merged(metrics: Metrics, found: Metrics) -> Metrics:
    """Metrics of a part without learning and of one with it: sums add, means are of the second."""
    sums = {name: metrics.get(name, jnp.zeros_like(found[name])) + found[name] for name in _SUMS}
    return {**found, **sums}
