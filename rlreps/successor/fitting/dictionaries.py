"""Read a dictionary of arrays that are named as in Minari, D4RL, OGBench or rlreps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlreps.errors import InputError, require, warn_user
from rlreps.numerics import require_unmasked
from rlreps.successor.fitting.episode_checks import are_resets
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
    arrays = {"observations": observation, "actions": action}
    for name, array in arrays.items():
        require(array.ndim > 0 and len(array) > 0, f"{name} [rows, ...]", array.shape)
    rows = len(action)
    terminal = _entry(data, "terminals", "terminations", "terminated", optional=True)
    ended = _entry(data, "timeouts", "truncations", "truncated", optional=True)
    masks = _entry(data, "masks", optional=True)
    following = _entry(data, "next_observations", "next_observation", optional=True)
    # A next observation that is not the following row's observation shows that the record was cut.
    all_ends = "episode" in data or (terminal is not None and masks is not None)
    no_cuts = ended is None and following is None and not all_ends
    _refuse_unread(data, terminal is None and masks is None, no_cuts)
    if terminal is None and ended is None and masks is None and "episode" not in data:
        raise InputError(
            "expected an entry that marks ends (terminals, timeouts, masks or episode), got "
            f"{', '.join(sorted(data))}"
        )
    ends = None if ended is None else checked_flags("timeouts", ended, rows)
    terminated = np.zeros(rows, np.bool_)
    if terminal is not None:
        terminated = checked_flags("terminals", terminal, rows)
    if masks is not None:
        over, terminated = terminated, ~checked_flags("masks", masks, rows)
        if terminal is not None:
            cut = over & ~terminated
            ends = cut if ends is None else ends | cut
    if "episode" in data:
        index = np.asarray(_entry(data, "episode"))
        require(index.shape == (rows,), f"episode of shape {(rows,)}", index.shape)
        require(bool((index == index).all()), "an index of an episode in every row", "NaN")
        changes = np.append(index[1:] != index[:-1], True) & ~terminated
        ends = changes if ends is None else ends | changes
    kept = np.ones(rows, np.bool_)
    autoreset = data.get("autoreset")
    if autoreset is not None:
        autoreset = bool(checked_flags("autoreset", [autoreset], 1)[0])
    if following is None:
        count = len(observation)
        require(count in (rows, rows + 1), f"{rows} or {rows + 1} observations", count)
        known = terminated if ends is None else terminated | ends
        kept[-1] = count > rows
        following = np.concatenate([observation[1:], observation[-1:]])[:rows]
        seen = checked_numbers("observation", observation)
        if autoreset is None and are_resets(seen, known, terminated):
            autoreset = True
            warn_user(
                "rows after ends of episodes go where no other rows go, as resets in Gymnasium's "
                "vector environments do (next-step autoreset): they are left out; autoreset=False "
                "reads them as first steps of episodes"
            )
        observation = observation[:rows]
        if not autoreset:
            # What follows the last row of an episode is the next episode's first observation.
            kept[:-1] = ~known[:-1]
            cut = np.append(~kept[1:], False)
            ends = None if ends is None and not known.any() else cut | (known & kept)
            goals = " (a goal that ends episodes is never reached)" if terminated.any() else ""
            if lost := int(known[:-1].sum()):
                warn_user(
                    f"{lost:,} of {rows:,} rows end an episode, and their next observations are "
                    f"not known: they are left out with their rewards{goals}, and their episodes "
                    "count as truncated; give next_observations to keep them, or autoreset=True "
                    "if a vector environment made the record (next-step autoreset)"
                )
    following = np.asarray(following)
    require(len(observation) == rows, f"{rows} observations", len(observation))
    require(len(following) == rows, f"{rows} next observations", len(following))
    return {
        "observation": observation[kept],
        "action": action[kept],
        "next_observation": following[kept],
        "terminated": terminated[kept],
        "truncated": None if ends is None else ends[kept],
        "action_low": data.get("action_low"),
        "action_high": data.get("action_high"),
        "autoreset": autoreset,
        "kept": np.flatnonzero(kept),
        # A file stores whole numbers as arrays without axes.
        **{
            name: value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
            for name in ("num_actions", "num_states")
            if (value := data.get(name)) is not None
        },
    }


def _refuse_unread(data: Mapping[str, Any], no_terminals: bool, no_cuts: bool) -> None:
    """Refuse ends of episodes under other names, where entries with the known names are missing.

    Args:
        data: The entries.
        no_terminals: Whether no entry marks terminal states.
        no_cuts: Whether neither entries nor observations show where the record was cut.
    """
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
