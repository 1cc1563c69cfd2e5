"""Check whether rows belong together, by how well neighbours predict the next observation.

The neighbours of a row are the actions of the rows before and after, the whole row before, and the
half of the record. If the state is complete, none of them helps to predict the next observation
except the action after, which a policy may choose by this observation.
"""

import abc
import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from rlreps.numerics import hash_rows
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, FourierBasis
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    interactions,
    mean_share_left,
    means_of_others,
    random_signs,
    regress,
    unexplained,
)
from rlreps.successor.fitting.transitions import Transitions

_MOST_COUNTED_ROWS = 100_000  # Indices are counted in a sample of at most so many rows.
_MOST_PARTS = 50  # Vectors are not regressed if an action has more features.


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
    if len(rows) < FEWEST_TESTED_ROWS:
        return ""
    generator = np.random.default_rng(seed)
    if isinstance(basis, FourierBasis) and actions.size <= _MOST_PARTS:
        rows = generator.permutation(rows)[:MOST_TESTED_ROWS]
        return _describe_neighbours(_ErrorsOfVectors(data, basis, actions, rows, seed))
    if data.num_states is not None and not data.continuous:
        rows = np.sort(generator.permutation(rows)[:_MOST_COUNTED_ROWS])
        return _describe_neighbours(_ErrorsOfIndices(data, rows, generator))
    return ""


_LEFT = 0.01  # Nothing is left to explain if an error is below this.
_USELESS = 0.97  # An action tells nothing if this share of the error without actions is left.
_MORE_THAN_POLICY = 1.5
"""A policy that chooses the action after by the next observation explains a share of the variance
of actions. The action then explains hardly more of the next observation than this share."""
_HIDING = 0.25  # Observations may hide a part of the state if state and action leave this error.
_MEMORY = 0.5  # They do hide it if the row before leaves less than this share of the error.
_CHANGED = 0.5  # Vectors change if regressions of both halves leave less than this of the error.
_REVERSED = 0.4  # They also change if effects of actions in halves gain this share of themselves.
_LEAST_EFFECTS = 0.01  # Smaller shares of the variance that effects explain count as this one.
_CHANGE = 0.1  # Indices change if means in halves gain this share of what they explain.
_LEAST_EXPLAINED = 0.1  # Smaller shares of the variance that they explain count as this one.


def _describe_neighbours(errors: "_Errors") -> str:
    """Say which neighbours predict the next observation better than state and action."""
    own, before = errors.with_action(0), errors.with_action(-1)
    none, after = errors.without_action(), np.inf
    least = min(own, none)
    if own > _USELESS * none and least > _LEFT:
        found = errors.with_action(1)
        by_policy = 1.0 - errors.of_policy()
        after = found if 1.0 - found / least > _MORE_THAN_POLICY * by_policy else np.inf
    changed = own > _LEFT and errors.halves_differ(own)
    hiding = min(own, before) > _HIDING and not changed
    if hiding and errors.with_row_before() < _MEMORY * min(own, before):
        return (
            "the row before a row predicts the next observation better: observations lack a part "
            "of the state, such as speeds; stack two frames, or add what is missing"
        )
    if least > _LEFT and min(before, after) < errors.elsewhere * least:
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
    if errors.actions_are_idle():
        return (
            "the actions tell nothing measurable of the next observation: they belong to other "
            "rows, or have hardly any effect on it"
        )
    return ""


_MOST_FEATURES = 1_000  # Largest number of features of state and action together.
_ROWS_A_FEATURE = 12  # Each half of half of the rows has a regression of its own.
_REMEMBERING = 100  # Largest number of features of the state.
_FEWEST_FEATURES = 50  # With fewer, the row before may only tell what these features miss.
_STILL = 1e-5  # A coordinate is still if its change deviates by less, in units of the axes.
_FOLLOWED = 0.5  # Actions follow from the state if it leaves less of the variance of a feature.
_COARSE = 20  # Features of the state that predict what is left for actions to explain.
_MOST_CROSSED = 10  # With more features of an action, halves compare its mean effects alone.
_MOST_COORDINATES = 5  # Coordinates of the state that multiply actions to explain it.


class _Errors(abc.ABC):
    """Errors of predictions of the next observation, by a row or its neighbours.

    An error is the share of the variance that a prediction leaves in other rows.

    Attributes:
        elsewhere: Actions are in other rows if a neighbour's leaves less than this share of the
            error.
    """

    elsewhere: float

    @abc.abstractmethod
    def without_action(self) -> float:
        """Predict by the state alone."""

    @abc.abstractmethod
    def with_action(self, step: int) -> float:
        """Predict by state and action; take the action ``step`` rows later."""

    @abc.abstractmethod
    def with_row_before(self) -> float:
        """Predict by state, action, and the state and action of the row before."""

    @abc.abstractmethod
    def of_policy(self) -> float:
        """Predict, instead, the action of the row after by the state reached."""

    @abc.abstractmethod
    def halves_differ(self, error: float) -> bool:
        """Tell whether each half of the record needs a prediction of its own.

        Args:
            error: The error of one prediction by state and action, ``with_action(0)``.
        """

    @abc.abstractmethod
    def actions_are_idle(self) -> bool:
        """Tell whether actions explain as much of the next observation in the wrong rows."""


class _ErrorsOfVectors(_Errors):
    """Errors of regressions of the change s' − s on features of the state times those of an action.

    ``of_policy`` predicts a feature of the action. Halves also differ if actions have other effects
    on what the state does not predict.
    """

    elsewhere = 0.75

    def __init__(
        self,
        data: Transitions,
        basis: FourierBasis,
        actions: ActionBasis,
        rows: np.ndarray,
        seed: int,
    ) -> None:
        most = min(_MOST_FEATURES, len(rows) // _ROWS_A_FEATURE)
        self.count = max(2, min(_REMEMBERING, most // actions.size))
        few, axes = few_features(basis, data.observation[rows], self.count, seed)
        states = (data.observation[rows - 1], data.observation[rows], data.next_observation[rows])
        self.before, self.now, then = (each.reshape(len(rows), -1) @ axes for each in states)
        moved = then - self.now
        moves = moved.std(axis=0) > _STILL
        self.moved = moved[:, moves] if moves.any() else np.zeros((len(rows), 1))
        self.features, self.reached = (few.apply(each) for each in states[1:])
        self.actions = {step: actions.weights(data.action[rows + step]) for step in (-1, 0, 1)}
        self.block = _blocks(rows)
        self.generator = np.random.default_rng(seed)

    def without_action(self) -> float:
        return self._error(np.ones((len(self.now), 1)))

    def with_action(self, step: int) -> float:
        return self._error(self.actions[step])

    def with_row_before(self) -> float:
        if self.count < _FEWEST_FEATURES:
            return np.inf
        return self._error(self.actions[0], self.before, self.actions[-1])

    def halves_differ(self, error: float) -> bool:
        late, own = self.block >= _BLOCKS // 2, self.actions[0]
        if self._error(_apart(own, late)) < _CHANGED * error:
            return True
        state = np.column_stack([self.features[:, :_COARSE], self.now])
        effects = self._effects(own) if own.shape[1] <= _MOST_CROSSED else own

        def left(some: np.ndarray, *columns: np.ndarray) -> float:
            """Predict by the state in each part, since parts may differ in states alone."""
            return float(
                unexplained(np.column_stack([_apart(state, some), *columns]), self.moved).mean()
            )

        def gain(some: np.ndarray) -> float:
            return left(some, effects) - left(some, _apart(effects, some))

        explained = max(_LEAST_EFFECTS, left(late) - left(late, _apart(effects, late)))
        drawn = _draw_parts(self.block, self.generator)
        return _gain_of_halves(gain, late, drawn) > _REVERSED * explained

    def of_policy(self) -> float:
        varied = self.actions[1][:, self.actions[1].std(axis=0) > 0.0]
        return float(unexplained(self.reached, varied).min(initial=np.inf))

    def actions_are_idle(self) -> bool:
        own = self.actions[0]
        # An action that follows from the state adds nothing to a linear prediction.
        followed = unexplained(self.features, own[:, own.std(axis=0) > 0.0])
        if followed.min(initial=1.0) < _FOLLOWED:
            return False
        return _permutations_explain(self._unexplained_by_actions, own, self.generator.permutation)

    @functools.cached_property
    def _surprise(self) -> np.ndarray:
        """What a few features of the state leave of the changes."""
        state = np.column_stack([self.features[:, :_COARSE], self.now])
        return np.asarray(self.moved - state @ regress(state, self.moved))

    def _effects(self, actions: np.ndarray) -> np.ndarray:
        """Return products of actions and a few coordinates."""
        near = np.column_stack([np.ones(len(self.now)), self.now[:, :_MOST_COORDINATES]])
        return interactions(actions, near)

    def _unexplained_by_actions(self, actions: np.ndarray) -> float:
        """Return what actions times a few coordinates leave of the surprise."""
        effects = self._effects(actions)
        return float(np.square(self._surprise - effects @ regress(effects, self._surprise)).sum())

    def _error(self, multiplied: np.ndarray, *added: np.ndarray) -> float:
        columns = [interactions(self.features, multiplied), self.now, *added]
        return float(unexplained(np.column_stack(columns), self.moved).mean())


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


_CUMULANTS = 16  # Number of random signs of each index.


class _ErrorsOfIndices(_Errors):
    """Errors of means, over other rows of one state and action, of random signs of the next index.

    ``of_policy`` predicts random signs of the action.
    """

    elsewhere = 0.9

    def __init__(self, data: Transitions, rows: np.ndarray, generator: np.random.Generator) -> None:
        _, self.reached = np.unique(data.next_observation[rows], return_inverse=True)
        self.signs = random_signs(self.reached, _CUMULANTS, generator)
        self.actions = {step: data.action[rows + step] for step in (-1, 0, 1)}
        self.signs_after = random_signs(self.actions[1], _CUMULANTS, generator)
        self.before, self.state = data.observation[rows - 1], data.observation[rows]
        self.block, self.generator = _blocks(rows), generator
        self.of_state = means_of_others(self.signs, self.signs.mean(axis=0), self.state)

    def without_action(self) -> float:
        return mean_share_left(self.signs, self.of_state)

    def with_action(self, step: int) -> float:
        return self._error(self.actions[step])

    def with_row_before(self) -> float:
        return self._error(self.actions[0], self.actions[-1], self.before)

    def halves_differ(self, error: float) -> bool:
        late, own = self.block >= _BLOCKS // 2, self.actions[0]
        cells = self.state * (int(own.max()) + 1) + own
        # Halves may differ in states and actions alone.
        alike = (_permute_within(late, cells, self.generator) for _ in range(_PERMUTATIONS))

        def gain(some: np.ndarray) -> float:
            return error - self._error(own, some)

        drawn = alike, _draw_parts(self.block, self.generator)
        explained = max(_LEAST_EXPLAINED, 1.0 - error + gain(late))
        return _gain_of_halves(gain, late, *drawn) > _CHANGE * explained

    def of_policy(self) -> float:
        signs = self.signs_after
        return mean_share_left(signs, means_of_others(signs, signs.mean(axis=0), self.reached))

    def actions_are_idle(self) -> bool:
        def left_by(actions: np.ndarray) -> float:
            return float(np.square(self.signs - self._predict(actions)).sum())

        def permute(actions: np.ndarray) -> np.ndarray:
            return _permute_within(actions, self.state, self.generator)

        return _permutations_explain(left_by, self.actions[0], permute)

    def _predict(self, *beside: np.ndarray) -> np.ndarray:
        return means_of_others(self.signs, self.of_state, self.state, *beside)

    def _error(self, *beside: np.ndarray) -> float:
        return mean_share_left(self.signs, self._predict(*beside))


_PERMUTATIONS = 19  # Number of permutations of the actions, or of the halves.
_BY_CHANCE = 3  # Actions tell nothing if more permutations than this explain more than they do.


def _permutations_explain(
    left_by: Callable[[np.ndarray], float],
    actions: np.ndarray,
    permute: Callable[[np.ndarray], np.ndarray],
) -> bool:
    """Tell whether permuted actions often leave less than the actions do."""
    own = left_by(actions)
    return sum(left_by(permute(actions)) < own for _ in range(_PERMUTATIONS)) > _BY_CHANCE


_BLOCKS = 20  # Number of blocks of time, of which parts are drawn.


def _blocks(rows: np.ndarray) -> np.ndarray:
    """Number equal blocks of time from the first, for the rows of a record, [n]."""
    return np.asarray(np.argsort(np.argsort(rows)) * _BLOCKS // len(rows))


def _draw_parts(block: np.ndarray, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Draw half of the blocks, several times; yield masks of rows, [n] each.

    Rows that are near in time are alike, such as those of a place that a policy stays in.
    """
    for _ in range(_PERMUTATIONS):
        yield np.isin(block, generator.permutation(_BLOCKS)[: _BLOCKS // 2])


def _permute_within(
    column: np.ndarray, groups: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Permute a column [n] among the rows of each group, [n] indices."""
    permuted = np.empty_like(column)
    order = np.lexsort((generator.random(len(column)), groups))
    permuted[np.argsort(groups, kind="stable")] = column[order]
    return permuted


def _apart(columns: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Give some rows [n] columns of their own, [n, 2k]."""
    return np.column_stack([columns * some[:, None], columns * ~some[:, None]])


def _gain_of_halves(
    gain: Callable[[np.ndarray], float], late: np.ndarray, *drawn: Iterable[np.ndarray]
) -> float:
    """Return how much more two halves gain than parts that were drawn, in the mean.

    It is 0 if any of these gain as much.

    Args:
        gain: Returns by how much a prediction for some rows [n] and one for the others lower an
            error.
        late: Whether rows are in the second half, [n].
        *drawn: Parts of each kind, of which the kind that gains more counts.
    """
    own, means = gain(late), []
    for parts in drawn:
        gains = []
        for some in parts:
            gains.append(gain(some))
            if gains[-1] >= own:
                return 0.0
        means.append(sum(gains) / len(gains))
    return own - max(means)


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
