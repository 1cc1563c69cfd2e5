"""Record transitions: let a policy act in an environment, or read a data set of Minari.

Environments are single environments of Gymnasium or dm_env, and environments in JAX.
"""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.spaces.utils import flatdim, flatten
from gymnasium.vector.utils import batch_space, iterate
from jax import Array

from rlreps.envs.core import Environment
from rlreps.envs.from_dm_env import FromDmEnv
from rlreps.errors import InputError, own_code, require, require_memory, require_positive
from rlreps.numerics import seed_key

Observe: TypeAlias = Callable[[Any], Any]
"""Observation as the environment gives it → array of numbers, or an index of a state."""

Policy: TypeAlias = Callable[[Any, np.random.Generator], Any]
"""(observation, generator) → action as the environment takes it: an integer, or floats of a box."""

JaxPolicy: TypeAlias = Callable[[Array, Array], Array]
"""(key, observation) → action [] (int32), for environments in JAX."""

COLUMNS = ("observation", "action", "next_observation", "terminated", "truncated")
"""Fields of ``Transitions`` with one entry per row."""


def record(
    environment: Any,
    steps: int,
    policy: Policy | JaxPolicy | None,
    seed: int,
    copies: int,
    observe: Observe | None,
) -> dict[str, Any]:
    """Let a policy act in an environment; return the fields of ``Transitions``."""
    # Wrappers of Gymnasium's environments may have an attribute of this name.
    if hasattr(environment, "action_spec") and not hasattr(environment, "action_space"):
        environment = FromDmEnv(environment)
    if not hasattr(environment, "action_space"):
        if isinstance(environment, Environment):
            require_positive("copies", copies)
            require(observe is None, "no observe= with an environment in JAX", observe)
            return _record_jax(environment, steps, policy, seed, copies)
        raise InputError(
            "expected an environment of Gymnasium, dm_env or rlreps.envs, got "
            f"{type(environment).__name__}"
        )
    require(not hasattr(environment, "num_envs"), "one environment", environment)
    actions = _Actions(environment.action_space)
    wraps = not isinstance(environment, FromDmEnv)
    observed = _Observations(environment.observation_space, observe, wraps=wraps)
    generator, rows = np.random.default_rng(seed), []
    if policy is None:
        actions.require_bounded()
    with own_code("an environment and a policy that take steps"):
        observation = observed(environment.reset(seed=int(seed))[0])
        held = f"{steps:,} transitions of observations {observation.shape}"
        require_memory(held, 2 * steps * observation.nbytes)
        for _ in range(steps):
            chosen = (
                actions.draw(generator) if policy is None else policy(observation, generator)  # type: ignore[arg-type]
            )
            action = actions.checked(chosen)
            # A copy: the array may be reused.
            recorded = actions.recorded(np.array(action)[None])[0]
            following, _, terminated, truncated, _ = environment.step(action)
            following = observed(following)
            shape, expected = following.shape, observation.shape
            require(shape == expected, f"observations of one shape, {expected}", shape)
            rows.append((observation, recorded, following, bool(terminated), bool(truncated)))
            # Seed only once: seeding again would make every episode the same.
            over = terminated or truncated
            observation = observed(environment.reset()[0]) if over else following
    columns = [np.asarray(column) for column in zip(*rows, strict=True)]
    return {
        **dict(zip(COLUMNS, columns, strict=True)),
        "num_states": observed.num_states,
        **actions.fields,
    }


def _record_jax(
    environment: Environment, steps: int, policy: Any, seed: int, copies: int
) -> dict[str, Any]:
    def step(states: Any, key: Array) -> tuple[Any, tuple[Array, ...]]:
        def one(state: Any, key: Array) -> tuple[Any, tuple[Array, ...]]:
            action_key, step_key, reset_key = jax.random.split(key, 3)
            observation = environment.observe(state)
            if policy is None:
                action = jax.random.randint(action_key, (), 0, environment.num_actions)
            else:
                action = jnp.asarray(policy(action_key, observation), jnp.int32)
            taken = environment.step(step_key, state, action)
            fresh, over = environment.reset(reset_key), taken.terminated | taken.truncated
            following = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, taken.state)
            flags = (taken.terminated, taken.truncated)
            return following, (observation, action, taken.observation, *flags)

        return jax.vmap(one)(states, jax.random.split(key, copies))

    each = -(-steps // copies)
    starts = jax.vmap(environment.reset)(jax.random.split(seed_key(seed, 0), copies))
    keys = jax.random.split(seed_key(seed, 1), each)
    _, columns = jax.jit(lambda states, keys: jax.lax.scan(step, states, keys))(starts, keys)
    # [time, copy] → one copy after another.
    flat = [np.moveaxis(np.asarray(c), 0, 1).reshape(-1, *c.shape[2:]) for c in columns]
    recorded = dict(zip(COLUMNS, flat, strict=True))
    cuts = np.arange(len(flat[0])) % each == each - 1
    recorded["truncated"] = recorded["truncated"] | cuts
    return {**recorded, "num_actions": environment.num_actions}


def read_minari(dataset: Any, observe: Observe | None) -> dict[str, Any]:
    """Read a data set of Minari; return the fields of ``Transitions``."""
    known = all(hasattr(dataset, name) for name in ("iterate_episodes", "action_space"))
    require(known, "a MinariDataset (minari.load_dataset)", type(dataset).__name__)
    actions = _Actions(dataset.action_space)
    observed = _Observations(dataset.observation_space, observe)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for episode in dataset.iterate_episodes():
        observation = observed.of_episode(episode.observations, len(episode.actions) + 1)
        terminated, truncated = np.array(episode.terminations), np.array(episode.truncations)
        truncated[-1:] |= ~terminated[-1:]
        action = actions.recorded(np.asarray(episode.actions))
        columns = (observation[:-1], action, observation[1:], terminated, truncated)
        for name, column in zip(COLUMNS, columns, strict=True):
            parts[name].append(column)
    require(bool(parts["action"]), "a data set with episodes", "none")
    return {
        **{name: np.concatenate(found) for name, found in parts.items()},
        "num_states": observed.num_states,
        **actions.fields,
    }


class _Observations:
    """The observations of a space as arrays of numbers.

    ``observe`` makes the arrays. Without it, the numbers of a dictionary or tuple are flattened as
    by Gymnasium's ``FlattenObservation``, and an entry without others is taken as it is.
    """

    def __init__(self, space: Any, observe: Observe | None, *, wraps: bool = False) -> None:
        """Find what of a space is recorded; refuse images or texts beside other entries.

        ``wraps`` tells whether wrappers of Gymnasium can change the observations.
        """
        self._space, self._observe = space, observe
        self._part: Any = space if observe is None else None
        self._keys: list[Any] = []
        entries = _entries(self._part)
        while len(entries) == 1:
            ((key, self._part),) = entries.items()
            self._keys.append(key)
            entries = _entries(self._part)
        self._flattens = bool(entries)
        if not self._flattens:
            return
        kinds = {key: _kind(entry) for key, entry in entries.items()}
        numbers = [key for key, kind in kinds.items() if kind == _NUMBERS]
        if len(numbers) < len(entries):
            images = [[key] for key, kind in kinds.items() if kind == _IMAGE]
            kept = [*([numbers] if numbers else []), *images] if wraps else []
            wrapped = [f"gymnasium.wrappers.FilterObservation(env, {keys})" for keys in kept]
            got = ", ".join(f"{key!r}: {kind}" for key, kind in kinds.items())
            raise InputError(
                f"expected a dictionary or tuple of numbers alone, or one image, got {got}; use "
                + " or ".join([*wrapped, "observe= with a function that returns one array"])
            )
        sizes = ", ".join(f"{key} ({flatdim(entry)})" for key, entry in entries.items())
        order = "observations are flattened in the order of gymnasium.wrappers.FlattenObservation"
        print(f"{order}: {sizes}", file=sys.stderr)

    @property
    def num_states(self) -> int | None:
        """Number of indices of a discrete space; None for other spaces."""
        part = self._part
        return int(part.start) + int(part.n) if isinstance(part, Discrete) else None

    def __call__(self, observation: Any) -> np.ndarray:
        """Return an observation of the space as an array that nothing else holds."""
        if self._observe is not None:
            return _observed(self._observe(observation))
        for key in self._keys:
            observation = observation[key]
        return _observed(flatten(self._part, observation) if self._flattens else observation)

    def of_episode(self, observations: Any, count: int) -> np.ndarray:
        """Return observations that are batched as the space's entries are, [count, ...]."""
        if self._observe is None and not self._flattens:
            for key in self._keys:
                observations = observations[key]
            return _observed(observations)
        with own_code("observations of the data set's space, and observe that takes one"):
            rows = iterate(batch_space(self._space, count), observations)
            return np.stack([self(row) for row in rows])


class _Actions:
    """The actions of a space: integers, or floats of a box.

    Integers are recorded from 0, and the axes of a box are flattened.
    """

    def __init__(self, space: Any) -> None:
        box = isinstance(space, Box) and space.dtype is not None and space.dtype.kind == "f"
        known = box or isinstance(space, Discrete)
        require(known, "discrete actions or a box of floats", str(space))
        self.space: Discrete[Any] | Box = space

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Transitions`` that describe the actions."""
        if isinstance(self.space, Discrete):
            return {"num_actions": int(self.space.n)}
        return {"action_low": self.space.low.ravel(), "action_high": self.space.high.ravel()}

    def require_bounded(self) -> None:
        """Raise an ``InputError`` unless actions can be drawn uniformly."""
        bounded = isinstance(self.space, Discrete) or self.space.is_bounded()
        require(bounded, "finite bounds to draw actions between, or a policy", str(self.space))

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw an action uniformly, as the environment takes it."""
        if isinstance(self.space, Discrete):
            return int(generator.integers(int(self.space.n))) + int(self.space.start)
        return generator.uniform(self.space.low, self.space.high)

    def checked(self, chosen: Any) -> Any:
        """Return a chosen action as the environment takes it."""
        array, space = np.asarray(chosen), self.space
        action: Any = None
        if isinstance(space, Discrete) and array.size == 1 and array.dtype.kind in "iu":
            action = int(array.item())
        elif isinstance(space, Box) and array.size == math.prod(space.shape):
            action = array.reshape(space.shape).astype(space.dtype)
        require(action is not None and action in space, f"an action of {space}", array.tolist())
        return action

    def recorded(self, actions: np.ndarray) -> np.ndarray:
        """Return actions [rows, ...] of the space in recorded form."""
        if isinstance(self.space, Discrete):
            return actions - self.space.start
        return actions.reshape(len(actions), -1)


_NUMBERS, _IMAGE = "numbers", "an image"


def _entries(space: Any) -> Mapping[Any, Any]:
    """Return the entries of a dictionary or a tuple by key; none for other spaces."""
    if isinstance(space, Dict):
        return space.spaces
    return dict(enumerate(space.spaces)) if isinstance(space, Tuple) else {}


def _kind(space: Any) -> str:
    """Say what a space holds: numbers, an image, or something else."""
    entries = _entries(space)
    if entries:
        return next((kind for kind in map(_kind, entries.values()) if kind != _NUMBERS), _NUMBERS)
    if not isinstance(space, Box | Discrete | MultiBinary | MultiDiscrete):
        return type(space).__name__.removesuffix("Space").lower()
    axes = len(space.shape or ())
    return _IMAGE if axes > 2 or (axes == 2 and space.dtype == np.uint8) else _NUMBERS


def _observed(observation: Any) -> np.ndarray:
    """Copy an observation: environments may reuse their arrays."""
    try:
        array = np.array(observation)
    except ValueError:  # The parts have several shapes.
        array = np.array(None)
    kind = type(observation).__name__
    require(array.dtype.kind in "iubf", "observations in one array of numbers", kind)
    return array
