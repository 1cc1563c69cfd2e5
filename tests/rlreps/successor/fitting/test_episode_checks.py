"""Ends of episodes that are not what they are said to be are told, and sound ones are not."""

import numpy as np
import pytest

from rlreps.errors import FitWarning, InputError
from rlreps.successor.fitting.transitions import Transitions

NAMES = ("observation", "action", "next_observation", "terminated", "truncated")


def glide(resets="own", limit=None, walls=False):
    """Record a point that glides with friction, 2,000 rows.

    Args:
        resets: What happens after ``limit`` rows, or at a wall: "own" (the next row starts
            elsewhere), "next-step", "same-step" or "none".
    """
    rng, rows = np.random.default_rng(0), []

    def draw():
        return np.append(rng.uniform(-1.0, 1.0), 0.0)

    state, time = draw(), 0
    while len(rows) < 2_000:
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


def test_rows_of_environments_that_take_turns_are_told():
    given = glide(limit=50)
    turns = {name: np.stack(np.split(column, 4), axis=1) for name, column in given.items()}
    turns = {name: column.reshape(2_000, *column.shape[2:]) for name, column in turns.items()}
    with pytest.raises(InputError, match="jump after row 0 of 2000: rows of 4 environments take"):
        Transitions(**turns)
    with pytest.warns(FitWarning, match=r"rows of 4 environments .*\.reshape\(-1, 4, "):
        Transitions(**{**turns, "truncated": None})
    ordered = {
        name: column.reshape(-1, 4, *column.shape[1:]).swapaxes(0, 1).reshape(column.shape)
        for name, column in turns.items()
    }
    np.testing.assert_array_equal(
        Transitions(**ordered).observation, np.float32(given["observation"])
    )
