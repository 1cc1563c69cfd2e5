"""Record transitions: let a policy act in an environment, or read a data set of Minari.

Environments are single environments of Gymnasium or dm_env, and environments in JAX.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax import Array

from rlreps.envs.core import Environment
from rlreps.errors import InputError, own_code, require, require_memory, require_positive
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
    # Wrappers of Gymnasium's environments may have an attribute of this name.
    if hasattr(environment, "action_spec") and not hasattr(environment, "action_space"):
        environment = _OfDmEnv(environment)
    if not hasattr(environment, "action_space"):
        if isinstance(environment, Environment):
            require_positive("copies", copies)
            return _record_jax(environment, steps, policy, seed, copies)
        raise InputError(
            "expected an environment of Gymnasium, dm_env or rlreps.envs, got "
            f"{type(environment).__name__}"
        )
    require(not hasattr(environment, "num_envs"), "one environment", environment)
    actions, num_states = _Actions(environment.action_space), _states_of(environment)
    generator, rows = np.random.default_rng(seed), []
    if policy is None:
        actions.require_bounded()
    with own_code("an environment and a policy that take steps"):
        observation = _observed(environment.reset(seed=int(seed))[0])
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
            following = _observed(following)
            shape, expected = following.shape, observation.shape
            require(shape == expected, f"observations of one shape, {expected}", shape)
            rows.append((observation, recorded, following, bool(terminated), bool(truncated)))
            # Seed only once: seeding again would make every episode the same.
            over = terminated or truncated
            observation = _observed(environment.reset()[0]) if over else following
    columns = [np.asarray(column) for column in zip(*rows, strict=True)]
    return {
        **dict(zip(COLUMNS, columns, strict=True)),
        "num_states": num_states,
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


def read_minari(dataset: Any) -> dict[str, Any]:
    """Read a data set of Minari; return the fields of ``Transitions``."""
    known = all(hasattr(dataset, name) for name in ("iterate_episodes", "action_space"))
    require(known, "a MinariDataset (minari.load_dataset)", type(dataset).__name__)
    actions = _Actions(dataset.action_space)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for episode in dataset.iterate_episodes():
        observation = episode.observations
        single = isinstance(observation, np.ndarray)
        kind = type(observation).__name__
        require(single, "one array of numbers as the observations of each episode", kind)
        terminated, truncated = np.array(episode.terminations), np.array(episode.truncations)
        truncated[-1:] |= ~terminated[-1:]
        action = actions.recorded(np.asarray(episode.actions))
        columns = (observation[:-1], action, observation[1:], terminated, truncated)
        for name, column in zip(COLUMNS, columns, strict=True):
            parts[name].append(column)
    require(bool(parts["action"]), "a data set with episodes", "none")
    return {
        **{name: np.concatenate(found) for name, found in parts.items()},
        "num_states": _states_of(dataset),
        **actions.fields,
    }


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
        self.observation_space: Any = None if states is None else Discrete(int(states))

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self._taken(self._environment.reset()).observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = self._taken(self._environment.step(action))
        terminal = bool(taken.last()) and not taken.discount
        return taken.observation, taken.reward, terminal, bool(taken.last()) and not terminal, {}

    def _taken(self, step: Any) -> Any:
        require(hasattr(step, "last"), "a dm_env.TimeStep from the environment", step)
        return step


def _states_of(source: Any) -> int | None:
    """Return the number of indices of a discrete observation space; None for other spaces."""
    space = source.observation_space
    return int(space.start) + int(space.n) if isinstance(space, Discrete) else None


def _observed(observation: Any) -> np.ndarray:
    """Copy an observation: environments may reuse their arrays."""
    try:
        array = np.array(observation)
    except ValueError:  # The parts have several shapes.
        array = np.array(None)
    kind = type(observation).__name__
    require(array.dtype.kind in "iubf", "observations in one array of numbers", kind)
    return array
