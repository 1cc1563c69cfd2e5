"""Observations with missing entries: a reconstruction of them in front of a streaming rule."""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import InputError, require, require_choice
from rlreps.streaming.base import StreamingRule, one_row_at_a_time, require_batch
from rlreps.streaming.registry import RULES
from rlreps.subspace.linalg import solve_positive_definite

_HIGHEST = lax.Precision.HIGHEST

RIDGE = 1e-3
"""Default weight of ‖y‖² beside the squared error of the observed entries."""

_ROWS_TOGETHER = 32


def require_imputing(name: str) -> None:
    """Raises an ``InputError`` unless a rule of that name can take missing entries."""
    require_choice("rule", name, tuple(RULES))
    if not RULES[name].imputes:
        able = ", ".join(rule for rule, entry in sorted(RULES.items()) if entry.imputes)
        raise InputError(
            f"expected a rule that can take missing entries, one of {able}, got {name!r}"
        )


def impute(components: Array, batch: Array, ridge: float = RIDGE) -> Array:
    """Rows with missing entries replaced by their reconstruction.

    The hidden variables of a row with observed entries O minimise ‖x_O − V_O y‖² + ridge ‖y‖²; its
    missing entries become those of Vy.

    Args:
        components: V, orthonormal columns, [features, k].
        batch: Centred observations, NaN where missing, [b, features].
        ridge: What decides where the observed entries do not, above all in rows with fewer of them
            than components. Entries of a row with enough of them move by the order of it,
            relatively.

    Returns:
        [b, features], without NaN; a row that is wholly missing becomes zero.
    """

    def one(row: Array) -> Array:
        missing = jnp.isnan(row)
        known = jnp.where(missing, jnp.zeros_like(row), row)
        observed = jnp.where(missing[:, None], jnp.zeros_like(components), components)
        gram = jnp.matmul(observed.T, observed, precision=_HIGHEST)
        system = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
        projected = jnp.matmul(observed.T, known, precision=_HIGHEST)
        hidden = solve_positive_definite(system, projected[:, None])[:, 0]
        return jnp.where(missing, jnp.matmul(components, hidden, precision=_HIGHEST), row)

    # Not all rows at once: each has a copy of the components.
    imputed: Array = lax.map(one, batch, batch_size=_ROWS_TOGETHER)
    return imputed


def with_missing_entries(
    rule: StreamingRule, num_inputs: int, *, ridge: float = RIDGE
) -> StreamingRule:
    """A rule that takes rows with missing entries, marked by NaN.

    Missing entries are replaced by their reconstruction from the current components (``impute``)
    and the rule's step follows. A reconstructed entry has no residual, so that of a rule whose
    residuals alone turn its span (``RuleEntry.imputes``; ``require_imputing`` checks a name) only
    what was observed does. For implicit and explicit Krasulina this is exact, up to the ridge:
    observed coordinates of C step as they would alone and C's other rows stay. Oja's rule takes a
    reconstructed row as it takes any: its span turns by residuals, its columns within the span by
    the row itself.

    A row that is wholly missing counts as a row of zeros: it moves no component, but is a step,
    and one of the rows that a batch's mean is over. To centre rows with missing entries put
    ``with_running_mean(..., missing=True)`` around this.

    Where nothing is missing, steps are the rule's own at the rule's own cost. A row with missing
    entries costs O(k² · features). Below ``vmap`` every row does.

    Args:
        rule: The rule for complete rows.
        num_inputs: Features of an observation.
        ridge: As in ``impute``.

    Returns:
        The rule; its states are those of the given one.

    Raises:
        InputError: Unless the ridge is positive.
    """
    require(ridge > 0.0, "ridge > 0", ridge)

    def update(state: Any, batch: Array) -> Any:
        require_batch(batch, num_inputs)
        completed = lax.cond(
            jnp.any(jnp.isnan(batch)),
            lambda state, batch: impute(rule.components(state), batch, ridge),
            lambda state, batch: batch,
            state,
            batch,
        )
        return rule.update(state, completed)

    each = one_row_at_a_time(update, num_inputs)

    def update_each(state: Any, rows: Array) -> Any:
        require_batch(rows, num_inputs)
        return lax.cond(jnp.any(jnp.isnan(rows)), each, rule.update_each, state, rows)

    return StreamingRule(rule.init, update, update_each, rule.components, rule.combine)
