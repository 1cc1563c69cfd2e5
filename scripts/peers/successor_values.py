"""Values of a walk whose values are known, by least squares on random Fourier features."""

from typing import Any

import numpy as np

TITLE = "Successor values"
WORK = (
    "Values of a reward from {rows:,} recorded steps of a reflected random walk in the unit "
    "square, by temporal differences solved for {features:,} random Fourier features. rlreps also "
    "measures the fit on held-out episodes, and finds singular functions of the successor measure."
)
PACKAGES = ("rlreps", "numpy", "scipy")
SIZES = {"rows": 50_000, "features": 1_000, "discount": 0.9, "ridge": 1e-6}
NOISE, WIDTH, EPISODE = 0.1, 0.5, 100


def reward(places: np.ndarray) -> np.ndarray:
    """Return an eigenfunction of the walk, [n]."""
    return np.cos(np.pi * places[:, 0]) * np.cos(2.0 * np.pi * places[:, 1])


EIGENVALUE = np.exp(-0.5 * np.pi**2 * (1 + 4) * NOISE**2)
"""Expected reward after a step, over the reward before it."""


def prepare(rows: int, **_: Any) -> np.ndarray:
    """Walk: places [rows + 1, 2]."""
    steps = NOISE * np.random.default_rng(0).standard_normal((rows + 1, 2))
    # A reflected walk is a free walk that is folded into the square.
    folded = np.abs(np.cumsum(steps, axis=0)) % 2.0
    return np.where(folded > 1.0, 2.0 - folded, folded)


def tests() -> np.ndarray:
    """Draw the places where values are compared, [1,000, 2]."""
    return np.random.default_rng(1).random((1_000, 2))


def recorded(data: np.ndarray) -> Any:
    """Return the steps between successive places as transitions with one action."""
    from rlreps.successor import Transitions

    count = len(data) - 1
    return Transitions(
        observation=data[:-1],
        action=np.zeros(count, np.int64),
        next_observation=data[1:],
        terminated=np.zeros(count, bool),
        truncated=np.arange(count) % EPISODE == EPISODE - 1,
    )


def ours(data: np.ndarray, features: int, discount: float, ridge: float, **_: Any) -> Any:
    """Fit a successor representation, and ask it for the values."""
    from rlreps.successor import fit

    steps = recorded(data)
    kernel = {"width": WIDTH, "axes": "coordinates", "regularisation": ridge}

    def work() -> np.ndarray:
        rep = fit(steps, max_features=features, discount=discount, **kernel)
        return rep.values(tests(), rep.task(reward=reward))

    return work


def plain(data: np.ndarray, features: int, discount: float, ridge: float, **_: Any) -> Any:
    """Solve the same equations in NumPy, for one reward, without any check."""

    def work() -> np.ndarray:
        rng, mean, scale = np.random.default_rng(0), data.mean(0), data.std(0)
        axes = 1.0 / (scale * np.sqrt(data.shape[1]) * WIDTH)
        frequencies = axes[:, None] * rng.standard_normal((data.shape[1], features - 1))
        phases = 2.0 * np.pi * rng.random(features - 1)

        def phi(places: np.ndarray) -> np.ndarray:
            waves = np.cos((places - mean) @ frequencies + phases) * np.sqrt(2.0 / (features - 1))
            return np.concatenate([waves, np.ones((len(places), 1))], axis=1)

        now = phi(data)
        following, now = now[1:], now[:-1]
        system = now.T @ (now - discount * following) / len(now) + ridge * np.eye(features)
        weights = np.linalg.solve(system, now.T @ reward(data[1:]) / len(now))
        return phi(tests()) @ weights

    return work


SIDES = {"rlreps fit": ours, "twenty lines of NumPy": plain}


def quality(data: np.ndarray, result: np.ndarray, discount: float, **_: Any) -> dict[str, float]:
    """Return the root mean squared error over the root mean square of the true values."""
    truth = EIGENVALUE / (1.0 - discount * EIGENVALUE) * reward(tests())
    return {"relative error": np.sqrt(np.mean((result - truth) ** 2) / np.mean(truth**2))}
