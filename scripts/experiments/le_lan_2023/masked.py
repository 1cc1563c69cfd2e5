"""Runs with different numbers of features in one program: features beyond a run's d are zero.

LISSA and least squares give weight zero to a feature that is zero at every state, and stored
weights of such a feature have no effect. A run therefore learns as with an encoder of d features.
Preconditioning and whitening invert regularised matrices whose regularisation depends on the
largest d, so objectives with these options are refused.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps import subspace
from rlreps.config import configurable, leaf
from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.numerics import jit, matmul
from rlreps.successor import GroundTruth, open_store
from rlreps.training import (
    Learner,
    TrainingConfig,
    TrainingResult,
    learner_for,
    stack,
    stored_problem,
    train_population,
)


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
        # XLA would fold convolutions of constant images while it compiles.
        features = Masked(encoder, mask).apply(params, lax.optimization_barrier(inputs))
        panel, _ = subspace.orthonormal_basis(features)
        residual = basis - matmul(panel, matmul(panel.T, basis))
        outside = jnp.sum(jnp.square(residual), axis=0)
        return {"subspace_distance": jnp.minimum(jnp.sum(mask * outside) / jnp.sum(mask), 1.0)}

    return evaluate


def train_masked(
    config: TrainingConfig,
    store_path: Path,
    truth: GroundTruth,
    members: Sequence[tuple[int, int]],
    **options: Any,
) -> tuple[TrainingResult, Callable[[int], Array]]:
    """Train runs that differ in d and in their seed, in one program.

    Args:
        config: The training, with enough features for the largest d.
        store_path: The successor measure.
        truth: Its ground truth.
        members: d and seed of each run.
        **options: ``folder``, ``devices`` and the like, as for ``train_population``.

    Returns:
        The result, whose history has each run's ``subspace_distance`` to its own leading
        components, and the features [n, d] of a run by its number.
    """
    store = open_store(store_path)
    learner = learner_for(config, truth, store.shape[1], resets_diverged=True)
    inputs = truth.inputs(learner.encoder)
    basis = jnp.asarray(truth.principal.truncated(config.num_features).basis)
    mask = masks([d for d, _ in members], config.num_features)
    problem = stored_problem(config, store, truth)
    result = train_population(
        masked_learners(learner, mask),
        problem.source,
        steps=config.steps,
        seeds=[seed for _, seed in members],
        evaluate=masked_evaluation(learner.encoder, inputs, basis),
        measured=mask,
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.checkpoint_every,
        **options,
    )

    def features(index: int) -> Array:
        return jit(learner.encoder.apply)(result.params(index), inputs)[:, : members[index][0]]

    return result, features
