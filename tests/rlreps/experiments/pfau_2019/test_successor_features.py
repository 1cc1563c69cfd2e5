"""Successor features of frames: transposed convolutions, and what their losses move."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rlreps.encoders import Convolutional
from rlreps.experiments.pfau_2019.successor_features import (
    SuccessorDifferences,
    SuccessorNetwork,
    enlarge,
)
from rlreps.losses import Batch, Clip


@pytest.mark.parametrize(("side", "crop"), [(5, 0), (4, 2)])
def test_layers_of_the_predictor_are_transposed_convolutions(side, crop):
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(6, 6, 2, 3)), rng.normal(size=2)
    maps = jnp.asarray(rng.normal(size=(2, side, side, 3)), jnp.float32)
    large = 2 * side + 4 - 2 * crop

    def convolve(images):
        return lax.conv_general_dilated(
            images,
            jnp.asarray(kernel, jnp.float32),
            (2, 2),
            [(crop, crop)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    image = jax.ShapeDtypeStruct((2, large, large, 2), jnp.float32)
    (expected,) = jax.linear_transpose(convolve, image)(maps)
    # Each 2 x 2 block of the kernel: input of the transpose first, pixels of the block next.
    blocks = kernel.reshape(3, 2, 3, 2, 2, 3).transpose(0, 2, 5, 1, 3, 4).reshape(3, 3, 3, 8)
    layer = {"kernel": jnp.asarray(blocks, jnp.float32), "bias": jnp.asarray(bias, jnp.float32)}
    found = enlarge(layer, maps, crop=crop)
    np.testing.assert_allclose(found, np.asarray(expected) + bias, atol=1e-4)


SMALL = SuccessorNetwork(
    Convolutional(3, frame_shape=(12, 12, 2), channels=(4,), hidden=8, kernel_size=6, unpadded=1),
    num_actions=2,
)


@pytest.mark.integration
def test_differences_aim_at_a_copy_that_is_renewed_and_never_move_the_code():
    objective = SuccessorDifferences(3, network=SMALL, discount=0.9, target_every=2)
    params, old = (SMALL.init(jax.random.key(seed)) for seed in (0, 1))
    inputs = jax.random.normal(jax.random.key(2), (8, 12, 12, 2))
    batch = Batch(Clip(tuple(jnp.split(inputs, 2))), jnp.tile(jnp.eye(2), (2, 1)))

    def gradient(params, state):
        return jax.grad(objective.loss, has_aux=True)(params, SMALL.apply, batch, state, None)

    @jax.jit
    def expected(params, target):
        now, after = jnp.split(inputs, 2)
        code = SMALL.apply(params, now)
        predicted = SMALL.predict(params, code, batch.targets)
        psi = SMALL.successor(params, code)
        next_psi = SMALL.successor(target, SMALL.apply(target, after))
        aim = SMALL.apply(target, now) + 0.9 * next_psi
        prediction = jnp.mean((predicted - after[..., -1]) ** 2)
        return prediction, jnp.mean((aim - psi) ** 2), aim

    # Errors aim at the parameters themselves, in units of the variance of what is aimed at.
    frames, differences, aim = expected(params, params)
    errors, frame = jax.jit(objective.errors)(params, batch), inputs[4:, ..., -1]
    np.testing.assert_allclose(errors["next_frame"], frames / frame.var(axis=0).mean(), rtol=1e-4)
    scaled = differences / aim.var(axis=0).mean()
    np.testing.assert_allclose(errors["temporal_difference"], scaled, rtol=1e-4)
    start = objective.init(jax.random.key(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(start.params))
    found, (state, _) = jax.jit(gradient)(params, start)
    # The first update aims at the parameters themselves.
    kept = {name: params[name] for name in ("code", "successor")}
    jax.tree.map(np.testing.assert_array_equal, state.params, kept)
    fixed = jax.lax.stop_gradient(params)
    prediction = jax.grad(lambda p: expected(p, fixed)[0])(params)
    difference = jax.grad(lambda p: expected(p, fixed)[1])(params)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(difference["code"]))
    close = functools.partial(np.testing.assert_allclose, atol=1e-6)
    for name in ("code", "decoder"):
        jax.tree.map(close, found[name], prediction[name])
    jax.tree.map(close, found["successor"], difference["successor"])
    # The second aims at the same copy, whatever the parameters; the third at a new one.
    found, (state, _) = jax.jit(gradient)(old, state)
    jax.tree.map(np.testing.assert_array_equal, state.params, kept)
    difference = jax.grad(lambda p: expected(p, fixed)[1])(old)
    jax.tree.map(close, found["successor"], difference["successor"])
    _, (state, _) = jax.jit(gradient)(old, state)
    jax.tree.map(np.testing.assert_array_equal, state.params["code"], old["code"])
