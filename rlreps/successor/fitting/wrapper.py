"""Successor features for any agent: wrappers for Gymnasium."""

import copy
import math
import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rlreps.errors import require, require_interval
from rlreps.successor.fitting.representation import SuccessorRepresentation


class RepresentationObservation(
    gymnasium.ObservationWrapper[np.ndarray, Any, Any], gymnasium.utils.RecordConstructorArgs
):
    """Replaces an environment's observations by their features (float32 [d]).

    The features of a ``Discrete`` space are computed once.

    Args:
        env: The environment.
        representation: A ``SuccessorRepresentation``, the folder of a stored one, or anything with
            ``num_features`` and ``features(observations, scaling=)``. The environment's ``spec``
            can be written as JSON if a folder is given, since JSON holds no representation.
        scaling: As for ``SuccessorRepresentation.features``.

    Raises:
        InputError: For a representation that does not take the observations.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        representation: Any,
        *,
        scaling: str = "singular",
    ) -> None:
        if isinstance(representation, os.PathLike):
            representation = os.fspath(representation)  # JSON holds no paths.
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, representation=representation, scaling=scaling
        )
        super().__init__(env)
        if isinstance(representation, str):
            representation = SuccessorRepresentation.load(representation)
        self._representation, self._scaling = representation, scaling
        shape = (representation.num_features,)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        # Refuse unsuitable observations now rather than in the first episode.
        self._table: np.ndarray | None = None
        space = env.observation_space
        if isinstance(space, gymnasium.spaces.Discrete):
            self._start = int(space.start)
            self._table = self._features(np.arange(self._start, self._start + int(space.n)))
        else:
            self._features(np.asarray(_sampled(space))[None])

    def observation(self, observation: Any) -> np.ndarray:
        """Return the features [d] of an observation."""
        if self._table is not None:
            return np.array(self._table[int(observation) - self._start])
        return np.asarray(self._features(np.asarray(observation)[None])[0])

    def _features(self, observations: np.ndarray) -> np.ndarray:
        found = self._representation.features(observations, scaling=self._scaling)
        features: np.ndarray = np.asarray(found, np.float32)
        shape = (len(observations), self._representation.num_features)
        require(features.shape == shape, f"features of shape {shape}", features.shape)
        return features


def _sampled(space: gymnasium.Space[Any]) -> Any:
    """Draw an observation from a copy of a space, which has its own random numbers."""
    copied = copy.deepcopy(space)
    copied.seed(0)
    return copied.sample()


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
        # Refuse an unsuitable potential now rather than in the first episode.
        self._latest = self.potential(_sampled(env.observation_space))

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
