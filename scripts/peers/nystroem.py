"""Expectations after one step of a walk, by regressions in a Gaussian kernel of low rank."""

from typing import Any

import numpy as np
import successor_values as walk

TITLE = "Regression of one step"
WORK = (
    "Expected reward after one of {rows:,} recorded steps of the reflected random walk, by a "
    "regression in a Gaussian kernel: {features:,} random Fourier features of rlreps (with "
    "singular functions and a check on held-out episodes), {features:,} Nyström centres of "
    "kooplearn."
)
PACKAGES = ("rlreps", "kooplearn", "scikit-learn", "numpy", "scipy")
SIZES = {"rows": 20_000, "features": 500, "rank": 64, "ridge": 1e-6}
prepare = walk.prepare


def ours(data: np.ndarray, features: int, ridge: float, **_: Any) -> Any:
    """Fit with (almost) no discount: values are then expected rewards after one step."""
    return walk.ours(data, features=features, discount=1e-9, ridge=ridge)


def theirs(data: np.ndarray, features: int, rank: int, ridge: float, **_: Any) -> Any:
    """Fit by reduced-rank regression, and predict the observable."""
    from kooplearn.kernel import NystroemKernelRidge

    length = walk.WIDTH * np.sqrt(2.0) * data.std()
    kernel = {"kernel": "rbf", "gamma": 0.5 / length**2, "alpha": ridge}

    def work() -> np.ndarray:
        model = NystroemKernelRidge(rank, n_centers=features, random_state=0, **kernel)
        # kooplearn 2.0.3 predicts from observables before the step, where those after it belong.
        model.fit(data, walk.reward(np.roll(data, -1, axis=0))[:, None])
        return np.ravel(model.predict(walk.tests(), observable=True))

    return work


SIDES = {"rlreps fit": ours, "kooplearn NystroemKernelRidge": theirs}


def quality(data: np.ndarray, result: np.ndarray, **_: Any) -> dict[str, float]:
    """Return the root mean squared error over the root mean square of the true expectations."""
    truth = walk.EIGENVALUE * walk.reward(walk.tests())
    return {"relative error": np.sqrt(np.mean((result - truth) ** 2) / np.mean(truth**2))}
