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

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from rlreps.numerics import interruptible
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, DenseBasis, UnitVectors, blocks_of
from rlreps.successor.fitting.products import (
    RowProducts,
    mean_cumulant_product,
    moment,
    product_sizes,
)
from rlreps.successor.fitting.sparse_systems import Solver, solve_sparse
from rlreps.successor.fitting.transitions import Transitions

Behaviour: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Observations [m, ...] → E[b(a) | s] of the data's policy, [m, m_b]; probabilities if discrete."""

COUNTED_RIDGE = 1e-12
"""Default λ of counts times the number of rows. It changes values relatively by 1e-12 / (1 − γ) at
most, and gives the value 0 to actions that no row takes."""

MOST_RARE = 10_000
"""Rewards that at most this number of transitions have are rare, and count in all of them."""


class Steps(NamedTuple):
    """Transitions from which the equations are made: columns of ``Transitions``."""

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    terminated: np.ndarray

    @classmethod
    def of(cls, data: Transitions) -> "Steps":
        """Take the columns that least squares use."""
        return cls(data.observation, data.action, data.next_observation, data.terminated)

    def at(self, chosen: np.ndarray | slice) -> "Steps":
        """Return some of the transitions, by their indices, a mask or a slice."""
        return Steps(*(column[chosen] for column in self))


@dataclasses.dataclass(frozen=True, eq=False)
class KnownStates:
    """What rows tell of indices of states.

    Attributes:
        pairs: Mask of the features of actions that rows have in each state, [n, m_b]. A row has the
            feature of its discrete action, or all features of a box.
        started: Mask of states in which rows start, [n].
        ended: Mask of states that ended episodes and start no row, [n].
    """

    pairs: np.ndarray
    started: np.ndarray
    ended: np.ndarray

    @classmethod
    def of(cls, rows: Steps, num_states: int, actions: ActionBasis) -> "KnownStates":
        """Read the masks off rows."""
        pairs = np.zeros((num_states, actions.size), np.bool_)
        pairs[rows.observation, slice(None) if actions.num_actions is None else rows.action] = True
        started, ended = np.asarray(pairs.any(axis=1)), np.zeros(num_states, np.bool_)
        ended[rows.next_observation[rows.terminated]] = True
        return cls(pairs, started, ended & ~started)


@dataclasses.dataclass(eq=False, repr=False)
class LeastSquares:
    """The solved equations of some transitions.

    Features of all rows would need most of the memory, so nothing keeps them.

    Attributes:
        basis: φ.
        actions: b.
        recorded: All transitions.
        discount: γ.
        regularisation: λ, relative to the mean square of the features, which is about 1.
        behaviour: E[b(a) | s] of the policy whose measure is solved for.
        chosen: Indices of the transitions of the equations; None for all.
    """

    basis: Basis
    actions: ActionBasis
    recorded: Steps
    discount: float
    regularisation: float
    behaviour: Behaviour
    chosen: np.ndarray | None = None

    @functools.cached_property
    def rows(self) -> Steps:
        """The transitions of the equations."""
        return self.recorded if self.chosen is None else self.recorded.at(self.chosen)

    def of_rows(self, rewards: np.ndarray) -> np.ndarray:
        """Take the rewards of the equations' transitions from those of all, [N]."""
        return rewards if self.chosen is None else rewards[self.chosen]

    @functools.cached_property
    def taken(self) -> np.ndarray:
        """Features b of the actions taken, [N, m_b]."""
        return self.actions.weights(self.rows.action)

    @functools.cached_property
    def discounts(self) -> np.ndarray:
        """γc of every row, [N]."""
        return self.discount * (1.0 - self.rows.terminated)

    def with_discount(self, discount: float) -> "LeastSquares":
        """Return the same equations with another discount; nothing else is computed again."""
        if discount == self.discount:
            return self
        other = dataclasses.replace(self, discount=discount)
        other.gram = self.gram
        own = {"discount", "discounts", "solve"}
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - own})
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        # A factorisation cannot be pickled.
        return LeastSquares, tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def features(self, states: np.ndarray) -> np.ndarray:
        """Compute φ at states, [m, p], for dense features."""
        assert isinstance(self.basis, DenseBasis)
        return self.basis.apply(states)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of features of the state that each feature of the action multiplies, [m_b]."""
        return product_sizes(self.basis.num_features, self.actions)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Places of the q products that are features ψ in b ⊗ φ, [q]."""
        size = self.basis.num_features
        ends = size * (1 + np.arange(len(self.sizes)))
        return np.concatenate(
            [np.arange(end - own, end) for end, own in zip(ends, self.sizes, strict=True)]
        )

    @functools.cached_property
    def _pairs(self) -> RowProducts:
        """ψ(s, a)."""
        return RowProducts(self.rows.observation, self.taken, self.sizes)

    def _reached(self, weights: np.ndarray | None = None) -> RowProducts:
        """φ(s') times weights, [N, 1]; 1 by default."""
        weights = np.ones((len(self.taken), 1), np.float32) if weights is None else weights
        return RowProducts(self.rows.next_observation, weights, self.sizes[:1])

    @functools.cached_property
    def gram(self) -> Any:
        """E[ψψᵀ] + λI, [q, q]."""
        return self._ridged(moment(self.basis, self._pairs, self._pairs))

    @functools.cached_property
    def crossed(self) -> Any:
        """C, [q, p]."""
        return moment(self.basis, self._pairs, self._reached())

    @functools.cached_property
    def reached_moment(self) -> np.ndarray:
        """G, [p, p], for dense features."""
        reached = self._reached()
        return np.asarray(self._ridged(moment(self.basis, reached, reached)))

    def _ridged(self, matrix: Any) -> Any:
        size = matrix.shape[0]
        if scipy.sparse.issparse(matrix):
            ridge: Any = self.regularisation * scipy.sparse.eye_array(size)
            return (matrix + ridge).tocsc()
        matrix[np.diag_indices(size)] += self.regularisation
        return matrix

    def solver(self, following: np.ndarray) -> Solver:
        """Factorise A for the policy with E[b(a') | s'] at every row's next state, [N, m_b]."""
        if isinstance(self.basis, UnitVectors):
            return self._counted_solver(following)
        system = self.gram - self.followed(following)
        factors = interruptible(scipy.linalg.lu_factor, system, overwrite_a=True)
        return lambda right: np.asarray(interruptible(scipy.linalg.lu_solve, factors, right))

    def followed(self, following: np.ndarray) -> Any:
        """E[ψ(s, a) γ c ψ̄(s')ᵀ] for the actions that follow, [q, q]."""
        following = self.keep_known(following, self.rows.next_observation)
        if not _steady(following):
            weights = following * self.discounts[:, None]
            later = RowProducts(self.rows.next_observation, weights, self.sizes)
            return moment(self.basis, self._pairs, later)
        # A policy that does not depend on the state: C serves all of its actions, less the rows
        # that end an episode.
        once = self.discount * (self.crossed - self._crossed_at_ends)
        parts = zip(self.sizes, following[0], strict=True)
        return np.concatenate([once[:, -own:] * weight for own, weight in parts], axis=1)

    @functools.cached_property
    def _crossed_at_ends(self) -> Any:
        """The part of C of the rows that end an episode, [q, p], for dense features."""
        ended = np.flatnonzero(self.rows.terminated)
        if not len(ended):
            return 0.0
        ending = dataclasses.replace(self, recorded=self.rows.at(ended), chosen=None)
        return len(ended) / len(self.taken) * ending.crossed

    def _counted_solver(self, following: np.ndarray) -> Solver:
        """Solve for unit vectors, by way of the values of states.

        A = D − KΠᵀ with a diagonal D = E[ψψᵀ] + λI, K = γ E[ψ(s, a) c φ(s')ᵀ] and Π the actions
        that follow. So A⁻¹ = D⁻¹ + D⁻¹K (I − ΠᵀD⁻¹K)⁻¹ ΠᵀD⁻¹, where ΠᵀD⁻¹K is γP̂ of the policy.
        """
        size = self.basis.num_features
        later = moment(self.basis, self._pairs, self._reached(self.discounts[:, None]))
        policy = np.zeros((size, following.shape[1]))
        # Near γ = 1, values grow with any probability that single precision adds or leaves out.
        sums = following.sum(axis=1, dtype=np.float64, keepdims=True)
        policy[self.rows.next_observation] = following / sums
        over = 1.0 / self.gram.diagonal()
        chosen = scipy.sparse.hstack([scipy.sparse.diags_array(each) for each in policy.T])
        ahead, choose = later.multiply(over[:, None]).tocsr(), chosen.multiply(over).tocsr()
        inner = solve_sparse(scipy.sparse.eye_array(size) - chosen @ ahead, self.discount)

        def solve(right: np.ndarray, transposed: bool = False) -> np.ndarray:
            alone = (right.T * over).T
            if transposed:
                return np.asarray(alone + choose.T @ inner(later.T @ alone, transposed=True))
            return np.asarray(alone + ahead @ inner(chosen @ alone))

        return solve

    @functools.cached_property
    def solve(self) -> Solver:
        """The solver for the data's policy, with one factorisation for all right-hand sides."""
        return self.solver(self.following)

    @functools.cached_property
    def following(self) -> np.ndarray:
        """E[b(a') | s'] of the data's policy at every row's next state, [N, m_b]."""
        return self.behaviour(self.rows.next_observation)

    @functools.cached_property
    def steady(self) -> bool:
        """Whether the data's policy does not depend on the state."""
        return _steady(self.following)

    def right_hand_side(self, cumulants: np.ndarray, taken: np.ndarray | None = None) -> np.ndarray:
        """Compute E[ψ(s, a) c(s')ᵀ] of c at every row's next state [N, k], [q, k].

        ``taken`` [N, m_b] replaces the b(a) of the rows' own actions.
        """
        taken = self.taken if taken is None else taken
        pairs = RowProducts(self.rows.observation, taken, self.sizes)
        return mean_cumulant_product(self.basis, pairs, cumulants)

    def rewarded(self, rewards: np.ndarray) -> np.ndarray:
        """Compute E[ψ(s, a) r(s')] of r at the next state of every recorded transition, [q, 1].

        Rows that the equations leave out count if at most ``MOST_RARE`` rewards differ from the
        most frequent one, since few of them may be among the chosen rows.
        """
        if self.chosen is None:
            return self.right_hand_side(rewards[:, None])
        values, counts = np.unique(rewards, return_counts=True)
        common = values[counts.argmax()]
        rare = np.flatnonzero(rewards != common)
        if len(rare) > MOST_RARE:
            return self.right_hand_side(self.of_rows(rewards)[:, None])
        found = self.right_hand_side(np.full((len(self.chosen), 1), common))
        if len(rare):
            rows, share = self.recorded.at(rare), len(rare) / len(rewards)
            pairs = RowProducts(rows.observation, self.actions.weights(rows.action), self.sizes)
            found += share * mean_cumulant_product(self.basis, pairs, rewards[rare, None] - common)
        return found

    def centred(
        self, rewards: np.ndarray, centre: Callable[[np.ndarray], Any] = np.median
    ) -> tuple[np.ndarray, float]:
        """Return the rewards to solve for, and what to add to all of their values.

        If no row terminates, a constant c in all rewards adds c/(1 − γ) to all values and changes
        no policy. The rewards to solve for are then less their centre: the ridge would shrink the
        values of a large constant, and single precision would round them. If most rows have the
        same reward, the median is this reward, and values far from other rewards are small numbers
        that single precision still tells apart.
        """
        if self.rows.terminated.any():
            return rewards, 0.0
        constant = float(centre(rewards))
        return rewards - constant, constant / (1.0 - self.discount)

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
        blocks[self.places] = solution
        return np.ascontiguousarray(blocks.reshape(count, size, -1).transpose(1, 0, 2))

    def valued(self, weights: np.ndarray, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Compute Σ_c b_c φ(s)ᵀ w[:, c] of w [p, m_b, k], s [m, ...] and b [m, m_b], [m, k]."""
        found = [
            np.einsum("mc,mck->mk", actions[some], self.pair_values(states[some], weights))
            for some in blocks_of(len(states))
        ]
        return np.concatenate(found).astype(np.float64)

    def pair_values(self, states: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Compute φ(s)ᵀ w[:, c] of w [p, m_b, ...], [m, m_b, ...]; see ``keep_known``."""
        return self.keep_known(self.basis.project(states, weights), states)

    def keep_known(self, found: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Replace numbers [m, m_b, ...] by 0 at indices of states, and actions there, of no row."""
        if self.known is None:
            return found
        known = self.known.pairs[states]
        return np.asarray(found * known.reshape(known.shape + (1,) * (found.ndim - 2)))

    # --- States -----------------------------------------------------------------------------------

    @functools.cached_property
    def known(self) -> KnownStates | None:
        """What the recorded rows tell of indices of states; None for other observations."""
        if self.basis.num_states is None:
            return None
        return KnownStates.of(self.recorded, self.basis.num_states, self.actions)

    @functools.cached_property
    def tried(self) -> np.ndarray | None:
        """Mask of the actions that rows took in each index of a state, [n, A]; all if none starts.

        It is None for vectors and for a box.
        """
        if self.known is None or self.actions.num_actions is None:
            return None
        return np.asarray(self.known.pairs | ~self.known.started[:, None])

    def started(self, states: np.ndarray) -> np.ndarray:
        """Mask of indices of states in which rows start, [m]; True for other observations."""
        return np.ones(len(states), np.bool_) if self.known is None else self.known.started[states]

    def ended(self, states: np.ndarray) -> np.ndarray:
        """Mask of indices of states that ended episodes and start no row, [m]; False for others."""
        return np.zeros(len(states), np.bool_) if self.known is None else self.known.ended[states]

    def is_terminal(self, state: np.ndarray) -> bool:
        """Tell whether arrival in a state [1, ...] ends episodes; vectors use regression."""
        if self.known is not None:
            return bool(self.known.ended[state][0])
        if not self.rows.terminated.any():
            return False
        ended = self.rows.terminated.astype(np.float32)[:, None]
        mean = mean_cumulant_product(self.basis, self._reached(ended), np.ones_like(ended))
        weights = np.linalg.solve(self.reached_moment, mean)
        return bool((self.features(state) @ weights)[0, 0] > 0.5)


def describe_left_out(solution: LeastSquares, name: str = "the equations take") -> str:
    """Say how many transitions a solution leaves out; "" if there are none."""
    if solution.chosen is None:
        return ""
    rows, chosen = len(solution.recorded.action), len(solution.chosen)
    return (
        f"{name} {chosen:,} of {rows:,} transitions, drawn at random; rewards that at most "
        f"{MOST_RARE:,} transitions have count in all of them"
    )


def _steady(following: np.ndarray) -> bool:
    """Tell whether actions that follow, [N, m_b], do not depend on the state."""
    return bool((following == following[0]).all())
