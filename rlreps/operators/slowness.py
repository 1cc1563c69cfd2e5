"""How fast features change from a state to the next: slow feature analysis as an operator."""

import jax.numpy as jnp
from jax import Array

from rlreps.errors import require
from rlreps.operators.base import Operator, Sample


def slowness() -> Operator:
    """The operator of the quadratic form E[(u(s_t) − u(s_{t+1}))²].

    In the measure of both ends together, whose second moment is ½E[u(s_t)² + u(s_{t+1})²], it is
    (Ku)(s) = 2(u(s) − E[u at the other end of a step from or to s]). Its eigenvalues lie in [0, 4]:
    0 for a constant, 1 − λ/2 is the correlation of an eigenfunction with itself a step later.

    Returns:
        The operator, for batches whose rows are pairs one half apart: rows i and i + b/2 are
        consecutive states. It raises an ``InputError`` for an odd number of rows.
    """

    def apply(sample: Sample) -> Array:
        features = sample.features
        rows = len(features)
        require(rows % 2 == 0, "an even number of rows, pairs of consecutive states", rows)
        other_end = jnp.roll(features, rows // 2, axis=0)
        return 2.0 * (features - other_end)

    return Operator(apply)
