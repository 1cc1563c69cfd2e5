"""What networks compute, against loops in NumPy and convolutions of XLA."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import (
    MLP,
    AtStates,
    BlockSparse,
    Convolutional,
    Cosine,
    FourierMLP,
    SeparateMLP,
    Tabular,
    WithConstant,
    cosine_features,
    cosine_products,
)

RNG = np.random.default_rng(0)
INPUTS = RNG.random((7, 2)).astype(np.float32)


def params_of(encoder):
    return jax.tree.map(np.asarray, jax.jit(encoder.init)(jax.random.key(0)))


def shift_biases(params):
    """Parameters with biases other than the zeros they start from."""
    return [{**layer, "bias": layer["bias"] + 0.1} for layer in params]


@pytest.mark.parametrize("frequencies", [0, 2])
def test_a_perceptron_is_affine_maps_with_relu_between(frequencies):
    encoder = FourierMLP(4, hidden=(8, 6), frequencies=frequencies)
    params = shift_biases(params_of(encoder))
    columns = [INPUTS[:, c] for c in range(2)]
    columns += [np.cos(j * np.pi * x) for x in columns for j in range(1, frequencies + 1)]
    values = np.stack(columns, axis=1)
    np.testing.assert_allclose(cosine_features(INPUTS, frequencies), values, atol=1e-5)
    for layer in params[:-1]:
        values = np.maximum(values @ layer["kernel"] + layer["bias"], 0.0)
    expected = values @ params[-1]["kernel"] + params[-1]["bias"]
    np.testing.assert_allclose(jax.jit(encoder.apply)(params, INPUTS), expected, atol=1e-5)


def test_separate_perceptrons_share_nothing_and_start_at_the_scale_of_one_network():
    encoder = SeparateMLP(3, hidden=(8, 6))
    params = params_of(encoder)
    expected = np.empty((len(INPUTS), 3))
    for feature in range(3):
        values = INPUTS
        for depth, layer in enumerate(params):
            values = values @ layer["kernel"][feature] + layer["bias"][feature]
            values = np.tanh(values) if depth < 2 else values
        expected[:, feature] = values[:, 0]
    np.testing.assert_allclose(jax.jit(encoder.apply)(params, INPUTS), expected, atol=1e-5)
    slopes = jax.jit(jax.jacobian(lambda p: encoder.apply(p, INPUTS[:1])[0]))(params)
    for leaf in jax.tree.leaves(slopes):
        moved = np.any(leaf.reshape(3, 3, -1) != 0.0, axis=2)
        np.testing.assert_array_equal(moved, np.eye(3, dtype=bool))
    kernel = params_of(SeparateMLP(5, num_inputs=40, hidden=(50,)))[0]["kernel"]
    # Each entry has variance 1 / inputs, whatever the number of features.
    np.testing.assert_allclose(kernel.var(axis=(1, 2)), 1 / 40, rtol=0.15)


def test_cosine_products_are_orthogonal_over_a_grid_with_the_stated_scale():
    centres = (np.arange(16) + 0.5) / 16
    inputs = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    inputs = np.float32(inputs)
    products = np.asarray(jax.jit(cosine_products, static_argnums=1)(inputs, 5), np.float64)
    squares = np.add.outer(np.arange(6) ** 2, np.arange(6) ** 2).reshape(-1)
    np.testing.assert_allclose(
        products.T @ products / len(inputs), np.diag(1.0 / (1.0 + squares / 9.0)), atol=1e-5
    )
    point = np.float32([[0.2, 0.5, 0.9]])
    three = np.asarray(jax.jit(cosine_products, static_argnums=1)(point, 2)).reshape(3, 3, 3)
    expected = np.sqrt(8.0) * np.cos(0.2 * np.pi) * np.cos(np.pi) * np.cos(0.9 * np.pi)
    np.testing.assert_allclose(three[1, 2, 1], expected / np.sqrt(1.0 + 6.0 / 9.0), rtol=1e-5)


@pytest.mark.parametrize(("num_inputs", "num_features"), [(1, 3), (2, 3), (2, 40), (3, 4)])
def test_cosines_are_summed_alike_with_and_without_their_products(num_inputs, num_features):
    encoder = Cosine(num_features, num_inputs=num_inputs, frequencies=5)
    params = params_of(encoder)
    inputs = np.random.default_rng(0).random((50, num_inputs), np.float32)
    products = np.asarray(jax.jit(cosine_products, static_argnums=1)(inputs, 5), np.float64)
    features = jax.jit(encoder.apply)(params, inputs)
    np.testing.assert_allclose(features, products @ params, atol=1e-4)


@pytest.mark.parametrize("states", [[0, 9], [-1, 3]])
def test_a_table_has_no_features_for_indices_out_of_range(states):
    table = Tabular(3, num_states=9)
    params = params_of(table)
    features = jax.jit(table.apply)(params, jnp.asarray(states))
    outside = [not 0 <= state < 9 for state in states]
    np.testing.assert_array_equal(np.isnan(features), np.repeat(outside, 3).reshape(2, 3))
    gradient = jax.jit(jax.grad(lambda p, s: table.apply(p, s).sum()))(params, jnp.asarray(states))
    assert np.all(np.isfinite(gradient))
    assert table.apply(params, jnp.zeros(0, jnp.int32)).shape == (0, 3)


def test_tables_and_wrappers_return_what_they_wrap():
    table = Tabular(3, num_states=9)
    params = params_of(table)
    states = jnp.asarray([4, 4, 0])
    np.testing.assert_array_equal(table.apply(params, states), params[[4, 4, 0]])
    many = params_of(Tabular(50, num_states=400))
    assert abs(many.mean()) < 0.03
    assert abs(many.var() - 1.0) < 0.05  # standard normal
    network = MLP(3, hidden=(8,))
    params, expected = params_of(network), jax.jit(network.apply)(params_of(network), INPUTS)
    found = AtStates(network, INPUTS).apply(params, states)
    np.testing.assert_allclose(found, expected[jnp.asarray([4, 4, 0])], atol=1e-6)
    outside = jnp.asarray([-1, len(INPUTS), 2])
    for encoder, own in (
        (Tabular(3, num_states=len(INPUTS)), None),
        (AtStates(network, INPUTS), params),
    ):
        features = encoder.apply(params_of(encoder) if own is None else own, outside)
        np.testing.assert_array_equal(np.isnan(features).all(axis=1), [True, True, False])
    wide = AtStates(network, jnp.ones((400, INPUTS.shape[1])))
    short = jnp.asarray([100, 200, 255], jnp.uint8)
    assert np.isfinite(wide.apply(params, short)).all()
    extended = WithConstant(network)
    jax.tree.map(np.testing.assert_array_equal, params_of(extended), params)
    features = jax.jit(extended.apply)(params, INPUTS)
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_allclose(features[:, 1:], expected, atol=1e-6)


def block_mask(layer, layers, size_in, size_out, features):
    """Pfau et al. 2019, App. C.1, unit by unit in fractions; all count from 1."""

    def inside(unit, feature, size):
        start = Fraction((feature - 1) * (layer - 1) * size, (features - 1) * layers)
        return start <= unit <= start + Fraction((layers - layer + 1) * size, layers)

    return np.asarray(
        [
            [
                any(
                    inside(i, k, size_in) and inside(j, k, size_out) for k in range(1, features + 1)
                )
                for j in range(1, size_out + 1)
            ]
            for i in range(1, size_in + 1)
        ]
    )


def masked(params, widths, features):
    """Parameters without the weights between blocks; behind convolutions each map repeats."""
    kept = []
    for index, layer in enumerate(params):
        mask = block_mask(index + 1, len(params), *widths[index : index + 2], features)
        repeats = layer["kernel"].shape[-2] // len(mask)
        kept.append({**layer, "kernel": layer["kernel"] * np.tile(mask, (repeats, 1)).astype("f")})
    return kept


def test_blocks_are_those_of_the_paper_and_the_last_features_share_less_than_the_first_layers():
    network = MLP(5, hidden=(10, 7), activation="softplus")
    params = shift_biases(params_of(BlockSparse(network)))
    both = jax.jit(lambda p, q: (BlockSparse(network).apply(p, INPUTS), network.apply(q, INPUTS)))
    found, expected = both(params, masked(params, (2, 10, 7, 5), 5))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found - both(params, params)[1]).max() > 0.1
    # The published network of 128 units: the last layer's blocks start every 12.8 units.
    layers = [block_mask(p, 5, 128, 128, 9) for p in (1, 2, 4)]
    assert layers[0].all()
    assert layers[1].mean() > layers[2].mean() > 0.5
    last = block_mask(5, 5, 128, 9, 9)
    np.testing.assert_array_equal(np.flatnonzero(last[:, 0]), np.arange(38))
    np.testing.assert_array_equal(np.flatnonzero(last[:, 8]), np.arange(102, 128))


def test_blocks_of_a_convolutional_network_are_of_whole_maps():
    frames = np.float32(RNG.random((3, 8, 8, 2)))
    network = Convolutional(6, frame_shape=(8, 8, 2), channels=(6, 8), hidden=10)
    # Nothing is negative, so no unit is dead: every block shows.
    params = jax.tree.map(np.abs, shift_biases(params_of(BlockSparse(network))))
    both = jax.jit(lambda p, q: (BlockSparse(network).apply(p, frames), network.apply(q, frames)))
    found, expected = both(params, masked(params, (2, 6, 8, 10, 6), 6))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.abs(found - both(params, params)[1]).max() > 0.01


@pytest.mark.parametrize(
    ("shape", "side", "unpadded"),
    [((7, 10, 2), 3, 0), ((10, 1, 1), 3, 0), ((13, 20, 2), 6, 1)],
)
def test_products_of_patches_are_the_convolutions_of_xla_with_their_gradients(
    shape, side, unpadded
):
    encoder = Convolutional(
        4, frame_shape=shape, channels=(3, 5), hidden=6, kernel_size=side, unpadded=unpadded
    )
    params = shift_biases(params_of(encoder))
    frames = jax.random.normal(jax.random.key(1), (6, *shape))

    def by_xla(params):
        values = frames
        for index, layer in enumerate(params[:2]):
            padding = "VALID" if index < unpadded else "SAME"
            values = jax.lax.conv_general_dilated(
                values, layer["kernel"], (2, 2), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            values = jax.nn.relu(values + layer["bias"][None, None, None])
        values = values.reshape(len(frames), -1)
        values = jax.nn.relu(values @ params[2]["kernel"] + params[2]["bias"][None])
        return values @ params[3]["kernel"] + params[3]["bias"][None]

    def features_and_slopes(apply, params):
        slopes = jax.grad(lambda params: jnp.sum(jnp.square(apply(params))))
        return apply(params), slopes(params)

    @jax.jit
    def both(params):
        ours = features_and_slopes(lambda params: encoder.apply(params, frames), params)
        return ours, features_and_slopes(by_xla, params)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    jax.tree.map(close, *both(params))
