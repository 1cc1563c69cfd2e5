"""Values of fixed random cumulants by temporal differences, linear in the features."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval, positive, size
from rlreps.cumulants import Cumulants, RandomIndicators
from rlreps.losses.base import Encode, Metrics, Params
from rlreps.losses.least_squares import least_squares_weights
from rlreps.losses.pairs import TowardsAverages
from rlreps.losses.two_weights import two_weight_loss
from rlreps.numerics import DecayedMean, matmul


class CumulantState(NamedTuple):
    """The cumulants, drawn once, and the target network.

    Attributes:
        cumulants: Parameters of the cumulants.
        average: Moving average of the encoder's parameters and of the weights [d, t].
    """

    cumulants: Any
    average: DecayedMean


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class CumulantDifferences(TowardsAverages):
    """½ mean (φ(s)ᵀŵ − (1 − γ) c(s') − γ φ̄(s')ᵀw̄)² over cumulants c that are drawn once.

    These are random cumulants (Lyle et al. 2021); indicators, the default, give proto-value
    networks. Rows are pairs (s, s') of consecutive states. ŵ solves least squares on the batch and
    is held constant (Danskin): the limit of weights that learn much faster than features.
    ``LargeBatch`` on discounted sums is the Monte-Carlo counterpart.

    **Optimum.** A fixed point: the gradient is not the gradient of any scalar. Let M = (1 − γ)
    Σ_k γᵏ P^{k+1} and K = Σ_c c cᵀ. Tabular features at the fixed point span the leading invariant
    subspace of M K Pᵀ D, where D is diag(p). K = D⁻¹ gives the subspace of ``TDLowRank``.
    Monte-Carlo targets give the leading left singular vectors of M K^{1/2} instead; the two agree
    if K = I and P is symmetric with eigenvalues λ ≥ 0 (see ``TDLowRank``). If only
    one eigenvalue of a complex pair is among the d leading ones, the features rotate without end
    instead of reaching a fixed point. Not ordered.

    Attributes:
        num_cumulants: t.
        discount: γ.
        cumulants: The family. It is evaluated at the second states of the pairs.
    """

    num_cumulants: int = positive(64)
    discount: float = interval("[0, 1)", 0.95)
    cumulants: Cumulants = size(RandomIndicators())

    title: ClassVar[str] = "random cumulants by TD"

    def init(self, key: Array) -> CumulantState:
        """Draw cumulants; the average starts empty."""
        average = super().init(key)
        weights = jnp.zeros((self.num_features, self.num_cumulants))
        drawn = self.cumulants.init(jax.random.fold_in(key, 0), self.num_cumulants)
        return CumulantState(drawn, DecayedMean.empty((average.total, weights)))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: CumulantState, key: Array
    ) -> tuple[Array, tuple[CumulantState, Metrics]]:
        """Compute half the mean squared error; its gradient holds targets and weights constant."""
        del key  # Deterministic given the batch.
        features, _ = self.ends(params, encode, batch)
        # Before the first update the weights are zero, and so are the values of the next states.
        held, weights = state.average.mean()
        _, following = self.ends(held, encode, batch)
        cumulants = self.cumulants.apply(state.cumulants, batch.pair[1]).astype(features.dtype)
        targets = (1.0 - self.discount) * cumulants + self.discount * matmul(following, weights)
        # Temporal differences hold targets constant; Danskin's theorem holds the weights constant.
        fitted = least_squares_weights(*lax.stop_gradient((features, targets)))
        value = two_weight_loss(features, lax.stop_gradient(targets), fitted, fitted)
        average = state.average.add((lax.stop_gradient(params), fitted), self.averaging_rate)
        return value, (state._replace(average=average), {})
