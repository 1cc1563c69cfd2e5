"""Record transitions: let a policy act in an environment, or read a data set of Minari.

Environments are those of Gymnasium (single or vectorised), of dm_env, and those in JAX.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from jax import Array

from rlreps.envs.core import Environment
from rlreps.errors import InputError, require, require_positive
from rlreps.files import DAMAGED
from rlreps.numerics import seed_key

Policy: TypeAlias = Callable[[Any, np.random.Generator], Any]
"""(observation, generator) → action as the environment takes it: an integer, or floats of a box."""

JaxPolicy: TypeAlias = Callable[[Array, Array], Array]
"""(key, observation) → action [] (int32), for environments in JAX."""

COLUMNS = ("observation", "action", "next_observation", "terminated", "truncated")
"""Fields of ``Transitions`` with one entry per row."""


def record(
    environment: Any, steps: int, policy: Policy | JaxPolicy | None, seed: int, copies: int
) -> dict[str, Any]:
    """Let a policy act in an environment; return the fields of ``Transitions``.

    Arguments are as for ``Transitions.collect``.
    """
    if hasattr(environment, "action_spec"):
        environment = _OfDmEnv(environment)
    if not hasattr(environment, "action_space"):
        if isinstance(environment, Environment):
            require_positive("copies", copies)
            return _record_jax(environment, steps, policy, seed, copies)
        raise InputError(
            "expected an environment of Gymnasium, dm_env or rlreps.envs, got "
            f"{type(environment).__name__}"
        )
    several = hasattr(environment, "num_envs")
    prefix = "single_" if several else ""
    actions = _actions_of_space(getattr(environment, f"{prefix}action_space"))
    num_states = _states_of_space(getattr(environment, f"{prefix}observation_space"))
    generator = np.random.default_rng(seed)
    if policy is None:
        actions.require_drawn()

    def act(observation: np.ndarray) -> tuple[Any, Any]:
        if policy is None:
            return actions.checked(actions.draw(generator))
        return actions.checked(policy(observation, generator))  # type: ignore[arg-type]

    rows = (_rows_of_copies if several else _rows)(environment, steps, int(seed), act)
    found = [np.asarray(column) for column in zip(*rows, strict=True)]
    columns = dict(zip(COLUMNS, found, strict=True))
    return {**columns, "num_states": num_states, **actions.description}


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


def read_minari(dataset: Any) -> dict[str, Any]:
    """Read a data set of Minari, or one by its id; return the fields of ``Transitions``."""
    if isinstance(dataset, str):
        dataset = _minari_dataset(dataset)
    known = all(hasattr(dataset, name) for name in ("iterate_episodes", "action_space"))
    require(known, "a MinariDataset or the id of one", type(dataset).__name__)
    actions = _actions_of_space(dataset.action_space)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for episode in dataset.iterate_episodes():
        observation = episode.observations
        single = isinstance(observation, np.ndarray)
        kind = type(observation).__name__
        require(single, "observations in one array of numbers an episode", kind)
        terminated, truncated = np.array(episode.terminations), np.array(episode.truncations)
        truncated[-1:] |= ~terminated[-1:]
        action = actions.recorded(np.asarray(episode.actions))
        columns = (observation[:-1], action, observation[1:], terminated, truncated)
        for name, column in zip(COLUMNS, columns, strict=True):
            parts[name].append(column)
    require(bool(parts["action"]), "a data set with episodes", "none")
    return {
        **{name: np.concatenate(found) for name, found in parts.items()},
        "num_states": _states_of_space(dataset.observation_space),
        **actions.description,
    }


@dataclasses.dataclass(frozen=True)
class _DiscreteActions:
    """Integers from ``first`` on, recorded from 0."""

    count: int
    first: int = 0

    @property
    def description(self) -> dict[str, Any]:
        """Return the fields of ``Transitions`` that describe the actions."""
        return {"num_actions": self.count}

    def require_drawn(self) -> None:
        """Raise an ``InputError`` unless actions can be drawn uniformly."""

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw an action uniformly, as the environment takes it."""
        return int(generator.integers(self.count)) + self.first

    def recorded(self, actions: np.ndarray) -> np.ndarray:
        """Return actions [rows, ...] of the space in recorded form."""
        return actions - self.first

    def checked(self, chosen: Any) -> tuple[Any, Any]:
        """Return a chosen action in recorded form and as the environment takes it."""
        chosen = np.asarray(chosen)
        single = chosen.size == 1 and chosen.dtype.kind in "iu"
        require(single, "a policy that gives an integer", chosen.tolist())
        action = int(chosen.item()) - self.first
        require(0 <= action < self.count, f"actions in [0, {self.count})", action)
        return action, action + self.first


@dataclasses.dataclass(frozen=True, eq=False)
class _BoxActions:
    """Floats between bounds, recorded with their axes flattened."""

    low: np.ndarray
    high: np.ndarray

    @property
    def description(self) -> dict[str, Any]:
        return {"action_low": self.low.ravel(), "action_high": self.high.ravel()}

    def require_drawn(self) -> None:
        finite = bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())
        got = f"{self.low.tolist()} to {self.high.tolist()}"
        require(finite, "finite bounds to draw actions between, or a policy", got)

    def draw(self, generator: np.random.Generator) -> Any:
        return generator.uniform(self.low, self.high)

    def recorded(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1)

    def checked(self, chosen: Any) -> tuple[Any, Any]:
        chosen = np.asarray(chosen)
        fits = chosen.size == self.low.size and chosen.dtype.kind in "iuf"
        require(fits, f"a policy that gives {self.low.size} numbers", chosen.tolist())
        action = chosen.reshape(self.low.shape).astype(self.low.dtype)
        if not bool(((self.low <= action) & (action <= self.high)).all()):
            box = f"actions between {self.low.tolist()} and {self.high.tolist()}"
            raise InputError(f"expected {box}, got {action.tolist()}")
        # A copy, since the environment may write into its own.
        return action.flatten(), action


_Actions: TypeAlias = _DiscreteActions | _BoxActions

_Act: TypeAlias = Callable[[np.ndarray], tuple[Any, Any]]
"""Observation → the action in recorded form, and as the environment takes it."""

_Row: TypeAlias = tuple[Any, Any, Any, bool, bool]
"""Observation, action, next observation, terminated, truncated."""


def _rows(environment: Any, steps: int, seed: int, act: _Act) -> list[_Row]:
    """Record the episodes of one environment in the order of time."""
    rows: list[_Row] = []
    observation = _observed(environment.reset(seed=seed)[0])
    while len(rows) < steps:
        action, taken = act(observation)
        following, _, terminated, truncated, _ = environment.step(taken)
        following = _observed(following)
        rows.append((observation, action, following, bool(terminated), bool(truncated)))
        observation = following
        if terminated or truncated:
            # Seed only once: seeding again would make every episode the same.
            observation = _observed(environment.reset()[0])
    return rows


def _rows_of_copies(environment: Any, steps: int, seed: int, act: _Act) -> list[_Row]:
    """Record the copies of a vector environment one after another, each cut at its end."""
    mode = environment.metadata.get("autoreset_mode")
    next_step = mode == AutoresetMode.NEXT_STEP
    require(next_step, "a vector environment with next-step autoreset", mode)
    copies: list[list[_Row]] = [[] for _ in range(environment.num_envs)]
    starts = np.zeros(len(copies), np.bool_)
    observations = _observed(environment.reset(seed=seed)[0])
    while sum(map(len, copies)) < steps:
        chosen = [act(observation) for observation in observations]
        taken = np.stack([given for _, given in chosen])
        following, _, terminated, truncated, _ = environment.step(taken)
        following = _observed(following)
        # After the end of an episode, a step only starts the next one.
        for i in np.flatnonzero(~starts):
            flags = bool(terminated[i]), bool(truncated[i])
            copies[i].append((observations[i], chosen[i][0], following[i], *flags))
        starts, observations = terminated | truncated, following
    for rows in copies:
        rows[-1] = (*rows[-1][:4], True)
    return [row for rows in copies for row in rows]


class _OfDmEnv:
    """An environment of dm_env with the part of Gymnasium's interface that recording needs."""

    def __init__(self, environment: Any) -> None:
        self._environment, spec = environment, environment.action_spec()
        if hasattr(spec, "num_values"):
            self.action_space: Any = Discrete(int(spec.num_values))
        else:
            require(hasattr(spec, "minimum"), "discrete actions or a box of floats", str(spec))
            bounds = (np.asarray(bound, spec.dtype) for bound in (spec.minimum, spec.maximum))
            low, high = (np.broadcast_to(bound, spec.shape) for bound in bounds)
            self.action_space = Box(low, high, dtype=spec.dtype)
        states = getattr(environment.observation_spec(), "num_values", None)
        self.observation_space = None if states is None else Discrete(int(states))

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self._environment.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = self._environment.step(action)
        terminal = bool(taken.last()) and not taken.discount
        return taken.observation, taken.reward, terminal, bool(taken.last()) and not terminal, {}


def _actions_of_space(space: Any) -> _Actions:
    """Describe an action space of Gymnasium."""
    if isinstance(space, Discrete):
        return _DiscreteActions(int(space.n), int(space.start))
    box = isinstance(space, Box) and space.dtype is not None and space.dtype.kind == "f"
    require(box, "discrete actions or a box of floats", str(space))
    return _BoxActions(space.low, space.high)


def _states_of_space(space: Any) -> int | None:
    """Return the number of indices of a discrete observation space; None for other spaces."""
    return int(space.start) + int(space.n) if isinstance(space, Discrete) else None


def _minari_dataset(name: str) -> Any:
    """Open a data set of Minari on this machine by its id."""
    try:
        minari = importlib.import_module("minari")
    except ImportError as error:
        raise InputError(
            'expected the package minari, got none: pip install "rlreps[minari]"'
        ) from error
    try:
        return minari.load_dataset(name)
    except FileNotFoundError as error:
        raise InputError(
            f"expected a data set of Minari on this machine, got {name!r}: minari download {name}"
        ) from error
    except (ImportError, *DAMAGED) as error:
        said = " ".join(str(error).split())
        raise InputError(f"expected a data set of Minari, got {name!r}: {said}") from error


def _observed(observation: Any) -> np.ndarray:
    """Copy an observation: environments may write into their own."""
    try:
        array = np.array(observation)
    except ValueError:  # The parts have several shapes.
        array = np.array(None)
    kind = type(observation).__name__
    require(array.dtype.kind in "iubf", "observations in one array of numbers", kind)
    return array
