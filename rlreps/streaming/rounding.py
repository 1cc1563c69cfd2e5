"""What floating-point numbers cannot tell from zero."""

import jax.numpy as jnp
import numpy as np
from jax import Array

_UNITS = 16.0
"""Residuals shorter than so many units of rounding of what they are left of are none."""


def epsilon(array: Array) -> float:
    """One unit of rounding of an array's type, relative to one."""
    return float(np.finfo(array.dtype).eps)


def rounding_length(rows: Array) -> Array:
    """The length, [], below which what is left of rows [...] after a projection is rounding."""
    length: Array = _UNITS * epsilon(rows) * jnp.linalg.norm(rows)
    return length


def without_rounding(residual: Array, row: Array) -> Array:
    """What is left of a row [features], or zeros where that is rounding.

    A long step along rounding would turn components into directions that no row has.
    """
    return jnp.where(
        jnp.linalg.norm(residual) > rounding_length(row), residual, jnp.zeros_like(residual)
    )
