"""The contract of a streaming rule, and the parts that rules share.

A *streaming rule* is online principal component analysis as pure functions, for ``scan`` and
``vmap``. States are pytrees of arrays with a leaf ``step``, the number of updates; no function
changes a state in place. Shapes are checked, values are not: NaN in a row becomes NaN in the state.
``StreamingPCA`` raises for such rows.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import configurable, interval, leaf, size
from rlreps.errors import InputError, require, require_interval, require_positive

UPDATES_BETWEEN_ANCHORS = 64


RateSchedule = Callable[[Array], Array]
"""Number of updates, [] (int32) → learning rate, []."""

LearningRate = float | Array | RateSchedule
"""A fixed learning rate, [], or a schedule."""


@configurable
@dataclasses.dataclass(frozen=True)
class PowerDecay:
    """The schedule η_t = η0 / t^γ at the t-th update, t = 1, 2, … (Amid & Warmuth 2020).

    Attributes:
        initial: η0 > 0, []; an array is not checked.
        power: γ ≥ 0; 0 keeps the rate constant.
        largest: Upper bound on the rate, []; None sets no bound.
    """

    initial: float | Array = interval("(0, inf)")
    power: float = interval("[0, inf)")
    largest: float | Array | None = interval("(0, inf)", None)

    def __call__(self, step: Array) -> Array:
        """Return the learning rate of the update that follows ``step`` updates, []."""
        time = step.astype(jnp.result_type(float)) + 1.0
        decayed: Array = jnp.asarray(self.initial, time.dtype) * time**-self.power
        if self.largest is None:
            return decayed
        return jnp.minimum(decayed, jnp.asarray(self.largest, time.dtype))


class StreamingRule(Protocol):
    """The contract of all rules: those of this package, ``Centred``, and your own."""

    @property
    def num_inputs(self) -> int:
        """The number of features of an observation."""

    @property
    def num_components(self) -> int:
        """K."""

    def init(self, key: Array) -> Any:
        """Return a random start."""

    def update(self, state: Any, batch: Array) -> Any:
        """Make one step on a batch of centred observations, [b >= 1, features]."""

    def update_each(self, state: Any, rows: Array) -> Any:
        """Make a step on each of several rows in order, [n, features]."""

    def components(self, state: Any) -> Array:
        """Return the estimated components as unit columns, [features, k].

        Components that the rule distinguishes come in descending order of variance.
        """

    def combine(self, states: Any, weights: Array) -> Any:
        """Combine models that started from a common model into one.

        Args:
            states: With a leading worker axis.
            weights: [workers], of positive sum; they need not sum to one.
        """


@dataclasses.dataclass(frozen=True)
class Rule(abc.ABC):
    """A rule of this package: a frozen dataclass whose fields are its options.

    A subclass defines ``init``, ``step_batch``, ``components`` and ``combine``, and ``step_row`` if
    there is a faster way for one row. ``StreamingRule`` documents the methods.

    Attributes:
        num_inputs: Features of an observation.
        num_components: k.
        title: Name in figures.
        orders_components: True if components are single eigenvectors, leading first.
        needs_learning_rate: True if the rule has a learning rate.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and options are in range. Updates raise it for a batch
            with another number of features or without rows.
    """

    title: ClassVar[str]
    orders_components: ClassVar[bool] = False
    needs_learning_rate: ClassVar[bool] = False

    num_inputs: int = size()
    num_components: int = size()

    def __post_init__(self) -> None:
        require(
            self.num_components <= self.num_inputs,
            f"num_components <= {self.num_inputs}, the features of an observation",
            self.num_components,
        )

    @classmethod
    def at_rate(cls, num_inputs: int, num_components: int, learning_rate: LearningRate) -> Self:
        """Build the rule with a learning rate, if it has one."""
        return cls(num_inputs, num_components)

    @classmethod
    def least_rows_per_update(cls, num_components: int) -> int:
        """Return the least number of rows per update with which ``num_components`` are learned."""
        return 1

    @classmethod
    def usual_rows_per_update(cls, num_components: int) -> int:
        """Return the default number of rows of an update, as in ``StreamingPCA``."""
        return 1

    @abc.abstractmethod
    def step_batch(self, state: Any, batch: Array) -> Any:
        """Make one step on the mean over a batch, [b, features]."""

    def step_row(self, state: Any, row: Array) -> Any:
        """Make one step on a single row, [features]."""
        return self.step_batch(state, row[None, :])

    def update(self, state: Any, batch: Array) -> Any:
        require_batch(batch, self.num_inputs)
        if batch.shape[0] == 1:
            return self.step_row(state, batch[0])
        return self.step_batch(state, batch)

    def update_each(self, state: Any, rows: Array) -> Any:
        require_batch(rows, self.num_inputs)
        return lax.scan(lambda state, row: (self.update(state, row[None, :]), None), state, rows)[0]

    @abc.abstractmethod
    def init(self, key: Array) -> Any: ...

    @abc.abstractmethod
    def components(self, state: Any) -> Array: ...

    @abc.abstractmethod
    def combine(self, states: Any, weights: Array) -> Any: ...


@dataclasses.dataclass(frozen=True)
class LearningRateRule(Rule):
    """A rule with a learning rate η, or a schedule for it."""

    needs_learning_rate: ClassVar[bool] = True

    _: dataclasses.KW_ONLY
    learning_rate: LearningRate = leaf()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval("learning_rate", self.learning_rate, "(0, inf)")

    @classmethod
    def at_rate(cls, num_inputs: int, num_components: int, learning_rate: LearningRate) -> Self:
        return cls(num_inputs, num_components, learning_rate=learning_rate)

    def rate(self, state: Any, rows: Array) -> Array:
        """Return the learning rate of a state's next update in the rows' precision, []."""
        eta = self.learning_rate
        return jnp.asarray(eta(state.step) if callable(eta) else eta, rows.dtype)


@dataclasses.dataclass(frozen=True)
class AnchoredRule(Rule):
    """A rule whose one-row updates track a quantity that drifts by rounding.

    A rank-one update changes a quantity, such as an inverse, in O(k · features), while computing it
    anew takes O(k² · features). In float32 the two differ after thousands of updates. An *anchor*
    computes the quantity anew after every 64th update, which costs a few hundredths of the updates
    themselves, and after each of the first ``first_anchored``.
    """

    first_anchored: ClassVar[int] = 0

    @abc.abstractmethod
    def anchor(self, state: Any) -> Any:
        """Return the same state with the drifting quantity computed anew."""

    def update(self, state: Any, batch: Array) -> Any:
        """Make one step on a batch of centred observations, [b >= 1, features].

        ``vmap`` evaluates the anchor of a single row at every step: use ``update_each`` instead.
        """
        updated = super().update(state, batch)
        if batch.shape[0] > 1:
            return updated
        due = updated.step % UPDATES_BETWEEN_ANCHORS == 0
        return lax.cond(
            due | (updated.step <= self.first_anchored), self.anchor, lambda same: same, updated
        )

    def update_each(self, state: Any, rows: Array) -> Any:
        """Make a step on each of several rows in order, [n, features], and anchor the last state.

        An outer loop runs over anchors, an inner loop over the rows between them. With a condition
        instead, ``vmap`` would evaluate both branches.
        """
        require_batch(rows, self.num_inputs)
        # A traced loop counter cannot index a NumPy array.
        rows = jnp.asarray(rows)
        count = jnp.int32(len(rows))

        def to_next_anchor(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            done, state = carry
            until_due = UPDATES_BETWEEN_ANCHORS - state.step % UPDATES_BETWEEN_ANCHORS
            length = jnp.where(state.step < self.first_anchored, 1, until_due)
            stop = jnp.minimum(done + length, count)
            moved = lax.fori_loop(
                done, stop, lambda index, state: self.step_row(state, rows[index]), state
            )
            return stop, self.anchor(moved)

        start = (jnp.zeros_like(count), state)
        return lax.while_loop(lambda carry: carry[0] < count, to_next_anchor, start)[1]


def require_batch(batch: Array, num_inputs: int) -> None:
    """Raise an ``InputError`` unless a batch is [b >= 1, features]; shapes are static."""
    if batch.ndim != 2 or batch.shape[0] < 1 or batch.shape[1] != num_inputs:
        raise InputError(
            f"expected a batch of shape [b >= 1, {num_inputs} features], got {batch.shape}"
        )


def scan_updates(rule: StreamingRule, state: Any, rows: Array, rows_per_update: int) -> Any:
    """Update on rows [n, features] in order, n a multiple of an update's rows.

    Raises:
        InputError: Unless ``rows_per_update`` is a positive integer.
    """
    require_positive("rows_per_update", rows_per_update)
    if rows_per_update == 1:
        return rule.update_each(state, rows)
    batches = rows.reshape(-1, rows_per_update, rows.shape[1])
    return lax.scan(lambda state, batch: (rule.update(state, batch), None), state, batches)[0]
