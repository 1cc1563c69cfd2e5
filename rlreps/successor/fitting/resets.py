"""Find resets: rows in which a vector environment starts an episode (next-step autoreset).

A reset starts in the state in which the row before ended an episode, and goes to the first state of
the next episode, where other rows rarely go from there: it jumps. ``Transitions`` documents when
rows are taken for resets. ``states`` are observations s and next observations s', [N, ...] each.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from rlreps.numerics import hash_rows, rows_equal
from rlreps.successor.fitting.regressions import random_signs

FEWEST_COMPARED, MOST_COMPARED = 100, 5_000
"""Smallest and largest number of other rows with which rows are compared."""

_RESTARTED = 0.75
"""Least share of the terminations that resets follow. The others may end the record of a copy."""
_BEGIN = 1 / 3  # Rows are resets if more than this share of them reach the record's first state.
_VISITS = 5  # Terminal states show if each ends at least so many episodes (mean).
_LEFT_BY_OTHERS = 0.05  # Other rows may start in this share of the terminal states, at most.

_SIGNS = 16  # Number of random signs of an index.
_PERMUTATIONS = 199  # Actions matter if they explain more than in any of so many permutations.
_FEWEST_JUMPS = 3  # Fewer marked rows are not compared with others.
_RECURRING = 0.5  # Indices jump if their pairs (s, s') recur less than so often as others' pairs.
_FAR = 0.99  # Vectors jump if their median error is above this quantile of others' errors.
_MOST_COORDINATES = 300  # Only so many coordinates of an observation are compared.


def find_resets(
    autoreset: bool | None,
    states: Sequence[np.ndarray],
    action: np.ndarray,
    same: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
) -> np.ndarray:
    """Tell which rows are resets, [N]; ``autoreset`` is whether the record has any, if known.

    ``same`` [N − 1] tells whether the row after a row starts where the row ended.
    """
    ends = terminated | truncated
    candidates = np.append(False, same & ends[:-1])
    if autoreset is None:
        ends_jump, autoreset = jumps_at_ends(states, ends, candidates[1:])
        after = candidates & np.append(False, terminated[:-1])
        most = after.sum() >= _RESTARTED * terminated[:-1].sum()
        if autoreset is None and not ends_jump and after.any() and not terminated[after].any():
            last, begun = (each[after] for each in states)
            others, first = states[0][~(ends | candidates)], states[0][:1]
            again = rows_equal(begun, first).mean() > _BEGIN and not rows_equal(last, first).any()
            autoreset = again or _are_terminal(last, others, first)
            if len(others) < FEWEST_COMPARED:  # Episodes may go on where all of them start.
                autoreset = not rows_equal(last, first).all()
        matter = autoreset and _actions_matter(states[1][candidates], action[candidates])
        autoreset = autoreset and most and not matter
    # No reset terminates.
    resets = candidates & ~terminated
    # A reset also ends no episode. If a reset is cut, the record of another copy starts after it.
    resets[1:] &= ~resets[:-1]
    return np.asarray(resets & bool(autoreset))


def has_resets(
    seen: np.ndarray, action: np.ndarray, ends: np.ndarray, terminated: np.ndarray
) -> bool:
    """Tell whether the rows after ends are resets if every row leads to the next row's observation.

    They are if they jump and the ends before them do not. If observations are indices, they also
    are if hardly any other rows leave the terminal states.

    Args:
        seen: Observations, [N] or [N + 1, ...].
        action: [N] or [N, k].
        ends: Whether a row ends an episode, [N].
        terminated: Whether a row reaches a terminal state, [N].
    """
    before, reached = seen[:-1], seen[1:]
    ends, terminated = ends[: len(before)], terminated[: len(before)]
    after = np.append(False, ends[:-1])
    ends_jump, next_rows_jump = jumps_at_ends((before, reached), ends, ends[:-1])
    if ends_jump is None:
        # Indices that are only reached at ends may be starts as well as terminal states.
        ends_jump = are_indices(seen)
    resets = bool(next_rows_jump and not ends_jump)
    if not resets and are_indices(seen):
        resets = _are_terminal(reached[:-1][terminated[:-1]], before[~after], seen[:1])
    return resets and not _actions_matter(reached[after], action[: len(before)][after])


def _actions_matter(reached: np.ndarray, action: np.ndarray) -> bool:
    """Tell whether rows reach other observations [m, ...] with other actions; resets do not."""
    rng, reached, action = np.random.default_rng(0), reached[:MOST_COMPARED], action[:MOST_COMPARED]
    if len(reached) < _FEWEST_JUMPS or action.dtype.kind not in "iubf":
        return False
    if are_indices(reached):
        _, place = np.unique(reached, return_inverse=True)
        values = random_signs(place, _SIGNS, rng)
    else:
        values = few_coordinates(reached).astype(np.float64)
    deviation = np.where(values.std(axis=0) > 0.0, values.std(axis=0), np.inf)
    values = (values - values.mean(axis=0)) / deviation
    if action.dtype.kind == "f":
        numbers = action.reshape(len(action), -1).astype(np.float64)
        columns = csr_array(np.linalg.qr(numbers - numbers.mean(axis=0))[0].T)
    else:
        _, kind, counts = np.unique(action, axis=0, return_inverse=True, return_counts=True)
        rows = np.arange(len(action))
        columns = csr_array((counts[kind] ** -0.5, (kind, rows)))  # [actions, m]

    def explained(values: np.ndarray) -> float:
        return float(np.square(columns @ values).sum())

    own = explained(values)
    return all(explained(rng.permutation(values)) < own for _ in range(_PERMUTATIONS))


def _are_terminal(last: np.ndarray, others: np.ndarray, first: np.ndarray) -> bool:
    """Tell whether the observations after terminations [m, ...] are those of terminal states.

    They recur, and hardly any ``others`` [n, ...], where other rows start, are equal to them. The
    record's ``first`` one [1, ...] is a start, not a terminal state.
    """
    ends, starts, start = map(hash_rows, (last, others, first))
    few = len(np.unique(ends)) * _VISITS <= len(ends) > 0
    return few and start[0] not in ends and bool(np.isin(ends, starts).mean() <= _LEFT_BY_OTHERS)


def jumps_at_ends(
    states: Sequence[np.ndarray], ends: np.ndarray, followed: np.ndarray
) -> tuple[bool | None, bool | None]:
    """Tell whether rows that end episodes jump, and whether the rows after them do; see ``jump``.

    ``followed`` [N − 1] tells whether a row of ``ends`` [N] leads to the start of the next row.
    """
    before, after = np.append(followed, False), np.append(False, followed)
    return jump(states, before, ~(ends | after)), jump(states, after, ~(ends | after))


def jump(states: Sequence[np.ndarray], marked: np.ndarray, others: np.ndarray) -> bool | None:
    """Tell whether marked rows, [N], go where other rows do not; None if the record cannot show it.

    For indices, the pairs (s, s') of most of them do not occur in other rows, which start in s and
    reach s' as well. For other observations, a linear regression on other rows predicts the change
    s' − s of a coordinate worse there than it predicts 99 % of the rows left out of it. The record
    cannot show jumps if its error does not grow when the s' of the marked rows are shuffled.
    """
    if marked.sum() < _FEWEST_JUMPS or others.sum() < FEWEST_COMPARED:
        return None
    before, after = states
    if are_indices(before):
        pairs = before * (np.int64(max(before.max(), after.max())) + 1) + after
        left, reached, recurs = (
            _occurs_elsewhere(values, others) for values in (before, after, pairs)
        )
        comparable = left & reached
        if (marked & comparable).sum() < _FEWEST_JUMPS:
            return None
        usual = recurs[others & comparable].mean()
        return bool(recurs[marked & comparable].mean() < _RECURRING * usual)
    rest, rows = np.flatnonzero(others), np.flatnonzero(marked)

    def are_far(reached: np.ndarray) -> bool:
        usual, errors = errors_of_steps(states, rest, rows, reached, _FAR)
        return bool(np.median(errors) > np.quantile(usual, _FAR))

    if are_far(rows):
        return True
    return False if are_far(np.roll(rows, len(rows) // 2)) else None


def errors_of_steps(
    states: Sequence[np.ndarray],
    others: np.ndarray,
    left: np.ndarray,
    reached: np.ndarray,
    share: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Regress the change s' − s linearly on s in other rows; return errors of others and of steps.

    The steps go from s of the rows ``left`` to s' of the rows ``reached``. An error is the largest
    over coordinates, in units of a quantile of the errors in other rows. Every second one of at
    most 5,000 other rows has an error; the regression has the rest.
    """
    before, after = map(few_coordinates, states)
    others = others[:: -(-len(others) // MOST_COMPARED)]
    fitted, tested = others[::2], others[1::2]
    start = before[fitted].astype(np.float64)
    change = after[fitted] - start
    mean, drift = start.mean(axis=0), change.mean(axis=0)
    slopes = np.linalg.lstsq(start - mean, change - drift, rcond=1e-6)[0]

    def errors(left: np.ndarray, reached: np.ndarray) -> np.ndarray:
        start = before[left].astype(np.float64)
        return np.asarray(np.abs(after[reached] - start - drift - (start - mean) @ slopes))

    usual = errors(tested, tested)
    scale = np.maximum(np.quantile(usual, share, axis=0), np.finfo(np.float32).tiny)
    return (usual / scale).max(axis=1), (errors(left, reached) / scale).max(axis=1)


def _occurs_elsewhere(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Tell whether another row of those in ``among`` has the value of a row, [N]."""
    _, kind = np.unique(values, return_inverse=True)
    return np.asarray(np.bincount(kind[among], minlength=len(kind))[kind] > among)


def are_indices(states: np.ndarray) -> bool:
    """Tell whether observations are indices of states."""
    return states.ndim == 1 and states.dtype.kind in "iu"


def few_coordinates(states: np.ndarray) -> np.ndarray:
    """Return some coordinates of observations [N, ...], evenly spaced, [N, c]."""
    flat = states.reshape(len(states), -1)
    return flat[:, :: -(-flat.shape[1] // _MOST_COORDINATES)]
