"""What a symmetric linear operator is to the library: its action on features at sampled points.

An operator K acts on functions u of the inputs. Everything that spectral inference needs of it is
(Ku)(x) at the points of a batch, exactly or as an unbiased estimate. Operators add and scale:
``-1.0 * laplacian() + diagonal(potential)`` is a Hamiltonian.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from jax import Array

from rlreps.errors import require


class Sample(NamedTuple):
    """Functions u = (u_1, …, u_d) and the points at which an operator's action is wanted.

    Attributes:
        function: Inputs [m, ...] → u [m, d], at any inputs, each row on its own.
        inputs: The points, [b, ...].
        targets: Entries of a states x tasks matrix that came with them, [b, t]; t may be 0.
        features: u at the points, [b, d].
        weights: Density of the measure over the density of the sampling, up to a common factor,
            [b].
    """

    function: Callable[[Array], Array]
    inputs: Array
    targets: Array
    features: Array
    weights: Array


@dataclasses.dataclass(frozen=True)
class Operator:
    """A linear operator, symmetric in the measure that the points are drawn from.

    Attributes:
        apply: Sample → (Ku)(x) at its points, [b, d].
    """

    apply: Callable[[Sample], Array]

    def __add__(self, other: "Operator") -> "Operator":
        return Operator(lambda sample: self.apply(sample) + other.apply(sample))

    def __mul__(self, factor: float) -> "Operator":
        require(math.isfinite(factor), "a finite factor of an operator", factor)
        return Operator(lambda sample: factor * self.apply(sample))

    def __rmul__(self, factor: float) -> "Operator":
        return self * factor

    def __neg__(self) -> "Operator":
        return self * -1.0

    def __sub__(self, other: "Operator") -> "Operator":
        return self + -other
