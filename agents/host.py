"""The same agents in environments that run on the host: Gymnasium's and dm_env's.

All agents of a run act at once: one call steps their environments, and one compiled call remembers
the outcomes, learns if an update is due, and chooses the next actions.

The state of such an environment cannot be saved. So that a run resumed from a checkpoint is
bit-identical to one that never stopped, both reset the environments at every checkpoint, with seeds
that depend on the agent's seed and the step. Running episodes end there, as by a time limit, and
count in no return.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.compiled import Trainer
from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import DQN, Acting, AgentState
from rlreps.agents.environments import HostEnvironments, HostStep
from rlreps.agents.host_observations import Inputs
from rlreps.agents.keys import Use, environment_seed
from rlreps.envs.core import TimeStep
from rlreps.errors import InputError
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit_briefly

MOST_COPIES = 16
"""Number of environments in which an agent is evaluated at once."""


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
        # As evenly as possible: the last round may play a few episodes too many.
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
        """Take a step, or begin episodes at a checkpoint or if environments are at another step.

        At the first step, environments at another step are reset to the common start.
        """
        begins = self._stands_at != step or (
            step > 0 and step % self._config.checkpoint_period == 0
        )
        # The step is unknown if an error or an interruption stops the environments.
        self._stands_at = None
        if begins:
            seen = self._reset(step)
        if begins and step > 0:
            # Running episodes end with the last observation, and count in no return.
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
