"""Dense layers of the networks of this package, and their activations by name."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.errors import require_choice

Layer = dict[str, Array]
"""``kernel`` [..., in, out] and ``bias`` [out]."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(jax.nn, name)
    for name in ("elu", "gelu", "identity", "relu", "silu", "softplus", "tanh")
}
"""Name → activation. Smooth ones (not ``relu`` and ``elu``) can be differentiated twice."""


def require_activation(name: str) -> None:
    """Raise an ``InputError`` unless an activation has this name."""
    require_choice("activation", name, list(ACTIVATIONS))


def init_layers(key: Array, kernels: Sequence[tuple[int, ...]]) -> list[Layer]:
    """Draw LeCun-normal kernels of these shapes [..., in, out], with biases of zero.

    Parameters have JAX's default floating type.
    """
    dtype = jnp.result_type(float)
    draw = jax.nn.initializers.lecun_normal()
    return [
        {
            # The keys that Flax NNX draws from: one for the kernel, then one for the bias.
            "kernel": draw(jax.random.fold_in(key, 2 * index), shape, dtype),
            "bias": jnp.zeros(shape[-1:], dtype),
        }
        for index, shape in enumerate(kernels)
    ]


def dense(layer: Layer, inputs: Array) -> Array:
    """Apply a layer to inputs [b, in], giving [b, out]."""
    return inputs @ layer["kernel"] + layer["bias"][None]
