import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.streaming.low_rank import LowRank, add_row, add_rows, weighted_mean
from rlreps.streaming.orthonormal import orthonormalize

FEATURES, RANK = 50, 6


def start(seed=0):
    rows = orthonormalize(jax.random.normal(jax.random.key(seed), (RANK, FEATURES)))
    return LowRank(rows, jnp.asarray([5.0, 4.0, 3.0, 0.0, 0.0, 0.0]))


def dense(matrix):
    rows = np.asarray(matrix.rows, np.float64)
    return rows.T * np.asarray(matrix.values, np.float64) @ rows


@pytest.mark.parametrize("together", [False, True])
def test_rows_almost_within_the_span_keep_the_basis_orthonormal(together):
    # What a long row leaves after one projection is half rounding, which lies within the span.
    generator = np.random.default_rng(1)
    matrix = start()
    for _ in range(20):
        along = generator.normal(size=RANK) @ np.asarray(matrix.rows)
        row = jnp.asarray(1e3 * along + 1e-2 * generator.normal(size=FEATURES), jnp.float32)
        matrix = add_rows(matrix, row[None, :]) if together else add_row(matrix, row)
        gram = np.asarray(matrix.rows, np.float64) @ np.asarray(matrix.rows, np.float64).T
        np.testing.assert_allclose(gram, np.eye(RANK), atol=1e-5)


def test_a_row_within_the_span_leaves_the_span_and_adds_its_square():
    matrix = start()
    row = jnp.asarray([1.0, -2.0, 0.5, 3.0, 0.0, 1.0]) @ matrix.rows
    for after in (add_row(matrix, row), add_rows(matrix, jnp.stack([row, row]) / np.sqrt(2.0))):
        overlap = np.asarray(after.rows, np.float64) @ np.asarray(matrix.rows, np.float64).T
        np.testing.assert_allclose(np.linalg.svd(overlap, compute_uv=False), 1.0, atol=1e-5)
        np.testing.assert_allclose(dense(after), dense(matrix) + np.outer(row, row), atol=1e-5)


def test_a_weighted_mean_keeps_the_leading_part_of_the_sum():
    matrices = [start(seed) for seed in range(3)]
    weights = np.asarray([1.0, 2.0, 5.0])
    mean = weighted_mean(
        jnp.stack([matrix.rows for matrix in matrices]),
        jnp.stack([matrix.values for matrix in matrices]),
        jnp.asarray(weights, jnp.float32),
    )
    exact = np.tensordot(weights / 8.0, [dense(matrix) for matrix in matrices], axes=1)
    values, vectors = np.linalg.eigh(exact)
    leading = vectors[:, -RANK:] * values[-RANK:] @ vectors[:, -RANK:].T
    np.testing.assert_allclose(dense(mean), leading, atol=1e-4)
