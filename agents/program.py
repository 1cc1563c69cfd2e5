"""Agents as a program of the host loop, whether their environments are compiled or not.

Agents differ only in their seeds and run on a leading seed axis. They never exchange data.
"""

import abc
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import DQN, SUMS, AgentState
from rlreps.agents.features import WithFitted, refit
from rlreps.errors import TrainingDivergedError
from rlreps.losses.base import Metrics, Params
from rlreps.numerics import make_keys
from rlreps.training.loop import Numbers, Program

_NARROWEST, _WIDEST = 0.02, 100.0
"""Ranges of a coordinate that networks learn from without further scaling."""


def warn_of_ranges(observations: Array, count: int) -> None:
    """Warn of coordinates of a replay whose range is far from that for which networks are made.

    Args:
        observations: Those of all agents, [seeds, slots, environments, *observation]; those of the
            first are examined. Bytes are images, which have a known range.
        count: Rows that each environment has added.
    """
    if observations.dtype != np.float32:
        return
    first = np.asarray(observations[0, :count])
    ranges = np.ptp(first, axis=(0, 1))
    odd = ((ranges > 0.0) & (ranges < _NARROWEST)) | (ranges > _WIDEST)
    for place in np.argwhere(odd)[:1]:
        index = tuple(place)
        others = f" (and {np.count_nonzero(odd) - 1} more)" if np.count_nonzero(odd) > 1 else ""
        names = ", ".join(map(str, index))
        warnings.warn(
            f"coordinate {names}{others} of what agents see has a range of {ranges[index]:.3g} so "
            "far, after scaling by the bounds of the observation space; networks learn from ranges "
            f"of {_NARROWEST:g} to {_WIDEST:g}. Declare bounds near the values, or scale them "
            "(gymnasium.wrappers.TransformObservation)",
            stacklevel=3,
        )


class AgentProgram(Program[AgentState]):
    """Agents of a configuration in their environments; states have a leading seed axis.

    Attributes:
        agent: The agent, which all seeds share.
        measure: Torsos' parameters [seeds, ...] → measures [seeds], for evaluations (``metrics``);
            by default an evaluation has returns alone.
        torsos: Parameters of torsos [seeds, ...] with which agents start; None draws them.
    """

    measure: Callable[[Params], Mapping[str, Array]] | None = None
    torsos: Params | None = None

    def __init__(self, config: AgentConfig, agent: DQN, seeds: Sequence[int] | None = None) -> None:
        self.agent = agent
        self._config = config
        self._agent_seeds = config.seeds if seeds is None else seeds
        self._keys = make_keys(self._agent_seeds)
        self._fits = config.features.fit_times(config.dqn.warmup, config.dqn.steps_per_update)

    @abc.abstractmethod
    def begin(self) -> AgentState:
        """Make agents before their first step, and start the environments."""

    @abc.abstractmethod
    def train(self, state: AgentState, step: int, count: int) -> tuple[AgentState, Metrics]:
        """Act and learn without a fit; arguments as for ``advance``.

        Returns:
            The new state, and sums of the metrics over steps and updates, [seeds].
        """

    @abc.abstractmethod
    def play(self, state: AgentState, step: int) -> Array:
        """Compute undiscounted returns [seeds, episodes] of greedy episodes, apart from training.

        The state does not change; ``step`` decides the episodes' randomness.

        Raises:
            InputError: If an environment does not end its episodes.
        """

    def init(self) -> AgentState:
        fresh = self.begin()
        if self.torsos is None:
            return fresh
        # Copy: training uses a state up, and the caller may start from the torsos again.
        params = {**fresh.learner.params, "torso": self.torsos}
        learned = self.agent.network.split(params)[0]
        params, target_params = jax.tree.map(jnp.copy, (params, learned))
        learner = fresh.learner._replace(params=params, target_params=target_params)
        return self.put(fresh._replace(learner=learner))

    def advance(self, state: AgentState, step: int, count: int) -> tuple[AgentState, Numbers]:
        """Let every agent act and learn for a while; the state passed in cannot be used again.

        Args:
            state: The current state.
            step: Environment steps that each agent has taken; a multiple of ``steps_per_update``.
            count: Further steps to take; also a multiple of ``steps_per_update``.

        Returns:
            The new state, and metrics [seeds]: means over the updates, ``episodes`` that ended,
            their mean ``training_return`` (NaN if none ended), and ``fit_seconds``, the time of
            each agent's fits, if features are fitted.
        """
        parts, seconds, begun, end = list[Metrics](), 0.0, step, step + count
        for until in (*(fit for fit in self._fits if step < fit < end), end):
            if begun in self._fits:
                jax.block_until_ready(state)
                start = time.perf_counter()
                state = self._refitted(state, begun)
                seconds += time.perf_counter() - start
            state, sums = self.train(state, begun, until - begun)
            parts.append(jax.device_get(sums))
            begun = until
        found: dict[str, Any] = {
            name: sum(sums[name] for sums in parts if name in sums)
            for name in {**parts[0], **parts[-1]}
        }
        episodes, total = (found.pop(name) for name in SUMS)
        updates = self._num_updates(end) - self._num_updates(step)
        # A chunk without an update has no mean over updates.
        means = {name: value / updates for name, value in found.items()} if updates else {}
        if self._fits:
            seeds = len(self._agent_seeds)
            means["fit_seconds"] = np.full(seeds, seconds / seeds, np.float32)
        jax.block_until_ready(state)
        self._require_finite(state, means, end)
        if step < self._config.dqn.warmup <= end:
            warn_of_ranges(state.replay.observation, end // self.agent.num_envs)
        with np.errstate(invalid="ignore"):  # No episode may have ended.
            training_return = total / episodes
        return state, {**means, "episodes": episodes, "training_return": training_return}

    def evaluate(self, state: AgentState, step: int) -> tuple[AgentState, Numbers]:
        """Compute mean returns of greedy episodes and all measures, [seeds] each."""
        returns = np.asarray(self.play(state, step), np.float64).mean(axis=1)
        measures = {} if self.measure is None else self.measure(state.learner.params["torso"])
        return state, {"returns": returns, **measures}

    def close(self) -> None:
        """Release the resources of the environments, if they hold any."""

    def note(self, record: Mapping[str, Any]) -> str:
        return f"return {np.mean(record['returns']):.1f}"

    def collect(self, state: AgentState) -> AgentState:
        kept: AgentState = jax.device_get(state)
        return kept

    def _require_finite(self, state: AgentState, means: Metrics, step: int) -> None:
        losses = [value for name, value in means.items() if name.endswith("loss")]
        parts = jax.tree.leaves(jax.device_get((losses, state.learner.params)))
        broken = [~np.isfinite(part).reshape(len(part), -1).all(axis=1) for part in parts]
        bad = [
            seed for seed, by in zip(self._agent_seeds, np.any(broken, axis=0), strict=True) if by
        ]
        if bad:
            raise TrainingDivergedError(
                f"the losses or parameters of seeds {', '.join(map(str, bad))} became NaN or "
                f"infinite before step {step}; try a smaller --learning-rate"
            )

    def _num_updates(self, step: int) -> int:
        """Return the number of each agent's updates before a step."""
        dqn = self._config.dqn
        return max(step - dqn.warmup, 0) // dqn.steps_per_update

    def _refitted(self, state: AgentState, step: int) -> AgentState:
        """Fit the features of all agents to their replay."""
        agent, learner = self.agent, state.learner
        torso = agent.network.torso
        assert isinstance(torso, WithFitted)
        count, actions = step // agent.num_envs, agent.network.num_actions
        fitted = refit(
            torso.config, learner.params, state.replay, count, actions, self._agent_seeds
        )
        params = agent.network.joined(learner.params, {"fitted": fitted})
        return self.put(state._replace(learner=learner._replace(params=params)))
