"""Leading singular vectors of a matrix with a noisy tail, as of a sampled successor measure."""

from typing import Any

import numpy as np

TITLE = "Singular vectors"
WORK = (
    "The {k} leading singular vectors of a float32 matrix, {n:,} x {n:,}: 300 directions with "
    "falling weights, and noise. The randomised methods share panel and power iterations."
)
PACKAGES = ("rlreps", "scikit-learn", "scipy", "numpy")
SIZES = {"n": 10_000, "k": 100, "oversampling": 40, "iterations": 10}


def prepare(n: int, **_: Any) -> np.ndarray:
    """Return signal and noise, [n, n]."""
    rng, rank = np.random.default_rng(0), 300
    left, right = rng.standard_normal((2, n, rank), np.float32)
    weights = np.arange(1, rank + 1, dtype=np.float32) ** np.float32(-0.5)
    noise = rng.standard_normal((n, n), np.float32)
    return (left * weights) @ right.T + np.float32(0.02) * noise


def ours(data: np.ndarray, k: int, oversampling: int, iterations: int, **_: Any) -> Any:
    """Decompose, with the bound on the distance from the exact subspace."""
    from rlreps.subspace import RandomizedSVD

    method = RandomizedSVD(rank=k, oversampling=oversampling, power_iterations=iterations)
    return lambda: method.decompose(data).basis


def randomised(data: np.ndarray, k: int, oversampling: int, iterations: int, **_: Any) -> Any:
    """Decompose with scikit-learn: orthonormal panels after every product, as ours."""
    from sklearn.utils.extmath import randomized_svd

    given = {"n_oversamples": oversampling, "power_iteration_normalizer": "QR", "random_state": 0}
    return lambda: randomized_svd(data, k, n_iter=iterations, **given)[0]


def lanczos(data: np.ndarray, k: int, **_: Any) -> Any:
    """Decompose with SciPy's ARPACK."""
    from scipy.sparse.linalg import svds

    return lambda: svds(data, k, random_state=0)[0]


SIDES = {
    "rlreps RandomizedSVD": ours,
    "scikit-learn randomized_svd": randomised,
    "SciPy svds": lanczos,
}


def quality(data: np.ndarray, result: np.ndarray, **_: Any) -> dict[str, float]:
    """Measure how far the span is from invariant under A A', relative to the k-th eigenvalue."""
    basis = np.linalg.qr(result.astype(np.float64))[0]
    images = data.astype(np.float64) @ (data.T.astype(np.float64) @ basis)
    within = basis.T @ images
    rest = np.linalg.norm(images - basis @ within, 2)
    return {"residual": rest / np.linalg.eigvalsh((within + within.T) / 2)[0]}
