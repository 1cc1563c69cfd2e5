"""Agents in an environment of pure JAX: acting, memory and learning in one compiled ``scan``.

Several agents, which differ in their seeds alone, run side by side on a leading seed axis, shared
out over devices where there are several. They never exchange a number.
"""

import abc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.dqn import DQN, AgentConfig, Memory, Use, agent_keys, keys_for
from rlreps.agents.replay import Rows
from rlreps.envs.core import Environment, TimeStep
from rlreps.errors import require
from rlreps.losses.base import Metrics
from rlreps.numerics import jit, jit_briefly, largest_even_share
from rlreps.training.devices import Placement, make_placement

Tree = TypeVar("Tree")

_SUMS = ("episodes", "returns")
"""Metrics that add up over a chunk; the others are means over its updates."""


class Acting(NamedTuple):
    """Places of agents in their environments; leading axes [seeds, environments].

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


class Worlds(NamedTuple):
    """Environments that agents learn in and are evaluated in."""

    training: Environment
    evaluation: Environment


class TrainerState(NamedTuple):
    """Everything that agents are; a checkpoint of it resumes exactly.

    Attributes:
        memory: What agents have learned and remember, [seeds, ...].
        acting: Where they are, [seeds, environments, ...].
    """

    memory: Memory
    acting: Acting


class Trainer(abc.ABC):
    """Agents of a configuration in their environments.

    Attributes:
        agent: What ``make_agent`` made for the environment.
    """

    def __init__(self, config: AgentConfig, agent: DQN) -> None:
        self._config = config
        self.agent = agent
        self._keys = agent_keys(config)
        # Rows of each environment from one update to the next.
        self._period = config.dqn.steps_per_update // config.num_envs

    @abc.abstractmethod
    def init(self) -> TrainerState:
        """Make agents before their first step, and start the environments."""

    @abc.abstractmethod
    def advance(self, state: TrainerState, step: int, steps: int) -> tuple[TrainerState, Metrics]:
        """Let every agent act and learn for a while; the state handed in is used up.

        Args:
            state: Where things stand.
            step: Environment steps that each agent has taken; a multiple of ``steps_per_update``.
            steps: How many more; a multiple, too.

        Returns:
            The new state, and metrics [seeds]: means over the updates, ``episodes`` that ended, and
            the mean ``training_return`` of those (NaN where none did).
        """

    @abc.abstractmethod
    def evaluate(self, state: TrainerState, step: int) -> Array:
        """Compute undiscounted returns [seeds, episodes] of greedy episodes, apart from training.

        The state is not changed; the ``step`` decides the episodes' randomness.

        Raises:
            InputError: If an environment does not end its episodes.
        """

    @abc.abstractmethod
    def put(self, state: TrainerState) -> TrainerState:
        """Place a state, such as one from a checkpoint, where this trainer wants it."""

    def whole(self, tree: Tree) -> Tree:
        """Return arrays with a leading seed axis whole, where this process can read them."""
        return tree

    def keep(self, state: TrainerState) -> TrainerState:
        """Return what a checkpoint keeps of a state."""
        fetched: TrainerState = jax.device_get(state)
        return fetched

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""

    def _actions(self, params: Any, seen: Array, count: Array, keys: Array) -> Array:
        """Choose actions [seeds, environments] for what is seen after ``count`` rows."""
        actions: Array = jax.vmap(self.agent.act, in_axes=(0, 0, None, 0))(
            params, seen, self.agent.epsilon(count), keys_for(keys, Use.ACT, count)
        )
        return actions

    def _remember(self, memory: Memory, count: Array, rows: Rows) -> Memory:
        """Add one more row of every environment of every agent."""
        remembered: Memory = jax.vmap(self.agent.remember, in_axes=(0, None, 0))(
            memory, count, rows
        )
        return remembered

    def _learn(self, memory: Memory, begun: Array, keys: Array) -> tuple[Memory, Metrics]:
        """Make every agent's update after a period that began after ``begun`` rows."""
        learned: tuple[Memory, Metrics] = jax.vmap(self.agent.learn, in_axes=(0, None, 0))(
            memory, begun + self._period, keys_for(keys, Use.LEARN, begun)
        )
        return learned


def place_agents(devices: Sequence[jax.Device] | None, count: int) -> Placement:
    """Share agents out over as many of the devices as do so evenly; None is JAX's default one."""
    return make_placement(None if devices is None else largest_even_share(devices, count), count)


class CompiledTrainer(Trainer):
    """Trainer of agents in a JAX environment.

    Args:
        config: The run.
        environment: The environment, which must end or cut its episodes itself.
        agent: What ``make_agent`` made for it.
        evaluation: The environment of evaluations, such as one whose rewards are not shaped; None
            is the same.
        own_environments: Whether each agent has an environment of its own: every leaf of both has a
            leading seed axis.
        seeds: One for each agent in place of the configuration's, so that agents in different
            environments may share theirs.
        devices: Devices of which as many are used as share the seeds out evenly; None is JAX's
            default device.
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
        super().__init__(config, agent)
        self._worlds = Worlds(environment, environment if evaluation is None else evaluation)
        self._own_environments = own_environments
        if seeds is not None:
            require(len(seeds) == config.num_seeds, f"{config.num_seeds} seeds", len(seeds))
            self._keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.int32))
        self._placement = place_agents(devices, config.num_seeds)
        self._placed = self._placement.put_seeds((self._keys, self._own))
        # Traced once for both programs.
        self._play = jit(self._steps_of_period)
        # With or without learning, between which there is no branch at run time.
        self._advance_chunk = {
            learns: jit_briefly(
                self._placement.spread_seeds(self._chunk(learns), own_sources=False),
                donate_argnums=0,
            )
            for learns in (False, True)
        }
        self._evaluate = jit_briefly(
            self._placement.spread_seeds(self._episodes, own_sources=False)
        )

    def init(self) -> TrainerState:
        def start(_state: Any, _source: Any, keys: Array, own: Any) -> TrainerState:
            memories = jax.vmap(self.agent.init)(keys_for(keys, Use.NETWORK, 0))
            reset_keys = self._split(keys_for(keys, Use.RESET, 0))
            states = self._each(_reset, own)(reset_keys)
            flags = jnp.zeros(reset_keys.shape, bool)
            seen = self._each(_observe, own)(states)
            return TrainerState(memories, Acting(states, seen, flags, flags.astype(jnp.float32)))

        # Each device makes its own: the memories of all agents may not fit one.
        spread = self._placement.spread_seeds(start, own_sources=False)
        return self.put(jit_briefly(spread)((), (), *self._placed))

    def put(self, state: TrainerState) -> TrainerState:
        return self._placement.put_seeds(state)

    def whole(self, tree: Tree) -> Tree:
        return self._placement.collect(tree)

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def advance(self, state: TrainerState, step: int, steps: int) -> tuple[TrainerState, Metrics]:
        warm = min(max(self._config.dqn.warmup - step, 0), steps)
        metrics: Metrics = {}
        for start, length, learns in ((step, warm, False), (step + warm, steps - warm, True)):
            if length:
                # Rows added before the chunk, and its periods between updates.
                first, rows = start // self._config.num_envs, length // self._config.num_envs
                span = self._placement.put(jnp.asarray([first, rows // self._period], jnp.int32))
                state, found = self._advance_chunk[learns](state, span, *self._placed)
                found = self.whole(found)
                # Of a part without and one with learning, sums add and means are the second's.
                sums = {
                    name: metrics.get(name, jnp.zeros_like(found[name])) + found[name]
                    for name in _SUMS
                }
                metrics = {**found, **sums}
        ended, total = metrics.pop("episodes"), metrics.pop("returns")
        metrics = {**metrics, "episodes": ended, "training_return": total / ended}
        return state, metrics

    def evaluate(self, state: TrainerState, step: int) -> Array:
        params = state.memory.learner.params
        counts = self._placement.put(jnp.asarray(step, jnp.int32))
        returns: Array = self.whole(self._evaluate(params, counts, *self._placed))
        return returns

    @property
    def _own(self) -> Any:
        """What differs by agent beside its key: its environments, or nothing."""
        return self._worlds if self._own_environments else ()

    def _each(self, function: Callable[..., Any], own: Any) -> Callable[..., Any]:
        """Lift a function of the training environment to [seeds, environments] of them."""
        if self._own_environments:
            each = jax.vmap(lambda worlds, *of: jax.vmap(partial(function, worlds.training))(*of))
            return partial(each, own)
        return jax.vmap(jax.vmap(partial(function, self._worlds.training)))

    def _split(self, keys: Array) -> Array:
        """Split keys [seeds] into one for each environment, [seeds, environments]."""
        split: Array = jax.vmap(lambda key: jax.random.split(key, self._config.num_envs))(keys)
        return split

    def _chunk(
        self, learns: bool
    ) -> Callable[[TrainerState, Array, Array, Any], tuple[TrainerState, Metrics]]:
        rows = self._period

        @jit  # Traced once for its shapes and the loop.
        def period(
            carry: TrainerState, count: Array, keys: Array, own: Any
        ) -> tuple[TrainerState, Metrics]:
            carry, summed = self._play(carry, count, keys, own)
            if not learns:
                return carry, summed
            memory, found = self._learn(carry.memory, count, keys)
            return carry._replace(memory=memory), {**summed, **found}

        def chunk(
            state: TrainerState, span: Array, keys: Array, own: Any
        ) -> tuple[TrainerState, Metrics]:
            first, periods = span
            # A loop of any number of periods is compiled once, whatever a warm-up leaves of one.
            shapes = jax.eval_shape(period, state, first, keys, own)[1]
            zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

            def body(
                index: Array, carry: tuple[TrainerState, Metrics]
            ) -> tuple[TrainerState, Metrics]:
                state, found = period(carry[0], first + rows * index, keys, own)
                return state, jax.tree.map(jnp.add, carry[1], found)

            state, metrics = lax.fori_loop(0, periods, body, (state, zeros))
            count = periods.astype(jnp.float32)
            return state, {
                name: value if name in _SUMS else value / count for name, value in metrics.items()
            }

        return chunk

    def _steps_of_period(
        self, carry: TrainerState, count: Array, keys: Array, own: Any
    ) -> tuple[TrainerState, Metrics]:
        """Take the steps from one update to the next, and sum their metrics."""

        def step(carry: TrainerState, offset: Array) -> tuple[TrainerState, Metrics]:
            return self._step(carry, count + offset, keys, own)

        carry, metrics = lax.scan(step, carry, jnp.arange(self._period, dtype=jnp.int32))
        return carry, {name: value.sum(axis=0) for name, value in metrics.items()}

    def _step(
        self, carry: TrainerState, count: Array, keys: Array, own: Any
    ) -> tuple[TrainerState, Metrics]:
        """Take and remember one step of every environment of every agent."""
        memory, acting = carry
        actions = self._actions(memory.learner.params, acting.observations, count, keys)
        step_keys = self._split(keys_for(keys, Use.STEP, count))
        taken = self._act(acting, actions, step_keys, own)
        rows = Rows(acting.observations, actions, taken.reward, taken.terminated, acting.ended)
        memory = self._remember(memory, count, rows)
        returns = acting.returns + taken.reward
        ended = taken.terminated | taken.truncated
        metrics = {
            "episodes": jnp.sum(ended, axis=1, dtype=jnp.float32),
            "returns": jnp.sum(jnp.where(ended, returns, 0.0), axis=1),
        }
        acting = Acting(taken.state, taken.observation, ended, jnp.where(ended, 0.0, returns))
        return TrainerState(memory, acting), metrics

    def _act(self, acting: Acting, actions: Array, keys: Array, own: Any) -> TimeStep:
        """Step environments, but reset those whose episode has ended."""
        taken = self._each(_step, own)(keys, acting.states, actions)

        def with_resets(taken: TimeStep) -> TimeStep:
            fresh = self._each(_reset, own)(keys)
            begun = TimeStep(
                state=fresh,
                observation=self._each(_observe, own)(fresh),
                reward=jnp.zeros_like(taken.reward),
                terminated=jnp.zeros_like(taken.terminated),
                truncated=jnp.zeros_like(taken.truncated),
            )
            chosen: TimeStep = jax.vmap(
                jax.vmap(lambda ended, *steps: jax.tree.map(partial(jnp.where, ended), *steps))
            )(acting.ended, begun, taken)
            return chosen

        # A reset costs more than a step: none is drawn where no episode of any agent has ended.
        result: TimeStep = lax.cond(jnp.any(acting.ended), with_resets, lambda same: same, taken)
        return result

    def _episodes(self, params: Any, step: Array, keys: Array, own: Any) -> Array:
        """Play greedy episodes, each of its own start, for returns [seeds, episodes]."""
        count = self._config.evaluation_episodes

        def one(params: Any, key: Array, own: Any) -> Array:
            environment = (own if self._own_environments else self._worlds).evaluation
            reset_key, times_key = jax.random.split(key)
            states = jax.vmap(environment.reset)(jax.random.split(reset_key, count))

            def advance(carry: Any, time: Array) -> tuple[Any, None]:
                states, alive, returns = carry
                time_key = jax.random.fold_in(times_key, time)
                seen = jax.vmap(environment.observe)(states)
                act_key, step_key = jax.random.split(time_key)
                actions = self.agent.act(params, seen, jnp.zeros(()), act_key)
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

        returns: Array = jax.vmap(one)(params, keys_for(keys, Use.EVALUATE, step), own)
        return returns


def _reset(environment: Environment, key: Array) -> Any:
    return environment.reset(key)


def _step(environment: Environment, key: Array, state: Any, action: Array) -> TimeStep:
    return environment.step(key, state, action)


def _observe(environment: Environment, state: Any) -> Array:
    return environment.observe(state)
