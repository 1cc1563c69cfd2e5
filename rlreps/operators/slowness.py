"""The slowness of a Markov chain."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.errors import require
from rlreps.operators.base import Operator, SampledFunctions


@configurable
@dataclasses.dataclass(frozen=True)
class Slowness(Operator):
    """The operator of the quadratic form E[(u(s_t) − u(s_{t+1}))²], for slow feature analysis.

    The measure covers both ends of a step: its second moment is ½E[u(s_t)² + u(s_{t+1})²]. In this
    measure, the operator is (Ku)(s) = 2(u(s) − E[u at the other end of a step from or to s]),
    sampled. For states s_t ~ ξ of a chain P and ν = Pᵀξ it is Σ⁻¹L with the graph Laplacian
    L = D(ξ) + D(ν) − D(ξ)P − PᵀD(ξ) and Σ = D(ξ + ν)/2. Its eigenvalues lie in [0, 4]: 0 for a
    constant; 1 − λ/2 is the correlation of an eigenfunction with itself a step later.

    Inputs are a ``Clip`` of l consecutive states. The quadratic form is the mean over a clip's
    l − 1 steps, and the measure covers its l states. The eigenvalues of a sample can reach
    2(1 + cos(π/l)) l/(l − 1), which is 4 for l = 2.

    Raises:
        InputError: From ``apply``, for single states.
    """

    @property
    def needs_clips(self) -> bool:
        return True

    def apply(self, sample: SampledFunctions) -> Array:
        rows, length = len(sample.features), sample.clip_length
        expected = "rows that are pairs or clips of states (rlreps.sources.pair_source)"
        require(length >= 2, expected, "single states")
        states = sample.features.reshape(length, rows // length, -1)
        steps = jnp.pad(states[1:] - states[:-1], ((1, 1), (0, 0), (0, 0)))
        images = (steps[:-1] - steps[1:]) * (length / (length - 1))
        return images.reshape(rows, -1)
