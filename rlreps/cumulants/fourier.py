"""Random waves."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.cumulants.products import affine
from rlreps.validation import require, require_positive


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
        angles = affine(positions, params.frequencies, params.phases)
        return math.sqrt(2.0) * jnp.cos(angles)
