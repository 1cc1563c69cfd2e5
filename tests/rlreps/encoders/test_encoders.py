"""Encoders as pairs of pure functions, whatever library they come from."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rlreps.configs import EncoderConfig, EncoderName
from rlreps.encoders import (
    ENCODERS,
    cosine,
    cosine_features,
    cosine_products,
    fourier_mlp,
    from_linen,
    from_nnx,
    make_encoder,
    mlp,
    tabular,
)
from rlreps.errors import InputError

NUM_STATES, NUM_FEATURES = 9, 4


class _LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(NUM_FEATURES)(linen.relu(linen.Dense(8)(inputs)))


class _NnxNetwork(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 8, rngs=rngs)
        self.last = nnx.Linear(8, NUM_FEATURES, rngs=rngs)

    def __call__(self, inputs):
        return self.last(nnx.relu(self.first(inputs)))


ENCODERS_UNDER_TEST = {
    "mlp": mlp(2, NUM_FEATURES, hidden=(8, 6)),
    "fourier_mlp": fourier_mlp(2, NUM_FEATURES, hidden=(8,), frequencies=3),
    "cosine": cosine(2, NUM_FEATURES, frequencies=3),
    "linear": mlp(2, NUM_FEATURES, hidden=()),
    "from_nnx": from_nnx(_NnxNetwork),
    "from_linen": from_linen(_LinenNetwork(), jnp.zeros((1, 2))),
    "tabular": tabular(NUM_STATES, NUM_FEATURES),
}
every_encoder = pytest.mark.parametrize("name", sorted(ENCODERS_UNDER_TEST))


def _inputs(name, count=5):
    if name == "tabular":
        return jnp.arange(count, dtype=jnp.int32)
    return jax.random.uniform(jax.random.key(9), (count, 2))


def _assert_close(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-6)


@every_encoder
def test_features_are_one_row_a_state_in_single_precision(name):
    encoder = ENCODERS_UNDER_TEST[name]
    params = encoder.init(jax.random.key(0))
    features = encoder.apply(params, _inputs(name))
    assert features.shape == (5, NUM_FEATURES)
    assert features.dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    assert np.all(np.isfinite(features))


@every_encoder
def test_rows_are_encoded_independently_of_their_batch(name):
    encoder = ENCODERS_UNDER_TEST[name]
    params, inputs = encoder.init(jax.random.key(0)), _inputs(name)
    features = encoder.apply(params, inputs)
    _assert_close(encoder.apply(params, inputs[::-1]), features[::-1])
    _assert_close(encoder.apply(params, inputs[2:3]), features[2:3])


@every_encoder
def test_the_key_alone_decides_the_parameters(name):
    encoder = ENCODERS_UNDER_TEST[name]
    again = encoder.init(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, encoder.init(jax.random.key(0)), again)
    others = jax.tree.leaves(encoder.init(jax.random.key(1)))
    assert any(
        np.any(leaf != other) for leaf, other in zip(jax.tree.leaves(again), others, strict=True)
    )


@every_encoder
def test_jitted_mapped_and_plain_calls_agree_with_one_trace_each(name):
    encoder, inputs = ENCODERS_UNDER_TEST[name], _inputs(name)
    traces = []

    def features_of(key, inputs):
        traces.append(None)
        return encoder.apply(encoder.init(key), inputs)

    keys = jax.random.split(jax.random.key(0), 3)
    jitted = jax.jit(features_of)
    single = [jitted(key, inputs) for key in keys]
    assert len(traces) == 1
    _assert_close(features_of(keys[0], inputs), single[0])
    mapped = jax.jit(jax.vmap(features_of, in_axes=(0, None)))(keys, inputs)
    _assert_close(mapped, jnp.stack(single))


@every_encoder
def test_parameters_train_as_a_plain_tree_through_a_scan(name):
    encoder, inputs = ENCODERS_UNDER_TEST[name], _inputs(name)
    targets = jax.random.normal(jax.random.key(1), (5, NUM_FEATURES))

    def loss(params):
        return jnp.mean((encoder.apply(params, inputs) - targets) ** 2)

    def step(params, _):
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, params, gradient), value

    start = encoder.init(jax.random.key(0))
    end, losses = jax.lax.scan(step, start, length=200)
    assert jax.tree.structure(end) == jax.tree.structure(start)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", ["mlp", "fourier_mlp", "cosine", "tabular"])
def test_the_librarys_encoders_follow_jaxs_default_precision(name):
    encoder = ENCODERS_UNDER_TEST[name]
    with jax.enable_x64(True):
        params = encoder.init(jax.random.key(0))
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(params))
        inputs = jnp.arange(5) if name == "tabular" else jnp.asarray(np.ones((5, 2)))
        assert encoder.apply(params, inputs).dtype == jnp.float64


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
    inputs = np.asarray(_inputs("mlp"))
    hidden = inputs
    layers = jax.tree.map(np.asarray, [params["layers"][index] for index in range(3)])
    for layer in layers[:-1]:
        hidden = np.maximum(hidden @ layer["kernel"] + layer["bias"], 0.0)
    expected = hidden @ layers[-1]["kernel"] + layers[-1]["bias"]
    np.testing.assert_allclose(encoder.apply(params, jnp.asarray(inputs)), expected, atol=1e-5)
    assert [layer["kernel"].shape for layer in layers] == [(2, 8), (8, 6), (6, NUM_FEATURES)]


def test_an_encoder_from_nnx_is_the_module_itself():
    inputs = _inputs("from_nnx")
    encoder = ENCODERS_UNDER_TEST["from_nnx"]
    expected = _NnxNetwork(nnx.Rngs(jax.random.key(3)))(inputs)
    np.testing.assert_allclose(
        encoder.apply(encoder.init(jax.random.key(3)), inputs), expected, atol=1e-6
    )


def test_an_encoder_from_linen_is_the_module_itself():
    inputs, module = _inputs("from_linen"), _LinenNetwork()
    encoder = ENCODERS_UNDER_TEST["from_linen"]
    variables = module.init(jax.random.key(3), inputs)
    np.testing.assert_allclose(
        encoder.apply(encoder.init(jax.random.key(3)), inputs),
        module.apply(variables, inputs),
        atol=1e-6,
    )


def test_a_tabular_encoder_moves_only_the_rows_it_is_shown():
    encoder = tabular(NUM_STATES, NUM_FEATURES)
    params = encoder.init(jax.random.key(0))
    gradient = jax.grad(lambda p: jnp.sum(encoder.apply(p, jnp.array([2, 2, 5]))))(params)
    expected = np.zeros((NUM_STATES, NUM_FEATURES))
    expected[2], expected[5] = 2.0, 1.0
    np.testing.assert_array_equal(gradient, expected)


def test_modules_with_other_state_than_parameters_are_refused():
    class Normalised(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(2, NUM_FEATURES, rngs=rngs)
            self.norm = nnx.BatchNorm(NUM_FEATURES, rngs=rngs)

        def __call__(self, inputs):
            return self.norm(self.linear(inputs))

    with pytest.raises(InputError, match=r"expected .* nnx.Param, got 'BatchStat'"):
        from_nnx(Normalised)

    class LinenNormalised(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            return linen.BatchNorm(use_running_average=False)(linen.Dense(NUM_FEATURES)(inputs))

    with pytest.raises(InputError, match=r"expected .* mutable collections, got 'batch_stats'"):
        from_linen(LinenNormalised(), jnp.zeros((1, 2)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mlp(0, 3), "expected num_inputs >= 1, got 0"),
        (lambda: mlp(2, 0), "expected num_features >= 1, got 0"),
        (lambda: mlp(2, 3, hidden=(8, 0)), "expected hidden layer widths >= 1, got (8, 0)"),
        (lambda: fourier_mlp(2, 3, frequencies=-1), "expected frequencies >= 0, got -1"),
        (lambda: cosine(2, 3, frequencies=-1), "expected frequencies >= 0, got -1"),
        (lambda: cosine(4, 3), "expected at most 100000 products of cosines, got 331776"),
        (lambda: tabular(0, 3), "expected num_states >= 1, got 0"),
        (lambda: tabular(3, 0), "expected num_features >= 1, got 0"),
        (
            lambda: EncoderConfig(name="resnet"),
            "expected encoder to be one of cosine, fourier_mlp, mlp, tabular, got 'resnet'",
        ),
    ],
)
def test_sizes_and_names_out_of_range_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value) == message


def test_the_registry_holds_exactly_the_names_of_the_configuration():
    assert set(ENCODERS) == set(get_args(EncoderName))


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_configuration_makes_the_encoder_it_names(name):
    config = EncoderConfig(name=name, hidden=(8,), frequencies=3)
    encoder = make_encoder(config, num_inputs=2, num_states=NUM_STATES, num_features=NUM_FEATURES)
    direct = {
        "mlp": lambda: mlp(2, NUM_FEATURES, hidden=(8,)),
        "fourier_mlp": lambda: fourier_mlp(2, NUM_FEATURES, hidden=(8,), frequencies=3),
        "cosine": lambda: cosine(2, NUM_FEATURES, frequencies=3),
        "tabular": lambda: tabular(NUM_STATES, NUM_FEATURES),
    }[name]()
    _assert_close(encoder.init(jax.random.key(0)), direct.init(jax.random.key(0)))


def test_cosine_products_are_orthogonal_over_a_grid_with_the_stated_scale():
    centres = (np.arange(16) + 0.5) / 16
    inputs = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    products = np.asarray(cosine_products(jnp.asarray(inputs, jnp.float32), 5), np.float64)
    frequencies = np.arange(6)
    squares = (frequencies[:, None] ** 2 + frequencies[None, :] ** 2).reshape(-1)
    np.testing.assert_allclose(
        products.T @ products / len(inputs), np.diag(1.0 / (1.0 + squares / 9.0)), atol=1e-5
    )


def test_cosine_products_of_three_coordinates_are_products_of_cosines():
    inputs = jnp.asarray([[0.2, 0.5, 0.9]])
    products = np.asarray(cosine_products(inputs, 2)).reshape(3, 3, 3)
    expected = np.sqrt(8.0) * np.cos(0.2 * np.pi) * np.cos(np.pi) * np.cos(0.9 * np.pi)
    np.testing.assert_allclose(products[1, 2, 1], expected / np.sqrt(1.0 + 6.0 / 9.0), rtol=1e-5)
