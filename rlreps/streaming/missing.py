"""Observations with missing entries: a reconstruction of them in front of a streaming rule."""

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
"""Default weight of ‖y‖² beside the squared error of the observed entries."""

_ROWS_TOGETHER = 32


@configurable
@dataclasses.dataclass(frozen=True)
class WithMissingEntries(WrappedRule):
    """A streaming rule that takes rows with missing entries, marked by NaN.

    Missing entries are replaced by their reconstruction from the current components (``impute``)
    and the rule's step follows. A reconstructed entry has no residual, so that of a rule whose
    residuals alone turn its span (``Rule.imputes``; ``require_imputing`` checks a name) only the
    observed entries do. For implicit and explicit Krasulina this is exact, up to the ridge:
    observed coordinates of C step as they would alone and C's other rows stay. Oja's rule takes a
    reconstructed row as it takes any: its span turns by residuals, its columns within the span by
    the row itself.

    A row that is wholly missing counts as a row of zeros: it moves no component, but is a step,
    and one of the rows that a batch's mean is over. To centre rows with missing entries put
    ``Centred(..., missing=True)`` around this.

    Where nothing is missing, steps are the rule's own at the rule's own cost. A row with missing
    entries costs O(k² · features). Below ``vmap`` every row does. States are the rule's own.

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
    """Raise an ``InputError`` unless a rule of that name can take missing entries."""
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
        ridge: Weight of ‖y‖². It decides where the observed entries do not, above all in rows with
            fewer of them than components; it moves entries of a row with enough of them by the
            order of it, relatively.

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

    # Not all rows at once: each has a copy of the components.
    imputed: Array = lax.map(one, batch, batch_size=_ROWS_TOGETHER)
    return imputed
