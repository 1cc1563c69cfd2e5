"""One suite for every encoder, whatever library it comes from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rlreps.encoders import (
    MLP,
    AtStates,
    BlockSparse,
    Convolutional,
    Cosine,
    FourierMLP,
    SeparateMLP,
    Tabular,
    TwoTowers,
    WithConstant,
    from_linen,
    from_nnx,
)
from rlreps.errors import InputError

NUM_STATES, NUM_FEATURES = 9, 4
POSITIONS = np.random.default_rng(0).random((NUM_STATES, 2)).astype(np.float32)


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(NUM_FEATURES)(linen.relu(linen.Dense(8)(inputs)))


class NnxNetwork(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 8, rngs=rngs)
        self.last = nnx.Linear(8, NUM_FEATURES, rngs=rngs)

    def __call__(self, inputs):
        return self.last(nnx.relu(self.first(inputs)))


UNDER_TEST = {
    "mlp": MLP(NUM_FEATURES, hidden=(8, 6)),
    "fourier_mlp": FourierMLP(NUM_FEATURES, hidden=(8,), frequencies=3),
    "cosine": Cosine(NUM_FEATURES, frequencies=3),
    "linear": MLP(NUM_FEATURES, hidden=()),
    "from_nnx": from_nnx(NnxNetwork),
    "from_linen": from_linen(LinenNetwork(), jnp.zeros((1, 2))),
    "tabular": Tabular(NUM_FEATURES, num_states=NUM_STATES),
    "separate_mlp": SeparateMLP(NUM_FEATURES, hidden=(8,)),
    "convolutional": Convolutional(NUM_FEATURES, frame_shape=(6, 5, 1), channels=(4, 4), hidden=16),
    "block_sparse": BlockSparse(MLP(NUM_FEATURES, hidden=(8, 6), activation="softplus")),
    "at_states": AtStates(MLP(NUM_FEATURES, hidden=(8,)), POSITIONS),
    "with_constant": WithConstant(MLP(NUM_FEATURES - 1, hidden=(8,))),
    "two_towers": TwoTowers(MLP(NUM_FEATURES // 2, hidden=(8,)), Cosine(NUM_FEATURES // 2)),
}
OURS = ["mlp", "fourier_mlp", "cosine", "tabular", "separate_mlp", "convolutional"]
HIDDEN = {
    "mlp": [(5, 8), (5, 6)],
    "fourier_mlp": [(5, 8)],
    "linear": [],
    "convolutional": [(5, 3, 3, 4), (5, 2, 2, 4), (5, 16)],
    "separate_mlp": [(5, 8, NUM_FEATURES)],
    "block_sparse": [(5, 8), (5, 6)],
}


def inputs_of(name, count=5):
    if name in ("tabular", "at_states"):
        return jnp.arange(count, dtype=jnp.int32)
    shape = (6, 5, 1) if name == "convolutional" else (2,)
    return jax.random.uniform(jax.random.key(9), (count, *shape))


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNDER_TEST)
def test_an_encoder_is_a_pure_function_of_key_parameters_and_inputs(name):
    encoder, inputs = UNDER_TEST[name], inputs_of(name)
    targets = jax.random.normal(jax.random.key(1), (5, NUM_FEATURES))

    def loss(params):
        return jnp.mean(jnp.square(encoder.apply(params, inputs) - targets))

    def step(params, _):
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, params, gradient), value

    @jax.jit
    def everything(keys):
        params = jax.vmap(encoder.init)(keys)
        first = jax.tree.map(lambda leaf: leaf[0], params)
        each = [encoder.apply(first, part) for part in (inputs[::-1], inputs[2:3])]
        each.append(encoder.apply(encoder.init(keys[1]), inputs))
        losses = jax.lax.scan(step, first, length=150)[1]
        layers = encoder.hidden_activations(first, inputs)
        return params, jax.vmap(encoder.apply, (0, None))(params, inputs), each, losses, layers

    keys = jax.random.split(jax.random.key(0), 2)
    params, features, (reverse, third, alone), losses, layers = everything(keys)
    assert features.shape == (2, 5, NUM_FEATURES)
    assert all(leaf.dtype == jnp.float32 for leaf in [features, *jax.tree.leaves(params)])
    assert_close(reverse, features[0, ::-1])
    assert_close(third, features[0, 2:3])
    assert np.all(np.isfinite(features))
    assert np.any(features[0] != features[1])
    assert losses[-1] < 0.7 * losses[0]
    assert_close(alone, features[1])
    if name not in HIDDEN:
        assert layers is None
        return
    assert [layer.shape for layer in layers] == HIDDEN[name]
    if layers and name != "separate_mlp":
        # They are taken behind the ReLU.
        assert all(np.min(layer) >= 0.0 < np.max(layer) for layer in layers)


@pytest.mark.parametrize("name", OURS)
def test_encoders_follow_jaxs_default_precision(name):
    encoder = UNDER_TEST[name]
    with jax.enable_x64(True):
        params = jax.eval_shape(encoder.init, jax.random.key(0))
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(params))
        inputs = jnp.asarray(inputs_of(name), jnp.int32 if name == "tabular" else jnp.float64)
        assert jax.eval_shape(encoder.apply, params, inputs).dtype == jnp.float64


def test_a_constant_array_of_an_nnx_module_is_refused():
    given = jnp.arange(2.0)

    class Scaled(NnxNetwork):
        def __init__(self, make, rngs):
            super().__init__(rngs)
            self.scale = make()

    for make in (lambda: jnp.arange(2.0), lambda: given, lambda: np.arange(2.0)):
        with pytest.raises(InputError, match=r"state in nnx\.Param, got 'the array scale'"):
            from_nnx(functools.partial(Scaled, make))
