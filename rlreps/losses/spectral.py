"""Spectral inference networks (Pfau et al. 2019): ordered eigenfunctions of a symmetric operator.

Symbols: u features [b, d], Ku their images under the operator [b, d], Σ = E[u uᵀ], Π = E[u (Ku)ᵀ],
Σ = LLᵀ, Λ = L⁻¹ΠL⁻ᵀ. tr Λ is the sum of the Rayleigh quotients of the orthonormalised features. The
masked gradient moves the k-th feature by its own quotient alone, so that features come in the order
of their eigenvalues, the smallest first.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval, positive, size
from rlreps.encoders.base import Encoder
from rlreps.errors import InputError, require
from rlreps.losses.base import Encode, Metrics, Objective, Params, with_gradient_of
from rlreps.numerics import DecayedMean, matmul
from rlreps.operators import Operator, TargetKernel, Weights, act, points_of
from rlreps.subspace.ordered import (
    full_gradient,
    masked_gradient,
    ordered_spectrum,
)

Jacobian: TypeAlias = Any
"""Parameters with a leading axis over pairs of features, or over j for separate features."""


class SpinMoments(NamedTuple):
    """Moments of a batch, or their moving averages.

    Attributes:
        covariance: Σ, [d, d].
        operator_matrix: Π, [d, d].
        jacobian: The parts of ∂Σ/∂θ that the gradient needs; () with β = 1.
    """

    covariance: Array
    operator_matrix: Array
    jacobian: Any


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spin(Objective):
    """Minimise tr Λ by its masked gradient, so that feature k becomes the k-th eigenfunction.

    The smallest eigenvalues come first; for the largest, negate the operator. The loss is tr Λ,
    computed from the averaged Σ and the batch's Π. Metrics hold ``eigenvalues`` [d].

    With β = 1 (``averaging_rate``) Σ and Π are the batch's own, and the gradient is biased by
    O(1/b). If the operator's action is exact at each point, as for a Hamiltonian, the gradient
    vanishes at the eigenfunctions on every batch, so no averaging is needed. With β < 1 the
    gradient is E[∂u·Ku]L⁻ᵀdiag(L)⁻¹ − J̄·L⁻ᵀtriu(Λdiag(L)⁻¹), where L is the Cholesky factor of the
    average Σ̄ and J̄ is the average of E[u ∂u]. Once the averages settle, the gradient is unbiased,
    also if the operator is itself sampled. It is noisier than with β = 1, since the noise of the
    two terms no longer cancels.

    By default averages are corrected for their start at zero. With β < 1, feature k uses the
    operator K − c, which has the same eigenfunctions. The shift c = Λ_kk + max_{j≤k}|Λ_jj| is never
    negative and comes from the averages before the batch. The averages lag behind a feature that
    has shrunk or turned towards earlier features. Without the shift and with Λ_kk > 0, the gradient
    then shrinks or turns it further, and features collapse onto each other.

    Pfau et al. use neither the correction (``starts_at_identity``) nor the shift (``shifted``), and
    they differentiate the operator's action (``through_operator``). ∂Σ_jk/∂θ is
    E[u_j ∂u_k/∂θ] + E[u_k ∂u_j/∂θ]. Eq. 14 needs the first term for j ≤ k only, so nothing else is
    averaged.

    Attributes:
        operator: K; by default −ΨΨᵀ of the batch's target columns, whose smallest eigenvalues
            belong to Ψ's principal components.
        encoder: The encoder whose parameters' Jacobian is averaged; required with β < 1 only. Only
            its ``is_layered`` and the shapes of its parameters are used.
        separate: Whether every leaf of the parameters has a leading axis over the features and each
            feature depends on its own slice only (a ``SeparateMLP``). The Jacobian then takes d
            backward passes instead of d(d+1)/2. Only the shapes are checked.
        weights: Importance weights of inputs; None weighs all inputs equally.
        averaging_rate: β, weight of a batch in the moving averages, in (0, 1]; 1 averages nothing.
        masked: Whether feature k moves by Λ_kk alone. Without the mask all features follow the
            gradient of tr Λ and learn only the span of the eigenfunctions;
            ``subspace.ordered.ritz_spectrum`` computes eigenfunctions from the span (App. A.1).
        through_operator: Whether the gradient of Π is E[∂u·Ku] + E[u·∂(Ku)], as in App. B, instead
            of 2 E[∂u·Ku]. The two agree in expectation, since K is symmetric. With 2 E[∂u·Ku] and
            β = 1, the gradient vanishes at the eigenfunctions on every batch.
        shifted: Whether c is subtracted from the operator, with β < 1.
        starts_at_identity: Whether Σ̄ starts at the identity and the other averages at zero,
            uncorrected (Algorithm 1).
        jacobian_rows_at_once: Number of backward passes made together; None makes all together, or
            d passes where ``encoder.is_layered``. A smaller number takes less memory and more time.

    Raises:
        InputError: For options out of range; from ``init`` and ``loss``, if β < 1 without a fitting
            ``encoder``, or if β = 1 with fewer rows than features.
    """

    operator: Operator = size(-TargetKernel(), leaf=True)
    encoder: Encoder | None = size(None)
    separate: bool = size(False)
    weights: Weights | None = size(None)
    averaging_rate: float = interval("(0, 1]", 1.0, static=True)
    masked: bool = True
    through_operator: bool = False
    shifted: bool = True
    starts_at_identity: bool = False
    jacobian_rows_at_once: int | None = positive(None)

    title: ClassVar[str] = "spin"

    @property
    def jacobian(self) -> "CovarianceJacobian":
        """Jacobian of the covariance, as these options compute it."""
        layered = self.encoder is not None and self.encoder.is_layered
        return CovarianceJacobian(
            self.num_features, self.separate, self.jacobian_rows_at_once, self.masked, layered
        )

    @property
    def needs_clips(self) -> bool:
        return self.operator.needs_clips

    def require_rows(self, rows: int) -> None:
        require(rows >= 2, "rows >= 2, for pairs of them (method spin)", rows)
        if self.averaging_rate == 1.0:
            least = f"rows >= {self.num_features}, as many as features, for averaging_rate = 1"
            require(rows >= self.num_features, least, rows)

    def init(self, key: Array) -> DecayedMean:
        """Return the averages of ``SpinMoments`` before the first update."""
        start: Jacobian = ()
        if self.averaging_rate < 1.0:
            if self.encoder is None:
                raise InputError("expected an encoder for averaging_rate < 1, got None")
            start = self.jacobian.zeros(jax.eval_shape(self.encoder.init, key))
        empty = jnp.zeros((self.num_features, self.num_features))
        if self.starts_at_identity:
            return DecayedMean(SpinMoments(jnp.eye(self.num_features), empty, start), jnp.ones(()))
        return DecayedMean.empty(SpinMoments(empty, empty, start))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: DecayedMean, key: Array
    ) -> tuple[Array, tuple[DecayedMean, Metrics]]:
        """Compute tr Λ; its gradient is the masked gradient unless ``masked`` is false."""
        averages = self.averaging_rate < 1.0
        gradient_of = masked_gradient if self.masked else full_gradient
        points = points_of(batch.inputs)
        features = self.features(params, encode, points)
        if not averages:
            self.require_rows(len(features))
        # The gradient is written out below, so the moments are constants. The operator's action is
        # a constant too, unless ``through_operator`` is set: the reverse pass then covers only one
        # evaluation of the features.
        held = lax.stop_gradient(params)
        moving = params if self.through_operator else held
        live = act(
            self.operator,
            lambda inputs: encode(moving, inputs),
            batch.inputs,
            features=features if self.through_operator else lax.stop_gradient(features),
            targets=batch.targets,
            weights=self.weights,
        )
        action = lax.stop_gradient(live)
        part: Jacobian = ()
        if averages:
            part = self.jacobian.of_batch(
                lambda p: encode(p, points), held, action.values, action.shares
            )
        moments = SpinMoments(action.covariance, action.operator_matrix, part)
        # Like ``add``, but with the new term first, so that stored runs stay reproducible bit by
        # bit.
        new, before = DecayedMean(moments, jnp.ones_like(state.weight)), state
        state = optax.incremental_update(new, before, self.averaging_rate)
        mean = state.mean()
        masked = gradient_of(mean.covariance, action.operator_matrix)
        slope = matmul(action.images, masked.images)
        pull = jnp.zeros((), slope.dtype)
        if self.through_operator:
            # The surrogate below multiplies the slope by 2, for 2 E[∂u·Ku]. Here E[∂u·Ku] counts
            # once, and ``pull`` adds E[u·∂(Ku)].
            ahead = action.shares * matmul(action.values, masked.images)
            pull = jnp.sum(lax.stop_gradient(ahead) * live.images)
            slope = 0.5 * slope
        if averages:
            coefficients = -masked.features
            if self.shifted:
                shift = operator_shift(before, common=not self.masked)
                slope = slope - matmul(action.values, masked.images * shift)
                unit = gradient_of(mean.covariance, action.covariance)
                coefficients = unit.features * shift - masked.features
            gradient = self.jacobian.contract(mean.jacobian, 2.0 * coefficients)
            # Linear in the parameters, with ``gradient`` as its gradient.
            products = jax.tree.map(
                lambda g, p: jnp.sum(lax.stop_gradient(g) * p), gradient, params
            )
            pull = pull + jnp.sum(jnp.stack(jax.tree.leaves(products)))
        else:
            slope = slope - matmul(action.values, masked.features)
        # Linear in the features, with the slope as its gradient; ``pull`` adds the other terms.
        surrogate = jnp.sum(lax.stop_gradient(2.0 * action.shares * slope) * features) + pull
        value = with_gradient_of(surrogate, masked.eigenvalues.sum())
        return value, (state, {"eigenvalues": masked.eigenvalues})


def operator_shift(before: DecayedMean, *, common: bool) -> Array:
    """Compute the shift c of each feature, or one shift for all features, [1, d].

    It makes every eigenvalue negative by a margin that scales with the operator. It comes from the
    averages before the batch: the batch's own averages would bias the gradient.
    """
    mean = before.mean()
    spectrum = ordered_spectrum(mean.covariance, mean.operator_matrix)
    largest = lax.cummax(jnp.abs(spectrum.eigenvalues))
    shift = jnp.maximum(spectrum.eigenvalues + largest, 0.0)[None, :]
    return jnp.full_like(shift, jnp.max(shift)) if common else shift


@dataclasses.dataclass(frozen=True)
class CovarianceJacobian:
    """∂Σ/∂θ as the gradient of tr Λ needs it: for pairs of features, E[u_j ∂u_k/∂θ].

    The masked gradient needs the pairs with j ≤ k; the whole gradient needs all pairs. The Jacobian
    holds as many numbers as the encoder has parameters, times the number of pairs. The
    cotangent of a backward pass has the shape of the features, [b, d]. If its column k holds u_j
    and the others are zero, the pass gives E[u_j ∂u_k/∂θ]. If features share no parameters, one
    pass with u_j in all columns gives the pairs of j with all k, so d passes are enough. For the
    layers of a perceptron d passes are enough too (see ``_of_layers``).

    Attributes:
        num_features: d.
        separate: Whether every leaf of the parameters is [d, ...], slice k for feature k alone.
        rows_at_once: Number of backward passes made together; None makes all together.
        masked: Whether only pairs with j ≤ k are computed.
        layered: Whether ``Encoder.is_layered`` holds.
    """

    num_features: int
    separate: bool = False
    rows_at_once: int | None = None
    masked: bool = True
    layered: bool = False

    def _pairs(self) -> np.ndarray:
        """Return a mask of the pairs, [d, d] (bool)."""
        square = np.ones((self.num_features, self.num_features), bool)
        return np.triu(square) if self.masked else square

    def _passes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the j of each pass, [passes], and a mask of its columns k, [passes, d] (bool)."""
        if self.separate:
            return np.arange(self.num_features), self._pairs()
        firsts, seconds = np.nonzero(self._pairs())
        return firsts, seconds[:, None] == np.arange(self.num_features)

    @property
    def num_passes(self) -> int:
        """Length of the averages' leading axis; if not ``layered``, number of backward passes."""
        return len(self._passes()[0])

    def zeros(self, parameters: Params) -> Jacobian:
        """Return an empty moving average, for parameters or their shapes.

        Raises:
            InputError: If separate parameters lack a leading axis of d.
        """
        shapes = [leaf.shape for leaf in jax.tree.leaves(parameters)]
        fits = not self.separate or all(shape[:1] == (self.num_features,) for shape in shapes)
        expected = f"parameters of {self.num_features} separate features, leaves [d, ...]"
        require(fits, expected, shapes)
        return jax.tree.map(
            lambda leaf: jnp.zeros((self.num_passes, *leaf.shape), leaf.dtype), parameters
        )

    def of_batch(
        self, encode: Callable[[Params], Array], params: Params, values: Array, shares: Array
    ) -> Jacobian:
        """Compute the Jacobian's mean over a batch.

        Args:
            encode: Parameters → features [b, d].
            params: θ.
            values: u, [b, d].
            shares: Each row's weight over the batch size, [b, 1].

        Returns:
            Leaves [passes, ...].
        """
        weighted = values * shares
        if self.layered and self.rows_at_once is None:
            return self._of_layers(encode, params, weighted)
        _, pull_back = jax.vjp(encode, params)

        def one_pass(which: tuple[Array, Array]) -> Params:
            first, moves = which
            column = jnp.take(weighted, first, axis=1)
            return pull_back(column[:, None] * moves[None, :])[0]

        firsts, moves = self._passes()
        which = (jnp.asarray(firsts), jnp.asarray(moves, values.dtype))
        if self.rows_at_once is None:
            return jax.vmap(one_pass)(which)
        return lax.map(one_pass, which, batch_size=self.rows_at_once)

    def _of_layers(
        self, encode: Callable[[Params], Array], layers: list[Any], weighted: Array
    ) -> Jacobian:
        """Compute ``of_batch`` for layers, by d backward passes and one product per layer.

        A backward pass is linear and treats rows one by one, so it need not be repeated for each
        u_j. With h the inputs of a layer and s_k the gradient of u_k at its outputs, the pair j, k
        of the kernel is E[h (u_j s_k)ᵀ]. ``weighted`` is u times each row's share, [b, d].
        """

        def tapped(layers: list[Any], shifts: list[Array]) -> tuple[Array, Any]:
            kernels, inputs = [], []

            def tap(shift: Array, kernel: Array, before: Array, outputs: Array) -> Array:
                kernels.append(kernel)
                inputs.append(before)
                return outputs + shift

            taps = [partial(tap, shift) for shift in shifts]
            features = encode(
                [{**layer, "tap": each} for layer, each in zip(layers, taps, strict=True)]
            )
            return features, (kernels, inputs)

        rows = len(weighted)
        shifts = [jnp.zeros((rows, *layer["bias"].shape), weighted.dtype) for layer in layers]
        _, pull_back, (_, inputs) = jax.vjp(partial(tapped, layers), shifts, has_aux=True)
        ends = jnp.eye(self.num_features, dtype=weighted.dtype)
        (slopes,) = jax.vmap(lambda end: pull_back(jnp.broadcast_to(end, weighted.shape)))(ends)
        firsts, seconds = np.nonzero(self._pairs())

        def products(before: Array, slope: Array) -> Array:
            ahead = jnp.swapaxes(slope, 0, 1)[:, seconds] * weighted[:, firsts][:, :, None]
            product = before.T @ ahead.reshape(rows, -1)
            return jnp.swapaxes(product.reshape(-1, *ahead.shape[1:]), 0, 1)

        kernels = [products(*each) for each in zip(inputs, slopes, strict=True)]
        # A network may multiply by a function of its kernels, such as masked kernels.
        _, pull_kernels = jax.vjp(lambda layers: tapped(layers, shifts)[1][0], layers)
        (jacobian,) = jax.vmap(pull_kernels)(kernels)
        biases = [jnp.matmul(weighted.T[None], slope)[seconds, firsts] for slope in slopes]
        return [{**layer, "bias": bias} for layer, bias in zip(jacobian, biases, strict=True)]

    def contract(self, jacobian: Jacobian, coefficients: Array) -> Params:
        """Compute Σ_jk c_jk E[u_j ∂u_k/∂θ] over the pairs.

        Args:
            jacobian: Leaves [passes, ...].
            coefficients: c, [d, d]; entries outside the pairs have no effect.

        Returns:
            The parameters' pytree.
        """
        precision = lax.Precision.HIGHEST
        if self.separate:
            kept = jnp.where(self._pairs(), coefficients, 0.0)
            return jax.tree.map(
                lambda leaf: jnp.einsum("jk,jk...->k...", kept, leaf, precision=precision),
                jacobian,
            )
        pairs = coefficients[np.nonzero(self._pairs())]
        return jax.tree.map(
            lambda leaf: jnp.tensordot(pairs, leaf, axes=1, precision=precision), jacobian
        )
