"""Successor features of a next-frame predictor's code.

Source: Machado et al. (2018), "Eigenoption discovery through the deep successor representation".
Two details follow how others have read their Fig. 2: the widths of the layers, and that the
predictor multiplies the code by a linear map of the action.
"""

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, size, static
from rlreps.encoders import MLP, Convolutional, Encoder, Layer, Params, dense, init_layers
from rlreps.losses import Encode, Metrics, Objective
from rlreps.operators import points_of

_KERNEL = 6
"""Side of the kernels of the code and the predictor."""


@configurable
@dataclasses.dataclass(frozen=True)
class SuccessorNetwork(Encoder):
    """The next-frame predictor and the successor features of its code φ, φ(s) = ``apply``.

    Attributes:
        code: The encoder of φ, with 6 x 6 kernels and an unpadded first convolution. Transposed
            convolutions make square frames of a side of 4 + a multiple of 2^(number of layers).
        num_actions: A.
    """

    code: Convolutional = size(Convolutional())
    num_actions: int = size(1)

    def init(self, key: Array) -> Params:
        keys = jax.random.split(key, 3)
        width, maps = self.code.num_features, self.code.channels[::-1]
        shapes: list[tuple[int, ...]] = [(self.num_actions, width), (width, self.code.hidden)]
        shapes.append((self.code.hidden, self._side**2 * maps[0]))
        shapes += [(3, 3, before, 4 * after) for before, after in itertools.pairwise((*maps, 1))]
        decoder = init_layers(keys[1], shapes)
        for layer in decoder[3:]:
            layer["bias"] = layer["bias"][::4]
        estimator = self._estimator.init(keys[2])
        return {"code": self.code.init(keys[0]), "decoder": decoder, "successor": estimator}

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.code.apply(params["code"], inputs)

    def successor(self, params: Params, code: Array) -> Array:
        """Compute successor features ψ of a code, [b, d] → [b, d]."""
        return self._estimator.apply(params["successor"], jax.nn.relu(code))

    def predict(self, params: Params, code: Array, actions: Array) -> Array:
        """Predict the next frame [b, height, width] from a code [b, d] and actions [b, A]."""
        action, mix, widen, *convolutions, last = params["decoder"]
        values = dense(mix, code * dense(action, actions))
        maps = jax.nn.relu(dense(widen, values)).reshape(len(code), self._side, self._side, -1)
        for layer in convolutions:
            maps = jax.nn.relu(enlarge(layer, maps, crop=2))
        return enlarge(last, maps, crop=0)[..., 0]

    @property
    def _side(self) -> int:
        """Height and width of the smallest maps."""
        side: int = (self.code.frame_shape[0] - _KERNEL + 2) // 2 ** len(self.code.channels)
        return side

    @property
    def _estimator(self) -> MLP:
        width = self.code.num_features
        return MLP(width, num_inputs=width, hidden=(self.code.hidden,))


def enlarge(layer: Layer, maps: Array, *, crop: int) -> Array:
    """Apply a transposed convolution of stride 2 to maps [b, n, n, c].

    A 6 x 6 kernel of stride 2 is a 3 x 3 kernel of stride 1 that makes blocks of 2 x 2 pixels.

    Args:
        layer: ``kernel`` [3, 3, c, 4 o], the pixels of a block row by row, and ``bias`` [o].
        maps: The maps.
        crop: Pixels cut off each border.

    Returns:
        [b, m, m, o] with m = 2 n + 4 - 2 crop.
    """
    kernel, bias = layer["kernel"], layer["bias"]
    count, side = len(maps), maps.shape[1] + 2
    blocks = jnp.zeros((count, side, side, kernel.shape[-1]), maps.dtype)
    for row, column in itertools.product(range(3), repeat=2):
        borders = ((0, 0), (row, 2 - row), (column, 2 - column), (0, 0))
        blocks += jnp.pad(maps @ kernel[row, column], borders)
    pixels = blocks.reshape(count, side, side, 2, 2, len(bias)).transpose(0, 1, 3, 2, 4, 5)
    pixels = pixels.reshape(count, 2 * side, 2 * side, len(bias)) + bias[None, None, None, :]
    cropped: Array = pixels[:, crop : 2 * side - crop, crop : 2 * side - crop]
    return cropped


class TargetState(NamedTuple):
    """A copy of the network's parameters, and the updates made, [] (int32)."""

    params: Params
    updates: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorDifferences(Objective):
    """Next-frame prediction, and successor features by temporal differences.

    (ζ(φ(s), a) − s')² + (φ⁻(s) + γ ψ⁻(φ⁻(s')) − ψ(φ(s)))² of Machado et al. (2018), Section 3.3, as
    means over pixels and features. The paper names neither sums nor means. The choice hardly
    matters: the two terms train separate parameters, and RMSProp normalises every gradient.

    Rows are pairs of consecutive stacks of frames.

    Attributes:
        network: ζ, φ and ψ.
        discount: γ.
        target_every: Updates between copies of the parameters into φ⁻ and ψ⁻.
    """

    network: SuccessorNetwork = size(SuccessorNetwork())
    discount: float = static(0.99)
    target_every: int = 1

    @property
    def needs_clips(self) -> bool:
        return True

    def init(self, key: Array) -> TargetState:
        """Return zeros, which the first update replaces."""
        shapes = _estimated(jax.eval_shape(self.network.init, key))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return TargetState(zeros, jnp.zeros((), jnp.int32))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: TargetState, key: Array
    ) -> tuple[Array, tuple[TargetState, Metrics]]:
        del key  # Deterministic given the batch.
        network = self.network
        due = state.updates % self.target_every == 0
        target = jax.tree.map(
            lambda new, old: jnp.where(due, new, old), _estimated(params), state.params
        )
        # The target is held constant, as in every semi-gradient method.
        target = lax.stop_gradient(target)
        now, after = batch.pair
        code = encode(params, now)
        predicted = network.predict(params, code, batch.targets)
        fixed_now, fixed_after = jnp.split(encode(target, points_of(batch.inputs)), 2)
        aim = fixed_now + self.discount * network.successor(target, fixed_after)
        # Successor features do not train the code that they describe.
        difference = aim - network.successor(params, lax.stop_gradient(code))
        loss = jnp.mean(jnp.square(predicted - after[..., -1])) + jnp.mean(jnp.square(difference))
        return loss, (TargetState(target, state.updates + 1), {})

    def errors(self, params: Params, batch: Batch) -> dict[str, Array]:
        """Compute squared errors divided by the variance of their targets, [] each.

        Returns:
            ``next_frame`` and ``temporal_difference``, whose target uses the current parameters.
        """
        network, (now, after) = self.network, batch.pair
        codes = network.apply(params, now)
        predicted = network.predict(params, codes, batch.targets)
        aim = codes + self.discount * network.successor(params, network.apply(params, after))
        return {
            "next_frame": _unexplained(predicted, after[..., -1]),
            "temporal_difference": _unexplained(network.successor(params, codes), aim),
        }


def _unexplained(predicted: Array, wanted: Array) -> Array:
    """Compute the mean squared error divided by the variance of the target [b, ...], []."""
    variance = jnp.mean(jnp.square(wanted - wanted.mean(axis=0, keepdims=True)))
    # If the network is zero everywhere, its target has no variance.
    return jnp.mean(jnp.square(predicted - wanted)) / jnp.maximum(variance, 1e-12)


def _estimated(params: Params) -> Params:
    """Select the parameters of φ and ψ."""
    return {name: params[name] for name in ("code", "successor")}
