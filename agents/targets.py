"""Targets of auxiliary tasks: discounted sums of cumulants along sequences from replay.

Symbols: s_0 ... s_m the observations of a sequence's first episode, m the last that was seen, c_k
the cumulants, γ_k the columns' discounts, φ⁻ the target network's features. Targets are constants:
no gradient goes through them.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.rows import Rows, Window
from rlreps.losses.large_batch import least_squares_weights


def observed_rows(observation: Array, terminated: Array, last: Array) -> Rows:
    """Rows for auxiliary tasks, which look at neither actions nor rewards, from a user's arrays.

    Args:
        observation: Sequences in order of time, [b, l, *observation]; they may run on into further
            episodes, which are left out.
        terminated: Whether what was done at an observation ended the task, [b, l]; the observation
            it led to comes next and is ``last``.
        last: Whether an observation is the last of its episode, [b, l]; never a sequence's first.
    """
    return Rows(
        observation=observation,
        action=jnp.zeros(terminated.shape, jnp.int32),
        reward=jnp.zeros(terminated.shape, jnp.float32),
        terminated=terminated,
        last=last,
    )


def monte_carlo_targets(cumulants: Array, discounts: Array, window: Window) -> Array:
    """Σ_{j=0}^m γ_k^j c_k(s_j), [b, t].

    Exact where the task ended at s_m, as nothing comes after. A time limit or the sequence's end
    cuts the sum: the rest is taken for 0, which is off by γ_k^{m+1} ψ_k(s_{m+1}). For sequences of
    l rows that no episode's end cuts, the targets are Σ_{j<l} γ^j P^j c without bias, short of ψ by
    (γP)^l ψ: at most a share γ^l of the largest |c| / (1 − γ).

    Args:
        cumulants: c at every row, [b, l, t]; beyond the episode they are not looked at.
        discounts: γ, [t].
        window: Which rows belong to the first one's episode.
    """
    return _discounted_sums(cumulants, discounts, window.seen)


def bootstrapped_targets(
    cumulants: Array, discounts: Array, window: Window, predictions: Array, predicted: Array
) -> Array:
    """Σ_{j<m} γ_k^j c_k(s_j) + γ_k^m v_k(s_m), [b, t].

    v is a prediction of ψ(s_m), or c(s_m) itself where the task ended there. Neither a time limit
    nor the sequence's end biases the sums then, but the error of predictions does, times γ^m.

    Args:
        cumulants: c at every row, [b, l, t].
        discounts: γ, [t].
        window: Which rows belong to the first one's episode.
        predictions: Of ψ at the last row that was seen, [b, t].
        predicted: Whether there are predictions yet, []; without, sums are those of
            ``monte_carlo_targets``.
    """
    continued = predicted & ~window.terminal
    steps = jnp.arange(window.seen.shape[1], dtype=jnp.int32)
    replaced = continued[:, None] & (steps[None, :] == window.end[:, None])
    powers = jnp.power(discounts[None, :], window.end[:, None].astype(discounts.dtype))
    beyond = jnp.where(continued[:, None], powers * predictions, 0.0)
    return _discounted_sums(cumulants, discounts, window.seen & ~replaced) + beyond


def _discounted_sums(cumulants: Array, discounts: Array, counted: Array) -> Array:
    """Σ_j γ_k^j c_k(s_j) over the rows that count, [b, t]."""
    length = cumulants.shape[1]

    # Row by row from the end, G_j = c(s_j) + γ G_{j+1}: of all [b, l, t] products at once, XLA
    # would make a second array as large as the cumulants.
    def add(index: Array, sums: Array) -> Array:
        row = length - 1 - index
        values = lax.dynamic_index_in_dim(cumulants, row, 1, keepdims=False)
        counts = lax.dynamic_index_in_dim(counted, row, 1)
        return jnp.where(counts, values, 0.0) + discounts[None] * sums

    sums: Array = lax.fori_loop(0, length, add, jnp.zeros_like(cumulants[:, 0]))
    return sums


class Predictor(NamedTuple):
    """A linear map of features.

    Attributes:
        weights: W̄, [d, t].
        intercept: [t].
    """

    weights: Array
    intercept: Array


def fit_predictor(features: Array, targets: Array, ridge: float = 1e-4) -> Predictor:
    """The least-squares map of features [b, d] to targets [b, t], with an intercept.

    Args:
        features: φ⁻.
        targets: What to predict.
        ridge: Tikhonov term on the weights, relative to the mean eigenvalue of the features'
            covariance; the intercept has none.
    """
    feature_mean = jnp.mean(features, axis=0)
    target_mean = jnp.mean(targets, axis=0)
    weights = least_squares_weights(
        features - feature_mean[None], targets - target_mean[None], ridge
    )
    # A residual of near equals, as in the objectives: no default product of an accelerator.
    shift = jnp.matmul(feature_mean, weights, precision=lax.Precision.HIGHEST)
    return Predictor(weights, target_mean - shift)


def predict(predictor: Predictor, features: Array) -> Array:
    """φ⁻ᵀW̄ + intercept, [b, t], at features [b, d]."""
    products = jnp.matmul(features, predictor.weights, precision=lax.Precision.HIGHEST)
    predictions: Array = products + predictor.intercept[None]
    return predictions
