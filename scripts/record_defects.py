"""Plant mistakes of recording in sound records, and count which of them the fit names.

    python scripts/record_defects.py

Every record is fitted with the defaults, and its rewards are given as a task. Worlds at the end of
the tables were kept aside: no check was changed because of them. The extra ``problems`` has the
environments. ``docs/results/record-defects.md`` has the tables.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rlreps.errors import InputError, recorded_warnings
from rlreps.experiments.ours.problems import PROBLEMS, Recorded
from rlreps.report.table import Table
from rlreps.successor import Transitions, fit

STEPS = 10_000
ENVIRONMENTS = 4
"""Number of environments whose rows take turns."""
FEWEST = 20
"""A defect of ends is planted if at least so many ends have it."""
FEWEST_REWARDS = 100
"""A defect of rewards is planted if at least so many differ from the median."""

Array = npt.NDArray[Any]
Step = Callable[[Array, Any, np.random.Generator], tuple[Array, float, bool]]


# --- Worlds ---------------------------------------------------------------------------------------


class Small(gymnasium.Env[Any, Any]):
    """A small environment: a start, a step (state, action, generator) → (state, reward, ended)."""

    def __init__(self, seen: Any, actions: Any, start: Callable[..., Any], step: Step) -> None:
        self.observation_space, self.action_space = seen, actions
        self.start, self.transition = start, step
        self.state: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.start(self.np_random)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state, reward, ended = self.transition(self.state, action, self.np_random)
        return self._seen(), float(reward), bool(ended), False, {}

    def _seen(self) -> Any:
        discrete = isinstance(self.observation_space, spaces.Discrete)
        return int(self.state) if discrete else np.asarray(self.state, np.float32)


def vectors(count: int) -> spaces.Box:
    """Return the space of vectors of ``count`` numbers."""
    return spaces.Box(-np.inf, np.inf, (count,))


def sell(stock: Any, order: Any, rng: np.random.Generator) -> tuple[Any, float, bool]:
    """Order goods, sell what is asked for, and pay for what is stored."""
    held = min(20, int(stock) + 2 * int(order))
    sold = min(held, int(rng.poisson(3.0)))
    return held - sold, sold - 0.1 * held - 0.3 * int(order), False


def teleport(place: Any, way: Any, rng: np.random.Generator) -> tuple[Any, float, bool]:
    """Walk on 8 x 8 cells in which two cells lead elsewhere; the last cell ends the episode."""
    row, column = divmod(int(place), 8)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    down, right = moves[int(way) if rng.random() < 0.9 else rng.integers(4)]
    reached = 8 * int(np.clip(row + down, 0, 7)) + int(np.clip(column + right, 0, 7))
    reached = {27: 5, 44: 50}.get(reached, reached)
    return reached, float(reached == 63), reached == 63


def fill(levels: Array, pumped: Any, rng: np.random.Generator) -> tuple[Array, float, bool]:
    """Pump water into the upper of two tanks, which drains into the lower one."""
    upper, lower = levels
    drained = 0.3 * np.sqrt(upper), 0.25 * np.sqrt(lower)
    upper = np.clip(upper + 0.4 * float(np.ravel(pumped)[0]) - drained[0], 0.0, 4.0)
    lower = np.clip(lower + drained[0] - drained[1] + 0.02 * rng.normal(), 0.0, 4.0)
    return np.array([upper, lower]), -abs(lower - 2.0), False


def serve(queues: Array, served: Any, rng: np.random.Generator) -> tuple[Array, float, bool]:
    """Serve one of three queues, at which customers arrive; a queue of 15 ends the episode."""
    queues = queues + rng.poisson((0.3, 0.5, 0.7))
    queues[int(served)] = max(0.0, queues[int(served)] - 2.0)
    return queues, -float(queues.sum()), bool(queues.max() >= 15.0)


def sail(boat: Array, thrust: Any, rng: np.random.Generator) -> tuple[Array, float, bool]:
    """Push a boat (x, y, speeds) in a current; the shore at x = 1 ends the episode."""
    pushes = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
    speed = 0.9 * boat[2:] + 0.02 * np.array(pushes[int(thrust)]) + (0.002, 0.0)
    place = boat[:2] + speed
    speed[1] = -speed[1] if abs(place[1]) > 1.0 else speed[1]
    place = np.array([max(place[0], -1.0), np.clip(place[1], -1.0, 1.0)])
    return np.concatenate([place, speed]), float(place[0] >= 1.0), bool(place[0] >= 1.0)


def wear(state: Any, used: Any, rng: np.random.Generator) -> tuple[Any, float, bool]:
    """Run a machine slowly or fast, or repair it; a worn machine breaks by chance, for good."""
    worn, orders = divmod(int(state), 5)
    made = min(orders, int(used))
    worn = max(0, worn - 4) if int(used) == 0 else min(9, worn + int(rng.integers(int(used) + 1)))
    orders = min(4, orders - made + int(rng.integers(3)))
    broken = bool(rng.random() < 0.02 * max(0, worn - 5))
    return 5 * worn + orders, made - 0.2 * orders - 10.0 * broken, broken


def lift(state: Array, motor: Any, rng: np.random.Generator) -> tuple[Array, float, bool]:
    """Move a lift (place, speed) between two floors, at which people wait."""
    place, speed, below, above = state
    speed = np.clip(0.8 * speed + 0.1 * (int(motor) - 1), -0.5, 0.5)
    place = np.clip(place + 0.5 * speed, 0.0, 1.0)
    speed = 0.0 if place in (0.0, 1.0) else speed
    below = min(9.0, below + rng.poisson(0.1)) if place > 0.1 else max(0.0, below - 2.0)
    above = min(9.0, above + rng.poisson(0.15)) if place < 0.9 else max(0.0, above - 2.0)
    return np.array([place, speed, below, above]), -below - above, False


def fly(state: Array, thrust: Any, rng: np.random.Generator) -> tuple[Array, float, bool]:
    """Fly a rocket (height, place, two speeds) by thrust and tilt until it reaches the ground."""
    height, place, rise, drift = state
    power, tilt = np.ravel(thrust)
    rise += 0.1 * (0.8 * (power + 1.0) - 0.5) + 0.01 * rng.normal()
    drift = 0.95 * drift + 0.05 * tilt
    height, place = min(2.0, height + 0.2 * rise), place + 0.2 * drift
    rise = min(rise, 0.0) if height == 2.0 else rise
    landed = bool(height <= 0.0)
    return np.array([height, place, rise, drift]), -0.1 * abs(place) - 5.0 * landed, landed


def small(limit: int, *parts: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return a function that makes a small environment with a time limit."""
    return lambda: TimeLimit(Small(*parts), limit)


@dataclasses.dataclass(frozen=True)
class World:
    """A world to record.

    Attributes:
        make: Makes the environment.
        discount: γ.
        speeds: Coordinates without which the state is incomplete; empty if there are none.
        policy: What takes the steps; None takes random ones.
    """

    make: Callable[[], gymnasium.Env[Any, Any]]
    discount: float = 0.99
    speeds: tuple[int, ...] = ()
    policy: Any = None


def known(name: str, speeds: tuple[int, ...] = ()) -> World:
    """Return a world of the experiment ``defaults``."""
    problem = PROBLEMS[name]

    def make() -> gymnasium.Env[Any, Any]:
        return problem.record().env

    return World(make, problem.discount, speeds, problem.policy)


WORLDS: Mapping[str, World] = {
    "FrozenLake 8x8": known("FrozenLake 8x8"),
    "CliffWalking": known("CliffWalking"),
    "Taxi": known("Taxi"),
    "Blackjack": known("Blackjack"),
    "CartPole": known("CartPole", (1, 3)),
    "Pendulum": known("Pendulum", (2,)),
    "Acrobot": known("Acrobot", (4, 5)),
    "MountainCar": known("MountainCar", (1,)),
    "LunarLander": known("LunarLander", (2, 3, 5)),
    "MiniGrid Empty": known("MiniGrid Empty"),
    "CartPole, log": known("CartPole, log", (1, 3)),
    "Pendulum, log": known("Pendulum, log", (2,)),
    "stock": World(small(200, spaces.Discrete(21), spaces.Discrete(5), lambda rng: 10, sell), 0.95),
    "teleports": World(
        small(100, spaces.Discrete(64), spaces.Discrete(4), lambda rng: rng.integers(8), teleport),
        0.95,
    ),
    "tanks": World(
        small(150, vectors(2), spaces.Box(0.0, 1.0, (1,)), lambda r: r.uniform(0.5, 3.5, 2), fill),
        0.95,
    ),
    "queues": World(
        small(200, vectors(3), spaces.Discrete(3), lambda rng: np.zeros(3), serve), 0.95
    ),
    "boat": World(
        small(
            300,
            vectors(4),
            spaces.Discrete(5),
            lambda rng: np.append(rng.uniform(-0.5, 0.5, 2), (0.0, 0.0)),
            sail,
        ),
        0.97,
        (2, 3),
    ),
    "machine (aside)": World(
        small(150, spaces.Discrete(50), spaces.Discrete(3), lambda rng: rng.integers(25), wear),
        0.95,
    ),
    "lift (aside)": World(
        small(
            120,
            vectors(4),
            spaces.Discrete(3),
            lambda rng: np.array([rng.random(), 0.0, *rng.integers(4, size=2)]),
            lift,
        ),
        0.95,
        (1,),
    ),
    "rocket (aside)": World(
        small(
            80,
            vectors(4),
            spaces.Box(-1.0, 1.0, (2,)),
            lambda rng: np.array([1.0, *rng.uniform(-0.3, 0.3, 3)]),
            fly,
        ),
        0.95,
        (2, 3),
    ),
}


# --- Records --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Record:
    """Columns as a user has them, N rows each. ``reached`` None takes the following rows."""

    seen: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    reached: Array | None
    num_actions: int | None

    @property
    def ends(self) -> Array:
        """Tell whether a row is the last of its episode, [N]."""
        return np.asarray(self.terminated | self.truncated)

    def but(self, **columns: Any) -> "Record":
        """Return the record with other columns."""
        return dataclasses.replace(self, **columns)

    def at(self, rows: Array) -> "Record":
        """Return the record of some rows, in their order."""
        names = ("seen", "action", "reward", "terminated", "truncated", "reached")
        return self.but(**{name: getattr(self, name)[rows] for name in names})


def record(world: World, seed: int) -> Record:
    """Record ``STEPS`` steps."""
    with contextlib.closing(Recorded(world.make())) as environment:
        data = Transitions.collect(environment, steps=STEPS, policy=world.policy, seed=seed)
        columns = data.observation, data.action, np.array(environment.rewards)
    flags = data.terminated, data.truncated
    return Record(*columns, *flags, data.next_observation, data.num_actions)


def say(given: Record, discount: float) -> str:
    """Read and fit a record, and give its rewards as a task; return what was said."""
    error = ""
    with recorded_warnings() as said:
        try:
            columns = {
                "observations": given.seen,
                "actions": given.action,
                "terminals": given.terminated,
                "timeouts": given.truncated,
                "num_actions": given.num_actions,
                "next_observations": given.reached,
            }
            known = {name: value for name, value in columns.items() if value is not None}
            data = Transitions.from_dictionary(known)
            rep = fit(data, discount=discount)
            rep.task(data.next_observation, given.reward[data.kept])
        except InputError as refused:
            error = str(refused)
    return " | ".join(filter(None, [*said, error]))


# --- Defects --------------------------------------------------------------------------------------


def moved(name: str, rows: Callable[[np.random.Generator], Array]) -> Callable[..., Record | None]:
    """Return a defect that takes a column from other rows; few different rewards have none."""

    def plant(given: Record, rng: np.random.Generator) -> Record | None:
        if name == "reward" and (given.reward != np.median(given.reward)).sum() < FEWEST_REWARDS:
            return None
        return given.but(**{name: getattr(given, name)[rows(rng)]})

    return plant


def late(_: np.random.Generator) -> Array:
    """Take the row before each row."""
    return np.arange(STEPS) - 1


def early(_: np.random.Generator) -> Array:
    """Take the row after each row."""
    return (np.arange(STEPS) + 1) % STEPS


def in_any_order(rng: np.random.Generator) -> Array:
    """Take rows in any order."""
    return rng.permutation(STEPS)


def in_other_units(given: Record, _: np.random.Generator) -> Record | None:
    """Join a record to one whose observations are in other units."""
    if given.seen.ndim == 1:
        return None
    half = STEPS // 2
    cut = given.truncated.copy()
    cut[half - 1] |= not given.terminated[half - 1]
    scale = np.where(np.arange(STEPS) < half, 1.0, 2.0)[:, None]
    return given.but(seen=given.seen * scale, reached=given.reached * scale, truncated=cut)


def changed_halfway(given: Record, _: np.random.Generator) -> Record:
    """Change what actions mean in the second half of the record."""
    half, action = STEPS // 2, given.action.copy()
    if given.num_actions is None:
        changed = action.min(axis=0) + action.max(axis=0) - action
    else:
        changed = (action + 1) % given.num_actions
    action[half:] = changed[half:]
    return given.but(action=action)


def in_turn(given: Record, _: np.random.Generator) -> Record:
    """Let the rows of several environments take turns, of which no next observations are kept."""
    rows = np.arange(STEPS).reshape(ENVIRONMENTS, -1)
    cut = given.truncated.copy()
    cut[rows[:, -1]] |= ~given.terminated[rows[:, -1]]
    return given.but(truncated=cut).at(rows.T.ravel()).but(reached=None)


def twice(given: Record, _: np.random.Generator) -> Record:
    """Join two copies of the first half of the record."""
    half = given.at(np.arange(STEPS // 2))
    half.truncated[-1] = not half.terminated[-1]
    return half.at(np.tile(np.arange(STEPS // 2), 2))


def next_starts(given: Record) -> Array:
    """Return the next row's observation for each row, the last row's own at its end, [N, ...]."""
    return np.append(given.seen[1:], given.reached[-1:], axis=0)


def with_resets(given: Record, rng: np.random.Generator) -> Record | None:
    """Keep the rows in which a vector environment starts its next episode."""
    ends = np.flatnonzero(given.ends[:-1])
    if len(ends) < FEWEST:
        return None
    rows = np.insert(np.arange(STEPS), ends + 1, ends)
    reset = np.append(False, rows[1:] == rows[:-1])
    found, after = given.at(rows), next_starts(given)[rows]
    wide = reset.reshape(-1, *[1] * (given.seen.ndim - 1))
    return found.but(
        seen=np.where(wide, found.reached, found.seen),
        reached=np.where(wide, after, found.reached),
        action=np.where(
            reset.reshape(-1, *[1] * (given.action.ndim - 1)),
            given.action[rng.integers(STEPS, size=len(rows))],
            found.action,
        ),
        reward=np.where(reset, 0.0, found.reward),
        terminated=found.terminated & ~reset,
        truncated=found.truncated & ~reset,
    )


def without(given: Record, _: np.random.Generator, speeds: tuple[int, ...]) -> Record | None:
    """Hide the speeds."""
    if not speeds:
        return None
    kept = [index for index in range(given.seen.shape[1]) if index not in speeds]
    return given.but(seen=given.seen[:, kept], reached=given.reached[:, kept])


def ends_as(name: str) -> Callable[..., Record | None]:
    """Return a defect that marks all ends as terminations, or as cuts."""
    other = {"terminated": "truncated", "truncated": "terminated"}[name]

    def plant(given: Record, _: np.random.Generator) -> Record | None:
        if getattr(given, other).sum() < FEWEST:
            return None
        return given.but(**{name: given.ends, other: np.zeros(STEPS, np.bool_)})

    return plant


def ending(change: Callable[[Record], Record]) -> Callable[..., Record | None]:
    """Return a defect of records with many ends."""
    return lambda given, _: change(given) if given.ends.sum() >= FEWEST else None


NEVER = np.zeros(STEPS, np.bool_)
ACTIONS = "the action of the row {} predicts the next observation better"
REWARDS = "rewards seem to be those of the rows {}"
UNMARKED = "ends are not marked", "go to the first observation of the next episode"

DEFECTS: Mapping[str, tuple[tuple[str, ...], Callable[..., Record | None]]] = {
    "actions one row late": ((ACTIONS.format("after"),), moved("action", late)),
    "actions one row early": ((ACTIONS.format("before"),), moved("action", early)),
    "actions of other rows": (("the actions tell nothing",), moved("action", in_any_order)),
    "actions change their meaning halfway": (("the two halves of the record",), changed_halfway),
    "rewards one row late": ((REWARDS.format("before"),), moved("reward", late)),
    "rewards one row early": ((REWARDS.format("after"),), moved("reward", early)),
    "rewards of other rows": (
        ("nothing measurable of the rewards",),
        moved("reward", in_any_order),
    ),
    "speeds hidden": (("observations lack a part of the state",), without),
    "observations in other units halfway": (("the two halves of the record",), in_other_units),
    "ends not marked": (
        UNMARKED,
        ending(lambda r: r.but(terminated=NEVER, truncated=NEVER, reached=None)),
    ),
    "ends mark first rows": (
        ("if ends mark the first rows",),
        ending(
            lambda r: r.but(
                terminated=np.roll(r.terminated, 1), truncated=np.roll(r.truncated, 1), reached=None
            )
        ),
    ),
    "last observations lost": (UNMARKED, ending(lambda r: r.but(reached=next_starts(r)))),
    "rows of resets kept": (
        ("rows start in the state in which the row before ended",),
        with_resets,
    ),
    "time limits marked as terminations": (("a time limit ended them",), ends_as("terminated")),
    "terminations marked as cuts": (("in which no other rows go on",), ends_as("truncated")),
    "recorded twice": (
        ("in stretches of",),
        twice,
    ),
    "environments take turns": (("take turns",), in_turn),
    "rows in any order": (
        ("not in order", "a jump after row"),
        lambda r, rng: r.at(rng.permutation(STEPS)),
    ),
}


def planted(given: Record, world: World, rng: np.random.Generator) -> Iterator[tuple[str, Record]]:
    """Yield the name of every defect that the world can have, and the record that has it."""
    for name, (_, plant) in DEFECTS.items():
        change = partial(plant, speeds=world.speeds) if plant is without else plant
        if (found := change(given, rng)) is not None:
            yield name, found


def names_of(said: str) -> list[str]:
    """List the defects whose words occur in what was said."""
    return [name for name, (words, _) in DEFECTS.items() if any(word in said for word in words)]


def main() -> None:
    """Print both tables."""
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    alarms = []
    for name, world in WORLDS.items():
        given = record(world, seed=0)
        for words, sound in (("", given), (", no next observations", given.but(reached=None))):
            said = say(sound, world.discount)
            alarms.append((name + words, ", ".join(names_of(said)) or "-", said or "-"))
        usual = alarms[-2][2]
        for defect, bad in planted(given, world, np.random.default_rng(0)):
            said = say(bad, world.discount)
            named, other = defect in names_of(said), said not in ("", usual)
            found[defect][name] = "named" if named else "another warning" if other else "silent"
    hows, rows = ("named", "another warning", "silent"), []
    for defect, by in found.items():
        counts = collections.Counter(by.values())
        silent = ", ".join(name for name, how in by.items() if how == "silent")
        rows.append((defect, len(by), *(counts[how] for how in hows), silent or "-"))
    for place in ("all worlds", "aside"):
        counts = collections.Counter(
            how
            for by in found.values()
            for name, how in by.items()
            if place == "all worlds" or place in name
        )
        words = ", ".join(f"{counts[how]} {how}" for how in hows)
        print(f"{place}: {counts.total()} planted, {words}")
    Table(("planted", "worlds", *hows, "silent in"), rows, "Planted mistakes").print()
    wrong = sum(names != "-" for _, names, _ in alarms)
    caption = f"False alarms: {wrong} of {len(alarms)} sound records"
    Table(("sound record", "named", "said"), alarms, caption).print()


if __name__ == "__main__":
    main()
