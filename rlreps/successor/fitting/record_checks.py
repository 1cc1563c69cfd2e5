"""Check whether rows belong together, by how well neighbours predict the next observation.

The neighbours of a row are the actions of the rows before and after, the whole row before, and the
half of the record. If the state is complete, none of them helps to predict the next observation
except the action after, which a policy may choose by this observation. Predicted are changes of the
coordinates of vectors, or random signs of indices.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from rlreps.numerics import hash_rows
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, FourierBasis
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    PERMUTATIONS,
    Columns,
    apart,
    errors,
    interactions,
    random_signs,
    regress,
)
from rlreps.successor.fitting.transitions import Transitions

_MOST_COUNTED_ROWS = 100_000  # Indices are counted in a sample of at most so many rows.
_MOST_PARTS = 50  # Vectors are not regressed if an action has more features.
_MOST_FEATURES = 1_000  # Largest number of features of state and action together.
_ROWS_A_FEATURE = 12  # Each half of half of the rows has a regression of its own.
_MOST_OF_STATE = 100  # Largest number of features of the state.
_FEWEST_FEATURES = 50  # With fewer, the row before may only tell what these features miss.
_STILL = 1e-5  # A coordinate is still if its change deviates by less, in units of the axes.

_LEFT = 0.01  # Nothing is left to explain if an error is below this.
_USELESS = 0.97  # An action tells nothing if this share of the error without actions is left.
_ELSEWHERE = 0.9
"""Actions are in other rows if a neighbour's leaves less than this share of the error."""
_MORE_THAN_POLICY = 1.5
"""A policy that chooses the action after by the next observation explains a share of the variance
of actions. The action then explains hardly more of the next observation than this share."""
_HIDING = 0.25  # Observations may hide a part of the state if state and action leave this error.
_HALF = 0.5
"""Observations hide a part of the state if the row before leaves less than this share of the error,
and vectors change if the halves of the record do. Actions follow from a state that leaves less of
the variance of a feature of the action."""
_CHANGE_OF_EFFECTS, _CHANGE_OF_MEANS = (0.4, 0.01), (0.1, 0.1)
"""Halves differ if they gain this share of what effects of actions (vectors) or means (indices)
explain, or of the second number if they explain less."""
_BLOCKS = 20  # Number of blocks of time, of which parts are drawn.
_COARSE = 20  # Features of the state that predict what is left for actions to explain.
_MOST_CROSSED = 10  # With more features of an action, halves compare its mean effects alone.
_MOST_COORDINATES = 5  # Coordinates of the state that multiply actions to explain it.


def describe_record(data: Transitions, basis: Basis, actions: ActionBasis, seed: int) -> str:
    """Say what is wrong with a record; "" if nothing is found.

    Records of images, and of vectors with many actions, are searched for copies alone. The seed
    decides the rows and random functions of the regressions.
    """
    if copies := _describe_copies(data):
        return copies
    # The rows before and after are in the same episode, unless episodes are short.
    rows = np.flatnonzero(~data.ends[:-2] & ~data.ends[1:-1]) + 1
    if len(rows) < FEWEST_TESTED_ROWS:
        rows = np.flatnonzero(~data.ends[1:-1]) + 1
    vectors = isinstance(basis, FourierBasis) and actions.size <= _MOST_PARTS
    counted = data.num_states is not None and not data.continuous
    if len(rows) < FEWEST_TESTED_ROWS or not (vectors or counted):
        return ""
    generator = np.random.default_rng(seed)
    rows = generator.permutation(rows)[: MOST_TESTED_ROWS if vectors else _MOST_COUNTED_ROWS]
    most = min(_MOST_FEATURES, len(rows) // _ROWS_A_FEATURE) // actions.size
    count = max(2, min(_MOST_OF_STATE, most))
    columns = Columns.of(basis, actions, data.observation[rows], count, seed)
    return _describe_neighbours(_Neighbours(data, rows, columns, generator))


@dataclasses.dataclass(frozen=True, eq=False)
class _Neighbours:
    """Predictions of the next observation by a row or its neighbours.

    An error is the share of the variance that a prediction leaves in other rows.

    Attributes:
        data: The record.
        rows: Rows that have a row before and a row after, in any order.
        columns: What predicts.
        generator: Draws signs, permutations and parts of the record.
    """

    data: Transitions
    rows: np.ndarray
    columns: Columns
    generator: np.random.Generator

    @functools.cached_property
    def now(self) -> np.ndarray:
        """Observations in which the rows start."""
        return np.asarray(self.data.observation[self.rows])

    @functools.cached_property
    def reached(self) -> np.ndarray:
        """Observations that the rows reach."""
        return np.asarray(self.data.next_observation[self.rows])

    @functools.cached_property
    def target(self) -> np.ndarray:
        """What is predicted of the next observation, [n, k]."""
        if self.columns.vectors:
            moved = self.columns.coordinates(self.reached) - self.columns.coordinates(self.now)
            moves = moved.std(axis=0) > _STILL
            found = moved[:, moves]
        else:
            found = random_signs(self.reached, self.generator)
        return found if found.size else np.zeros((len(found), 1))

    def action(self, step: int = 0) -> np.ndarray:
        """Return the actions of the rows ``step`` rows later."""
        return np.asarray(self.data.action[self.rows + step])

    def error(self, *beside: np.ndarray, step: int = 0) -> float:
        """Predict by state, action and other columns; take the action ``step`` rows later."""
        return self._left((*self.columns.of_pair(self.now, self.action(step)), *beside))

    def error_without_action(self) -> float:
        """Predict by the state alone."""
        return self._left(self.columns.of_state(self.now))

    def error_with_row_before(self) -> float:
        """Predict by the state and action of the row before too."""
        if self.columns.few is not None and self.columns.few.num_features < _FEWEST_FEATURES:
            return np.inf
        state, action = self.data.observation[self.rows - 1], self.action(-1)
        if not self.columns.vectors:
            return self.error(action, state)
        actions = self.columns.actions.weights(action)
        return self.error(self.columns.coordinates(state), actions)

    def error_of_policy(self) -> float:
        """Predict, instead, a part of the action of the row after by the state reached."""
        action = self.action(1)
        if action.ndim > 1:
            target = self.columns.actions.weights(action)[:, 1:]
        else:
            target = random_signs(action, self.generator)
        varied = target[:, np.ptp(target, axis=0) > 0.0]
        return float(errors(varied, *self.columns.of_state(self.reached)).min(initial=np.inf))

    def effects(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return few columns of state and action that tell what actions do."""
        if not self.columns.vectors:
            return self.now, action
        near = self.columns.coordinates(self.now)[:, :_MOST_COORDINATES]
        near = np.column_stack([np.ones(len(near)), near])
        return (interactions(self.columns.actions.weights(action), near),)

    @functools.cached_property
    def coarse(self) -> tuple[np.ndarray, ...]:
        """Few features of the state of vectors."""
        features, coordinates = self.columns.of_state(self.now)
        return features[:, :_COARSE], coordinates

    def actions_are_idle(self) -> bool:
        """Tell whether permuted actions explain as much as the actions do."""
        own, target, within = self.action(), self.target, self.now
        if self.columns.vectors:
            # An action that follows from the state adds nothing to a linear prediction.
            taken = self.columns.actions.weights(own)
            followed = errors(taken[:, taken.std(axis=0) > 0.0], *self.columns.of_state(self.now))
            if followed.min(initial=1.0) < _HALF:
                return False
            state, within = np.column_stack(self.coarse), np.zeros(len(own), int)
            target = target - state @ regress(state, target)

        def left(action: np.ndarray) -> float:
            return float(errors(target, *self.effects(action)).mean())

        least = left(own)
        permuted = (_permute_within(own, within, self.generator) for _ in range(PERMUTATIONS))
        return any(left(each) < least for each in permuted)

    def halves_differ(self, error: float) -> bool:
        """Tell whether each half of the record needs a prediction of its own.

        Args:
            error: The error of one prediction by state and action.
        """
        late, pair = self.block >= _BLOCKS // 2, self.columns.of_pair(self.now, self.action())
        state: tuple[np.ndarray, ...] = ()
        effects, without, (share, least) = pair, 1.0, _CHANGE_OF_MEANS
        if self.columns.vectors:
            if self._left(apart(pair, late)) < _HALF * error:
                return True
            # Each part has a prediction by the state, since parts may differ in states alone.
            few = self.columns.actions.size <= _MOST_CROSSED
            taken = self.columns.actions.weights(self.action())
            state, effects = self.coarse, self.effects(self.action()) if few else (taken,)
            without, (share, least) = self._left(apart(state, late)), _CHANGE_OF_EFFECTS

        def gain(some: np.ndarray) -> float:
            shared = apart(state, some)
            whole = self._left((*shared, *effects)) if shared else error
            return whole - self._left((*shared, *apart(effects, some)))

        own, drawn = gain(late), []
        for some in self._parts():
            drawn.append(gain(some))
            if drawn[-1] >= own:
                return False
        explained = without - self._left((*apart(state, late), *apart(effects, late)))
        return own - sum(drawn) / len(drawn) > share * max(least, explained)

    def _left(self, columns: tuple[np.ndarray, ...]) -> float:
        return float(errors(self.target, *columns).mean())

    @functools.cached_property
    def block(self) -> np.ndarray:
        """Equal blocks of time of the rows, numbered from the first, [n]."""
        return np.asarray(np.argsort(np.argsort(self.rows)) * _BLOCKS // len(self.rows))

    def _parts(self) -> Iterator[np.ndarray]:
        """Draw half of the blocks, several times; yield masks of rows, [n] each.

        Rows that are near in time are alike, such as those of a place that a policy stays in.
        """
        for _ in range(PERMUTATIONS):
            yield np.isin(self.block, self.generator.permutation(_BLOCKS)[: _BLOCKS // 2])


def _permute_within(
    column: np.ndarray, groups: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Permute a column [n] among the rows of each group, [n] indices."""
    permuted = np.empty_like(column)
    order = np.lexsort((generator.random(len(column)), groups))
    permuted[np.argsort(groups, kind="stable")] = column[order]
    return permuted


def _describe_neighbours(rows: _Neighbours) -> str:
    """Say which neighbours predict the next observation better than state and action."""
    own, before, after = rows.error(), rows.error(step=-1), np.inf
    none = rows.error_without_action()
    least = min(own, none)
    if own > _USELESS * none and least > _LEFT:
        found = rows.error(step=1)
        by_policy = 1.0 - rows.error_of_policy()
        after = found if 1.0 - found / least > _MORE_THAN_POLICY * by_policy else np.inf
    changed = own > _LEFT and rows.halves_differ(own)
    hiding = min(own, before) > _HIDING and not changed
    if hiding and rows.error_with_row_before() < _HALF * min(own, before):
        return (
            "the row before a row predicts the next observation better: observations lack a part "
            "of the state, such as speeds; stack two frames, or add what is missing"
        )
    if least > _LEFT and min(before, after) < _ELSEWHERE * least:
        row = "before" if before < after else "after"
        return (
            f"the action of the row {row} predicts the next observation better than the row's own: "
            "actions are recorded in other rows, or act later; move them, or add the last action "
            "to the observation"
        )
    if changed:
        return (
            "the two halves of the record predict different next observations: the environment, or "
            "what an action means, changed, or the policy, if observations lack a part of the "
            "state; fit the parts one by one"
        )
    if rows.actions_are_idle():
        return (
            "the actions tell nothing measurable of the next observation: they belong to other "
            "rows, or have hardly any effect on it"
        )
    return ""


_STRETCHES = 20  # A stretch has as many rows as one of so many equal parts of the record, ...
_SHORTEST_STRETCH = 100  # ... and at least this number of rows.
_REPEATED = 0.1  # Warn if more than this share of the rows is in stretches that occur twice.
_MOST_ASKED = 50  # Largest number of such stretches of which different rows are counted.
_DIFFERENT = (
    0.25  # If a smaller share of a stretch's rows is different, the world may repeat it ...
)
_CHOSEN = 0.05  # ... unless at least this share of them has equal rows followed by other rows.


def _follows(rows: np.ndarray) -> bool:
    """Tell whether few rows of [m] differ, and most equal rows are followed by equal rows."""
    different = len(np.unique(rows[:-1]))
    pairs = len(np.unique(rows[:-1] * np.uint64(3) + rows[1:]))  # Both are hashes.
    return different < _DIFFERENT * len(rows) and pairs - different < _CHOSEN * len(rows)


def _describe_copies(data: Transitions) -> str:
    """Say how many rows lie in stretches that occur more than once."""
    size = max(_SHORTEST_STRETCH, len(data) // _STRETCHES)
    if len(data) < 2 * size:
        return ""
    columns = (data.observation, data.action, data.next_observation)
    # Equal stretches have equal sums Σ_i h_{t+i} Bⁱ modulo 2⁶⁴, which prefix sums give.
    base = np.uint64(6364136223846793005)
    with np.errstate(over="ignore"):
        factors = np.array([[1], [3], [5]], np.uint64)
        hashes = (
            factors * np.stack([hash_rows(column).view(np.uint64) for column in columns])
        ).sum(axis=0)
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
    few = np.random.default_rng(0).permutation(starts)[:_MOST_ASKED]
    if np.median([_follows(hashes[start : start + size]) for start in few]) > 0.5:
        return ""
    return (
        f"{share:.0%} of the rows are in stretches of {size:,} rows that occur more than once: "
        "the quality is measured on copies of fitted rows; leave out what was joined twice"
    )
