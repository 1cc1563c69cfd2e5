"""Tell whether a record's rows are in order, and whether its ends are what they are said to be."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.spatial.distance import cdist

_AUTORESETS = 0.75
"""Rows that start in terminal states are resets if this share of the terminations has such a row.
The other terminations are the last rows of copies of an environment."""

_FEWEST_JUMPS, _FEWEST_OTHERS = 3, 100
"""Smallest numbers of rows of which is told that they go where others do not, and of the others."""
_FAR = 0.99
"""Quantile of the distances of other rows that the median of such rows exceeds."""
_UNSEEN = 0.5
"""Share of pairs (s, s') seen in other rows, relative to other rows, below which such rows lie."""
_MOST_COMPARED = 5_000
"""Largest number of other rows with which such rows are compared."""
_MOST_COORDINATES = 300
"""Largest number of coordinates of observations that are compared, and predict their change."""
_STRAYS, _VISITS = 0.05, 5
"""Largest share of terminal states that other rows leave, and smallest mean number of terminations
in an index, where the rows after terminations are told to be resets."""
_FOLLOWED = 0.5
"""Share of the ends that lead to the next row's start if a record shows no last observations."""

_FEWEST_MARKED = 10
"""Smallest number of rows that are taken for starts of episodes, if fewer ends are marked."""
_MOST_SOUGHT = 50_000
"""Number of rows among which they are sought, from the first."""
_USUAL, _LONG = 0.9, 4
"""A row goes far if its error is so many times this quantile of the errors."""
_ALIKE = 0.5
"""Spread of the states where such rows go, relative to all states, if episodes start there."""

_FEWEST_LIMITED = 10
"""Smallest number of episodes that a time limit terminates, and smallest time limit."""
_FEWEST_CUT = 20
"""Smallest number of cuts before a time limit of which is told that they are terminations."""
_MOST_ASKED = 50
"""Largest number of ends whose nearest rows are sought."""
_INSIDE = 0.75
"""Share of ends in states in which other rows go on if a time limit is their cause."""
_OUTSIDE, _CHANCE = 0.4, 5
"""Share of cuts in states in which no others go on if they are terminations: this, and so many
times the share that chance gives, or half of the way from chance to 1."""

_MOST_COPIES, _IN_TURN, _IN_ORDER = 64, 0.8, 0.5
"""Rows of at most so many environments take turns if more than the second share of them go on in
the row as many rows later, and less than the third share in the next row."""
_ASKED = 1_000
"""Number of rows that are asked where they go on."""


def describe_turns(states: Sequence[np.ndarray]) -> str:
    """Say how many environments' rows take turns, and how to bring them into order; "" if none."""
    copies = _count_copies(states)
    if not copies:
        return ""
    over = len(states[0]) % copies
    return (
        f"rows of {copies} environments take turns: give the rows of one after those of another, "
        f"column.reshape(-1, {copies}, *column.shape[1:]).swapaxes(0, 1).reshape(column.shape)"
        + (f", without the last {over} rows" if over else "")
    )


def _count_copies(states: Sequence[np.ndarray]) -> int:
    """Return the number of environments whose rows take turns; 0 if rows follow each other."""
    before, after = states
    rows = np.arange(0, len(before) - _MOST_COPIES, max(1, len(before) // _ASKED))
    if len(rows) < _FEWEST_OTHERS:
        return 0

    def share(step: int) -> float:
        same = before[rows + step] == after[rows]
        return float(same.reshape(len(rows), -1).all(axis=1).mean())

    if share(1) >= _IN_ORDER:
        return 0
    return next((step for step in range(2, _MOST_COPIES + 1) if share(step) > _IN_TURN), 0)


def find_resets(
    autoreset: bool | None,
    states: Sequence[np.ndarray],
    same: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
) -> np.ndarray:
    """Tell which rows start an episode in a vector environment; see ``Transitions``, [N].

    ``same`` [N − 1] tells whether the row after a row starts where the row ended.
    """
    ends = terminated | truncated
    following = np.append(False, same & ends[:-1])
    if autoreset is None:
        after = np.append(False, same & terminated[:-1])
        few = after.sum() < max(1.0, _AUTORESETS * terminated[:-1].sum())
        tour = (states[0][after] == states[0][0]).all()
        ordinary = _jump(states, after, ~(ends | following)) is False
        unlike = few or tour or ordinary or (terminated & after).any()
        autoreset = _jump(states, following, ~(ends | following)) or not unlike
    # No reset terminates.
    found = following & ~terminated
    # A reset also ends no episode. If a reset is cut, the record of another copy starts after it.
    found[1:] &= ~found[:-1]
    return np.asarray(found & bool(autoreset))


def describe_ends(
    states: Sequence[np.ndarray], terminated: np.ndarray, truncated: np.ndarray
) -> Iterator[str]:
    """Say what is wrong with the ends of episodes."""
    ends = terminated | truncated
    before, after = states
    followed, ended = ends[:-1].copy(), np.flatnonzero(ends[:-1])
    axes = tuple(range(1, before.ndim))
    followed[ended] = (after[ended] == before[ended + 1]).all(axis=axes)
    if ends[:-1].sum() < _FEWEST_MARKED and (count := _count_starts(states)):
        yield (
            f"{count:,} rows inside episodes go far, and to states that are alike: if episodes "
            "start in these states, and not a part of an episode, their ends are not marked "
            "(terminated, truncated)"
        )
    lead_on = followed.sum() >= _FOLLOWED * len(ended)
    early, late = _find_jumps(states, ends, followed) if lead_on else (None, None)
    if early and not late:
        yield (
            "the rows that end episodes go to the first observation of the next episode, where "
            "other rows do not go: give the last observation of the episode (info['final_obs'] "
            "with same-step autoreset), unless the game goes on there, as after a lost life; where "
            "it is lost, leave out the rows that are cut"
        )
        return
    lasts = np.flatnonzero(ends)
    lengths = np.diff(lasts, prepend=-1)
    longest = int(lengths.max())
    if longest < _FEWEST_LIMITED:
        return
    limited = lasts[terminated[lasts] & (lengths == longest)]
    most = len(limited) > 0.5 * (lengths == longest).sum()
    if most and len(limited) >= _FEWEST_LIMITED and _going_on(states, limited, ends)[0] > _INSIDE:
        yield (
            f"{len(limited):,} episodes terminate after exactly {longest:,} rows, in states like "
            "those in which others go on: if a time limit ended them, mark it in truncated instead"
        )
    cut = lasts[truncated[lasts] & (lengths < longest)]
    if len(cut) >= _FEWEST_CUT:
        inside, chance = _going_on(states, cut, ends)
        if 1.0 - inside > max(_OUTSIDE, min(_CHANCE * chance, 0.5 + 0.5 * chance)):
            yield (
                f"{1.0 - inside:.0%} of the cuts reach states in which no other rows go on, so "
                "that values there are guesses: if episodes end there for good, terminated must "
                "mark them instead of truncated"
            )


def are_resets(seen: np.ndarray, ends: np.ndarray, terminated: np.ndarray) -> bool:
    """Tell whether the rows after ends are resets if every row leads to the next row's observation.

    Resets go where no other rows go, and the ends before them do not. Terminal states tell too if
    they are indices: only resets leave them.

    Args:
        seen: Observations, [N] or [N + 1, ...].
        ends: Whether a row ends an episode, [N].
        terminated: Whether a row reaches a terminal state, [N].
    """
    before, reached = seen[:-1], seen[1:]
    ends, terminated = ends[: len(before)], terminated[: len(before)]
    early, late = _find_jumps((before, reached), ends, ends[:-1])
    # Indices that are only reached at ends may be starts as well as terminal states.
    if late and not (_are_indices(seen) if early is None else early):
        return True
    if not _are_indices(seen):
        return False
    last = reached[:-1][terminated[:-1]]
    few = len(np.unique(last)) * _VISITS <= len(last) > 0
    inner = before[~np.append(False, ends[:-1])]
    # The record's first state is a start, not a terminal state.
    return few and seen[0] not in last and bool(np.isin(last, inner).mean() <= _STRAYS)


def _find_jumps(
    states: Sequence[np.ndarray], ends: np.ndarray, followed: np.ndarray
) -> tuple[bool | None, bool | None]:
    """Tell whether rows that end episodes go where no other rows do, and the rows after them.

    ``followed`` [N − 1] tells whether a row of ``ends`` [N] leads to the start of the next row.
    None stands for what the record does not show.
    """
    before, after = np.append(followed, False), np.append(False, followed)
    return _jump(states, before, ~(ends | after)), _jump(states, after, ~(ends | after))


def _jump(states: Sequence[np.ndarray], marked: np.ndarray, others: np.ndarray) -> bool | None:
    """Tell whether the rows that are marked, [N], go where no others do; None if unknown.

    For indices, the pairs (s, s') of most of them do not occur in other rows, which start in s and
    reach s' as well. For other observations, a linear regression on other rows predicts the change
    s' − s of a coordinate worse there than it predicts 99 % of the rows left out of it. Nothing is
    known if it would not tell the rows from one another, with their s' exchanged.
    """
    if marked.sum() < _FEWEST_JUMPS or others.sum() < _FEWEST_OTHERS:
        return None
    before, after = states
    if _are_indices(before):
        pairs = before * (np.int64(max(before.max(), after.max())) + 1) + after
        left, reached, seen = (
            _occurs_elsewhere(values, others) for values in (before, after, pairs)
        )
        known = left & reached
        if (marked & known).sum() < _FEWEST_JUMPS:
            return None
        return bool(seen[marked & known].mean() < _UNSEEN * seen[others & known].mean())
    rest, rows = np.flatnonzero(others), np.flatnonzero(marked)
    for reached in (rows, np.roll(rows, len(rows) // 2)):
        usual, errors = _surprises(states, rest, rows, reached, _FAR)
        if np.median(errors) > np.quantile(usual, _FAR):
            return reached is rows
    return None


def _surprises(
    states: Sequence[np.ndarray],
    others: np.ndarray,
    asked: np.ndarray,
    reached: np.ndarray,
    share: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Regress the change s' − s linearly on s in other rows; return errors there and elsewhere.

    Elsewhere are the steps from s of the rows ``asked`` to s' of the rows ``reached``. An error is
    the largest over coordinates, in units of a quantile of the errors in other rows. Every second
    one of at most 5,000 other rows has an error; the regression has the rest.
    """
    before, after = map(_few_coordinates, states)
    others = others[:: -(-len(others) // _MOST_COMPARED)]
    steps = ((others[::2], others[::2]), (others[1::2], others[1::2]), (asked, reached))
    seen = [before[rows].astype(np.float64) for rows, _ in steps]
    changes = [after[rows] - start for (_, rows), start in zip(steps, seen, strict=True)]
    mean, drift = seen[0].mean(axis=0), changes[0].mean(axis=0)
    slopes = np.linalg.lstsq(seen[0] - mean, changes[0] - drift, rcond=1e-6)[0]
    _, usual, errors = (
        np.abs(change - drift - (start - mean) @ slopes)
        for change, start in zip(changes, seen, strict=True)
    )
    scale = np.maximum(np.quantile(usual, share, axis=0), np.finfo(np.float32).tiny)
    return (usual / scale).max(axis=1), (errors / scale).max(axis=1)


def _count_starts(states: Sequence[np.ndarray]) -> int:
    """Count rows that go far, to states that are more alike than others; 0 if they are few."""
    before, after = states
    rows = np.arange(len(before))
    if len(rows) < _FEWEST_OTHERS or before.ndim != 2:
        return 0
    sought = rows[:_MOST_SOUGHT]
    usual, errors = _surprises(states, rows, sought, sought, _USUAL)
    after = _few_coordinates(after[sought]).astype(np.float64)
    there = after[errors > _LONG * np.quantile(usual, _USUAL)]
    if len(there) < _FEWEST_MARKED:
        return 0
    spread = after.std(axis=0)
    alike = there.std(axis=0)[spread > 0.0] / spread[spread > 0.0]
    return len(there) if np.median(alike) < _ALIKE else 0


def _are_indices(states: np.ndarray) -> bool:
    return states.ndim == 1 and states.dtype.kind in "iu"


def _occurs_elsewhere(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Tell whether another row of those in ``among`` has the value of a row, [N]."""
    _, kind = np.unique(values, return_inverse=True)
    return np.asarray(np.bincount(kind[among], minlength=len(kind))[kind] > among)


def _few_coordinates(states: np.ndarray) -> np.ndarray:
    """Return some coordinates of observations [N, ...], evenly spaced, [N, c]."""
    flat = states.reshape(len(states), -1)
    return flat[:, :: -(-flat.shape[1] // _MOST_COORDINATES)]


def _going_on(
    states: Sequence[np.ndarray], asked: np.ndarray, ends: np.ndarray
) -> tuple[float, float]:
    """Return the share of the ends ``asked`` in states in which other rows go on.

    Rows start in such an index. For other observations, the nearest next observation of other rows
    is that of a row that ends no episode, and no coordinate is beyond theirs in all of the ends.
    The second number is the share of ends that have an end as their nearest row by chance.
    """
    before, after = states
    asked = asked[:: -(-len(asked) // _MOST_ASKED)]
    if _are_indices(before):
        return float(np.isin(after[asked], before).mean()), 0.0
    # A share of both, so that ends are as rare as in the record.
    stride = -(-len(ends) // _MOST_COMPARED)
    inner, over = np.flatnonzero(~ends)[::stride], np.flatnonzero(ends)[::stride]
    flat = _few_coordinates(after)
    scale = np.maximum(flat[inner].std(axis=0, dtype=np.float64), np.finfo(np.float32).tiny)
    here, inside, outside = (flat[rows] / scale for rows in (asked, inner, over))
    beyond = (here.min(axis=0) > inside.max(axis=0)) | (here.max(axis=0) < inside.min(axis=0))
    if beyond.any():  # Such as a clock in the observation.
        return 0.0, 0.0
    apart = cdist(here, outside)
    apart[asked[:, None] == over] = np.inf
    share = (cdist(here, inside).min(axis=1) <= apart.min(axis=1)).mean()
    return float(share), len(over) / (len(over) + len(inner))
