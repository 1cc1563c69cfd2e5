"""Controllers of some problems, with exploration: policies (observation, generator) → action.

Their logs are what users have who did not record random steps. Controllers see no more than their
observation.
"""

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.typing import DoubleArray

Controller = Callable[[npt.NDArray[Any]], Any]
"""Observation → action, for boxes in [−1, 1]."""
Policy = Callable[[Any, np.random.Generator], Any]


def at_random(share: float, num_actions: int, controller: Controller) -> Policy:
    """Replace a share of a controller's actions by random ones."""
    return lambda seen, rng: (
        int(rng.integers(num_actions)) if rng.random() < share else controller(seen)
    )


def noisy(deviation: float, bound: float, controller: Controller) -> Policy:
    """Add normal noise to a controller's actions, and scale them from [−1, 1] to ±``bound``."""

    def act(seen: Any, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        wanted = np.clip(np.atleast_1d(controller(seen)), -1.0, 1.0)
        noise = deviation * rng.normal(size=wanted.shape)
        return np.asarray(bound * np.clip(wanted + noise, -1.0, 1.0), np.float32)

    return act


def balance_weakly(seen: npt.NDArray[Any]) -> int:
    """Push a cart (x, speed, angle, turn) under its pole, and hardly mind the turn."""
    return int(seen @ np.array([0.3, -0.1, 1.0, 0.12]) > 0.0)


def follow_speed(seen: npt.NDArray[Any]) -> int:
    """Push a car (position, speed) where it goes."""
    return 2 if seen[1] >= 0.0 else 0


def pump(seen: npt.NDArray[Any]) -> int:
    """Turn the second joint of an acrobot against the turn of its first joint."""
    return 2 if seen[4] < 0.0 else 0


def swing_up(seen: npt.NDArray[Any]) -> float:
    """Give a pendulum (cos θ, sin θ, speed) energy until it is near the top, and hold it there."""
    angle, speed = np.arctan2(seen[1], seen[0]), seen[2]
    if abs(angle) < 0.5:
        return float(-5.0 * angle - speed)
    energy = speed**2 / 6.0 + 5.0 * (seen[0] - 1.0)
    return float(-np.sign(speed * energy)) if abs(speed) > 0.05 else 1.0


def land(continuous: bool) -> Controller:
    """Return Gymnasium's own controller of the lander."""
    kind = types.SimpleNamespace(continuous=continuous)

    def act(seen: npt.NDArray[Any]) -> Any:
        from gymnasium.envs.box2d import lunar_lander

        own: Any = lunar_lander  # Its functions have no types.
        return own.heuristic(types.SimpleNamespace(unwrapped=kind), seen)

    return act


def reach(seen: npt.NDArray[Any]) -> DoubleArray:
    """Pull the tip of an arm of two links towards its target, through the transposed Jacobian."""
    (cos1, cos2), (sin1, sin2), turns, offset = seen[:2], seen[2:4], seen[6:8], seen[8:10]
    outer = 0.11 * np.array([-(sin1 * cos2 + cos1 * sin2), cos1 * cos2 - sin1 * sin2])
    inner = outer + 0.1 * np.array([-sin1, cos1])
    return -20.0 * np.array([inner @ offset, outer @ offset]) - 0.1 * turns


def walk_u(seen: npt.NDArray[Any]) -> DoubleArray:
    """Walk a ball (position, goal, position, velocity) around the wall of the maze U."""
    (x, y), goal, velocity = seen[:2], seen[2:4], seen[6:8]
    other_arm = abs(y - goal[1]) > 0.5
    target = np.array([1.0, y if x < 0.75 else goal[1]]) if other_arm else goal
    return np.asarray(5.0 * (target - seen[:2]) - velocity)


def balance(seen: npt.NDArray[Any]) -> float:
    """Push a cart (x, cos θ, sin θ, speed, turn) under its pole."""
    return float(seen @ np.array([0.2, 0.0, 3.0, 0.4, 0.8]))
