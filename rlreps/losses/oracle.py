"""The oracle: exact optimal weights from all states (Le Lan et al. 2023, Lemma 1)."""

import dataclasses
from typing import Any, ClassVar

from jax import Array, lax

from rlreps.config import configurable
from rlreps.errors import InputError
from rlreps.losses.base import (
    Batch,
    Encode,
    Metrics,
    Objective,
    Params,
    empirical_weights,
    mean_product,
    two_weight_loss,
)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Oracle(Objective):
    """W*_Φ = (ΦᵀΦ)†Φᵀψ over every state; gradient W*(φᵀW* − ψ) at the batch's rows.

    The floor of every method that estimates W*. Its cost per update grows with the number of
    states, and a batch must bring its ``population``.
    """

    title: ClassVar[str] = "oracle (exact weights)"
    live: ClassVar[bool] = False
    needs_population: ClassVar[bool] = True

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual; an ``InputError`` without a population."""
        del key  # Deterministic given the batch.
        if batch.population is None:
            raise InputError("expected a batch with its population, got population=None")
        # W* is a minimiser: by Danskin's theorem it is differentiated as a constant.
        features = encode(lax.stop_gradient(params), batch.population.inputs)
        right_hand_side = mean_product(features, batch.population.targets)
        weights = empirical_weights(features, right_hand_side)
        value = two_weight_loss(encode(params, batch.inputs), batch.targets, weights, weights)
        return value, (state, {})
