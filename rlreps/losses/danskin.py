"""Objectives from two independent weight estimates (Le Lan et al. 2023, Sec. 4).

The gradient of L(Φ) is a product of two functions of W*. With independent unbiased estimates ŵ, ŵ'
of the same column, ŵ'(φᵀŵ − ψ) is an unbiased estimate of it; with one estimate used twice
(``naive``), the estimate's own variance biases it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import require
from rlreps.losses.base import (
    Batch,
    Encode,
    Metrics,
    Objective,
    Params,
    empirical_weights,
    mean_product,
    require_features,
    two_weight_loss,
)
from rlreps.losses.whitening import Whitening, init_whitening, update_whitening, whitener
from rlreps.subspace.inverse_covariance import lissa, lissa_kappa, validate_kappa0

_RUNNING_NORM_DECAY = 0.99


class Roles(NamedTuple):
    """How a batch's rows are shared out.

    Attributes:
        gradient: N, rows at which the gradient is taken.
        weight: M, rows behind each right-hand side mean φψ.
        covariance: J, rows behind each inverse covariance estimate.
    """

    gradient: int
    weight: int
    covariance: int

    def rows(self, num_estimates: int) -> int:
        """Rows one update needs: N + (M + J) for each weight estimate."""
        return self.gradient + num_estimates * (self.weight + self.covariance)


class TwoWeightState(NamedTuple):
    """Running averages behind the estimates.

    Attributes:
        squared_norm: Running average of each batch's largest ‖φ‖², whitened if the objective
            whitens, []; 0 before the first (whitened) batch.
        whitening: Running covariance for the whitening extension; left empty without it.
    """

    squared_norm: Array
    whitening: Whitening


def even_roles(rows: int, num_estimates: int) -> Roles:
    """Shares rows evenly over the roles; what does not divide goes to the gradient.

    Args:
        rows: b, rows of the batch.
        num_estimates: Weight estimates, each with its own M + J rows.

    Raises:
        InputError: If there are fewer rows than roles.
    """
    share = rows // (1 + 2 * num_estimates)
    require(share >= 1, f"at least {1 + 2 * num_estimates} rows a batch", rows)
    return Roles(rows - 2 * num_estimates * share, share, share)


def danskin_lissa(
    num_features: int,
    *,
    roles: Roles | None = None,
    kappa0: float | Array = 1.9,
    feature_norm: str = "batch",
    permutations: int = 1,
    whitening: bool = False,
) -> Objective:
    """Danskin-LISSA: ŵ = Ĉ mean φψ with Ĉ the LISSA estimate, twice, from independent rows.

    Le Lan et al. 2023, Algorithm 1. For a fixed step size κ, E[Ĉ] is the truncated Neumann series
    κ Σ_{j≤J} (I − κC)ʲ; κ = κ0 / max‖φ‖² is set by the features that the objective meets.

    Args:
        num_features: d.
        roles: Rows of each role, N + 2M + 2J = b; None shares the batch evenly.
        kappa0: κ0 in (0, 2); an array [] is taken as it is.
        feature_norm: ``batch`` takes max‖φ‖² over each estimate's own rows (the paper); ``running``
            takes a running average of the batch maximum, or the rows' own where that is larger.
        permutations: Random assignments of rows to roles in one update, averaged; each is as
            unbiased as the given order. Above 1, any row may be a gradient row, so the backward
            pass covers them all.
        whitening: Solve for the weights in features whitened by a running covariance of earlier
            batches. An extension: L is invariant under invertible maps of the features, while the
            truncated series converges much faster for a covariance near the identity.

    Returns:
        The objective.

    Raises:
        InputError: For options out of range.
    """
    if not isinstance(kappa0, Array):
        validate_kappa0(kappa0)
    require(feature_norm in ("batch", "running"), "feature_norm 'batch' or 'running'", feature_norm)

    def solve(features: Array, right_hand_side: Array, running_squared_norm: Array) -> Array:
        norm = jnp.max(jnp.sum(jnp.square(features), axis=-1))
        if feature_norm == "running":
            # Never below the rows' own maximum: beyond κ‖φ‖² = 2 the series diverges.
            norm = jnp.maximum(norm, running_squared_norm)
        weights: Array = lissa(features, right_hand_side, lissa_kappa(features, kappa0, norm))
        return weights

    return _two_weight_objective(num_features, solve, roles, 2, permutations, whitening)


def danskin_empirical(
    num_features: int,
    *,
    roles: Roles | None = None,
    permutations: int = 1,
    whitening: bool = False,
) -> Objective:
    """As ``danskin_lissa`` with Ĉ = (Φ̂ᵀΦ̂ / J)†, which is biased for any finite J.

    Args:
        num_features: d.
        roles: Rows of each role, N + 2M + 2J = b; None shares the batch evenly.
        permutations: As in ``danskin_lissa``.
        whitening: As in ``danskin_lissa``.

    Returns:
        The objective.
    """
    return _two_weight_objective(num_features, _empirical_solve, roles, 2, permutations, whitening)


def naive(
    num_features: int,
    *,
    roles: Roles | None = None,
    permutations: int = 1,
    whitening: bool = False,
) -> Objective:
    """One Ĉ = (Φ̂ᵀΦ̂ / J)† and one ŵ for both factors: biased by the variance of ŵ.

    Args:
        num_features: d.
        roles: Rows of each role, N + M + J = b; None shares the batch evenly.
        permutations: As in ``danskin_lissa``.
        whitening: As in ``danskin_lissa``.

    Returns:
        The objective.
    """
    return _two_weight_objective(num_features, _empirical_solve, roles, 1, permutations, whitening)


Solve = Callable[[Array, Array, Array], Array]
"""(features [J, d], right-hand side [d, t], running ‖φ‖² []) → weights [d, t]."""


def _empirical_solve(features: Array, right_hand_side: Array, _: Array) -> Array:
    return empirical_weights(features, right_hand_side)


def _two_weight_objective(
    num_features: int,
    solve: Solve,
    roles: Roles | None,
    num_estimates: int,
    permutations: int,
    whitening: bool,
) -> Objective:
    require(num_features >= 1, "num_features >= 1", num_features)
    require(permutations >= 1, "permutations >= 1", permutations)
    require(roles is None or min(roles) >= 1, "at least one row for each role", roles)

    def init(key: Array) -> TwoWeightState:
        del key  # Nothing here is random.
        return TwoWeightState(jnp.zeros(()), init_whitening(num_features))

    def loss(
        params: Params, encode: Encode, batch: Batch, state: TwoWeightState, key: Array
    ) -> tuple[Array, tuple[TwoWeightState, Metrics]]:
        num_rows = batch.inputs.shape[0]
        shares = even_roles(num_rows, num_estimates) if roles is None else roles
        needed = shares.rows(num_estimates)
        require(needed == num_rows, f"a batch of {needed} rows for {shares}", num_rows)
        raw = _encode_rows(params, encode, batch.inputs, shares.gradient, permutations)
        require_features(raw, num_rows, num_features)
        # The whitener comes from earlier batches, so given the past it is a constant and the
        # estimate in whitened features is as unbiased as without it.
        features = raw
        if whitening:
            transform = whitener(state.whitening).T
            features = jnp.matmul(raw, transform, precision=lax.Precision.HIGHEST)
        fixed = lax.stop_gradient(features)

        def one_assignment(order: Array) -> Array:
            w, w_prime = _weight_estimates(
                fixed[order], batch.targets[order], shares, num_estimates, solve, state
            )
            rows = order[: shares.gradient]
            return two_weight_loss(features[rows], batch.targets[rows], w, w_prime)

        value = jnp.mean(jax.vmap(one_assignment)(_orders(key, num_rows, permutations)))
        new_state = _update_state(state, lax.stop_gradient(raw), fixed, whitening)
        return value, (new_state, {"running_squared_norm": new_state.squared_norm})

    return Objective(init, loss)


def _orders(key: Array, num_rows: int, permutations: int) -> Array:
    """The order in which rows take the roles, once for each permutation, [permutations, b]."""
    if permutations == 1:
        return jnp.arange(num_rows)[None, :]
    keys = jax.random.split(key, permutations)
    return jax.vmap(lambda each: jax.random.permutation(each, num_rows))(keys)


def _weight_estimates(
    features: Array,
    targets: Array,
    shares: Roles,
    num_estimates: int,
    solve: Solve,
    state: TwoWeightState,
) -> tuple[Array, Array]:
    """ŵ and ŵ' [d, t] from the rows after the gradient's; the same one twice if there is one."""
    weights = []
    for index in range(num_estimates):
        first = shares.gradient + index * (shares.weight + shares.covariance)
        middle = first + shares.weight
        last = middle + shares.covariance
        right_hand_side = mean_product(features[first:middle], targets[first:middle])
        weights.append(solve(features[middle:last], right_hand_side, state.squared_norm))
    return weights[0], weights[-1]


def _encode_rows(
    params: Params, encode: Encode, inputs: Array, gradient_rows: int, permutations: int
) -> Array:
    """Features of every row; without role exchange only the gradient's rows are differentiated."""
    if permutations > 1:
        return encode(params, inputs)
    # The other rows only estimate weights, which carry no gradient: skip their backward pass.
    others = encode(lax.stop_gradient(params), inputs[gradient_rows:])
    return jnp.concatenate([encode(params, inputs[:gradient_rows]), others])


def _update_state(
    state: TwoWeightState, raw: Array, features: Array, whitening: bool
) -> TwoWeightState:
    largest = jnp.max(jnp.sum(jnp.square(features), axis=-1))
    running = jnp.where(
        state.squared_norm > 0.0,
        _RUNNING_NORM_DECAY * state.squared_norm + (1.0 - _RUNNING_NORM_DECAY) * largest,
        largest,
    )
    if not whitening:
        return TwoWeightState(running, state.whitening)
    # The first batch met no whitener yet: its norms are in other units than all that follow.
    running = jnp.where(state.whitening.weight > 0.0, running, jnp.zeros_like(running))
    return TwoWeightState(running, update_whitening(state.whitening, raw))
