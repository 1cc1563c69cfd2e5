"""Moments of features under an operator, over fresh batches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.encoders import Tabular
from rlreps.losses.base import Batch
from rlreps.operators import MatrixOperator, TargetKernel
from rlreps.sources.matrix import matrix_source
from rlreps.subspace.ordered import ritz_spectrum
from rlreps.training.evaluation import sampled_moments

RNG = np.random.default_rng(0)
PSI = RNG.normal(size=(6, 4)).astype(np.float32)
TABLE = RNG.normal(size=(6, 3)).astype(np.float32)
ENCODER = Tabular(3, num_states=6)


def moments(operator, key=0, rows=8, batches=400, weights=None):
    return sampled_moments(
        ENCODER,
        jnp.asarray(TABLE),
        operator,
        matrix_source(PSI),
        jax.random.key(key),
        rows=rows,
        batches=batches,
        weights=weights,
    )


def test_moments_come_near_their_expectations_as_batches_grow_many():
    exact = TABLE.T @ PSI @ PSI.T @ TABLE / (36 * 4)
    errors = []
    for batches in (200, 20_000):
        found = moments(TargetKernel(), batches=batches)
        errors.append(np.abs(found.operator_matrix - exact).max())
        np.testing.assert_allclose(
            found.covariance, TABLE.T @ TABLE / 6, atol=0.7 if batches == 200 else 0.05
        )
    assert errors[1] < 0.02 * np.abs(exact).max()
    assert errors[1] < errors[0]


def test_moments_are_the_mean_over_batches_of_their_own_keys():
    def weights(states):
        return 1.0 + states.astype(jnp.float32)

    operator = MatrixOperator(PSI @ PSI.T)
    found = moments(operator, batches=5, weights=weights)
    source, keys = matrix_source(PSI), jax.random.split(jax.random.key(0), 5)
    draw = jax.jit(jax.vmap(lambda key: source.sample(key, 8, 1).inputs))
    states = np.asarray(draw(keys)).reshape(-1)
    weighted = TABLE[states] * (1.0 + states)[:, None] / 40
    np.testing.assert_allclose(found.covariance, weighted.T @ TABLE[states], rtol=1e-4, atol=1e-4)
    images = (PSI @ PSI.T @ TABLE)[states]
    np.testing.assert_allclose(found.operator_matrix, weighted.T @ images, rtol=1e-4, atol=1e-3)


def test_exact_batches_give_the_exact_spectrum():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Everything:
        states: jax.Array

        @property
        def num_tasks(self):
            return 1

        def sample(self, key, num_rows, num_tasks):
            return Batch(self.states, jnp.zeros((num_rows, 0)))

    encoder = Tabular(6, num_states=6)
    table = jnp.asarray(RNG.normal(size=(6, 6)), jnp.float32)
    operator = PSI @ PSI.T
    found = sampled_moments(
        encoder,
        table,
        MatrixOperator(operator),
        Everything(jnp.arange(6)),
        jax.random.key(0),
        rows=6,
        batches=3,
    )
    values = ritz_spectrum(*found).eigenvalues
    expected = np.linalg.eigvalsh(operator)
    np.testing.assert_allclose(values, expected, atol=2e-3 * expected.max())
