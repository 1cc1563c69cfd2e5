"""Transitions of a policy with discrete actions: the data that successor features are fitted to.

Rows are in the order of time. Row i + 1 goes on where row i led to, unless row i ended an episode:

- *terminated*: the state reached is terminal, nothing follows it;
- *truncated*: the record was cut there (a time limit, or the end of the data); the policy would
  have gone on.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.envs.core import Environment
from rlreps.errors import InputError, require, require_choice, require_positive
from rlreps.numerics import seed_key

Policy: TypeAlias = Callable[[Any, np.random.Generator], int]
"""(Observation, generator) → action."""

JaxPolicy: TypeAlias = Callable[[Array, Array], Array]
"""(Key, observation) → action [] (int32), for environments in JAX."""

Terminals = Literal["terminated", "ends"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Transitions (s, a, s') of one policy, N rows in the order of time.

    Attributes:
        observation: s, [N, ...]: vectors, images, or indices of states [N] (integers).
        action: a, [N], integers in [0, num_actions).
        next_observation: s', [N, ...].
        terminated: Whether s' is terminal, [N].
        truncated: Whether the record was cut after s', [N]; the last row is cut if it is not
            terminal. None takes every row for cut whose successor starts elsewhere than in s'.
        num_actions: Number of actions; None takes one more than the largest.
        ends_known: Whether ends of episodes were given (filled in: leave it out).

    Raises:
        InputError: For shapes that do not fit, NaN, actions out of range, a single state, or rows
            within an episode that do not go on where the row before led to.
    """

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray | None = None
    num_actions: int | None = None
    ends_known: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        states = [_numbers(n, getattr(self, n)) for n in ("observation", "next_observation")]
        shape = states[0].shape
        require(shape[:1] >= (2,), "observations of shape [rows, ...], at least two rows", shape)
        require(states[1].shape == shape, f"next observations of shape {shape}", states[1].shape)
        kinds = {state.dtype.kind in "iub" for state in states}
        require(len(kinds) == 1, "observations of one kind", [s.dtype.name for s in states])
        action = np.asarray(self.action)
        require(action.shape == shape[:1], f"actions of shape {shape[:1]}", action.shape)
        require(action.dtype.kind in "iu", "actions that are integers", action.dtype.name)
        count = int(action.max()) + 1 if self.num_actions is None else self.num_actions
        least, most = int(action.min()), int(action.max())
        require(0 <= least <= most < count, f"actions in [0, {count})", (least, most))
        terminated = _flags("terminated", self.terminated, len(action))
        same = _rows_equal(states[1][:-1], states[0][1:])
        if self.truncated is None:
            truncated = np.append(~same, True) & ~terminated
        else:
            truncated = _flags("truncated", self.truncated, len(action)) & ~terminated
            jumps = np.flatnonzero(~same & ~(terminated | truncated)[:-1])
            if jumps.size:
                raise InputError(
                    "expected each row of an episode to start where the row before led to, got a "
                    f"jump after row {jumps[0]} of {len(action)}: mark it in truncated"
                )
            truncated[-1] = not terminated[-1]
        alike = _rows_equal(states[0], states[0][:1]) & _rows_equal(states[1], states[0][:1])
        require(not alike.all(), "at least two different states", 1)
        filled = {
            "observation": states[0],
            "next_observation": states[1],
            "action": action.astype(np.int32),
            "terminated": terminated,
            "truncated": truncated,
            "num_actions": count,
            "ends_known": self.truncated is not None or bool(terminated.any()),
        }
        for name, value in filled.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.action)

    @property
    def ends(self) -> np.ndarray:
        """Tell whether a row is the last of its episode, [N]."""
        ends: np.ndarray = self.terminated | self.truncated
        return ends

    @property
    def steps_left(self) -> np.ndarray:
        """Number of rows from each one to the end of its episode, itself included, [N]."""
        lasts = np.flatnonzero(self.ends)
        rows = np.arange(len(self))
        return lasts[np.searchsorted(lasts, rows)] - rows + 1

    @property
    def reaches_terminal(self) -> np.ndarray:
        """Tell whether the episode of a row terminates, [N]."""
        lasts = np.flatnonzero(self.ends)
        reached: np.ndarray = self.terminated[lasts[np.searchsorted(lasts, np.arange(len(self)))]]
        return reached

    def require_ends(self) -> None:
        """Raise an ``InputError`` unless ends of episodes were given."""
        require(
            self.ends_known,
            "ends of episodes (terminated, truncated or an episode index) for sums along episodes",
            "none",
        )

    @classmethod
    def from_dictionary(
        cls,
        data: Mapping[str, Any],
        *,
        terminals: Terminals = "terminated",
        num_actions: int | None = None,
    ) -> "Transitions":
        """Read arrays by the names that Minari, D4RL and OGBench give them, or by ours.

        Rows are in the order of time. Without ``next_observations`` they are the observations of
        the following rows. A last observation more than actions, as in an episode of Minari, ends
        the record; where there is none, the last row of every episode leads nowhere known and is
        left out, so that even a terminal state behind it is lost and its episode counts as cut.

        Args:
            data: ``observations`` and ``actions``; ``next_observations`` if known; ends as
                ``terminals`` (or ``terminations``, ``terminated``) and ``timeouts`` (or
                ``truncations``, ``truncated``), or as an index of episodes ``episode``; ``masks``
                (OGBench: 0 behind a terminal state). Other entries are ignored.
            terminals: Whether ``terminals`` marks terminal states or (OGBench, whose ``masks``
                then mark those) any end of a trajectory.
            num_actions: As of the class.

        Raises:
            InputError: If entries are missing (one that tells ends has to be there, of zeros where
                nothing ends), or as the class.
        """
        require_choice("terminals", terminals, get_args(Terminals))
        observation = np.asarray(_entry(data, "observations", "observation"))
        action = np.asarray(_entry(data, "actions", "action"))
        require(action.ndim >= 1, "actions of shape [rows]", action.shape)
        require(observation.ndim >= 1, "observations of shape [rows, ...]", observation.shape)
        rows = len(action)
        terminal = _entry(data, "terminals", "terminations", "terminated", optional=True)
        ended = _entry(data, "timeouts", "truncations", "truncated", optional=True)
        masks = data.get("masks")
        if terminal is None and ended is None and masks is None and "episode" not in data:
            raise InputError(
                "expected an entry that tells ends (terminals, timeouts, masks or episode), got "
                f"{', '.join(sorted(data))}"
            )
        ends = None if ended is None else _flags("timeouts", ended, rows)
        terminated = np.zeros(rows, np.bool_)
        if terminal is not None:
            terminated = _flags("terminals", terminal, rows)
        if masks is not None or terminals == "ends":
            ends = terminated if ends is None else ends | terminated
            terminated = np.zeros(rows, np.bool_)
            if masks is not None:
                terminated = ~_flags("masks", masks, rows)
        if "episode" in data:
            index = np.asarray(data["episode"])
            require(index.shape == (rows,), f"episode of shape {(rows,)}", index.shape)
            changes = np.append(index[1:] != index[:-1], True)
            ends = changes if ends is None else ends | changes
        following = _entry(data, "next_observations", "next_observation", optional=True)
        kept = np.ones(rows, np.bool_)
        if following is None and len(observation) == rows + 1:
            observation, following = observation[:-1], observation[1:]
        elif following is None:
            require(
                len(observation) == rows, f"{rows} or {rows + 1} observations", len(observation)
            )
            known = terminated if ends is None else terminated | ends
            cut = np.append(known[1:], False)
            kept = ~np.append(known[:-1], True)
            following = np.concatenate([observation[1:], observation[-1:]])
            terminated = np.zeros(rows, np.bool_)
            ends = None if ends is None and not known.any() else cut
        following = np.asarray(following)
        require(following.ndim >= 1, "next observations of shape [rows, ...]", following.shape)
        require(len(observation) == rows, f"{rows} observations", len(observation))
        require(len(following) == rows, f"{rows} next observations", len(following))
        return cls(
            observation=observation[kept],
            action=action[kept],
            next_observation=following[kept],
            terminated=terminated[kept],
            truncated=None if ends is None else ends[kept],
            num_actions=num_actions,
        )

    @classmethod
    def concatenate(cls, parts: Sequence["Transitions"]) -> "Transitions":
        """Join records of the same environment, such as one for each episode, in this order."""
        require(len(parts) >= 1, "at least one record", 0)
        names = ("observation", "action", "next_observation", "terminated", "truncated")
        shapes = {part.observation.shape[1:] for part in parts}
        require(len(shapes) == 1, "observations of one shape in all records", sorted(shapes))
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(**arrays, num_actions=max(part.num_actions or 0 for part in parts))

    @classmethod
    def collect(
        cls,
        environment: Any,
        *,
        steps: int,
        policy: Policy | JaxPolicy | None = None,
        seed: int = 0,
        copies: int = 64,
    ) -> "Transitions":
        """Let a policy act in an environment.

        Args:
            environment: A Gymnasium environment, one of dm_env, or one in JAX such as
                ``PuddleWorld``, with discrete actions numbered from 0 (from the space's ``start``).
            steps: Rows to collect: at least so many where they do not divide by the copies.
            policy: For Gymnasium and dm_env (observation, NumPy generator) → action, for JAX (key,
                observation) → action. None is uniformly random.
            seed: Decides everything random.
            copies: Copies of an environment in JAX that act together.

        Raises:
            InputError: For other environments, or actions or observations that are not of the kind.
        """
        require_positive("steps", steps)
        if hasattr(environment, "action_space") and hasattr(environment, "observation_space"):
            episodes: _Episodes = _GymnasiumEpisodes(environment, seed)
        elif hasattr(environment, "action_spec"):
            episodes = _DmEnvEpisodes(environment)
        elif isinstance(environment, Environment):
            require_positive("copies", copies)
            return cls._collect_jax(environment, steps, policy, seed, copies)
        else:
            raise InputError(
                "expected an environment of Gymnasium, dm_env or rlreps.envs, got "
                f"{type(environment).__name__}"
            )
        generator = np.random.default_rng(seed)
        rows: list[tuple[Any, ...]] = []
        observation = episodes.start()
        while len(rows) < steps:
            if policy is None:
                action = int(generator.integers(episodes.num_actions))
            else:
                chosen = np.asarray(policy(observation, generator))  # type: ignore[arg-type]
                single = chosen.size == 1 and chosen.dtype.kind in "iu"
                require(single, "a policy that gives an integer", chosen.tolist())
                action = int(chosen.item()) - episodes.first_action
            require(
                0 <= action < episodes.num_actions,
                f"actions in [0, {episodes.num_actions})",
                action,
            )
            following, terminated, truncated = episodes.step(action + episodes.first_action)
            rows.append((observation, action, following, terminated, truncated))
            observation = episodes.start() if terminated or truncated else following
        columns = [np.asarray(column) for column in zip(*rows, strict=True)]
        names = ("observation", "action", "next_observation", "terminated", "truncated")
        arrays = dict(zip(names, columns, strict=True))
        return cls(**arrays, num_actions=episodes.num_actions)

    @classmethod
    def _collect_jax(
        cls, environment: Environment, steps: int, policy: Any, seed: int, copies: int
    ) -> "Transitions":
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
                following = jax.tree.map(
                    lambda new, old: jnp.where(over, new, old), fresh, taken.state
                )
                flags = (taken.terminated, taken.truncated)
                return following, (observation, action, taken.observation, *flags)

            return jax.vmap(one)(states, jax.random.split(key, copies))

        each = -(-steps // copies)
        starts = jax.vmap(environment.reset)(jax.random.split(seed_key(seed, 0), copies))
        keys = jax.random.split(seed_key(seed, 1), each)
        _, columns = jax.jit(lambda states, keys: jax.lax.scan(step, states, keys))(starts, keys)
        # [time, copy] → one copy after another.
        flat = [np.moveaxis(np.asarray(c), 0, 1).reshape(-1, *c.shape[2:]) for c in columns]
        observation, action, following, terminated, truncated = flat
        truncated = truncated | (np.arange(len(action)) % each == each - 1)
        return cls(
            observation=observation,
            action=action,
            next_observation=following,
            terminated=terminated,
            truncated=truncated,
            num_actions=environment.num_actions,
        )


class _Episodes(abc.ABC):
    """Episodes of an environment on the host, step by step."""

    num_actions: int
    first_action: int = 0

    @abc.abstractmethod
    def start(self) -> Any:
        """Start an episode and return its first observation."""

    @abc.abstractmethod
    def step(self, action: int) -> tuple[Any, bool, bool]:
        """Return the next observation, whether it is terminal, and whether the record is cut."""


class _GymnasiumEpisodes(_Episodes):
    def __init__(self, environment: Any, seed: int) -> None:
        self._environment, self._seed = environment, int(seed)
        # A vector environment has spaces too, of batches.
        space = environment.action_space
        single = not hasattr(environment, "num_envs") and hasattr(space, "n")
        require(single, "a single environment with discrete actions", str(space))
        self.num_actions, self.first_action = int(space.n), int(getattr(space, "start", 0))
        self._fresh = True

    def start(self) -> Any:
        # Seeded once: seeded again, every episode would be the same.
        observation, _ = self._environment.reset(seed=self._seed if self._fresh else None)
        self._fresh = False
        return np.array(observation)

    def step(self, action: int) -> tuple[Any, bool, bool]:
        observation, _, terminated, truncated, _ = self._environment.step(action)
        return np.array(observation), bool(terminated), bool(truncated)


class _DmEnvEpisodes(_Episodes):
    def __init__(self, environment: Any) -> None:
        self._environment, spec = environment, environment.action_spec()
        require(hasattr(spec, "num_values"), "an environment with discrete actions", str(spec))
        self.num_actions = int(spec.num_values)

    def start(self) -> Any:
        return np.array(self._environment.reset().observation)

    def step(self, action: int) -> tuple[Any, bool, bool]:
        taken = self._environment.step(action)
        terminal = bool(taken.last()) and not taken.discount
        return np.array(taken.observation), terminal, bool(taken.last()) and not terminal


def as_transitions(data: Any) -> Transitions:
    """Take transitions, a dictionary of arrays, or (s, a, s', terminated[, truncated]) as they are.

    Raises:
        InputError: As ``Transitions``, or for anything else.
    """
    if isinstance(data, Transitions):
        return data
    if isinstance(data, Mapping):
        return Transitions.from_dictionary(data)
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data) in (4, 5):
        names = ("observation", "action", "next_observation", "terminated", "truncated")
        return Transitions(**dict(zip(names, data, strict=False)))
    raise InputError(
        "expected Transitions, a dictionary of arrays, or arrays (observation, action, "
        f"next_observation, terminated), got {type(data).__name__}; Transitions.collect makes them "
        "of an environment"
    )


def _entry(data: Mapping[str, Any], *names: str, optional: bool = False) -> Any:
    for name in names:
        if name in data:
            return data[name]
    if optional:
        return None
    raise InputError(f"expected an entry {names[0]!r}, got {', '.join(sorted(data)) or 'none'}")


def _numbers(name: str, values: Any) -> np.ndarray:
    """Check an array of numbers."""
    array = np.asarray(values)
    require(array.dtype.kind in "iubf", f"{name} of numbers in one array", array.dtype.name)
    if array.dtype.kind == "f":
        require(bool(np.isfinite(array).all()), f"finite numbers in {name}", "NaN or infinity")
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        single = f"numbers in {name} that single precision holds"
        require(bool(np.isfinite(array).all()), single, "larger ones")
    return array


def _flags(name: str, values: Any, rows: int) -> np.ndarray:
    array = np.asarray(values)
    require(array.shape == (rows,), f"{name} of shape {(rows,)}", array.shape)
    known = array.dtype.kind in "iubf" and bool(np.isin(array, (0, 1)).all())
    require(known, f"{name} of true and false", array.dtype.name)
    return array.astype(np.bool_)


def _rows_equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare rows of arrays [n, ...], [n]."""
    equal: np.ndarray = (left == right).reshape(len(left), -1).all(axis=1)
    return equal
