"""Observations of any origin and scale: units and a running mean in front of any streaming rule."""

import dataclasses
import math
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from rlreps.config import configurable, leaf
from rlreps.errors import TrainingDivergedError, require
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import LearningRate, StreamingRule, require_batch
from rlreps.streaming.rules.combining import shares
from rlreps.streaming.rules.incremental_pca import IncrementalState
from rlreps.typing import ArrayLike, DoubleArray

LEAST_UNIT = 2.0**-400
"""Unit of rows without differences. The squares of all units are float64 numbers."""

MOST = 2.0**400
"""Bound on the numbers of all rows."""

MOST_GROWTH = 1e15
"""A later row may contain numbers up to this factor times max(1, largest number so far)."""


class Units(NamedTuple):
    """Origin and unit of rows, both removed in float64 before rows are rounded for the device.

    A rule whose rows are divided by u, at u² times the learning rate, finds the same components. So
    only the range of the device's numbers depends on the unit. The unit grows with the rows, and
    what is kept in units is then scaled by a power of two, which is exact.

    Attributes:
        origin: The first row, [features].
        unit: A power of two near the largest difference between a row so far and the origin.
    """

    origin: DoubleArray
    unit: float = LEAST_UNIT

    @classmethod
    def of(cls, origin: ArrayLike, rows: Any, most: float = MOST) -> Self:
        """Return the units of a stream that begins with some rows.

        Args:
            origin: The first row, [features].
            rows: An array or a SciPy sparse array, [n, features].
            most: Bound on the numbers of the rows.

        Raises:
            InputError: For larger numbers.
        """
        return cls(np.asarray(origin, np.float64))._grown(rows, most)

    def grown(self, rows: Any) -> Self:
        """Return units for further rows; ``origin`` stays.

        Raises:
            InputError: For numbers beyond ``MOST_GROWTH``, which are no part of the stream: beside
                them, rounding would remove all other rows.
        """
        largest = max(1.0, self.unit, float(np.abs(self.origin).max()))
        return self._grown(rows, min(MOST_GROWTH * largest, MOST))

    @property
    def squared(self) -> float:
        """The unit of variances."""
        return self.unit**2

    def relative(self, rows: npt.NDArray[Any]) -> DoubleArray:
        """Return rows [n, features] less the origin, in units."""
        relative: DoubleArray = (rows - self.origin) / self.unit
        return relative

    def _grown(self, rows: Any, most: float) -> Self:
        ends = [rows.min(axis=0), rows.max(axis=0)]
        low, high = (
            np.ravel(end if isinstance(end, np.ndarray) else end.toarray()) for end in ends
        )
        largest = max(float(high.max(initial=0.0)), -float(low.min(initial=0.0)))
        require(largest <= most, f"numbers at most {most:.2g}", float(f"{largest:.3g}"))
        difference = float(np.maximum(high - self.origin, self.origin - low).max(initial=0.0))
        exponent = math.frexp(max(difference, self.unit))[1]
        return self._replace(unit=math.ldexp(1.0, exponent - 1))


class RunningMean(NamedTuple):
    """The mean of all rows so far, in two numbers per feature.

    A single float32 number stops moving once the change by a row is below its rounding error: after
    some 10⁵ rows, if the mean is a hundred standard deviations from zero. ``remainder`` keeps what
    rounding removed (Knuth's exact sum of two numbers).

    Attributes:
        rows_seen: Rows in the mean, [] (int32).
        value: The mean, [features].
        remainder: Correction to be added to it, below its rounding, [features].
    """

    rows_seen: Array
    value: Array
    remainder: Array


class CentredState(NamedTuple):
    """The mean of all rows so far, and the state of the rule, which sees centred rows."""

    running: RunningMean
    inner: Any

    @property
    def step(self) -> Array:
        """Number of updates, [] (int32)."""
        steps: Array = self.inner.step
        return steps

    @property
    def mean(self) -> Array:
        """The mean of all rows so far, [features]; zero before the first."""
        mean: Array = self.running.value + self.running.remainder
        return mean

    def scaled(self, factor: Any) -> Self:
        """Return the state for rows times ``factor`` [], at learning rates over ``factor`` squared.

        Vectors stay as they are.
        """
        mean, inner = self.running, self.inner
        mean = mean._replace(value=factor * mean.value, remainder=factor * mean.remainder)
        if isinstance(inner, IncrementalState):
            inner = inner._replace(energies=factor * (factor * inner.energies))
        return self._replace(running=mean, inner=inner)


@configurable
@dataclasses.dataclass(frozen=True)
class Centred:
    """A streaming rule for observations that are not centred.

    Each update first moves the running mean by the batch (Chan, Golub & LeVeque 1983; Welford's
    step for one row) and then gives the rule the batch less the new mean. Early rows are therefore
    centred by a poor mean; the very first row is centred by itself and becomes zero. This does not
    matter to rules that forget. A rule that sums squares would lack n ‖shift‖² whenever a batch
    shifts the mean of n rows; ``exact_scatter`` adds these squares.

    Combining models averages their means with weights rows · ``weights``, and their numbers of rows
    with ``weights``. If workers started from a common mean, the result is the mean of all rows
    given to the workers, however often they combine. With ``exact_scatter`` the combined model
    learns from rows sqrt(n_m w_m) (mean of worker m − mean of all), Σ_m w_m = 1, in one further
    update, so that its sums of squares also refer to the common mean.

    States are ``CentredState``. Batches must be finite: NaN or infinity corrupts the mean for all
    later updates.

    Attributes:
        rule: The rule for centred observations.
        exact_scatter: Give the rule the batch minus its own mean, and one further row, sqrt(n b /
            (n + b)) (mean of the b rows − mean of the n rows before), so that sums of squares refer
            to the final mean (the mean correction of Ross, Lim, Lin & Yang 2008). For rules that
            sum squares and whose ``combine`` averages the sums, such as ``IncrementalPCA``.
    """

    rule: StreamingRule = leaf()
    _: dataclasses.KW_ONLY
    exact_scatter: bool = False

    @property
    def num_inputs(self) -> int:
        return self.rule.num_inputs

    @property
    def num_components(self) -> int:
        return self.rule.num_components

    def init(self, key: Array) -> CentredState:
        inner = self.rule.init(key)
        zeros = jnp.zeros(self.num_inputs)
        return CentredState(RunningMean(jnp.zeros((), jnp.int32), zeros, zeros), inner)

    def update(self, state: CentredState, batch: Array) -> CentredState:
        require_batch(batch, self.num_inputs)
        moved = _moved(state.running, batch)
        given = self._given(state.running, moved, batch)
        return CentredState(moved, self.rule.update(state.inner, given))

    def update_each(self, state: CentredState, rows: Array) -> CentredState:
        require_batch(rows, self.num_inputs)

        def body(mean: RunningMean, row: Array) -> tuple[RunningMean, Array]:
            moved = _moved(mean, row[None, :])
            return moved, self._given(mean, moved, row[None, :])[0]

        # The mean does not depend on the rule. All rows are centred first, which costs a fraction
        # of the rule's updates, and the rule can then process them in its fastest way.
        mean, centred = lax.scan(body, state.running, rows)
        return CentredState(mean, self.rule.update_each(state.inner, centred))

    def components(self, state: CentredState) -> Array:
        return self.rule.components(state.inner)

    def combine(self, states: CentredState, weights: Array) -> CentredState:
        mean = _combined(states.running, weights)
        inner = self.rule.combine(states.inner, weights)
        if self.exact_scatter:
            # Rows for the distances of the workers' means from the common mean. Each worker's sum
            # of squares counts by its share of the weights, and so do these rows.
            rows = shares(weights) * states.running.rows_seen.astype(weights.dtype)
            shifts = jax.tree.map(lambda own, of_all: own - of_all[None], states.running, mean)
            distances = shifts.value + shifts.remainder
            inner = self.rule.update(inner, jnp.sqrt(rows)[:, None] * distances)
        return CentredState(mean, inner)

    def _given(self, mean: RunningMean, moved: RunningMean, batch: Array) -> Array:
        """Return the rows that the rule gets for a batch, given the mean before and after it.

        With ``exact_scatter`` these are the batch minus its own mean and the row for the shift of
        the mean, [b + 1, features]. For a single row only the shift remains.
        """
        if not self.exact_scatter:
            return _centred(moved, batch)
        from_before = _centred(mean, batch)
        shift = jnp.mean(from_before, axis=0)
        before = mean.rows_seen.astype(batch.dtype)
        weight = jnp.sqrt(before * len(batch) / (before + len(batch)))
        correction = (weight * shift)[None, :]
        if len(batch) == 1:
            return correction
        return jnp.concatenate([from_before - shift[None, :], correction])


def centred_rule(
    name: str, num_inputs: int, num_components: int, learning_rate: LearningRate
) -> Centred:
    """Build a rule by its name in ``RULES``, with a running mean.

    A rule without a learning rate forgets nothing, so its sums of squares must refer to the final
    mean.
    """
    cls = RULES[name]
    rule = cls.at_rate(num_inputs, num_components, learning_rate)
    return Centred(rule, exact_scatter=not cls.needs_learning_rate)


def require_finite(finite: Array, rule: str, updates: int) -> None:
    """Raise a ``TrainingDivergedError`` unless the outcome of a rule's updates is finite."""
    if not finite:
        raise TrainingDivergedError(
            f"expected finite components from {rule}, got NaN or infinity after {updates} updates; "
            "the model is as it was before. A smaller learning_rate, or features of similar orders "
            "of magnitude, may help"
        )


def _centred(mean: RunningMean, batch: Array) -> Array:
    # Subtract the value first: it is near the rows, so that the difference is exact.
    return (batch - mean.value[None, :]) - mean.remainder[None, :]


def _moved(mean: RunningMean, batch: Array) -> RunningMean:
    """Move the mean by a batch, [b, features]."""
    count = mean.rows_seen + len(batch)
    total = jnp.sum(_centred(mean, batch), axis=0)
    return _added(mean._replace(rows_seen=count), total / jnp.maximum(count, 1).astype(total.dtype))


def _added(mean: RunningMean, change: Array) -> RunningMean:
    """Add a change [features] to the mean by Knuth's two-sum."""
    change = change + mean.remainder
    value = mean.value + change
    # The exact rounding error of value, whichever of the two numbers is larger.
    back = value - mean.value
    remainder = (mean.value - (value - back)) + (change - back)
    return RunningMean(mean.rows_seen, value, remainder)


def _combined(means: RunningMean, weights: Array) -> RunningMean:
    """Combine means with a leading worker axis into one."""
    parts = shares(weights)
    rows = parts * means.rows_seen.astype(weights.dtype)
    total = jnp.sum(rows)
    # Before any row, all means are zero, so any weights will do.
    by_rows = jnp.where(total > 0.0, rows / jnp.where(total > 0.0, total, 1.0), parts)
    first = jax.tree.map(lambda leaf: leaf[0], means)
    shifts = (means.value - first.value[None, :]) + means.remainder
    change = jnp.sum(by_rows[:, None] * shifts, axis=0) - first.remainder
    return _added(first._replace(rows_seen=jnp.round(total).astype(jnp.int32)), change)
