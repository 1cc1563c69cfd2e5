"""Successor features for any agent: wrappers for Gymnasium."""

import copy
import math
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

from rlreps.errors import require, require_interval


class StateFeatures(Protocol):
    """Anything that computes features of observations, such as a ``SuccessorRepresentation``."""

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        ...

    def features(self, observations: Any, *, scaling: Any = "singular") -> np.ndarray:
        """Compute features [m, d] of observations [m, ...]."""
        ...


_MOST_CACHED = 2**26
"""Largest table of features, in numbers (256 MB); larger spaces are computed on demand."""


class _Shown:
    """Features of a space's observations; numbered states come from a table that is made once."""

    def __init__(
        self, representation: StateFeatures, scaling: str, space: gymnasium.Space[Any]
    ) -> None:
        self._representation, self._scaling = representation, scaling
        self._start, self._table = 0, np.empty((0, representation.num_features), np.float32)
        # Refuse observations that do not fit now, not in the first episode. Of numbered states, try
        # all or the last; otherwise try a sample from a copy of the space, which has its own random
        # numbers.
        if isinstance(space, gymnasium.spaces.Discrete):
            start, count = int(space.start), int(space.n)
            if count * representation.num_features <= _MOST_CACHED:
                self._start, self._table = start, self.of_many(np.arange(start, start + count))
            else:
                self.of_many(np.array([start + count - 1]))
        else:
            sampled = copy.deepcopy(space)
            sampled.seed(0)
            self.of_many(np.asarray(sampled.sample())[None])

    def of_many(self, observations: np.ndarray) -> np.ndarray:
        """Return the features [m, d] of observations [m, ...]."""
        if len(self._table):
            indices = observations - self._start
            if indices.min() >= 0 and indices.max() < len(self._table):
                return np.asarray(self._table[indices])
        found = self._representation.features(observations, scaling=self._scaling)
        features = np.asarray(found, np.float32)
        shape = (len(observations), self._representation.num_features)
        require(features.shape == shape, f"features of shape {shape}", features.shape)
        return features


class RepresentationObservation(
    gymnasium.ObservationWrapper[np.ndarray, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Replaces an environment's observations by their features (float32 [d]).

    The features of a ``Discrete`` space are computed once. ``RepresentationVectorObservation`` does
    the same for vector environments, with one call for all copies.

    Args:
        env: The environment.
        representation: Computes the features.
        scaling: As for ``SuccessorRepresentation.features``.

    Raises:
        InputError: For a representation that does not take the observations.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        representation: StateFeatures,
        *,
        scaling: str = "singular",
    ) -> None:
        one = not isinstance(env, gymnasium.vector.VectorEnv)
        require(one, "one environment; RepresentationVectorObservation takes vectors", env)
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, representation=representation, scaling=scaling
        )
        super().__init__(env)
        self.observation_space = _feature_space(representation)
        self._shown = _Shown(representation, scaling, env.observation_space)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the features [d] of an observation."""
        features: np.ndarray = self._shown.of_many(np.asarray(observation)[None])[0]
        return features


class RepresentationVectorObservation(
    gymnasium.vector.VectorObservationWrapper[np.ndarray, Any, Any, Any]
):
    """Replaces a vector environment's observations by their features (float32 [e, d]).

    The features of a ``Discrete`` space are computed once, all others in one call for all copies.

    Args:
        env: The vector environment, in autoreset mode ``NEXT_STEP`` or ``DISABLED``.
        representation: Computes the features.
        scaling: As for ``SuccessorRepresentation.features``.

    Raises:
        InputError: For a representation that does not take the observations.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        representation: StateFeatures,
        *,
        scaling: str = "singular",
    ) -> None:
        super().__init__(env)
        self.single_observation_space = _feature_space(representation)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, self.num_envs
        )
        self._shown = _Shown(representation, scaling, env.single_observation_space)

    def observations(self, observations: Any) -> np.ndarray:
        """Return the features [e, d] of the observations of all copies."""
        return self._shown.of_many(np.asarray(observations))


def _feature_space(representation: StateFeatures) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, (representation.num_features,), np.float32)


class PotentialShaping(
    gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Adds γ Φ(s') - Φ(s) to rewards (Ng, Harada & Russell 1999), which changes no optimal policy.

    Terminal states have potential 0 whatever Φ says, since otherwise optimal policies could change.
    A truncation ends the episode but not the task, and Φ(s') counts there.
    ``info["unshaped_reward"]`` holds the original reward: measure returns by it.

    Args:
        env: The environment.
        potential: Observations [m, ...] → Φ [m], such as ``SuccessorRepresentation.potential``.
        discount: γ of the agent that learns from the rewards, in [0, 1].

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
        # Refuse a potential that does not fit now, not in the first episode.
        sampled = copy.deepcopy(env.observation_space)
        sampled.seed(0)
        self._latest = self.potential(sampled.sample())

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
