"""Operators compose as linear maps do; their action at points and its weighted moments."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.operators import Diagonal, act

FIRST, SECOND = (square + square.T for square in np.random.default_rng(0).normal(size=(2, 5, 5)))
TABLE = np.random.default_rng(1).normal(size=(5, 3))


def images(operator):
    states = jnp.asarray([4, 0, 0, 2])
    return np.asarray(act(operator, lambda s: jnp.asarray(TABLE)[s], states).images)


COMBINATIONS = {
    "sum": (lambda a, b: a + b, FIRST + SECOND),
    "difference": (lambda a, b: a - b, FIRST - SECOND),
    "factor": (lambda a, b: 2.5 * a, 2.5 * FIRST),
    "factor behind": (lambda a, b: a * -3.0, -3.0 * FIRST),
    "quotient": (lambda a, b: a / 4, FIRST / 4.0),
    "negative": (lambda a, b: -a, -FIRST),
    "combination": (lambda a, b: 2 * (a - 0.5 * b), 2.0 * FIRST - SECOND),
}


def test_operators_add_and_scale_as_their_matrices_do(matrix_operator):
    for name, (combine, expected) in COMBINATIONS.items():
        combined = combine(matrix_operator(FIRST), matrix_operator(SECOND))
        found = (expected @ TABLE)[[4, 0, 0, 2]]
        np.testing.assert_allclose(images(combined), found, rtol=1e-12, err_msg=name)
        # Operators are pytrees whose leaves are their numbers.
        leaves, structure = jax.tree.flatten(combined)
        np.testing.assert_array_equal(images(structure.unflatten(leaves)), images(combined))


INPUTS = np.random.default_rng(0).normal(size=(7, 2))


def function(inputs):
    return jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1], jnp.ones(len(inputs))], axis=1)


def test_moments_are_weighted_means_of_products():
    weights, potential = np.exp(INPUTS[:, 0]), Diagonal(lambda x: x[:, 1] + 2.0)
    action = act(potential, function, INPUTS, weights=lambda x: jnp.exp(x[:, 0]))
    u = np.asarray(function(INPUTS), np.float64)
    images = (INPUTS[:, 1] + 2.0)[:, None] * u
    covariance = sum(w * np.outer(row, row) for w, row in zip(weights, u, strict=True)) / 7
    product = sum(w * np.outer(r, i) for w, r, i in zip(weights, u, images, strict=True)) / 7
    np.testing.assert_allclose(action.images, images, rtol=1e-6)
    np.testing.assert_allclose(action.covariance, covariance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(action.operator_matrix, product, rtol=1e-5, atol=1e-6)
