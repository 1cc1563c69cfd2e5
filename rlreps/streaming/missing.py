"""Observations with missing entries: reconstruct the entries in front of a streaming rule."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import configurable, interval
from rlreps.errors import InputError, require_choice
from rlreps.numerics import matmul
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import WrappedRule, require_batch, scan_rows
from rlreps.subspace.linalg import solve_positive_definite

RIDGE = 1e-3
"""Default weight of ‖y‖² relative to the squared error of the observed entries."""

_ROWS_TOGETHER = 32


@configurable
@dataclasses.dataclass(frozen=True)
class WithMissingEntries(WrappedRule):
    """A streaming rule that takes rows with missing entries, marked by NaN.

    Missing entries are replaced by their reconstruction from the current components (``impute``),
    and the rule then makes its step. A reconstructed entry has no residual. If residuals alone turn
    a rule's span (``Rule.imputes``; ``require_imputing`` checks a name), then only observed entries
    turn it. For implicit and explicit Krasulina this is exact, up to the ridge: the observed
    coordinates of C step as they would alone, and C's other rows stay. Oja's rule treats a
    reconstructed row like any other: residuals turn its span, and the row itself turns its columns
    within the span.

    A row that is wholly missing counts as a row of zeros. It moves no component, but it counts as a
    step and as a row in a batch's mean. To centre rows with missing entries, put
    ``Centred(..., missing=True)`` around this rule.

    If nothing is missing, steps are the rule's own at the rule's own cost. A row with missing
    entries costs O(k² · features); under ``vmap`` every row does. States are the rule's own.

    Attributes:
        rule: The rule for complete rows.
        ridge: Weight of ‖y‖² > 0, as in ``impute``.
    """

    _: dataclasses.KW_ONLY
    ridge: float = interval("(0, inf)", RIDGE)

    def update(self, state: Any, batch: Array) -> Any:
        require_batch(batch, self.num_inputs)
        completed = lax.cond(
            jnp.any(jnp.isnan(batch)),
            lambda: impute(self.rule.components(state), batch, self.ridge),
            lambda: batch,
        )
        return self.rule.update(state, completed)

    def update_each(self, state: Any, rows: Array) -> Any:
        require_batch(rows, self.num_inputs)
        return lax.cond(
            jnp.any(jnp.isnan(rows)),
            lambda: scan_rows(self, state, rows),
            lambda: self.rule.update_each(state, rows),
        )


def require_imputing(name: str) -> None:
    """Raise an ``InputError`` unless the rule of this name can take missing entries."""
    require_choice("rule", name, tuple(RULES))
    if not RULES[name].imputes:
        able = ", ".join(rule for rule, entry in sorted(RULES.items()) if entry.imputes)
        raise InputError(
            f"expected a rule that can take missing entries, one of {able}, got {name!r}"
        )


def impute(components: Array, batch: Array, ridge: float = RIDGE) -> Array:
    """Replace missing entries of rows by their reconstruction.

    The hidden variables of a row with observed entries O minimise ‖x_O − V_O y‖² + ridge ‖y‖²; its
    missing entries become those of Vy.

    Args:
        components: V, orthonormal columns, [features, k].
        batch: Centred observations, NaN where missing, [b, features].
        ridge: Weight of ‖y‖². It decides if the observed entries do not, above all in rows with
            fewer of them than components. In a row with enough observed entries it changes the
            result by a relative amount of its own order.

    Returns:
        [b, features], without NaN; a row that is wholly missing becomes zero.
    """

    def one(row: Array) -> Array:
        missing = jnp.isnan(row)
        known = jnp.where(missing, jnp.zeros_like(row), row)
        observed = jnp.where(missing[:, None], jnp.zeros_like(components), components)
        gram = matmul(observed.T, observed)
        system = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
        projected = matmul(observed.T, known)
        hidden = solve_positive_definite(system, projected[:, None])[:, 0]
        return jnp.where(missing, matmul(components, hidden), row)

    # Not all rows at once, since each needs a copy of the components.
    imputed: Array = lax.map(one, batch, batch_size=_ROWS_TOGETHER)
    return imputed
