"""Runs with different numbers of features in one program: features beyond a run's d are zero.

LISSA and least squares give weight zero to a feature that is zero at every state, and stored
weights of such a feature have no effect. A run therefore learns as with an encoder of d features.
Preconditioning and whitening invert regularised matrices whose regularisation depends on the
largest d, so objectives with these options are refused.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps import subspace
from rlreps.config import configurable, leaf
from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.numerics import matmul
from rlreps.training.population import stack
from rlreps.training.update import Learner


def masks(dimensions: Sequence[int], largest: int) -> Array:
    """Return a mask with 1 for a member's first d features and 0 beyond, [members, largest d]."""
    return jnp.asarray(np.arange(largest) < np.asarray(dimensions)[:, None], jnp.float32)


@configurable
@dataclasses.dataclass(frozen=True)
class Masked(Encoder):
    """An encoder with features [b, largest d] that a mask sets to zero beyond d.

    Attributes:
        encoder: Computes all features.
        mask: 1 for features that are kept, 0 for others, [largest d].
    """

    encoder: Encoder = leaf()
    mask: Array = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(params, inputs) * self.mask[None, :]


def masked_learners(learner: Learner, mask: Array) -> Learner:
    """Make a population of learners, one for each mask [members, largest d].

    Raises:
        InputError: For an objective with preconditioning or whitening.
    """
    for name in ("precondition", "whitening"):
        value = getattr(learner.objective, name, None)
        require(not value, f"an objective without {name} for runs with different d", value)
    return stack(
        [dataclasses.replace(learner, encoder=Masked(learner.encoder, row)) for row in mask]
    )


def masked_evaluation(
    encoder: Encoder, inputs: Array, basis: Array
) -> Callable[[Params, Array], dict[str, Array]]:
    """Measure the subspace distance of each member to its own d leading components.

    Args:
        encoder: The encoder without a mask.
        inputs: Encoder inputs of all states, [n, ...].
        basis: Leading left singular vectors, [n, largest d].

    Returns:
        A member's parameters and mask → ``subspace_distance``, [].
    """

    def evaluate(params: Params, mask: Array) -> dict[str, Array]:
        panel, _ = subspace.orthonormal_basis(Masked(encoder, mask).apply(params, inputs))
        residual = basis - matmul(panel, matmul(panel.T, basis))
        outside = jnp.sum(jnp.square(residual), axis=0)
        return {"subspace_distance": jnp.minimum(jnp.sum(mask * outside) / jnp.sum(mask), 1.0)}

    return evaluate
