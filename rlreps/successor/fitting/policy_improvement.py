"""Better policies from a solution: policy iteration on counts, fitted Q iteration on features."""

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.errors import warn_user
from rlreps.numerics import interruptible, jit, matmul
from rlreps.runs.progress import progress_bar
from rlreps.successor.fitting import policy_checks
from rlreps.successor.fitting.actions import Candidates
from rlreps.successor.fitting.basis import FourierBasis, UnitVectors
from rlreps.successor.fitting.least_squares import LeastSquares, describe_left_out
from rlreps.successor.fitting.nearest_rows import NearestRows
from rlreps.successor.fitting.rewards import Task

_MOST_ITERATIONS = 1_000
_DRAWS = (2**32, 2**32 + 1)
"""Seeds of further draws of random features; fits use smaller seeds."""
_RIDGES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)
_RATIO_RIDGE = 1e-3
"""λ of the ratios of visits; with a smaller one, noise makes them negative."""
_STABLE = 20
"""Number of successive rounds without a change of the policy after which iteration ends."""
_FEWEST_WALKS = 10
"""Smallest number of walks that judge."""
_MOST_NUMBERS = 500_000_000
"""Largest number of features that fitted Q iteration holds, 2 GB; more rows are left out."""
_DIVERGED = 1.5
"""Fitted Q iteration has diverged once |value| exceeds the largest possible value times this."""


@dataclasses.dataclass(frozen=True, eq=False)
class ActionValues:
    """Values of the parts of actions: the least of Σ_c b_c φ(s)ᵀ w[:, c] over pairs of φ and w.

    An action's value is the sum of the values of its parts (``Candidates``). For a box of four or
    more numbers, the sum of the smallest parts is at most the smallest sum. A policy therefore
    prefers actions about whose effect the pairs agree.

    Attributes:
        parts: Pairs of equations in φ and w [p, m_b].
        actions: Features b of the parts of actions, [g, c, m_b].
        constant: Added to the value of every action (``LeastSquares.centred``).
        limited: Whether a policy takes only actions that the data's policy supports.
    """

    parts: Sequence[tuple[LeastSquares, np.ndarray]]
    actions: np.ndarray
    constant: float
    limited: bool = True

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Compute the values at states [m, ...], [m, g, c]; groups share the constant evenly."""
        return self.without_constant(states) + np.float64(self.constant / len(self.actions))

    def without_constant(self, states: np.ndarray) -> np.ndarray:
        """Compute the values less ``constant``, which would round small differences away."""
        found = [
            np.tensordot(solution.pair_values(states, weights), self.actions, ([1], [2]))
            for solution, weights in self.parts
        ]
        return np.asarray(np.min(found, axis=0))


class Improvement:
    """Greedy policies on the values of the data's policy or of improved policies.

    Attributes:
        solution: The solved equations.
    """

    def __init__(self, solution: LeastSquares) -> None:
        self.solution = solution
        # The last ridge and its root: the next reward usually needs the same ridge.
        self._last: tuple[float, Array] | None = None

    def of_task(self, task: Task, improvements: int | None) -> ActionValues:
        """Return action values for a greedy policy; see ``SuccessorRepresentation.policy``."""
        rewards, solution = task.rewards, self.solution
        alike = policy_checks.describe_constant_rewards(solution, rewards)
        warn_user(
            alike if rewards.any() else "",  # The task warns itself if all rewards are 0.
            policy_checks.describe_action_only_rewards(solution, rewards),
            policy_checks.describe_untried_actions(solution, self.candidates.actions),
        )
        one = self.of_weights(task.weights, task.constant)
        no_choice = self.candidates.actions.shape[1] == 1
        return self.values(one, rewards, 1 if alike or no_choice else improvements)

    def values(
        self, one: ActionValues, rewards: np.ndarray, improvements: int | None
    ) -> ActionValues:
        """Improve on action values of the data's policy for rewards of all recorded rows, [N].

        Dense features use fitted Q iteration. Policy iteration would solve for the fixed point of
        each intermediate policy, which can be far off on the data of another policy. A policy of
        fitted Q iteration can be worse than that of one improvement. The nearest rows judge both
        (``NearestRows``).
        """
        solution = self.solution
        if improvements == 1:
            return one
        if not isinstance(solution.basis, UnitVectors):
            return self._best_on_rows(one, self.fitted_q_iteration(rewards), rewards)
        values, latest = one, None
        centred, constant = solution.centred(rewards)
        for _ in range((_MOST_ITERATIONS if improvements is None else improvements) - 1):
            greedy = self.greedy(solution.rows.next_observation, values)
            if latest is not None and (greedy == latest).all():
                break
            latest = greedy
            solve = solution.solver(solution.actions.weights(greedy))
            values = self.of_weights(solution.values(centred[:, None], solve)[:, :, 0], constant)
        return values

    def _best_on_rows(
        self, one: ActionValues, fitted: ActionValues, rewards: np.ndarray
    ) -> ActionValues:
        """Return the values of fitted Q iteration, or others whose policy the rows show better."""
        solution = self.solution
        rows = NearestRows(solution, solution.centred(rewards)[0])
        if len(rows.starts) < _FEWEST_WALKS:
            return fitted
        ((_, weights),) = one.parts
        behaviour = solution.behaviour(rows.starts)
        data = float(solution.valued(weights[:, :, None], rows.starts, behaviour).mean())
        appraise = functools.partial(self._appraise, rows=rows, data=data, constant=one.constant)
        of_fitted, of_one = appraise(fitted), appraise(one)
        # In a box, the row nearest to an unlikely action has another one.
        if self._limits and solution.actions.num_actions is not None:
            free = self.fitted_q_iteration(rewards, limited=False)
            of_free = appraise(free)
            if of_free.replaces_constrained(of_fitted, of_one):
                warn_user(policy_checks.describe_unlikely(of_free, of_fitted))
                return free
        if of_one.replaces_fitted(of_fitted):
            if not self._limits:  # Otherwise both policies stay near the data's.
                warn_user(policy_checks.describe_replaced(of_fitted, of_one))
            return one
        if of_fitted.overpromises:
            warn_user(policy_checks.describe_overpromised(of_fitted))
        # With several parts, features hold ratios so badly that true ones would be negative.
        if len(self.candidates.actions) == 1:
            warn_user(policy_checks.describe_departure(self.visit_ratios(fitted)))
        return fitted

    def _appraise(
        self, values: ActionValues, rows: NearestRows, data: float, constant: float
    ) -> policy_checks.Appraisal:
        """Appraise the greedy policy of action values by walks along the nearest rows."""
        returns = rows.returns(functools.partial(self.greedy, values=values))
        best = self._of_candidates(rows.starts, values).max(axis=2).sum(axis=1)
        promised = float(best.mean()) + values.constant - constant
        return policy_checks.Appraisal(returns, promised, data, constant)

    def of_weights(self, weights: np.ndarray, constant: float) -> ActionValues:
        """Return the values with weights [p, m_b] of φ, and a constant."""
        return ActionValues([(self.solution, weights)], self.candidates.weights, constant)

    @functools.cached_property
    def _members(self) -> list["Improvement"]:
        """These equations and, if features are random, the same in newly drawn features.

        Rows whose features would need more than 2 GB are left out, by a random draw.
        """
        thin, basis = self.solution, self.solution.basis
        draws = [basis.redrawn(seed) for seed in _DRAWS] if isinstance(basis, FourierBasis) else []
        most = _MOST_NUMBERS // (2 * basis.num_features * (1 + len(draws)))
        if len(thin.taken) > most:
            chosen = np.arange(len(thin.taken)) if thin.chosen is None else thin.chosen
            some = np.sort(np.random.default_rng(0).permutation(chosen)[:most])
            thin = dataclasses.replace(thin, chosen=some)
        first = self if thin is self.solution else Improvement(thin)
        return [first, *(Improvement(dataclasses.replace(thin, basis=draw)) for draw in draws)]

    @functools.cached_property
    def candidates(self) -> Candidates:
        """Actions to choose from."""
        return self.solution.actions.candidates(self.solution.rows.action)

    @functools.cached_property
    def _limits(self) -> bool:
        """Whether policies choose from likely actions alone.

        They do so for vectors and images if the data's policy depends on the state.
        """
        return self.solution.basis.num_states is None and not self.solution.steady

    def greedy(self, states: np.ndarray, values: ActionValues) -> np.ndarray:
        """Return the best action at states [m, ...], [m] or [m, k].

        Actions that the data do not support are left out. Their values are extrapolated or, for
        indices of states, 0, which would be the largest in a task with negative rewards.
        """
        return self.candidates.best(self._of_candidates(states, values))

    def _of_candidates(self, states: np.ndarray, values: ActionValues) -> np.ndarray:
        """Compute values less the constant, −∞ for actions left out, [m, g, c]."""
        found = values.without_constant(states)
        supported = self.supported(states, values.limited)
        return found if supported is None else np.where(supported, found, -np.inf)

    def supported(self, states: np.ndarray, limited: bool = True) -> np.ndarray | None:
        """Tell which candidates the data support at states, [m, g, c]; None if they are all.

        In indices of states these are the actions that rows took there; in others, those that the
        data's policy, if it depends on the state, takes with a tenth of the largest probability.
        They are all if a policy is not limited.
        """
        solution, candidates = self.solution, self.candidates
        if solution.tried is not None:
            return np.asarray(solution.tried[states][:, None, candidates.actions[0]])
        if not (self._limits and limited):
            return None
        return solution.actions.find_likely(candidates, solution.behaviour(states))

    def fitted_q_iteration(self, rewards: np.ndarray, limited: bool = True) -> ActionValues:
        """Return action values after rounds of regression on r + γ max_a Q(s', a).

        Fitted Q iteration of Ernst, Geurts & Wehenkel (2005). With random features, Q is the
        smallest of three regressions on independently drawn features, in the targets too. The
        regressions disagree where the data are few; the smallest of them does not lead a policy
        there (Fujimoto, van Hoof & Meger 2018 take it of two networks).

        If ``limited``, the maximum leaves out actions that the data do not support. Nothing follows
        an index of a state in which no row starts.

        Iteration stops once the greedy action has changed at less than 0.1 % of the rows in each of
        twenty successive rounds, or after n rounds with γⁿ ≤ 0.01. The maximum over actions picks
        the largest errors of a regression that extrapolates, and iteration would diverge. The
        values of the next states are therefore clipped to the smallest interval that contains 0 and
        all possible discounted sums of rewards. The ridge is the smallest of 10⁻⁵ … 10⁻² for which
        no |value| exceeds 1.5 times the larger bound of this interval. If no row terminates,
        rewards count from their mean (``LeastSquares.centred``). The ridge then shrinks values
        towards that of the mean reward instead of 0.

        Warns:
            FitWarning: If rows are left out, or a |value| exceeds 1.5 times the larger bound with
                every ridge.
        """
        members, solution = self._members, self._members[0].solution
        if solution is not self.solution:
            warn_user(describe_left_out(solution, "fitted Q iteration takes"))
        rewards, constant = solution.centred(rewards, np.mean)
        rows, reached = solution.rows, solution.rows.next_observation
        horizon = 1.0 / (1.0 - solution.discount)
        low, high = min(0.0, horizon * rewards.min()), max(0.0, horizon * rewards.max())
        rounds = math.ceil(math.log(0.01) / math.log(solution.discount))
        data = _Rows(
            features=[jnp.asarray(each.solution.features(rows.observation)) for each in members],
            following=[jnp.asarray(each.solution.features(reached)) for each in members],
            taken=jnp.asarray(solution.taken),
            rewards=jnp.asarray(solution.of_rows(rewards), jnp.float32),
            discounts=jnp.asarray(solution.discounts * solution.started(reached), jnp.float32),
            candidates=jnp.asarray(self.candidates.weights),
            supported=self.supported(reached, limited),
            products=jnp.asarray(solution.places),
            left_out=[each._left_out(rewards) for each in members],
            low=low,
            high=high,
        )
        for ridge in _RIDGES:
            roots = [each.root(ridge) for each in members]
            weights, most = _rounds(rounds, f"ridge {ridge:g}", roots, data)
            if float(most) <= _DIVERGED * max(-low, high):
                break
        else:
            line = (
                f"fitted Q iteration diverges: values of {float(most):.3g} where rewards allow "
                f"{max(-low, high):.3g}; try more data or fewer features"
            )
            warn_user(line)
        parts = [
            (member.solution, np.asarray(own).T)
            for member, own in zip(members, weights, strict=True)
        ]
        return ActionValues(parts, self.candidates.weights, constant, limited)

    def _left_out(self, rewards: np.ndarray) -> Array:
        """Compute what rewards of rows left out add to Σ ψ(s, a) r(s') over the rows, [q, 1]."""
        solution = self.solution
        if solution.chosen is None:
            return jnp.zeros((len(solution.gram), 1))
        own = solution.right_hand_side(solution.of_rows(rewards)[:, None])
        more = solution.rewarded(rewards) - own
        return jnp.asarray(len(solution.chosen) * more, jnp.float32)

    def visit_ratios(self, values: ActionValues) -> np.ndarray:
        """Estimate ratios of a greedy policy's discounted visits to the rows, [N]; dense features.

        Visits start in the states of the rows. The ratios w solve E[w (ψ(s, a) - γ c ψ_π(s'))] =
        (1 - γ) E[ψ_π(s)]. With w linear in ψ this is minimax weight learning (Uehara, Huang & Jiang
        2020, Section 4). True ratios are not negative. If the policy reaches states, or takes
        actions, that few rows have, solutions often are, in places.
        """
        solution, rows = self.solution, self.solution.rows
        begun, followed = (
            solution.actions.weights(self.greedy(states, values))
            for states in (rows.observation, rows.next_observation)
        )
        system = solution.gram - solution.followed(followed)
        system[np.diag_indices(len(system))] += _RATIO_RIDGE - solution.regularisation
        visits = solution.right_hand_side(np.ones((len(begun), 1)), begun)
        weights = solution.arranged(interruptible(np.linalg.solve, system.T, visits))
        found = solution.valued(weights, rows.observation, solution.taken)[:, 0]
        return np.asarray((1.0 - solution.discount) * found)

    def root(self, ridge: float) -> Array:
        """Compute R with RᵀR = (E[ψψᵀ] + λI)⁻¹ / N; R is better conditioned than the inverse."""
        if self._last is None or self._last[0] != ridge:
            solution = self.solution
            gram = solution.gram + (ridge - solution.regularisation) * np.eye(len(solution.gram))
            lower = interruptible(np.linalg.cholesky, gram)
            root = interruptible(np.linalg.solve, lower, np.eye(len(lower)))
            self._last = ridge, jnp.asarray(root / math.sqrt(len(solution.taken)), jnp.float32)
        return self._last[1]


class _Rows(NamedTuple):
    """The rows of fitted Q iteration, with a list entry for each draw of features.

    Attributes:
        features: φ(s), [N, p] each.
        following: φ(s'), [N, p] each.
        taken: Features b of the actions, [N, m_b].
        rewards: r, [N].
        discounts: γ, or 0 where nothing follows, [N].
        candidates: Features b of the parts of actions, [g, c, m_b].
        supported: Parts that the maximum over actions in s' takes, [N, g, c]; None is all.
        products: Places of the features ψ in b ⊗ φ, [q].
        left_out: What rewards of rows left out add to Σ ψ(s, a) r, [q, 1] each.
        low: Smallest possible value of a state.
        high: Largest possible value.
    """

    features: list[Array]
    following: list[Array]
    taken: Array
    rewards: Array
    discounts: Array
    candidates: Array
    supported: Any
    products: Array
    left_out: list[Array]
    low: float
    high: float


def _rounds(rounds: int, note: str, roots: list[Array], data: _Rows) -> tuple[list[Array], Array]:
    """Run fitted Q iteration; return each regression's weights [m_b, p] and the largest |value|.

    Few rounds run at a time, since Ctrl-C cannot interrupt a compiled program.
    """
    carry: Any = (
        0,
        [jnp.zeros((data.taken.shape[1], own.shape[1])) for own in data.features],
        jnp.full((len(data.rewards), len(data.candidates)), -1, jnp.argmax(data.rewards).dtype),
        0,
        jnp.zeros(()),
    )
    done, many = 0, 1
    with progress_bar("fitted Q iteration", total=rounds, unit="rounds", after=2.0) as advance:
        while done < rounds and int(carry[3]) < _STABLE:
            started, before = time.monotonic(), done
            carry = _fitted_q(carry, min(rounds, done + many), roots, data)
            done = int(carry[0])
            advance(done - before, note)
            if time.monotonic() - started < 0.2:
                many *= 2
    return carry[1], carry[4]


@jit
def _fitted_q(carry: Any, rounds: int, roots: list[Array], data: _Rows) -> Any:
    """Run fitted Q iteration until this many rounds are done."""

    def step(carry: Any) -> Any:
        count, weights, latest, stable, _ = carry
        each = [
            matmul(matmul(reached, own.T), parts.T)
            for reached, own in zip(data.following, weights, strict=True)
        ]
        values = jnp.min(jnp.stack(each), axis=0).reshape(-1, *data.candidates.shape[:2])
        if data.supported is not None:
            values = jnp.where(data.supported, values, -jnp.inf)
        greedy, best = jnp.argmax(values, axis=2), jnp.sum(jnp.max(values, axis=2), axis=1)
        targets = data.rewards + data.discounts * jnp.clip(best, data.low, data.high)
        moments = [
            matmul((data.taken * targets[:, None]).T, own).reshape(-1, 1)[data.products] + more
            for own, more in zip(data.features, data.left_out, strict=True)
        ]
        weights = [
            zero.at[data.products]
            .set(matmul(root.T, matmul(root, moment)))
            .reshape(data.taken.shape[1], -1)
            for root, moment, zero in zip(roots, moments, zeros, strict=True)
        ]
        changed = jnp.mean((greedy != latest).astype(jnp.float32))
        stable = jnp.where(changed < 1e-3, stable + 1, 0)
        return count + 1, weights, greedy, stable, jnp.max(jnp.abs(best))

    parts = data.candidates.reshape(-1, data.taken.shape[1])
    zeros = [jnp.zeros((data.taken.shape[1] * own.shape[1], 1)) for own in data.features]
    return lax.while_loop(lambda carry: (carry[0] < rounds) & (carry[3] < _STABLE), step, carry)
