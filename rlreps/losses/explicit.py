"""Explicit weights: one stored column of W per task, trained jointly with the features."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval, size
from rlreps.errors import InputError
from rlreps.losses.base import Encode, Metrics, Objective, Params
from rlreps.losses.two_weights import mean_product, two_weight_loss
from rlreps.numerics import matmul, optimizer_step


class ExplicitState(NamedTuple):
    """The stored weights.

    Attributes:
        weights: One weight vector per task, [tasks, d] (W transposed: updates gather rows).
        optimizer: Their optimizer state, every leaf with a leading task axis; with
            ``dense_optimizer``, the state of one optimizer for all tasks.
    """

    weights: Array
    optimizer: Any


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Explicit(Objective):
    """Joint descent on E(φᵀw_t − ψ_t)² in the features and in the sampled tasks' weights.

    Le Lan et al. 2023, Eq. 7, with any number of tasks a step instead of one (Sec. 5.3 recommends
    several tasks against stale weights). The gradient at φ is w(φᵀw − ψ), averaged over rows and
    tasks. The weights of a sampled task descend the mean over rows of φ(φᵀw − ψ). Each task has its
    own Adam, with its own step count and moments. The authors' code corresponds to
    ``Explicit(weight_start=1.0, dense_optimizer=True)``.

    Attributes:
        num_tasks: Columns of the matrix. A batch must name its ``tasks``.
        encoder_learning_rate: The encoder's learning rate; ``train`` fills it in from an
            ``Optimizer``.
        weight_learning_rate: Learning rate of the stored weights (Adam); None takes the encoder's.
        weight_start: Standard deviation of the weights at the start. Random weights make the
            features fit noise before any task is sampled; with 10,000 tasks the features never
            recovered. Weights at zero give the features no gradient until the weights have moved.
        dense_optimizer: Whether one Adam moves all columns in every step (columns that were not
            sampled move by stale momentum), at a cost of d x tasks a step.
    """

    num_tasks: int | None = size(None)
    encoder_learning_rate: float | None = size(None)
    weight_learning_rate: float | None = interval("(0, inf)", None)
    weight_start: float = interval("[0, inf)", 0.0)
    dense_optimizer: bool = False

    title: ClassVar[str] = "explicit"
    live: ClassVar[bool] = False

    @property
    def label(self) -> str:
        start = "" if self.weight_start == 0.0 else f"weights from N(0, {self.weight_start:g}²)"
        said = [start, "one optimizer for all" if self.dense_optimizer else ""]
        return f"{self.title} ({', '.join(filter(None, said))})" if any(said) else self.title

    def _optimizer(self) -> optax.GradientTransformation:
        own, encoder = self.weight_learning_rate, self.encoder_learning_rate
        rate = encoder if own is None else own
        if rate is None:
            raise InputError(
                "expected Explicit(..., weight_learning_rate=...), such as 1e-3, since the rate of "
                "an optax transformation cannot be read, got None"
            )
        return optax.adam(rate)

    def init(self, key: Array) -> ExplicitState:
        """Draw weights; raise an ``InputError`` without ``num_tasks`` or a learning rate."""
        if self.num_tasks is None:
            raise InputError(
                "expected num_tasks, the columns of the matrix for which explicit stores weights, "
                "got None (a live source has no columns that repeat)"
            )
        weights = self.weight_start * jax.random.normal(key, (self.num_tasks, self.num_features))
        start = self._optimizer().init
        return ExplicitState(weights, (start if self.dense_optimizer else jax.vmap(start))(weights))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: ExplicitState, key: Array
    ) -> tuple[Array, tuple[ExplicitState, Metrics]]:
        """Compute half the mean squared residual; the sampled tasks' weights take a step."""
        if batch.tasks is None:
            raise InputError("expected a batch that names its tasks, got tasks=None")
        features = self.features(params, encode, batch.inputs)
        weights = state.weights[batch.tasks]
        value = two_weight_loss(features, batch.targets, weights.T, weights.T)
        # The objective itself moves the weights, which it keeps in its state, without autodiff.
        fixed = lax.stop_gradient(features)
        residuals = matmul(fixed, weights.T) - batch.targets
        gradients = mean_product(residuals, fixed)
        step = functools.partial(optimizer_step, self._optimizer())
        # A task that was drawn twice still makes one step.
        if self.dense_optimizer:
            everywhere = jnp.zeros_like(state.weights).at[batch.tasks].set(gradients)
            new_state = ExplicitState(*step(everywhere, state.optimizer, state.weights))
        else:
            moments = jax.tree.map(lambda leaf: leaf[batch.tasks], state.optimizer)
            stepped = ExplicitState(*jax.vmap(step)(gradients, moments, weights))
            new_state = jax.tree.map(
                lambda leaf, new: leaf.at[batch.tasks].set(new), state, stepped
            )
        return value, (new_state, {"weight_norm": jnp.linalg.norm(weights, axis=-1).mean()})
