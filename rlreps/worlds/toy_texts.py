"""Gymnasium's toy texts: tables of transitions that the environment itself holds."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import scipy.sparse
from gymnasium.envs.toy_text.taxi import TaxiEnv

from rlreps.errors import own_code, require
from rlreps.typing import ArrayLike

_PLAIN_WRAPPERS = (
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.RecordEpisodeStatistics,
    gymnasium.wrappers.TimeLimit,
)
"""Wrappers of ``gymnasium.make`` that change no outcome; a table knows no limit of time."""

_MOST_PLAYED = 5_000
"""Number of random steps that are compared with the table."""


def read_table(env: Any, observe: Callable[[int], ArrayLike] | None = None) -> dict[str, Any]:
    """Read a table ``P`` of Gymnasium's toy texts, restricted to the states that starts reach.

    ``P[s][a]`` lists (probability, next state, reward, end of the episode). A state that is reached
    both by an end and otherwise is two states. The environment is reset and played at random, to
    see that its steps are those of the table.

    Args:
        env: The environment.
        observe: State of the environment → its observation; by default one unit for each state.

    Returns:
        The arguments of ``World.from_arrays``.

    Raises:
        InputError: If the environment has no such table, an entry that is none, a wrapper that may
            change what the table says, or steps that the table does not list.
    """
    inner, layer = env.unwrapped, env
    while layer is not inner:
        plain = isinstance(layer, _PLAIN_WRAPPERS)
        expected = "a table P without a wrapper that may change it (env.unwrapped has none)"
        require(plain, expected, type(layer).__name__)
        layer = layer.env
    table, start = getattr(inner, "P", None), getattr(inner, "initial_state_distrib", None)
    named = type(inner).__name__
    require(isinstance(table, dict), "an environment with a table P of transitions", named)
    assert isinstance(table, dict)
    if start is None:
        start = np.zeros(len(table))
        start[env.reset(seed=0)[0]] = 1.0
    nodes = [(int(state), False) for state in np.flatnonzero(start)]
    numbers = {node: number for number, node in enumerate(nodes)}
    with own_code(f"actions of the first state in P[{nodes[0][0]}]"):
        actions = len(table[nodes[0][0]])
    entries: list[list[tuple[int, int, float, float]]] = [[] for _ in range(actions)]
    for node in nodes:  # The list grows.
        state, ended = node
        for action in range(actions) if not ended else ():
            for chance, after, reward, ends in _outcomes(table, state, action, actions):
                if chance > 0.0:
                    following = (after, ends)
                    if following not in numbers:
                        numbers[following] = len(nodes)
                        nodes.append(following)
                    place = (numbers[node], numbers[following])
                    entries[action].append((*place, chance, reward))
    _require_followed(inner, table)
    count, terminal = len(nodes), np.asarray([ended for _, ended in nodes])
    probabilities, rewards = [], []
    for listed in entries:
        rows, columns, chances, paid = (np.asarray(part) for part in zip(*listed, strict=True))
        part = scipy.sparse.csr_array((chances, (rows, columns)), (count, count))
        # The mean, if a state is reached in several ways.
        sums = scipy.sparse.csr_array((chances * paid, (rows, columns)), (count, count))
        sums.data /= part.data
        rewards.append(sums)
        part = scipy.sparse.csr_array(part + scipy.sparse.diags_array(terminal.astype(np.float64)))
        probabilities.append(part)
    states = [state for state, _ in nodes]
    first = np.asarray([0.0 if ended else start[state] for state, ended in nodes])
    places, names = _toy_places(inner, states)
    return {
        "probabilities": probabilities,
        "transition_rewards": rewards,
        "terminal": terminal,
        "start": first / first.sum(),
        "observations": None if observe is None else np.stack([observe(each) for each in states]),
        "coordinates": places,
        "names": names,
        "about": {"name": named, "states": states},
    }


def _require_followed(inner: Any, table: Any) -> None:
    """Play at random; refuse a step that the table does not list.

    Environments pass unplayed if they cannot be played, if they draw each step for a person, or if
    their observations are not states of the table.
    """
    if getattr(inner, "render_mode", None) == "human":
        return
    actions = np.random.default_rng(0)
    for state, action, (after, reward, ended) in _played(inner, table, actions):
        listed = any(
            (following, end) == (after, ended) and math.isclose(paid, reward, rel_tol=1e-6)
            for _, following, paid, end in table[state][action]
        )
        expected = f"steps that P[{state}][{action}] lists (next state, reward, end)"
        require(listed, expected, (after, reward, ended))


def _played(
    inner: Any, table: Any, actions: np.random.Generator
) -> Iterator[tuple[int, int, tuple[int, float, bool]]]:
    """Yield states, actions and outcomes of random play."""
    # A table is read without playing: whatever a step raises, the table is not refused for it.
    with contextlib.suppress(Exception):
        state, _ = inner.reset(seed=0)
        for _ in range(_MOST_PLAYED):
            if not isinstance(state, int | np.integer) or state not in table:
                return
            action = int(actions.integers(len(table[state])))
            after, reward, ended, truncated, _ = inner.step(action)
            yield int(state), action, (after, float(reward), bool(ended))
            state = inner.reset()[0] if ended or truncated else after


def _outcomes(
    table: Any, state: int, action: int, actions: int
) -> list[tuple[float, int, float, bool]]:
    """Return what an action leads to, after a check."""
    entry = f"P[{state}][{action}]"
    with own_code(f"outcomes (probability, next state, reward, end) in {entry}"):
        require(len(table[state]) == actions, f"{actions} actions in P[{state}]", table[state])
        found = [
            (float(chance), int(after), float(reward), bool(ends))
            for chance, after, reward, ends in table[state][action]
        ]
    total = sum(chance for chance, *_ in found)
    require(abs(total - 1.0) < 1e-9, f"probabilities in {entry} that sum to 1", total)
    for _, after, reward, _ in found:
        require(after in table, f"a next state in {entry} that is in P", after)
        require(math.isfinite(reward), f"finite rewards in {entry}", reward)
    return found


def _toy_places(inner: Any, states: list[int]) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """Return coordinates of a toy text's states: column and row where it has them."""
    if isinstance(inner, TaxiEnv):
        rows = np.asarray([list(inner.decode(state)) for state in states])
        return rows[:, [1, 0, 2, 3]], ("column", "row", "passenger", "goal")
    shape: Any = getattr(inner, "shape", None)
    numbers = np.asarray(states)
    plane = isinstance(shape, tuple) and len(shape) == 2
    width = getattr(inner, "ncol", None) or (shape[1] if plane else 0)
    if not width:
        return numbers[:, None], ("state",)
    return np.column_stack([numbers % width, numbers // width]), ("column", "row")
