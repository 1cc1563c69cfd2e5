"""Encoders of state indices, and the constant before others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import at_states, mlp, separate_mlp, tabular, with_constant
from rlreps.errors import InputError

NUM_STATES, NUM_FEATURES = 9, 4


def test_a_tabular_encoder_moves_only_the_rows_it_is_shown():
    encoder = tabular(NUM_STATES, NUM_FEATURES)
    params = encoder.init(jax.random.key(0))
    gradient = jax.grad(lambda p: jnp.sum(encoder.apply(p, jnp.array([2, 2, 5]))))(params)
    expected = np.zeros((NUM_STATES, NUM_FEATURES))
    expected[2], expected[5] = 2.0, 1.0
    np.testing.assert_array_equal(gradient, expected)


def test_at_states_encodes_the_inputs_of_the_states_it_is_given():
    encoder = mlp(2, NUM_FEATURES, hidden=(8,))
    inputs = np.random.default_rng(0).normal(size=(NUM_STATES, 2)).astype(np.float32)
    params = encoder.init(jax.random.key(0))
    by_state = at_states(encoder, inputs)
    states = jnp.asarray([7, 0, 7])
    found = by_state.apply(by_state.init(jax.random.key(0)), states)
    np.testing.assert_allclose(found, encoder.apply(params, inputs[[7, 0, 7]]), rtol=1e-6)
    frames = at_states(tabular(3, 2), np.array([2, 2, 0]))
    table = frames.init(jax.random.key(1))
    np.testing.assert_array_equal(frames.apply(table, jnp.arange(3)), table[np.array([2, 2, 0])])


def test_the_constant_comes_first_and_the_other_features_as_they_are():
    encoder = separate_mlp(2, 3, hidden=(5,))
    extended = with_constant(encoder)
    params = extended.init(jax.random.key(0))
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)), jnp.float32)
    features = extended.apply(params, inputs)
    assert (features.shape, features.dtype) == ((6, 4), jnp.float32)
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_array_equal(features[:, 1:], encoder.apply(params, inputs))
    slopes = jax.grad(lambda p: extended.apply(p, inputs)[:, 0].sum())(params)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tabular(0, 3), "expected num_states >= 1, got 0"),
        (lambda: tabular(3, 0), "expected num_features >= 1, got 0"),
    ],
)
def test_empty_tables_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value) == message
