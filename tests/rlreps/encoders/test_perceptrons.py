"""Multi-layer perceptrons against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import cosine_features, fourier_mlp, mlp, separate_mlp
from rlreps.errors import InputError

NUM_FEATURES = 4


def test_cosine_features_are_the_inputs_and_their_cosines():
    inputs = np.array([[0.0, 0.25], [0.5, 1.0]], np.float32)
    features = np.asarray(cosine_features(jnp.asarray(inputs), 3))
    waves = np.cos(np.pi * inputs[:, :, None] * np.arange(1, 4))
    np.testing.assert_allclose(features[:, :2], inputs)
    np.testing.assert_allclose(features[:, 2:], waves.reshape(2, 6), atol=1e-6)
    np.testing.assert_array_equal(cosine_features(jnp.asarray(inputs), 0), inputs)


def test_an_mlp_is_relu_layers_and_a_linear_read_out():
    encoder = mlp(2, NUM_FEATURES, hidden=(8, 6))
    params = encoder.init(jax.random.key(0))
    inputs = np.random.default_rng(9).random((5, 2), np.float32)
    hidden = inputs
    layers = jax.tree.map(np.asarray, [params["layers"][index] for index in range(3)])
    for layer in layers[:-1]:
        hidden = np.maximum(hidden @ layer["kernel"] + layer["bias"], 0.0)
    expected = hidden @ layers[-1]["kernel"] + layers[-1]["bias"]
    np.testing.assert_allclose(encoder.apply(params, jnp.asarray(inputs)), expected, atol=1e-5)
    assert [layer["kernel"].shape for layer in layers] == [(2, 8), (8, 6), (6, NUM_FEATURES)]


def test_separate_perceptrons_are_one_network_for_each_feature():
    encoder = separate_mlp(2, 3, hidden=(8, 6))
    params = jax.tree.map(np.asarray, encoder.init(jax.random.key(0)))
    inputs = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    columns = []
    for feature in range(3):
        hidden = inputs
        for layer in params[:-1]:
            hidden = np.tanh(hidden @ layer["kernel"][feature] + layer["bias"][feature])
        columns.append(hidden @ params[-1]["kernel"][feature] + params[-1]["bias"][feature])
    expected = np.concatenate(columns, axis=1)
    np.testing.assert_allclose(encoder.apply(params, jnp.asarray(inputs)), expected, atol=1e-5)
    assert [layer["kernel"].shape for layer in params] == [(3, 2, 8), (3, 8, 6), (3, 6, 1)]


def test_the_activation_of_separate_perceptrons_can_be_chosen():
    params = separate_mlp(1, 2, hidden=(3,)).init(jax.random.key(0))
    inputs = jnp.asarray([[0.3], [-0.8]])
    linear = separate_mlp(1, 2, hidden=(3,), activation=lambda values: values)
    middle = linear.apply(params, inputs.mean(axis=0, keepdims=True))[0]
    np.testing.assert_allclose(linear.apply(params, inputs).mean(axis=0), middle, rtol=1e-5)


def test_a_separate_feature_moves_its_own_slice_of_every_leaf_alone():
    encoder = separate_mlp(2, 3, hidden=(8,))
    params = encoder.init(jax.random.key(0))
    inputs = jnp.asarray([[0.3, -0.2]])
    for feature in range(3):
        slopes = jax.grad(lambda p, k=feature: encoder.apply(p, inputs)[0, k])(params)
        for leaf in jax.tree.leaves(slopes):
            moved = np.any(np.asarray(leaf).reshape(3, -1) != 0.0, axis=1)
            np.testing.assert_array_equal(moved, np.arange(3) == feature)


def test_separate_features_start_apart_and_at_the_scale_of_one_network():
    encoder = separate_mlp(40, 5, hidden=(50,))
    kernel = np.asarray(encoder.init(jax.random.key(0))[0]["kernel"])
    # Each entry of variance 1 / inputs, whatever the number of features.
    np.testing.assert_allclose(kernel.var(axis=(1, 2)), 1 / 40, rtol=0.15)
    correlations = np.corrcoef(kernel.reshape(5, -1)) - np.eye(5)
    assert np.abs(correlations).max() < 0.1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mlp(0, 3), "expected num_inputs >= 1, got 0"),
        (lambda: mlp(2, 0), "expected num_features >= 1, got 0"),
        (lambda: mlp(2, 3, hidden=(8, 0)), "expected hidden layer widths >= 1, got (8, 0)"),
        (lambda: fourier_mlp(2, 3, frequencies=-1), "expected frequencies >= 0, got -1"),
        (lambda: separate_mlp(0, 3), "expected num_inputs >= 1, got 0"),
        (lambda: separate_mlp(2, 0), "expected num_features >= 1, got 0"),
        (lambda: separate_mlp(2, 3, hidden=(0,)), "expected hidden layer widths >= 1, got (0,)"),
    ],
)
def test_sizes_out_of_range_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value) == message
