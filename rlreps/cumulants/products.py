"""Products of positions and parameters, as precise as the positions."""

import jax.numpy as jnp
from jax import Array, lax


def affine(inputs: Array, weights: Array, biases: Array) -> Array:
    """Inputs [..., c] times weights [c, t], plus biases [t]."""
    return product(inputs, weights) + jnp.expand_dims(biases, tuple(range(inputs.ndim - 1)))


def product(inputs: Array, weights: Array) -> Array:
    """Inputs [..., c] times weights [c, t]."""
    # An accelerator's default product would be off by a thousandth of an angle of many turns.
    values: Array = jnp.matmul(inputs, weights, precision=lax.Precision.HIGHEST)
    return values
