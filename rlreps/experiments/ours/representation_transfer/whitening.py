"""Encoders whose features are white, for a read-out that learns from them.

Representation objectives determine the span of features and leave the rest free. A linear read-out
of values that learns by gradients does not: directions in which features hardly vary are learned
last. An invertible map moves no span, and the last layer of a network takes it up.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlreps.experiments.ours.agent_arms import FloatArray

_LEAST = 1e-6
"""Singular value, relative to the largest, below which a direction is taken for rounding."""


def whitened(params: Any, features: ArrayLike) -> list[dict[str, Any]]:
    """Parameters of the same networks with features of mean 0 and covariance I.

    The map is the symmetric one, Σ^(-1/2): no other moves the features less (ZCA). Directions
    that features do not have stay without.

    Args:
        params: Of perceptrons, a list of layers ``{"kernel": [seeds, h, d], "bias": [seeds, d]}``.
        features: φ of all states, [seeds, n, d].

    Returns:
        New parameters, NumPy arrays.
    """
    layers = [dict(layer) for layer in params]
    last = layers[-1]
    table = np.asarray(features, np.float64)
    means = table.mean(axis=1)
    maps = np.stack([_inverse_root(each) for each in table - means[:, None]])
    kernels, biases = (np.asarray(last[name], np.float64) for name in ("kernel", "bias"))
    last["kernel"] = (kernels @ maps).astype(np.float32)
    last["bias"] = np.einsum("sd,sde->se", biases - means, maps).astype(np.float32)
    return [_as_numpy(layer) for layer in layers]


def _inverse_root(centred: FloatArray) -> FloatArray:
    """Σ^(-1/2) [d, d] of centred features [n, d]; 0 in directions that they do not have."""
    _, values, rows = np.linalg.svd(centred, full_matrices=False)
    known = values > _LEAST * values[0]
    scales = np.where(known, np.sqrt(len(centred)) / np.where(known, values, 1.0), 0.0)
    root: FloatArray = (rows.T * scales) @ rows
    return root


def _as_numpy(layer: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(values) for name, values in layer.items()}
