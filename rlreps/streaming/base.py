"""What a streaming rule is: the contract that every online principal component analysis meets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array, lax

from rlreps.errors import InputError, require


class StreamingRule(NamedTuple):
    """Online principal component analysis as pure functions, for ``scan`` and ``vmap``.

    States are pytrees of arrays with a leaf ``step``, the updates made; no function changes one, so
    that the state before a bad batch is still there. Shapes are checked, values are not: NaN in a
    row is NaN in the state that comes of it. ``StreamingPCA`` refuses such rows.

    Attributes:
        init: key → state.
        update: (state, batch [b, features]) → state: one step on a batch of b ≥ 1 rows, which are
            centred observations.
        update_each: (state, rows [n, features]) → state: n steps on one row each, in order.
        components: state → estimated components [features, k], unit columns, those that the rule
            tells apart in descending order of variance.
        combine: (states with a leading worker axis, weights [workers]) → state: one model out of
            several that went on from a common one. Weights need not sum to one.
    """

    init: Callable[[Array], Any]
    update: Callable[[Any, Array], Any]
    update_each: Callable[[Any, Array], Any]
    components: Callable[[Any], Array]
    combine: Callable[[Any, Array], Any]


def one_row_at_a_time(
    update: Callable[[Any, Array], Any], num_inputs: int
) -> Callable[[Any, Array], Any]:
    """``update_each`` of a rule that has no faster way than its ``update``."""

    def update_each(state: Any, rows: Array) -> Any:
        require_batch(rows, num_inputs)

        def body(state: Any, row: Array) -> tuple[Any, None]:
            return update(state, row[None, :]), None

        return lax.scan(body, state, rows)[0]

    return update_each


def require_sizes(num_inputs: int, num_components: int) -> None:
    """Raises an ``InputError`` unless 1 ≤ k ≤ features."""
    require(
        1 <= num_components <= num_inputs,
        f"1 <= num_components <= {num_inputs}, the features of an observation",
        num_components,
    )


def require_batch(batch: Array, num_inputs: int) -> None:
    """Raises an ``InputError`` unless a batch is [b, features] with b ≥ 1; shapes are static."""
    if batch.ndim != 2 or batch.shape[0] < 1 or batch.shape[1] != num_inputs:
        raise InputError(
            f"expected a batch of shape [b >= 1, {num_inputs} features], got {batch.shape}"
        )


def most_updates(steps: Array) -> Array:
    """The updates that a combined model counts: those of the worker that made the most, []."""
    return jax.numpy.max(steps)
