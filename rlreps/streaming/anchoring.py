"""One-row updates that rounding would carry away from what they stand for, and their anchors.

A rank-one update changes a quantity, such as an inverse, in O(k · features) where finding it anew
takes O(k² · features). In float32 the two part within thousands of updates. An *anchor* finds the
quantity anew, after every 64th update, where it costs a few hundredths of the updates themselves,
and, where a rule asks for it, after each of its first ones.
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
        return lax.cond(due | (updated.step <= first), anchor, lambda same: same, updated)

    return update


def anchored_updates(
    one: OneRow, anchor: Callable[[Any], Any], *, first: int = 0
) -> Callable[[Any, Array], Any]:
    """One update for each of several rows [n, features], anchored where that is due and at the end.

    A loop from anchor to anchor around a loop over rows: no condition that ``vmap`` would evaluate
    both ways. Arguments are those of ``anchored_update``.
    """

    def updates(state: Any, rows: Array) -> Any:
        # NumPy's rows cannot be indexed by a loop's counter.
        rows = jnp.asarray(rows)
        count = jnp.int32(len(rows))

        def to_next_anchor(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            done, state = carry
            until_due = UPDATES_BETWEEN_ANCHORS - state.step % UPDATES_BETWEEN_ANCHORS
            length = jnp.where(state.step < first, jnp.ones_like(until_due), until_due)
            stop = jnp.minimum(done + length, count)
            moved = lax.fori_loop(done, stop, lambda index, state: one(state, rows[index]), state)
            return stop, anchor(moved)

        start = (jnp.zeros_like(count), state)
        return lax.while_loop(lambda carry: carry[0] < count, to_next_anchor, start)[1]

    return updates
