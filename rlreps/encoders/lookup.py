"""Encoders of state indices: a free feature vector each, or another encoder's at their inputs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.encoders.base import Encoder, Params
from rlreps.errors import require


def tabular(num_states: int, num_features: int) -> Encoder:
    """One free feature vector per state, standard normal at first: state indices [b] → [b, d]."""
    require(num_states >= 1, "num_states >= 1", num_states)
    require(num_features >= 1, "num_features >= 1", num_features)

    def apply(params: Params, inputs: Array) -> Array:
        features: Array = params[inputs]
        return features

    return Encoder(lambda key: jax.random.normal(key, (num_states, num_features)), apply)


def at_states(encoder: Encoder, inputs: Array | np.ndarray) -> Encoder:
    """An encoder of state indices that looks their inputs up: [b] → [b, d].

    For operators on finitely many states, whose points are indices.

    Args:
        encoder: Takes the inputs.
        inputs: Input of each state, [n, ...].
    """
    table = jnp.asarray(inputs)
    return Encoder(encoder.init, lambda params, states: encoder.apply(params, table[states]))


def with_constant(encoder: Encoder) -> Encoder:
    """An encoder whose first feature is the constant 1, and the rest another's: [b, 1 + d].

    Spectral inference then finds eigenfunctions orthogonal to the constant, which for slowness is
    an eigenfunction itself.

    Args:
        encoder: Gives the other features.
    """

    def apply(params: Params, inputs: Array) -> Array:
        features = encoder.apply(params, inputs)
        return jnp.concatenate([jnp.ones_like(features[:, :1]), features], axis=1)

    return Encoder(encoder.init, apply)
