"""Training of the networks whose features least squares then take: on transitions, or on sums."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import with_sizes
from rlreps.cumulants import Cells
from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.losses import Objective
from rlreps.numerics import seed_key
from rlreps.runs.folder import RunFolder
from rlreps.successor.basis import in_blocks
from rlreps.successor.data import Transitions
from rlreps.successor.forward_backward import (
    ForwardBackward,
    ForwardBackwardLoss,
    Inputs,
    TransitionSource,
    discounted_sums,
)
from rlreps.successor.methods import EpisodeSums, FitConfig, TemporalDifferences
from rlreps.successor.networks import Networks
from rlreps.successor.observed import Observed

Behaviour = Callable[[Any], Any]
"""Observations [m, ...] → probabilities of the actions, [m, A]."""


def fit_td(
    data: Transitions,
    config: FitConfig,
    networks: Networks,
    inputs: Inputs,
    taken: np.ndarray,
    policy: Behaviour,
    folder: RunFolder | None,
    progress: bool,
) -> Mapping[str, Params]:
    """Train forward-backward networks on single transitions; return the parameters of both."""
    method = config.method
    assert isinstance(method, TemporalDifferences)
    assert networks.backward is not None
    source = TransitionSource(
        inputs,
        jnp.asarray(data.observation),
        jnp.zeros((len(data), 1)),
        jnp.asarray(taken),
        jnp.asarray(data.next_observation),
        jnp.asarray(next_weights(data, taken, policy)),
    )
    encoder = ForwardBackward(networks.forward, networks.backward)
    objective = ForwardBackwardLoss(
        num_features=config.num_features,
        discount=config.discount,
        averaging_rate=method.averaging_rate,
        orthonormality=method.orthonormality,
        encoder=encoder,
    )
    params: Mapping[str, Params] = _trained(config, encoder, objective, source, 1, folder, progress)
    return params


def next_weights(data: Transitions, taken: np.ndarray, behaviour: Behaviour) -> np.ndarray:
    """Return the weights of the actions that follow each row, [N, A].

    A unit vector for the data's own next action, the behaviour policy's probabilities where the
    record was cut, zero behind a terminal state.

    Args:
        data: The transitions.
        taken: Unit vectors of the actions taken, [N, A].
        behaviour: The policy that made the data.
    """
    weights = np.append(taken[1:], taken[:1], axis=0)
    weights[data.terminated] = 0.0
    assert data.truncated is not None  # As transitions fill it in.
    if data.truncated.any():
        weights[data.truncated] = behaviour(data.next_observation[data.truncated])
    return weights


def fit_sums(
    data: Transitions,
    config: FitConfig,
    networks: Networks,
    inputs: Inputs,
    taken: np.ndarray,
    folder: RunFolder | None,
    progress: bool,
) -> Params:
    """Train a network on discounted sums along episodes; return its parameters."""
    method, d = config.method, config.num_features
    assert isinstance(method, EpisodeSums)
    assert config.optimizer is not None
    starts = complete_starts(data, config.discount, method.tolerance)
    # Times 1 − γ: the size of the columns then does not depend on γ, nor does their subspace.
    sums = (1.0 - config.discount) * discounted_sums(
        cumulant_columns(data, Observed.of(data), inputs, method, config.seed),
        data.ends,
        config.discount,
    )
    objective = with_sizes(
        method.objective,
        num_features=d,
        num_tasks=sums.shape[1],
        encoder=networks.forward,
        encoder_learning_rate=config.optimizer.learning_rate,
    )
    source = TransitionSource(
        inputs,
        jnp.asarray(data.observation[starts]),
        jnp.asarray(sums[starts]),
        jnp.asarray(taken[starts]),
        with_population=objective.needs_population,
    )
    count = sums.shape[1]
    return _trained(config, networks.forward, objective, source, count, folder, progress)


def complete_starts(data: Transitions, discount: float, tolerance: float) -> np.ndarray:
    """Return which rows start sums that are complete to a tolerance, [N]; see ``EpisodeSums``.

    Raises:
        InputError: If ends of episodes are not known or no row does.
    """
    data.require_ends()
    lacking = np.power(discount, data.steps_left)
    starts: np.ndarray = data.reaches_terminal | (lacking <= tolerance)
    longest = math.ceil(math.log(tolerance) / math.log(discount))
    require(
        bool(starts.any()),
        f"episodes that terminate or have at least {longest} rows (discount^rows <= {tolerance})",
        f"at most {int(data.steps_left.max())}",
    )
    return starts


def cumulant_columns(
    data: Transitions, observed: Observed, inputs: Inputs, method: EpisodeSums, seed: int
) -> np.ndarray:
    """Evaluate the cumulants at the states reached, [N, k] (float32)."""
    assert method.cumulants is not None  # As a fit fills it in.
    width = 1 if observed.num_states is not None else math.prod(observed.shape)
    cumulants = with_sizes(method.cumulants, num_inputs=width)
    count = cumulants.num_cells if isinstance(cumulants, Cells) else method.num_cumulants
    params = cumulants.init(seed_key(seed, 3), count)

    def columns(states: Array) -> Array:
        places = inputs(states).reshape(len(states), -1).astype(jnp.float32)
        if observed.num_states is not None:
            places = (places + 0.5) / observed.num_states
        return cumulants.apply(params, places)

    return in_blocks(jax.jit(columns), data.next_observation)


def _trained(
    config: FitConfig,
    encoder: Encoder,
    objective: Objective,
    source: TransitionSource,
    tasks: int,
    folder: RunFolder | None,
    progress: bool,
) -> Params:
    # Deferred: training stands above the mathematics, and least squares need none of it.
    from rlreps.training.population import train

    # A fit has filled them in.
    assert config.optimizer is not None
    assert config.steps is not None
    assert config.rows is not None
    every = max(1, config.steps // 20)
    result = train(
        encoder,
        objective,
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=tasks,
        seeds=[config.seed],
        evaluate_every=every,
        checkpoint_every=5 * every,
        folder=folder,
        description=f"{objective.title}, d = {config.num_features}",
        progress=progress,
    )
    return result.params()
