"""Transitions of a policy: the data that successor features are fitted to.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.config import checked
from rlreps.errors import (
    InputError,
    require,
    require_interval,
    require_positive,
)
from rlreps.files import write_atomically
from rlreps.numerics import bytes_of, hash_rows
from rlreps.successor.fitting.dictionaries import read_dictionary
from rlreps.successor.fitting.recording import (
    COLUMNS,
    JaxPolicy,
    Observe,
    Policy,
    read_minari,
    record,
)
from rlreps.successor.fitting.transition_checks import checked_columns

_FEWEST_EPISODES = 10
"""A split cuts an episode into blocks if it has more than 1 / _FEWEST_EPISODES of the rows."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Transitions (s, a, s') of one policy, N rows in the order of time.

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
        num_actions: Number of actions, at most 4,096; None takes the largest integer
            action plus one, and stays None for actions of a box.
        num_states: Number of state indices; None takes the largest index plus one, and stays None
            if observations are not indices.
        action_low: Lower bounds of the box of actions, [k] (float32). None and infinite entries
            take the range of the data. Stays None for integer actions.
        action_high: Upper bounds of the box of actions, with the same defaults.
        autoreset: Whether to leave out rows in which a vector environment of Gymnasium starts an
            episode (next-step autoreset), in the state in which the row before ended one: True
            after any end of an episode, False nowhere. None leaves them out if they go where no
            other rows go. Where the record does not show where they go, and rows that end episodes
            do not go where no others go, None leaves them out if three quarters of the terminations
            have one, none of them terminates, and either hardly any other rows start where they
            start, in a few states that recur, or a third of them go to the record's first
            observation, in which none starts. With fewer than 100 other rows, the first two of
            these suffice if not all start where the record starts. Rows whose actions decide where
            they go are kept. False afterwards, since none are left.
        kept: Which of the rows that were given are left, [N]. ``rewards[transitions.kept]`` are the
            rewards of the rows.

    Raises:
        InputError: If shapes do not fit, entries are NaN, actions or states are out of range, all
            states are equal, or a row within an episode does not start where the row before ended.

    Warns:
        FitWarning: If actions are floats that look like discrete actions, rows are left out, rows
            of several environments take turns, rows that end episodes go to the start of the next
            one, ends seem to be missing, time limits seem to be marked as terminations, or
            terminations as cuts.
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
    kept: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        vars(self).update(checked_columns(vars(self)))

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
        rows, lasts = np.arange(len(self)), np.flatnonzero(self.ends)
        return np.asarray(lasts[np.searchsorted(lasts, rows)] - rows + 1)

    @classmethod
    def from_dictionary(cls, data: Mapping[str, Any]) -> "Transitions":
        """Read arrays that are named as in Minari, D4RL, OGBench or rlreps.

        Rows are in the order of time. Without ``next_observations``, the next observation of a row
        is the observation of the following row. If there is one observation more than actions, as
        in an episode of Minari, the last one is the final next observation. The next state of the
        last row of every other episode is unknown: the row is left out with its reward, and the
        episode counts as truncated even if it terminated. With ``autoreset``, it is the following
        row's observation too (the last row of a copy leads to the next copy's first observation).
        ``autoreset=None`` assumes next-step autoreset if the rows after ends jump to where no other
        rows go and the ends do not, or if no other rows leave the states after terminations
        (indices).

        Args:
            data: ``observations`` and ``actions``; ``next_observations`` if known; ends of episodes
                as ``terminals`` (or ``terminations``, ``terminated``) and ``timeouts`` (or
                ``truncations``, ``truncated``), or as an index of episodes ``episode``;
                ``num_actions``, ``num_states``, ``action_low``, ``action_high`` and ``autoreset``
                as in ``Transitions``. ``masks`` (OGBench) are 0 if the next state is terminal;
                beside them, ``terminals`` marks any end of a trajectory. Other entries are ignored,
                but ends under other names (such as ``dones``, by which libraries mean different
                ends) are refused where terminal states or cuts would else be unknown.

        Raises:
            InputError: If an entry is missing or ``Transitions`` rejects the arrays. At least one
                entry must mark the ends of episodes; give zeros if no episode ends.

        Warns:
            FitWarning: If rows inside the record are left out, since their next states are unknown
                or they are resets, or if ends seem to mark the first rows of episodes.
        """
        fields = read_dictionary(data)
        kept = fields.pop("kept")
        found = cls(**fields)
        return found._with(kept=kept[found.kept])

    @classmethod
    def from_minari(cls, dataset: Any, *, observe: Observe | None = None) -> "Transitions":
        """Read a data set of Minari, with its observation and action spaces.

        Observations, ``observe`` and actions are as in ``collect``. The last row of an episode that
        does not terminate counts as truncated.

        Raises:
            InputError: If the data set is empty, or of an unsupported kind (see ``collect``).
        """
        return cls(**read_minari(dataset, observe), autoreset=False)

    @property
    def distinct(self) -> float:
        """Share of different observations among at most 5,000 rows; below 1 if states recur."""
        few = np.random.default_rng(0).permutation(len(self))[:5_000]
        return len(np.unique(hash_rows(self.observation[few]))) / len(few)

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
        now, then = np.split(numbers, 2)
        numbered = self._with(observation=now, next_observation=then, num_states=len(order))
        return numbered, states[first[order]]

    def split(self, share: float, seed: int) -> tuple["Transitions", "Transitions"]:
        """Split into two records: the rows to fit, and the rows that ``held_out`` chooses.

        A row at which an episode is cut in two counts as truncated. Rows keep their order.
        ``held_out`` documents the arguments.
        """
        held_out = self.held_out(share, seed)
        parted = np.append(held_out[1:] != held_out[:-1], False) & ~self.ends
        cut = {"truncated": self.truncated | parted}
        columns = {name: getattr(self, name) for name in (*COLUMNS, "kept")} | cut
        fitted, held = (
            self._with(**{name: column[kept] for name, column in columns.items()})
            for kept in (~held_out, held_out)
        )
        return fitted, held

    def _with(self, **columns: Any) -> "Transitions":
        """Return a copy with other columns, for which the checks hold already."""
        other = copy.copy(self)
        vars(other).update(columns)
        return other

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
    """Make ``Transitions`` from a dictionary or from arrays (s, a, s', terminated[, truncated])."""
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
