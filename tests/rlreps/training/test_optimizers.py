"""Optimizers and schedules by name."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlreps.configs import OptimizerConfig, OptimizerName, ScheduleName
from rlreps.errors import InputError
from rlreps.training.optimizers import OPTIMIZERS, SCHEDULES, make_optimizer, optimizer_step

STEPS = 20
every_optimizer = pytest.mark.parametrize("name", sorted(OPTIMIZERS))
every_schedule = pytest.mark.parametrize("schedule", sorted(SCHEDULES))


def _config(name="adam", schedule="constant", learning_rate=0.05):
    return OptimizerConfig(name=name, schedule=schedule, learning_rate=learning_rate)


def _params():
    return {"bias": jnp.array([2.0, -3.0]), "kernel": jnp.ones((2, 2))}


def _loss(params):
    return 0.5 * jnp.sum(params["bias"] ** 2) + jnp.sum(params["kernel"] ** 2)


def test_the_registries_hold_exactly_the_names_of_the_configuration():
    assert set(OPTIMIZERS) == set(get_args(OptimizerName))
    assert set(SCHEDULES) == set(get_args(ScheduleName))


@every_schedule
@every_optimizer
def test_scanned_steps_equal_a_loop_that_compiles_once_and_lower_the_loss(name, schedule):
    optimizer = make_optimizer(_config(name, schedule), STEPS)
    traces = []

    def step(carry, _):
        traces.append(None)
        params, state = carry
        value, gradients = jax.value_and_grad(_loss)(params)
        return optimizer_step(optimizer, gradients, state, params), value

    start = (_params(), optimizer.init(_params()))
    jitted, carry = jax.jit(step), start
    for _ in range(STEPS):
        carry, _ = jitted(carry, None)
    assert len(traces) == 1
    scanned, losses = jax.lax.scan(step, start, length=STEPS)
    for leaf, other in zip(jax.tree.leaves(carry), jax.tree.leaves(scanned), strict=True):
        assert (leaf.dtype, leaf.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-6)
    assert losses[-1] < losses[0]
    assert _loss(scanned[0]) < losses[-1]


@every_schedule
@every_optimizer
def test_mapping_over_seeds_is_looping_over_them(name, schedule):
    optimizer = make_optimizer(_config(name, schedule), STEPS)

    def run(scale):
        params = jax.tree.map(lambda leaf: scale * leaf, _params())
        state = optimizer.init(params)
        for _ in range(2):
            params, state = optimizer_step(optimizer, jax.grad(_loss)(params), state, params)
        return params

    scales = jnp.array([0.5, 1.0, 2.0])
    mapped = jax.jit(jax.vmap(run))(scales)
    for index, scale in enumerate(scales):
        own = jax.tree.map(lambda leaf, index=index: leaf[index], mapped)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), own, run(scale))


@every_optimizer
def test_parameters_keep_their_precision(name):
    for x64 in (False, True):
        with jax.enable_x64(x64):
            dtype = jnp.float64 if x64 else jnp.float32
            params = {"kernel": jnp.ones((2, 2), dtype)}
            optimizer = make_optimizer(_config(name), STEPS)
            gradients = {"kernel": jnp.full((2, 2), 0.3, dtype)}
            new, _ = optimizer_step(optimizer, gradients, optimizer.init(params), params)
            assert new["kernel"].dtype == dtype


def test_plain_descent_is_a_step_against_the_gradient():
    optimizer = make_optimizer(_config("sgd", learning_rate=0.1), STEPS)
    params, _ = optimizer_step(optimizer, _params(), optimizer.init(_params()), _params())
    jax.tree.map(
        lambda new, old: np.testing.assert_allclose(new, 0.9 * old, rtol=1e-6), params, _params()
    )


def test_adams_first_step_is_the_learning_rate_against_the_sign():
    optimizer = make_optimizer(_config("adam", learning_rate=0.1), STEPS)
    params, _ = optimizer_step(optimizer, _params(), optimizer.init(_params()), _params())
    jax.tree.map(
        lambda new, old: np.testing.assert_allclose(new, old - 0.1 * np.sign(old), rtol=1e-5),
        params,
        _params(),
    )


def test_rmsprops_first_step_is_that_of_its_decayed_square():
    optimizer = make_optimizer(_config("rmsprop", learning_rate=0.1), STEPS)
    params, _ = optimizer_step(optimizer, _params(), optimizer.init(_params()), _params())
    # The mean square starts at zero and takes in a tenth of the first gradient's square.
    jax.tree.map(
        lambda new, old: np.testing.assert_allclose(
            new, old - 0.1 * np.sign(old) / np.sqrt(0.1), rtol=1e-5
        ),
        params,
        _params(),
    )


def test_the_cosine_schedule_decays_the_rate_to_zero_over_the_run():
    optimizer = make_optimizer(_config("sgd", "cosine", 0.1), STEPS)
    params, state, lengths = jnp.zeros(1), optimizer.init(jnp.zeros(1)), []
    for _ in range(STEPS + 1):
        new, state = optimizer_step(optimizer, jnp.ones(1), state, params)
        lengths.append(float((params - new)[0]))
        params = new
    expected = 0.1 * 0.5 * (1.0 + np.cos(np.pi * np.arange(STEPS + 1) / STEPS))
    np.testing.assert_allclose(lengths, expected, atol=1e-6)


def test_the_constant_schedule_stays():
    schedule = SCHEDULES["constant"](0.1, STEPS)
    assert [float(schedule(count)) for count in (0, 7, STEPS, 10 * STEPS)] == [0.1] * 4


def test_a_users_own_optimizer_takes_part():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    params, _ = optimizer_step(optimizer, _params(), optimizer.init(_params()), _params())
    assert _loss(params) < _loss(_params())


def test_names_out_of_range_are_refused_with_the_list_of_names():
    with pytest.raises(InputError, match="optimizer to be one of adam, rmsprop, sgd, got 'lbfgs'"):
        _config(name="lbfgs")
    with pytest.raises(
        InputError, match="schedule to be one of constant, cosine, linear, got 'step'"
    ):
        _config(schedule="step")


@every_schedule
def test_a_run_without_steps_is_refused(schedule):
    with pytest.raises(InputError, match="expected steps >= 1, got 0"):
        make_optimizer(_config(schedule=schedule), 0)
