"""Moments of features under an operator, over fresh batches."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.encoders import Tabular
from rlreps.operators import MatrixOperator
from rlreps.sources.matrix import matrix_source
from rlreps.training.evaluation import sampled_moments

RNG = np.random.default_rng(0)
PSI = RNG.normal(size=(6, 4)).astype(np.float32)
TABLE = RNG.normal(size=(6, 3)).astype(np.float32)


def test_moments_are_the_mean_over_batches_of_their_own_keys():
    def weights(states):
        return 1.0 + states.astype(jnp.float32)

    source, key = matrix_source(PSI), jax.random.key(0)
    found = sampled_moments(
        Tabular(3, num_states=6),
        jnp.asarray(TABLE),
        MatrixOperator(PSI @ PSI.T),
        source,
        key,
        rows=8,
        batches=5,
        weights=weights,
    )
    draw = jax.jit(jax.vmap(lambda key: source.sample(key, 8, 1).inputs))
    states = np.asarray(draw(jax.random.split(key, 5))).reshape(-1)
    weighted = TABLE[states] * (1.0 + states)[:, None] / 40
    np.testing.assert_allclose(found.covariance, weighted.T @ TABLE[states], rtol=1e-4, atol=1e-4)
    images = (PSI @ PSI.T @ TABLE)[states]
    np.testing.assert_allclose(found.operator_matrix, weighted.T @ images, rtol=1e-4, atol=1e-3)
