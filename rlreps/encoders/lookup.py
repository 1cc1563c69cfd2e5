"""Encoders of state indices, and wrappers around other encoders."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, leaf, size
from rlreps.encoders.base import Encoder, Params


@configurable
@dataclasses.dataclass(frozen=True)
class Tabular(Encoder):
    """One free feature vector per state, standard normal at first: state indices [b] → [b, d].

    Features of an index out of range are NaN, which stops a training run.

    Attributes:
        num_features: d.
        num_states: n.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    num_states: int = size(1)

    def init(self, key: Array) -> Params:
        return jax.random.normal(key, (self.num_states, self.num_features))

    def apply(self, params: Params, inputs: Array) -> Array:
        features: Array = (
            jnp.asarray(params)
            .at[inputs]
            .get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        )
        return features


@configurable
@dataclasses.dataclass(frozen=True)
class AtStates(Encoder):
    """An encoder that looks up the inputs of state indices: [b] → [b, d].

    For operators on finitely many states, whose points are indices. Features of an index out of
    range are NaN, as those of ``Tabular``.

    Attributes:
        encoder: Encodes the inputs.
        table: Input of each state, [n, ...].
    """

    encoder: Encoder = leaf()
    table: Array = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        table, inputs = jnp.asarray(self.table), jnp.asarray(inputs).astype(jnp.int32)
        known = (inputs >= 0) & (inputs < len(table))
        return jnp.where(known[:, None], self.encoder.apply(params, table[inputs]), jnp.nan)


@configurable
@dataclasses.dataclass(frozen=True)
class WithConstant(Encoder):
    """An encoder that puts the constant 1 before the features of another encoder: [b, 1 + d].

    Spectral inference then finds eigenfunctions orthogonal to the constant, which is itself an
    eigenfunction of slowness.

    Attributes:
        encoder: Computes the other features.
    """

    encoder: Encoder = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        features = self.encoder.apply(params, inputs)
        return jnp.concatenate([jnp.ones_like(features[:, :1]), features], axis=1)


@configurable
@dataclasses.dataclass(frozen=True)
class TwoTowers(Encoder):
    """Two functions of a state, [f, g]: [b, 2 d], for objectives that factorise f(s)ᵀg(t).

    Objectives of ``rlreps.losses`` that take towers also take one encoder as both f and g. The
    representation that is evaluated is ``forward`` with the parameters ``params["forward"]``.

    Attributes:
        forward: f, of d features.
        backward: g, of d features of the same states.
    """

    forward: Encoder = leaf()
    backward: Encoder = leaf()

    def init(self, key: Array) -> Params:
        forward_key, backward_key = jax.random.split(key)
        return {
            "forward": self.forward.init(forward_key),
            "backward": self.backward.init(backward_key),
        }

    def apply(self, params: Params, inputs: Any) -> Array:
        forward = self.forward.apply(params["forward"], inputs)
        return jnp.concatenate([forward, self.backward.apply(params["backward"], inputs)], axis=1)
