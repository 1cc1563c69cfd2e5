"""Tables in front of an agent's network: features fitted to its replay.

A table is a dictionary of arrays that no gradient changes (``fitted_features``): ``weights``
[n, d], and ``states``, n observations to look up, or ``mean``, ``frequencies`` and ``phases`` of
n - 1 random Fourier features, to which a constant is added.

**Fits.** A fit takes all transitions in replay. It solves for the successor measure of the
uniformly random policy by least squares (``rlreps.successor.fitting.least_squares``). Least squares
can use the steps of any policy, so refits during learning estimate the same measure from more data.
Features are the leading singular functions of the measure, averaged over actions and multiplied by
their singular values.

**Alignment.** Singular functions of two fits differ in signs, and in rotations where singular
values are close. New features are therefore turned by the orthogonal map that brings them nearest
to the old ones over the replay's states (Schönemann 1966), so that the network's first layer keeps
its meaning.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import orthogonal_procrustes

from rlreps.agents.replay import ReplayRows
from rlreps.config import checked, configurable, interval, leaf, positive
from rlreps.encoders import Encoder
from rlreps.errors import InputError, require
from rlreps.losses.base import Params
from rlreps.numerics import as_inputs, hash_rows
from rlreps.runs.progress import hidden
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, FourierBasis, UnitVectors, in_blocks
from rlreps.successor.fitting.factors import decompose
from rlreps.successor.fitting.least_squares import LeastSquares, Steps

UNUSED = 2.0**25
"""Marks an unused row of the table. It exceeds every hash, and is finite, as parameters must be."""

_COMPARED_STATES = 2_000
"""Largest number of states at which Fourier features are aligned."""

_WIDTH, _RIDGE = 0.5, 1e-5
"""Kernel's width and ridge of Fourier features."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Features in front of an agent's network, fitted to its replay.

    Attributes:
        kind: ``fitted`` fits features after the warm-up and again at ``refit_at``; ``fitted_once``
            fits them after the warm-up alone. ``random`` draws features at random, at the times of
            ``fitted``. ``none`` adds no features.
        basis: ``counted`` for observations that repeat exactly, such as codes, unit vectors and
            images of a grid; ``fourier`` for others, whose fit takes random Fourier features.
            ``auto`` counts codes and images of PuddleWorld's cells, with a table of at least as
            many rows as there are cells, and takes Fourier features of everything else.
        basis_size: Largest number of distinct observations (``counted``), or number of random
            Fourier features with a constant (``fourier``).
        num_components: d, number of fitted features.
        feature_discount: γ of the successor measure.
        refit_at: Environment steps at which ``fitted`` features are fitted again, rounded down to
            an update. Steps before the end of the warm-up are ignored.
    """

    kind: Literal["none", "fitted", "fitted_once", "random"] = "none"
    basis: Literal["auto", "counted", "fourier"] = "auto"
    basis_size: int = positive(512)
    num_components: int = positive(16)
    feature_discount: float = interval("(0, 1)", 0.95)
    refit_at: tuple[int, ...] = (5_000, 10_000, 20_000, 40_000)

    def __post_init__(self) -> None:
        few = self.basis == "counted" or self.num_components < self.basis_size
        require(few, f"fewer components than basis_size ({self.basis_size})", self.num_components)

    def fit_times(self, warmup: int, period: int) -> tuple[int, ...]:
        """Return the environment steps of all fits, from the first.

        Args:
            warmup: Environment steps before learning.
            period: Environment steps from one update to the next.
        """
        if self.kind == "none":
            return ()
        again = () if self.kind == "fitted_once" else self.refit_at
        rounded = {step - step % period for step in again}
        return (warmup, *sorted(step for step in rounded if step > warmup))


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class WithFitted(Encoder):
    """A network on an observation and its fitted features, [b, ..., c] → [b, features].

    Parameters are those of the networks, ``network`` and for images also ``joint``, and ``fitted``,
    the result of the latest fit, which no gradient changes. Fitted features are 0 before the first
    fit, and at observations that the latest fit has not counted.

    Attributes:
        network: The network: of vectors and fitted features together, [b, c + d], or of images
            alone, [b, h, w, c].
        joint: For images, the network of their features and the fitted features, [b, features + d];
            None for vectors.
        config: The options of the fits.
        num_inputs: Numbers in an observation.
    """

    network: Encoder = leaf()
    joint: Encoder | None = leaf()
    config: FeatureConfig
    num_inputs: int

    def init(self, key: Array) -> Params:
        size, width = self.config.basis_size, self.config.num_components
        table = {"weights": jnp.zeros((size, width), jnp.float32)}
        if self.config.basis == "counted":
            fitted = {**table, "states": jnp.full((size,), UNUSED, jnp.float32)}
        else:
            fitted = {
                **table,
                "mean": jnp.zeros((self.num_inputs,), jnp.float32),
                "frequencies": jnp.zeros((self.num_inputs, size - 1), jnp.float32),
                "phases": jnp.zeros((size - 1,), jnp.float32),
            }
        params = {"network": self.network.init(key), "fitted": fitted}
        if self.joint is not None:
            params["joint"] = self.joint.init(jax.random.fold_in(key, 1))
        return params

    def apply(self, params: Params, inputs: Array) -> Array:
        found = self._fitted(params["fitted"], inputs)
        if self.joint is None:
            return self.network.apply(params["network"], _beside(inputs, found))
        return self.joint.apply(params["joint"], _beside(self._of_images(params, inputs), found))

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array] | None:
        found = self._fitted(params["fitted"], inputs)
        if self.joint is None:
            return self.network.hidden_activations(params["network"], _beside(inputs, found))
        seen = self._of_images(params, inputs)
        first = self.network.hidden_activations(params["network"], inputs)
        then = self.joint.hidden_activations(params["joint"], _beside(seen, found))
        return None if first is None or then is None else [*first, seen, *then]

    def _of_images(self, params: Params, images: Array) -> Array:
        return jax.nn.relu(self.network.apply(params["network"], images))

    def _fitted(self, fitted: Params, inputs: Array) -> Array:
        # Fits set the features, and gradients do not.
        flat = inputs.reshape(len(inputs), self.num_inputs)
        return lax.stop_gradient(fitted_features(fitted, flat))


def _beside(first: Array, second: Array) -> Array:
    return jnp.concatenate([first, second], axis=1)


def fitted_features(fitted: Params, observations: Array) -> Array:
    """Compute the features [b, d] of a table at observations [b, c]."""
    weights = fitted["weights"]
    if "states" in fitted:
        states, wanted = fitted["states"], number_observations(observations)
        place = jnp.sum(states[None, :] < wanted[:, None], axis=1, dtype=jnp.int32)
        place = jnp.minimum(place, len(states) - 1)
        return jnp.where((states[place] == wanted)[:, None], weights[place], 0.0)
    centred = observations - fitted["mean"][None]
    waves = jnp.cos(centred @ fitted["frequencies"] + fitted["phases"][None])
    waves = waves * np.float32(np.sqrt(2.0 / fitted["phases"].size))
    features: Array = waves @ weights[:-1] + weights[-1:]
    return features


def number_observations(observations: Any) -> Any:
    """Number observations [b, ...] by a hash of all their bits: [b], whole numbers below 2^24.

    Bytes are divided by 255 first, as an agent's network does. Arrays of NumPy and of JAX have the
    same numbers, and so have -0 and 0. Two of n observations share a number, and then their
    features, with a probability of about n² / 2^25: 0.5 % for 400.
    """
    bits = as_inputs(observations).reshape(len(observations), -1).view(np.uint32)
    bits = bits * (bits != np.uint32(0x80000000)).astype(np.uint32)  # -0 has bits of its own.
    salt = np.random.default_rng(0).integers(2**32, size=bits.shape[1], dtype=np.uint32)
    mixed = _mixed(_mixed(bits ^ salt[None]).sum(axis=1, dtype=np.uint32))
    return (mixed >> np.uint32(8)).astype(np.float32)


def _mixed(bits: Any) -> Any:
    """Mix the bits of numbers (uint32) so that each depends on all (MurmurHash3's last step)."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))


def replayed(rows: ReplayRows, count: int) -> Steps:
    """List the transitions of one agent's memory, with flat observations as its network sees them.

    Args:
        rows: The memory, [slots, environments, ...].
        count: Rows that each environment has added.
    """
    slots = len(rows.action)
    filled = min(count, slots)
    order = (count - filled + np.arange(filled)) % slots
    held: ReplayRows = jax.tree.map(lambda part: np.asarray(part)[order], rows)
    seen: Any = held.observation.reshape(*held.action.shape, -1)
    held = held._replace(observation=as_inputs(seen))
    taken = ~np.asarray(held.last)[:-1]
    before, action, terminated, after = (
        np.asarray(part)[taken]
        for part in (
            held.observation[:-1],
            held.action[:-1],
            held.terminated[:-1],
            held.observation[1:],
        )
    )
    return Steps(before, action, after, terminated)


def fit_features(
    config: FeatureConfig, data: Steps, num_actions: int, previous: Params, seed: int
) -> Params:
    """Fit features to the transitions of one agent.

    Features have mean square 1 over the distinct states of the data; with ``fourier``, over at
    most 2,000 of its states drawn at random.

    Args:
        config: The options.
        data: The transitions.
        num_actions: Number of actions.
        previous: ``fitted`` of ``WithFitted`` so far, to which the features are aligned.
        seed: Seed of random features.

    Returns:
        ``fitted`` after this fit. If a later fit has more distinct observations than its table has
        rows, it warns and returns ``previous``: the agent trains on. It also warns if two of them
        share a number (``number_observations``).

    Raises:
        InputError: If the first fit has more distinct observations than its table has rows.
    """
    size, states = config.basis_size, np.concatenate([data.observation, data.next_observation])
    fitted: dict[str, Any]
    if config.basis == "counted":
        known, first, index = np.unique(
            number_observations(states), return_index=True, return_inverse=True
        )
        if len(known) > size:
            found = (
                f"expected at most {size} distinct observations to count (feature_basis_size), got "
                f"{len(known)}; take basis fourier if they hardly repeat"
            )
            if not np.any(previous["weights"]):
                raise InputError(found)
            warnings.warn(f"{found}; the agent with seed {seed} keeps its features", stacklevel=2)
            return previous
        # Zeros of both signs have the same number.
        seen: Any = states
        signless = np.asarray(as_inputs(seen) + np.float32(0.0))
        shared = len(np.unique(hash_rows(signless))) - len(known)
        if shared:
            warnings.warn(
                f"{shared} of {len(known) + shared} observations have the number of another one, "
                "and its features; take observations of fewer values, or basis='fourier'",
                stacklevel=2,
            )
        basis: Basis = UnitVectors(len(known))
        (before, after), states = index.reshape(2, -1), states[first]
        ridge = 1e-6 / len(before)  # Far below the weight of one transition.
        fitted = {"states": np.pad(known, (0, size - len(known)), constant_values=UNUSED)}
    else:
        before, after, ridge = data.observation, data.next_observation, _RIDGE
        basis = fourier = FourierBasis.of(before, size, _WIDTH, seed=0)
        states = states[np.random.default_rng(0).permutation(len(states))[:_COMPARED_STATES]]
        fitted = fourier.single()
    if config.kind == "random":
        known = known if config.basis == "counted" else np.arange(size)
        # Seed by the state: when more states are counted, only the scale of its features changes.
        draws = [np.random.default_rng([seed, int(n)]) for n in known]
        weights = np.stack([draw.normal(size=config.num_components) for draw in draws])
    else:
        uniform = np.float32(1.0 / num_actions)
        solution = LeastSquares(
            basis,
            ActionBasis(num_actions),
            Steps(before, data.action, after, data.terminated),
            config.feature_discount,
            ridge,
            lambda s: np.full((len(s), num_actions), uniform),
        )
        with hidden():
            factors = decompose(solution, config.num_components)
        weights = factors.forward.mean(axis=1) * np.sqrt(factors.singular_values)
    weights = np.pad(weights, [(0, size - len(weights)), (0, 0)]).astype(np.float32)
    fitted["weights"] = weights
    now, then = (in_blocks(partial(_features, each), states) for each in (fitted, previous))
    weights = weights / max(np.sqrt(np.mean(np.square(now))), np.float32(1e-12))
    if config.kind != "random":
        compared = now.astype(np.float64), then.astype(np.float64)
        weights = weights @ orthogonal_procrustes(*compared)[0].astype(np.float32)
    return {**fitted, "weights": weights}


def refit(
    config: FeatureConfig,
    params: Params,
    replay: ReplayRows,
    count: int,
    num_actions: int,
    seeds: Sequence[int],
) -> Params:
    """Fit the features of several agents, each to its own memory.

    Args:
        config: The options.
        params: Parameters of their networks; every leaf has a leading seed axis.
        replay: Their memories, [seeds, slots, environments, ...].
        count: Rows that each environment has added.
        num_actions: Number of actions.
        seeds: Their seeds.

    Returns:
        ``fitted`` of their torsos, [seeds, ...].
    """
    held, previous = jax.device_get((replay, params["torso"]["fitted"]))
    fits = []
    for index, seed in enumerate(seeds):
        rows, old = jax.tree.map(lambda leaf, index=index: leaf[index], (held, previous))
        fits.append(fit_features(config, replayed(rows, count), num_actions, old, seed))
    return jax.tree.map(lambda *leaves: jnp.stack([*map(jnp.asarray, leaves)]), *fits)


_features = jax.jit(fitted_features)
