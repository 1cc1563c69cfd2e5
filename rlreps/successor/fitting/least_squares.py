"""The successor measure by least squares, without a learning rate or steps.

With state-action features ψ(s, a) = φ(s) ⊗ b(a) and features φ(s⁺) of the states reached,

    A = E[ψ(s, a) (ψ(s, a) − γ c ψ̄(s'))ᵀ] + λI,   ψ̄(s') = φ(s') ⊗ E_π[b(a') | s'],
    C = E[ψ(s, a) φ(s')ᵀ],   G = E[φ(s') φ(s')ᵀ] + λI,
    m(s, a, s⁺) ≈ ψ(s, a)ᵀ A⁻¹ C G⁻¹ φ(s⁺),

where c is 0 if s' is terminal and 1 otherwise. For actions of a box, only some of the products in
φ(s) ⊗ b(a) are features (``LeastSquares.sizes``). m is a density with respect to the states that
the data reach. The method is least-squares temporal differences (Bradtke & Barto 1996; Lagoudakis &
Parr 2003), whose cumulants are the features of the states reached. Unit vectors for φ and λ → 0
give the counted model: M = P̂ (I − γ P̂_π)⁻¹.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from scipy.sparse.csgraph import reverse_cuthill_mckee

from rlreps.errors import InputError, usable_memory
from rlreps.numerics import interruptible
from rlreps.successor.fitting.basis import (
    BLOCK,
    ActionBasis,
    Basis,
    FourierBasis,
    UnitVectors,
)

Behaviour: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Observations [m, ...] → E[b(a) | s] of the data's policy, [m, m_b]; probabilities if discrete."""

MOST_RARE = 10_000
"""Rewards that at most this number of transitions have are rare, and count in all of them."""

MOST_UNKNOWNS = 2_400
"""Largest number of unknowns of a solution for continuous actions."""

Solver: TypeAlias = Callable[..., np.ndarray]
"""Map of right-hand sides [q, k] to solutions; sparse systems take ``transposed`` too."""

_DENSE = 4_000
"""Largest number of unknowns of a sparse system whose measure is decomposed as a dense matrix."""

_MOST_FILL = 10**9
"""Estimated bytes of sparse factors beyond which systems are solved iteratively."""

_RESIDUAL = 1e-8
"""Relative residual of iterative solutions."""

_BLOCK_NUMBERS = 2**22
"""Largest number of features in a product, which Ctrl-C cannot interrupt."""


class Rows(NamedTuple):
    """Transitions from which the equations are made.

    Attributes:
        observation: s, [N, ...].
        action: a, [N] or [N, k].
        next_observation: s', [N, ...].
        terminated: Whether s' is terminal, [N].
    """

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    terminated: np.ndarray

    def at(self, chosen: np.ndarray) -> "Rows":
        """Return some of the transitions, by their indices or a mask."""
        return Rows(*(column[chosen] for column in self))


class Factors(NamedTuple):
    """F = √σ u and B = √σ v of rank d as linear maps of the features.

    Attributes:
        forward: F(s, a) = Σ b(a)_c φ(s)ᵀ forward[:, c], [p, m_b, d].
        backward: B(s) = φ(s)ᵀ backward, [p, d].
        singular_values: σ, falling, [d].
    """

    forward: np.ndarray
    backward: np.ndarray
    singular_values: np.ndarray


class LeastSquares:
    """The solved equations of some transitions.

    Attributes:
        basis: φ.
        actions: b.
        rows: The transitions of the equations.
        discount: γ.
        regularisation: λ, relative to the mean square of the features, which is about 1.
        behaviour: E[b(a) | s] of the policy whose measure is solved for.
        recorded: All transitions, from which those of the equations are chosen.
        chosen: The indices of ``rows`` in ``recorded``; None for all.
        advance: Called with the number of rows that a pass over the rows has done.
    """

    def __init__(
        self,
        basis: Basis,
        actions: ActionBasis,
        rows: Rows,
        discount: float,
        regularisation: float,
        behaviour: Behaviour,
        chosen: np.ndarray | None = None,
    ) -> None:
        self.recorded, self.chosen = rows, chosen
        rows = rows if chosen is None else rows.at(chosen)
        self.basis, self.actions, self.rows = basis, actions, rows
        self.discount, self.regularisation, self.behaviour = discount, regularisation, behaviour
        self.taken = actions.weights(rows.action)
        self.continues = discount * (1.0 - rows.terminated.astype(np.float32))
        self.advance: Callable[[int], object] = lambda count: None
        self._solve: Solver | None = None

    # Features of all rows would need most of the memory, so nothing keeps them. They are dense or
    # sparse; SciPy's types have no union of both.

    @property
    def features(self) -> Any:
        """φ(s) of every row, [N, p], computed anew."""
        return self.basis.apply(self.rows.observation)

    @property
    def next_features(self) -> Any:
        """φ(s') of every row, [N, p], computed anew."""
        return self.basis.apply(self.rows.next_observation)

    def at(self, discount: float) -> "LeastSquares":
        """Return the same equations with another discount, without recomputing what stays the same.

        Args:
            discount: γ.
        """
        if discount == self.discount:
            return self
        other = copy.copy(self)
        other.discount, other.gram, other._solve = discount, self.gram, None
        other.advance = lambda count: None  # The progress of these equations alone was estimated.
        other.continues = discount * (1.0 - self.rows.terminated.astype(np.float32))
        return other

    def in_basis(self, basis: Basis) -> "LeastSquares":
        """Return the equations of the same rows in other features."""
        return LeastSquares(basis, *self._given()[1:])

    def thinned(self, most: int) -> "LeastSquares":
        """Return the equations of at most this number of rows, drawn at random."""
        if len(self.taken) <= most:
            return self
        chosen = np.arange(len(self.taken)) if self.chosen is None else self.chosen
        some = np.sort(np.random.default_rng(0).permutation(chosen)[:most])
        basis, actions, rows, discount, ridge, behaviour, _ = self._given()
        return LeastSquares(basis, actions, rows, discount, ridge, behaviour, some)

    def _given(self) -> tuple[Any, ...]:
        """Return the arguments that make these equations."""
        rest = self.discount, self.regularisation, self.behaviour, self.chosen
        return self.basis, self.actions, self.recorded, *rest

    def __reduce__(self) -> tuple[Any, ...]:
        return LeastSquares, self._given()  # A factorisation cannot be pickled.

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of features of the state that each feature of the action multiplies, [m_b]."""
        return products(self.basis.num_features, self.actions)

    @functools.cached_property
    def kept(self) -> np.ndarray:
        """Places of the q products that are features ψ in b ⊗ φ, [q]."""
        size = self.basis.num_features
        ends = size * (1 + np.arange(len(self.sizes)))
        return np.concatenate(
            [np.arange(end - own, end) for end, own in zip(ends, self.sizes, strict=True)]
        )

    @functools.cached_property
    def gram(self) -> Any:
        """E[ψψᵀ] + λI, [q, q]."""
        taken = self.rows.observation, self.taken, self.sizes
        return self._ridged(self._moment(*taken, *taken))

    def _ridged(self, matrix: Any) -> Any:
        size = matrix.shape[0]
        if scipy.sparse.issparse(matrix):
            ridge: Any = self.regularisation * scipy.sparse.eye_array(size)
            return (matrix + ridge).tocsc()
        matrix[np.diag_indices(size)] += self.regularisation
        return matrix

    def solver(self, following: np.ndarray) -> Solver:
        """Factorise A for the policy that takes ``following`` in the states reached.

        Args:
            following: E[b(a') | s'] at every row's next state, [N, m_b].

        Returns:
            Map of right-hand sides [q, k] to solutions.
        """
        if isinstance(self.basis, UnitVectors):
            return self._counted_solver(following)
        system = self.gram - self._followed(following)
        factors = interruptible(scipy.linalg.lu_factor, system, overwrite_a=True)
        return lambda right: np.asarray(interruptible(scipy.linalg.lu_solve, factors, right))

    def _followed(self, following: np.ndarray) -> Any:
        """E[ψ(s, a) γ c ψ̄(s')ᵀ] for the actions that follow, [q, q]."""
        taken, reached = (self.rows.observation, self.taken, self.sizes), self.rows.next_observation
        if not _steady(following):
            return self._moment(*taken, reached, following * self.continues[:, None], self.sizes)
        # A policy that does not depend on the state: one product serves all of its actions.
        once = self._moment(*taken, reached, self.continues[:, None], self.sizes[:1])
        parts = zip(self.sizes, following[0], strict=True)
        return np.concatenate([once[:, -own:] * weight for own, weight in parts], axis=1)

    def _counted_solver(self, following: np.ndarray) -> Solver:
        """Solve for unit vectors, by way of the values of states.

        A = D − KΠᵀ with a diagonal D = E[ψψᵀ] + λI, K = γ E[ψ(s, a) c φ(s')ᵀ] and Π the actions
        that follow. So A⁻¹ = D⁻¹ + D⁻¹K (I − ΠᵀD⁻¹K)⁻¹ ΠᵀD⁻¹, where ΠᵀD⁻¹K is γP̂ of the policy.
        """
        rows, size = self.rows, self.basis.num_features
        taken = rows.observation, self.taken, self.sizes
        later = self._moment(*taken, rows.next_observation, self.continues[:, None], [size])
        policy = np.zeros((size, following.shape[1]))
        policy[rows.next_observation] = following
        over = 1.0 / self.gram.diagonal()
        chosen = scipy.sparse.hstack([scipy.sparse.diags_array(each) for each in policy.T])
        ahead, choose = later.multiply(over[:, None]).tocsr(), chosen.multiply(over).tocsr()
        inner = _sparse_solver(scipy.sparse.eye_array(size) - chosen @ ahead, self.discount)

        def solve(right: np.ndarray, transposed: bool = False) -> np.ndarray:
            alone = (right.T * over).T
            if transposed:
                return np.asarray(alone + choose.T @ inner(later.T @ alone, transposed=True))
            return np.asarray(alone + ahead @ inner(chosen @ alone))

        return solve

    @property
    def solve(self) -> Solver:
        """The solver for the data's policy, with one factorisation for all right-hand sides."""
        if self._solve is None:
            self._solve = self.solver(self._following)
        return self._solve

    @functools.cached_property
    def _following(self) -> np.ndarray:
        """E[b(a') | s'] of the data's policy at every row's next state, [N, m_b]."""
        return self.behaviour(self.rows.next_observation)

    def work(self, decomposed: bool) -> int:
        """Return the rows for which ``solve``, and ``factors`` if decomposed, call ``advance``."""
        if isinstance(self.basis, UnitVectors):
            return len(self.taken) * (2 + decomposed)
        follow = 1 if _steady(self._following) else self.taken.shape[1]
        return len(self.taken) * (1 + follow + 2 * decomposed)

    def right_hand_side(self, cumulants: np.ndarray, taken: np.ndarray | None = None) -> np.ndarray:
        """Compute E[ψ(s, a) c(s')ᵀ], [q, k].

        Args:
            cumulants: c at every row's next state, [N, k].
            taken: b(a), [N, m_b]; None takes the rows' own actions.
        """
        taken = self.taken if taken is None else taken
        return self._mean(self.rows.observation, taken, self.sizes, cumulants)

    def _mean(
        self, states: np.ndarray, weights: np.ndarray, sizes: list[int], cumulants: np.ndarray
    ) -> np.ndarray:
        """Compute the mean of (w ⊗ φ(s)) cᵀ over the rows, [q, k].

        Args:
            states: s, [N, ...].
            weights: w, [N, m].
            sizes: How many of the last features each of the m weights multiplies.
            cumulants: c, [N, k].
        """
        if isinstance(self.basis, UnitVectors):
            counts = _counts(states, weights, self.basis.num_states)
            return np.asarray(counts.T @ cumulants / len(weights))
        total = np.zeros((sum(sizes), cumulants.shape[1]))
        for some in blocks_of(len(weights), self.basis.num_features):
            features = self.basis.apply(states[some])
            for place, own, column in zip(_slices(sizes), sizes, weights[some].T, strict=True):
                total[place] += last(features, own).T @ (column[:, None] * cumulants[some])
        return total / len(weights)

    def _moment(
        self,
        left: np.ndarray,
        left_weights: np.ndarray,
        left_sizes: list[int],
        right: np.ndarray,
        right_weights: np.ndarray,
        right_sizes: list[int],
    ) -> Any:
        """Compute the mean of (w ⊗ φ(s)) (w' ⊗ φ(s'))ᵀ over the rows, [q, q'].

        The result is sparse if the features are. Dense products use double precision, without which
        small eigenvalues would become negative.

        Args:
            left: s, [N, ...].
            left_weights: w, [N, m].
            left_sizes: How many of the last features each of the m weights multiplies.
            right: s', [N, ...].
            right_weights: w', [N, m'].
            right_sizes: As ``left_sizes``, of the m' weights.
        """
        basis, count = self.basis, len(left_weights)
        if isinstance(basis, UnitVectors):
            size = basis.num_states
            first, second = _counts(left, left_weights, size), _counts(right, right_weights, size)
            self.advance(count)
            return (first.T @ second / count).tocsc()
        symmetric = left is right and left_weights is right_weights
        total = np.zeros((sum(left_sizes), sum(right_sizes)))
        pairs = [
            (c, e, rows, columns)
            for c, rows in enumerate(_slices(left_sizes))
            for e, columns in enumerate(_slices(right_sizes))
            if c <= e or not symmetric
        ]
        # Rows of one action follow each other: a block then has few actions, and large products.
        order = np.argsort(left_weights.argmax(axis=1), kind="stable")
        for block in blocks_of(count, basis.num_features):
            some = order[block]
            one = basis.apply(left[some])
            other = one if left is right else basis.apply(right[some])
            for c, e, rows, columns in pairs:
                scale = left_weights[some, c] * right_weights[some, e]
                own = np.flatnonzero(scale)
                if len(own):
                    weighted = last(other, right_sizes[e])[own].astype(np.float64)
                    weighted *= scale[own, None]
                    first = last(one, left_sizes[c])[own].astype(np.float64)
                    total[rows, columns] += first.T @ weighted
            self.advance(len(some) * (1 if symmetric else len(right_sizes)))
        for c, e, rows, columns in pairs:
            if symmetric and c < e:
                total[columns, rows] = total[rows, columns].T
        return total / count

    def rewarded(self, rewards: np.ndarray) -> np.ndarray:
        """Compute E[ψ(s, a) r(s')], [q, 1].

        Rows that the equations leave out count if at most ``MOST_RARE`` rewards differ from the
        most frequent one, since few of them may be among the chosen rows.

        Args:
            rewards: r at the next state of every recorded transition.
        """
        if self.chosen is None:
            return self.right_hand_side(rewards[:, None])
        values, counts = np.unique(rewards, return_counts=True)
        common = values[counts.argmax()]
        rare = np.flatnonzero(rewards != common)
        if len(rare) > MOST_RARE:
            return self.right_hand_side(rewards[self.chosen, None])
        found = self.right_hand_side(np.full((len(self.chosen), 1), common))
        for start in range(0, len(rare), BLOCK):
            some = rare[start : start + BLOCK]
            rows, excess = self.recorded.at(some), (rewards[some] - common) / len(rewards)
            weights = self.actions.weights(rows.action) * excess[:, None]
            features = np.asarray(self.basis.apply(rows.observation), np.float64)
            found += (features.T @ weights).T.reshape(-1, 1)[self.kept]
        return found

    def values(self, cumulants: np.ndarray, solve: Solver | None = None) -> np.ndarray:
        """Return the weights of values Q(s, a) = Σ_c b(a)_c φ(s)ᵀ w[:, c], [p, m_b, k].

        Args:
            cumulants: Reward on arrival at every row's next state, [N, k].
            solve: The solver of the policy; None takes the data's policy.
        """
        solution = (self.solve if solve is None else solve)(self.right_hand_side(cumulants))
        return self.arranged(solution)

    def arranged(self, solution: np.ndarray) -> np.ndarray:
        """Arrange a solution [q, k] as weights [p, m_b, k]; products left out get 0."""
        count, size = self.taken.shape[1], self.basis.num_features
        blocks = np.zeros((count * size, solution.shape[1]), np.float32)
        blocks[self.kept] = solution
        return np.ascontiguousarray(blocks.reshape(count, size, -1).transpose(1, 0, 2))

    def valued(self, weights: np.ndarray, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Compute Σ_c b_c φ(s)ᵀ w[:, c], [m, k].

        Args:
            weights: w, [p, m_b, k].
            states: s, [m, ...].
            actions: b, [m, m_b].
        """
        blocks = [slice(start, start + BLOCK) for start in range(0, len(states), BLOCK)]
        found = [
            np.einsum("mc,mck->mk", actions[some], self.basis.project(states[some], weights))
            for some in blocks
        ]
        return np.concatenate(found).astype(np.float64)

    # --- States -----------------------------------------------------------------------------------

    def arrivals(self, goal: np.ndarray) -> tuple[int | None, np.ndarray]:
        """Return how many recorded rows reach a goal [1, ...], and the reward of arriving, [N].

        The values of this reward are the density m at the goal. For indices of states, the reward
        is N / (number of arrivals) on arrival; for dense features it is φ(s')ᵀ G⁻¹ φ(goal).

        For random Fourier features, a row reaches the goal if its kernel with the goal is at least
        0.95: it is then within a third of the kernel's width. Features of networks have no kernel,
        and the number of rows is None.
        """
        reached = self.recorded.next_observation
        if isinstance(self.basis, UnitVectors):
            there = reached == goal[0]
            return int(there.sum()), there * (len(there) / max(1, int(there.sum())))
        near = self.basis.nearness(reached, goal) if isinstance(self.basis, FourierBasis) else None
        count = None if near is None else int((near >= 0.95).sum())
        there = np.asarray(self.basis.apply(goal))[0]
        weights = np.linalg.solve(self._reached, there)
        blocks = blocks_of(len(reached), len(weights))
        return count, np.concatenate([self.basis.apply(reached[some]) @ weights for some in blocks])

    @functools.cached_property
    def _reached(self) -> np.ndarray:
        """G = E[φ(s') φ(s')ᵀ] + λI, [p, p], for dense features."""
        ones = np.ones((len(self.taken), 1), np.float32)
        reached = self.rows.next_observation, ones, self.sizes[:1]
        found: np.ndarray = self._ridged(self._moment(*reached, *reached))
        return found

    def is_terminal(self, state: np.ndarray) -> bool:
        """Tell whether arrival in a state [1, ...] ends episodes; dense features use regression."""
        if isinstance(self.basis, UnitVectors):
            return bool(self.ended(state)[0])
        if not self.rows.terminated.any():
            return False
        ended = self.rows.terminated.astype(np.float32)[:, None]
        reached = self.rows.next_observation
        mean = self._mean(reached, ended, self.sizes[:1], np.ones_like(ended))
        weights = np.linalg.solve(self._reached, mean)
        return bool((self.basis.apply(state) @ weights)[0, 0] > 0.5)

    def ended(self, states: np.ndarray) -> np.ndarray:
        """Mask of states that ended episodes and start no row, [m]; False for dense features."""
        if not isinstance(self.basis, UnitVectors):
            return np.zeros(len(states), np.bool_)
        return np.asarray(self._kinds[1][states])

    @property
    def unknown(self) -> np.ndarray:
        """Tell which indices of states start no row and ended no episode, [n]."""
        return self._kinds[0]

    @functools.cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        count = self.basis.num_features
        started = np.bincount(self.rows.observation, minlength=count) > 0
        reached = self.rows.next_observation[self.rows.terminated]
        ended = (np.bincount(reached, minlength=count) > 0) & ~started
        return ~started & ~ended, ended

    # --- Rank d -----------------------------------------------------------------------------------

    def factors(self, rank: int) -> Factors:
        """Decompose m into its leading singular functions in L2 of the data; zero beyond its rank.

        F and B come from the singular value decomposition of E[ψψᵀ]^{1/2} A⁻¹ C G^{-1/2}.
        """
        sparse = isinstance(self.basis, UnitVectors)
        found = self._counted_factors(rank) if sparse else self._dense_factors(rank)
        missing = rank - len(found.singular_values)
        if missing <= 0:
            return found
        return Factors(*(np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)]) for a in found))

    def _dense_factors(self, rank: int) -> Factors:
        # NumPy's functions, unlike SciPy's Cholesky and eigh, let other threads run.
        left = interruptible(np.linalg.cholesky, self.gram, upper=True)
        right = interruptible(np.linalg.cholesky, self._reached, upper=True)
        rows, ones = self.rows, np.ones((len(self.taken), 1), np.float32)
        taken = rows.observation, self.taken, self.sizes
        crossed = self._moment(*taken, rows.next_observation, ones, self.sizes[:1])
        middle: np.ndarray = left @ self.solve(crossed)
        middle = interruptible(np.linalg.solve, right.T, middle.T).T
        squares, v = interruptible(np.linalg.eigh, middle.T @ middle)
        squares, v = squares[-rank:], v[:, -rank:]
        # Roots of computed squares have half the digits: values below this threshold are rounding
        # noise.
        values, v = np.sqrt(np.maximum(squares[::-1], 0.0)), v[:, ::-1]
        values = np.where(values > 1e-6 * values[0], values, 0.0)
        root = np.sqrt(values)
        over = np.where(root > 0.0, 1.0 / np.where(root > 0.0, root, 1.0), 0.0)
        forward = scipy.linalg.solve_triangular(left, middle @ v * over)
        backward = scipy.linalg.solve_triangular(right, v * root)
        return Factors(self.arranged(forward), _single(backward), _single(values))

    def _counted_factors(self, rank: int) -> Factors:
        tried = np.sqrt(self.gram.diagonal() - self.regularisation)
        rows, ones = self.rows, np.ones((len(self.taken), 1))
        taken = rows.observation, self.taken, self.sizes
        arrivals = self._moment(*taken, rows.next_observation, ones, self.sizes[:1])
        reached = np.asarray(arrivals.sum(axis=0)).ravel()
        scale = np.where(reached > 0.0, 1.0 / np.sqrt(np.where(reached > 0.0, reached, 1.0)), 0.0)
        sizes = len(tried), len(scale)
        if max(sizes) <= _DENSE:
            middle = tried[:, None] * self.solve((arrivals * scale).toarray())
            try:
                u, values, vt = interruptible(np.linalg.svd, middle, full_matrices=False)
            except np.linalg.LinAlgError:  # Divide and conquer may fail; the next driver is slower.
                u, values, vt = scipy.linalg.svd(middle, full_matrices=False, lapack_driver="gesvd")
        else:
            operator = scipy.sparse.linalg.LinearOperator(
                sizes,
                matvec=lambda x: tried * self.solve(arrivals @ (scale * x.ravel())),
                rmatvec=lambda y: (
                    scale * (arrivals.T @ self.solve(tried * y.ravel(), transposed=True))
                ),
                dtype=np.float64,
            )
            start = np.random.default_rng(0).normal(size=min(sizes))
            u, values, vt = scipy.sparse.linalg.svds(
                operator, k=min(rank, min(sizes) - 1), v0=start
            )
            u, values, vt = u[:, ::-1], values[::-1], vt[::-1]
        kept = values[:rank] > 1e-9 * values[0]
        u, values, vt = u[:, :rank] * kept, values[:rank] * kept, vt[:rank] * kept[:, None]
        root = np.sqrt(values)
        over = np.where(tried > 0.0, 1.0 / np.where(tried > 0.0, tried, 1.0), 0.0)
        forward = over[:, None] * u * root
        backward = scale[:, None] * vt.T * root
        return Factors(self.arranged(forward), _single(backward), _single(values))


def left_out(solution: LeastSquares, name: str = "the equations take") -> list[str]:
    """Say in a line how many transitions a solution leaves out; empty if there are none."""
    if solution.chosen is None:
        return []
    rows, chosen = len(solution.recorded.action), len(solution.chosen)
    return [
        f"{name} {chosen:,} of {rows:,} transitions, drawn at random; rewards that at most "
        f"{MOST_RARE:,} transitions have count in all of them"
    ]


def _single(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def products(num_features: int, actions: ActionBasis) -> list[int]:
    """Return how many features of the state each feature of the action multiplies, [m_b].

    Features of discrete actions multiply all p. For a box, b_0 = 1 multiplies all p; the others
    multiply the same last ones, so many that there are at most ``MOST_UNKNOWNS`` products. The last
    feature of the state is the constant.
    """
    sizes = [num_features] * actions.size
    if actions.num_actions is None:
        rest = max(1, (MOST_UNKNOWNS - num_features) // (actions.size - 1))
        sizes[1:] = [min(num_features, rest)] * (actions.size - 1)
    return sizes


def last(features: Any, count: int) -> Any:
    """Return the last columns of features [N, p], which stay as they are if these are all."""
    return features if count == features.shape[1] else features[:, -count:]


def _slices(sizes: list[int]) -> list[slice]:
    """Return where each of several blocks of these sizes lies in their sequence."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _counts(states: np.ndarray, weights: np.ndarray, num_states: int) -> Any:
    """Return w ⊗ φ(s) of indices of states [N] and weights [N, m], [N, m n], sparse."""
    count, m = weights.shape
    columns = states[:, None].astype(np.int64) + np.arange(m) * num_states
    found = scipy.sparse.csr_array(
        (weights.ravel().astype(np.float64), columns.ravel(), np.arange(count + 1) * m),
        shape=(count, m * num_states),
    )
    found.eliminate_zeros()
    return found


def _steady(following: np.ndarray) -> bool:
    """Tell whether actions that follow, [N, m_b], do not depend on the state."""
    return bool((following == following[0]).all())


def blocks_of(count: int, num_features: int) -> Iterator[slice]:
    """Cut rows into blocks whose features are in memory at once."""
    size = max(1, min(BLOCK, _BLOCK_NUMBERS // num_features))
    return (slice(start, start + size) for start in range(0, count, size))


def _sparse_solver(system: Any, discount: float) -> Solver:
    """Solve a sparse system I − γP by its factors, or iteratively if they could need much memory.

    The estimate is the memory of factors within the bandwidth of the reordered system. Rows of P
    sum to at most 1: in practice, GMRES (Saad & Schultz 1986) reduces residuals like γᵏ or faster.
    """
    size = system.shape[0]
    system = system.tocsc()
    place = np.argsort(reverse_cuthill_mckee(system))
    rows, columns = system.nonzero()
    width = int(np.abs(place[rows] - place[columns]).max())
    # An entry has eight bytes and an index of four; pivots double the bandwidth of the upper half.
    fill = 12 * size * min(size, 3 * width + 1)
    if fill <= min(_MOST_FILL, usable_memory() or fill):
        # SciPy frees the factors in the thread that made them, so no other thread makes them.
        factors: Any = scipy.sparse.linalg.splu(system)
        return lambda right, transposed=False: np.asarray(
            interruptible(factors.solve, right, "T" if transposed else "N")
        )
    restart = 50
    cycles = 10 + math.ceil(math.log(_RESIDUAL) / math.log(discount) / restart)

    def solve(right: np.ndarray, transposed: bool = False) -> np.ndarray:
        matrix = system.T if transposed else system
        found = np.empty((size, math.prod(right.shape[1:])))
        for index, column in enumerate(right.reshape(size, -1).T):
            found[:, index], failed = scipy.sparse.linalg.gmres(
                matrix, column, rtol=_RESIDUAL, restart=restart, maxiter=cycles
            )
            if failed:
                raise InputError(
                    f"expected {size:,} states whose equations GMRES solves, got none after "
                    f"{cycles * restart:,} steps; try a smaller discount"
                )
        return found.reshape(right.shape)

    return solve
