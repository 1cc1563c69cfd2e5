"""Explicit weights: one stored column of W per task, trained jointly with the features."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.config import configurable, size
from rlreps.errors import InputError, require_interval, require_positive
from rlreps.losses.base import (
    Batch,
    Encode,
    Metrics,
    Objective,
    Params,
    mean_product,
    two_weight_loss,
)
from rlreps.numerics import matmul, optimizer_step


class ExplicitState(NamedTuple):
    """The stored weights.

    Attributes:
        weights: One weight vector per task, [tasks, d] (W transposed: an update gathers rows).
        optimizer: Their optimizer state, every leaf with a leading task axis.
    """

    weights: Array
    optimizer: Any


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Explicit(Objective):
    """Joint descent on E(φᵀw_t − ψ_t)² in the features and in the sampled tasks' weights.

    Le Lan et al. 2023, Eq. 7. The gradient at φ is w(φᵀw − ψ), averaged over rows and tasks. A
    sampled task's weights descend the mean over rows of φ(φᵀw − ψ), each task by an Adam of its
    own, with its own step count and moments. A dense optimizer, as in the paper's code, would move
    unsampled columns by stale momentum, at a cost in d x tasks a step.

    Attributes:
        num_tasks: Columns of the matrix. A batch must name its ``tasks``.
        encoder_learning_rate: The encoder's learning rate.
        weight_learning_rate: Learning rate of the stored weights (Adam); None takes the encoder's.
    """

    num_tasks: int | None = size(None)
    encoder_learning_rate: float | None = size(None)
    weight_learning_rate: float | None = None

    title: ClassVar[str] = "explicit"
    live: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_tasks is not None:
            require_positive("num_tasks", self.num_tasks)
        require_interval("weight_learning_rate", self.weight_learning_rate, "(0, inf)")

    def _optimizer(self) -> optax.GradientTransformation:
        own, encoder = self.weight_learning_rate, self.encoder_learning_rate
        rate = encoder if own is None else own
        if rate is None:
            raise InputError("expected a weight_learning_rate or the encoder's, got neither")
        return optax.adam(rate)

    def init(self, key: Array) -> ExplicitState:
        """Return weights of zero; an ``InputError`` without ``num_tasks`` or a learning rate."""
        if self.num_tasks is None:
            raise InputError(
                "expected a matrix with task columns to store weights for (method explicit), got a "
                "live source, whose tasks never come twice"
            )
        # Random weights would have the features fit noise before any task was seen: with 10,000
        # tasks that undid the encoder's own start for good. From zero, the weights move first.
        weights = jnp.zeros((self.num_tasks, self.num_features))
        return ExplicitState(weights, jax.vmap(self._optimizer().init)(weights))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: ExplicitState, key: Array
    ) -> tuple[Array, tuple[ExplicitState, Metrics]]:
        """Compute half the mean squared residual; the sampled tasks' weights take a step."""
        if batch.tasks is None:
            raise InputError("expected a batch that names its tasks, got tasks=None")
        features = self.features(params, encode, batch.inputs)
        rows: ExplicitState = jax.tree.map(lambda leaf: leaf[batch.tasks], state)
        value = two_weight_loss(features, batch.targets, rows.weights.T, rows.weights.T)
        # The weights take their own step, inside the objective's state: not through autodiff.
        fixed = lax.stop_gradient(features)
        residuals = matmul(fixed, rows.weights.T) - batch.targets
        stepped = jax.vmap(functools.partial(optimizer_step, self._optimizer()))(
            mean_product(residuals, fixed), rows.optimizer, rows.weights
        )
        # A task drawn twice still makes one step.
        new_state: ExplicitState = jax.tree.map(
            lambda leaf, new: leaf.at[batch.tasks].set(new), state, ExplicitState(*stepped)
        )
        return value, (new_state, {"weight_norm": jnp.linalg.norm(rows.weights, axis=-1).mean()})
