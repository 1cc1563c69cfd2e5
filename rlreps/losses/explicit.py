"""Explicit weights: one stored column of W per task, trained jointly with the features."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from rlreps.errors import InputError, require
from rlreps.losses.base import (
    Batch,
    Encode,
    Metrics,
    Objective,
    Params,
    mean_product,
    require_features,
    two_weight_loss,
)
from rlreps.training.optimizers import optimizer_step


class ExplicitState(NamedTuple):
    """The stored weights.

    Attributes:
        weights: One weight vector per task, [tasks, d] (W transposed: an update gathers rows).
        optimizer: Their optimizer state, every leaf with a leading task axis.
    """

    weights: Array
    optimizer: Any


def explicit(
    num_features: int, num_tasks: int, *, optimizer: optax.GradientTransformation
) -> Objective:
    """Joint descent on E(φᵀw_t − ψ_t)² in the features and in the sampled tasks' weights.

    The gradient at φ is w(φᵀw − ψ), averaged over rows and tasks. A sampled task's weights descend
    the mean over rows of φ(φᵀw − ψ), each task by an optimizer to itself, with its own step count
    and moments. A dense optimizer would move unsampled columns by stale momentum, at a cost in
    d x tasks a step.

    Args:
        num_features: d.
        num_tasks: Columns of the matrix.
        optimizer: Optimizer of each task's weights.

    Returns:
        The objective; a batch must name its ``tasks``.

    Raises:
        InputError: If a batch does not name its tasks.
    """
    require(num_features >= 1, "num_features >= 1", num_features)
    require(num_tasks >= 1, "num_tasks >= 1", num_tasks)

    def init(key: Array) -> ExplicitState:
        del key  # Nothing here is random.
        # Random weights would have the features fit noise before any task was seen: with 10,000
        # tasks that undid the encoder's own start for good. From zero, the weights move first.
        weights = jnp.zeros((num_tasks, num_features))
        return ExplicitState(weights, jax.vmap(optimizer.init)(weights))

    def loss(
        params: Params, encode: Encode, batch: Batch, state: ExplicitState, key: Array
    ) -> tuple[Array, tuple[ExplicitState, Metrics]]:
        del key  # Deterministic given the batch.
        if batch.tasks is None:
            raise InputError("expected a batch that names its tasks, got tasks=None")
        features = encode(params, batch.inputs)
        require_features(features, batch.inputs.shape[0], num_features)
        weights = state.weights[batch.tasks]
        value = two_weight_loss(features, batch.targets, weights.T, weights.T)
        # The weights take their own step, inside the objective's state: not through autodiff.
        fixed = lax.stop_gradient(features)
        predictions = jnp.matmul(fixed, weights.T, precision=lax.Precision.HIGHEST)
        gradients = mean_product(predictions - batch.targets, fixed)
        new_state = _step_sampled(optimizer, state, batch.tasks, gradients)
        return value, (new_state, {"weight_norm": jnp.linalg.norm(weights, axis=-1).mean()})

    return Objective(init, loss)


def _step_sampled(
    optimizer: optax.GradientTransformation, state: ExplicitState, tasks: Array, gradients: Array
) -> ExplicitState:
    """One optimizer step for the sampled tasks; a task drawn twice still makes one."""
    rows = jax.tree.map(lambda leaf: leaf[tasks], state)
    weights, moments = jax.vmap(functools.partial(optimizer_step, optimizer))(
        gradients, rows.optimizer, rows.weights
    )
    new_state: ExplicitState = jax.tree.map(
        lambda leaf, new: leaf.at[tasks].set(new), state, ExplicitState(weights, moments)
    )
    return new_state
