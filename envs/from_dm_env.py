"""Environments of dm_env as environments of Gymnasium."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from dm_env import specs  # type: ignore[import-untyped]
from gymnasium import spaces

from rlreps.errors import require


class FromDmEnv(gymnasium.Env[Any, Any]):
    """An environment of dm_env as one of Gymnasium.

    An episode that ends with discount 0 terminates; any other end is a truncation. Earlier
    discounts are not used. dm_env has no way of seeding, so seeds have no effect. dm_env has no
    pictures, so they come from a method ``render`` of the environment.

    Args:
        environment: The environment of dm_env.
        name: Its name, for messages.
    """

    def __init__(self, environment: Any, name: str = "the environment") -> None:
        self.environment, self._name = environment, name
        actions = environment.action_spec()
        self.action_space = space_of_spec(actions)
        self.observation_space = space_of_spec(environment.observation_spec())
        self._action_type = getattr(actions, "dtype", None)
        if callable(getattr(environment, "render", None)):
            self.render_mode = "rgb_array"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._taken(self.environment.reset()).observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        # [()] makes an array without axes a number.
        taken = self._taken(self.environment.step(np.asarray(action, self._action_type)[()]))
        over = bool(taken.last())
        terminated = over and not taken.discount
        return taken.observation, taken.reward, terminated, over and not terminated, {}

    def _taken(self, step: Any) -> Any:
        require(hasattr(step, "last"), f"{self._name} to return a TimeStep", step)
        return step

    def render(self) -> Any:
        return self.environment.render()

    def close(self) -> None:
        self.environment.close()


def space_of_spec(spec: Any) -> gymnasium.Space[Any]:
    """Return the space of a specification of dm_env, or of a structure of them.

    Bytes without bounds are between 0 and 255. The space of an array of anything but numbers is a
    ``Text``.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict({key: space_of_spec(part) for key, part in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_of_spec(part) for part in spec])
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values))
    if not isinstance(spec, specs.Array) or spec.dtype.kind not in "biuf":
        return spaces.Text(1)
    if isinstance(spec, specs.BoundedArray):
        bounds = spec.minimum, spec.maximum
    elif spec.dtype == np.uint8:
        bounds = 0, 255
    elif spec.dtype.kind == "b":
        bounds = False, True
    else:
        return spaces.Box(-np.inf, np.inf, spec.shape, np.float64)
    low, high = (np.broadcast_to(np.asarray(bound, spec.dtype), spec.shape) for bound in bounds)
    return spaces.Box(low, high, spec.shape, spec.dtype)
