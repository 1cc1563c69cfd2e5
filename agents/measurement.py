"""What a run's torsos are measured on beside their returns, and the measures themselves."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.config import AgentConfig
from rlreps.agents.host_environments import HostEnvironments, make_host_environments
from rlreps.agents.loops import DEFAULT_ARENA, puddle_world_of
from rlreps.agents.measures import coverage_distance, dormant_share, effective_rank
from rlreps.agents.networks import Params, QNetwork
from rlreps.agents.puddle_world_probe import puddle_world_probe
from rlreps.agents.rows import Rows
from rlreps.agents.value_probe import ValueProbe, probe_error, rollout_probe
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError, require
from rlreps.successor.released import load

if TYPE_CHECKING:
    from rlreps.successor.ground_truth import GroundTruth

COMPONENTS = 10
"""Leading components of the ground truth that features are to express, at most."""

_RELEASED = "sutton-100"
_SEED = 0
_COPIES = 16
_STEPS = 400
_HORIZONS = (64, 32, 16, 8, 4, 2)
"""Terms of the probe's values, from the most that are worth their noise on."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """What torsos are measured on.

    Attributes:
        inputs: Observations for the effective rank and dormant units and, where there is a ground
            truth, its states, [n, *observation].
        basis: The ground truth's leading components, [n, k]; None without one.
        probe: Values of held-out policies and rewards.
    """

    inputs: Array
    basis: Array | None
    probe: ValueProbe


def make_measurement(config: AgentConfig, truth: "GroundTruth | None" = None) -> Measurement:
    """What the agents of a configuration are measured on; the same for every run of it.

    PuddleWorld: the states of a ground truth, and the exact values of random policies and rewards.
    Others: states and returns of a policy of uniformly random actions.

    Args:
        config: The configuration.
        truth: A successor measure of the same arena; by default the released one of ``sutton``.

    Raises:
        InputError: For a ground truth of another environment.
    """
    world = puddle_world_of(config)
    if world is None:
        require(truth is None, "a ground truth for PuddleWorld alone", config.environment)
        with closing(
            make_host_environments(
                config.environment, _COPIES, max_episode_steps=config.max_episode_steps
            )
        ) as environments:
            probe = _sampled_probe(random_rows(environments, _STEPS, seed=_SEED))
        return Measurement(inputs=probe.inputs, basis=None, probe=probe)
    probe = puddle_world_probe(world, discount=0.95, seed=_SEED)
    truth = truth if truth is not None else default_ground_truth(config)
    if truth is None:
        return Measurement(inputs=probe.inputs, basis=None, probe=probe)
    arena = _arena(config)
    measured = truth.settings.get("environment")
    require(
        measured == arena_settings(load_arena(arena)),
        f"a ground truth of the arena {arena}",
        measured,
    )
    components = min(COMPONENTS, truth.principal.basis.shape[1])
    basis = jnp.asarray(truth.principal.truncated(components).basis)
    return Measurement(inputs=jnp.asarray(truth.coordinates), basis=basis, probe=probe)


def _sampled_probe(rows: Rows) -> ValueProbe:
    """A probe whose values are sums of as many terms as a time limit leaves room for."""
    for horizon in _HORIZONS:
        with suppress(InputError):
            return rollout_probe(rows, horizon=horizon, seed=_SEED)
    return rollout_probe(rows, horizon=1, seed=_SEED)


def default_ground_truth(config: AgentConfig) -> "GroundTruth | None":
    """The released ground truth of the arena that agents act in; None where there is none."""
    if puddle_world_of(config) is None or _arena(config) != DEFAULT_ARENA:
        return None
    return load(_RELEASED)


def _arena(config: AgentConfig) -> str:
    return config.environment.partition(":")[2] or DEFAULT_ARENA


def random_rows(environments: HostEnvironments, steps: int, *, seed: int) -> Rows:
    """Rows [steps, environments] of uniformly random actions."""
    generator = np.random.default_rng(seed)
    seen = environments.reset(range(seed, seed + environments.num_envs))
    ended = np.zeros(environments.num_envs, np.bool_)
    collected = []
    for _ in range(steps):
        actions = generator.integers(environments.num_actions, size=environments.num_envs)
        taken = environments.step(actions)
        collected.append(
            Rows(
                observation=jnp.asarray(seen),
                action=jnp.asarray(actions, jnp.int32),
                reward=jnp.asarray(taken.rewards),
                terminated=jnp.asarray(taken.terminated),
                last=jnp.asarray(ended),
            )
        )
        seen, ended = taken.observations, taken.terminated | taken.truncated
    rows: Rows = jax.tree.map(lambda *parts: jnp.stack(parts), *collected)
    return rows


def make_measure(
    network: QNetwork, measurement: Measurement
) -> Callable[[Params], Mapping[str, Array]]:
    """A jitted function from torsos' parameters [seeds, ...] to measures [seeds].

    They are ``effective_rank``, ``probe_error`` and, where they can be told, ``dormant_share`` and
    ``subspace_distance``.
    """

    def one(torso: Any) -> dict[str, Array]:
        features = network.features(torso, measurement.inputs)
        found = {
            "effective_rank": effective_rank(features),
            "probe_error": probe_error(
                network.features(torso, measurement.probe.inputs), measurement.probe
            ),
        }
        hidden = network.hidden(torso, measurement.inputs)
        if hidden is not None:
            found["dormant_share"] = dormant_share(hidden)
        if measurement.basis is not None:
            found["subspace_distance"] = coverage_distance(features, measurement.basis)
        return found

    # One torso at a time: the activations of all of them would be large.
    return jax.jit(lambda torsos: lax.map(one, torsos))
