"""Trainers: agents in their environments, made from a configuration.

Agents differ only in their seeds and run on a leading seed axis. They never exchange data.

**In an environment of pure JAX** their training loops run side by side in one program, distributed
over devices if there are several.

**In environments on the host**, Gymnasium's and dm_env's, one call steps the environments of all
agents, and one compiled call remembers the outcomes, learns if an update is due, and chooses the
next actions. The state of such an environment cannot be saved. So that a run resumed from a
checkpoint is bit-identical to one that never stopped, both reset the environments at every
checkpoint, with seeds that depend on the agent's seed and the step. Running episodes end there, as
by a time limit, and count in no return.
"""

import abc
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.auxiliary import AuxiliaryTask, RepresentationTask
from rlreps.agents.config import AgentConfig, compiled_world_of, make_agent
from rlreps.agents.dqn import AGENTS, DQN, SUMS, Acting, AgentState
from rlreps.agents.features import WithFitted, refit
from rlreps.agents.host_observations import Inputs
from rlreps.agents.hosts import HostEnvironments, HostStep
from rlreps.agents.keys import Use, agent_keys, environment_seed, key_for, unrolled
from rlreps.agents.prior import Prior
from rlreps.encoders import Encoder
from rlreps.envs.core import Environment, TimeStep, observation_struct
from rlreps.errors import InputError, require, require_memory
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit_briefly, largest_even_share
from rlreps.training.devices import Placement, make_placement

MOST_COPIES = 16
"""Number of environments in which an agent is evaluated at once."""

_SEQUENCES_BETWEEN_CUTS = 4

Worlds: TypeAlias = tuple[Environment, Environment]
"""Environments that agents learn in and are evaluated in."""


class Trainer(abc.ABC):
    """Agents of a configuration in their environments; states have a leading seed axis.

    Attributes:
        agent: The agent that ``make_agent`` made for the environment.
    """

    def __init__(self, config: AgentConfig, agent: DQN, seeds: Sequence[int] | None = None) -> None:
        self.agent = agent
        self._config = config
        self._agent_seeds = config.seeds if seeds is None else seeds
        self._keys = agent_keys(self._agent_seeds)
        self._fits = config.features.fit_times(config.dqn.warmup, config.dqn.steps_per_update)

    @abc.abstractmethod
    def init(self) -> AgentState:
        """Make agents before their first step, and start the environments."""

    def advance(self, state: AgentState, step: int, steps: int) -> tuple[AgentState, Metrics]:
        """Let every agent act and learn for a while; the state passed in cannot be used again.

        Args:
            state: The current state.
            step: Environment steps that each agent has taken; a multiple of ``steps_per_update``.
            steps: Further steps to take; also a multiple of ``steps_per_update``.

        Returns:
            The new state, and metrics [seeds]: means over the updates, ``episodes`` that ended,
            their mean ``training_return`` (NaN if none ended), and ``fit_seconds``, the time of
            each agent's fits, if features are fitted.
        """
        parts, seconds, first, end = list[Metrics](), 0.0, step, step + steps
        for until in (*(fit for fit in self._fits if step < fit < end), end):
            if step in self._fits:
                jax.block_until_ready(state)
                start = time.perf_counter()
                state = self._refitted(state, step)
                seconds += time.perf_counter() - start
            state, metrics = self._between_fits(state, step, until - step)
            parts.append(metrics)
            step = until
        found: dict[str, Any] = {
            name: sum(metrics[name] for metrics in parts if name in metrics)
            for name in {**parts[0], **parts[-1]}
        }
        episodes, total = (found.pop(name) for name in SUMS)
        updates = self._num_updates(end) - self._num_updates(first)
        # A chunk without an update has no mean over updates.
        means = {name: value / updates for name, value in found.items()} if updates else {}
        if self._fits:
            count = len(self._agent_seeds)
            means["fit_seconds"] = jnp.full(count, seconds / count)
        return state, {**means, "episodes": episodes, "training_return": total / episodes}

    def _num_updates(self, step: int) -> int:
        """Return the number of each agent's updates before a step."""
        dqn = self._config.dqn
        return max(step - dqn.warmup, 0) // dqn.steps_per_update

    def _refitted(self, state: AgentState, step: int) -> AgentState:
        """Fit the features of all agents to their replay."""
        agent, learner = self.agent, state.learner
        torso = agent.network.torso
        assert isinstance(torso, WithFitted)
        fitted = refit(
            torso.config,
            learner.params,
            state.replay,
            step // agent.num_envs,
            agent.network.num_actions,
            self._agent_seeds,
        )
        params = agent.network.joined(learner.params, {"fitted": fitted})
        return self.put(state._replace(learner=learner._replace(params=params)))

    @abc.abstractmethod
    def _between_fits(self, state: AgentState, step: int, steps: int) -> tuple[AgentState, Metrics]:
        """Act and learn without a fit, and add up the metrics of steps and updates."""

    @abc.abstractmethod
    def evaluate(self, state: AgentState, step: int) -> Array:
        """Compute undiscounted returns [seeds, episodes] of greedy episodes, apart from training.

        The state does not change; ``step`` decides the episodes' randomness.

        Raises:
            InputError: If an environment does not end its episodes.
        """

    @abc.abstractmethod
    def put(self, state: AgentState) -> AgentState:
        """Place a state, such as one from a checkpoint, on this trainer's devices."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the resources of the environments."""


def place_agents(devices: Sequence[jax.Device] | None, count: int) -> Placement:
    """Distribute agents over the largest number of devices that divides them evenly."""
    return make_placement(None if devices is None else largest_even_share(devices, count), count)


class CompiledTrainer(Trainer):
    """Trainer of agents in a JAX environment.

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
        worlds: Worlds = (environment, environment if evaluation is None else evaluation)
        placement = self._placement = place_agents(devices, count)
        # Environments that all agents share are constants of the programs.
        self._placed = placement.put_seeds((self._keys, worlds if own_environments else ()))

        def begin(_state: Any, _span: Any, key: Array, own: Worlds | tuple[()]) -> AgentState:
            return agent.begin((own or worlds)[0], key)

        def train(
            state: AgentState, span: Array, key: Array, own: Worlds | tuple[()]
        ) -> tuple[AgentState, Metrics]:
            return agent.train((own or worlds)[0], state, span, unrolled(key))

        def play(params: Params, step: Array, key: Array, own: Worlds | tuple[()]) -> Array:
            return agent.evaluate(
                (own or worlds)[1],
                params,
                key_for(unrolled(key), Use.EVALUATE, step),
                episodes=config.evaluation_episodes,
                limit=config.max_episode_steps,
            )

        def for_all(function: Any) -> Any:
            each = jax.vmap(function, in_axes=(0, None, 0, 0), axis_name=AGENTS)
            return placement.spread_seeds(each, own_sources=False)

        # Each device makes its own agents: the memories of all agents may not fit on one device.
        self._begin = jit_briefly(for_all(begin))
        self._train = jit_briefly(for_all(train), donate_argnums=0)
        self._play = jit_briefly(for_all(play))

    def init(self) -> AgentState:
        return self.put(self._begin((), (), *self._placed))

    def put(self, state: AgentState) -> AgentState:
        return self._placement.put_seeds(state)

    def close(self) -> None:
        """Do nothing, since this trainer holds no resources."""

    def _between_fits(self, state: AgentState, step: int, steps: int) -> tuple[AgentState, Metrics]:
        learning = self._num_updates(step + steps) - self._num_updates(step)
        warm = steps // self._config.dqn.steps_per_update - learning
        span = [step // self._config.num_envs, warm, learning]
        placed = self._placement.put(jnp.asarray(span, jnp.int32))
        state, metrics = self._train(state, placed, *self._placed)
        return state, self._placement.collect(metrics)

    def evaluate(self, state: AgentState, step: int) -> Array:
        at = self._placement.put(jnp.asarray(step, jnp.int32))
        returns: Array = self._placement.collect(
            self._play(state.learner.params, at, *self._placed)
        )
        return returns


class HostTrainer(Trainer):
    """Trainer of agents in environments on the host.

    Its states are those of ``CompiledTrainer``, except for ``acting.states``: the actions chosen
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
            learns: bool, state: AgentState, taken: TimeStep, count: Array, key: Array
        ) -> tuple[AgentState, Metrics]:
            """Remember the actions' outcomes, learn if an update is due, and choose again."""
            state, metrics = agent.remember(state, state.acting.states, taken, count)
            if learns:
                state, losses = agent.learn(state, count + 1 - agent.period, key)
                metrics = {**metrics, **losses}
            return choose(state, count + 1, key), metrics

        def greedy(params: Params, seen: Array, key: Array) -> Array:
            return agent.act(params, seen, jnp.zeros(()), key)

        self._begin = jit_briefly(jax.vmap(begin))
        self._programs = {
            learns: jit_briefly(
                jax.vmap(partial(advance, learns), in_axes=(0, 0, None, 0)), donate_argnums=0
            )
            for learns in (False, True)
        }
        self._greedy = jit_briefly(jax.vmap(greedy))

    def init(self) -> AgentState:
        state = self._begin(self._grouped(self._reset(0)), self._keys)
        self._stands_at = 0
        return state

    def _between_fits(self, state: AgentState, step: int, steps: int) -> tuple[AgentState, Metrics]:
        num_envs, period, found = self._config.num_envs, self.agent.period, list[Metrics]()
        for count in range(step // num_envs, (step + steps) // num_envs):
            begun = (count + 1 - period) * num_envs
            learns = (count + 1) % period == 0 and begun >= self._config.dqn.warmup
            acting, taken = self._step(state.acting, count * num_envs)
            state, metrics = self._programs[learns](
                state._replace(acting=acting), taken, np.int32(count), self._keys
            )
            found.append(metrics)
        names = {name for metrics in found for name in metrics}
        held: list[Metrics] = jax.device_get(found)
        sums = {name: sum(each[name] for each in held if name in each) for name in names}
        return state, {name: jnp.asarray(value) for name, value in sums.items()}

    def evaluate(self, state: AgentState, step: int) -> Array:
        episodes = self._config.evaluation_episodes
        rounds = -(-episodes // MOST_COPIES)
        # Distribute episodes evenly over the rounds; the last round may play a few too many.
        copies = -(-episodes // rounds)
        if self._evaluation is None:
            self._evaluation = self._make(self._config.num_seeds * copies)
        returns = [
            self._play(
                self._evaluation,
                state.learner.params,
                self._seeds(Use.EVALUATE, step, range(first, first + copies)),
            )
            for first in range(0, episodes, copies)
        ]
        return jnp.asarray(np.concatenate(returns, axis=1)[:, :episodes])

    def put(self, state: AgentState) -> AgentState:
        placed: AgentState = jax.tree.map(jnp.asarray, state)
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

    def _play(
        self, environments: HostEnvironments, params: Params, seeds: list[int]
    ) -> npt.NDArray[np.float32]:
        """Play a greedy episode in every environment for returns [seeds, copies]."""
        seen = environments.reset(seeds)
        alive = np.ones((self._config.num_seeds, len(seeds) // self._config.num_seeds), np.bool_)
        returns = np.zeros(alive.shape, np.float32)
        limit = environments.max_episode_steps or self._config.max_episode_steps
        # Twice the limit: an environment may count its steps differently from Gymnasium.
        for _ in range(2 * limit):
            actions = self._greedy(params, self._grouped(seen), self._keys)
            taken = environments.step(np.asarray(actions).reshape(-1))
            returns += np.where(alive, self._grouped(taken.rewards), np.float32(0.0))
            alive &= ~self._grouped(taken.terminated | taken.truncated)
            seen = taken.observations
            if not alive.any():
                return returns
        raise InputError(
            f"expected every episode of {self._config.environment} to end within {limit} steps, "
            f"got one that goes on after {2 * limit}"
        )

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


def make_trainer(
    config: AgentConfig,
    *,
    devices: Sequence[jax.Device] | None = None,
    torso: Encoder | None = None,
    auxiliary: AuxiliaryTask | None = None,
    prior: Prior | None = None,
) -> Trainer:
    """Make the trainer of a configuration: compiled for PuddleWorld and gymnax, else on the host.

    Args:
        config: The run.
        devices: Devices over which seeds are distributed, if the trainer is compiled.
        torso: A user's own encoder instead of the configured one.
        auxiliary: A user's own auxiliary task instead of the configured one.
        prior: Action values with which all agents begin.

    Raises:
        InputError: For an environment that does not exist or does not fit the agent.
        ArenaError: For an unknown or invalid arena.
    """
    world = compiled_world_of(config)
    if world is not None:
        # The environment's own limit of steps counts, if it has one.
        config = dataclasses.replace(config, max_episode_steps=world.max_steps)
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
    parts: dict[str, Any] = {"torso": torso, "auxiliary": auxiliary, "prior": prior}
    agent = make_agent(config, sight.shape, actions, observation_dtype=sight.dtype, **parts)
    if world is not None:
        share = place_agents(devices, config.num_seeds).share
        _require_room(agent, config, math.ceil(share * config.num_seeds))
        return CompiledTrainer(config, world, agent, devices=devices)
    _require_room(agent, config, config.num_seeds)
    limit = config.max_episode_steps
    make = partial(HostEnvironments, config.environment, max_episode_steps=limit)
    return HostTrainer(config, make, agent)


def _require_room(agent: DQN, config: AgentConfig, seeds: int) -> None:
    """Raise an ``InputError`` if what this many agents hold at a time cannot fit into memory."""
    state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
    require_memory(f"the state of {seeds:,} agents, replay included", _bytes_of(state) * seeds)
    network, auxiliary = agent.network, agent.auxiliary
    drawn = config.dqn.batch_size * (config.dqn.n_step + 1)
    drawn += 0 if auxiliary is None else auxiliary.sequences * auxiliary.length
    row = _bytes_of(state.replay) // state.replay.action.size
    require_memory(f"{drawn:,} rows of replay in an update of each agent", drawn * row * seeds)
    if isinstance(auxiliary, RepresentationTask):
        size = 4 * auxiliary.sequences * auxiliary.length * auxiliary.num_tasks
        require_memory(f"cumulants of {auxiliary.num_tasks:,} tasks in an update", size * seeds)
    episodes = config.evaluation_episodes
    seen = 4 * (agent.observation.size + network.num_features + network.num_actions)
    require_memory(f"{episodes:,} episodes of an evaluation", seen * episodes * seeds)
    # Counted features solve sparse equations; the state has their table.
    if isinstance(network.torso, WithFitted) and network.torso.config.basis == "fourier":
        unknowns = network.torso.config.basis_size * network.num_actions
        what = f"{unknowns:,} unknowns (feature_basis_size for each action)"
        require_memory(what, 24 * unknowns**2)


def _bytes_of(tree: Any) -> int:
    # Python's integers do not overflow.
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
