"""Successor features for any agent: wrappers for Gymnasium."""

import copy
import math
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

from rlreps.errors import require, require_interval


class StateFeatures(Protocol):
    """Anything with features of observations, such as a ``SuccessorRepresentation``."""

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        ...

    def features(self, observations: Any, *, scaling: Any = "singular") -> np.ndarray:
        """Compute features [m, d] of observations [m, ...]."""
        ...


class RepresentationObservation(
    gymnasium.ObservationWrapper[np.ndarray, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Shows the features of an environment's observations in their place (float32 [d]).

    Args:
        env: The environment.
        representation: Gives the features.
        scaling: As of ``SuccessorRepresentation.features``.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        representation: StateFeatures,
        *,
        scaling: str = "singular",
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, representation=representation, scaling=scaling
        )
        super().__init__(env)
        self._representation, self._scaling = representation, scaling
        shape = (representation.num_features,)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        # An observation that it does not take is refused now and not in the first episode: of a
        # copy, as a space has random numbers of its own, and of numbered states the last.
        space: Any = copy.deepcopy(env.observation_space)
        space.seed(0)
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        features = self.observation(space.start + space.n - 1 if discrete else space.sample())
        require(features.shape == shape, f"features of shape {shape}", features.shape)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the features of an observation."""
        features = self._representation.features(
            np.asarray(observation)[None], scaling=self._scaling
        )
        return np.asarray(features[0], np.float32)


class PotentialShaping(
    gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Adds γ Φ(s') - Φ(s) to rewards (Ng, Harada & Russell 1999), which changes no optimal policy.

    Terminal states have potential 0 whatever Φ says, or that would not hold; a truncation ends the
    episode and not the task, and Φ(s') counts there. ``info["unshaped_reward"]`` has the reward as
    it was: returns are to be judged by that.

    Args:
        env: The environment.
        potential: Observations [m, ...] → Φ [m], such as ``SuccessorRepresentation.potential``.
        discount: γ of the agent that is to learn from the rewards, in [0, 1].

    Raises:
        InputError: For a potential that does not take the observations, or is not finite.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        potential: Callable[[Any], Any],
        discount: float,
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, potential=potential, discount=discount)
        super().__init__(env)
        require_interval("discount", discount, "[0, 1]")
        self._potential, self._discount = potential, float(discount)
        # What does not fit is refused now and not in the first episode.
        self._latest = self.potential(env.observation_space.sample())

    def potential(self, observation: Any) -> float:
        """Return the potential of an observation."""
        found = np.asarray(self._potential(np.asarray(observation)[None]), np.float64)
        require(found.shape == (1,), "potentials [m] of observations [m, ...]", found.shape)
        value = float(found[0])
        require(math.isfinite(value), "a finite potential", value)
        return value

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._latest = self.potential(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        before, self._latest = self._latest, 0.0 if terminated else self.potential(observation)
        shaped = float(reward) + self._discount * self._latest - before
        return observation, shaped, terminated, truncated, {**info, "unshaped_reward": reward}
