"""Check whether rows are in order, and whether ends of episodes are what they are said to be.

``states`` are observations s and next observations s', [N, ...] each. A function that has at most
one warning returns it, "" for none; others yield their warnings.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.spatial.distance import cdist

from rlreps.numerics import rows_equal
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    means_of_others,
    random_signs,
    regress,
    share_left,
)
from rlreps.successor.fitting.resets import (
    FEWEST_COMPARED,
    MOST_COMPARED,
    are_indices,
    errors_of_steps,
    few_coordinates,
    jump,
    jumps_at_ends,
)

# describe_turns: rows of several environments take turns.
_MOST_ENVIRONMENTS = 64  # Rows of more environments are not recognised.
_TURN_ROWS = 1_000  # About so many rows are compared with later rows.
_IN_ORDER = 0.5  # Rows are in order if at least this share of them goes on in the next row.
_IN_TURN = 0.8  # k environments take turns if more than this share goes on k rows later.
_MOST_IN_TURN = 4_000  # Later rows are predicted from so many rows.
_COLUMNS = 16  # So many coordinates, or random signs of indices, are predicted.
_LEAST_TOLD = 0.1  # A row explains at least this share of the variance of the k-th row after it.
_TOLD_BETWEEN = 0.25  # The share of the next row that it explains is smaller by this factor.
_NEARLY = 0.9  # k is the least step at which a row explains this share of the most.

# _count_starts: ends of episodes are not marked.
_FEWEST_STARTS = 10  # Starts are sought if fewer ends are marked; at least so many must be found.
_MOST_SEARCHED = 50_000  # Starts are sought in so many rows from the first.
_USUAL = 0.9  # Quantile of the errors of other rows that is the usual error.
_LONG = 4  # A row goes far if its error is more than so many usual errors.
_ALIKE = 0.5  # Starts are alike if their spread, relative to all states, is below this (median).
_UNRELATED = 0.6  # They are unrelated if a regression on s leaves more of their variance (mean).
_FEWEST_UNRELATED, _ROWS_A_COORDINATE = 20, 3  # Numbers of rows that show that.

# _lead_to_next_episode: last observations of episodes are missing.
_FOLLOWED = 0.5  # At least this share of the ends leads to the start of the next row.

# _describe_kinds: terminations are time limits, and cuts are terminations.
_SHORTEST_LIMIT = 10  # The longest episode has at least so many rows.
_FEWEST_LIMITED = 10  # At least so many episodes of this length terminate.
_INSIDE = 0.75  # A limit is their cause if more than this share of them looks as if it went on.
_FEWEST_CUTS = 20  # At least so many shorter episodes are cut.
_OUTSIDE = 0.4  # Cuts terminate if more than this share of them does not look as if it went on.
_TIMES_CHANCE = 5  # The share is also more than so many times that by chance, or half way to 1.
_MOST_TESTED = 50  # The nearest rows of at most so many ends are sought.


def describe_turns(states: Sequence[np.ndarray], ends: np.ndarray) -> str:
    """Say how many environments' rows take turns, and how to bring them into order."""
    before, after = states
    rows = np.arange(0, len(before) - _MOST_ENVIRONMENTS, max(1, len(before) // _TURN_ROWS))

    def share(step: int) -> float:
        return float(rows_equal(before[rows + step], after[rows]).mean())

    if len(rows) < FEWEST_COMPARED:
        return ""
    told = ""
    if share(1) < _IN_ORDER:
        steps = range(2, _MOST_ENVIRONMENTS + 1)
        count = next((step for step in steps if share(step) > _IN_TURN), 0)
    else:  # Rows lead to the next row's observation if no others were recorded.
        count = _count_turns(before, ends)
        told = (
            f"a row tells the {count}-th row after it and not the next row: unless the world shows "
            f"{count} things in turn, "
        )
    if not count:
        return ""
    over = len(before) % count
    remedy = f"column.reshape(-1, {count}, *column.shape[1:]).swapaxes(0, 1).reshape(column.shape)"
    return (
        f"{told}rows of {count} environments take turns: give the rows of one after those of "
        f"another, {remedy}" + (f", without the last {over} rows" if over else "")
    )


def _count_turns(seen: np.ndarray, ends: np.ndarray) -> int:
    """Count the environments whose observations take turns; 0 if a row follows the row before it.

    If k environments take turns, a row tells the k-th row after it, and nothing of the next row.
    """
    seen, rng = seen[: _MOST_IN_TURN + _MOST_ENVIRONMENTS], np.random.default_rng(0)
    rows = np.flatnonzero(~ends[: max(0, len(seen) - _MOST_ENVIRONMENTS)])
    if len(rows) < FEWEST_TESTED_ROWS:
        return 0
    if are_indices(seen):
        _, place = np.unique(seen, return_inverse=True)
        values = random_signs(place, _COLUMNS, rng)
    else:
        scaled = few_coordinates(seen).astype(np.float64)
        scaled = scaled[:, scaled.std(axis=0) > 0.0]
        scaled = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
        waves = np.cos(scaled @ rng.normal(size=(scaled.shape[1], 2 * _COLUMNS)))
        features = np.column_stack([np.ones(len(scaled)), scaled, waves])[rows]
        values = scaled[:, rng.permutation(scaled.shape[1])[:_COLUMNS]]
    variance = values.var(axis=0).sum()

    def told(steps: Iterable[int]) -> np.ndarray:
        """Return the share of the variance that rows explain of the rows ``steps`` later."""
        later = np.concatenate([values[rows + step] for step in steps], axis=1)
        if are_indices(seen):
            found = means_of_others(later, later.mean(axis=0), place[rows])
        else:
            weights, later = regress(features[::2], later[::2]), later[1::2]
            found = features[1::2] @ weights
        explained = later.var(axis=0) - np.square(later - found).mean(axis=0)
        return np.asarray(explained.reshape(-1, values.shape[1]).sum(axis=1) / variance)

    if variance == 0.0 or (next_row := told([1])[0]) >= _TOLD_BETWEEN:
        return 0  # No other row can tell so much more.
    shares = told(range(2, _MOST_ENVIRONMENTS + 1))
    if shares.max() < max(_LEAST_TOLD, next_row / _TOLD_BETWEEN):
        return 0
    return 2 + int(np.argmax(shares >= _NEARLY * shares.max()))


def describe_ends(
    states: Sequence[np.ndarray], terminated: np.ndarray, truncated: np.ndarray
) -> Iterator[str]:
    """Say what is wrong with the ends of episodes."""
    ends = terminated | truncated
    if ends[:-1].sum() < _FEWEST_STARTS and (count := _count_starts(states)):
        yield (
            f"{count:,} rows inside episodes go far, to states that are alike or do not depend on "
            "where they start: if episodes start in these states, and not a part of an episode, "
            "their ends are not marked (terminated, truncated)"
        )
    if _lead_to_next_episode(states, ends):
        yield (
            "the rows that end episodes go to the first observation of the next episode, where "
            "other rows do not go: give the last observation of the episode (info['final_obs'] "
            "with same-step autoreset), unless the game goes on there, as after a lost life; where "
            "it is lost, leave out the rows that are cut"
        )
    else:
        yield from _describe_kinds(states, ends, terminated)


def describe_late_marks(seen: np.ndarray, ends: np.ndarray) -> str:
    """Say that ends [N] seem to mark first rows, if rows lead to the next row's observation.

    The rows before them then jump, and they do not. ``seen`` are observations, [N] or [N + 1, ...].
    """
    states, ends = (seen[:-1], seen[1:]), ends[: len(seen) - 1]
    before = np.append(ends[1:], False) & ~ends
    others = ~(ends | before)
    if not jump(states, before, others) or jump(states, ends, others):
        return ""
    return (
        "the rows before those that end episodes go where other rows do not go: if ends mark the "
        "first rows of episodes, mark the rows before them instead"
    )


def _count_starts(states: Sequence[np.ndarray]) -> int:
    """Count rows that go far, to states that are alike or unrelated to s; 0 if they are few."""
    rows = np.arange(len(states[0]))
    if len(rows) < FEWEST_COMPARED or states[0].ndim != 2:
        return 0
    searched = rows[:_MOST_SEARCHED]
    usual, errors = errors_of_steps(states, rows, searched, searched, _USUAL)
    left, reached = (few_coordinates(each[searched]).astype(np.float64) for each in states)
    spread, far = reached.std(axis=0), errors > _LONG * np.quantile(usual, _USUAL)
    left, reached = left[far][:, spread > 0.0], reached[far][:, spread > 0.0]
    if len(reached) < _FEWEST_STARTS:
        return 0
    if np.median(reached.std(axis=0) / spread[spread > 0.0]) < _ALIKE:
        return len(reached)
    count, width = left.shape
    if count < max(_FEWEST_UNRELATED, _ROWS_A_COORDINATE * width):
        return 0
    columns = np.column_stack([np.ones(count), left])
    found = columns @ np.linalg.lstsq(columns, reached, rcond=1e-6)[0]
    unrelated = share_left(reached, found, reached) * (count - 1) / (count - 1 - width)
    return count if unrelated.mean() > _UNRELATED else 0


def _lead_to_next_episode(states: Sequence[np.ndarray], ends: np.ndarray) -> bool:
    """Tell whether rows that end episodes jump to where the next rows start, which do not jump."""
    before, after = states
    inner, followed = np.flatnonzero(ends[:-1]), ends[:-1].copy()
    followed[inner] = rows_equal(after[inner], before[inner + 1])
    if followed.sum() < _FOLLOWED * len(inner):
        return False
    ends_jump, next_rows_jump = jumps_at_ends(states, ends, followed)
    return bool(ends_jump and not next_rows_jump)


def _describe_kinds(
    states: Sequence[np.ndarray], ends: np.ndarray, terminated: np.ndarray
) -> Iterator[str]:
    """Say which terminations seem to be time limits, and which cuts seem to be terminations."""
    lasts = np.flatnonzero(ends)
    lengths = np.diff(lasts, prepend=-1)
    longest = int(lengths.max())
    if longest < _SHORTEST_LIMIT:
        return
    limited = lasts[terminated[lasts] & (lengths == longest)]
    most = len(limited) > 0.5 * (lengths == longest).sum()
    enough = most and len(limited) >= _FEWEST_LIMITED
    if enough and _share_going_on(states, limited, ends)[0] > _INSIDE:
        yield (
            f"{len(limited):,} episodes terminate after exactly {longest:,} rows, in states like "
            "those in which others go on: if a time limit ended them, mark it in truncated instead"
        )
    cut = lasts[~terminated[lasts] & (lengths < longest)]
    if len(cut) >= _FEWEST_CUTS:
        going_on, chance = _share_going_on(states, cut, ends)
        stopped = 1.0 - going_on
        if stopped > max(_OUTSIDE, min(_TIMES_CHANCE * chance, 0.5 + 0.5 * chance)):
            yield (
                f"{stopped:.0%} of the cuts reach states in which no other rows go on, so "
                "that values there are guesses: if episodes end there for good, terminated must "
                "mark them instead of truncated"
            )


def _share_going_on(
    states: Sequence[np.ndarray], tested: np.ndarray, ends: np.ndarray
) -> tuple[float, float]:
    """Return the share of the ends ``tested`` that look as if the episode went on.

    An index does if a row starts in it. Another observation does if the nearest of the other rows'
    next observations ends no episode. None does if all ends exceed the others in a coordinate, such
    as a clock. The second number is the share of ends whose nearest row is an end by chance.
    """
    before, after = states
    tested = tested[:: -(-len(tested) // _MOST_TESTED)]
    if are_indices(before):
        # Chance: no row but the next one starts in the index that a row reaches.
        starts = np.bincount(before, minlength=int(after.max()) + 1)
        chance = (starts[after[~ends]] < 2).mean() if (~ends).any() else 0.0
        return float((starts[after[tested]] > 0).mean()), float(chance)
    # A share of both, so that ends are as rare as in the record.
    stride = -(-len(ends) // MOST_COMPARED)
    inner, over = np.flatnonzero(~ends)[::stride], np.flatnonzero(ends)[::stride]
    flat = few_coordinates(after)
    scale = np.maximum(flat[inner].std(axis=0, dtype=np.float64), np.finfo(np.float32).tiny)
    here, inside, outside = (flat[rows] / scale for rows in (tested, inner, over))
    beyond = (here.min(axis=0) > inside.max(axis=0)) | (here.max(axis=0) < inside.min(axis=0))
    if beyond.any():  # Such as a clock in the observation.
        return 0.0, 0.0
    to_ends = cdist(here, outside)
    to_ends[tested[:, None] == over] = np.inf
    share = (cdist(here, inside).min(axis=1) <= to_ends.min(axis=1)).mean()
    return float(share), len(over) / (len(over) + len(inner))
