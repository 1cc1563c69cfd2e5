"""Agents in an environment of pure JAX: their training loops run side by side in one program.

Agents differ only in their seeds and run on a leading seed axis, distributed over devices if there
are several. They never exchange data.
"""

import abc
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import AGENTS, DQN, SUMS, AgentState
from rlreps.agents.fitted import refit
from rlreps.agents.keys import Use, agent_keys, key_for
from rlreps.envs.core import Environment
from rlreps.errors import require
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit_briefly, largest_even_share
from rlreps.training.devices import Placement, make_placement

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
        """Let every agent act and learn for a while; the state passed in is used up.

        Args:
            state: The current state.
            step: Environment steps that each agent has taken; a multiple of ``steps_per_update``.
            steps: Further steps to take; a multiple, too.

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
        """Fit the features of all agents to their replay, for both networks."""
        agent, learner = self.agent, state.learner
        fitted = refit(
            self._config.features,
            learner.params,
            state.replay,
            step // agent.num_envs,
            agent.network.num_actions,
            self._agent_seeds,
        )
        params, target_params = (
            agent.network.joined(each, jax.tree.map(jnp.copy, fitted))
            for each in (learner.params, learner.target_params)
        )
        learner = learner._replace(params=params, target_params=target_params)
        return self.put(state._replace(learner=learner))

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
        own_environments: Whether each agent has its own environment: every leaf of both has a
            leading seed axis.
        seeds: One for each agent instead of the configuration's, so that agents in different
            environments may share seeds.
        devices: Devices, of which as many are used as divide the seeds evenly; None is JAX's
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
            return agent.train((own or worlds)[0], state, span, key)

        def play(params: Params, step: Array, key: Array, own: Worlds | tuple[()]) -> Array:
            return agent.evaluate(
                (own or worlds)[1],
                params,
                key_for(key, Use.EVALUATE, step),
                episodes=config.evaluation_episodes,
                limit=config.max_episode_steps,
            )

        def for_all(function: Any) -> Any:
            each = jax.vmap(function, in_axes=(0, None, 0, 0), axis_name=AGENTS)
            return placement.spread_seeds(each, own_sources=False)

        # Each device makes its own agents: the memories of all agents may not fit one device.
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
