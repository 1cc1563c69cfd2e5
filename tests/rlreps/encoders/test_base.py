"""A Flax module as an encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rlreps.encoders import from_linen, from_nnx
from rlreps.errors import InputError

NUM_FEATURES = 4
INPUTS = jax.random.uniform(jax.random.key(9), (5, 2))


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


def test_an_encoder_from_nnx_is_the_module_itself():
    inputs = INPUTS
    encoder = from_nnx(_NnxNetwork)
    expected = _NnxNetwork(nnx.Rngs(jax.random.key(3)))(inputs)
    np.testing.assert_allclose(
        encoder.apply(encoder.init(jax.random.key(3)), inputs), expected, atol=1e-6
    )


def test_a_users_own_module_can_show_its_hidden_layers():
    class Telling(_NnxNetwork):
        def hidden_activations(self, inputs):
            return [nnx.relu(self.first(inputs))]

    encoder = from_nnx(Telling)
    (layer,) = encoder.hidden(encoder.init(jax.random.key(3)), INPUTS)
    expected = nnx.relu(_NnxNetwork(nnx.Rngs(jax.random.key(3))).first(INPUTS))
    np.testing.assert_allclose(layer, expected, atol=1e-6)


def test_a_layer_of_that_name_is_not_taken_for_the_method():
    class Named(_NnxNetwork):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.hidden_activations = nnx.Linear(2, 8, rngs=rngs)

    assert from_nnx(Named).hidden is None


def test_an_encoder_from_linen_is_the_module_itself():
    inputs, module = INPUTS, _LinenNetwork()
    encoder = from_linen(_LinenNetwork(), jnp.zeros((1, 2)))
    variables = module.init(jax.random.key(3), inputs)
    np.testing.assert_allclose(
        encoder.apply(encoder.init(jax.random.key(3)), inputs),
        module.apply(variables, inputs),
        atol=1e-6,
    )


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
