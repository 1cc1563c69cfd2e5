"""All d and seeds of a method in one program: features beyond a member's d are masked.

A masked feature is zero at every state. LISSA, least squares and stored weights then give it weight
zero, so that a member with a mask learns as an encoder of d features would.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jax import Array

from rlreps import subspace
from rlreps.config import configurable, leaf
from rlreps.encoders import Encoder, Params
from rlreps.numerics import matmul
from rlreps.training import Learner, stack
from rlreps.training.population import EvaluateMember


def masks(dimensions: Sequence[int], largest: int) -> Array:
    """Return 1 for the features of members with these d and 0 beyond, [members, largest]."""
    counts = jnp.asarray(dimensions)
    return (jnp.arange(largest)[None, :] < counts[:, None]).astype(jnp.float32)


@configurable
@dataclasses.dataclass(frozen=True)
class Masked(Encoder):
    """An encoder with features [b, largest d] of which only those of a mask are not zero.

    Attributes:
        encoder: Gives all features.
        mask: 1 for those that are kept, [largest d].
    """

    encoder: Encoder = leaf()
    mask: Array = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(params, inputs) * self.mask[None, :]


def masked_learners(learner: Learner, mask: Array) -> Learner:
    """Make a population of learners, one for each mask [members, largest d]."""
    members = stack(
        [dataclasses.replace(learner, encoder=Masked(learner.encoder, jnp.ones(())))] * len(mask)
    )
    return dataclasses.replace(members, encoder=Masked(learner.encoder, mask))


def masked_evaluation(encoder: Encoder, inputs: Array, basis: Array) -> EvaluateMember:
    """Measure the subspace distance of each member to its own d leading components.

    Args:
        encoder: The encoder without mask.
        inputs: Encoder inputs of all states, [n, ...].
        basis: Leading left singular vectors, [n, largest d].

    Returns:
        A member's parameters and mask → ``subspace_distance``, [].
    """

    def evaluate(params: Params, mask: Array) -> Mapping[str, Array]:
        features = Masked(encoder, mask).apply(params, inputs)
        panel, _ = subspace.orthonormal_basis(features)
        inside = matmul(panel.T, basis)
        residual = basis - matmul(panel, inside)
        outside = jnp.sum(jnp.square(residual), axis=0)
        distance = jnp.sum(mask * outside) / jnp.sum(mask)
        return {"subspace_distance": jnp.minimum(distance, 1.0)}

    return evaluate
