"""An operator's action at points, and its weighted moments."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.operators import Operator, diagonal, target_kernel
from rlreps.operators.action import act

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(7, 2)).astype(np.float32)


def function(inputs):
    return jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1], jnp.ones(len(inputs))], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_weighted_means_of_products(weighted):
    weights = np.exp(INPUTS[:, 0]) if weighted else np.ones(7)
    action = act(
        diagonal(lambda x: x[:, 1] + 2.0),
        function,
        jnp.asarray(INPUTS),
        weights=(lambda x: jnp.exp(x[:, 0])) if weighted else None,
    )
    u = np.asarray(function(INPUTS), np.float64)
    images = (INPUTS[:, 1] + 2.0)[:, None] * u
    covariance = sum(w * np.outer(row, row) for w, row in zip(weights, u, strict=True)) / 7
    product = sum(w * np.outer(r, i) for w, r, i in zip(weights, u, images, strict=True)) / 7
    np.testing.assert_allclose(action.images, images, rtol=1e-6)
    np.testing.assert_allclose(action.covariance, covariance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(action.operator_matrix, product, rtol=1e-5, atol=1e-6)


def test_features_that_are_known_are_not_computed_again():
    calls = []

    def counted(inputs):
        calls.append(len(inputs))
        return function(inputs)

    features = function(INPUTS)
    given = act(diagonal(lambda x: x[:, 0]), counted, jnp.asarray(INPUTS), features=features)
    assert calls == []
    own = act(diagonal(lambda x: x[:, 0]), counted, jnp.asarray(INPUTS))
    assert calls == [7]
    np.testing.assert_array_equal(given.images, own.images)


@pytest.mark.parametrize(
    ("operator", "weights", "message"),
    [
        (diagonal(lambda x: x), None, r"a potential of shape \(7,\), got \(7, 2\)"),
        (diagonal(lambda x: jnp.ones(())), None, r"a potential of shape \(7,\), got \(\)"),
        (diagonal(lambda x: x[:, 0]), lambda x: x, r"weights \(7,\), got \(7, 2\)"),
        (Operator(lambda s: s.features[:, :2]), None, r"images of shape \(7, 3\), got \(7, 2\)"),
        (target_kernel(), None, "at least one target column, got 0"),
    ],
)
def test_wrong_shapes_are_refused(operator, weights, message):
    with pytest.raises(InputError, match="expected " + message):
        act(operator, function, jnp.asarray(INPUTS), weights=weights)
