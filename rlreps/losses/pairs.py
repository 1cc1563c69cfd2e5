"""Parts that objectives on pairs of states share: encoding both ends, products of other rows.

The rows of a batch are independent pairs (s, s⁺): a state and the next state, or a state and the
state after a random number of steps. p and p⁺ are the distributions of s and of s⁺.

- M̃(s, t) = P(s⁺ = t | s) / p⁺(t) is the **density ratio** of the pairs. From a stationary source
  with a discount γ, it is the density ratio of the normalised successor measure (1 − γ) Σ_{k≥0} γᵏ
  P^{k+1}.
- A is the **walk** of the pairs taken in either order. It is symmetric in μ = (p + p⁺)/2, the
  measure of both ends: ⟨u, Av⟩ = ½ E[u(s) v(s⁺) + u(s⁺) v(s)]. Its eigenvalues λ lie in [−1, 1];
  the constant has λ = 1. The eigenvalues of ``Slowness`` are 2(1 − λ).

Independent states are states of other rows of the batch, so that no further states are drawn. An
optimum is **ordered** if feature k is the k-th function, not a mixture of the leading functions.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import interval, size
from rlreps.encoders import Encoder
from rlreps.errors import InputError, require
from rlreps.losses.base import Encode, Objective, Params
from rlreps.numerics import DecayedMean, matmul

Ends: TypeAlias = tuple[Array, Array]
"""Features of the first and of the second states, [b, d] each."""


@dataclasses.dataclass(frozen=True)
class PairObjective(Objective):
    """An objective whose rows are pairs of states; targets are ignored."""

    @property
    def needs_clips(self) -> bool:
        return True

    def require_rows(self, rows: int) -> None:
        require(rows >= 2, f"rows >= 2, for independent states (method {self.name})", rows)

    def ends(self, params: Params, encode: Encode, batch: Batch) -> Ends:
        """Encode both states of every pair.

        Raises:
            InputError: Unless there are two rows of pairs, and features are [b, num_features].
        """
        features = self.features(params, encode, _states_of(self, batch))
        first, second = jnp.split(features, 2)
        return first, second

    def factors(self, params: Params, encode: Encode, batch: Batch) -> tuple[Ends, Ends]:
        """Return f and g at both states of each pair.

        Features [b, 2 d] of ``TwoTowers``, whose parameters are ``forward`` and ``backward``, are
        [f, g]; features [b, d] of other encoders are f = g.

        Raises:
            InputError: Unless there are two rows of pairs, and features have this shape.
        """
        states = _states_of(self, batch)
        features, d = encode(params, states), self.num_features
        towers = isinstance(params, Mapping) and params.keys() == {"forward", "backward"}
        expected = f"an encoder of {d} features, or TwoTowers of {d} each, for {self.name}"
        fits = features.ndim == 2 and features.shape[1] == (2 * d if towers else d)
        require(fits, expected, features.shape)
        forward, backward = features[:, :d], features[:, -d:]
        (f_first, f_second), (g_first, g_second) = jnp.split(forward, 2), jnp.split(backward, 2)
        return (f_first, f_second), (g_first, g_second)


def _states_of(objective: PairObjective, batch: Batch) -> Any:
    """Stack the first states and then the second states, [2 b, ...]."""
    objective.require_rows(batch.num_rows)
    first, second = batch.pair
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), first, second)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TowardsAverages(PairObjective):
    """An objective whose state is an average of the parameters, the target network.

    Attributes:
        averaging_rate: Share of the new parameters in the target network's average at each update.
        encoder: The encoder being trained; only the shapes of its parameters are used.
    """

    averaging_rate: float = interval("(0, 1]", 0.1)
    encoder: Encoder | None = size(None, leaf=True)

    def init(self, key: Array) -> Any:
        """Return the average of parameters before the first update.

        Raises:
            InputError: If there is no encoder.
        """
        if self.encoder is None:
            raise InputError(f"expected an encoder for the averages of {self.name}, got None")
        shapes = jax.eval_shape(self.encoder.init, key)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return DecayedMean.empty(zeros)

    def target(self, params: Params, state: DecayedMean) -> tuple[Params, DecayedMean]:
        """Return the target's parameters, and the average updated by the current parameters."""
        # Targets are held constant: temporal differences follow a semi-gradient.
        now, started = lax.stop_gradient(params), state.weight > 0.0
        held = jax.tree.map(lambda old, new: jnp.where(started, old, new), state.mean(), now)
        return held, state.add(now, self.averaging_rate)


def independent_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Estimate E[a_l b_m] E[c_l d_m] without bias from features of the same rows, [n, k] → [k, k].

    The estimate is the mean of a_l(i) b_m(i) c_l(j) d_m(j) over pairs of different rows i ≠ j.
    """
    rows = len(a)
    every = matmul(a.T, b) * matmul(c.T, d)
    return (every - matmul((a * c).T, b * d)) / (rows * (rows - 1))


def nesting(num_features: int) -> tuple[Array, Array]:
    """Compute weights v [d] and m [d, d] of the mean loss of the first k features, k = 1 … d.

    A loss Σ_l x_l + Σ_lm y_lm of all d features becomes Σ_l v_l x_l + Σ_lm m_lm y_lm, the mean over
    k of the losses of the first k features. Features that minimise all d losses are ordered (Wang
    et al. 2021; Ryu et al. 2024, joint nesting).
    """
    weights = np.arange(num_features, 0, -1) / num_features
    return jnp.asarray(weights), jnp.asarray(np.minimum(weights[:, None], weights[None, :]))


def second_moment(ends: Ends, others: Ends) -> Array:
    """Compute ½ E[u(s)v(s)ᵀ + u(s⁺)v(s⁺)ᵀ], the products ⟨u_l, v_m⟩ in μ, [d, d]."""
    left, right = jnp.concatenate(ends), jnp.concatenate(others)
    return matmul(left.T, right) / len(left)


def eigenvalues(ends: Ends) -> Array:
    """Compute the Rayleigh quotient ⟨u, Au⟩ / ⟨u, u⟩ of each feature, [d]."""
    first, second = ends
    squares = 0.5 * jnp.mean(jnp.square(first) + jnp.square(second), axis=0)
    return jnp.mean(first * second, axis=0) / jnp.square(scales(squares))


def scales(mean_squares: Array) -> Array:
    """Take roots of mean squares, [d]; 1 if the mean square is zero."""
    # The condition guards the root's argument: its derivative at zero is infinite.
    tiny = float(np.finfo(mean_squares.dtype).tiny)
    return jnp.sqrt(jnp.where(mean_squares > tiny, mean_squares, jnp.ones_like(mean_squares)))
