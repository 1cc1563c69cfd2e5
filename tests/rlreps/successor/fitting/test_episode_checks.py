"""Ends of episodes that are not what they are said to be are told, and sound ones are not."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from rlreps.errors import FitWarning, InputError, recorded_warnings
from rlreps.successor.fitting.transitions import Transitions, as_transitions

NAMES = ("observation", "action", "next_observation", "terminated", "truncated")


def glide(resets="own", limit=None, walls=False, size=2_000):
    """Record a point that glides with friction, ``size`` rows, or one more.

    Args:
        resets: What happens after ``limit`` rows, or at a wall: "own" (the next row starts
            elsewhere), "next-step", "same-step" or "none".
    """
    rng, rows = np.random.default_rng(0), []

    def draw():
        return np.append(rng.uniform(-1.0, 1.0), 0.0)

    state, time = draw(), 0
    while len(rows) < size:
        force = rng.integers(2)
        speed = 0.9 * state[1] + 0.1 * (2 * force - 1)
        after, time = np.array([state[0] + 0.1 * speed, speed]), time + 1
        over, cut = walls and abs(after[0]) > 1.0, time == limit
        begins = (over or cut) and resets != "none"
        reached = draw() if begins and resets == "same-step" else after
        rows.append((state, force, reached, over, cut))
        if begins and resets == "next-step":
            rows.append((reached, force, draw(), False, False))
        state = draw() if begins and resets == "own" else rows[-1][2]
        time = 0 if over or cut else time
    return dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))


def counted(columns):
    """Number the places of a record in steps of 0.05."""
    places = {name: columns[name][:, 0] for name in ("observation", "next_observation")}
    return {**columns, **{name: ((x + 9.0) / 0.05).astype(int) for name, x in places.items()}}


def lake(resets):
    """Record random steps on a line of 9 places from the middle, of which both ends terminate."""
    rng, rows, place = np.random.default_rng(0), [], 4
    while len(rows) < 3_000:
        after = place + 2 * int(action := rng.integers(2)) - 1
        over = after in (0, 8)
        rows.append((place, action, 4 if over and resets == "same-step" else after, over, False))
        if over and resets == "next-step":
            rows.append((after, action, 4, False, False))
        place = 4 if over else after
    return dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize("resets", ["next-step", "same-step"])
def test_resets_show_by_the_first_observation_if_no_row_is_predicted(resets):
    # Pictures of eight random pixels, of which the first four tell an episode's time.
    rng = np.random.default_rng(0)
    rows, state = [], np.zeros(8)
    while len(rows) < 2_000:
        after = np.append(state[:4], rng.integers(2, size=4))
        after[:4] = (after[:4] + rng.integers(2, size=4)) % 2
        over = after[:2].sum() == 2 and rng.random() < 0.5
        begin = over and resets == "same-step"
        rows.append((state, 0, np.zeros(8) if begin else after, over, False))
        if over and resets == "next-step":
            rows.append((after, 1, np.zeros(8), False, False))
        state = np.zeros(8) if over else after
    columns = dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))
    if resets == "same-step":
        assert len(Transitions(**columns)) == len(rows)
    else:
        with pytest.warns(FitWarning, match="rows start in the state in which the row before"):
            assert len(Transitions(**columns)) == len(rows) - columns["terminated"][:-1].sum()


def test_goals_from_which_the_next_episode_goes_on_hold_no_resets():
    # A walk on 7 x 7 cells to the middle, from which the next episode starts.
    rng, rows, place = np.random.default_rng(0), [], np.zeros(2, int)
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    while len(rows) < 4_000:
        action = rng.integers(4)
        reached = np.clip(place + moves[action], 0, 6)
        rows.append((7 * place[0] + place[1], action, 7 * reached[0] + reached[1]))
        place = reached
    before, action, after = map(np.array, zip(*rows, strict=True))
    ends = after == 24
    assert len(as_transitions((before, action, after, ends, ends & False))) == 4_000
    data = {"observations": before, "actions": action, "terminals": ends}
    with pytest.warns(FitWarning, match="rows end an episode"):
        assert len(Transitions.from_dictionary(data)) == 4_000 - ends[:-1].sum() - 1


def test_starts_that_happen_to_be_the_last_observation_hold_no_resets():
    # Games of a step or two: a hand of 20 kinds, of which one is drawn anew or kept.
    rng, rows = np.random.default_rng(0), []
    while len(rows) < 4_000:
        hand, again = rng.integers(10), True
        while again:
            action = rng.integers(2)
            reached = hand + action * rng.integers(1, 6)
            again = action == 1 and reached < 12
            rows.append((hand, action, reached, not again, False))
            hand = reached
    columns = dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))
    assert len(Transitions(**columns)) == len(rows)


@pytest.mark.parametrize("size", [300, 1_200])
def test_contexts_that_tell_nothing_do_not_take_turns(size):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        seen = rng.standard_t(3, size=(size, 1 + seed % 3))
        flags = np.zeros(size, bool)
        data = {"observations": seen, "actions": rng.integers(2, size=size), "terminals": flags}
        assert len(Transitions.from_dictionary(data)) == size - 1  # Warnings are errors here.


def test_resets_of_short_records_are_recognised():
    given = glide("next-step", walls=True, size=80)
    with pytest.warns(FitWarning, match="rows start in the state in which the row before"):
        assert len(Transitions(**given)) == 80 - given["terminated"][:-1].sum()


def test_first_rows_from_starts_that_are_close_together_are_kept_if_ends_jump():
    # Walks from about 0 to 5, recorded from the middle of one, with same-step autoreset.
    rng, rows, state = np.random.default_rng(1), [], 2.5
    while len(rows) < 2_000:
        after = state + rng.uniform(0.0, 0.5)
        over = after > 5.0
        reached = 0.001 * rng.integers(3) if over else after
        rows.append(([state], rng.integers(2), [reached], over, False))
        state = reached
    columns = dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))
    with pytest.warns(FitWarning, match="go to the first observation of the next episode"):
        assert len(Transitions(**columns)) == len(rows)


@pytest.mark.parametrize("seen", [dict, counted])
@pytest.mark.parametrize("walls", [False, True])
def test_resets_are_recognised_by_where_they_go(seen, walls):
    given = seen(glide("next-step", limit=50, walls=walls))
    resets = np.roll(given["terminated"] | given["truncated"], 1)
    assert resets[1:].sum() > 20
    with pytest.warns(FitWarning, match=f"^{resets[1:].sum()} of "):
        data = Transitions(**given)
    np.testing.assert_array_equal(data.kept, np.flatnonzero(~resets))
    np.testing.assert_array_equal(data.action, given["action"][data.kept])
    for part in data.split(0.2, 0):
        np.testing.assert_array_equal(
            part.next_observation, data.next_observation[np.isin(data.kept, part.kept)]
        )


def test_resets_after_states_that_are_only_reached_at_ends_are_recognised():
    given = lake("next-step")
    given["truncated"][-1] = True
    resets = np.append(False, given["terminated"][:-1])
    # One copy more, whose first episode terminates at once: its end has no reset.
    more = {
        name: np.append(column, column[given["terminated"]][:1]) for name, column in given.items()
    }
    for columns in (given, more):
        with pytest.warns(FitWarning, match=f"^{resets.sum()} of "):
            Transitions(**columns)
    assert len(Transitions(**lake("own"))) == 3_000


@pytest.mark.parametrize("seen", [dict, counted])
def test_ends_that_go_to_the_next_start_are_warned_of(seen):
    records = [seen(glide("same-step", limit=50)), seen(glide("same-step", walls=True))]
    for given in (*records, lake("same-step")):
        with pytest.warns(FitWarning, match="go to the first observation of the next episode"):
            assert len(Transitions(**given)) == len(given["action"])
    # Silent: a log that goes on after its cuts.
    assert len(Transitions(**seen(glide("none", limit=50)))) == 2_000


@pytest.mark.parametrize("seen", [dict, counted])
def test_time_limits_that_are_marked_as_terminations_are_warned_of(seen):
    given = seen(glide(limit=50, walls=True))
    Transitions(**given)
    over = given["terminated"] | given["truncated"]
    with pytest.warns(FitWarning, match=r"\d+ episodes terminate after exactly 50 rows"):
        Transitions(**{**given, "terminated": over, "truncated": None})
    # Silent: a walk of 20 rows to a place where no episode goes on.
    places = np.tile(np.arange(20.0), 20)[:, None] + 0.5
    ends = {"observation": places, "next_observation": places + 1.0, "action": np.arange(400) % 2}
    Transitions(**seen({**ends, "terminated": places[:, 0] == 19.5}))


def test_cuts_in_a_large_space_of_indices_are_no_terminal_states():
    # Walks on 100,000 places that hardly return, from anywhere, cut by chance.
    rng = np.random.default_rng(0)
    cut = rng.random(10_000) < 0.02
    moves = np.where(np.roll(cut, 1), rng.integers(100_000, size=10_000), 0)
    moves += rng.integers(1, 100, size=10_000)
    after = np.cumsum(moves) % 100_000
    before = (after - rng.integers(1, 100, size=10_000)) % 100_000
    before[1:] = np.where(cut[:-1], before[1:], after[:-1])
    action = rng.integers(2, size=10_000)
    given = (before, action, after, cut & False, cut)
    assert len(as_transitions(given)) == 10_000  # Warnings are errors here.


@pytest.mark.parametrize("rows", [2_000, 60_000])
def test_time_limits_are_told_in_long_records_too(rows):
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(rows // 20, 21, 2))
    for time in range(1, 21):
        steps[:, time] += 0.5 * steps[:, time - 1]
    before, after = (part.reshape(-1, 2) for part in (steps[:, :-1], steps[:, 1:]))
    over = np.arange(1, rows + 1) % 20 == 0
    with pytest.warns(FitWarning, match=f"{rows // 20:,} episodes terminate after exactly 20 rows"):
        as_transitions((before, rng.integers(2, size=rows), after, over))
    # Silent: a clock in the observation, deaths at random beside a time limit that is marked.
    clock = np.tile(np.arange(21.0), (rows // 20, 1))[..., None]
    timed = np.concatenate([steps, np.repeat(steps, 10, axis=2), clock], axis=2)
    before, after = (part.reshape(-1, 23) for part in (timed[:, :-1], timed[:, 1:]))
    as_transitions((before, rng.integers(2, size=rows), after, over))
    before, after = before[:, :2], after[:, :2]
    deaths = rng.random(rows) < 0.01
    as_transitions((before, rng.integers(2, size=rows), after, over & deaths, over & ~deaths))


def test_ends_where_the_next_episode_starts_by_right_are_kept():
    # A walk on a ring that ends by chance, and goes on where it ended.
    rng = np.random.default_rng(0)
    places = np.cumsum(2 * rng.integers(2, size=4_001) - 1) % 30
    over = rng.random(4_000) < 0.04
    over[1:] &= ~over[:-1]
    assert len(as_transitions((places[:-1], places[1:] % 2, places[1:], over))) == 4_000


@pytest.mark.parametrize("vectors", [False, True])
def test_terminations_that_are_marked_as_cuts_are_warned_of(vectors):
    given = lake("own")
    if vectors:
        for name in ("observation", "next_observation"):
            given[name] = given[name][:, None] + 0.5
    over = given.pop("terminated")
    with pytest.warns(FitWarning, match="of the cuts reach states in which no other rows go on"):
        Transitions(**{**given, "terminated": np.zeros_like(over), "truncated": over})
    # Silent: a record that was cut by chance.
    given = glide("none") if vectors else counted(glide("none"))
    chance = np.random.default_rng(0).random(2_000) < 0.03
    Transitions(**{**given, "truncated": chance})


def test_ends_that_are_not_marked_are_told():
    # Two numbers that grow, from about 0, for 50 rows.
    rng = np.random.default_rng(0)
    steps = np.concatenate(
        [0.1 * rng.normal(size=(60, 1, 2)), rng.uniform(size=(60, 50, 2))], axis=1
    )
    seen = np.cumsum(steps, axis=1)
    wrapped = np.column_stack([np.cumsum(steps[..., 0]) % 6.0, rng.normal(size=60 * 51)])
    none = np.zeros(60 * 51 - 1, bool)
    for states, told in ((seen.reshape(-1, 2), True), (wrapped, False)):
        given = (states[:-1], np.arange(len(none)) % 2, states[1:], none)
        if told:
            with pytest.warns(FitWarning, match="^5[0-9] rows inside .* their ends are not marked"):
                as_transitions(given)
        else:
            as_transitions(given)
    ends = np.arange(1, 60 * 50 + 1) % 50 == 0
    before, after = (part.reshape(-1, 2) for part in (seen[:, :-1], seen[:, 1:]))
    as_transitions((before, np.arange(len(ends)) % 2, after, ends & False, ends))


def test_rows_of_environments_that_take_turns_are_told():
    given = glide(limit=50)
    turns = {name: np.stack(np.split(column, 4), axis=1) for name, column in given.items()}
    turns = {name: column.reshape(2_000, *column.shape[2:]) for name, column in turns.items()}
    with pytest.raises(InputError, match="jump after row 0 of 2000: rows of 4 environments take"):
        Transitions(**turns)
    with pytest.warns(FitWarning, match=r"rows of 4 environments .*\.reshape\(-1, 4, "):
        Transitions(**{**turns, "truncated": None})
    with pytest.warns(FitWarning, match="without the last 3 rows$"):
        Transitions(**{name: column[:-1] for name, column in turns.items()} | {"truncated": None})
    ordered = {
        name: column.reshape(-1, 4, *column.shape[1:]).swapaxes(0, 1).reshape(column.shape)
        for name, column in turns.items()
    }
    np.testing.assert_array_equal(
        Transitions(**ordered).observation, np.float32(given["observation"])
    )


@pytest.mark.parametrize("marked", [False, True])
def test_ends_before_starts_anywhere_are_told_if_they_are_not_marked(marked):
    # Two tanks that leak, from levels anywhere; every 50 rows they are filled anew.
    rng, rows, level = np.random.default_rng(0), [], np.ones(2)
    for row in range(3_000):
        after = level * (0.98, 0.95) + 0.05 * rng.uniform(size=2)
        end = (row + 1) % 50 == 0
        start = rng.uniform(size=2)
        rows.append((level, row % 2, after if marked or not end else start, False, marked and end))
        level = start if end else after
    columns = dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))
    with recorded_warnings() as said:
        Transitions(**columns)
    assert any("ends are not marked" in each for each in said) == (not marked)


def test_jumps_that_depend_on_where_they_start_are_no_starts():
    # A ball whose speed turns at walls.
    rng, rows, state = np.random.default_rng(0), [], np.array([0.5, 0.02, 0.2, 0.015])
    for row in range(3_000):
        noise = 1e-3 * rng.normal(size=4) * (1.0, 0.1, 1.0, 0.1)
        after = 0.999 * state + (state[1], 0.0, state[3], 0.0) + noise
        walls = (after[::2] < 0.0) | (after[::2] > 1.0)
        after[1::2] *= np.where(walls, -rng.uniform(0.9, 1.1, size=2), 1.0)
        after[::2] = np.clip(after[::2], 0.0, 1.0)
        rows.append((state, row % 2, after, False, False))
        state = after
    columns = dict(zip(NAMES, map(np.array, zip(*rows, strict=True)), strict=True))
    assert len(Transitions(**columns)) == 3_000  # Warnings are errors here.


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("copies", [1, 4])
def test_turns_are_told_if_no_next_observations_were_recorded(copies, indices):
    # Walks on a line of 30 places in episodes of 25 rows, at other times in each copy.
    rng = np.random.default_rng(0)
    moves = rng.choice([-1, 1], size=(copies, 2_000 // copies))
    ends = (np.arange(moves.shape[1]) + 7 * np.arange(copies)[:, None]) % 25 == 0
    places = np.zeros_like(moves)
    for time in range(1, moves.shape[1]):
        start = rng.integers(30, size=copies)
        moved = np.clip(places[:, time - 1] + moves[:, time], 0, 29)
        places[:, time] = np.where(ends[:, time - 1], start, moved)
    seen, over = places.T.reshape(-1), ends.T.reshape(-1)
    states = seen if indices else seen[:, None] + 0.1 * rng.normal(size=(len(seen), 1))
    data = {"observations": states, "actions": moves.T.reshape(-1) // 2 + 1, "timeouts": over}
    with recorded_warnings() as said:
        Transitions.from_dictionary(data)
    assert any(f"rows of {copies} environments take turns" in each for each in said) == (copies > 1)


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("late", [0, 1])
def test_ends_that_mark_first_rows_are_told(late, indices):
    # A walk of 20 rows from about 0, of steps up to 1.
    rng = np.random.default_rng(0)
    steps = np.concatenate([rng.uniform(size=(100, 1)), rng.uniform(size=(100, 19))], axis=1)
    seen = np.cumsum(steps, axis=1).reshape(-1, 1)
    states = np.round(2.0 * seen[:, 0]).astype(int) if indices else seen
    ends = np.arange(2_000) % 20 == (19 + late) % 20
    ends[0] = False
    data = {"observations": states, "actions": np.arange(2_000) % 2, "timeouts": ends}
    with recorded_warnings() as said:
        Transitions.from_dictionary(data)
    assert any("if ends mark the first rows" in each for each in said) == bool(late)


class Line(gymnasium.Env):
    """Six places; the last one terminates, and with a number the step of this number is a cut."""

    observation_space, action_space = gymnasium.spaces.Discrete(6), gymnasium.spaces.Discrete(2)

    def __init__(self, first=0, limit=None):
        self.first, self.limit = first, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.first, 0
        return self.place, {}

    def step(self, action):
        self.place = int(np.clip(self.place + 2 * action - 1, 0, 5))
        self.time += 1
        return self.place, 0.0, self.place == 5, self.time == self.limit, {}


def stepped(copies, steps, **options):
    """Record copies with next-step autoreset; return columns [copy, time] and which rows reset."""
    environments = gymnasium.vector.SyncVectorEnv([lambda: Line(**options)] * copies)
    environments.action_space.seed(0)
    seen, rows = environments.reset(seed=0)[0], []
    for _ in range(steps):
        action = environments.action_space.sample()
        following, _, *ends, _ = environments.step(action)
        rows.append((seen, action, following, *ends))
        seen = following
    found = [np.swapaxes(np.array(column), 0, 1) for column in zip(*rows, strict=True)]
    found[4][:, -1] = True
    return found, np.pad(found[3] | found[4], ((0, 0), (1, 0)))[:, :-1]


@pytest.mark.parametrize(("copies", "limit"), [(1, None), (5, None), (3, 12)])
def test_rows_in_which_a_vector_environment_resets_are_left_out(copies, limit):
    found, resets = stepped(copies, 121, limit=limit)
    assert (found[0][resets] == (found[2][np.roll(resets, -1, axis=1)])).all()
    expected = as_transitions([column[~resets] for column in found])
    with pytest.warns(FitWarning, match=f"{resets.sum()} of {121 * copies} rows start in the"):
        data = as_transitions([column.reshape(-1) for column in found])
    for name in ("observation", "action", "next_observation", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name), strict=True)
    assert not (data.observation == 5).any()
    # Silent: nothing is left to leave out.
    dataclasses.replace(data)


def test_autoreset_says_whether_such_rows_are_left_out(tmp_path):
    # Every episode starts where the last one ended: 0 1 2, 3 4 5, 0 1 2 and so on.
    seen = np.array([0, 1, 2, 3, 4, 5] * 17)
    reached = np.roll(seen, -1)
    names = ("observation", "action", "next_observation", "terminated", "truncated")
    tour = dict(zip(names, (seen, seen % 2, reached, np.isin(reached, (0, 3))), strict=False))
    assert len(Transitions(**tour, autoreset=True)) == 69
    kept = Transitions(**tour)
    path = kept.to_npz(tmp_path / "tour.npz")
    assert len(kept) == len(Transitions.from_dictionary(np.load(path))) == 102
    # Here, resets make moves that other rows make as well.
    found, resets = stepped(2, 40, first=2, limit=3)
    cut = {name: column.reshape(-1) for name, column in zip(names, found, strict=True)}
    cut["truncated"] |= cut.pop("terminated")
    cut["terminated"] = np.zeros(80, bool)
    assert len(Transitions(**cut)) == 80
    assert len(Transitions(**cut, autoreset=True)) == 80 - resets.sum() < 70


def test_a_tour_that_starts_where_episodes_end_is_kept():
    # Every episode starts where all of them end.
    tour = Transitions.collect(Line(first=5), steps=200, policy=lambda seen, _: int(seen != 5))
    assert (tour.terminated.sum(), len(tour)) == (100, 200)


def assert_same(found, expected):
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


ENDS = [{"limit": 50}, {"walls": True, "size": 8_000}, {"limit": 50, "walls": True}]


def without_next(given):
    names = {"observation": "observations", "action": "actions"}
    names |= {"terminated": "terminals", "truncated": "timeouts"}
    return {name: given[column] for column, name in names.items()}


@pytest.mark.parametrize("seen", [dict, counted])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.filterwarnings("ignore:.* of the cuts reach states")  # Ends are left out.
def test_resets_are_recognised_without_next_observations(seen, ends):
    given = seen(glide("next-step", **ends))
    after = np.append(False, (given["terminated"] | given["truncated"])[:-1])
    kept = {name: column[~after] for name, column in given.items()}
    whole = Transitions(**kept, autoreset=False)
    last = len(whole) - 1 if after[-1] else -1
    known = Transitions(**{name: column[:last] for name, column in kept.items()}, autoreset=False)
    data = without_next(given)
    with pytest.warns(FitWarning, match="rows after ends of episodes go where no other rows"):
        assert_same(Transitions.from_dictionary(data), known)
    # Silent.
    found = Transitions.from_dictionary({**data, "autoreset": True})
    assert_same(found, known)
    np.testing.assert_array_equal(given["action"][found.kept], found.action)
    final = [data["observations"], given["next_observation"][-1:]]
    one_more = {**data, "observations": np.concatenate(final), "autoreset": True}
    assert_same(Transitions.from_dictionary(one_more), whole)
    with pytest.warns(FitWarning, match="rows end an episode"):
        read = Transitions.from_dictionary({**data, "autoreset": False})
    assert not read.terminated.any()


@pytest.mark.parametrize("seen", [dict, counted])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.filterwarnings("ignore:.* of the cuts reach states")  # Ends are left out.
def test_first_rows_of_episodes_are_no_resets_without_next_observations(seen, ends):
    given = seen(glide("own", **ends))
    over = given["terminated"] | given["truncated"]
    with pytest.warns(FitWarning, match=f"^{over[:-1].sum()} of .* rows end an episode"):
        data = Transitions.from_dictionary(without_next(given))
    over[-1] = True
    np.testing.assert_array_equal(data.kept, np.flatnonzero(~over))
    for name in ("observation", "action", "next_observation"):
        expected = given[name][~over].astype(getattr(data, name).dtype)
        np.testing.assert_array_equal(getattr(data, name), expected)
    np.testing.assert_array_equal(data.truncated, np.append(over[1:], True)[~over])


@pytest.mark.parametrize("copies", [1, 5])
def test_resets_from_terminal_states_are_recognised_without_next_observations(copies):
    columns, resets = stepped(copies, 600)
    names = ("observations", "actions", "next", "terminals", "timeouts")
    given = dict(zip(names, (each.reshape(-1) for each in columns), strict=True))
    following, resets = given.pop("next"), resets.reshape(-1)
    with pytest.warns(FitWarning, match="rows after ends of episodes"):
        data = Transitions.from_dictionary(given)
    # One row may be wrong where another copy's record starts, and the last row is unknown.
    assert abs(len(data) - (~resets).sum()) <= copies
    assert abs(int(data.terminated.sum()) - int(given["terminals"].sum())) <= copies
    assert (data.next_observation[data.terminated] == 5).mean() > 0.95
    assert not (data.observation == 5).any()
    # The same episodes one after another: 5 is never left, and where it led to is unknown.
    steps = {name: column[~resets] for name, column in given.items()}
    with pytest.warns(FitWarning, match="rows end an episode"):
        data = Transitions.from_dictionary(steps)
    assert 5 not in (data.observation.max(), data.next_observation.max())
    assert (following[~resets] == 5).sum() > 20


@pytest.mark.parametrize(("states", "episodes"), [(4, 100), (100, 100), (40, 1_000)])
def test_starts_to_which_no_row_returns_are_no_terminal_states(states, episodes):
    # An episode is a start that never returns, then 100, 101 and 102.
    starts = np.arange(episodes) % states
    later = np.full((3, episodes), [[100], [101], [102]])
    seen = np.stack([starts, *later], axis=1).reshape(-1)
    data = {"observations": seen, "actions": seen % 2, "terminals": seen == 102}
    with pytest.warns(FitWarning, match=f"^{episodes - 1:,} of {4 * episodes:,} rows end an"):
        assert len(Transitions.from_dictionary(data)) == 3 * episodes


def test_a_first_start_that_never_returns_is_not_taken_for_a_vector_environment():
    # Walks on a ring from places 2 and 5, after one from elsewhere.
    rng = np.random.default_rng(0)
    moves = 2 * rng.integers(2, size=(100, 4)) - 1
    places = np.cumsum(np.column_stack([rng.choice([2, 5], size=100), moves]), axis=1) % 10
    places[0, 0] = 10
    ends = np.tile(np.arange(5) == 4, 100)
    seen = places.reshape(-1)
    data = {"observations": seen, "actions": seen % 2, "terminals": ends}
    with pytest.warns(FitWarning, match="^99 of 500 rows end an episode"):
        assert len(Transitions.from_dictionary(data)) == 400


@pytest.mark.parametrize("seen", [dict, counted])
def test_records_that_go_on_and_far_starts_hold_no_resets(seen):
    on = without_next(seen(glide("none", limit=50)))
    # Each episode starts at 8, from where its first row jumps, as the last row before it does.
    given = glide("own", limit=50)
    starts = np.append(0, np.flatnonzero(given["truncated"][:-1]) + 1)
    launched = {name: np.insert(given[name], starts, 0, axis=0) for name in given}
    launched["observation"][starts + np.arange(len(starts))] = [8.0, 0.0]
    for data in (on, without_next(seen(launched))):
        with pytest.warns(FitWarning, match="rows end an episode"):
            read = Transitions.from_dictionary(data)
        assert len(read) == len(data["actions"]) - data["timeouts"][:-1].sum() - 1
