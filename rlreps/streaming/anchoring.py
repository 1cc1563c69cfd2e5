"""One-row updates that rounding would carry away from what they stand for, and their anchors.

A rank-one update changes a quantity (an inverse, an orthonormal basis) in O(k · features) where
finding it anew takes O(k² · features). In float32 the two part within thousands of updates. An
*anchor* finds the quantity anew, after every 64th update, where it costs a few hundredths of the
updates themselves, and, where a rule asks for it, after each of its first ones.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

UPDATES_BETWEEN_ANCHORS = 64

OneRow = Callable[[Any, Array], Any]
"""(state, row [features]) → state; states have a leaf ``step``."""


def anchored_update(one: OneRow, anchor: Callable[[Any], Any], *, first: int = 0) -> OneRow:
    """A one-row update that anchors its state when that is due.

    Below ``vmap`` a condition is evaluated both ways: use ``anchored_updates`` there.

    Args:
        one: The update.
        anchor: What finds the quantity anew.
        first: Updates from the first one on that are each followed by an anchor.
    """

    def update(state: Any, row: Array) -> Any:
        updated = one(state, row)
        due = updated.step % UPDATES_BETWEEN_ANCHORS == 0
        return lax.cond(due | (updated.step <= first), anchor, _same, updated)

    return update


def anchored_updates(
    one: OneRow, anchor: Callable[[Any], Any], *, first: int = 0
) -> Callable[[Any, Array], Any]:
    """One update for each of several rows [n, features], anchored where that is due.

    Conditions stand around segments of 64 rows, which leaves the loop within them free of any.
    Arguments are those of ``anchored_update``.
    """

    def one_after_another(update: OneRow, state: Any, rows: Array) -> Any:
        return lax.scan(lambda state, row: (update(state, row), None), state, rows)[0]

    def segment(state: Any, rows: Array) -> Any:
        return lax.cond(
            state.step < first,
            lambda state, rows: one_after_another(
                lambda state, row: anchor(one(state, row)), state, rows
            ),
            lambda state, rows: anchor(one_after_another(one, state, rows)),
            state,
            rows,
        )

    def updates(state: Any, rows: Array) -> Any:
        count, width = rows.shape
        whole = count - count % UPDATES_BETWEEN_ANCHORS
        segments = jnp.reshape(rows[:whole], (-1, UPDATES_BETWEEN_ANCHORS, width))
        state, _ = lax.scan(lambda state, rows: (segment(state, rows), None), state, segments)
        return segment(state, rows[whole:]) if whole < count else state

    return updates


def _same(state: Any) -> Any:
    return state
