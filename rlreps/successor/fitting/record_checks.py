"""Tell whether rows of a record belong together, by how well they predict the next observation.

A row is compared with its neighbours: their actions, the observation before, and the half of the
record. If the next observation depends on state and action alone, none of them helps to predict it,
but the action after, which a policy may choose by the next observation.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from rlreps.numerics import hash_rows
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, FourierBasis
from rlreps.successor.fitting.observation_checks import MOST_TESTED_ROWS, regress, unexplained
from rlreps.successor.fitting.transitions import Transitions

_FEWEST_ROWS = 1_000
_REMEMBERING = 100
"""Number of features of the state beside which neighbours are judged; fewer with many actions."""
_MOST_FEATURES = 1_000
"""Largest number of features of state and action together; each half of the record has its own."""
_FEWEST_FEATURES = 50
"""With fewer features of the state, the row before may tell what they miss."""
_ROWS_A_FEATURE = 12
"""Smallest number of rows for each feature of state and action."""
_STILL = 1e-5
"""Standard deviation of the change of a coordinate, in units of the axes, that counts as none."""
_MOST_PARTS = 50
"""Largest number of features of an action."""
_MOST_COUNTED_ROWS = 100_000
_CUMULANTS = 16

_LEFT = 0.01
"""Share of variance below which nothing is left to explain."""
_HIDING = 0.25
"""Share that state and action leave if observations may hide a part of the state."""
_MEMORY = 0.5
"""Share of the error of state and action that the row before leaves if they hide something."""
_USELESS = 0.97
"""Share of the error without actions that the row's own action leaves if it tells nothing."""
_MORE_THAN_POLICY = 1.5
"""A policy that chooses the action after by the next observation explains a share of the variance
of actions. The action then explains hardly more of the next observation than this share."""

_PERMUTATIONS, _BY_CHANCE = 19, 3
"""Actions tell nothing if more than the second number of so many permutations explain more."""
_FOLLOWED = 0.5
"""Actions are not judged if the state leaves a smaller share of the variance of one of their
features."""
_COARSE, _MOST_COORDINATES = 20, 5
"""Numbers of features and of coordinates that multiply actions in this comparison."""

_FEWEST_STRETCH, _STRETCHES = 100, 20
"""A stretch is one of so many equal parts of the record, and has at least a hundred rows."""
_DIFFERENT = 0.25
"""Share of different rows in a stretch; with fewer, the world itself may repeat it."""
_ASKED = 50
"""Number of stretches of which different rows are counted."""
_NARROW = 100
"""Largest number of numbers of which a row is hashed by multiplication."""
_REPEATED = 0.1
"""Share of the rows in stretches that occur twice, from which held-out rows are copies."""


@dataclasses.dataclass(frozen=True)
class _Judge:
    """Errors of predictions of the next observation.

    Attributes:
        left: Predictor beside the state → share of the variance that it leaves. ``policy`` is the
            share of the variance of the actions of the row after that its state leaves.
        elsewhere: Share of the smallest error that a neighbour's action leaves if actions are in
            other rows.
        changed: Share of the error that is left if each half of the record has its own regression.
        idle: Whether permuted actions predict the next observation as well.
    """

    left: Callable[[str], float]
    elsewhere: float
    changed: float
    idle: Callable[[], bool]


def describe_record(data: Transitions, basis: Basis, actions: ActionBasis, seed: int) -> str:
    """Say what is wrong with a record; "" if nothing is found.

    Records of images, and of vectors with many actions, are searched for copies alone. The seed
    decides the rows and random functions of the regressions.
    """
    if copies := _describe_copies(data):
        return copies
    # The rows before and after are in the same episode.
    rows = np.flatnonzero(~data.ends[:-2] & ~data.ends[1:-1]) + 1
    if len(rows) < _FEWEST_ROWS:
        return ""
    generator = np.random.default_rng(seed)
    if isinstance(basis, FourierBasis) and actions.size <= _MOST_PARTS:
        rows = generator.permutation(rows)[:MOST_TESTED_ROWS]
        return _describe_left(_regressed(data, basis, actions, rows, seed))
    if data.num_states is not None and not data.continuous:
        rows = np.sort(generator.permutation(rows)[:_MOST_COUNTED_ROWS])
        return _describe_left(_counted(data, rows, generator))
    return ""


def _describe_left(judge: _Judge) -> str:
    """Say which neighbours predict the next observation better than state and action."""
    left = judge.left
    own, before = left("own"), left("before")
    none, after = left("none"), np.inf
    least = min(own, none)
    if own > _USELESS * none and least > _LEFT:
        told = 1.0 - left("after") / least
        after = left("after") if told > _MORE_THAN_POLICY * (1.0 - left("policy")) else np.inf
    if own > _HIDING and left("memory") < _MEMORY * min(own, before):
        return (
            "the row before a row predicts the next observation better: observations lack a part "
            "of the state, such as speeds; stack two frames, or add what is missing"
        )
    if least > _LEFT and min(before, after) < judge.elsewhere * least:
        row = "before" if before < after else "after"
        return (
            f"the action of the row {row} predicts the next observation better than the row's own: "
            "actions are recorded in other rows, or act later; move them, or add the last action "
            "to the observation"
        )
    if own > _LEFT and left("half") < judge.changed * own:
        return (
            "the two halves of the record predict different next observations: the environment, or "
            "what an action means, changed; fit the parts one by one"
        )
    if judge.idle():
        return (
            "the actions tell nothing measurable of the next observation: they belong to other "
            "rows, or have hardly any effect, so that no policy is better than another"
        )
    return ""


def few_features(
    basis: FourierBasis, observation: np.ndarray, count: int, seed: int
) -> tuple[FourierBasis, np.ndarray]:
    """Draw few random Fourier features, [·, count], and axes of comparable numbers, [·, k].

    Few features have a wide kernel, whatever the width of those of ``basis``.
    """
    axes = basis.axes.astype(np.float64)
    along = observation.reshape(len(observation), -1) @ axes
    axes /= along.std(axis=0).max() * np.sqrt(axes.shape[1])
    return FourierBasis.of(observation, count, 1.0, seed, axes), axes


def _regressed(
    data: Transitions, basis: FourierBasis, actions: ActionBasis, rows: np.ndarray, seed: int
) -> _Judge:
    """Regress the change of observation on features of the state, beside another predictor."""
    # Each half of half of the rows has a regression of its own.
    most = min(_MOST_FEATURES, len(rows) // _ROWS_A_FEATURE)
    count = max(2, min(_REMEMBERING, most // actions.size))
    few, axes = few_features(basis, data.observation[rows], count, seed)
    states = (data.observation[rows - 1], data.observation[rows], data.next_observation[rows])
    before, now, then = (each.reshape(len(rows), -1) @ axes for each in states)
    moved = then - now
    moves = moved.std(axis=0) > _STILL
    moved = moved[:, moves] if moves.any() else np.zeros((len(rows), 1))
    features, reached = (
        few.apply(each[rows]) for each in (data.observation, data.next_observation)
    )
    previous, taken, following = (actions.weights(data.action[rows + step]) for step in (-1, 0, 1))
    late, rng = (rows > np.median(rows))[:, None], np.random.default_rng(seed)
    beside = {
        "none": np.ones((len(rows), 1)),
        "before": previous,
        "own": taken,
        "after": following,
        "memory": taken,
        "half": np.column_stack([taken * late, taken * ~late]),
    }

    def left(name: str) -> float:
        if name == "memory" and count < _FEWEST_FEATURES:
            return np.inf
        if name == "policy":
            varied = following[:, following.std(axis=0) > 0.0]
            return float(unexplained(reached, varied).min(initial=np.inf))
        more = [before, previous] if name == "memory" else []
        pairs = np.einsum("np,nc->npc", features, beside[name]).reshape(len(rows), -1)
        return float(unexplained(np.column_stack([pairs, now, *more]), moved).mean())

    def idle() -> bool:
        state = np.column_stack([features[:, :_COARSE], now])
        surprise = moved - state @ regress(state, moved)
        near = np.column_stack([np.ones(len(rows)), now[:, :_MOST_COORDINATES]])

        def unexplained_by(acts: np.ndarray) -> float:
            pairs = np.einsum("na,nc->nac", acts, near).reshape(len(rows), -1)
            return float(np.square(surprise - pairs @ regress(pairs, surprise)).sum())

        # An action that follows from the state adds nothing to a linear prediction.
        followed = unexplained(features, taken[:, taken.std(axis=0) > 0.0])
        if followed.min(initial=1.0) < _FOLLOWED:
            return False
        return _is_idle(unexplained_by, taken, rng.permutation)

    return _Judge(functools.cache(left), elsewhere=0.75, changed=0.5, idle=idle)


def _counted(data: Transitions, rows: np.ndarray, generator: np.random.Generator) -> _Judge:
    """Predict random signs of the next state by their means in other rows of one kind."""
    states, reached = np.unique(data.next_observation[rows], return_inverse=True)
    signs = np.sign(generator.normal(size=(len(states), _CUMULANTS)))[reached]
    before, own, after = (data.action[rows + step] for step in (-1, 0, 1))
    kinds_of_actions = np.sign(generator.normal(size=(int(after.max()) + 1, _CUMULANTS)))
    state, halves = data.observation[rows], rows > np.median(rows)
    beside = {
        "own": (own,),
        "before": (before,),
        "after": (after,),
        "half": (own, halves),
        "memory": (own, before, data.observation[rows - 1]),
    }

    def means(targets: np.ndarray, prior: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        """Return the mean of the other rows of a kind and of a prior that counts as one row."""
        kinds = np.zeros(len(rows), np.int64)
        for column in columns:
            kinds = kinds * (int(column.max()) + 1) + column
        _, kind, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        sums = np.stack([np.bincount(kind, each) for each in targets.T], axis=1)
        return np.asarray((sums[kind] - targets + prior) / counts[kind, None])

    of_state = means(signs, signs.mean(axis=0), state)

    def left(name: str) -> float:
        targets = signs
        if name == "policy":
            targets = kinds_of_actions[after]
            found = means(targets, targets.mean(axis=0), reached)
        else:
            found = of_state if name == "none" else means(signs, of_state, state, *beside[name])
        variance = max(float(targets.var(axis=0).mean()), 1e-12)
        return float(np.square(targets - found).mean() / variance)

    def unexplained_by(acts: np.ndarray) -> float:
        return float(np.square(signs - means(signs, of_state, state, acts)).sum())

    def permute(acts: np.ndarray) -> np.ndarray:
        """Permute actions among the rows of a state."""
        permuted = np.empty_like(acts)
        chance = generator.random(len(acts))
        permuted[np.argsort(state, kind="stable")] = acts[np.lexsort((chance, state))]
        return permuted

    def idle() -> bool:
        return _is_idle(unexplained_by, own, permute)

    return _Judge(functools.cache(left), elsewhere=0.9, changed=0.75, idle=idle)


def _is_idle(
    unexplained_by: Callable[[np.ndarray], float],
    acts: np.ndarray,
    permute: Callable[[np.ndarray], np.ndarray],
) -> bool:
    """Tell whether permutations of the actions often leave less unexplained than the actions do."""
    own = unexplained_by(acts)
    return sum(unexplained_by(permute(acts)) < own for _ in range(_PERMUTATIONS)) > _BY_CHANCE


def _hashed(column: np.ndarray) -> np.ndarray:
    """Hash each row of a column [N, ...], [N] (uint64)."""
    rows = np.ascontiguousarray(column).reshape(len(column), -1)
    if rows.shape[1] > _NARROW:
        return hash_rows(column).view(np.uint64)
    words = rows.view(f"u{rows.itemsize}").astype(np.uint64)
    factors = np.random.default_rng(0).integers(2**64, size=words.shape[1], dtype=np.uint64)
    return np.asarray((words * (factors | np.uint64(1))).sum(axis=1))


def _describe_copies(data: Transitions) -> str:
    """Say how many rows lie in stretches that occur more than once."""
    size = max(_FEWEST_STRETCH, len(data) // _STRETCHES)
    if len(data) < 2 * size:
        return ""
    columns = (data.observation, data.action, data.next_observation)
    # Equal stretches have equal sums Σ_i h_{t+i} Bⁱ modulo 2⁶⁴, which prefix sums give.
    base = np.uint64(6364136223846793005)
    with np.errstate(over="ignore"):
        factors = np.array([[1], [3], [5]], np.uint64)
        hashes = (factors * np.stack([_hashed(column) for column in columns])).sum(axis=0)
        powers = np.cumprod(np.append(np.uint64(1), np.full(len(data), base)))
        sums = np.append(np.uint64(0), np.cumsum(hashes * powers[:-1]))
        inverse = np.uint64(pow(int(base), -1, 2**64))
        undone = np.cumprod(np.append(np.uint64(1), np.full(len(data), inverse)))
        stretches = (sums[size:] - sums[:-size]) * undone[: len(data) - size + 1]
    _, kind, counts = np.unique(stretches, return_inverse=True, return_counts=True)
    again = np.zeros(len(data) + 1, np.int64)
    starts = np.flatnonzero(counts[kind] > 1)
    np.add.at(again, starts, 1)
    np.add.at(again, starts + size, -1)
    share = float((np.cumsum(again[:-1]) > 0).mean())
    if share <= _REPEATED:
        return ""
    few = np.random.default_rng(0).permutation(starts)[:_ASKED]
    different = [len(np.unique(hashes[start : start + size])) / size for start in few]
    if np.median(different) < _DIFFERENT:
        return ""
    return (
        f"{share:.0%} of the rows are in stretches of {size:,} rows that occur more than once: "
        "the quality is measured on copies of fitted rows; leave out what was joined twice"
    )
