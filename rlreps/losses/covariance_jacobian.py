"""∂Σ/∂θ as spectral inference needs it: for every pair j ≤ k of features, E[u_j ∂u_k/∂θ].

It is as large as the encoder's parameters times the pairs, and is kept as a moving average.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.errors import require, require_positive
from rlreps.losses.base import Params

Jacobian: TypeAlias = Any
"""Parameters with a leading axis: over pairs j ≤ k, or over j where parameters are separate."""


@dataclasses.dataclass(frozen=True)
class CovarianceJacobian:
    """How the Jacobian is computed and contracted.

    A backward pass is linear in what is pulled back, so E[u_j ∂u_k/∂θ] is the pullback of u_j in
    the k-th feature. Where features share no parameters, u_j is pulled back in all features k ≥ j
    at once: d passes do for d(d+1)/2 pairs.

    Attributes:
        num_features: d.
        separate: Whether every leaf of the parameters is [d, ...], slice k for feature k alone.
        rows_at_once: Backward passes made together; None makes all together.
    """

    num_features: int
    separate: bool = False
    rows_at_once: int | None = None

    def __post_init__(self) -> None:
        require_positive("num_features", self.num_features)
        if self.rows_at_once is not None:
            require_positive("jacobian_rows_at_once", self.rows_at_once)

    @property
    def num_passes(self) -> int:
        """Backward passes of one Jacobian."""
        return len(self._firsts)

    @property
    def _firsts(self) -> np.ndarray:
        """Which feature u_j each pass weighs by, [passes]."""
        if self.separate:
            return np.arange(self.num_features)
        return np.triu_indices(self.num_features)[0]

    @property
    def _moves(self) -> np.ndarray:
        """Which features k move in each pass, [passes, d] (bool)."""
        if self.separate:
            return np.triu(np.ones((self.num_features, self.num_features), bool))
        seconds = np.triu_indices(self.num_features)[1]
        return np.asarray(seconds[:, None] == np.arange(self.num_features))

    def check(self, parameters: Params) -> None:
        """Raises an ``InputError`` unless separate parameters have a leading axis of d."""
        shapes = [leaf.shape for leaf in jax.tree.leaves(parameters)]
        fits = not self.separate or all(shape and shape[0] == self.num_features for shape in shapes)
        expected = f"parameters of {self.num_features} separate features, leaves [d, ...]"
        require(fits, expected, shapes)

    def zeros(self, parameters: Params) -> Jacobian:
        """An empty moving average, for parameters or their shapes."""
        return jax.tree.map(
            lambda leaf: jnp.zeros((self.num_passes, *leaf.shape), leaf.dtype), parameters
        )

    def check_average(self, average: Jacobian, parameters: Params) -> None:
        """Raises an ``InputError`` unless an average is of an encoder's own parameters."""
        shapes, expected = (
            jax.tree.map(lambda leaf: leaf.shape, tree)
            for tree in (average, jax.eval_shape(self.zeros, parameters))
        )
        require(shapes == expected, f"an encoder with averages of shapes {expected}", shapes)

    def of_batch(
        self, encode: Callable[[Params], Array], params: Params, values: Array, shares: Array
    ) -> Jacobian:
        """The Jacobian's mean over a batch.

        Args:
            encode: Parameters → features [b, d].
            params: θ.
            values: u, [b, d].
            shares: Each row's weight over the batch size, [b, 1].

        Returns:
            Leaves [passes, ...].
        """
        _, pull_back = jax.vjp(encode, params)
        weighted = values * shares

        def one_pass(which: tuple[Array, Array]) -> Params:
            first, moves = which
            column = jnp.take(weighted, first, axis=1)
            return pull_back(column[:, None] * moves[None, :])[0]

        which = (jnp.asarray(self._firsts), jnp.asarray(self._moves, values.dtype))
        if self.rows_at_once is None:
            return jax.vmap(one_pass)(which)
        return lax.map(one_pass, which, batch_size=self.rows_at_once)

    def contract(self, jacobian: Jacobian, coefficients: Array) -> Params:
        """Σ_{j≤k} c_jk E[u_j ∂u_k/∂θ].

        Args:
            jacobian: Leaves [passes, ...].
            coefficients: c, [d, d]; below the diagonal without effect.

        Returns:
            The parameters' pytree.
        """
        if self.separate:
            upper = jnp.triu(coefficients)
            return jax.tree.map(
                lambda leaf: jnp.einsum(
                    "jk,jk...->k...", upper, leaf, precision=lax.Precision.HIGHEST
                ),
                jacobian,
            )
        pairs = coefficients[np.triu_indices(self.num_features)]
        return jax.tree.map(
            lambda leaf: jnp.tensordot(pairs, leaf, axes=1, precision=lax.Precision.HIGHEST),
            jacobian,
        )
