"""Principal components of MNIST in one process: rows as a stream, and rows in memory."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np

TITLE = "Streaming PCA"
WORK = "The {k} leading principal components of {rows:,} MNIST images in random order."
PACKAGES = ("rlreps", "jax", "scikit-learn", "numpy")
SIZES = {"images": "", "rows": 70_000, "k": 20, "batch": 100, "peer_batch": 100}


def prepare(images: str, rows: int, **_: Any) -> Any:
    """Read the images of a folder."""
    files = sorted(Path(images).glob("*images*.gz")) if images else []
    parts = [gzip.decompress(file.read_bytes())[16:] for file in files]
    found = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 784)
    if len(found) < rows:
        raise ValueError(f"expected a folder of {rows:,} MNIST images, got {len(found):,} images")
    return found[np.random.default_rng(0).permutation(len(found))[:rows]].astype(
        np.float32
    ) / np.float32(255.0)


def ours(data: Any, k: int, batch: int, **_: Any) -> Any:
    """Make one pass with the default rule, implicit Krasulina."""
    from rlreps.streaming import StreamingPCA

    return lambda: StreamingPCA(k, batch_size=batch, passes=1, random_state=0).fit(data)


def incremental(data: Any, k: int, peer_batch: int, **_: Any) -> Any:
    """Make one pass with scikit-learn's streaming estimator."""
    from sklearn.decomposition import IncrementalPCA

    return lambda: IncrementalPCA(k, batch_size=peer_batch).fit(data)


def covariance(data: Any, k: int, **_: Any) -> Any:
    """Decompose the covariance with scikit-learn's batch estimator."""
    from sklearn.decomposition import PCA

    return lambda: PCA(k, svd_solver="covariance_eigh").fit(data)


SIDES = {
    "rlreps StreamingPCA": ours,
    "scikit-learn IncrementalPCA": incremental,
    "scikit-learn PCA(covariance_eigh)": covariance,
}


def quality(data: Any, result: Any, k: int, **_: Any) -> dict[str, float]:
    """Return the percentage by which the mean squared error exceeds that of exact components."""
    centred = data.astype(np.float64) - data.mean(axis=0, dtype=np.float64)
    moments = centred.T @ centred / len(centred)
    variances = np.linalg.eigvalsh(moments)[::-1]
    basis = np.linalg.qr(np.asarray(result.components_, np.float64).T)[0]
    loss = np.trace(moments) - np.trace(basis.T @ moments @ basis)
    return {"excess loss, %": 100.0 * (loss / variances[k:].sum() - 1.0)}
