"""Train the networks whose features least squares then use: on transitions, or on sums."""

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


def train_networks(
    data: Transitions,
    config: FitConfig,
    networks: Networks,
    inputs: Inputs,
    policy: Behaviour,
    folder: RunFolder | None,
    progress: bool,
) -> Mapping[str, Params]:
    """Train the networks of a fit; return the parameters of F and, if there is one, of B.

    Args:
        data: The rows to train on.
        config: The options, filled in by ``Fit``.
        networks: F and, for temporal differences, B.
        inputs: Map from observations to the networks' inputs.
        policy: The policy that made the data, which temporal differences follow after a cut.
        folder: Where to log and keep checkpoints.
        progress: Whether to show a bar.
    """
    # Deferred: training imports much that the mathematics and least squares do not need.
    from rlreps.training.population import train

    # ``Fit`` has filled these in.
    assert config.optimizer is not None
    assert config.steps is not None
    assert config.rows is not None
    assert data.num_actions is not None
    taken = np.eye(data.num_actions, dtype=np.float32)[data.action]
    encoder: Encoder
    objective: Objective
    if isinstance(config.method, EpisodeSums):
        encoder = networks.forward
        sums, starts = episode_sums(data, config, config.method, inputs)
        objective = with_sizes(
            config.method.objective,
            num_features=config.num_features,
            num_tasks=sums.shape[1],
            encoder=encoder,
            encoder_learning_rate=config.optimizer.learning_rate,
        )
        source = TransitionSource(
            inputs,
            jnp.asarray(data.observation[starts]),
            jnp.asarray(sums[starts]),
            jnp.asarray(taken[starts]),
            with_population=objective.needs_population,
        )
    else:
        assert isinstance(config.method, TemporalDifferences)
        assert networks.backward is not None
        encoder = ForwardBackward(networks.forward, networks.backward)
        objective = ForwardBackwardLoss(
            num_features=config.num_features,
            discount=config.discount,
            averaging_rate=config.method.averaging_rate,
            orthonormality=config.method.orthonormality,
            encoder=encoder,
        )
        source = TransitionSource(
            inputs,
            jnp.asarray(data.observation),
            jnp.zeros((len(data), 1)),
            jnp.asarray(taken),
            jnp.asarray(data.next_observation),
            jnp.asarray(next_weights(data, taken, policy)),
        )
    every = max(1, config.steps // 20)
    result = train(
        encoder,
        objective,
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=source.num_tasks,
        seeds=[config.seed],
        evaluate_every=every,
        checkpoint_every=5 * every,
        folder=folder,
        description=f"{objective.title}, d = {config.num_features}",
        progress=progress,
    )
    params: Mapping[str, Params] = result.params()
    return {"forward": params} if networks.backward is None else params


def next_weights(data: Transitions, taken: np.ndarray, behaviour: Behaviour) -> np.ndarray:
    """Return the weights of the actions that follow each row, [N, A].

    A unit vector for the data's own next action, the behaviour policy's probabilities after a cut,
    zero after a terminal state.

    Args:
        data: The transitions.
        taken: Unit vectors of the actions taken, [N, A].
        behaviour: The policy that made the data.
    """
    weights = np.append(taken[1:], taken[:1], axis=0)
    weights[data.terminated] = 0.0
    assert data.truncated is not None  # ``Transitions`` fills it in.
    if data.truncated.any():
        weights[data.truncated] = behaviour(data.next_observation[data.truncated])
    return weights


def episode_sums(
    data: Transitions, config: FitConfig, method: EpisodeSums, inputs: Inputs
) -> tuple[np.ndarray, np.ndarray]:
    """Return discounted sums of cumulants from every row on, [N, k], and which are complete, [N].

    Sums are multiplied by 1 − γ, so that the size of the columns does not depend on γ; this does
    not change their subspace.
    """
    starts = complete_starts(data, config.discount, method.tolerance)
    columns = cumulant_columns(data, Observed.of(data), inputs, method, config.seed)
    return (1.0 - config.discount) * discounted_sums(columns, data.ends, config.discount), starts


def complete_starts(data: Transitions, discount: float, tolerance: float) -> np.ndarray:
    """Return which rows start sums that are complete to a tolerance, [N]; see ``EpisodeSums``.

    Raises:
        InputError: If ends of episodes are not known or no row starts a complete sum.
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
    assert method.cumulants is not None  # ``Fit`` fills it in.
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
