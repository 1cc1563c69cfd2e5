"""Measures of a torso while an agent learns, besides its return, and the data for them.

``effective_rank``, ``dormant_share`` and ``coverage_distance`` are pure functions of one agent's
arrays; callers ``vmap`` over agents.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import xlogy

from rlreps.agents.config import DEFAULT_ARENA, AgentConfig, arena_of, puddle_world_of
from rlreps.agents.environments import HostEnvironments, make_host_environments
from rlreps.agents.network import QNetwork
from rlreps.agents.probes import ValueProbe, probe_error, puddle_world_probe, rollout_probe
from rlreps.agents.replay import Rows
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.errors import InputError, require
from rlreps.losses.base import Params
from rlreps.numerics import jit_briefly
from rlreps.subspace import centre_columns, subspace_distance
from rlreps.successor.released import load

if TYPE_CHECKING:
    from rlreps.successor.ground_truth import GroundTruth

DORMANT_THRESHOLD = 0.025
"""τ of Sokar et al. (2023), for agents that learn from replay."""

COMPONENTS = 10
"""Largest number of the ground truth's leading components that features should express."""

_RELEASED = "sutton-100"
_SEED = 0
_COPIES = 16
_STEPS = 400
_HORIZONS = (64, 32, 16, 8, 4, 2)
"""Numbers of terms of the probe's values, from the largest worth its noise."""


def effective_rank(features: Array) -> Array:
    """Compute the features' effective rank (Roy & Vetterli 2007, Definition 1).

    It is exp of the entropy of the singular values, divided by their sum. Unlike in the paper, each
    column's mean over the states is removed first: a constant does not tell states apart.

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

    A unit's score is its mean |activation| over the inputs, divided by the mean of this over the
    units of its layer. A unit is dormant if its score is at most τ, or if its whole layer is zero.
    A channel of a convolution is one unit, averaged over its places too.

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


def coverage_distance(features: Array, basis: Array) -> Array:
    """Compute the share of a ground truth's leading components that features cannot express.

    It is the subspace distance of the features, with each column's mean removed as in the ground
    truth. The numbers of features and components may differ: with d < k it is at least 1 - d/k;
    with d > k, features beyond the components cost nothing.

    Args:
        features: Φ of all states, [n, d], float32 or float64.
        basis: F_k, [n, k], orthonormal columns.

    Returns:
        Scalar in [0, 1]; 1 if all states have the same features.

    Raises:
        InputError: If the arrays do not fit together.
    """
    return subspace_distance(_centred(features), basis)


def _centred(features: Array) -> Array:
    """Subtract each column's mean of [n, d]; return zero if only rounding would be left."""
    centred = centre_columns(features)
    sizes, rests = (jnp.linalg.norm(part, axis=0) for part in (features, centred))
    # Stated as "not below", so that NaN stays NaN.
    constant = rests <= 4.0 * float(np.finfo(features.dtype).eps) * sizes
    return jnp.where(constant[None, :], 0.0, centred)


@functools.lru_cache(maxsize=4)
def _probe_of(world: PuddleWorld) -> ValueProbe:
    return puddle_world_probe(world, discount=0.95, seed=_SEED)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """States and probes on which torsos are measured.

    Attributes:
        inputs: Observations for the effective rank and dormant units and, with a ground truth, its
            states, [n, *observation].
        basis: The ground truth's leading components, [n, k]: as many as features and at least ten,
            if it has so many; None without one.
        probe: Values of held-out policies and rewards.
    """

    inputs: Array
    basis: Array | None
    probe: ValueProbe


def make_measurement(config: AgentConfig, truth: "GroundTruth | None" = None) -> Measurement:
    """Make the data on which the agents of a configuration are measured; equal for all its runs.

    PuddleWorld: the states of a ground truth, and the exact values of random policies and rewards.
    Others: states and returns of a uniformly random policy.

    Args:
        config: The configuration.
        truth: A successor measure of the same arena; by default the released one of ``sutton``.

    Raises:
        InputError: For a ground truth of another environment.
    """
    world, arena = puddle_world_of(config), arena_of(config)
    if world is None or arena is None:
        require(truth is None, "a ground truth for PuddleWorld alone", config.environment)
        name, limit = config.environment, config.max_episode_steps
        with closing(
            make_host_environments(name, _COPIES, max_episode_steps=limit)
        ) as environments:
            probe = _sampled_probe(random_rows(environments, _STEPS, seed=_SEED))
        return Measurement(inputs=probe.inputs, basis=None, probe=probe)
    see = jax.jit(jax.vmap(world.observe_position))
    probe = _probe_of(world)
    probe = probe._replace(inputs=see(probe.inputs))
    truth = truth if truth is not None else default_ground_truth(config)
    if truth is None:
        return Measurement(inputs=probe.inputs, basis=None, probe=probe)
    measured = truth.settings.get("environment")
    same = measured == arena_settings(load_arena(arena))
    require(same, f"a ground truth of the arena {arena}", measured)
    components = min(max(COMPONENTS, config.num_features), truth.principal.basis.shape[1])
    basis = jnp.asarray(truth.principal.truncated(components).basis)
    return Measurement(inputs=see(jnp.asarray(truth.coordinates)), basis=basis, probe=probe)


def _sampled_probe(rows: Rows) -> ValueProbe:
    """Make a probe whose values are sums of as many terms as a time limit allows."""
    for horizon in _HORIZONS:
        with suppress(InputError):
            return rollout_probe(rows, horizon=horizon, seed=_SEED)
    return rollout_probe(rows, horizon=1, seed=_SEED)


def default_ground_truth(config: AgentConfig) -> "GroundTruth | None":
    """Load the released ground truth of the arena in which agents act; None if there is none."""
    return load(_RELEASED) if arena_of(config) == DEFAULT_ARENA else None


def random_rows(environments: HostEnvironments, steps: int, *, seed: int) -> Rows:
    """Collect rows [steps, environments] of uniformly random actions."""
    generator = np.random.default_rng(seed)
    seen = environments.reset(range(seed, seed + environments.num_envs))
    ended = np.zeros(environments.num_envs, np.bool_)
    collected = []
    for _ in range(steps):
        actions = generator.integers(environments.num_actions, size=environments.num_envs)
        taken = environments.step(actions)
        collected.append((seen, actions.astype(np.int32), taken.rewards, taken.terminated, ended))
        seen, ended = taken.observations, taken.terminated | taken.truncated
    return Rows(*(jnp.asarray(np.stack(parts)) for parts in zip(*collected, strict=True)))


def make_measure(
    network: QNetwork, measurement: Measurement
) -> Callable[[Params], Mapping[str, Array]]:
    """Make a jitted function from torsos' parameters [seeds, ...] to measures [seeds].

    They are ``effective_rank``, ``probe_error`` and, if available, ``dormant_share``,
    ``leading_distance`` (to the ten leading components, which d > 10 features can express besides
    others) and ``subspace_distance`` (to the d leading ones, 0 only for their span).
    """

    def one(torso: Any) -> dict[str, Array]:
        features = network.features(torso, measurement.inputs)
        of_probe = network.features(torso, measurement.probe.inputs)
        found = {
            "effective_rank": effective_rank(features),
            "probe_error": probe_error(of_probe, measurement.probe),
        }
        hidden = network.hidden(torso, measurement.inputs)
        if hidden is not None:
            found["dormant_share"] = dormant_share(hidden)
        if measurement.basis is not None:
            basis, size = measurement.basis, network.num_features
            found["leading_distance"] = coverage_distance(features, basis[:, :COMPONENTS])
            if basis.shape[1] >= size:
                found["subspace_distance"] = coverage_distance(features, basis[:, :size])
        return found

    # One torso at a time: the activations of all of them would be large.
    return jit_briefly(lambda torsos: lax.map(one, torsos))
