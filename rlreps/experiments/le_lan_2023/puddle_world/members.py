"""All d and seeds of a method in one program: features beyond a member's d are masked.

A masked feature is zero at every state. LISSA, least squares and stored weights then give it weight
zero, so that a member with a mask learns as an encoder of d features would.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from rlreps import subspace
from rlreps.configs import TrainingConfig
from rlreps.encoders import Encoder, FunctionEncoder, Params
from rlreps.training.population import EvaluateMember
from rlreps.training.update import Build, Learner
from rlreps.workflows.train import make_learner


class Masked(NamedTuple):
    """What members of one method differ in, beside their seeds.

    Attributes:
        mask: 1 for a member's features and 0 beyond, [members, largest d].
    """

    mask: Array


def masks(dimensions: Sequence[int], largest: int) -> Masked:
    """The settings of members with these d."""
    counts = jnp.asarray(dimensions)
    return Masked((jnp.arange(largest)[None, :] < counts[:, None]).astype(jnp.float32))


def masked_encoder(encoder: Encoder, mask: Array) -> Encoder:
    """An encoder with features [b, largest d] of which only those of a mask are not zero."""

    def apply(params: Params, inputs: Array) -> Array:
        return encoder.apply(params, inputs) * mask[None, :]

    return FunctionEncoder(encoder.init, apply)


def masked_learner(config: TrainingConfig, encoder: Encoder, num_tasks: int) -> Build:
    """One member's ``Masked`` → its learner, which resets where it diverges."""
    learner = make_learner(config, encoder, num_tasks)

    def build(settings: Masked) -> Learner:
        return Learner(
            encoder=masked_encoder(encoder, settings.mask),
            objective=learner.objective,
            optimizer=learner.optimizer,
            rows=learner.rows,
            tasks=learner.tasks,
            resets_diverged=True,
        )

    return build


def masked_evaluation(encoder: Encoder, inputs: Array, basis: Array) -> EvaluateMember:
    """The subspace distance of each member to its own d leading components.

    Args:
        encoder: The encoder without mask.
        inputs: Encoder inputs of all states, [n, ...].
        basis: Leading left singular vectors, [n, largest d].

    Returns:
        A member's parameters and ``Masked`` → ``subspace_distance``, [].
    """

    def evaluate(params: Params, settings: Masked) -> Mapping[str, Array]:
        features = masked_encoder(encoder, settings.mask).apply(params, inputs)
        panel, _ = subspace.orthonormal_basis(features)
        inside = jnp.matmul(panel.T, basis, precision=lax.Precision.HIGHEST)
        residual = basis - jnp.matmul(panel, inside, precision=lax.Precision.HIGHEST)
        outside = jnp.sum(jnp.square(residual), axis=0)
        distance = jnp.sum(settings.mask * outside) / jnp.sum(settings.mask)
        return {"subspace_distance": jnp.minimum(distance, 1.0)}

    return evaluate
