"""Outputs of random networks, and indicators that they exceed a threshold."""

import dataclasses
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import configurable, interval, size
from rlreps.cumulants.base import affine, along_tasks
from rlreps.errors import require, require_interval
from rlreps.numerics import matmul


class NetworkParams(NamedTuple):
    """A network.

    Attributes:
        hidden: (weights [in, out], biases [out]) of each hidden layer.
        read_out: Weights [in, t] of the last layer. There are no biases: centring would remove
            them.
    """

    hidden: list[tuple[Array, Array]]
    read_out: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomNetwork:
    """Outputs of a random tanh network, linear in the last layer.

    Random-network cumulants as auxiliary tasks: Lyle et al. 2021 (random cumulants), Farebrother et
    al. 2023 (proto-value networks, which threshold the outputs; here they are used directly). The
    functions drawn together share their hidden layers, which every ``init`` draws anew, and have
    separate output weights. Weights are Gaussian of variance 1 / fan-in, hidden biases standard
    Gaussian; K is known only through samples.

    Attributes:
        hidden: Widths of the hidden layers.
        input_scale: Factor of the positions; the functions vary over lengths of about its inverse.
        num_inputs: c, coordinates of a position.

    Raises:
        InputError: If there is no hidden layer or one of the numbers is not positive.
    """

    hidden: tuple[int, ...] = (64, 64)
    input_scale: float = interval("(0, inf)", 10.0)
    num_inputs: int = size(2)

    def __post_init__(self) -> None:
        filled = len(self.hidden) >= 1 and min(self.hidden) >= 1
        require(filled, "at least one hidden layer, widths >= 1", self.hidden)

    def init(self, key: Array, num_tasks: int) -> NetworkParams:
        """Draw a network with ``num_tasks`` outputs."""
        hidden = []
        widths = (self.num_inputs, *self.hidden)
        for depth, (fan_in, width) in enumerate(itertools.pairwise(widths)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, depth))
            biases = jax.random.normal(bias_key, (width,), jnp.float32)
            hidden.append((_weights(weight_key, fan_in, width), biases))
        read_out_key = jax.random.fold_in(key, len(self.hidden))
        return NetworkParams(hidden, _weights(read_out_key, self.hidden[-1], num_tasks))

    def apply(self, params: NetworkParams, positions: Array) -> Array:
        """Evaluate the outputs at positions [..., c], giving [..., t]."""
        values = self.input_scale * positions
        for weights, biases in params.hidden:
            values = jnp.tanh(affine(values, weights, biases))
        return matmul(values, params.read_out)


def _weights(key: Array, fan_in: int, width: int) -> Array:
    """Draw Gaussian weights [fan_in, width] of variance 1 / fan_in."""
    return jax.random.normal(key, (fan_in, width), jnp.float32) / math.sqrt(fan_in)


class IndicatorParams(NamedTuple):
    """Thresholded network outputs.

    Attributes:
        network: The network.
        thresholds: [t].
    """

    network: NetworkParams
    thresholds: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomIndicators(RandomNetwork):
    """Indicators 1{f(x) > f(x0)}, f an output of a random network and x0 a random point.

    Random-network indicator cumulants, after Farebrother et al. 2023 (proto-value networks). The
    threshold of a function is its output at its own random point x0, uniform over [0, 1]^c. So
    tasks are balanced without any data: the share of the unit box where a function is 1 is uniform
    over (0, 1). Since f's output weights w are symmetric, 1{w · (h(x) − h(x0)) > 0} is 1 with
    probability 1/2 at every point x, inside the box or not. Over states far from the box, however,
    a function may be constant, 0 or 1, and centring removes its column.

    Deviations, from memory of the paper, whose text was not available: there, networks are
    convolutional and thresholds are tuned on the agent's data to a share chosen beforehand. Here a
    tanh network takes flat positions (``RandomNetwork``), and thresholds stay as drawn, so that a
    column never changes its meaning, or are set once (``with_thresholds``).
    """

    def init(self, key: Array, num_tasks: int) -> IndicatorParams:  # type: ignore[override]
        """Draw a network with ``num_tasks`` outputs, and a threshold for each."""
        network_key, point_key = jax.random.split(key)
        params = super().init(network_key, num_tasks)
        points = jax.random.uniform(point_key, (num_tasks, self.num_inputs), jnp.float32)
        # Take output k at point k.
        return IndicatorParams(params, jnp.diagonal(super().apply(params, points)))

    def with_thresholds(
        self, params: IndicatorParams, positions: Array, quantile: float
    ) -> IndicatorParams:
        """Return the same network with a quantile of its outputs at positions [n, c] as threshold.

        The threshold lies between two neighbours: where outputs differ, rounding decides nothing.
        """
        require_interval("quantile", quantile, "[0, 1)")
        outputs = np.sort(np.asarray(super().apply(params.network, positions)), axis=0)
        below = int(quantile * (len(outputs) - 1))
        return params._replace(thresholds=jnp.asarray((outputs[below] + outputs[below + 1]) / 2))

    def apply(self, params: IndicatorParams, positions: Array) -> Array:  # type: ignore[override]
        """Return 1 above the threshold and 0 elsewhere, [..., t] at positions [..., c]."""
        values = super().apply(params.network, positions)
        above: Array = values > along_tasks(params.thresholds, positions)
        return above.astype(jnp.float32)
