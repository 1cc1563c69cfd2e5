"""Measures of a torso while an agent learns, in addition to its return, and their data.

``effective_rank`` and ``dormant_share`` are pure functions of one agent's arrays; callers ``vmap``
over agents. ``missed_components`` computes on the host, in double precision.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import xlogy

from rlreps.agents.config import (
    DEFAULT_ARENA,
    AgentConfig,
    find_arena_name,
    load_compiled_environment,
    load_puddle_world,
)
from rlreps.agents.host_environments import HostEnvironments
from rlreps.agents.host_observations import HostInputs
from rlreps.agents.network import QNetwork
from rlreps.envs import arena_settings, load_arena
from rlreps.envs.core import Environment, step_or_reset
from rlreps.errors import require
from rlreps.losses.base import Params
from rlreps.numerics import jit_briefly
from rlreps.subspace import centre_columns, spans_of, standardise
from rlreps.successor.measure.grids import Grid
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.released import load
from rlreps.typing import DoubleArray

DORMANT_THRESHOLD = 0.025
"""τ of Sokar et al. (2023), for agents that learn from replay."""

COMPONENTS = 10
"""Largest number of the ground truth's leading components that features should express."""

_RELEASED = "sutton-100"
_SEED = 0
_BINS = 25
"""Cells along each axis of an arena that has no ground truth."""
_COPIES, _STEPS = 16, 400
_STATES = 1_000
"""Observations of random play on which torsos are measured outside PuddleWorld."""


def effective_rank(features: Array) -> Array:
    """Compute the features' effective rank (Roy & Vetterli 2007, Definition 1).

    It is the exponential of the entropy of the singular values, normalised to sum to 1. Unlike in
    the paper, each column's mean over the states is removed first: a constant does not tell states
    apart.

    Args:
        features: Φ, [n, d], floating point.

    Returns:
        Scalar between 1 and min(n - 1, d), of the features' dtype; 0 if all states have the same
        features, NaN if one of them is not finite.
    """
    values = jnp.linalg.svd(_centred(features), compute_uv=False)
    total = jnp.sum(values)
    shares = values / jnp.where(total == 0.0, 1.0, total)
    rank = jnp.exp(-jnp.sum(xlogy(shares, shares)))
    return jnp.where(total == 0.0, 0.0, rank)


def dormant_share(hidden: Sequence[Array], threshold: float = DORMANT_THRESHOLD) -> Array:
    """Compute the share of τ-dormant hidden units (Sokar et al. 2023, Definitions 3.1 and 3.2).

    A unit's score is its mean |activation| over the inputs, divided by the average of this mean
    over the units of its layer. A unit is dormant if its score is at most τ, or if its whole layer
    is zero. A channel of a convolution is one unit, averaged over its places too.

    Args:
        hidden: Activations of each hidden layer, [b, ..., units].
        threshold: τ.

    Returns:
        Scalar (float32) in [0, 1] over the units of all layers together; 0 if there is no layer,
        NaN if an activation is not finite.
    """
    dormant, units = jnp.zeros((), jnp.float32), 0
    for layer in hidden:
        activity = jnp.mean(jnp.abs(layer), axis=tuple(range(layer.ndim - 1)))
        level = jnp.mean(activity)
        # Multiply by the layer's level instead of dividing, since it may be zero.
        asleep = jnp.sum(activity <= threshold * level, dtype=jnp.float32)
        dormant = dormant + jnp.where(jnp.isfinite(level), asleep, jnp.nan)
        units += activity.size
    return dormant / max(units, 1)


def missed_components(features: np.ndarray, basis: np.ndarray) -> DoubleArray:
    """Compute the share of each of a ground truth's components that features cannot express.

    The mean over the leading k is their subspace distance from the span of features and a constant,
    as ``GroundTruth.distance`` computes it with an intercept. In single precision, the rounding of
    the computation would hide directions in which features vary little.

    Args:
        features: Φ of all states, [n, d].
        basis: F_k, [n, k], orthonormal columns.

    Returns:
        Numbers in [0, 1], [k]; 1 if all states have the same features, NaN if one is not finite.

    Raises:
        InputError: If features and components are of other numbers of states.
    """
    require(len(features) == len(basis), f"features of {len(basis)} states", len(features))
    if not np.isfinite(features).all():
        return np.full(basis.shape[1], np.nan)
    return spans_of(standardise(features), basis).missed_with_intercept


def _centred(features: Array) -> Array:
    """Subtract each column's mean of [n, d]; return zero if only rounding would be left."""
    centred = centre_columns(features)
    sizes, rests = (jnp.linalg.norm(part, axis=0) for part in (features, centred))
    # Stated as "not below", so that NaN stays NaN.
    constant = rests <= 4.0 * float(np.finfo(features.dtype).eps) * sizes
    return jnp.where(constant[None, :], 0.0, centred)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """States on which torsos are measured.

    Attributes:
        inputs: Observations, [n, *observation]; with a ground truth, the observations of its
            states.
        basis: The ground truth's leading components, [n, k]: as many as there are features, but at
            least ten, if it has so many. None without a ground truth.
    """

    inputs: Array
    basis: Array | None


def make_measurement(config: AgentConfig, truth: GroundTruth | None = None) -> Measurement:
    """Make the data on which the agents of a configuration are measured; equal for all its runs.

    In PuddleWorld, these are the states of a ground truth or, without one, of a grid. In other
    environments, they are observations of a uniformly random policy.

    Args:
        config: The configuration.
        truth: A successor measure of the same arena; by default the released one of ``sutton``.

    Raises:
        InputError: For a ground truth of another environment.
    """
    world, arena = load_puddle_world(config), find_arena_name(config)
    if world is None or arena is None:
        require(truth is None, "a ground truth for PuddleWorld alone", config.environment)
        name, limit = config.environment, config.max_episode_steps
        compiled = load_compiled_environment(config)
        if compiled is not None:
            seen = np.asarray(random_walks(compiled, _COPIES, _STEPS, jax.random.key(_SEED)))
        else:
            with closing(HostEnvironments(name, _COPIES, max_episode_steps=limit)) as environments:
                seen = random_observations(environments, _STEPS, seed=_SEED)
        chosen = np.random.default_rng(_SEED).choice(len(seen), _STATES, replace=False)
        return Measurement(inputs=jnp.asarray(seen[chosen]), basis=None)
    see = jax.jit(jax.vmap(world.observe_position))
    truth = truth if truth is not None else default_ground_truth(config)
    if truth is None:
        grid = Grid(_BINS).within(world)
        return Measurement(inputs=jnp.asarray(grid.observations(world)), basis=None)
    measured = truth.settings.get("environment")
    same = measured == arena_settings(load_arena(arena))
    require(same, f"a ground truth of the arena {arena}", measured)
    components = min(max(COMPONENTS, config.num_features), truth.principal.basis.shape[1])
    basis = jnp.asarray(truth.principal.truncated(components).basis)
    return Measurement(inputs=see(jnp.asarray(truth.coordinates)), basis=basis)


def default_ground_truth(config: AgentConfig) -> GroundTruth | None:
    """Load the released ground truth of the arena in which agents act; None if there is none."""
    return load(_RELEASED) if find_arena_name(config) == DEFAULT_ARENA else None


def random_observations(environments: HostEnvironments, steps: int, *, seed: int) -> HostInputs:
    """Collect observations [steps x environments, ...] of uniformly random actions."""
    generator, count = np.random.default_rng(seed), environments.num_envs
    seen: list[Any] = [environments.reset(range(seed, seed + count))]
    for _ in range(steps - 1):
        actions = generator.integers(environments.num_actions, size=count)
        seen.append(environments.step(actions).observation)
    stacked: Any = np.concatenate(seen)
    observations: HostInputs = stacked
    return observations


def random_walks(environment: Environment, copies: int, steps: int, key: Array) -> Array:
    """Collect observations [steps x copies, ...] of uniformly random actions."""

    def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Array]:
        states, ended = carry
        action_key, step_key = jax.random.split(key)
        actions = jax.random.randint(action_key, (copies,), 0, environment.num_actions, jnp.int32)
        keys = jax.random.split(step_key, copies)
        taken = step_or_reset(environment, keys, states, actions, ended, jnp.any(ended))
        return (taken.state, taken.terminated | taken.truncated), taken.observation

    @jit_briefly
    def walk(key: Array) -> Array:
        start_key, walk_key = jax.random.split(key)
        states = jax.vmap(environment.reset)(jax.random.split(start_key, copies))
        start = states, jnp.zeros((copies,), bool)
        seen: Array = lax.scan(step, start, jax.random.split(walk_key, steps))[1]
        return seen.reshape(steps * copies, *seen.shape[2:])

    return walk(key)


def make_measure(
    network: QNetwork, measurement: Measurement
) -> Callable[[Params], Mapping[str, Any]]:
    """Make a function from torsos' parameters [seeds, ...] to measures [seeds].

    The measures are ``effective_rank`` and, if available, ``dormant_share``, ``leading_distance``
    and ``subspace_distance``. ``leading_distance`` is the distance to the ten leading components;
    d > 10 features can express other functions too. ``subspace_distance`` is the distance to the d
    leading components, and is 0 only for their span. Both are computed by ``missed_components``.
    """
    basis, size = measurement.basis, network.num_features

    def one(torso: Any) -> dict[str, Array]:
        inputs = lax.optimization_barrier(measurement.inputs)  # XLA would fold convolutions of it.
        features = network.features(torso, inputs)
        found = {"effective_rank": effective_rank(features)}
        hidden = network.hidden(torso, inputs)
        if hidden is not None:
            found["dormant_share"] = dormant_share(hidden)
        return found if basis is None else {**found, "features": features}

    # Measure one torso at a time: the activations of all torsos would be large.
    compiled: Callable[[Params], dict[str, Array]] = jit_briefly(
        lambda torsos: lax.map(one, torsos)
    )
    if basis is None:
        return compiled
    components = np.asarray(basis, np.float64)

    def measure(torsos: Params) -> dict[str, Any]:
        found = compiled(torsos)
        features = jax.device_get(found.pop("features"))
        missed = np.stack([missed_components(each, components) for each in features])
        found["leading_distance"] = missed[:, :COMPONENTS].mean(axis=1)
        if missed.shape[1] >= size:
            found["subspace_distance"] = missed[:, :size].mean(axis=1)
        return found

    return measure
