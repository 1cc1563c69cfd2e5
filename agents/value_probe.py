"""How well frozen features predict values of policies and rewards that they were not trained for.

A probe is states with the values there of many policies and rewards; a linear map from the features
is fitted at some of the states and measured at the others.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.rows import Rows, episode_window
from rlreps.cumulants import RandomNetwork
from rlreps.errors import InputError, require, require_positive
from rlreps.subspace import relative_tolerance


class ValueProbe(NamedTuple):
    """States with values of m policies and rewards.

    Attributes:
        inputs: What an encoder takes, [n, *observation].
        values: V(s), [n, m] (float32), in units of the rewards.
        train: Whether a state is one that the linear map is fitted at, [n]; it is measured at the
            others.
    """

    inputs: Array
    values: Array
    train: Array


def probe_error(features: Array, probe: ValueProbe) -> Array:
    """Share of the values' variance at held-out states that no linear map explains, 1 - R².

    Least squares with an intercept at the states to fit, of smallest norm where features depend on
    each other; so an invertible linear map of the features changes nothing. There should be many
    more states to fit than features. The mean over the value functions, those left out that are
    constant over the held-out states.

    Args:
        features: φ at the probe's inputs, [n, d], floating point.
        probe: The probe.

    Returns:
        Scalar of the features' dtype: 0 for features that tell all, 1 for ones that tell no more
        than the mean, more for ones that mislead. NaN if a feature is not finite or no value
        function varies.
    """
    dtype = features.dtype
    train = probe.train.astype(dtype)
    values = probe.values.astype(dtype)
    known = values - _mean(values, train)[None]
    inputs = features - _mean(features, train)[None]
    residual = known - _product(inputs, _fit(inputs, known * train[:, None], train))
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
    """Mean over the rows of [n, k] with weights [n] of 0 and 1."""
    return jnp.sum(values * weights[:, None], axis=0) / jnp.sum(weights)


def _fit(inputs: Array, targets: Array, train: Array) -> Array:
    """Weights [d, m] of the least-squares map from inputs [n, d] to targets [n, m]."""
    chosen = inputs * train[:, None]
    lengths = jnp.linalg.norm(chosen, axis=0)
    # What a constant feature's mean leaves behind is rounding, however small.
    constant = lengths <= _rounding(inputs.dtype) * jnp.linalg.norm(inputs, axis=0)
    scales = jnp.where(constant, 0.0, 1.0 / jnp.where(constant, 1.0, lengths))
    panel, triangle = jnp.linalg.qr(chosen * scales[None])
    left, stretch, right = jnp.linalg.svd(triangle, full_matrices=False)
    # Stated as "not below", so that NaN stays NaN.
    dropped = stretch <= relative_tolerance(inputs.shape, inputs.dtype) * stretch[0]
    inverse = jnp.where(dropped, 0.0, 1.0 / jnp.where(dropped, 1.0, stretch))
    projected = inverse[:, None] * _product(left.T, _product(panel.T, targets))
    return scales[:, None] * _product(right.T, projected)


def _rounding(dtype: npt.DTypeLike) -> float:
    return 4.0 * float(np.finfo(dtype).eps)


def _product(left: Array, right: Array) -> Array:
    # An accelerator's default product would be in a shorter format.
    product: Array = jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
    return product


def require_probe(discount: float, length_scale: float, num_rewards: int, seed: int) -> None:
    """Raises an ``InputError`` unless values can be drawn and summed."""
    require(0.0 <= discount < 1.0, "discount in [0, 1)", discount)
    require(0.0 < length_scale < math.inf, "a finite length_scale > 0", length_scale)
    require_positive("num_rewards", num_rewards)
    require(0 <= seed < 2**31, "seed in [0, 2**31)", seed)


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
    """Monte-Carlo values along trajectories of any environment, for the policy that made them.

    One policy makes one probe; random ones that an agent never follows are the ones to take. Values
    are sums over ``horizon`` steps, Σ_{k < horizon} γᵏ r, of random functions of the observations
    (``RandomNetwork``; nothing is added beyond a termination) and of the task's reward, the last
    column. Rows that a time limit or the end of the data leaves fewer steps are not used.

    A single return stands for each value. Its noise about the value is variance that no features
    can explain: it raises the error of all alike and leaves it above 0 for perfect ones. Errors
    compare features on the same probe; they do not compare probes. Whole trajectories are held out,
    so that no noise is shared between the states to fit and the others.

    Args:
        rows: [steps, environments], in order of time along the first axis.
        num_states: n, half of them to fit, from the first half of the environments.
        num_rewards: Random functions.
        discount: γ, in [0, 1).
        horizon: Terms of a sum.
        length_scale: Of the functions: in standard deviations of each coordinate, times the square
            root of the number of coordinates, which distances grow by.
        seed: Of the functions and of the choice of states.

    Returns:
        The probe; inputs are observations as they are in the rows.

    Raises:
        InputError: For numbers out of range, rows of fewer than two environments, or too few rows
            with enough steps after them.
    """
    require_probe(discount, length_scale, num_rewards, seed)
    require_positive("horizon", horizon)
    require(num_states >= 2, "num_states >= 2", num_states)
    shape = np.shape(rows.reward)
    require(len(shape) == 2 and shape[1] >= 2, "rows [steps, environments >= 2]", f"shape {shape}")
    places = _usable_places(np.asarray(rows.last), np.asarray(rows.terminated), horizon)
    times, members = _chosen(places, num_states, seed)
    drawn = _random_rewards(rows.observation, num_rewards, length_scale, seed)
    # They take the observations' place: windows of those would be long copies of images.
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
    """Which rows [steps, environments] have ``horizon`` steps to come, or a termination before."""
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
    """Steps and environments of the states [n], as many as can be from either half."""
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
    """Random functions of standardised observations [t, e, *observation], [t, e, num_rewards]."""
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
