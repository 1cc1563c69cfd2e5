"""Objectives that solve for their weights, over all states or on the update's rows."""

import dataclasses
from typing import Any, ClassVar, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval
from rlreps.errors import require, require_choice, require_positive
from rlreps.losses.base import Encode, Metrics, Objective, Params
from rlreps.losses.two_weights import empirical_weights, mean_product, regularised, two_weight_loss
from rlreps.numerics import DecayedMean, matmul, take_rows
from rlreps.subspace.linalg import solve_positive_definite

WeightRows = Literal["gradient", "all"]

_RATE = 0.01


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Oracle(Objective):
    """W*_Φ = (ΦᵀΦ)†Φᵀψ over every state (Le Lan et al. 2023, Lemma 1).

    The gradient is W*(φᵀW* − ψ) at the batch's rows. Methods that estimate W* approximate this
    gradient. The cost per update grows with the number of states, and a batch must bring its
    ``population``. The objective is ``LargeBatch(weight_rows="all")`` with a pseudo-inverse instead
    of a ridge. It is exact even for linearly dependent features, at the cost of an
    eigendecomposition an update.
    """

    title: ClassVar[str] = "oracle (exact weights)"

    @property
    def needs_population(self) -> bool:
        return True

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual; raise an ``InputError`` without a population."""
        # W* is a minimiser, so Danskin's theorem lets the gradient hold it constant.
        features, targets = self.at_all_states(params, encode, batch)
        weights = empirical_weights(features, mean_product(features, targets))
        rows = self.features(params, encode, batch.inputs)
        value = two_weight_loss(rows, batch.targets, weights, weights)
        return value, (state, {})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class LargeBatch(Objective):
    """ŵ = argmin_w ‖Φw − ψ‖² over ``weight_rows``, held constant; gradient ŵ(φᵀŵ − ψ) at N rows.

    ``weight_rows="all"`` is the Large Batch method of Le Lan et al. 2023 (Sec. 5.3): ŵ is fitted on
    φ and Ψ at all states, here with a small ridge, and the gradient is taken at 250 rows. It
    encodes every state in every update.

    The default needs no population: the update's own rows also fit ŵ. By Danskin's theorem its
    gradient is exactly the gradient of the batch's own projection loss. This gradient is a biased
    estimate of the population's, with less bias for larger batches.

    Two extensions are not part of the paper:

    * ``precondition``: the gradient becomes (S + r·tr(S)/d·I)⁻¹ ŵ(φᵀŵ − ψ), where S is the running
      mean of ŵŵᵀ. In the limit r → 0, with S = ŵŵᵀ over all tasks, this gradient is
      φ − (ŵŵᵀ)⁻¹ŵψ: subtracting it from φ gives the features that are best for these weights, as in
      alternating least squares. The plain gradient along a singular direction scales with σ², so
      small directions are learned last. The inverted matrix has full rank, so tabular features and
      the weights of a last linear layer keep their stationary points. In the parameters of lower
      layers, the rows' gradients may sum to zero without this matrix but not with it, so a network
      may have other stationary points.
    * ``leave_one_out``: each row's residual becomes the residual under weights fitted without the
      row, (φᵀŵ − ψ)/(1 − h) with its leverage h = φᵀ(ΦᵀΦ)⁻¹φ (Allen 1974, PRESS). Fitting a row
      multiplies its residual by 1 − h; h is about d / b on average. The factor ŵ in front is
      unchanged.

    Attributes:
        weight_rows: Rows that fit ŵ: ``gradient``, the rows at which the gradient is taken;
            ``all``, every state, which batches must bring as their population; or a number n: the
            last n rows of each batch, which the gradient then does not use.
        ridge: Tikhonov term relative to the mean eigenvalue of the batch covariance. It keeps the
            solve well posed with fewer rows than features or with dependent features. The ridge
            used is at least 10 d ε, with the dtype's machine epsilon ε: 1.2e-6·d in float32, where
            1e-6 therefore has no effect.
        precondition: r; 0.01 worked well. None leaves the gradient as it is.
        leave_one_out: Whether each row's residual uses weights fitted without the row; requires
            ``weight_rows="gradient"``.
    """

    weight_rows: WeightRows | int = "gradient"
    ridge: float = interval("(0, inf)", 1e-6)
    precondition: float | None = interval("(0, inf)", None)
    leave_one_out: bool = False

    title: ClassVar[str] = "large batch"

    def __post_init__(self) -> None:
        if isinstance(self.weight_rows, str):
            require_choice("weight_rows", self.weight_rows, get_args(WeightRows))
        else:
            require_positive("weight_rows", self.weight_rows)
        require(
            self.weight_rows == "gradient" or not self.leave_one_out,
            f"leave_one_out=False with weight_rows={self.weight_rows!r}, where the gradient's rows "
            "fit no weights",
            self.leave_one_out,
        )

    @property
    def label(self) -> str:
        fitted = {"gradient": "the gradient's rows", "all": "all states"}
        rows = fitted.get(str(self.weight_rows), f"{self.weight_rows} further rows")
        return f"{self.title} (weights from {rows})"

    @property
    def needs_population(self) -> bool:
        return self.weight_rows == "all"

    def require_rows(self, rows: int) -> None:
        if isinstance(self.weight_rows, int):
            expected = f"rows > {self.weight_rows}, the number of rows that fit the weights"
            require(rows > self.weight_rows, expected, rows)

    def init(self, key: Array) -> Any:
        """Return the running mean of ŵŵᵀ, or () without ``precondition``."""
        square = jnp.zeros((self.num_features, self.num_features))
        return () if self.precondition is None else DecayedMean.empty(square)

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual, with each row left out if ``leave_one_out``."""
        self.require_rows(batch.num_rows)
        further = self.weight_rows if isinstance(self.weight_rows, int) else 0
        first = batch.num_rows - further  # The rows of the gradient come first.
        features = self.features(params, encode, take_rows(batch.inputs, slice(first)))
        targets = batch.targets[:first]
        # Danskin's theorem: the weights are constants, whichever rows fit them.
        held, fitted_targets = lax.stop_gradient(features), targets
        if self.weight_rows == "all":
            held, fitted_targets = self.at_all_states(params, encode, batch)
        elif further:
            others = take_rows(batch.inputs, slice(first, None))
            held = self.features(lax.stop_gradient(params), encode, others)
            fitted_targets = batch.targets[first:]
        weights = least_squares_weights(held, fitted_targets, self.ridge)
        front = weights
        if self.precondition is not None:
            state = state.add(mean_product(weights.T, weights.T), _RATE)
            regular = regularised(state.mean(), self.precondition)
            # Solving for the inverse, with d right-hand sides, is cheaper than solving for the
            # product with the weights, with t right-hand sides.
            inverse = solve_positive_definite(regular, jnp.eye(len(weights), dtype=weights.dtype))
            front = matmul(inverse, weights)
        scale = 1.0 / (1.0 - leverages(held, self.ridge)) if self.leave_one_out else None
        value = two_weight_loss(features, targets, weights, front, residual_scale=scale)
        return value, (state, {})


def leverages(features: Array, ridge: float | Array) -> Array:
    """Compute the leverage h = φᵀ(ΦᵀΦ + …)⁻¹φ of each row, [b], regularised like the weights.

    At most 1 − 1e-3: a row with leverage 1 has no leave-one-out residual.

    Args:
        features: Φ, [b, d].
        ridge: As for ``least_squares_weights``.
    """
    regular = _regular_covariance(features, ridge)
    inverse = solve_positive_definite(regular, jnp.eye(features.shape[1], dtype=features.dtype))
    return jnp.minimum(jnp.sum(features * matmul(features, inverse), axis=1), 1.0 - 1e-3)


def _regular_covariance(features: Array, ridge: float | Array) -> Array:
    """Compute ΦᵀΦ + α·tr(ΦᵀΦ)·I, [d, d], with the α of ``least_squares_weights``."""
    # If the smallest eigenvalues are below the rounding error, the computed covariance need not be
    # positive definite, and the solve would return garbage: 100 features of a fresh network are
    # enough in float32.
    least = 10.0 * features.shape[1] * float(np.finfo(features.dtype).eps)
    return regularised(matmul(features.T, features), jnp.maximum(ridge, least))


def least_squares_weights(features: Array, targets: Array, ridge: float | Array = 1e-6) -> Array:
    """Compute argmin_W ‖ΦW − Ψ‖² + α·tr(ΦᵀΦ)·‖W‖², α = ridge / d but at least 10 ε.

    Args:
        features: Φ, [b, d].
        targets: Ψ, [b, t].
        ridge: Tikhonov term relative to the mean eigenvalue of ΦᵀΦ; at least 10 d ε is used, with
            the dtype's machine epsilon ε (in float32 1.2e-6·d).

    Returns:
        Weights [d, t].
    """
    regular = _regular_covariance(features, ridge)
    return solve_positive_definite(regular, matmul(features.T, targets))
