"""A stream's model on the host: rule, running mean and variances, advanced by NumPy batches."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from rlreps.errors import TrainingDivergedError
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.centring import RunningMean, with_running_mean
from rlreps.streaming.missing import impute, with_missing_entries
from rlreps.streaming.registry import RULES, make_rule
from rlreps.streaming.schedules import LearningRate, power_decay
from rlreps.streaming.stream_moments import Floats, StreamMoments, no_moments

ROWS_AT_ONCE = 1024
"""About as many rows are handed to the device at once."""

LEAST_SPREAD = 1e-8
"""Of the first rows, relative to the origin's length: with less the unit is this."""

TINY = float(np.finfo(np.float64).tiny)
"""Variances below are none."""

FloatArray = npt.NDArray[np.floating[Any]]


class StreamSetup(NamedTuple):
    """What compiled functions depend on.

    Attributes:
        rule: Name of the rule.
        num_inputs: Features of a row.
        num_components: k.
        power: Of the learning rate's decay.
        rows_per_update: Rows that one update averages over.
        missing: Whether NaN marks missing entries.
    """

    rule: str
    num_inputs: int
    num_components: int
    power: float
    rows_per_update: int
    missing: bool

    @property
    def least_rows_per_update(self) -> int:
        """Rows that the rule has to have in an update."""
        return RULES[self.rule].least_rows_per_update(self.num_components)


class StreamModel(NamedTuple):
    """Where a stream stands; replaced as a whole once a batch has been taken in.

    Attributes:
        setup: Of the rule.
        origin: First value of each feature, subtracted before rounding to the device's precision,
            [features].
        unit: What rows less the origin are divided by, so that all that the rule sees is of an
            order of magnitude near one, whatever the features are measured in.
        state: Of the rule with its running mean, in this unit, NumPy arrays.
        moments: Of the rows less the origin, along ``components``.
        components: Orthonormal rows, [k, features]; zeros before the first row.
    """

    setup: StreamSetup
    origin: Floats
    unit: float
    state: Any
    moments: StreamMoments
    components: Floats

    @property
    def shifted_mean(self) -> Floats:
        """Mean of all rows less the origin, [features]."""
        mean: RunningMean = self.state.mean
        sums = np.asarray(mean.value, np.float64) + np.asarray(mean.remainder, np.float64)
        return self.unit * sums

    def measured_in_its_spread(self, total_variance: float) -> "StreamModel":
        """The model with the unit that rows of some variance give, if none of its rows varied.

        Until then its rows are zero in any unit. Spread of the size of rounding is not taken for
        that of the features.
        """
        if self.moments.total > 0.0 or not TINY < total_variance < np.inf:
            return self
        least = LEAST_SPREAD * float(np.linalg.norm(self.origin))
        return self._replace(unit=max(float(np.sqrt(total_variance)), least))


def start(setup: StreamSetup, seed: int, rows: FloatArray) -> StreamModel:
    """A model before its first row, with the origin that the first rows [b, features] give."""
    state = jax.device_get(_compiled(setup)[0](np.uint32(seed)))
    first = np.argmax(~np.isnan(rows), axis=0)
    origin = np.nan_to_num(rows[first, np.arange(setup.num_inputs)].astype(np.float64))
    k = setup.num_components
    moments = no_moments(setup.num_inputs, k)
    return StreamModel(setup, origin, 1.0, state, moments, np.zeros((k, setup.num_inputs)))


def advance(
    model: StreamModel, rows: FloatArray, order: npt.NDArray[np.integer[Any]], rate: float
) -> tuple[Any, Floats]:
    """Updates of the rule along some rows.

    Args:
        model: Where to go on from.
        rows: [n, features].
        order: Which of them, one after the other.
        rate: η0, in units of one over a variance of the rows.

    Returns:
        The rule's state, and its components as orthonormal rows [k, features].

    Raises:
        TrainingDivergedError: If the outcome is not finite.
    """
    state, components = model.state, model.components.T
    dtype = state.mean.value.dtype
    limits = np.finfo(dtype)
    own_rate = dtype.type(np.clip(rate * model.unit**2, limits.tiny, limits.max))
    setup = model.setup
    for chosen in blocks(order, setup.rows_per_update, setup.least_rows_per_update):
        shifted = ((rows[chosen] - model.origin) / model.unit).astype(dtype)
        state, components, finite = _compiled(setup)[1](state, shifted, own_rate)
        if not finite:
            raise TrainingDivergedError(
                f"expected finite components from {setup.rule}, got NaN or infinity after "
                f"{int(state.step)} updates; the model is as it was before. A smaller "
                "learning_rate, or features of similar orders of magnitude, may help"
            )
    return jax.device_get(state), _orthonormal(components)


def blocks(
    order: npt.NDArray[np.integer[Any]], rows_per_update: int, least: int = 1
) -> Iterator[npt.NDArray[np.integer[Any]]]:
    """An order of rows in parts of whole updates; only the last may end with another one.

    No part but the only one is of fewer than ``least`` rows: those join the part before.
    """
    length = rows_per_update * max(ROWS_AT_ONCE // rows_per_update, 1)
    begin = 0
    while begin < len(order):
        end = begin + length
        end = len(order) if len(order) - end < least else end
        yield order[begin:end]
        begin = end


def completed(rows: FloatArray, mean: Floats, components: Floats) -> Floats:
    """Rows [n, features] with what is missing reconstructed about a mean [features]."""
    missing = np.isnan(rows)
    if not missing.any():
        return rows.astype(np.float64, copy=False)
    centred = (rows - mean).astype(jnp.result_type(float))
    parts = np.array_split(centred, range(ROWS_AT_ONCE, len(rows), ROWS_AT_ONCE))
    basis = components.T.astype(centred.dtype)
    imputed = np.concatenate([_impute(basis, part) for part in parts])
    filled: Floats = np.where(missing, imputed + mean, rows).astype(np.float64, copy=False)
    return filled


_impute = jax.jit(impute)


@functools.lru_cache(maxsize=64)
def _compiled(setup: StreamSetup) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Functions that start and advance a rule, shared by all models of one setup."""

    def start(seed: Array) -> Any:
        return _rule(setup, 1.0).init(jax.random.key(seed))

    def advance(state: Any, rows: Array, rate: Array) -> tuple[Any, Array, Array]:
        rule = _rule(setup, power_decay(jnp.asarray(rate), setup.power))
        state = _updates(rule, state, rows, setup)
        components = rule.components(state)
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((state, components))]
        return state, components, jnp.all(jnp.stack(finite))

    return jax.jit(start), jax.jit(advance)


def _rule(setup: StreamSetup, rate: LearningRate) -> StreamingRule:
    rule = make_rule(setup.rule, setup.num_inputs, setup.num_components, learning_rate=rate)
    if setup.missing:
        rule = with_missing_entries(rule, setup.num_inputs)
    # A rule without a learning rate forgets nothing: its sums of squares have to be about the mean.
    exact = not (setup.missing or RULES[setup.rule].needs_learning_rate)
    return with_running_mean(rule, setup.num_inputs, missing=setup.missing, exact_scatter=exact)


def _updates(rule: StreamingRule, state: Any, rows: Array, setup: StreamSetup) -> Any:
    each = setup.rows_per_update
    if each == 1:
        return rule.update_each(state, rows)
    left = len(rows) % each
    whole = len(rows) - left
    if 0 < left < setup.least_rows_per_update:
        whole = max(whole - each, 0)
    if whole:
        batches = rows[:whole].reshape(-1, each, rows.shape[1])
        state, _ = lax.scan(lambda state, batch: (rule.update(state, batch), None), state, batches)
    return rule.update(state, rows[whole:]) if whole < len(rows) else state


def _orthonormal(components: Any) -> Floats:
    """Columns [features, k] as an orthonormal basis of their span, rows [k, features]."""
    basis, _ = np.linalg.qr(np.asarray(components, np.float64))
    rows: Floats = basis.T
    return rows
