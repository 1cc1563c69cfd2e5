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
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from rlreps.errors import require
from rlreps.successor.basis import (
    BLOCK,
    ActionBasis,
    Basis,
    Features,
    FourierBasis,
    UnitVectors,
)

Behaviour: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Observations [m, ...] → E[b(a) | s] of the data's policy, [m, m_b]; probabilities if discrete."""

MOST_RARE = 10_000
"""Rewards that at most this number of transitions have are rare, and count in all of them."""

MOST_UNKNOWNS = 2_400
"""Largest number of unknowns of a solution for continuous actions."""

_DENSE = 4_000
"""Largest number of unknowns of a sparse system whose measure is decomposed as a dense matrix."""


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
        # Dense or sparse; SciPy's types have no union of both.
        self.features: Any = basis.apply(rows.observation)
        self.next_features: Any = basis.apply(rows.next_observation)
        self.taken = actions.weights(rows.action)
        self.continues = discount * (1.0 - rows.terminated.astype(np.float32))
        self._solve: Callable[[np.ndarray], np.ndarray] | None = None

    def at(self, discount: float) -> "LeastSquares":
        """Return the same equations with another discount, without recomputing what stays the same.

        Args:
            discount: γ.
        """
        if discount == self.discount:
            return self
        other = copy.copy(self)
        other.discount, other.gram, other._solve = discount, self.gram, None
        other.continues = discount * (1.0 - self.rows.terminated.astype(np.float32))
        return other

    def in_basis(self, basis: Basis) -> "LeastSquares":
        """Return the equations of the same rows in other features."""
        return LeastSquares(basis, *self._given()[1:])

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
        left = self.features, self.taken, self.sizes
        return self._ridged(moment(*left, *left) / len(self.taken))

    def _ridged(self, matrix: Any) -> Any:
        size = matrix.shape[0]
        if scipy.sparse.issparse(matrix):
            ridge: Any = self.regularisation * scipy.sparse.eye_array(size)
            return (matrix + ridge).tocsc()
        matrix[np.diag_indices(size)] += self.regularisation
        return matrix

    def solver(self, following: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Factorise A for the policy that takes ``following`` in the states reached.

        Args:
            following: E[b(a') | s'] at every row's next state, [N, m_b].

        Returns:
            Map of right-hand sides [q, k] to solutions.
        """
        system: Any = self.gram - self._followed(following)
        if isinstance(self.basis, UnitVectors):
            factored: Any = scipy.sparse.linalg.splu(system.tocsc())
            return lambda right: np.asarray(factored.solve(right))
        factors = scipy.linalg.lu_factor(system, overwrite_a=True)
        return lambda right: np.asarray(scipy.linalg.lu_solve(factors, right))

    def _followed(self, following: np.ndarray) -> Any:
        """E[ψ(s, a) γ c ψ̄(s')ᵀ] for the actions that follow, [q, q]."""
        count, left = len(following), (self.features, self.taken, self.sizes)
        if isinstance(self.next_features, np.ndarray) and (following == following[0]).all():
            # A policy that does not depend on the state: one product serves all of its actions.
            once = moment(*left, self.next_features, self.continues[:, None], self.sizes[:1])
            parts = zip(self.sizes, following[0], strict=True)
            return np.concatenate([last(once, own) * weight for own, weight in parts], 1) / count
        weights = following * self.continues[:, None]
        return moment(*left, self.next_features, weights, self.sizes) / count

    @property
    def solve(self) -> Callable[[np.ndarray], np.ndarray]:
        """The solver for the data's policy, with one factorisation for all right-hand sides."""
        if self._solve is None:
            self._solve = self.solver(self.behaviour(self.rows.next_observation))
        return self._solve

    def right_hand_side(self, cumulants: np.ndarray, taken: np.ndarray | None = None) -> np.ndarray:
        """Compute E[ψ(s, a) c(s')ᵀ], [q, k].

        Args:
            cumulants: c at every row's next state, [N, k].
            taken: b(a), [N, m_b]; None takes the rows' own actions.
        """
        taken = self.taken if taken is None else taken
        columns = [
            np.asarray(last(self.features, own).T @ (column[:, None] * cumulants), np.float64)
            for own, column in zip(self.sizes, taken.T, strict=True)
        ]
        found: np.ndarray = np.concatenate(columns) / len(cumulants)
        return found

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

    def values(
        self, cumulants: np.ndarray, solve: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> np.ndarray:
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
        weights = scipy.linalg.solve(self._reached, there, assume_a="pos")
        if self.chosen is None:
            return count, np.asarray(self.next_features @ weights, np.float64)
        return count, self.basis.project(reached, _single(weights)).astype(np.float64)

    @functools.cached_property
    def _reached(self) -> np.ndarray:
        """G = E[φ(s') φ(s')ᵀ] + λI, [p, p], for dense features."""
        ones = np.ones((len(self.taken), 1), np.float32)
        found: np.ndarray = self._ridged(
            moment(*(self.next_features, ones, self.sizes[:1]) * 2) / len(ones)
        )
        return found

    def is_terminal(self, state: np.ndarray) -> bool:
        """Tell whether arrival in a state [1, ...] ends episodes; dense features use regression."""
        if isinstance(self.basis, UnitVectors):
            return bool(self.ended(state)[0])
        if not self.rows.terminated.any():
            return False
        target = self.next_features.T @ self.rows.terminated.astype(np.float32) / len(self.taken)
        weights = scipy.linalg.solve(self._reached, target, assume_a="pos")
        return bool((self.basis.apply(state) @ weights)[0] > 0.5)

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
        left = scipy.linalg.cholesky(self.gram)
        right = scipy.linalg.cholesky(self._reached)
        crossed = self.right_hand_side(np.asarray(self.next_features))
        middle = left @ self.solve(crossed)
        middle = scipy.linalg.solve_triangular(right, middle.T, trans=1).T
        size = len(right)
        largest = [max(0, size - rank), size - 1]
        squares, v = scipy.linalg.eigh(middle.T @ middle, subset_by_index=largest)
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
        reached = np.asarray(self.next_features.sum(axis=0)).ravel() / len(self.taken)
        scale = np.where(reached > 0.0, 1.0 / np.sqrt(np.where(reached > 0.0, reached, 1.0)), 0.0)
        blocks = [
            self.features.T @ self.next_features.multiply(self.taken[:, c, None]).tocsr()
            for c in range(self.taken.shape[1])
        ]
        arrivals = (scipy.sparse.vstack(blocks) / len(self.taken)).tocsc()
        sizes = len(tried), len(scale)
        if max(sizes) <= _DENSE:
            middle = tried[:, None] * self.solve((arrivals * scale).toarray())
            try:
                u, values, vt = scipy.linalg.svd(middle, full_matrices=False)
            except np.linalg.LinAlgError:  # Divide and conquer may fail; the next driver is slower.
                u, values, vt = scipy.linalg.svd(middle, full_matrices=False, lapack_driver="gesvd")
        else:
            followed = self._followed(self.behaviour(self.rows.next_observation))
            lu: Any = scipy.sparse.linalg.splu((self.gram - followed).tocsc())
            operator = scipy.sparse.linalg.LinearOperator(
                sizes,
                matvec=lambda x: tried * lu.solve(arrivals @ (scale * x.ravel())),
                rmatvec=lambda y: scale * (arrivals.T @ lu.solve(tried * y.ravel(), trans="T")),
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


def moment(
    left: Features,
    left_weights: np.ndarray,
    left_sizes: list[int],
    right: Features,
    right_weights: np.ndarray,
    right_sizes: list[int],
) -> Any:
    """Compute Σ_i (w_i ⊗ φ_i) (w'_i ⊗ φ'_i)ᵀ, [q, q'], sparse if the features are.

    Dense products use double precision, without which small eigenvalues would become negative.

    Args:
        left: φ, [N, p].
        left_weights: w, [N, m].
        left_sizes: How many of the last features each of the m weights multiplies.
        right: φ', [N, p].
        right_weights: w', [N, m'].
        right_sizes: As ``left_sizes``, of the m' weights.
    """
    blocks: list[list[Any]] = []
    for c in range(left_weights.shape[1]):
        blocks.append([])
        own = np.flatnonzero(left_weights[:, c])
        for e in range(right_weights.shape[1]):
            if e < c and left is right and left_weights is right_weights:
                blocks[-1].append(blocks[e][c].T)
                continue
            scale = left_weights[own, c] * right_weights[own, e]
            rows = own[scale != 0.0]
            weights = scale[scale != 0.0, None]
            if isinstance(left, np.ndarray):
                parts = last(left, left_sizes[c]), last(right, right_sizes[e])
                blocks[-1].append(_product(parts[0], rows, parts[1], weights))
            else:
                blocks[-1].append(left[rows].T @ right[rows].multiply(weights).tocsr())
    if isinstance(left, np.ndarray):
        return np.block(blocks)
    return scipy.sparse.block_array(blocks, format="csc")


def _product(
    left: np.ndarray, rows: np.ndarray, right: Features, weights: np.ndarray
) -> np.ndarray:
    """Compute Σ_i w_i φ_i φ'_iᵀ over rows, a block at a time."""
    assert isinstance(right, np.ndarray)
    total = np.zeros((left.shape[1], right.shape[1]))
    for start in range(0, len(rows), BLOCK):
        some = slice(start, start + BLOCK)
        weighted = right[rows[some]].astype(np.float64) * weights[some]
        total += left[rows[some]].astype(np.float64).T @ weighted
    return total


# --- The policy that made the data --------------------------------------------------------------


def estimated_behaviour(
    basis: Basis, actions: ActionBasis, rows: Rows, held: np.ndarray
) -> np.ndarray:
    """Regress b(a) on φ(s): the weights [p, m_b] of E[b(a) | s].

    For unit vectors, the regression counts actions; states in which no row starts take the mean
    over all rows. For dense features, the held-out rows choose the ridge. If the regression's
    squared error on these rows is not at least 1 % below the error of a policy that does not depend
    on the state, the result is this policy.

    Args:
        basis: φ.
        actions: b.
        rows: The transitions.
        held: Which rows are held out, [N].
    """
    taken = actions.weights(rows.action).astype(np.float64)
    mean = taken.mean(axis=0)
    if isinstance(basis, UnitVectors):
        counts = np.zeros((basis.num_states, taken.shape[1]))
        np.add.at(counts, rows.observation, taken)
        total = np.bincount(rows.observation, minlength=basis.num_states)[:, None]
        return np.where(total > 0, counts / np.maximum(total, 1), mean)
    features = np.asarray(basis.apply(rows.observation), np.float32)
    own, other = features[~held], features[held]
    gram = (own.T @ own).astype(np.float64) / len(own)
    crossed = own.T @ (taken[~held] - mean) / len(own)
    constant = np.zeros((features.shape[1], taken.shape[1]))
    constant[-1] = mean
    best, least = constant, 0.99 * np.square(taken[held] - mean).mean()
    for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), crossed) + constant
        error = np.square(taken[held] - other @ weights).mean()
        if error < least:
            best, least = weights, error
    return best


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatedBehaviour:
    """E[b(a) | s] from a regression.

    Attributes:
        basis: φ.
        weights: Weights of φ, [p, m_b].
        num_actions: A; None for boxes.
    """

    basis: Basis
    weights: np.ndarray
    num_actions: int | None

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return shares(self.basis.project(states, self.weights), self.num_actions)


@dataclasses.dataclass(frozen=True, eq=False)
class GivenBehaviour:
    """Action probabilities of a user's function, which are checked.

    Attributes:
        function: Observations [m, ...] → probabilities [m, A].
        num_actions: A.
    """

    function: Callable[[Any], Any]
    num_actions: int

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        found = np.asarray(self.function(observations), np.float32)
        shape = (len(observations), self.num_actions)
        require(found.shape == shape, f"probabilities of shape {shape}", found.shape)
        sums = found.sum(axis=1)
        normal = bool((found >= 0).all()) and bool(np.allclose(sums, 1.0, atol=1e-4))
        require(normal, "probabilities that sum to 1", sums.tolist()[:3])
        return found


def behaviour_of(
    basis: Basis,
    num_actions: int | None,
    weights: np.ndarray | None,
    own: Callable[[Any], Any] | None,
) -> Behaviour:
    """Return E[b(a) | s] of the data's policy, from weights of φ or from a user's function."""
    if own is None:
        assert weights is not None
        return EstimatedBehaviour(basis, weights, num_actions)
    assert num_actions is not None
    return GivenBehaviour(own, num_actions)


def shares(found: np.ndarray, num_actions: int | None) -> np.ndarray:
    """Turn estimates of E[b(a) | s], [m, m_b], into probabilities if actions are discrete."""
    if num_actions is None:
        return found
    positive = np.maximum(found, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    some = total > 0.0
    return np.where(some, positive / np.where(some, total, 1.0), np.float32(1.0 / num_actions))
