"""Random cumulant functions r: S → R: tasks without number, for sources that roll out live.

A family is a pair (init, apply): ``init`` draws functions, ``apply`` evaluates them at positions.
With functions drawn independently, the principal subspace of the columns ψ_r = Ψ r is that of
Ψ K Ψᵀ, where K(x, y) = E r(x) r(y) is the family's covariance: a family is a choice of what to
weigh in the successor measure. Positions are points of the unit square unless said otherwise.
"""

import dataclasses
import itertools
import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.validation import require, require_positive


class Cumulants(Protocol):
    """A family of random functions; hashable, as a compiled program is made for one."""

    def init(self, key: Array, num_tasks: int) -> Any:
        """Parameters of ``num_tasks`` functions drawn from the family."""
        ...

    def apply(self, params: Any, positions: Array) -> Array:
        """Values [..., t] (float32) of the functions at positions [..., c]."""
        ...


class DiscParams(NamedTuple):
    """Discs.

    Attributes:
        centres: [t, 2].
        radii: [t].
    """

    centres: Array
    radii: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Discs:
    """Indicators of discs: centres uniform over the unit square, radii uniform over a range.

    A disc may reach out of the square.

    Attributes:
        smallest: Least radius, in sides of the square.
        largest: Greatest radius.

    Raises:
        InputError: Unless 0 < smallest <= largest < infinity.
    """

    smallest: float = 0.05
    largest: float = 0.2

    def __post_init__(self) -> None:
        radii = (self.smallest, self.largest)
        require(
            0.0 < self.smallest <= self.largest < math.inf,
            "radii 0 < smallest <= largest < infinity",
            radii,
        )

    def init(self, key: Array, num_tasks: int) -> DiscParams:
        """Draws discs."""
        centre_key, radius_key = jax.random.split(key)
        centres = jax.random.uniform(centre_key, (num_tasks, 2), jnp.float32)
        radii = jax.random.uniform(
            radius_key, (num_tasks,), jnp.float32, self.smallest, self.largest
        )
        return DiscParams(centres, radii)

    def apply(self, params: DiscParams, positions: Array) -> Array:
        """1 inside a disc or on its edge, 0 outside: [..., t] at positions [..., 2]."""
        leading = tuple(range(positions.ndim - 1))
        # Axis by axis, so that no [..., t, 2] array is made.
        squared_distances = sum(
            jnp.square(
                positions[..., axis, None] - jnp.expand_dims(params.centres[:, axis], leading)
            )
            for axis in range(2)
        )
        inside: Array = squared_distances <= jnp.expand_dims(jnp.square(params.radii), leading)
        return inside.astype(jnp.float32)


class FourierParams(NamedTuple):
    """Cosine waves.

    Attributes:
        frequencies: ω, [c, t], in radians per unit of the positions.
        phases: b, [t], in radians.
    """

    frequencies: Array
    phases: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFourier:
    """√2 cos(ωᵀx + b), ω Gaussian of variance 1/l² an axis, b uniform over a turn.

    Random Fourier features (Rahimi & Recht 2007, Algorithm 1) of the RBF kernel:
    E r(x) r(y) = exp(-‖x - y‖² / 2l²).

    Attributes:
        length_scale: l, in units of the positions.
        num_dimensions: c, coordinates of a position.

    Raises:
        InputError: If one of them is not positive.
    """

    length_scale: float = 0.1
    num_dimensions: int = 2

    def __post_init__(self) -> None:
        require(0.0 < self.length_scale < math.inf, "a length_scale > 0", self.length_scale)
        require_positive("num_dimensions", self.num_dimensions)

    def init(self, key: Array, num_tasks: int) -> FourierParams:
        """Draws waves."""
        frequency_key, phase_key = jax.random.split(key)
        normal = jax.random.normal(frequency_key, (self.num_dimensions, num_tasks), jnp.float32)
        phases = jax.random.uniform(phase_key, (num_tasks,), jnp.float32, 0.0, 2.0 * math.pi)
        return FourierParams(normal / self.length_scale, phases)

    def apply(self, params: FourierParams, positions: Array) -> Array:
        """Values [..., t] at positions [..., c]."""
        angles = _affine(positions, params.frequencies, params.phases)
        return math.sqrt(2.0) * jnp.cos(angles)


class NetworkParams(NamedTuple):
    """A network.

    Attributes:
        hidden: (weights [in, out], biases [out]) of each hidden layer.
        read_out: Weights [in, t] of the last; a bias would be a constant, which centring removes.
    """

    hidden: list[tuple[Array, Array]]
    read_out: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomNetwork:
    """Outputs of a random tanh network, linear in the last layer.

    Random-network cumulants as auxiliary tasks: Lyle et al. 2021 (random cumulants), Farebrother et
    al. 2023 (proto-value networks, which threshold the outputs; here they are used as they are).
    The functions drawn together share their hidden layers, which are drawn anew with every
    ``init``, and have read-outs of their own. Weights are Gaussian of variance 1 / fan-in, hidden
    biases standard Gaussian; K is known only through samples.

    Attributes:
        hidden: Widths of the hidden layers.
        input_scale: What positions are multiplied by first: the functions vary over about its
            inverse.
        num_dimensions: c, coordinates of a position.

    Raises:
        InputError: If there is no hidden layer or one of the numbers is not positive.
    """

    hidden: tuple[int, ...] = (64, 64)
    input_scale: float = 10.0
    num_dimensions: int = 2

    def __post_init__(self) -> None:
        require(
            len(self.hidden) >= 1 and min(self.hidden) >= 1,
            "at least one hidden layer, widths >= 1",
            self.hidden,
        )
        require(0.0 < self.input_scale < math.inf, "an input_scale > 0", self.input_scale)
        require_positive("num_dimensions", self.num_dimensions)

    def init(self, key: Array, num_tasks: int) -> NetworkParams:
        """Draws a network with ``num_tasks`` outputs."""
        hidden = []
        for depth, (fan_in, width) in enumerate(
            itertools.pairwise((self.num_dimensions, *self.hidden))
        ):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, depth))
            biases = jax.random.normal(bias_key, (width,), jnp.float32)
            hidden.append((_weights(weight_key, fan_in, width), biases))
        read_out_key = jax.random.fold_in(key, len(self.hidden))
        return NetworkParams(hidden, _weights(read_out_key, self.hidden[-1], num_tasks))

    def apply(self, params: NetworkParams, positions: Array) -> Array:
        """Values [..., t] at positions [..., c]."""
        values = self.input_scale * positions
        for weights, biases in params.hidden:
            values = jnp.tanh(_affine(values, weights, biases))
        return _product(values, params.read_out)


def _weights(key: Array, fan_in: int, width: int) -> Array:
    """Gaussian weights [fan_in, width] of variance 1 / fan_in."""
    return jax.random.normal(key, (fan_in, width), jnp.float32) / math.sqrt(fan_in)


def cumulant_matrix(cumulants: Cumulants, key: Array, centres: np.ndarray, num_tasks: int) -> Array:
    """Functions of a family at the cells' centres, as columns: R, [n, num_tasks] (float32).

    For a successor measure over the cells, Ψ R holds ``num_tasks`` columns of the matrix that a
    live source draws from, r taken as constant over a cell: what an encoder that was trained live
    is measured against, with Ψ centred for the principal subspace of the centred matrix. Sampling
    tells its singular vectors from those of Ψ K Ψᵀ by a distance that falls as 1 / num_tasks.

    Args:
        cumulants: The family.
        key: Random key.
        centres: Positions of the cells' centres, [n, c].
        num_tasks: Functions to draw.

    Returns:
        R.
    """
    return cumulants.apply(cumulants.init(key, num_tasks), jnp.asarray(centres, jnp.float32))


def _affine(inputs: Array, weights: Array, biases: Array) -> Array:
    """Inputs [..., c] times weights [c, t], plus biases [t]."""
    return _product(inputs, weights) + jnp.expand_dims(biases, tuple(range(inputs.ndim - 1)))


def _product(inputs: Array, weights: Array) -> Array:
    """Inputs [..., c] times weights [c, t]."""
    # An accelerator's default product would be off by a thousandth of an angle of many turns.
    product: Array = jnp.matmul(inputs, weights, precision=lax.Precision.HIGHEST)
    return product
