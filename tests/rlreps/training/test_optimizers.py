"""Optimizers: first steps by hand, schedules, learning rates that are traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.numerics import optimizer_step
from rlreps.training import Optimizer, RMSProp
from rlreps.training.optimizers import SCHEDULES

STEPS = 20
START = jnp.asarray([2.0, -3.0, 0.5])


def descend(optimizer, steps):
    """Parameters [steps + 1, 3] of a descent of ½‖p‖²."""
    params, path = START, [START]
    state = optimizer.transformation.init(params)
    for _ in range(steps):
        params, state = optimizer_step(optimizer.transformation, params, state, params)
        path.append(params)
    return jnp.stack(path)


@pytest.mark.parametrize(
    ("initial_scale", "schedule", "rates"),
    [
        (0.0, "constant", [0.1, 0.1, 0.1, 0.1]),
        (1.0, "constant", [0.1, 0.1, 0.1, 0.1]),
        (1.0, "linear", [0.1, 0.075, 0.05, 0.025]),
    ],
)
def test_rmsprop_divides_by_the_root_of_an_average_that_starts_where_it_is_told(
    initial_scale, schedule, rates
):
    options = {"initial_scale": initial_scale, "decay": 0.7, "epsilon": 1e-3}
    optimizer = RMSProp(learning_rate=0.1, schedule=schedule, steps=4, **options)
    expected, mean = [np.asarray(START)], np.full(3, initial_scale)
    for rate in rates:
        gradient = expected[-1]
        mean = 0.7 * mean + 0.3 * gradient**2
        expected.append(gradient - rate * gradient / np.sqrt(mean + 1e-3))
    np.testing.assert_allclose(descend(optimizer, 4), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "optimizer", [Optimizer(learning_rate=0.1), RMSProp(learning_rate=0.1, schedule="cosine")]
)
def test_the_rate_stays_constant_where_the_number_of_steps_is_unknown(optimizer):
    path = descend(optimizer, 5)
    assert (np.abs(np.diff(path, axis=0)) > 1e-3).all()


def test_schedules_decay_from_the_rate_to_zero_over_the_run():
    counts = np.arange(STEPS + 1)
    for name, expected in {
        "constant": np.full(STEPS + 1, 0.1),
        "linear": 0.1 * (1.0 - counts / STEPS),
        "cosine": 0.05 * (1.0 + np.cos(np.pi * counts / STEPS)),
    }.items():
        with jax.numpy_dtype_promotion("standard"):
            found = [SCHEDULES[name](0.1, STEPS)(count) for count in counts]
        np.testing.assert_allclose(np.asarray(found, np.float64), expected, atol=1e-7)
