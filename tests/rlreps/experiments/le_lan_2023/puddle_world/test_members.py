import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps import subspace
from rlreps.encoders import MLP
from rlreps.experiments.le_lan_2023.puddle_world.members import (
    masked_evaluation,
    masked_learners,
    masks,
)
from rlreps.losses import DanskinLissa, Explicit, LargeBatch
from rlreps.sources.matrix import matrix_source
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig, make_learner

STATES, TASKS, LARGEST, D = 40, 30, 6, 3
HIDDEN = 16
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((STATES, TASKS)).astype(np.float32)
INPUTS = RNG.random((STATES, 2)).astype(np.float32)

OBJECTIVES = [
    DanskinLissa(gradient_rows=8, weight_rows=8, covariance_rows=8),
    Explicit(),
    LargeBatch(),
]


def first_features(params):
    """The parameters of an encoder of D features that is the first D of a larger one's."""
    return jax.tree.map(lambda leaf: leaf[..., :D] if leaf.shape[-1] == LARGEST else leaf, params)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_a_masked_member_learns_as_an_encoder_of_fewer_features_would(objective):
    config = TrainingConfig(
        encoder=MLP(hidden=(HIDDEN,)),
        objective=objective,
        optimizer=Optimizer(learning_rate=1e-2, schedule="constant"),
        num_features=LARGEST,
        steps=10,
        rows=40,
        tasks=2,
    )
    source = matrix_source(MATRIX, INPUTS)
    whole = make_learner(config, num_inputs=2, num_tasks=TASKS, resets_diverged=True)
    population = masked_learners(whole, masks([D, LARGEST], LARGEST))
    masked = jax.tree.map(lambda leaf: leaf[0], population)
    alone = make_learner(dataclasses.replace(config, num_features=D), num_inputs=2, num_tasks=TASKS)
    start = masked.init(jnp.uint32(1))
    small = alone.init(jnp.uint32(1))._replace(params=first_features(start.params))
    seed = jnp.uint32(1)
    after, _ = jax.jit(masked.chunk, static_argnums=0)(5, start, source, seed)
    expected, _ = jax.jit(alone.chunk, static_argnums=0)(5, small, source, seed)
    for got, want in zip(
        jax.tree.leaves(first_features(after.params)),
        jax.tree.leaves(expected.params),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-5)
    moved = jax.tree.map(lambda new, old: jnp.abs(new - old).max(), after.params, start.params)
    assert max(map(float, jax.tree.leaves(moved))) > 1e-3


def test_the_distance_of_a_masked_member_is_that_of_its_own_features():
    encoder = MLP(LARGEST, num_inputs=2, hidden=(HIDDEN,))
    params = encoder.init(jax.random.key(0))
    basis = jnp.asarray(np.linalg.svd(MATRIX)[0][:, :LARGEST])
    evaluate = masked_evaluation(encoder, jnp.asarray(INPUTS), basis)
    features = encoder.apply(params, jnp.asarray(INPUTS))
    for d in (1, D, LARGEST):
        settings = masks([d], LARGEST)[0]
        expected = subspace.subspace_distance(features[:, :d], basis[:, :d])
        found = evaluate(params, settings)["subspace_distance"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_member_without_features_left_is_as_far_as_can_be():
    encoder = MLP(LARGEST, num_inputs=2, hidden=(HIDDEN,))
    params = jax.tree.map(jnp.zeros_like, encoder.init(jax.random.key(0)))
    basis = jnp.asarray(np.linalg.svd(MATRIX)[0][:, :LARGEST])
    settings = masks([D], LARGEST)[0]
    evaluate = masked_evaluation(encoder, jnp.asarray(INPUTS), basis)
    assert float(evaluate(params, settings)["subspace_distance"]) == pytest.approx(1.0)
