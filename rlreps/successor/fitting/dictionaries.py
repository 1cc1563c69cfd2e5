"""Read a dictionary of arrays that are named as in Minari, D4RL, OGBench or rlreps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlreps.errors import InputError, require, warn_user
from rlreps.numerics import require_unmasked
from rlreps.successor.fitting.episode_checks import describe_late_marks
from rlreps.successor.fitting.resets import has_resets
from rlreps.successor.fitting.transition_checks import checked_flags, checked_numbers

_OTHER_ENDS = ("dones", "done", "not_done")
_OTHER_TERMINALS = (*_OTHER_ENDS, "is_terminal", "terminal", "termination", "terminateds", "dw")
_OTHER_CUTS = ("is_last", "is_first", "episode_starts", "timeout", "truncation", "truncateds")
"""What other libraries call ends of episodes. Some of them mark only terminal states, others all
ends, so they are not read."""


def read_dictionary(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read a dictionary of arrays; return the fields of ``Transitions`` and the rows ``kept``.

    ``Transitions.from_dictionary`` documents the entries.
    """
    observation = np.asarray(_entry(data, "observations", "observation"))
    action = np.asarray(_entry(data, "actions", "action"))
    for name, array in {"observations": observation, "actions": action}.items():
        require(array.ndim > 0 and len(array) > 0, f"{name} [rows, ...]", array.shape)
    rows = len(action)
    after = _entry(data, "next_observations", "next_observation", optional=True)
    terminated, cut = _read_ends(data, rows, after is not None)
    kept, autoreset = np.ones(rows, np.bool_), data.get("autoreset")
    if autoreset is not None:
        autoreset = bool(checked_flags("autoreset", [autoreset], 1)[0])
    if after is None:
        count = len(observation)
        require(count in (rows, rows + 1), f"{rows} or {rows + 1} observations", count)
        kept[-1] = count > rows
        ends = terminated if cut is None else terminated | cut
        if autoreset is None:
            autoreset = _recognise_resets(observation, action, ends, terminated)
        if not autoreset:
            # What follows the last row of an episode is the next episode's first observation.
            kept[:-1] = ~ends[:-1]
            every = "next_observations, or rows that end no episode"
            require(bool(kept.any()), every, "a record in which every row ends an episode")
            if cut is not None or ends.any():
                cut = np.append(~kept[1:], False) | ends
            _warn_of_lost_rows(ends, terminated)
            warn_user(describe_late_marks(checked_numbers("observation", observation), ends))
        after = np.concatenate([observation[1:], observation[-1:]])[:rows]
        observation = observation[:rows]
    after = np.asarray(after)
    require(len(observation) == rows, f"{rows} observations", len(observation))
    require(len(after) == rows, f"{rows} next observations", len(after))
    return {
        "observation": observation[kept],
        "action": action[kept],
        "next_observation": after[kept],
        "terminated": terminated[kept],
        "truncated": None if cut is None else cut[kept],
        "autoreset": autoreset,
        "kept": np.flatnonzero(kept),
        # A file stores numbers as arrays without axes.
        **{
            name: value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
            for name in ("num_actions", "num_states", "action_low", "action_high")
            if (value := data.get(name)) is not None
        },
    }


def _read_ends(
    data: Mapping[str, Any], rows: int, has_next: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return which rows terminate, and after which the record is cut (None if unknown), [N] each.

    Next observations that are not the following row's observation show cuts, too.
    """
    terminal = _entry(data, "terminals", "terminations", "terminated", optional=True)
    timeouts = _entry(data, "timeouts", "truncations", "truncated", optional=True)
    masks = _entry(data, "masks", optional=True)
    all_ends = "episode" in data or (terminal is not None and masks is not None)
    no_cuts = timeouts is None and not has_next and not all_ends
    _refuse_unread(data, terminal is None and masks is None, no_cuts)
    if terminal is None and timeouts is None and masks is None and "episode" not in data:
        raise InputError(
            "expected an entry that marks ends (terminals, timeouts, masks or episode), got "
            f"{', '.join(sorted(data))}"
        )
    cuts = [] if timeouts is None else [checked_flags("timeouts", timeouts, rows)]
    terminated = np.zeros(rows, np.bool_)
    if terminal is not None:
        terminated = checked_flags("terminals", terminal, rows)
    if masks is not None:
        ends, terminated = terminated, ~checked_flags("masks", masks, rows)
        if terminal is not None:
            cuts.append(ends & ~terminated)
    if "episode" in data:
        index = np.asarray(_entry(data, "episode"))
        require(index.shape == (rows,), f"episode of shape {(rows,)}", index.shape)
        require(bool((index == index).all()), "an index of an episode in every row", "NaN")
        cuts.append(np.append(index[1:] != index[:-1], True) & ~terminated)
    return terminated, np.any(cuts, axis=0) if cuts else None


def _recognise_resets(
    observation: np.ndarray, action: np.ndarray, ends: np.ndarray, terminated: np.ndarray
) -> bool | None:
    """Return True and warn if the rows after ends are resets; None if they seem to be none."""
    if not has_resets(checked_numbers("observation", observation), action, ends, terminated):
        return None
    warn_user(
        "rows after ends of episodes go where no other rows go, as resets in Gymnasium's vector "
        "environments do (next-step autoreset): they are left out; autoreset=False reads them as "
        "first steps of episodes"
    )
    return True


def _warn_of_lost_rows(ends: np.ndarray, terminated: np.ndarray) -> None:
    """Warn if ends of episodes are left out inside the record."""
    goals = " (a goal that ends episodes is never reached)" if terminated.any() else ""
    if lost := int(ends[:-1].sum()):
        warn_user(
            f"{lost:,} of {len(ends):,} rows end an episode, and their next observations are not "
            f"known: they are left out with their rewards{goals}, and their episodes count as "
            "truncated; give next_observations to keep them, or autoreset=True if a vector "
            "environment made the record (next-step autoreset)"
        )


def _refuse_unread(data: Mapping[str, Any], no_terminals: bool, no_cuts: bool) -> None:
    """Refuse ends of episodes under other names, if nothing shows terminal states or cuts."""
    known = "terminals (the next state is terminal) and timeouts (the record is cut after a row)"
    for name in _OTHER_TERMINALS * no_terminals + (*_OTHER_ENDS, *_OTHER_CUTS) * no_cuts:
        if data.get(name) is not None:
            raise InputError(
                f"expected ends of episodes named {known}, got {name!r}; if it marks time limits "
                "too, leave them out of terminals"
            )


def _entry(data: Mapping[str, Any], *names: str, optional: bool = False) -> Any:
    for name in names:
        if name in data:
            value = data[name]
            require_unmasked(name, value)
            return value
    if optional:
        return None
    raise InputError(f"expected an entry {names[0]!r}, got {', '.join(sorted(data)) or 'none'}")
