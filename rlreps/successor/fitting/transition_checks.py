"""Check the arrays of transitions, and bring them into one form. ``Transitions`` documents them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlreps.errors import InputError, require, warn_user
from rlreps.numerics import require_unmasked, rows_equal
from rlreps.successor.fitting.episode_checks import describe_ends, describe_turns
from rlreps.successor.fitting.resets import find_resets

MOST_ACTIONS = 4096
"""Largest number of discrete actions: a fit stores one block of numbers for each action."""

_MOST_SPARSE = 100_000
"""Largest number of states that may be more than ``_SPARSE`` times the rows, if nobody gave it."""
_SPARSE = 10
_NUMBERED = "number labels by np.unique(labels, return_inverse=True)"

_SPACING = 1e-5
"""Single precision serves while its spacing is at most this share of a coordinate's range."""

_ROUNDING = 0.01
"""Single precision may round actions by this share of their range. Beyond it they are refused."""


def checked_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check all fields of ``Transitions`` that a user gave; return those that it keeps."""
    for name, value in given.items():
        require_unmasked(name, value)
    names = ("observation", "next_observation")
    states = [checked_numbers(name, given[name]) for name in names]
    shape = states[0].shape
    require(shape[:1] >= (2,), "observations of shape [rows, ...], at least two rows", shape)
    require(states[1].shape == shape, f"next observations of shape {shape}", states[1].shape)
    kinds = {state.dtype.kind in "iub" for state in states}
    require(len(kinds) == 1, "observations of one kind", [s.dtype.name for s in states])
    states = _narrowed(states)
    num_states = _states_counted(given["num_states"], states)
    if num_states is not None:
        # Booleans would select rows when used as an index, and bytes hold no state above 255.
        small = all(np.can_cast(state.dtype, np.int32) for state in states)
        states = [state.astype(np.int32 if small else np.int64) for state in states]
    action, num_actions, low, high = _actions_checked(given, len(states[0]))
    same = rows_equal(states[1][:-1], states[0][1:])
    terminated, truncated = _ends_checked(given, states, same)
    resets = find_resets(given["autoreset"], states, action, same, terminated, truncated)
    if resets.any():
        if given["autoreset"] is None:
            warn_user(
                f"{resets.sum():,} of {len(resets):,} rows start in the state in which the row "
                "before ended its episode, as resets in Gymnasium's vector environments do "
                "(next-step autoreset): they are left out, and rewards[transitions.kept] are the "
                "rewards of the others; autoreset=False keeps them"
            )
        states = [state[~resets] for state in states]
        action, terminated, truncated = (each[~resets] for each in (action, terminated, truncated))
        truncated[-1] = not terminated[-1]
    for warning in describe_ends(states, terminated, truncated):
        warn_user(warning)
    alike = rows_equal(states[0], states[0][:1]) & rows_equal(states[1], states[0][:1])
    require(not alike.all(), "at least two different states", 1)
    return {
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
        "kept": np.flatnonzero(~resets),
    }


def _ends_checked(
    given: Mapping[str, Any], states: Sequence[np.ndarray], same: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows reach a terminal state, and after which rows the record is cut, [N] each.

    ``same`` [N − 1] tells whether the row after a row starts where the row ended.
    """
    rows = len(states[0])
    terminated = checked_flags("terminated", given["terminated"], rows)
    if given["truncated"] is None:
        truncated = np.append(~same, True) & ~terminated
    else:
        cut = checked_flags("truncated", given["truncated"], rows)
        limits = np.flatnonzero(cut[:-1])  # The last row is cut in any record.
        if len(limits) > 1 and terminated[limits].all():
            warn_user(
                f"all {limits.size:,} truncated rows are terminated too, so that no value follows: "
                "if done holds both ends, give terminated=done & ~truncated"
            )
        truncated = cut & ~terminated
        jumps = np.flatnonzero(~same & ~(terminated | truncated)[:-1])
        if jumps.size:
            marks = (
                "mark it in terminated if the state that it reached is terminal, else in truncated"
            )
            raise InputError(
                "expected each row of an episode to start where the row before ended, got a "
                f"jump after row {jumps[0]} of {rows}: {describe_turns(states, cut) or marks}"
            )
        truncated[-1] = not terminated[-1]
    warn_user(describe_turns(states, terminated | truncated))
    return terminated, truncated


def _states_counted(given: int | None, states: list[np.ndarray]) -> int | None:
    """Return the number of indices of states; None for other observations."""
    if states[0].ndim > 1 or states[0].dtype.kind == "f":
        require(given is None, "num_states for indices of states (integers) alone", given)
        if states[0].ndim == 1 and all(_is_whole(state) for state in states):
            warn_user(
                "observations are floats that are all whole numbers, and are read as a coordinate: "
                "give integers for indices of states"
            )
        return None
    least = min(int(array.min()) for array in states)
    most = max(int(array.max()) for array in states)
    require(least >= 0, "indices of states >= 0", least)
    count = most + 1 if given is None else given
    allowed = max(_MOST_SPARSE, _SPARSE * len(states[0]))
    if given is None and count > allowed:
        raise InputError(
            f"expected num_states or indices of states in [0, {allowed:,}), got {most:,}: "
            f"{_NUMBERED}"
        )
    require(most < count, f"indices of states in [0, {count})", most)
    return count


def _actions_checked(
    given: Mapping[str, Any], rows: int
) -> tuple[np.ndarray, int | None, np.ndarray | None, np.ndarray | None]:
    """Return the actions, their number, and the bounds of their box."""
    action, bounds = np.asarray(given["action"]), (given["action_low"], given["action_high"])
    if action.dtype.kind != "f" or given["num_actions"] is not None:
        require(action.dtype.kind in "iu", "actions that are integers", action.dtype.name)
        require(action.shape == (rows,), f"actions of shape {(rows,)}", action.shape)
        given_bounds = [bound for bound in bounds if bound is not None]
        number = len(given_bounds)
        require(not number, "no bounds of a box for actions that are integers", number)
        least, most = int(action.min()), int(action.max())
        count = most + 1 if given["num_actions"] is None else int(given["num_actions"])
        require(count <= MOST_ACTIONS, f"at most {MOST_ACTIONS:,} actions", count)
        require(0 <= least <= most < count, f"actions in [0, {count})", (least, most))
        return action.astype(np.int32), count, None, None
    action = checked_numbers("action", action)
    fits = action.shape[:1] == (rows,) and action.ndim <= 2 and action.size > 0
    require(fits, f"actions of shape {(rows,)} or ({rows}, numbers)", action.shape)
    unbounded = all(bound is None for bound in bounds)
    if unbounded and _is_whole(action):
        warn_user(
            "actions are floats that are all whole numbers, and are read as a box: give integers "
            "[N] for discrete actions (argmax of one-hot rows), or action_low and action_high for "
            "a box"
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


def _is_whole(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values == np.rint(values))).all())


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


def checked_numbers(name: str, values: Any) -> np.ndarray:
    """Check an array of numbers; floats keep at most double precision."""
    array = np.asarray(values)
    numbers = f"{name} of numbers in one array ({_NUMBERED})"
    require(array.dtype.kind in "iubf", numbers, array.dtype.name)
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
        largest = np.maximum(-least, most)
        varies = np.any([state.max(axis=axes) != state.min(axis=axes) for state in states], axis=0)
        allowed = np.where(varies, _SPACING * (most - least) if floats else 1.0, np.inf)
        if (np.spacing(largest.astype(np.float32)) > allowed).any():
            blurred = np.spacing(largest) > allowed
            if not floats and blurred.any():
                raise InputError(
                    "expected whole numbers in observations that double precision tells apart, got "
                    f"a size of {largest[blurred].max():.3g}: subtract an offset"
                )
            return [state.astype(np.float64) for state in states]
    return [state.astype(np.float32) for state in states] if floats else states


def checked_flags(name: str, values: Any, rows: int) -> np.ndarray:
    """Check an array [rows] of truth values, or of zeros and ones."""
    array = np.asarray(values)
    require(array.shape == (rows,), f"{name} of shape {(rows,)}", array.shape)
    flags = array.dtype.kind in "iubf" and bool(np.isin(array, (0, 1)).all())
    require(flags, f"{name} of true and false", array.dtype.name)
    return array.astype(np.bool_)
