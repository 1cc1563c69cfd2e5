"""The convolutional network against convolutions by loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import convolutional
from rlreps.errors import InputError


def convolved(image, kernel, bias):
    """A 3 x 3 convolution of stride 2 with ReLU, padded to half the size, rounded up."""
    sizes = image.shape[:2]
    halves = [(size + 1) // 2 for size in sizes]
    missing = [max(2 * (half - 1) + 3 - size, 0) for half, size in zip(halves, sizes, strict=True)]
    padding = [(rest // 2, rest - rest // 2) for rest in missing]
    padded = np.pad(image, (*padding, (0, 0)))
    out = np.zeros((*halves, kernel.shape[-1]))
    for row in range(halves[0]):
        for column in range(halves[1]):
            patch = padded[2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            out[row, column] = np.tensordot(patch, kernel, axes=3) + bias
    return np.maximum(out, 0.0)


def test_features_are_those_of_convolutions_a_hidden_layer_and_a_read_out():
    encoder = convolutional((7, 10, 2), 3, channels=(4, 5), hidden=6)
    params = jax.tree.map(np.asarray, encoder.init(jax.random.key(0)))
    frames = np.random.default_rng(0).random((2, 7, 10, 2)).astype(np.float32)
    expected = []
    for frame in frames:
        values = frame
        for index in range(2):
            layer = params["convolutions"][index]
            values = convolved(values, layer["kernel"], layer["bias"])
        hidden = np.maximum(
            values.reshape(-1) @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0.0
        )
        expected.append(hidden @ params["read_out"]["kernel"] + params["read_out"]["bias"])
    assert values.shape == (2, 3, 5)
    np.testing.assert_allclose(
        encoder.apply(params, jnp.asarray(frames)), np.stack(expected), atol=1e-5
    )


@pytest.mark.parametrize("shape", [(2, 7, 10), (2, 10, 7, 2), (2, 7, 10, 1), (1, 2, 7, 10, 2)])
def test_frames_of_another_shape_are_refused(shape):
    encoder = convolutional((7, 10, 2), 3, channels=(4,), hidden=6)
    params = encoder.init(jax.random.key(0))
    with pytest.raises(InputError, match=r"expected frames of shape \('b', 7, 10, 2\), got \("):
        encoder.apply(params, jnp.zeros(shape))
    with pytest.raises(InputError, match=r"expected frames of shape \('b', 7, 10, 2\), got \("):
        encoder.hidden(params, jnp.zeros(shape))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: convolutional((8, 8, 1), 0),
            "expected sizes >= 1, got (8, 8, 1, 0, 32, 32, 32, 64)",
        ),
        (
            lambda: convolutional((8, 8, 0), 2, channels=(3,), hidden=4),
            "expected sizes >= 1, got (8, 8, 0, 2, 3, 4)",
        ),
        (
            lambda: convolutional((8, 8), 2),
            "expected a frame shape (height, width, channels), got (8, 8)",
        ),
        (
            lambda: convolutional((8, 8, 1), 2, channels=()),
            "expected at least one convolution, got ()",
        ),
    ],
)
def test_sizes_out_of_range_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value) == message


@pytest.mark.parametrize("shape", [(8, 8, 1), (7, 10, 2), (1, 5, 1), (21, 13, 3)])
def test_products_of_patches_are_the_convolutions_of_flax_with_their_gradients(shape):
    encoder = convolutional(shape, 4, channels=(3,), hidden=5)
    params = encoder.init(jax.random.key(0))
    frames = jax.random.normal(jax.random.key(1), (6, *shape))

    def by_flax(params):
        layer = params["convolutions"][0]
        values = jax.lax.conv_general_dilated(
            frames, layer["kernel"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        flat = jax.nn.relu(values + layer["bias"][None, None, None]).reshape(len(frames), -1)
        hidden = jax.nn.relu(flat @ params["hidden"]["kernel"] + params["hidden"]["bias"][None])
        return hidden @ params["read_out"]["kernel"] + params["read_out"]["bias"][None]

    def slopes(apply):
        return jax.grad(lambda params: jnp.sum(jnp.square(apply(params))))(params)

    found, expected = slopes(lambda params: encoder.apply(params, frames)), slopes(by_flax)
    np.testing.assert_allclose(encoder.apply(params, frames), by_flax(params), atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )
