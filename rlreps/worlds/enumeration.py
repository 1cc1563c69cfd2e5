"""Every state of a deterministic Gymnasium environment, breadth first.

States are told apart by everything that ``StateCopies`` copies, never by the observation alone.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import (
    InputError,
    own_code,
    require,
    require_memory,
    require_positive,
    warn_user,
)
from rlreps.files import read_archive, write_archive
from rlreps.numerics import as_real
from rlreps.runs.progress import progress_bar
from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds.copies import (
    COUNTERS,
    OwnCopies,
    StateCopies,
    state_copies,
    take_first_steps,
)

_MOST_CHECKED = 5_000
"""Largest number of outcomes that are computed again; fewer pairs of states and actions repeat."""

_MOST_DRAWN = 200
"""Largest number of them whose observations are drawn again, which may take longer than a step."""

_KIND = "search for states"

_SECONDS_TO_SAVE = 60.0
"""Seconds from one writing of what was found to the next."""

_MOST_RESETS = 10
"""Number of other seeds whose first observations are compared with that of seed 0."""

_EXAMINED = 500
"""Number of states among which attributes are searched that keep changing."""


def enumerate_states(
    env: Any,
    *,
    seeds: Sequence[int] | None = None,
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
    resume: str | Path | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Find every state that actions reach from the first states of some seeds.

    Args:
        env: An environment with discrete actions and one array as observation.
        seeds: Seeds of resets. Each gives a first state, all of the same probability. The seed
            decides a layout that is drawn at a reset. By default 0 alone, with a warning if other
            seeds show another first observation.
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
        resume: File that keeps what was found, written every minute and removed at the end. If it
            exists, the search continues: it takes one action for each state in the file. It must
            have the same name, seeds, counters and horizon; the other options are not compared.
        name: Name of the game, for ``World.about``.

    Returns:
        The arguments of ``World.from_arrays``.

    Warns:
        FitWarning: If no seeds are given, and other seeds show another first observation.

    Raises:
        InputError: For other spaces, an environment that cannot be copied, is not deterministic, or
            has a time limit of its own without ``horizon``, or more states than allowed; or a file
            to resume from that is damaged, or of another search.
    """
    require_positive("most_states", most_states)
    if horizon is not None:
        require_positive("horizon", horizon)
    known = all(hasattr(env, name) for name in ("reset", "step", "action_space"))
    require(known, "an environment of Gymnasium", env)
    draws, seeds = seeds is None, (0,) if seeds is None else seeds
    require(len(seeds) >= 1, "at least one seed", seeds)
    actions = int(getattr(env.action_space, "n", 0))
    require(actions >= 1, "an environment with discrete actions", str(env.action_space))
    with own_code("an environment that can be reset and stepped"):
        take_first_steps(env, int(seeds[0]), env.action_space.start)
        env.reset(seed=int(seeds[0]))
        copies = state_copies(env, save, restore, key, counters=counters, constant=constant)
        search = _Search(env, observe, coordinates, copies, most_states, horizon is not None)
        search.begin(seeds)
        if draws:
            search.warn_of_other_starts()
    made = {
        "kind": _KIND,
        "name": name or str(env),
        "seeds": [int(seed) for seed in seeds],
        "counters": [*counters],
        "horizon": horizon,
        "actions": actions,
    }
    columns, rewards = ([], []) if resume is None else _read_outcomes(Path(resume), made)
    depth, saved = [0] * len(search.states), time.monotonic()
    title = f"states of {name or env}"
    with progress_bar(title, total=most_states, unit="states", after=2.0) as advance:
        for index in itertools.count():
            if index >= len(search.states):
                break
            if horizon is not None and depth[index] >= horizon:
                search.ended[index] = True
            if index < len(columns):
                search.find_again(index, columns[index])
            elif search.ended[index]:
                columns.append([index] * actions)
                rewards.append([0.0] * actions)
            else:
                outcomes = [search.take(index, action) for action in range(actions)]
                columns.append([after for after, _, _ in outcomes])
                rewards.append([reward for _, reward, _ in outcomes])
            depth += [depth[index] + 1] * (len(search.states) - len(depth))
            advance(1)
            if resume is not None and time.monotonic() - saved >= _SECONDS_TO_SAVE:
                found = {"next_states": np.asarray(columns), "rewards": np.asarray(rewards)}
                write_archive(Path(resume), found, made)
                saved = time.monotonic()
    if check:
        search.check(columns, rewards)
    if resume is not None:
        Path(resume).unlink(missing_ok=True)
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
        "about": {key: made[key] for key in ("name", "seeds")},
    }


def _read_outcomes(
    path: Path, made: Mapping[str, Any]
) -> tuple[list[list[int]], list[list[float]]]:
    """Read next states and rewards of the states that were followed; none without the file."""
    if not path.exists():
        return [], []
    arrays, record = read_archive(path, str(path))
    for part, expected in made.items():
        given = record.get(part)
        require(given == expected, f"a search with {part} = {expected!r} in {path}", given)
    return arrays["next_states"].tolist(), arrays["rewards"].tolist()


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

    def warn_of_other_starts(self) -> None:
        """Warn if resets of other seeds show other observations than that of seed 0.

        States may differ in what no reset clears, such as a number of episodes.
        """
        found = [self._seen(self.env.reset(seed=1 + seed)[0]) for seed in range(_MOST_RESETS)]
        others = sum(not np.array_equal(each, self.observations[0]) for each in found)
        if others:
            warn_user(
                f"{others} of {_MOST_RESETS} resets of other seeds begin elsewhere: the world "
                "begins as seed 0 alone does, and has what this start reaches; give "
                "seeds=range(100) for the starts of 100 resets, or seeds=[0] for this one"
            )

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
        # ``World.from_arrays`` refuses numbers that float32 makes one.
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

    def find_again(self, index: int, following: list[int]) -> None:
        """Take the actions by which a state's next states were found first.

        Raises:
            InputError: If they lead elsewhere.
        """
        for action, expected in enumerate(following):
            if expected >= len(self.states):
                found, _, _ = self.take(index, action)
                same = f"the next state {expected} of action {action} in state {index}, as resumed"
                require(found == expected, same, found)

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
