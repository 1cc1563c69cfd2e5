import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.streaming.explicit_krasulina import explicit_krasulina
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.pseudo_inverse import FactorState, inverse_gram

FEATURES, K = 10, 3


def state(seed=0):
    rows = jnp.asarray(np.random.default_rng(seed).normal(size=(K, FEATURES)))
    return FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_step_descends_the_gradient_of_the_reconstruction_error(count):
    """The gradient of mean ‖x − CC†x‖²/2, by differentiating NumPy's pseudo-inverse in JAX."""
    with jax.enable_x64(True):
        batch = jnp.asarray(np.random.default_rng(1).normal(size=(count, FEATURES)))

        def error(rows):
            return 0.5 * jnp.mean(
                jnp.sum((batch - batch @ jnp.linalg.pinv(rows) @ rows) ** 2, axis=1)
            )

        start = state()
        after = explicit_krasulina(FEATURES, K, learning_rate=0.1).update(start, batch)
        expected = start.rows - 0.1 * jax.grad(error)(start.rows)
        np.testing.assert_allclose(after.rows, expected, atol=1e-10)
        np.testing.assert_allclose(
            after.pseudo_inverse, np.linalg.pinv(np.asarray(after.rows).T), atol=1e-10
        )


def test_for_small_rates_the_implicit_step_is_the_explicit_one():
    with jax.enable_x64(True):
        batch = jnp.asarray(np.random.default_rng(1).normal(size=(1, FEATURES)))
        moves = [
            make(FEATURES, K, learning_rate=1e-6).update(state(), batch).rows - state().rows
            for make in (explicit_krasulina, implicit_krasulina)
        ]
        np.testing.assert_allclose(*moves, rtol=1e-4)


def test_for_large_rates_the_implicit_step_stops_where_the_row_is_reconstructed():
    """The residual after a step is that before it over 1 + η‖y‖²; the explicit one overshoots."""
    with jax.enable_x64(True):
        batch = jnp.asarray(np.random.default_rng(1).normal(size=(1, FEATURES)))
        hidden = state().pseudo_inverse @ batch[0]

        def residual(after):
            return float(jnp.linalg.norm(batch[0] - hidden @ after.rows))

        before = residual(state())
        shrunk = 1.0 + 100.0 * float(hidden @ hidden)
        implicit = implicit_krasulina(FEATURES, K, learning_rate=100.0).update(state(), batch)
        explicit = explicit_krasulina(FEATURES, K, learning_rate=100.0).update(state(), batch)
        assert residual(implicit) == pytest.approx(before / shrunk, rel=1e-9)
        assert residual(explicit) == pytest.approx(before * (shrunk - 2.0), rel=1e-9)


def test_columns_start_with_about_unit_length():
    rule = explicit_krasulina(400, K, learning_rate=0.1)
    lengths = jnp.linalg.norm(rule.init(jax.random.key(0)).rows, axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=0.15)
