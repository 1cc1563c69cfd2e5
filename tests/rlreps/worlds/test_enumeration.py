"""Worlds made from environments: every state once, references kept, bad environments refused."""

from collections import OrderedDict

import gymnasium
import numpy as np
import pytest

from rlreps.errors import FitWarning, InputError
from rlreps.worlds import World
from rlreps.worlds.copies import canonical
from rlreps.worlds.enumeration import spread


class Door:
    def __init__(self):
        self.is_open = False


class Corridor(gymnasium.Env):
    """Five places in a row; action 2 opens the door at place 2, which ends the game and pays."""

    observation_space = gymnasium.spaces.Box(0, 4, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, **parts):
        vars(self).update(parts)
        self.cells = [None, None, Door(), None, None]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cells = [None, None, Door(), None, None]
        self.door, self.place, self.step_count = self.cells[2], 0, 0
        return self._seen(), {}

    def _seen(self):
        return np.array([self.place], np.float32)

    def step(self, action):
        self.step_count += 1
        if action == 2 and self.cells[self.place] is not None:
            self.cells[self.place].is_open = True
        self.place = int(np.clip(self.place + (1, -1, 0)[action], 0, 4))
        ended = self.door.is_open
        return self._seen(), float(ended), ended, False, {}


def test_enumeration_finds_each_state_once_and_keeps_references_between_objects():
    world = World.enumerate(gymnasium.wrappers.TimeLimit(Corridor(), 3))
    assert world.num_states == 6
    assert world.next_states.tolist()[0] == [1, 0, 0]
    (pays,) = np.argwhere(world.rewards)
    # The door that ends the game is the one in the row of cells.
    assert world.observations[pays[0]] == 2.0
    assert pays[1] == 2
    assert world.terminal[world.next_states[tuple(pays)]]
    # The end looks as the place before it.
    assert world.num_aliased == 2


class Bell(Corridor):
    """Action 2 ends the game and changes nothing."""

    def step(self, action):
        self.place = (self.place + (action == 1)) % 3
        return self._seen(), 0.0, action == 2, False, {}


def test_an_end_that_changes_nothing_is_a_state_of_its_own():
    world = World.enumerate(Bell())
    assert (world.num_states, world.terminal.sum(), world.num_aliased) == (6, 3, 6)
    assert world.terminal[world.next_states[~world.terminal, 2]].all()
    assert not world.terminal[world.next_states[~world.terminal, :2]].any()


def test_each_seed_gives_a_first_state_and_a_horizon_ends_episodes():
    starts = []

    class Somewhere(Corridor):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = int(self.np_random.integers(5))
            starts.append(self.place)
            return self._seen(), {}

    world = World.enumerate(Somewhere(), seeds=range(8), most_states=6)
    counts = np.bincount(starts[-8:], minlength=5) / 8.0  # Resets before them only warm up.
    found = np.zeros(5)
    np.add.at(found, world.observations[:, 0].astype(int), world.start)
    np.testing.assert_allclose(found, counts)
    for horizon, said in ((0, "horizon >= 1, got 0"), (1.5, "horizon to be an integer, got 1.5")):
        with pytest.raises(InputError, match=said):
            World.enumerate(Corridor(), horizon=horizon)
    short = World.enumerate(Corridor(), horizon=2)
    assert sorted(short.observations[:, 0]) == [0.0, 1.0, 2.0]
    assert short.terminal[np.argmax(short.observations[:, 0])]


OWN = {
    "save": lambda env: (env.place, env.door.is_open),
    "restore": lambda env, state: (
        setattr(env, "place", state[0]),
        setattr(env.door, "is_open", state[1]),
    ),
}


def test_own_functions_save_restore_and_key_replace_copies():
    world = World.enumerate(
        Corridor(),
        **OWN,
        observe=lambda env: np.uint8([[env.place]]),
        coordinates=lambda env: [env.place],
        names=["place"],
    )
    same = World.enumerate(Corridor())
    np.testing.assert_array_equal(world.next_states, same.next_states)
    assert world.observations.dtype == np.uint8
    assert world.places()[0].names == ("place",)


def test_observations_that_single_precision_makes_one_are_refused():
    with pytest.raises(InputError, match="single precision tells apart, got 16777216 and"):
        World.enumerate(Corridor(), observe=lambda env: 2**24 + env.place)
    with pytest.raises(InputError, match=r"tells apart, got 1700000000\.0 and"):
        World.enumerate(Corridor(), observe=lambda env: 1.7e9 + env.place)


def test_an_interrupted_search_continues_from_its_file(tmp_path, monkeypatch):
    class Counted(Corridor):
        taken, most = 0, 11

        def step(self, action):
            if type(self).taken == type(self).most:
                raise KeyboardInterrupt
            type(self).taken += 1
            return super().step(action)

    monkeypatch.setattr("rlreps.worlds.enumeration._SECONDS_TO_SAVE", 0.0)
    path = tmp_path / "search.npz"
    whole = World.enumerate(Corridor())
    with pytest.raises(KeyboardInterrupt):
        World.enumerate(Counted(), resume=path)
    Counted.taken, Counted.most = 0, 1_000
    world = World.enumerate(Counted(), resume=path, check=False)
    assert not path.exists()
    assert world.digest == whole.digest
    # One step before the search, one to each of four states in the file, and all from two others.
    assert Counted.taken == 2 + 4 + 2 * 3
    Counted.taken, Counted.most = 0, 11
    with pytest.raises(KeyboardInterrupt):
        World.enumerate(Counted(), resume=path)
    Counted.most, other = 1_000, {"resume": path, "name": str(Counted())}
    with pytest.raises(InputError, match="the next state 1 of action 0 in state 0, as resumed"):
        World.enumerate(Turned(), **other)
    for options, said in (
        ({"name": "other"}, "name = 'other' in .*, got '<Counted instance>'"),
        ({"seeds": [0, 1]}, r"seeds = \[0, 1\] in .*, got \[0\]"),
        ({"horizon": 2}, "horizon = 2 in .*, got None"),
        ({"counters": ()}, r"counters = \[\] in .*, got"),
    ):
        with pytest.raises(InputError, match=f"a search with {said}"):
            World.enumerate(Counted(), **{**other, **options})
    World.enumerate(Corridor(), check=False).save(path)
    with pytest.raises(InputError, match=r"a search with kind = .* in .*search.npz, got 'world'"):
        World.enumerate(Corridor(), resume=path)


class Turned(Corridor):
    """Action 1 goes ahead, and action 0 back."""

    def step(self, action):
        return super().step((1, 0, 2)[action])


class Memory(gymnasium.Wrapper):
    """Counts pushes at the right end, modulo 4, under a name that the game has, too."""

    def reset(self, **options):
        self.place = 0
        return super().reset(**options)

    def step(self, action):
        pushes = action == 0 and self.env.place == 4
        self.place = (self.place + pushes) % 4
        return super().step(action)


def test_equal_names_in_a_wrapper_and_in_its_game_are_two_attributes():
    assert World.enumerate(Memory(Corridor())).num_states == 4 * 6
    with pytest.raises(InputError, match="which differs in place when"):
        World.enumerate(Memory(Noisy(noise="place")), most_states=50)


class FirstSteps(gymnasium.Wrapper):
    """Remembers its first two steps, as the checks of ``gymnasium.make`` do."""

    steps, last = 0, None

    def step(self, action):
        taken = super().step(action)
        if self.steps < 2:
            self.steps += 1
            self.last = None if self.steps == 2 else taken[0]
        return taken


def test_what_the_first_steps_leave_behind_tells_no_states_apart():
    assert World.enumerate(FirstSteps(Corridor())).num_states == 6


def test_coordinates_are_copied_from_arrays_that_the_game_changes_in_place():
    class Live(Corridor):
        at = np.zeros(1)

        def _seen(self):
            self.at[0] = self.place
            return super()._seen()

    world = World.enumerate(
        Live(),
        **OWN,
        coordinates=lambda env: env.at,
        names=["place"],
    )
    np.testing.assert_array_equal(world.coordinates, world.observations)


@pytest.mark.parametrize(("actions", "count"), [(7, 35_000), (6, 15_000), (4, 21_000), (3, 12)])
def test_outcomes_are_checked_again_for_every_action(actions, count):
    pairs = [(index // actions, index % actions) for index in range(count)]
    taken = spread(pairs, actions, 5_000)
    assert {action for _, action in taken} == set(range(actions))
    assert min(count, 2_000) <= len(taken) <= 5_000


class Noisy(Corridor):
    def step(self, action):
        seen, reward, *rest = super().step(action)
        if self.noise == "reward":
            reward += self.np_random.random()
        if self.noise == "observation":
            seen = seen + np.float32(self.np_random.random())
        if self.noise == "place":
            self.place = int(self.np_random.integers(5))
        return seen, reward, *rest


class Rare(Corridor):
    """Pays at random, or slips at random, with some probability."""

    def step(self, action):
        seen, reward, *rest = super().step(action)
        drawn = self.np_random.random() < self.chance
        if self.kind == "place" and drawn:
            self.place = 0
            seen = self._seen()
        return seen, reward * (self.kind == "place" or drawn), *rest


@pytest.mark.parametrize(("kind", "chance"), [("reward", 0.98), ("place", 0.02)])
def test_outcomes_of_few_states_are_taken_again_many_times(kind, chance):
    for seed in range(5):  # One pair of thirteen pays; each is taken about 400 times.
        with pytest.raises(InputError, match="a deterministic environment, got another"):
            World.enumerate(Rare(kind=kind, chance=chance), seeds=[seed])


class Count(Corridor):
    def step(self, action):
        self.taken = getattr(self, "taken", 0) + 1
        return super().step(action)


class Old(Count):
    def reset(self, **options):
        self.taken = 0
        return super().reset(**options)

    def step(self, action):
        seen, reward, ended, _, told = super().step(action)
        return seen, reward, ended, self.taken >= 4, told


class Hidden(Corridor):
    """Keeps its place in the class, which copies leave out."""

    at = 0

    def reset(self, **options):
        Hidden.at = 0
        return super().reset(**options)

    def step(self, action):
        self.place = self.at
        seen, *rest = super().step(action)
        Hidden.at = self.place
        return seen, *rest


class Pair(Corridor):
    def _seen(self):
        return {"image": super()._seen()}


class Odd(Corridor):
    """Returns something else than a step's five values."""

    def step(self, action):
        seen, reward, *rest = super().step(action)
        return self.change(self.place, seen, reward, *rest)


BAD = {
    "nan": (
        Odd(change=lambda place, seen, reward, *rest: (seen, float("nan"), *rest)),
        "a finite reward of action 0 in state 0, got nan",
    ),
    "nothing": (Odd(change=lambda *_: None), "five values of step .*, got None"),
    "ragged": (
        Odd(change=lambda place, seen, *rest: (np.zeros(1 + place), *rest)),
        r"observations of one shape, \[1\], got \[2\]",
    ),
    "none": (Odd(change=lambda place, seen, *rest: (None, *rest)), "an observation of real num"),
    "reward": (Noisy(noise="reward"), "a deterministic environment, got another reward"),
    "observation": (Noisy(noise="observation"), "got another observation of the same state"),
    "place": (Noisy(noise="place"), "got another next state, which differs in place"),
    "hidden": (Hidden(), "differs in place when .*; if its own attributes do not hold"),
    "count": (Count(), "at most 50 states .most_states., got more; taken takes 11 values"),
    "limit": (Old(), "without a time limit, got a truncated one: name the .* in counters=, or"),
    "handle": (Corridor(handle=(x for x in ())), "whose state can be copied.*cannot pickle"),
    "dict": (Pair(), "an observation in one array, got a dict"),
    "box": (
        gymnasium.make("Pendulum-v1"),
        "an environment with discrete actions, got 'Box",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_enumeration_refuses_in_one_line(name):
    env, said = BAD[name]
    with pytest.raises(InputError, match=said) as caught:
        World.enumerate(env, most_states=50)
    assert "\n" not in str(caught.value)


def test_a_time_limit_of_the_game_s_own_is_a_counter_or_a_horizon():
    assert World.enumerate(Old(), counters=["taken", "step_count"]).num_states == 6
    assert World.enumerate(Old(), horizon=4).terminal.any()


class Anywhere(Corridor):
    """Begins at a random place of the first ``places``."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.places))
        return self._seen(), {}


def test_random_starts_are_warned_of_unless_seeds_are_given():
    with pytest.warns(FitWarning, match=r" of 10 resets of other seeds begin elsewhere: the world"):
        assert World.enumerate(Anywhere(places=5)).start.max() == 1.0
    # Warnings are errors.
    World.enumerate(Anywhere(places=1))
    World.enumerate(Anywhere(places=5), seeds=[0])
    starts = World.enumerate(Anywhere(places=5), seeds=range(500)).start
    np.testing.assert_allclose(starts[starts > 0.0], 0.2, atol=0.08)


def test_what_no_reset_clears_is_no_other_start():
    class Counting(Corridor):
        episodes = 0

        def reset(self, *, seed=None, options=None):
            self.episodes += 1
            return super().reset(seed=seed)

    assert World.enumerate(Counting()).num_states == 6


def test_canonical_compares_structures_by_value_and_by_references():
    one, other = Door(), Door()
    assert canonical([np.array([1, 2]), {"a": 1}]) == canonical([(np.int64(1), 2), {"a": 1.0}])
    assert canonical([one, one]) != canonical([one, other])
    assert canonical([one, one]) == canonical([other, other])
    assert canonical({1, 2}) == canonical({2, 1})
    assert canonical({"a": one, "b": other}) == canonical({"b": other, "a": one})
    assert canonical(OrderedDict(a=1, b=2)) != canonical(OrderedDict(b=2, a=1))
    assert canonical({"a": one, "b": one}) != canonical({"b": other, "a": one})


@pytest.mark.parametrize(
    ("wrapper", "named"),
    [
        (gymnasium.wrappers.RecordEpisodeStatistics, "episode_lengths"),
        (gymnasium.wrappers.TimeAwareObservation, "timesteps"),
    ],
)
def test_more_states_than_allowed_name_what_counts_steps_and_no_place(wrapper, named):
    class Long(Corridor):
        def step(self, action):
            self.place = int(np.clip(self.place + (1, -1, 0)[action], 0, 30))
            return self._seen(), 0.0, False, False, {}

    with pytest.raises(InputError, match=f"; {named} takes"):
        World.enumerate(wrapper(gymnasium.wrappers.TimeLimit(Long(), 1_000)), most_states=300)
