"""Exact optima of objectives on a known chain: functions of its states, in double precision.

States are drawn uniformly; this distribution p need not be stationary under P. With a discount γ,
the pairs (s, s⁺) follow the normalised successor measure M = (1 − γ) Σ_{k≥0} γᵏ P^{k+1}; with
γ = 0, they are single steps. The distribution of s⁺ is p⁺ = Mᵀp; the distribution of the next state
is p' = Pᵀp.

Compare an objective with its **own** truth, since truths differ. The singular functions of Ψ weigh
columns equally, and those of the density ratio M̃ = M / p⁺ weigh columns by p⁺. The walk takes each
pair in either order. The logarithm of M̃ has another rank than M̃. Temporal differences end at a
fixed point, not at a minimum. If P is symmetric, all truths but the logarithm's have the same
functions with positive eigenvalues.
"""

import dataclasses
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array

from rlreps.errors import require
from rlreps.subspace import fix_signs, subspace_distance
from rlreps.typing import DoubleArray

_EQUAL = 1e-9
"""Relative difference below which two eigenvalues, such as a complex pair, have equal size."""


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """Functions of the states, orthonormal in a measure of them.

    Attributes:
        functions: Functions in order of falling values, [n, k].
        values: Singular values or eigenvalues, [k].
        measure: Measure of the states, sums to 1, [n].
        constants_free: Whether a learned feature may contain any constant; constants are then
            removed before the comparison.
    """

    functions: DoubleArray
    values: DoubleArray
    measure: DoubleArray
    constants_free: bool = False

    def first(self, count: int) -> "Truth":
        """Return the truth of the first functions alone."""
        functions, values = self.functions[:, :count], self.values[:count]
        return dataclasses.replace(self, functions=functions, values=values)

    def behind_constant(self) -> "Truth":
        """Drop the first function, a constant, and let learned features contain any constant."""
        functions, values = self.functions[:, 1:], self.values[1:]
        return Truth(functions, values, self.measure, constants_free=True)

    def whitened(self, features: Array) -> tuple[Array, Array]:
        """Return features [n, d] and functions [n, k] times the root of the measure.

        The functions' columns are then orthonormal, in the dtype of the features.
        """
        measure = jnp.asarray(self.measure, features.dtype)[:, None]
        if self.constants_free:
            features = features - jnp.sum(measure * features, axis=0, keepdims=True)
        root, functions = jnp.sqrt(measure), jnp.asarray(self.functions, features.dtype)
        return root * features, root * functions

    def distance(self, features: Array) -> Array:
        """Compute the subspace distance of features [n, d] in the measure, []."""
        return subspace_distance(*self.whitened(features))

    def cosines(self, features: Array) -> Array:
        """Compute the |cosine| of the k-th feature with the k-th function in the measure, [k]."""
        columns, basis = self.whitened(features)
        columns = columns[:, : basis.shape[1]]
        lengths = jnp.linalg.norm(columns, axis=0)
        products: Array = jnp.abs(jnp.sum(columns * basis, axis=0))
        return products / jnp.where(lengths > 0.0, lengths, 1.0)


jax.tree_util.register_dataclass(
    Truth,
    data_fields=["functions", "values", "measure"],
    meta_fields=["constants_free"],
)


@dataclasses.dataclass(frozen=True, eq=False)
class ChainTruths:
    """A chain of n states, and the optima of objectives on it.

    Attributes:
        transition: P, [n, n]; rows sum to 1 up to rounding.
        discount: γ, in [0, 1).

    Raises:
        InputError: If some state is never reached, so that p⁺ says nothing about it.
    """

    transition: DoubleArray
    discount: float = 0.95

    def __post_init__(self) -> None:
        chain = np.asarray(self.transition, np.float64)
        object.__setattr__(self, "transition", chain / chain.sum(axis=1, keepdims=True))
        never = np.count_nonzero(self.reached <= 0.0)
        require(never == 0, "a chain that enters every state", f"{never} never entered")

    @property
    def start(self) -> DoubleArray:
        """The distribution p, [n]."""
        return np.full(len(self.transition), 1.0 / len(self.transition))

    @cached_property
    def successor(self) -> DoubleArray:
        """The normalised successor measure M, [n, n]; rows sum to 1."""
        kernel = np.eye(len(self.transition)) - self.discount * self.transition
        measure = np.linalg.solve(kernel, (1.0 - self.discount) * self.transition)
        return np.asarray(measure, np.float64)

    @cached_property
    def reached(self) -> DoubleArray:
        """The distribution p⁺ = Mᵀp, [n]."""
        return self.successor.T @ self.start

    def successor_measure(self) -> Truth:
        """Compute the left singular functions of Ψ = M / (1 − γ), centred, columns weighed equally.

        Each column's mean over states is subtracted.
        """
        matrix = self.successor / (1.0 - self.discount)
        return self._left_singular(matrix - self.start @ matrix, np.ones(len(matrix)))

    def density_ratio(self) -> Truth:
        """Compute the left singular functions of M̃ in L2(p x p⁺); the first is the constant."""
        return self._left_singular(self.successor / self.reached, self.reached)

    def log_density_ratio(self) -> Truth:
        """Compute the left singular functions of log M̃(s, t) + c(s) in L2(p x p⁺).

        c is arbitrary. Here c(s) is minus the mean of row s in p⁺, which minimises the norm.
        Contrastive objectives find these functions if the rank of the logarithm is at most the
        number of features. With fewer features, the functions minimise the squared error, whereas
        contrastive objectives minimise the cross-entropy.

        Raises:
            InputError: If some state cannot follow another: the logarithm is not defined there.
        """
        least = float(self.successor.min())
        require(least > 0.0, "a chain in which every state may follow every other", f"{least:g}")
        logarithm = np.log(self.successor / self.reached)
        return self._left_singular(logarithm - logarithm @ self.reached[:, None], self.reached)

    def walk(self) -> Truth:
        """Compute the eigenfunctions of the walk (pairs in either order), by falling λ.

        They are orthonormal in μ = (p + p⁺) / 2; the first is the constant with λ = 1.
        """
        joint = self.start[:, None] * self.successor
        measure = (self.start + self.reached) / 2.0
        root = np.sqrt(measure)
        values, vectors = np.linalg.eigh((joint + joint.T) / (2.0 * np.outer(root, root)))
        functions = fix_signs(vectors[:, ::-1] / root[:, None])
        return Truth(np.asarray(functions), values[::-1], measure)

    def largest_of_walk(self) -> Truth:
        """Compute the eigenfunctions of ``walk`` by falling |λ|."""
        walk = self.walk()
        order = np.argsort(-np.abs(walk.values), kind="stable")
        return dataclasses.replace(
            walk, functions=walk.functions[:, order], values=walk.values[order]
        )

    def temporal_differences(self, count: int, cumulants: DoubleArray | None = None) -> Truth:
        """Compute the fixed point of tabular low-rank temporal differences: ``count`` functions.

        Both semi-gradients of ``TDLowRank`` vanish if f spans an invariant subspace of M P*, with
        P*(s, t) = p(t) P(t, s) / p'(s) the chain in reversed time. Those of ``CumulantDifferences``
        vanish if φ spans an invariant subspace of M K Pᵀ D, with K = Σ c cᵀ and D the diagonal of
        p. ``TDLowRank`` is the case K = diag(1 / p'). Training converges to the leading subspace. p
        need not be stationary. The truth is the span of the functions; their order has no meaning.

        Args:
            count: d.
            cumulants: Values of cumulants at the states, [n, t]; None for ``TDLowRank``.

        Raises:
            InputError: If d separates eigenvalues of equal size, such as a complex pair: there is
                then no fixed point.
        """
        backwards = self.transition.T * self.start
        if cumulants is None:
            following = backwards / (self.transition.T @ self.start)[:, None]
        else:
            given = np.asarray(cumulants, np.float64)
            following = given @ (given.T @ backwards)
        root = np.sqrt(self.start)
        operator = root[:, None] * (self.successor @ following) / root
        sizes = np.sort(np.abs(scipy.linalg.eigvals(operator)))[::-1]
        parts = count < len(sizes) and sizes[count - 1] - sizes[count] <= _EQUAL * sizes[0]
        require(not parts, f"a gap behind eigenvalue {count}", f"{sizes[count - 1]:.6g} twice")
        least = 0.0
        if count < len(sizes):
            least = float(sizes[count - 1] + sizes[count]) / 2.0
        _, vectors, leading = scipy.linalg.schur(
            operator, sort=lambda real, imaginary: np.hypot(real, imaginary) > least
        )
        require(leading == count, f"{count} leading eigenvalues", leading)
        return Truth(vectors[:, :count] / root[:, None], sizes[:count], self.start)

    def _left_singular(self, matrix: DoubleArray, columns: DoubleArray) -> Truth:
        """Decompose a matrix in L2(p x columns' weights)."""
        root = np.sqrt(self.start)[:, None]
        left, values, _ = np.linalg.svd(root * matrix * np.sqrt(columns))
        return Truth(np.asarray(fix_signs(left / root)), values, self.start)
