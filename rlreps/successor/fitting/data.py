"""Transitions of a policy: the data that successor features are fitted to.

Actions are indices, or vectors of floats from a box.

Rows are in the order of time. Row i + 1 starts in the state that row i reached, unless row i ended
an episode:

- *terminated*: the state reached is terminal;
- *truncated*: the record stops there (a time limit, or the end of the data), although the policy
  would have continued.
"""

import copy
import dataclasses
import io
import numbers
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.config import checked
from rlreps.errors import (
    FitWarning,
    InputError,
    require,
    require_interval,
    require_positive,
)
from rlreps.files import write_atomically
from rlreps.numerics import bytes_of
from rlreps.successor.fitting.recording import (
    COLUMNS,
    JaxPolicy,
    Observe,
    Policy,
    read_minari,
    record,
)

MOST_ACTIONS = 4096
"""Largest number of discrete actions: a fit stores one block of numbers for each action."""

_FEWEST_EPISODES = 10
"""A split cuts an episode into blocks if it has more than 1 / _FEWEST_EPISODES of the rows."""

_AUTORESETS = 0.75
"""Rows that start in terminal states are resets if this share of the terminations has such a row.
The other terminations are the last rows of copies of an environment."""

_SPACING = 1e-5
"""Single precision serves while its spacing is at most this share of a coordinate's range."""

_ROUNDING = 0.01
"""Single precision may round actions by this share of their range. Beyond it they are refused."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Transitions (s, a, s') of one policy, N rows in the order of time.

    Rows in which a vector environment of Gymnasium starts an episode (next-step autoreset) are left
    out: each starts in the state in which the row before ended its episode. By default such rows
    are recognised if three quarters of the terminations have one, none of them terminates, and not
    all of them start where the record starts. After truncations alone they are not recognised,
    since a log that goes on after a cut looks the same.

    Attributes:
        observation: s, [N, ...]: vectors, images, or indices of states [N] (integers). Floats are
            stored in single precision, or in double precision if single precision would round the
            differences between observations (numbers at a large offset).
        action: a, integers [N] in [0, num_actions), or floats [N, k] of a box; floats [N] are read
            as [N, 1].
        next_observation: s', [N, ...].
        terminated: Whether s' is terminal, [N].
        truncated: Whether the record was cut after s', [N]. The last row always counts as cut
            unless it is terminal. With None, a row is cut if the next row's s differs from its s'.
        num_actions: Number of actions, at most ``MOST_ACTIONS``; None takes the largest integer
            action plus one, and stays None for actions of a box.
        num_states: Number of state indices; None takes the largest index plus one, and stays None
            if observations are not indices.
        action_low: Lower bounds of the box of actions, [k] (float32). None and infinite entries
            take the range of the data. Stays None for integer actions.
        action_high: Upper bounds of the box of actions, with the same defaults.
        autoreset: Whether to leave out rows in which a vector environment starts an episode: True
            after any end of an episode, False nowhere, None if they are recognised. False
            afterwards, since none are left.

    Raises:
        InputError: If shapes do not fit, entries are NaN, actions or states are out of range, all
            states are equal, or a row within an episode does not start where the row before ended.

    Warns:
        FitWarning: If actions are floats [N] that look like indices of discrete actions, or rows
            are left out.
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
    autoreset: bool | None = None

    def __post_init__(self) -> None:
        names = ("observation", "next_observation")
        states = [_numbers(name, getattr(self, name)) for name in names]
        shape = states[0].shape
        require(shape[:1] >= (2,), "observations of shape [rows, ...], at least two rows", shape)
        require(states[1].shape == shape, f"next observations of shape {shape}", states[1].shape)
        kinds = {state.dtype.kind in "iub" for state in states}
        require(len(kinds) == 1, "observations of one kind", [s.dtype.name for s in states])
        states = _narrowed(states)
        num_states = self._states_counted(states)
        if num_states is not None:
            # Booleans would select rows when used as an index, and bytes hold no state above 255.
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
                    "expected each row of an episode to start where the row before ended, got a "
                    f"jump after row {jumps[0]} of {len(action)}: mark it in truncated"
                )
            truncated[-1] = not terminated[-1]
        resets = _autoresets(self.autoreset, states[0], same, terminated, truncated)
        if resets.any():
            if self.autoreset is None:
                warnings.warn(
                    f"{resets.sum():,} of {len(resets):,} rows start in the state in which the row "
                    "before ended its episode, as resets in Gymnasium's vector environments do "
                    "(next-step autoreset): they are left out; autoreset=False keeps them",
                    FitWarning,
                    stacklevel=3,
                )
            states = [state[~resets] for state in states]
            action, terminated, truncated = (
                each[~resets] for each in (action, terminated, truncated)
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
            "autoreset": False,
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
        count = most + 1 if given is None else _count("num_states", given)
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
            given_count = self.num_actions
            count = most + 1 if given_count is None else _count("num_actions", given_count)
            require(count <= MOST_ACTIONS, f"at most {MOST_ACTIONS:,} actions", count)
            require(0 <= least <= most < count, f"actions in [0, {count})", (least, most))
            return action.astype(np.int32), count, None, None
        action = _numbers("action", action)
        fits = action.shape[:1] == (rows,) and action.ndim <= 2 and action.size > 0
        require(fits, f"actions of shape {(rows,)} or ({rows}, numbers)", action.shape)
        unbounded = all(bound is None for bound in bounds)
        if action.ndim == 1 and unbounded and _counts(action):
            warnings.warn(
                "actions are floats that are all whole numbers, and are read as a box: give "
                "integers for discrete actions, or action_low and action_high for a box",
                FitWarning,
                stacklevel=4,
            )
        exact = action.reshape(rows, -1)
        action = exact.astype(np.float32)
        low = _bounds("action_low", bounds[0], action.min(axis=0))
        high = _bounds("action_high", bounds[1], action.max(axis=0))
        ordered = bool((low <= high).all())
        require(ordered, "action_low <= action_high", (low.tolist(), high.tolist()))
        for row, i in np.argwhere((action < low) | (action > high))[:1]:
            raise InputError(
                f"expected actions in [{low[i]}, {high[i]}], got {action[row, i]} as number {i} of "
                f"row {row}; clip actions as the environment clips them"
            )
        spread = np.ptp(exact, axis=0)
        allowed = _ROUNDING * np.maximum(spread, high - low)
        # A smaller spread is the rounding of double precision.
        moved = spread > 1e-12 * np.abs(exact).max(axis=0)
        if (moved & (np.abs(exact - action).max(axis=0) > allowed)).any():
            raise InputError(
                "expected actions that single precision tells apart, got actions in "
                f"[{exact.min()}, {exact.max()}]: subtract an offset"
            )
        return action, None, low, high

    def __len__(self) -> int:
        return len(self.action)

    @property
    def continuous(self) -> bool:
        """Tell whether actions are floats of a box."""
        return self.num_actions is None

    @property
    def ends(self) -> np.ndarray:
        """Tell whether a row is the last of its episode, [N]."""
        return np.asarray(self.terminated | self.truncated)

    @property
    def steps_left(self) -> np.ndarray:
        """Number of rows from each row to the end of its episode, itself included, [N]."""
        lasts = np.flatnonzero(self.ends)
        rows = np.arange(len(self))
        return lasts[np.searchsorted(lasts, rows)] - rows + 1

    @classmethod
    def from_dictionary(cls, data: Mapping[str, Any]) -> "Transitions":
        """Read arrays that are named as in Minari, D4RL, OGBench or rlreps.

        Rows are in the order of time. Without ``next_observations``, the next observation of a row
        is the observation of the following row. If there is one observation more than actions, as
        in an episode of Minari, the last one is the final next observation. The next state of the
        last row of every other episode is unknown: the row is left out, and the episode counts as
        truncated even if it terminated.

        Args:
            data: ``observations`` and ``actions``; ``next_observations`` if known; ends of episodes
                as ``terminals`` (or ``terminations``, ``terminated``) and ``timeouts`` (or
                ``truncations``, ``truncated``), or as an index of episodes ``episode``;
                ``num_actions``, ``num_states``, ``action_low``, ``action_high`` and ``autoreset``
                as in ``Transitions``. With ``masks`` (OGBench: 0 if the next state is terminal),
                ``terminals`` marks any end of a trajectory. Other entries are ignored.

        Raises:
            InputError: If an entry is missing or ``Transitions`` rejects the arrays. At least one
                entry must mark the ends of episodes; give zeros if no episode ends. Autoreset needs
                ``next_observations``.

        Warns:
            FitWarning: If rows inside the record are left out, since their next states are unknown.
        """
        observation = np.asarray(_entry(data, "observations", "observation"))
        action = np.asarray(_entry(data, "actions", "action"))
        arrays = {"observations": observation, "actions": action}
        for name, array in arrays.items():
            require(array.ndim > 0 and len(array) > 0, f"{name} [rows, ...]", array.shape)
        rows = len(action)
        terminal = _entry(data, "terminals", "terminations", "terminated", optional=True)
        ended = _entry(data, "timeouts", "truncations", "truncated", optional=True)
        masks = data.get("masks")
        if terminal is None and ended is None and masks is None and "episode" not in data:
            raise InputError(
                "expected an entry that marks ends (terminals, timeouts, masks or episode), got "
                f"{', '.join(sorted(data))}"
            )
        ends = None if ended is None else _flags("timeouts", ended, rows)
        terminated = np.zeros(rows, np.bool_)
        if terminal is not None:
            terminated = _flags("terminals", terminal, rows)
        if masks is not None:
            ends = terminated if ends is None else ends | terminated
            terminated = ~_flags("masks", masks, rows)
        if "episode" in data:
            index = np.asarray(data["episode"])
            require(index.shape == (rows,), f"episode of shape {(rows,)}", index.shape)
            require(bool((index == index).all()), "an index of an episode in every row", "NaN")
            changes = np.append(index[1:] != index[:-1], True)
            ends = changes if ends is None else ends | changes
        following = _entry(data, "next_observations", "next_observation", optional=True)
        kept = np.ones(rows, np.bool_)
        autoreset = data.get("autoreset")
        if autoreset is not None:
            autoreset = bool(_flags("autoreset", [autoreset], 1)[0])
        if following is None:
            require(not autoreset, "next_observations with autoreset", None)
            count = len(observation)
            require(count in (rows, rows + 1), f"{rows} or {rows + 1} observations", count)
            known = terminated if ends is None else terminated | ends
            # What follows the last row of an episode is the next episode's first observation.
            kept[:-1] = ~known[:-1]
            lost = rows - int(kept.sum())
            kept[-1] = count > rows
            following = np.concatenate([observation[1:], observation[-1:]])[:rows]
            observation = observation[:rows]
            cut = np.append(~kept[1:], False)
            ends = None if ends is None and not known.any() else cut | (known & kept)
            terminated = terminated & kept
            if lost:
                warnings.warn(
                    f"{lost:,} of {rows:,} rows end an episode, and their next observations are "
                    "not known: they are left out, and their episodes count as truncated; give "
                    "next_observations to keep them",
                    FitWarning,
                    stacklevel=2,
                )
        counts = {
            name: _count(name, data[name])
            for name in ("num_actions", "num_states")
            if data.get(name) is not None
        }
        following = np.asarray(following)
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
            autoreset=autoreset,
            **counts,
        )

    @classmethod
    def from_minari(cls, dataset: Any, *, observe: Observe | None = None) -> "Transitions":
        """Read a data set of Minari, with its observation and action spaces.

        As in ``collect``, actions become integers from 0 or floats of the box. The last row of an
        episode that does not terminate counts as truncated.

        Args:
            dataset: A ``MinariDataset``, as ``minari.load_dataset`` gives.
            observe: As for ``collect``.

        Raises:
            InputError: If the data set is empty, its observations cannot be read (see ``collect``),
                its actions are neither discrete nor a box of floats, or ``Transitions`` rejects the
                arrays.
        """
        return cls(**read_minari(dataset, observe), autoreset=False)

    def numbered(self) -> tuple["Transitions", np.ndarray]:
        """Number the distinct observations, in the order in which they appear in the rows.

        Observations are distinct if any of their numbers differ, however little. Fits of indices
        count transitions, so each state must occur often.

        Returns:
            The transitions with indices of states as observations, and the table of observations
            [n, ...]: state i is the observation ``table[i]``.
        """
        states = np.concatenate([self.observation, self.next_observation])
        _, first, inverse = np.unique(
            bytes_of(states, states.dtype), return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        numbers = np.argsort(order)[inverse].astype(np.int32)
        numbered = copy.copy(self)  # Copies skip the checks, which hold already.
        halves = zip(("observation", "next_observation"), np.split(numbers, 2), strict=True)
        for name, value in (*halves, ("num_states", len(order))):
            object.__setattr__(numbered, name, value)
        return numbered, states[first[order]]

    def split(self, share: float, seed: int) -> tuple["Transitions", "Transitions"]:
        """Split into two records: the rows to fit, and the rows that ``held_out`` chooses.

        A row at which an episode is cut in two counts as truncated. Rows keep their order.

        Args:
            share: Share of the rows in the second record, in (0, 1).
            seed: Seed of ``held_out``.

        Raises:
            InputError: As ``held_out``.
        """
        held_out = self.held_out(share, seed)
        parted = np.append(held_out[1:] != held_out[:-1], False) & ~self.ends
        cut = {"truncated": self.truncated | parted}
        columns = {name: getattr(self, name) for name in COLUMNS} | cut
        parts = copy.copy(self), copy.copy(self)  # Copies skip the checks, which hold already.
        for part, kept in zip(parts, (~held_out, held_out), strict=True):
            for name, column in columns.items():
                object.__setattr__(part, name, column[kept])
        return parts

    def held_out(self, share: float, seed: int) -> np.ndarray:
        """Choose whole episodes that hold about a share of the rows; return their mask, [N].

        An episode is cut into blocks if it holds more than a tenth of all rows, or more than
        ``share`` or 1 − ``share`` of them.

        Args:
            share: In (0, 1).
            seed: Seed of the choice of episodes or blocks, in [0, 2³²).

        Raises:
            InputError: For a share or a seed out of range, or fewer than four rows.
        """
        require(isinstance(share, numbers.Real), "share to be a number", share)
        require_interval("share", share, "(0, 1)")
        require_positive("seed", seed, 0, 2**32 - 1)
        rows = len(self)
        require(rows >= 4, "at least four rows to split", rows)
        most = max(2, round(rows * min(share, 1.0 - share, 1.0 / _FEWEST_EPISODES)))
        lasts, index = np.flatnonzero(self.ends), np.arange(rows)
        episode = np.searchsorted(lasts, index)
        sizes = np.diff(lasts, prepend=-1)[episode]
        place = index - lasts[episode] + sizes  # Starts at 1.
        blocks = np.flatnonzero((sizes > most) & (place % most == 0))
        lasts = np.union1d(lasts, blocks)
        group = np.searchsorted(lasts, index)
        order = np.random.default_rng(seed).permutation(len(lasts))
        reached = np.cumsum(np.bincount(group)[order])[:-1]
        count = int(np.argmin(np.abs(reached - share * rows))) + 1
        chosen: np.ndarray = np.isin(group, order[:count])
        return chosen

    def to_npz(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz file that ``from_dictionary`` and ``rlreps fit`` read, and return its path.

        The file is written whole or not at all.

        Raises:
            InputError: For a name that does not end in .npz.
        """
        require(Path(path).suffix == ".npz", "a name that ends in .npz", str(path))
        arrays: dict[str, Any] = {
            "observations": self.observation,
            "actions": self.action,
            "next_observations": self.next_observation,
            "terminals": self.terminated,
            "timeouts": self.truncated,
            "num_actions": self.num_actions,
            "num_states": self.num_states,
            "action_low": self.action_low,
            "action_high": self.action_high,
            "autoreset": self.autoreset,
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
        observe: Observe | None = None,
    ) -> "Transitions":
        """Collect transitions of a policy in an environment.

        The numbers of a dictionary or tuple become one vector in the order of
        ``gymnasium.wrappers.FlattenObservation``, and a line on standard error says so. An entry
        without others is recorded as it is.

        Args:
            environment: A single Gymnasium environment, a dm_env environment, or a JAX environment
                such as ``PuddleWorld``. Discrete actions are recorded from 0: the space's ``start``
                is subtracted. Actions of a box are recorded as floats with their axes flattened.
                All indices of a discrete observation space count as states.
            steps: Number of rows to collect. In JAX, it is rounded up to a multiple of ``copies``.
            policy: (observation, NumPy generator) → action for Gymnasium and dm_env, (key,
                observation) → action for JAX. None draws actions uniformly; for a box, between its
                bounds.
            seed: Seed of all random draws, in [0, 2³²).
            copies: Number of copies of a JAX environment that run in parallel.
            observe: Function from an observation of Gymnasium or dm_env to the array that is
                recorded, and that the policy sees.

        Raises:
            InputError: If the environment, its actions or its observations are of an unsupported
                kind (such as an image beside numbers, without ``observe``), or a number is out of
                range.
        """
        require_positive("steps", steps)
        require_positive("seed", seed, 0, 2**32 - 1)
        return cls(**record(environment, steps, policy, seed, copies, observe), autoreset=False)


def as_transitions(data: Any) -> Transitions:
    """Make ``Transitions`` from a dictionary or from arrays (s, a, s', terminated[, truncated]).

    Raises:
        InputError: For data of another kind, or data that ``Transitions`` rejects.
    """
    if isinstance(data, Transitions):
        return data
    if isinstance(data, Mapping):
        return Transitions.from_dictionary(data)
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data) in (4, 5):
        return Transitions(**dict(zip(COLUMNS, data, strict=False)))
    raise InputError(
        "expected Transitions, a dictionary of arrays, or arrays (observation, action, "
        f"next_observation, terminated), got {type(data).__name__}; for an environment, use "
        "Transitions.collect"
    )


def _entry(data: Mapping[str, Any], *names: str, optional: bool = False) -> Any:
    for name in names:
        if name in data:
            return data[name]
    if optional:
        return None
    raise InputError(f"expected an entry {names[0]!r}, got {', '.join(sorted(data)) or 'none'}")


def _bounds(name: str, given: Any, found: np.ndarray) -> np.ndarray:
    """Return a box's bounds, [k] (float32); the data's range replaces None and infinite entries."""
    if given is None:
        return found
    array = np.asarray(given)
    fits = array.shape in ((), found.shape) and array.dtype.kind in "iuf"
    require(fits, f"{name} of shape {found.shape}", array.shape)
    require(not np.isnan(array.astype(np.float64)).any(), f"numbers in {name}", "NaN")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    return np.where(np.isfinite(array), array, found)


def _count(name: str, value: Any) -> int:
    """Check a whole number, which a file stores as an array without axes."""
    array = np.asarray(value)
    whole = array.shape == () and array.dtype.kind in "iu"
    require(whole, f"{name}, a whole number", array.tolist())
    return int(array)


def _numbers(name: str, values: Any) -> np.ndarray:
    """Check an array of numbers; floats keep at most double precision."""
    array = np.asarray(values)
    require(array.dtype.kind in "iubf", f"{name} of numbers in one array", array.dtype.name)
    if array.dtype.kind == "f":
        require(bool(np.isfinite(array).all()), f"finite numbers in {name}", "NaN or infinity")
        single = f"numbers in {name} that single precision holds"
        within = bool((np.abs(array) <= np.finfo(np.float32).max).all())
        require(within, single, "larger ones")
        array = array.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
    return array


def _narrowed(states: list[np.ndarray]) -> list[np.ndarray]:
    """Convert floats to single precision, or numbers that it would round too much to double."""
    floats = states[0].dtype.kind == "f"
    precise = not any(np.can_cast(state.dtype, np.float32) for state in states)
    if precise and (floats or states[0].ndim > 1):
        # Pixels of images have a common range.
        axes = 0 if states[0].ndim <= 3 else None
        least = np.min([state.min(axis=axes) for state in states], axis=0).astype(np.float64)
        most = np.max([state.max(axis=axes) for state in states], axis=0).astype(np.float64)
        spacing = np.spacing(np.float32(np.maximum(-least, most)))
        allowed = np.where(most > least, _SPACING * (most - least) if floats else 1.0, np.inf)
        if (spacing > allowed).any():
            return [state.astype(np.float64) for state in states]
    return [state.astype(np.float32) for state in states] if floats else states


def _autoresets(
    autoreset: bool | None,
    observation: np.ndarray,
    same: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
) -> np.ndarray:
    """Tell which rows start an episode in a vector environment; see ``Transitions``, [N].

    Args:
        autoreset: Whether there are such rows; None recognises them.
        observation: s, [N, ...].
        same: Whether the row after a row starts where the row ended, [N − 1].
        terminated: [N].
        truncated: [N].
    """
    if autoreset is None:
        after = np.append(False, same & terminated[:-1])
        few = after.sum() < max(1.0, _AUTORESETS * terminated[:-1].sum())
        tour = (observation[after] == observation[0]).all()
        autoreset = not (few or tour or (terminated & after).any())
    # An episode that was truncated is followed by a reset as well; no reset terminates.
    found = np.append(False, same & (terminated | truncated)[:-1]) & ~terminated
    # Nor does it end an episode: behind a reset that is cut, the record of another copy starts.
    found[1:] &= ~found[:-1]
    return np.asarray(found & autoreset)


def _counts(array: np.ndarray) -> bool:
    """Tell whether all numbers are whole and none is negative."""
    return bool(((array >= 0) & (array == np.rint(array))).all())


def _flags(name: str, values: Any, rows: int) -> np.ndarray:
    array = np.asarray(values)
    require(array.shape == (rows,), f"{name} of shape {(rows,)}", array.shape)
    known = array.dtype.kind in "iubf" and bool(np.isin(array, (0, 1)).all())
    require(known, f"{name} of true and false", array.dtype.name)
    return array.astype(np.bool_)


def _rows_equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare rows of arrays [n, ...], [n]."""
    return np.asarray((left == right).reshape(len(left), -1).all(axis=1))
