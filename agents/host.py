"""The same agents in environments that run on the host: Gymnasium's and dm_env's.

All agents of a run act at once: one call steps their environments, and one compiled call remembers
what came of it, learns if that is due, and chooses the next actions.

The state of such an environment cannot be saved. So that a run which goes on from a checkpoint is
bit-identical to one that never stopped, both reset the environments at every checkpoint, with
seeds that depend on the agent's and the step; episodes that were going on end there, as by a time
limit, and count in no return.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.compiled import Acting, Trainer, TrainerState
from rlreps.agents.dqn import DQN, AgentConfig, Memory, Use, keys_for
from rlreps.agents.environments import HostEnvironments, HostStep, Inputs, environment_seed
from rlreps.agents.replay import Rows
from rlreps.errors import InputError
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import jit_briefly

MOST_COPIES = 16
"""Environments that an agent is evaluated in at once."""


class HostTrainer(Trainer):
    """Trainer of agents in environments on the host.

    Its states are those of ``CompiledTrainer``, but for ``acting.states``: the actions that have
    been chosen for ``acting.observations``, [seeds, environments].

    Args:
        config: The run.
        make_environments: Number of copies → environments, which must end or cut their episodes
            themselves.
        agent: What ``make_agent`` made for them.
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
        # The step that the environments stand at, if any.
        self._stands_at: int | None = None
        self._advance_row = {
            learns: jit_briefly(partial(self._remember_and_act, learns), donate_argnums=0)
            for learns in (False, True)
        }
        self._greedy = jit_briefly(self._greedy_actions)

    def init(self) -> TrainerState:
        memory = jit_briefly(jax.vmap(self.agent.init))(keys_for(self._keys, Use.NETWORK, 0))
        seen = self._grouped(self._reset(0))
        self._stands_at = 0
        actions = jax.jit(self._actions)(memory.learner.params, seen, np.int32(0), self._keys)
        flags = jnp.zeros(actions.shape, bool)
        return TrainerState(memory, Acting(actions, seen, flags, flags.astype(jnp.float32)))

    def advance(self, state: TrainerState, step: int, steps: int) -> tuple[TrainerState, Metrics]:
        memory, acting = state
        actions, seen = acting.states, acting.observations
        episodes = _Episodes(np.array(acting.ended), np.array(acting.returns))
        shape = episodes.ended.shape
        updates: list[Metrics] = []
        num_envs = self._config.num_envs
        for count in range(step // num_envs, (step + steps) // num_envs):
            taken = self._step(count, actions, episodes)
            rewards, terminated = taken.rewards.reshape(shape), taken.terminated.reshape(shape)
            # A compiled call takes NumPy's arrays as they are.
            result: Any = (rewards, terminated, episodes.ended)
            rows = Rows(seen, actions, *result)
            seen = self._grouped(taken.observations)
            memory, actions, metrics = self._advance_row[self._learns(count)](
                memory, rows, seen, np.int32(count), self._keys
            )
            updates.append(metrics)
            episodes.add(rewards, terminated | taken.truncated.reshape(shape))
        ended, returns = jnp.asarray(episodes.ended), jnp.asarray(episodes.returns)
        found = {**_means(updates), **episodes.metrics()}
        return TrainerState(memory, Acting(actions, seen, ended, returns)), found

    def evaluate(self, state: TrainerState, step: int) -> Array:
        episodes = self._config.evaluation_episodes
        rounds = -(-episodes // MOST_COPIES)
        # As even as can be: the last round may play a few episodes too many.
        copies = -(-episodes // rounds)
        if self._evaluation is None:
            self._evaluation = self._make(self._config.num_seeds * copies)
        params, environments = state.memory.learner.params, self._evaluation
        returns = [
            self._play(
                environments, params, self._seeds(Use.EVALUATE, step, range(first, first + copies))
            )
            for first in range(0, episodes, copies)
        ]
        return jnp.asarray(np.concatenate(returns, axis=1)[:, :episodes])

    def _play(
        self, environments: HostEnvironments, params: Params, seeds: list[int]
    ) -> npt.NDArray[np.float32]:
        """Play a greedy episode in every environment for returns [seeds, copies]."""
        shape = (self._config.num_seeds, len(seeds) // self._config.num_seeds)
        seen = environments.reset(seeds)
        returns, alive = np.zeros(shape, np.float32), np.ones(shape, np.bool_)
        limit = environments.max_episode_steps or self._config.max_episode_steps
        # Twice: what ends its episodes itself may not count as Gymnasium does.
        for _ in range(2 * limit):
            actions = self._greedy(params, self._grouped(seen), self._keys)
            taken = environments.step(np.asarray(actions).reshape(-1))
            returns += np.where(alive, taken.rewards.reshape(shape), np.float32(0.0))
            alive &= ~(taken.terminated | taken.truncated).reshape(shape)
            seen = taken.observations
            if not alive.any():
                return returns
        raise InputError(
            f"expected every episode of {self._config.environment} to end within {limit} steps, "
            f"got one that goes on after {2 * limit}"
        )

    def put(self, state: TrainerState) -> TrainerState:
        placed: TrainerState = jax.tree.map(jnp.asarray, state)
        return placed

    def close(self) -> None:
        self._environments.close()
        if self._evaluation is not None:
            self._evaluation.close()

    def _learns(self, count: int) -> bool:
        """Tell whether an update follows the row after ``count``."""
        begun = (count + 1 - self._period) * self._config.num_envs
        return (count + 1) % self._period == 0 and begun >= self._config.dqn.warmup

    def _step(self, count: int, actions: Array, episodes: "_Episodes") -> HostStep:
        """Take a step, or begin episodes where a checkpoint is or environments are elsewhere.

        At the first step, environments that are elsewhere are brought to where all begin.
        """
        step = count * self._config.num_envs
        begins = self._stands_at != step or (
            step > 0 and step % self._config.checkpoint_period == 0
        )
        # Wherever an error or an interruption leaves them.
        self._stands_at = None
        if begins:
            seen = self._reset(step)
        if begins and step > 0:
            episodes.cut()
            nothing = np.zeros(len(seen), np.bool_)
            taken = HostStep(seen, nothing.astype(np.float32), nothing, nothing)
        else:
            taken = self._environments.step(np.asarray(actions).reshape(-1))
        self._stands_at = step + self._config.num_envs
        return taken

    def _grouped(self, observations: Inputs) -> Array:
        """Reshape observations [seeds x copies, ...] to [seeds, copies, ...]."""
        return jnp.asarray(
            observations.reshape(self._config.num_seeds, -1, *observations.shape[1:])
        )

    def _remember_and_act(
        self, learns: bool, memory: Memory, rows: Rows, seen: Array, count: Array, keys: Array
    ) -> tuple[Memory, Array, Metrics]:
        """Add a row of every environment, learn if that is due, and choose the next actions."""
        memory = self._remember(memory, count, rows)
        metrics: Metrics = {}
        if learns:
            memory, metrics = self._learn(memory, count + 1 - self._period, keys)
        return memory, self._actions(memory.learner.params, seen, count + 1, keys), metrics

    def _greedy_actions(self, params: Params, seen: Array, keys: Array) -> Array:
        act = self.agent.act
        actions: Array = jax.vmap(
            lambda own, own_seen, key: act(own, own_seen, jnp.zeros(()), key)
        )(params, seen, keys)
        return actions

    def _reset(self, step: int) -> Inputs:
        """Begin episodes of training, [seeds x environments, ...]."""
        return self._environments.reset(self._seeds(Use.RESET, step, range(self._config.num_envs)))

    def _seeds(self, use: Use, step: int, copies: Iterable[int]) -> list[int]:
        """Derive seeds of some copies of every agent, [seeds x copies]."""
        first = self._config.seed
        return [
            environment_seed(seed, use, step, copy)
            for seed in range(first, first + self._config.num_seeds)
            for copy in copies
        ]


class _Episodes:
    """Episodes of training that go on and, of those that ended, number and returns.

    Attributes:
        ended: Whether what is seen is an episode's last observation, [seeds, environments].
        returns: Undiscounted rewards of episodes so far, [seeds, environments].
    """

    def __init__(self, ended: npt.NDArray[np.bool_], returns: npt.NDArray[np.float32]) -> None:
        self.ended, self.returns = ended, returns
        self._count, self._total = np.zeros((2, len(ended)), np.float32)

    def cut(self) -> None:
        """End those that go on, which then count in no return."""
        self.ended, self.returns = np.ones_like(self.ended), np.zeros_like(self.returns)

    def add(self, rewards: npt.NDArray[np.float32], ended: npt.NDArray[np.bool_]) -> None:
        """Count a step's rewards and ends."""
        returns = self.returns + rewards
        self._count += ended.sum(axis=1, dtype=np.float32)
        self._total += np.where(ended, returns, np.float32(0.0)).sum(axis=1)
        # New arrays: a device may still read the old ones.
        self.ended, self.returns = ended, np.where(ended, np.float32(0.0), returns)

    def metrics(self) -> Metrics:
        """Return episodes that ended, and their mean return, NaN where none did, [seeds]."""
        count, total = jnp.asarray(self._count), jnp.asarray(self._total)
        return {"episodes": count, "training_return": total / count}


def _means(updates: list[Metrics]) -> Metrics:
    """Average metrics [seeds] over updates, of which those without metrics were none."""
    found = jax.device_get([metrics for metrics in updates if metrics])
    names = found[0] if found else ()
    return {name: jnp.asarray(np.mean([of[name] for of in found], axis=0)) for name in names}
