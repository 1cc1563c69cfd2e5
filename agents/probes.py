"""Value probes: how well frozen features predict values for which they were not trained.

A probe is states with the values there of many policies and rewards. A linear map from the features
is fitted at some of the states and measured at the others. Values are solved for in PuddleWorld and
sampled in any other environment.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.replay import Rows, episode_window
from rlreps.cumulants import Cumulants, RandomFourier, RandomNetwork
from rlreps.envs import PuddleWorld
from rlreps.errors import InputError
from rlreps.numerics import matmul
from rlreps.subspace import relative_tolerance
from rlreps.successor.grids import Grid
from rlreps.successor.kernels.actions import cell_moves

FloatArray = npt.NDArray[np.float64]

POLICY_SHARPNESS = 2.0
"""Factor of the waves that serve as logits of a random policy."""


class ValueProbe(NamedTuple):
    """States with values of m policies and rewards.

    Attributes:
        inputs: Encoder inputs, [n, *observation].
        values: V(s), [n, m] (float32), in units of the rewards.
        train: Whether the linear map is fitted at a state, [n]; it is measured at the other states.
    """

    inputs: Array
    values: Array
    train: Array


def probe_error(features: Array, probe: ValueProbe) -> Array:
    """Compute the share of held-out states' variance of values not explained linearly, 1 - R².

    Least squares with an intercept at the fitted states, of smallest norm if features depend on
    each other, so that an invertible linear map of the features changes nothing. There should be
    many more fitted states than features. The result is the mean over the value functions that vary
    over the held-out states.

    Args:
        features: φ at the probe's inputs, [n, d], floating point.
        probe: The probe.

    Returns:
        Scalar of the features' dtype: 0 for features that explain everything, 1 for features that
        explain no more than the mean, more for misleading ones. NaN if a feature is not finite or
        no value function varies.
    """
    dtype = features.dtype
    train = probe.train.astype(dtype)
    values = probe.values.astype(dtype)
    known = values - _mean(values, train)[None]
    inputs = features - _mean(features, train)[None]
    residual = known - matmul(inputs, _fit(inputs, known * train[:, None], train))
    held_out = 1.0 - train
    spread = known - _mean(known, held_out)[None]
    unexplained, variance = (
        jnp.sum(jnp.square(part) * held_out[:, None], axis=0) for part in (residual, spread)
    )
    size = jnp.sum(jnp.square(values), axis=0)
    varying = variance > jnp.square(_rounding(dtype)) * size
    shares = jnp.where(varying, unexplained / jnp.where(varying, variance, 1.0), 0.0)
    return jnp.sum(shares) / jnp.sum(varying, dtype=dtype)


def _mean(values: Array, weights: Array) -> Array:
    """Average the rows of [n, k] with weights [n] of 0 and 1."""
    return jnp.sum(values * weights[:, None], axis=0) / jnp.sum(weights)


def _fit(inputs: Array, targets: Array, train: Array) -> Array:
    """Fit weights [d, m] of the least-squares map from inputs [n, d] to targets [n, m]."""
    chosen = inputs * train[:, None]
    lengths = jnp.linalg.norm(chosen, axis=0)
    # Subtracting a constant feature's mean leaves only rounding, however small.
    constant = lengths <= _rounding(inputs.dtype) * jnp.linalg.norm(inputs, axis=0)
    scales = jnp.where(constant, 0.0, 1.0 / jnp.where(constant, 1.0, lengths))
    tolerance = relative_tolerance(inputs.shape, inputs.dtype)
    weights = jnp.linalg.lstsq(chosen * scales[None], targets, rcond=tolerance)[0]
    return scales[:, None] * weights


def _rounding(dtype: npt.DTypeLike) -> float:
    return 4.0 * float(np.finfo(dtype).eps)


def rollout_probe(
    rows: Rows,
    *,
    num_states: int = 1_000,
    num_rewards: int = 15,
    discount: float = 0.95,
    horizon: int = 64,
    length_scale: float = 1.0,
    seed: int = 0,
) -> ValueProbe:
    """Sum returns along trajectories of any environment, for the policy that made them.

    One policy makes one probe; use random policies that an agent never follows. Values are sums
    over ``horizon`` steps, Σ_{k < horizon} γᵏ r, of random functions of the observations
    (``RandomNetwork``; nothing is added after a termination) and of the task's reward, the last
    column. Rows with fewer steps before a time limit or the end of the data are not used.

    A single return stands for each value. Its noise is variance that no features can explain: it
    raises the error of all features equally and keeps it above 0 for perfect ones. Compare errors
    of features on the same probe, not across probes. Whole trajectories are held out, so that the
    fitted states share no noise with the others.

    Args:
        rows: [steps, environments], in order of time along the first axis.
        num_states: n, half of them to fit, from the first half of the environments.
        num_rewards: Number of random functions.
        discount: γ, in [0, 1).
        horizon: Number of terms of a sum.
        length_scale: Length scale of the functions, in standard deviations of each coordinate times
            the square root of the number of coordinates, with which distances grow.
        seed: Seed of the functions and of the choice of states.

    Returns:
        The probe; its inputs are the observations in the rows.

    Raises:
        InputError: For too few rows with enough steps after them.
    """
    shape = np.shape(rows.reward)
    places = _usable_places(np.asarray(rows.last), np.asarray(rows.terminated), horizon)
    times, members = _chosen(places, num_states, seed)
    drawn = _random_rewards(rows.observation, num_rewards, length_scale, seed)
    # They replace the observations, whose windows would be long copies of images.
    steps = np.minimum(times[:, None] + np.arange(horizon), shape[0] - 1)
    windows: Rows = jax.tree.map(
        lambda part: jnp.asarray(part)[steps, members[:, None]], rows._replace(observation=drawn)
    )
    window = episode_window(windows)
    powers = jnp.asarray(discount ** np.arange(horizon), jnp.float32)[None]
    seen = jnp.where(window.seen, powers, 0.0)
    of_random = jnp.sum(seen[:, :, None] * windows.observation, axis=1)
    of_task = jnp.sum(jnp.where(window.taken, windows.reward, 0.0) * powers, axis=1)
    return ValueProbe(
        inputs=jnp.asarray(rows.observation)[times, members],
        values=jnp.concatenate([of_random, of_task[:, None].astype(jnp.float32)], axis=1),
        train=jnp.asarray(members < shape[1] // 2),
    )


def _usable_places(
    last: npt.NDArray[np.bool_], terminated: npt.NDArray[np.bool_], horizon: int
) -> npt.NDArray[np.bool_]:
    """Find rows [steps, environments] with ``horizon`` steps or a termination to come."""
    steps = len(last)
    index = np.where(last, np.arange(steps)[:, None], steps)
    end = np.minimum.accumulate(index[::-1], axis=0)[::-1]
    ended = np.take_along_axis(terminated, np.clip(end - 1, 0, None), axis=0) & (end < steps)
    long_enough = end - np.arange(steps)[:, None] >= horizon
    usable: npt.NDArray[np.bool_] = ~last & (long_enough | ended)
    return usable


def _chosen(
    places: npt.NDArray[np.bool_], num_states: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose steps and environments of the states [n], equally from both halves if possible."""
    generator = np.random.default_rng(seed)
    middle = places.shape[1] // 2
    times, members = np.nonzero(places)
    chosen = []
    for in_half, number in (
        (members < middle, num_states // 2),
        (members >= middle, num_states - num_states // 2),
    ):
        candidates = np.flatnonzero(in_half)
        if len(candidates) < number:
            raise InputError(
                f"expected at least {number} rows with enough steps after them in each half of the "
                f"environments, got {len(candidates)}"
            )
        chosen.append(np.sort(generator.choice(candidates, number, replace=False)))
    together = np.concatenate(chosen)
    return times[together], members[together]


def _random_rewards(
    observations: npt.ArrayLike, num_rewards: int, length_scale: float, seed: int
) -> Array:
    """Draw random functions of standardised observations, [t, e, num_rewards]."""
    table = np.asarray(observations)
    flat = table.reshape(*table.shape[:2], -1).astype(np.float32)
    spread = flat.std(axis=(0, 1))
    standard = (flat - flat.mean(axis=(0, 1))) / np.where(spread > 0.0, spread, 1.0)
    coordinates = standard.shape[-1]
    family = RandomNetwork(
        input_scale=1.0 / (length_scale * math.sqrt(coordinates)), num_inputs=coordinates
    )

    @jax.jit
    def drawn(standard: Array) -> Array:
        return family.apply(family.init(jax.random.key(seed), num_rewards), standard)

    rewards: Array = drawn(jnp.asarray(standard))
    return rewards


def puddle_world_probe(
    environment: PuddleWorld,
    *,
    bins: int = 25,
    num_policies: int = 8,
    num_rewards: int = 8,
    discount: float = 0.95,
    length_scale: float = 0.2,
    seed: int = 0,
) -> ValueProbe:
    """Solve for values of random policies and rewards over PuddleWorld, exact up to the grid.

    Policies and rewards are constant over a cell, and an agent that enters a cell is assumed to be
    anywhere in it: V = (I - γ P_π)⁻¹ r of a chain between cells, with r counted from the first
    state on as in the successor measure. P is estimated from 256 moves from each cell by each
    action. The policies' logits are random waves (``RandomFourier``), rewards are random networks
    (``RandomNetwork``), and under them no episode ends. If the environment has its own reward, it
    is the last reward of each policy, and there its goal ends episodes. Cells that are more than 95
    % wall are left out.

    Args:
        environment: The dynamics, and the task.
        bins: Cells along each axis; time and memory grow as bins⁶ and bins⁴.
        num_policies: Number of random policies.
        num_rewards: Number of random rewards for each policy.
        discount: γ, in [0, 1).
        length_scale: Length over which waves and networks vary, in sides of the square.
        seed: Seed of everything random.

    Returns:
        A probe of the cells' centres, a random half of them to fit; policy by policy.
    """
    grid, key = Grid(bins), jax.random.key(seed)
    moves = cell_moves(environment, grid, jax.random.fold_in(key, 0))
    centres = jnp.asarray(grid.centres()[moves.cells])
    actions = environment.num_actions

    def functions(family: Cumulants, part: int, number: int) -> FloatArray:
        drawn = _drawn(family, number, jax.random.fold_in(key, part), centres)
        return np.asarray(drawn, np.float64)

    waves = RandomFourier(length_scale=length_scale)
    logits = POLICY_SHARPNESS * functions(waves, 1, num_policies * actions)
    weights = np.exp(logits.reshape(-1, num_policies, actions))
    policies = weights / weights.sum(axis=2, keepdims=True)
    rewards = functions(RandomNetwork(input_scale=1.0 / length_scale), 2, num_rewards)
    rewarding = environment.step_penalty or environment.puddle_penalty
    columns = []
    for policy in policies.transpose(1, 0, 2):
        columns.append(_discounted_sums(policy, moves.to, rewards, discount))
        if rewarding:
            own = np.sum(policy * moves.rewards, axis=1)
            columns.append(_discounted_sums(policy, moves.on, own[:, None], discount))
    train = np.random.default_rng(seed).permutation(len(centres)) < len(centres) // 2
    values = np.concatenate(columns, axis=1)
    return ValueProbe(centres, jnp.asarray(values, jnp.float32), jnp.asarray(train))


@partial(jax.jit, static_argnums=(0, 1))
def _drawn(family: Cumulants, number: int, key: Array, positions: Array) -> Array:
    return family.apply(family.init(key, number), positions)


def _discounted_sums(
    policy: FloatArray, moves: FloatArray, rewards: FloatArray, discount: float
) -> FloatArray:
    """Solve for (I - γ P_π)⁻¹ r [n, r] of a policy [n, a], moves [a, n, n] and rewards [n, r]."""
    chain = np.einsum("sa,ast->st", policy, moves)
    values: FloatArray = np.linalg.solve(np.eye(len(chain)) - discount * chain, rewards)
    return values
