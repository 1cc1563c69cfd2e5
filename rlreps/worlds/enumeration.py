"""Every state of a deterministic Gymnasium environment, breadth first.

States are told apart by everything that ``StateCopies`` copies, never by the observation alone.
"""

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import scipy.sparse
from gymnasium.envs.toy_text.taxi import TaxiEnv

from rlreps.errors import InputError, own_code, require, require_memory, require_positive
from rlreps.numerics import as_real
from rlreps.successor.truth.stored_subspace import Progress, no_progress
from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds.copies import COUNTERS, OwnCopies, StateCopies, state_copies

_MOST_CHECKED = 5_000
"""Largest number of outcomes that are computed again; fewer pairs of states and actions repeat."""

_MOST_DRAWN = 200
"""Largest number of them whose observations are drawn again, which may take longer than a step."""

_PLAIN_WRAPPERS = (
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.RecordEpisodeStatistics,
    gymnasium.wrappers.TimeLimit,
)
"""Wrappers of ``gymnasium.make`` that change no outcome; a table knows no limit of time."""

_EXAMINED = 500
"""Number of states among which attributes are searched that keep changing."""


def enumerate_states(
    env: Any,
    *,
    seeds: Sequence[int] = (0,),
    observe: Callable[[Any], ArrayLike] | None = None,
    coordinates: Callable[[Any], Sequence[float]] | None = None,
    names: Sequence[str] = (),
    save: Callable[[Any], Any] | None = None,
    restore: Callable[[Any, Any], object] | None = None,
    key: Callable[[Any], Hashable] | None = None,
    counters: Sequence[str] = COUNTERS,
    constant: Sequence[type] = (),
    horizon: int | None = None,
    most_states: int = 100_000,
    check: bool = True,
    name: str = "",
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Find every state that actions reach from the first states of some seeds.

    Args:
        env: An environment with discrete actions and one array as observation.
        seeds: Seeds of resets. Each gives a first state, all of the same probability. The seed
            decides a layout that is drawn at a reset.
        observe: Environment → observation of its state; by default what ``step`` returns.
        coordinates: Environment → numbers that place the state in figures.
        names: Names of the coordinates.
        save: Environment → its state; by default a copy of all attributes.
        restore: (environment, state) → nothing; puts the environment into a saved state.
        key: State that ``save`` returned → what tells states apart; by default the state itself.
        counters: Names of attributes that count steps. States that differ in them alone are the
            same, and they keep their value at the start. Rewards that fall with the number of steps
            are therefore those of the first step, and no time limit ends an episode. Give others,
            or none, if the game's rules depend on an attribute of these names.
        constant: Types whose objects never change, such as walls; they need no copies.
        horizon: Number of steps after which states are not followed further, and end an episode.
        most_states: Largest number of states.
        check: Whether to take 5,000 actions again, spread over all states, in another order and
            with other random numbers: each of m pairs of a state and an action about 5,000 / m
            times, or once. k times miss an outcome of probability q with probability (1 − q)^k.
        name: Name of the game, for ``World.about``.
        progress: Shows the number of states.

    Returns:
        The arguments of ``World.from_arrays``.

    Raises:
        InputError: For other spaces, an environment that cannot be copied, is not deterministic, or
            has a time limit of its own without ``horizon``, or more states than allowed.
    """
    require_positive("most_states", most_states)
    known = all(hasattr(env, name) for name in ("reset", "step", "action_space"))
    require(known, "an environment of Gymnasium", env)
    require(len(seeds) >= 1, "at least one seed", seeds)
    actions = int(getattr(env.action_space, "n", 0))
    require(actions >= 1, "an environment with discrete actions", str(env.action_space))
    with own_code("an environment that can be reset and stepped"):
        # Wrappers and environments may set attributes in their first steps.
        env.reset(seed=int(seeds[0]))
        env.step(env.action_space.start)
        env.reset(seed=int(seeds[0]))
        copies = state_copies(env, save, restore, key, counters=counters, constant=constant)
        search = _Search(env, observe, coordinates, copies, most_states, horizon is not None)
        search.begin(seeds)
    depth, columns = [0] * len(search.states), []
    rewards: list[list[float]] = []
    with progress(f"states of {name or env}", total=most_states, unit="states") as advance:
        for index in itertools.count():
            if index >= len(search.states):
                break
            last = horizon is not None and depth[index] >= horizon
            if search.ended[index] or last:
                search.ended[index] = True
                columns.append([index] * actions)
                rewards.append([0.0] * actions)
            else:
                outcomes = [search.take(index, action) for action in range(actions)]
                columns.append([after for after, _, _ in outcomes])
                rewards.append([reward for _, reward, _ in outcomes])
            depth += [depth[index] + 1] * (len(search.states) - len(depth))
            advance(1)
    if check:
        search.check(columns, rewards)
    first = np.bincount(search.first, minlength=len(search.states)).astype(np.float64)
    observations = np.stack(search.observations)
    return {
        "next_states": np.asarray(columns, np.int64),
        "rewards": np.asarray(rewards),
        "terminal": np.asarray(search.ended),
        "start": first / first.sum(),
        "observations": observations,
        "coordinates": np.asarray(search.places, np.float64) if coordinates else None,
        "names": tuple(names),
        "about": {"name": name or str(env), "seeds": [int(seed) for seed in seeds]},
    }


class _Search:
    """States found so far, with their numbers."""

    def __init__(
        self,
        env: Any,
        observe: Callable[[Any], ArrayLike] | None,
        coordinates: Callable[[Any], Sequence[float]] | None,
        copies: StateCopies | OwnCopies,
        most_states: int,
        limited: bool,
    ) -> None:
        self.env, self._observe, self._coordinates = env, observe, coordinates
        self._copies, self._most, self._limited = copies, most_states, limited
        self.states: list[Any] = []
        self.ended: list[bool] = []
        self.observations: list[npt.NDArray[Any]] = []
        self.places: list[DoubleArray] = []
        self.first: list[int] = []
        self.parents: list[int | None] = []
        self._parent: int | None = None
        self._numbers: dict[Any, int] = {}
        self._by_copy: dict[Any, int] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Find the first state of each seed."""
        for seed in seeds:
            seen, _ = self.env.reset(seed=int(seed))
            self.first.append(self._number(self._copies.save(self.env), False, seen))

    def _number(self, state: Any, ended: bool, seen: Any) -> int:
        """Return the number of a state; the environment is in it."""
        copied = isinstance(state, bytes)
        # Equal copies are equal states, and quick to compare. Equal states may have other copies.
        if copied and (state, ended) in self._by_copy:
            return self._by_copy[state, ended]
        key = (self._copies.key(state), ended)
        number = self._numbers.setdefault(key, len(self.states))
        if copied:
            self._by_copy[state, ended] = number
        if number == len(self.states):
            self._add(state, ended, seen)
        return number

    def _add(self, state: Any, ended: bool, seen: Any) -> None:
        if len(self.states) >= self._most:
            raise InputError(
                f"expected at most {self._most:,} states (most_states), got more{self._growing()}"
            )
        self.states.append(state)
        self.parents.append(self._parent)
        self.ended.append(ended)
        self.observations.append(self._seen(seen))
        first, last = (self.observations[place].shape for place in (0, -1))
        require(first == last, f"observations of one shape, {list(first)}", list(last))
        if self._coordinates is not None:
            self.places.append(np.array(self._coordinates(self.env), np.float64))
        count = len(self.states)
        if count.bit_count() == 1:  # Twice as many as at the last check.
            size = self.observations[0].nbytes
            require_memory(f"observations of {2 * count:,} states", 4 * count * size)

    def _seen(self, seen: Any) -> npt.NDArray[Any]:
        found = seen if self._observe is None else self._observe(self.env)
        if isinstance(found, dict | tuple | str):
            raise InputError(
                f"expected an observation in one array, got a {type(found).__name__}; give "
                "observe=, a function of the environment, such as lambda env: ..."
            )
        array = np.array(as_real(found, "an observation"))
        whole = array.dtype == np.uint8
        array = array if whole else np.asarray(array, np.float32)
        return array if array.ndim else array[None]

    def _growing(self) -> str:
        """Name an attribute that may count steps or be random.

        Among the attributes that change most often between a state and the next new state, name the
        attribute with the fewest values: breadth first, many states have taken as many steps.
        """
        values: dict[tuple[int, str], set[Hashable]] = {}
        changes: Counter[tuple[int, str]] = Counter()
        parts = [self._copies.parts(state) for state in self.states[:_EXAMINED]]
        for found, parent in zip(parts, self.parents, strict=False):
            for part, value in found.items():
                values.setdefault(part, set()).add(value)
                if parent is not None:
                    changes[part] += value != parts[parent].get(part)
        if not changes:
            return ""
        most = max(values, key=lambda part: (changes[part], -len(values[part])))
        return (
            f"; {most[1]} takes {len(values[most])} values in the first {len(parts)}: if it counts "
            "steps, it belongs to counters=; if it is random, the game is stochastic"
        )

    def take(self, index: int, action: int) -> tuple[int, float, Any]:
        """Take an action in a state: the number of the next state, reward, and observation."""
        self._copies.restore(self.env, self.states[index])
        self._parent = index
        with own_code("an environment that can be stepped"):
            found = self.env.step(action + getattr(self.env.action_space, "start", 0))
            five = isinstance(found, tuple) and len(found) == 5
            require(five, "five values of step (observation, reward, ..., info)", found)
            seen, reward, terminated, truncated, _ = found
            finite = math.isfinite(reward)
        require(finite, f"a finite reward of action {action} in state {index}", reward)
        if truncated and not terminated and not self._limited:
            raise InputError(
                "expected episodes without a time limit, got a truncated one: name the attribute "
                "that counts steps in counters=, or give horizon="
            )
        ended = bool(terminated or truncated)
        return self._number(self._copies.save(self.env), ended, seen), float(reward), seen

    def check(self, columns: list[list[int]], rewards: list[list[float]]) -> None:
        """Take actions again, with other random numbers, since generators are never restored.

        The order is another, too: in the order of the search, state that copies leave out, such as
        an attribute of the class, would take the same values again.

        Raises:
            InputError: If an outcome differs.
        """
        pairs = [
            (index, action)
            for index, ended in enumerate(self.ended)
            if not ended
            for action in range(len(columns[index]))
        ]
        known, pairs = len(self.states), spread(pairs, len(columns[0]), _MOST_CHECKED)
        pairs *= _MOST_CHECKED // max(1, len(pairs))
        np.random.default_rng(0).shuffle(pairs)
        for count, (index, action) in enumerate(pairs):
            after, reward, seen = self.take(index, action)
            expected, paid = columns[index][action], rewards[index][action]
            found = ""
            if after != expected:
                found = f"another next state{self._difference(expected, after)}"
            elif reward != paid:
                found = f"another reward ({paid:g}, then {reward:g})"
            elif (self._observe is None or count < _MOST_DRAWN) and not np.array_equal(
                self._seen(seen), self.observations[after]
            ):
                found = "another observation of the same state"
            if found or len(self.states) > known:
                raise InputError(
                    f"expected a deterministic environment, got {found} when action {action} was "
                    f"taken again in state {index}; if its own attributes do not hold all of its "
                    "state, give save= and restore="
                )

    def _difference(self, expected: int, found: int) -> str:
        first, second = (self._copies.parts(self.states[each]) for each in (expected, found))
        if not first:
            return ""
        names = [part[1] for part in first if first[part] != second.get(part)]
        return f", which differs in {', '.join(names) or 'how it ends'}"


def spread(pairs: list[tuple[int, int]], actions: int, most: int) -> list[tuple[int, int]]:
    """Return at most so many pairs of states and actions, spread evenly over states and actions."""
    step = max(1, -(-len(pairs) // most))
    # A step that shares no factor with the number of actions meets every action.
    while math.gcd(step, actions) > 1:
        step += 1
    return pairs[::step]


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
        for _ in range(_MOST_CHECKED):
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
        return rows[:, [1, 0, 2, 3]] * [1, -1, 1, 1], ("column", "row", "passenger", "goal")
    shape: Any = getattr(inner, "shape", None)
    numbers = np.asarray(states)
    plane = isinstance(shape, tuple) and len(shape) == 2
    width = getattr(inner, "ncol", None) or (shape[1] if plane else 0)
    if not width:
        return numbers[:, None], ("state",)
    return np.column_stack([numbers % width, -(numbers // width)]), ("column", "row")
