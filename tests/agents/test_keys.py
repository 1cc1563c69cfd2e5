"""Keys of agents: draws without loops have the bits of JAX's own generator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.keys import unrolled
from rlreps.numerics import make_keys

KEYS = make_keys(range(5))
DRAWS = {
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 7)),
    "split to a grid": lambda key: jax.random.key_data(jax.random.split(key, (2, 3))),
    "bytes": lambda key: jax.random.bits(key, (3, 5), "uint8"),
    "normal": lambda key: jax.random.normal(key, (4, 2), "float32"),
    "permutation": lambda key: jax.random.permutation(key, 50),
}


@pytest.mark.parametrize("name", DRAWS)
def test_unrolled_keys_have_the_same_draws(name):
    draw = jax.jit(jax.vmap(DRAWS[name]))
    np.testing.assert_array_equal(draw(unrolled(KEYS)), draw(KEYS))


def test_draws_of_unrolled_keys_are_compiled_without_a_loop():
    def text(key):
        return jax.jit(lambda key: jax.random.uniform(key, (8,))).lower(key).as_text()

    assert "while" not in text(unrolled(KEYS[0]))
    assert jnp.ndim(unrolled(KEYS)) == 1
