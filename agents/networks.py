"""Q-networks: a torso that is an encoder of the library, and values that are linear in it."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.encoders import Encoder

Params: TypeAlias = Any


class QNetwork(NamedTuple):
    """A Q-network; parameters are ``{"torso": ..., "head": {"weights": [d, a], "biases": [a]}}``.

    Attributes:
        init: key → parameters.
        features: (torso's parameters, observations [b, ...]) → features [b, d].
        values: (parameters, observations [b, ...]) → one value an action [b, a].
        hidden: (torso's parameters, observations [b, ...]) → activations of its hidden layers, each
            [b, ...]; None where the torso does not tell.
    """

    init: Callable[[Array], Params]
    features: Callable[[Params, Array], Array]
    values: Callable[[Params, Array], Array]
    hidden: Callable[[Params, Array], list[Array] | None]


def make_network(torso: Encoder, num_features: int, num_actions: int) -> QNetwork:
    """Values Q(s, ·) = φ(s)ᵀW + b over the features φ of a torso.

    Observations that are bytes, as of images, are divided by 255 on their way in.

    Args:
        torso: The encoder φ.
        num_features: d.
        num_actions: a.
    """

    def init(key: Array) -> Params:
        torso_key, head_key = jax.random.split(key)
        scaled = jax.nn.initializers.lecun_normal()
        weights = scaled(head_key, (num_features, num_actions), jnp.float32)
        head = {"weights": weights, "biases": jnp.zeros((num_actions,), jnp.float32)}
        return {"torso": torso.init(torso_key), "head": head}

    def features(torso_params: Params, observations: Array) -> Array:
        return torso.apply(torso_params, as_inputs(observations))

    def values(params: Params, observations: Array) -> Array:
        head = params["head"]
        products = features(params["torso"], observations) @ head["weights"]
        biased: Array = products + head["biases"][None]
        return biased

    def hidden(torso_params: Params, observations: Array) -> list[Array] | None:
        return torso.hidden_activations(torso_params, as_inputs(observations))

    return QNetwork(init, features, values, hidden)


def as_inputs(observations: Array) -> Array:
    """Observations as float32; bytes are divided by 255."""
    scale = 1.0 / 255.0 if observations.dtype == jnp.uint8 else 1.0
    return observations.astype(jnp.float32) * scale
