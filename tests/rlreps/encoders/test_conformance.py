"""One suite for every encoder: pairs of pure functions, whatever library they come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rlreps.encoders import (
    at_states,
    convolutional,
    cosine,
    fourier_mlp,
    from_linen,
    from_nnx,
    mlp,
    separate_mlp,
    tabular,
    with_constant,
)

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
    "separate_mlp": separate_mlp(2, NUM_FEATURES, hidden=(8,)),
    "convolutional": convolutional((6, 5, 1), NUM_FEATURES, channels=(4, 4), hidden=16),
    "at_states": at_states(
        mlp(2, NUM_FEATURES, hidden=(8,)), np.random.default_rng(0).random((NUM_STATES, 2))
    ),
    "with_constant": with_constant(mlp(2, NUM_FEATURES - 1, hidden=(8,))),
}
every_encoder = pytest.mark.parametrize("name", sorted(ENCODERS_UNDER_TEST))


def _inputs(name, count=5):
    if name in ("tabular", "at_states"):
        return jnp.arange(count, dtype=jnp.int32)
    if name == "convolutional":
        return jax.random.uniform(jax.random.key(9), (count, 6, 5, 1))
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


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mlp", [(5, 8), (5, 6)]),
        ("fourier_mlp", [(5, 8)]),
        ("linear", []),
        ("convolutional", [(5, 3, 3, 4), (5, 2, 2, 4), (5, 16)]),
    ],
)
def test_hidden_layers_are_seen_in_order_and_the_read_out_is_linear_in_the_last(name, shapes):
    encoder, inputs = ENCODERS_UNDER_TEST[name], _inputs(name)
    params = encoder.init(jax.random.key(0))
    layers = jax.jit(encoder.hidden)(params, inputs)
    assert [layer.shape for layer in layers] == shapes
    for layer in layers:
        assert np.min(layer) >= 0.0 < np.max(layer)  # they are behind the ReLU
    if not layers:
        return
    read_out = params["read_out"] if name == "convolutional" else params["layers"][len(layers)]
    expected = layers[-1] @ read_out["kernel"] + read_out["bias"][None]
    _assert_close(encoder.apply(params, inputs), expected)


@pytest.mark.parametrize("name", ["from_nnx", "from_linen", "tabular", "cosine"])
def test_encoders_that_do_not_tell_have_unknown_hidden_layers(name):
    assert ENCODERS_UNDER_TEST[name].hidden is None


@pytest.mark.parametrize(
    "name", ["mlp", "fourier_mlp", "cosine", "tabular", "separate_mlp", "convolutional"]
)
def test_the_librarys_encoders_follow_jaxs_default_precision(name):
    encoder = ENCODERS_UNDER_TEST[name]
    with jax.enable_x64(True):
        params = encoder.init(jax.random.key(0))
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(params))
        inputs = jnp.asarray(_inputs(name), jnp.int32 if name == "tabular" else jnp.float64)
        assert encoder.apply(params, inputs).dtype == jnp.float64
