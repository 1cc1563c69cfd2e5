"""The model behind ``StreamingPCA`` on the host: rule, running mean and variances.

NumPy batches advance it. Variances along the components are tracked in float64 while the components
turn.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import TrainingDivergedError
from rlreps.numerics import jit
from rlreps.streaming.centring import Centred, RunningMean
from rlreps.streaming.learning_rates import PowerDecay
from rlreps.streaming.passes import scan_updates
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import StreamingRule

Floats = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]
Rows = Any
"""An array or a SciPy sparse array in compressed rows, [n, features]."""

ROWS_AT_ONCE = 1024
"""About this many rows are sent to the device at once."""

FADING = 2.0
"""Exponent with which variances of a stream forget: the t-th of n rows has weight (t/n)²."""


class Moments(NamedTuple):
    """Weighted sums of squares of the rows so far, about their weighted mean.

    Attributes:
        rows_seen: Number of rows so far.
        weight: Sum of the rows' weights; the newest row has weight one.
        squared_weight: Sum of the squared weights.
        mean: Weighted mean, [features].
        along: Sum of squares along each component, [k].
        total: Sum of squares over all features.
    """

    rows_seen: int
    weight: float
    squared_weight: float
    mean: Floats
    along: Floats
    total: float

    @property
    def variances(self) -> Floats:
        """Variance along each component, [k]; unbiased if weights are equal (ddof = 1)."""
        return self.along * self._per_row

    @property
    def total_variance(self) -> float:
        """Sum of the variances of all features; zero for fewer than two rows."""
        return self.total * self._per_row

    @property
    def _per_row(self) -> float:
        if self.rows_seen < 2:
            return 0.0
        return 1.0 / (self.weight - self.squared_weight / self.weight)


def no_moments(num_inputs: int, num_components: int) -> Moments:
    """Return the moments of no rows."""
    return Moments(0, 0.0, 0.0, np.zeros(num_inputs), np.zeros(num_components), 0.0)


def take_in(
    moments: Moments, components: Floats, basis: Floats, rows: Floats, fading: float = FADING
) -> tuple[Moments, Floats]:
    """Add rows, and turn the moments to the principal axes of a new basis' span.

    Sums of squares along old components are carried over to the span of the new ones; the part
    outside the span is lost. While a basis turns, old rows therefore count for less than they
    should, so they fade: before rows n + 1, …, n + b their weight is multiplied by
    (n/(n + b))^fading, which leaves row t the share (t/n)^fading of the newest. Within the span
    everything is exact, including the shift of the mean (Chan, Golub & LeVeque 1983).

    Args:
        moments: Moments of the rows so far.
        components: Orthonormal rows that the moments are along, [k, features].
        basis: Orthonormal rows of the new span, [k, features].
        rows: New rows, complete, [b, features].
        fading: 0 weighs all rows equally.

    Returns:
        The moments, along components of descending variance, and these components: orthonormal
        rows in the span of the basis, [k, features], the largest entry of each positive.
    """
    count = len(rows)
    kept = (moments.rows_seen / (moments.rows_seen + count)) ** fading
    before = kept * moments.weight
    mean = rows.mean(axis=0)
    centred = rows - mean
    shift = mean - moments.mean
    shared = before * count / (before + count)

    turned = basis @ components.T
    projected, projected_shift = centred @ basis.T, basis @ shift
    scatter = (turned * (kept * moments.along)) @ turned.T
    scatter += projected.T @ projected + shared * np.outer(projected_shift, projected_shift)
    values, axes = np.linalg.eigh(scatter)
    principal = axes[:, ::-1].T @ basis
    peaks = np.argmax(np.abs(principal), axis=1)
    signs = np.where(principal[np.arange(len(basis)), peaks] < 0.0, -1.0, 1.0)

    grown = Moments(
        rows_seen=moments.rows_seen + count,
        weight=before + count,
        squared_weight=kept**2 * moments.squared_weight + count,
        mean=moments.mean + count / (before + count) * shift,
        along=np.maximum(values[::-1], 0.0),
        total=kept * moments.total + float(np.sum(centred**2) + shared * shift @ shift),
    )
    return grown, principal * signs[:, None]


class Rate(NamedTuple):
    """The learning rate min(η0 / t^power, largest).

    Attributes:
        initial: η0, [].
        largest: Upper bound, []; infinity is none.
    """

    initial: float | Array
    largest: float | Array = float("inf")


class Setup(NamedTuple):
    """Arguments that compiled functions depend on."""

    rule: str
    num_inputs: int
    num_components: int
    power: float
    rows_per_update: int

    @property
    def least_rows_per_update(self) -> int:
        """Smallest number of rows in an update of the rule."""
        return RULES[self.rule].least_rows_per_update(self.num_components)

    @property
    def fading(self) -> float:
        """Exponent with which variances forget: zero for a rule that weighs all rows equally."""
        return FADING if RULES[self.rule].needs_learning_rate else 0.0

    def build(self, rate: Rate) -> StreamingRule:
        """Return the rule with a running mean."""
        cls = RULES[self.rule]
        decay = PowerDecay(rate.initial, self.power)

        def schedule(step: Array) -> Array:
            eta = decay(step)
            return jnp.minimum(eta, jnp.asarray(rate.largest, eta.dtype))

        rule = cls.at_rate(self.num_inputs, self.num_components, schedule)
        # A rule without a learning rate forgets nothing: its sums of squares must be about the
        # mean.
        return Centred(rule, exact_scatter=not cls.needs_learning_rate)


class Model(NamedTuple):
    """A stream's model; each batch replaces it as a whole.

    Attributes:
        setup: Arguments of the rule.
        origin: The first row, subtracted before rounding to the device's precision, [features].
        state: State of the rule with its running mean, NumPy arrays.
        moments: Moments of the rows less the origin, along ``components``.
        components: Orthonormal rows, [k, features]; zeros before the first row.
    """

    setup: Setup
    origin: Floats
    state: Any
    moments: Moments
    components: Floats

    @property
    def shifted_mean(self) -> Floats:
        """Mean of all rows less the origin, [features]."""
        mean: RunningMean = self.state.running
        return np.asarray(mean.value, np.float64) + np.asarray(mean.remainder, np.float64)


def start(setup: Setup, seed: int, first: FloatArray) -> Model:
    """Return the model before its first row, which is given, [features]."""
    state = jax.device_get(_start(setup, jnp.uint32(seed)))
    sizes = (setup.num_components, setup.num_inputs)
    return Model(setup, first.astype(np.float64), state, no_moments(*sizes[::-1]), np.zeros(sizes))


def advance(
    model: Model, rows: Rows, order: npt.NDArray[np.integer[Any]], rate: Rate
) -> tuple[Any, Floats]:
    """Update the rule along some rows.

    Args:
        model: The model to start from.
        rows: [n, features].
        order: Indices of the rows to use, in order.
        rate: The learning rate.

    Returns:
        The rule's state, and its components as orthonormal rows [k, features].

    Raises:
        TrainingDivergedError: If the outcome is not finite.
    """
    state, components = model.state, model.components.T
    dtype = state.running.value.dtype
    setup = model.setup
    for chosen in blocks(order, setup.rows_per_update, setup.least_rows_per_update):
        shifted: Any = (dense(rows, chosen) - model.origin).astype(dtype)
        state, found, finite = _advance(setup, state, shifted, rate)
        components = np.asarray(found, np.float64)
        if not finite:
            raise TrainingDivergedError(
                f"expected finite components from {setup.rule}, got NaN or infinity after "
                f"{int(state.step)} updates; the model is as it was before. A smaller "
                "learning_rate, or features of similar orders of magnitude, may help"
            )
    basis, _ = np.linalg.qr(components)
    return jax.device_get(state), basis.T


def dense(rows: Rows, chosen: npt.NDArray[np.integer[Any]]) -> FloatArray:
    """Return some rows, [len(chosen), features], as an array."""
    some = rows[chosen]
    array: FloatArray = some if isinstance(some, np.ndarray) else some.toarray()
    return array


def blocks(
    order: npt.NDArray[np.integer[Any]], rows_per_update: int, least: int = 1
) -> Iterator[npt.NDArray[np.integer[Any]]]:
    """Split an order of rows into parts of whole updates; only the last may end with a shorter one.

    A last part of fewer than ``least`` rows joins the part before it.
    """
    length = rows_per_update * max(ROWS_AT_ONCE // rows_per_update, 1)
    begin = 0
    while begin < len(order):
        end = begin + length
        end = len(order) if len(order) - end < least else end
        yield order[begin:end]
        begin = end


@functools.partial(jit, static_argnums=0)
def _start(setup: Setup, seed: Array) -> Any:
    return setup.build(Rate(1.0)).init(jax.random.key(seed))


@functools.partial(jit, static_argnums=0)
def _advance(setup: Setup, state: Any, rows: Array, rate: Rate) -> tuple[Any, Array, Array]:
    """Update on rows [n, features]; the last update may have another number of rows."""
    rule, each = setup.build(rate), setup.rows_per_update
    left = len(rows) % each
    whole = len(rows) - left
    if 0 < left < setup.least_rows_per_update:
        whole = max(whole - each, 0)
    if whole:
        state = scan_updates(rule, state, rows[:whole], each)
    if whole < len(rows):
        state = rule.update(state, rows[whole:])
    components = rule.components(state)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((state, components))]
    return state, components, jnp.all(jnp.stack(finite))
