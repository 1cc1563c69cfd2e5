"""Second moments of many rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK_ROWS = 4096
"""Rows held in float64 at a time: 26 MB of MNIST's."""


def second_moments(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Σ x xᵀ / n over rows x [n, features], summed in float64; the covariance of centred rows.

    Returns:
        [features, features].
    """
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS].astype(np.float64)
        total += block.T @ block
    return total / len(rows)
