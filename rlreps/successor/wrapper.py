"""Successor features in front of any agent: a wrapper for Gymnasium."""

import copy
from typing import Any, Protocol

import gymnasium
import numpy as np

from rlreps.errors import require


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
