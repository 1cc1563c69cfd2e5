"""The benchmarks, at their smallest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.streaming import ImplicitKrasulina, PowerDecay
from rlreps.streaming.rules.factor import FactorState, inverse_gram


@pytest.fixture(scope="module")
def script(load):
    return load("benchmark")


def test_numpys_loop_makes_the_updates_that_it_is_compared_with(script):
    rows = script.random_rows(200, 12)
    start = 1e-2 * np.random.default_rng(0).normal(size=(12, 3))
    factor, inverse = script.numpy_loop(rows.astype(np.float64), start)
    np.testing.assert_allclose(inverse, np.linalg.pinv(factor), atol=1e-10)
    with jax.enable_x64(True):
        rule = ImplicitKrasulina(12, 3, learning_rate=PowerDecay(script.RATE, script.POWER))
        state = FactorState(
            jnp.zeros((), jnp.int32), jnp.asarray(start.T), inverse_gram(jnp.asarray(start.T))
        )
        ended = rule.update_each(state, jnp.asarray(rows, jnp.float64))
        np.testing.assert_allclose(ended.rows.T, factor, atol=1e-9)
