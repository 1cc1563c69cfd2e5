import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming.schedules import learning_rate_at, power_decay


def test_rates_fall_as_a_power_of_the_updates_number():
    schedule = power_decay(3.0, 0.8)
    rates = [float(schedule(jnp.int32(step))) for step in range(4)]
    np.testing.assert_allclose(rates, 3.0 / np.arange(1, 5) ** 0.8, rtol=1e-6)


def test_one_program_serves_several_initial_rates():
    rates = jax.vmap(lambda rate: power_decay(rate, 0.5)(jnp.int32(3)))(jnp.asarray([1.0, 2.0]))
    np.testing.assert_allclose(rates, [0.5, 1.0], rtol=1e-6)


def test_a_fixed_rate_is_the_same_at_every_update():
    assert float(learning_rate_at(0.25, jnp.int32(7), jnp.dtype("float32"))) == 0.25


@pytest.mark.parametrize(
    ("initial", "power", "message"),
    [
        (0.0, 0.5, "expected learning_rate > 0, got 0.0"),
        (float("nan"), 0.5, "expected learning_rate > 0, got nan"),
        (1.0, -0.1, "expected power >= 0, got -0.1"),
    ],
)
def test_rates_and_powers_out_of_range_are_refused(initial, power, message):
    with pytest.raises(InputError, match=message):
        power_decay(initial, power)
