"""Transitions of a policy: the data that successor features are fitted to.

Actions are indices, or vectors of floats from a box.

Rows are in the order of time. Row i + 1 goes on where row i led to, unless row i ended an episode:

- *terminated*: the state reached is terminal, nothing follows it;
- *truncated*: the record was cut there (a time limit, or the end of the data); the policy would
  have gone on.
"""

import abc
import copy
import dataclasses
import importlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.envs.core import Environment
from rlreps.errors import InputError, require, require_choice, require_interval, require_positive
from rlreps.files import DAMAGED, write_atomically
from rlreps.numerics import seed_key

Policy: TypeAlias = Callable[[Any, np.random.Generator], Any]
"""(Observation, generator) → action as the environment takes it: an integer, or floats of a box."""

JaxPolicy: TypeAlias = Callable[[Array, Array], Array]
"""(Key, observation) → action [] (int32), for environments in JAX."""

Terminals = Literal["terminated", "ends"]

MOST_ACTIONS = 4096
"""Largest number of discrete actions: a fit holds a block of numbers for each of them."""

MOST_STATES = 2**31
"""Largest number of indices of states."""

_FEWEST_EPISODES = 10
"""A split takes whole episodes from here on; fewer episodes are cut into blocks."""

_COLUMNS = ("observation", "action", "next_observation", "terminated", "truncated")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Transitions (s, a, s') of one policy, N rows in the order of time.

    Attributes:
        observation: s, [N, ...]: vectors, images, or indices of states [N] (integers).
        action: a, integers [N] in [0, num_actions), or floats [N, k] of a box; floats [N] are read
            as [N, 1].
        next_observation: s', [N, ...].
        terminated: Whether s' is terminal, [N].
        truncated: Whether the record was cut after s', [N]; the last row is cut if it is not
            terminal. None takes every row for cut whose successor starts elsewhere than in s'.
        num_actions: Number of actions, at most ``MOST_ACTIONS``; None takes one more than the
            largest of integers, and stays None for actions of a box.
        num_states: Number of indices of states, at most ``MOST_STATES``; None takes one more than
            the largest, and stays None for other observations.
        action_low: Lower bounds of the box of actions, [k] (float32). None and infinite entries
            take the range of the data. Stays None for integers.
        action_high: Upper bounds, likewise.
        ends_known: Whether ends of episodes were given (filled in: leave it out).

    Raises:
        InputError: For shapes that do not fit, NaN, actions or states out of range, a single state,
            or rows within an episode that do not go on where the row before led to.
    """

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray | None = None
    num_actions: int | None = None
    num_states: int | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    ends_known: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        states = [_numbers(n, getattr(self, n)) for n in ("observation", "next_observation")]
        shape = states[0].shape
        require(shape[:1] >= (2,), "observations of shape [rows, ...], at least two rows", shape)
        require(states[1].shape == shape, f"next observations of shape {shape}", states[1].shape)
        kinds = {state.dtype.kind in "iub" for state in states}
        require(len(kinds) == 1, "observations of one kind", [s.dtype.name for s in states])
        num_states = self._states_counted(states)
        if num_states is not None:
            # Neither flags nor bytes: those would select rows, and hold no state above 255.
            states = [state.astype(np.promote_types(state.dtype, np.int32)) for state in states]
        action, num_actions, low, high = self._actions_checked(len(states[0]))
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
            "action": action,
            "terminated": terminated,
            "truncated": truncated,
            "num_actions": num_actions,
            "num_states": num_states,
            "action_low": low,
            "action_high": high,
            "ends_known": self.truncated is not None or bool(terminated.any()),
        }
        for name, value in filled.items():
            object.__setattr__(self, name, value)

    def _states_counted(self, states: list[np.ndarray]) -> int | None:
        """Return the number of indices of states; None for other observations."""
        given = self.num_states
        if states[0].ndim > 1 or states[0].dtype.kind == "f":
            require(given is None, "num_states for indices of states (integers) alone", given)
            return None
        least = min(int(array.min()) for array in states)
        most = max(int(array.max()) for array in states)
        require(least >= 0, "indices of states >= 0", least)
        count = most + 1 if given is None else int(given)
        require(count <= MOST_STATES, f"at most {MOST_STATES:,} indices of states", count)
        require(most < count, f"indices of states in [0, {count})", most)
        return count

    def _actions_checked(
        self, rows: int
    ) -> tuple[np.ndarray, int | None, np.ndarray | None, np.ndarray | None]:
        """Return the actions, their number, and the bounds of their box."""
        action, bounds = np.asarray(self.action), (self.action_low, self.action_high)
        if action.dtype.kind != "f" or self.num_actions is not None:
            require(action.dtype.kind in "iu", "actions that are integers", action.dtype.name)
            require(action.shape == (rows,), f"actions of shape {(rows,)}", action.shape)
            given = [bound for bound in bounds if bound is not None]
            require(not given, "no bounds of a box for actions that are integers", len(given))
            least, most = int(action.min()), int(action.max())
            count = most + 1 if self.num_actions is None else int(self.num_actions)
            require(count <= MOST_ACTIONS, f"at most {MOST_ACTIONS:,} actions", count)
            require(0 <= least <= most < count, f"actions in [0, {count})", (least, most))
            return action.astype(np.int32), count, None, None
        action = _numbers("action", action)
        fits = action.shape[:1] == (rows,) and action.ndim <= 2 and action.size > 0
        require(fits, f"actions of shape {(rows,)} or ({rows}, numbers)", action.shape)
        action = action.reshape(rows, -1)
        low = _bounds("action_low", bounds[0], action.min(axis=0))
        high = _bounds("action_high", bounds[1], action.max(axis=0))
        ordered = bool((low <= high).all())
        require(ordered, "action_low <= action_high", (low.tolist(), high.tolist()))
        for row, i in np.argwhere((action < low) | (action > high))[:1]:
            raise InputError(
                f"expected actions in [{low[i]}, {high[i]}], got {action[row, i]} as number {i} of "
                f"row {row}; clip actions where the environment clips them"
            )
        return action, None, low, high

    def __len__(self) -> int:
        return len(self.action)

    @property
    def continuous(self) -> bool:
        """Tell whether actions are floats of a box."""
        return self.num_actions is None

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action: () for integers, (k,) for floats."""
        return self.action.shape[1:]

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
                (OGBench: 0 behind a terminal state); ``num_actions``, ``num_states``,
                ``action_low`` and ``action_high`` as of the class. Other entries are ignored.
            terminals: Whether ``terminals`` marks terminal states or (OGBench, whose ``masks``
                then mark those) any end of a trajectory.
            num_actions: As of the class; comes before an entry of this name.

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
        counts = {name: _count(name, data.get(name)) for name in ("num_actions", "num_states")}
        if num_actions is not None:
            counts["num_actions"] = num_actions
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
            action_low=data.get("action_low"),
            action_high=data.get("action_high"),
            **counts,
        )

    @classmethod
    def from_minari(cls, dataset: Any) -> "Transitions":
        """Read a data set of Minari, with the spaces that it names.

        Actions are recorded as by ``collect``: from 0 on, or floats of the box. The last row of an
        episode that does not terminate counts as truncated.

        Args:
            dataset: A ``MinariDataset``, or the id of one on this machine, which
                ``minari download`` puts there. The extra ``minari`` installs the package.

        Raises:
            InputError: If there is no such data set, it is empty, its observations are not arrays,
                or its actions are neither discrete nor a box of floats; or as the class.
        """
        if isinstance(dataset, str):
            dataset = _minari_dataset(dataset)
        known = all(hasattr(dataset, name) for name in ("iterate_episodes", "action_space"))
        require(known, "a MinariDataset or the id of one", type(dataset).__name__)
        actions = _actions_of_space(dataset.action_space)
        num_states = _states_of_space(dataset.observation_space)
        parts: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
        for episode in dataset.iterate_episodes():
            observation = episode.observations
            single = isinstance(observation, np.ndarray)
            kind = type(observation).__name__
            require(single, "observations in one array of numbers an episode", kind)
            terminated, truncated = np.array(episode.terminations), np.array(episode.truncations)
            truncated[-1:] |= ~terminated[-1:]
            action = actions.recorded(np.asarray(episode.actions))
            columns = (observation[:-1], action, observation[1:], terminated, truncated)
            for name, column in zip(_COLUMNS, columns, strict=True):
                parts[name].append(column)
        require(bool(parts["action"]), "a data set with episodes", "none")
        joined: dict[str, Any] = {name: np.concatenate(found) for name, found in parts.items()}
        return cls(**joined, num_states=num_states, **actions.description)

    @classmethod
    def concatenate(cls, parts: Sequence["Transitions"]) -> "Transitions":
        """Join records of the same environment, such as one for each episode, in this order.

        The result has the most actions and states, and the widest box, that a record has.
        """
        require(len(parts) >= 1, "at least one record", 0)
        shapes = {part.observation.shape[1:] for part in parts}
        require(len(shapes) == 1, "observations of one shape in all records", sorted(shapes))
        kinds = {part.num_states is None for part in parts}
        require(len(kinds) == 1, "observations of one kind in all records", "indices and floats")
        boxes = {part.action_shape for part in parts}
        require(len(boxes) == 1, "actions of one shape in all records", sorted(boxes))

        def widest(name: str, choose: Callable[..., Any]) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else choose(values, axis=0)

        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS},
            num_actions=widest("num_actions", np.max),
            num_states=widest("num_states", np.max),
            action_low=widest("action_low", np.min),
            action_high=widest("action_high", np.max),
        )

    def split(self, share: float, seed: int) -> tuple["Transitions", "Transitions"]:
        """Split into two records: the rest, and the rows of ``held_out``.

        Rows at which an episode is cut count as truncated. Rows keep their order.

        Args:
            share: Share of the rows in the second record, in (0, 1).
            seed: As of ``held_out``.

        Raises:
            InputError: As ``held_out``.
        """
        held_out = self.held_out(share, seed)
        parted = np.append(held_out[1:] != held_out[:-1], False) & ~self.ends
        return self._part(~held_out, parted), self._part(held_out, parted)

    def held_out(self, share: float, seed: int) -> np.ndarray:
        """Choose whole episodes with about a share of the rows, [N].

        Episodes with more than a tenth of all rows are cut into blocks.

        Args:
            share: In (0, 1).
            seed: Decides which episodes or blocks; the same seed gives the same choice.

        Raises:
            InputError: For a share out of range or fewer than four rows.
        """
        require_interval("share", share, "(0, 1)")
        rows = len(self)
        require(rows >= 4, "at least four rows to split", rows)
        most = max(2, round(rows * min(share, 1.0 - share, 1.0 / _FEWEST_EPISODES)))
        lasts, index = np.flatnonzero(self.ends), np.arange(rows)
        episode = np.searchsorted(lasts, index)
        sizes = np.diff(lasts, prepend=-1)[episode]
        place = index - lasts[episode] + sizes  # From 1 on.
        blocks = np.flatnonzero((sizes > most) & (place % most == 0))
        lasts = np.union1d(lasts, blocks)
        group = np.searchsorted(lasts, index)
        order = np.random.default_rng(seed).permutation(len(lasts))
        reached = np.cumsum(np.bincount(group)[order])[:-1]
        count = int(np.argmin(np.abs(reached - share * rows))) + 1
        chosen: np.ndarray = np.isin(group, order[:count])
        return chosen

    def _part(self, kept: np.ndarray, parted: np.ndarray) -> "Transitions":
        """Return some rows, which need no further check; ``parted`` ones are cut behind."""
        part = copy.copy(self)
        columns = {name: getattr(self, name) for name in _COLUMNS}
        for name, column in {**columns, "truncated": self.truncated | parted}.items():
            object.__setattr__(part, name, column[kept])
        return part

    def to_npz(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz file that ``from_dictionary`` and ``rlreps fit`` read, and return its path.

        The file appears whole or not at all.

        Raises:
            InputError: For a name that does not end in .npz.
        """
        require(Path(path).suffix == ".npz", "a name that ends in .npz", str(path))
        arrays: dict[str, Any] = {
            "observations": self.observation,
            "actions": self.action,
            "next_observations": self.next_observation,
            "terminals": self.terminated,
            # Ends that were not given are no more known when they are read back.
            "timeouts": self.truncated if self.ends_known else None,
            "num_actions": self.num_actions,
            "num_states": self.num_states,
            "action_low": self.action_low,
            "action_high": self.action_high,
        }
        content = io.BytesIO()
        np.savez(content, **{name: array for name, array in arrays.items() if array is not None})
        return write_atomically(path, content.getvalue())

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
            environment: A Gymnasium environment, single or (with next-step autoreset) a vector of
                copies, one of dm_env, or one in JAX such as ``PuddleWorld``. Actions are discrete,
                recorded from 0 on (less the space's ``start``), or floats of a box, whose axes are
                recorded as one. Of a discrete observation space all indices count as states.
            steps: Rows to collect: at least so many where they do not divide by the copies.
            policy: For Gymnasium and dm_env (observation, NumPy generator) → action, for JAX (key,
                observation) → action. None is uniformly random, in a box between its bounds.
            seed: Decides everything random.
            copies: Copies of an environment in JAX that act together.

        Raises:
            InputError: For other environments, or actions or observations that are not of the kind.
        """
        require_positive("steps", steps)
        spaces = ("action_space", "observation_space")
        of_gymnasium = all(hasattr(environment, name) for name in spaces)
        source: _Episodes | _Copies
        if of_gymnasium and hasattr(environment, "num_envs"):
            source = _Copies(environment, seed)
        elif of_gymnasium:
            source = _GymnasiumEpisodes(environment, seed)
        elif hasattr(environment, "action_spec"):
            source = _DmEnvEpisodes(environment)
        elif isinstance(environment, Environment):
            require_positive("copies", copies)
            return cls._collect_jax(environment, steps, policy, seed, copies)
        else:
            raise InputError(
                "expected an environment of Gymnasium, dm_env or rlreps.envs, got "
                f"{type(environment).__name__}"
            )
        actions, generator = source.actions, np.random.default_rng(seed)
        if policy is None:
            actions.require_drawn()

        def act(observation: np.ndarray) -> tuple[Any, Any]:
            if policy is None:
                return actions.checked(actions.draw(generator))
            return actions.checked(policy(observation, generator))  # type: ignore[arg-type]

        found = [np.asarray(column) for column in zip(*source.rows(steps, act), strict=True)]
        columns: dict[str, Any] = dict(zip(_COLUMNS, found, strict=True))
        return cls(**columns, num_states=source.num_states, **actions.description)

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


@dataclasses.dataclass(frozen=True)
class _DiscreteActions:
    """Integers from ``first`` on, recorded from 0 on."""

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
        """Return actions [rows, ...] of the space as they are recorded."""
        return actions - self.first

    def checked(self, chosen: Any) -> tuple[Any, Any]:
        """Return a chosen action as it is recorded and as the environment takes it."""
        chosen = np.asarray(chosen)
        single = chosen.size == 1 and chosen.dtype.kind in "iu"
        require(single, "a policy that gives an integer", chosen.tolist())
        action = int(chosen.item()) - self.first
        require(0 <= action < self.count, f"actions in [0, {self.count})", action)
        return action, action + self.first


@dataclasses.dataclass(frozen=True, eq=False)
class _BoxActions:
    """Floats between bounds, recorded with their axes as one."""

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
        # The environment may write into its own.
        return action.flatten(), action


_Actions: TypeAlias = _DiscreteActions | _BoxActions

_Act: TypeAlias = Callable[[np.ndarray], tuple[Any, Any]]
"""Observation → the action as it is recorded, and as the environment takes it."""

_Row: TypeAlias = tuple[Any, Any, Any, bool, bool]
"""Observation, action, next observation, terminated, truncated."""


class _Episodes(abc.ABC):
    """Episodes of one environment on the host, step by step."""

    actions: _Actions
    num_states: int | None

    @abc.abstractmethod
    def start(self) -> np.ndarray:
        """Start an episode and return its first observation."""

    @abc.abstractmethod
    def step(self, action: Any) -> tuple[np.ndarray, bool, bool]:
        """Return the next observation, whether it is terminal, and whether the record is cut."""

    def rows(self, steps: int, act: _Act) -> list[_Row]:
        """Return rows in the order of time."""
        rows: list[_Row] = []
        observation = self.start()
        while len(rows) < steps:
            action, taken = act(observation)
            following, terminated, truncated = self.step(taken)
            rows.append((observation, action, following, terminated, truncated))
            observation = self.start() if terminated or truncated else following
        return rows


class _GymnasiumEpisodes(_Episodes):
    def __init__(self, environment: Any, seed: int) -> None:
        self._environment, self._seed = environment, int(seed)
        self.actions = _actions_of_space(environment.action_space)
        self.num_states = _states_of_space(environment.observation_space)
        self._fresh = True

    def start(self) -> np.ndarray:
        # Seeded once: seeded again, every episode would be the same.
        observation, _ = self._environment.reset(seed=self._seed if self._fresh else None)
        self._fresh = False
        return _observed(observation)

    def step(self, action: Any) -> tuple[np.ndarray, bool, bool]:
        observation, _, terminated, truncated, _ = self._environment.step(action)
        return _observed(observation), bool(terminated), bool(truncated)


class _DmEnvEpisodes(_Episodes):
    def __init__(self, environment: Any) -> None:
        self._environment, spec = environment, environment.action_spec()
        if hasattr(spec, "num_values"):
            self.actions = _DiscreteActions(int(spec.num_values))
        else:
            box = hasattr(spec, "minimum") and np.dtype(spec.dtype).kind == "f"
            require(box, "discrete actions or a box of floats", str(spec))
            bounds = (np.asarray(bound, spec.dtype) for bound in (spec.minimum, spec.maximum))
            self.actions = _BoxActions(*(np.broadcast_to(bound, spec.shape) for bound in bounds))
        states = getattr(environment.observation_spec(), "num_values", None)
        self.num_states = None if states is None else int(states)

    def start(self) -> np.ndarray:
        return _observed(self._environment.reset().observation)

    def step(self, action: Any) -> tuple[np.ndarray, bool, bool]:
        taken = self._environment.step(action)
        terminal = bool(taken.last()) and not taken.discount
        return _observed(taken.observation), terminal, bool(taken.last()) and not terminal


class _Copies:
    """Copies of an environment in a vector environment of Gymnasium."""

    def __init__(self, environment: Any, seed: int) -> None:
        from gymnasium.vector import AutoresetMode

        mode = environment.metadata.get("autoreset_mode")
        next_step = mode == AutoresetMode.NEXT_STEP
        require(next_step, "a vector environment with next-step autoreset", mode)
        self._environment, self._seed = environment, int(seed)
        self.actions = _actions_of_space(environment.single_action_space)
        self.num_states = _states_of_space(environment.single_observation_space)

    def rows(self, steps: int, act: _Act) -> list[_Row]:
        """Return the rows of one copy after another, each cut at its end."""
        count = self._environment.num_envs
        copies: list[list[_Row]] = [[] for _ in range(count)]
        starts = np.zeros(count, np.bool_)
        observations = _observed(self._environment.reset(seed=self._seed)[0])
        while sum(map(len, copies)) < steps:
            chosen = [act(observation) for observation in observations]
            taken = np.stack([given for _, given in chosen])
            following, _, terminated, truncated, _ = self._environment.step(taken)
            following = _observed(following)
            # Behind the end of an episode a step only starts the next one.
            for i in np.flatnonzero(~starts):
                flags = bool(terminated[i]), bool(truncated[i])
                copies[i].append((observations[i], chosen[i][0], following[i], *flags))
            starts, observations = terminated | truncated, following
        for rows in copies:
            rows[-1] = (*rows[-1][:4], True)
        return [row for rows in copies for row in rows]


def _actions_of_space(space: Any) -> _Actions:
    """Describe an action space of Gymnasium."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return _DiscreteActions(int(space.n), int(space.start))
    box = isinstance(space, Box) and space.dtype is not None and space.dtype.kind == "f"
    require(box, "discrete actions or a box of floats", str(space))
    return _BoxActions(space.low, space.high)


def _states_of_space(space: Any) -> int | None:
    """Return the number of indices of a discrete observation space; None for other spaces."""
    from gymnasium.spaces import Discrete

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
    except ValueError:  # Parts of several shapes.
        array = np.array(None)
    kind = type(observation).__name__
    require(array.dtype.kind in "iubf", "observations in one array of numbers", kind)
    return array


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


def _count(name: str, value: Any) -> int | None:
    """Read a number of actions or states from a dictionary."""
    if value is None:
        return None
    array = np.asarray(value)
    single = array.shape == () and array.dtype.kind in "iu"
    require(single, f"{name} as one integer", f"{array.dtype.name}{array.shape}")
    return int(array)


def _bounds(name: str, given: Any, found: np.ndarray) -> np.ndarray:
    """Return bounds of a box, [k] (float32), with those of the data where none is given."""
    if given is None:
        return found
    array = np.asarray(given)
    fits = array.shape in ((), found.shape) and array.dtype.kind in "iuf"
    require(fits, f"{name} of shape {found.shape}", array.shape)
    require(not np.isnan(array.astype(np.float64)).any(), f"numbers in {name}", "NaN")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    return np.where(np.isfinite(array), array, found)


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
