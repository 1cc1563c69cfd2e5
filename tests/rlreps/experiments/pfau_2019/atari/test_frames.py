import builtins
import itertools

import gymnasium
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.atari import frames as frames_module
from rlreps.experiments.pfau_2019.atari.frames import (
    Frames,
    random_agent,
    recorded_frames,
    require_game,
    shrunk,
)


class Killed(BaseException):
    pass


def seen(seed, count, game="MsPacman"):
    return [frame for frame, _ in itertools.islice(random_agent(game, seed), count)]


def test_the_same_seed_plays_the_same_frames_and_another_seed_others():
    first, again, other = (np.stack(seen(seed, 120)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_game_that_ends_begins_the_next_episode_with_its_first_frame():
    played = list(itertools.islice(random_agent("MsPacman", 0), 700))
    episodes = np.array([episode for _, episode in played])
    assert episodes[0] == 0
    assert set(np.diff(episodes)) == {0, 1}
    start = int(np.argmax(episodes))
    np.testing.assert_array_equal(played[start][0], played[0][0])
    assert not np.array_equal(played[start - 1][0], played[0][0])


def test_every_action_is_held_for_four_frames_and_repeated_by_chance():
    (name,) = (name for name in gymnasium.registry if name == "ALE/MsPacman-v5")
    settings = gymnasium.registry[name].kwargs
    assert (settings["frameskip"], settings["repeat_action_probability"]) == (4, 0.25)


@pytest.mark.parametrize("size", [1, 7, 64, 84, 160])
def test_shrinking_averages_over_areas(size):
    frame = np.random.default_rng(size).integers(0, 256, (21, 16), dtype=np.uint8)
    # Each pixel as size x size equal ones: whole numbers of them then make up every target pixel.
    fine = np.kron(frame, np.ones((size, size)))
    means = fine.reshape(size, 21, size, 16).mean(axis=(1, 3))
    assert np.abs(shrunk(frame, size) - means).max() <= 0.5 + 1e-9


def test_pairs_never_cross_episodes():
    episodes = np.array([0, 0, 0, 1, 2, 2, 3])
    frames = Frames(np.zeros((7, 2, 2), np.uint8), episodes)
    np.testing.assert_array_equal(frames.pairs(), [0, 1, 4])


def test_recorded_frames_are_the_shrunk_frames_of_the_agent(tmp_path):
    found = recorded_frames(tmp_path, "MsPacman", 80, 20, 5, progress=False)
    np.testing.assert_array_equal(found.images, [shrunk(frame, 20) for frame in seen(5, 80)])
    assert found.images.dtype == np.uint8
    assert sorted(file.name for file in tmp_path.iterdir()) == ["episodes.npy", "images.npy"]


def test_frames_that_are_there_are_not_played_again(tmp_path, monkeypatch):
    first = recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)
    monkeypatch.setattr(frames_module, "random_agent", None)
    again = recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)
    np.testing.assert_array_equal(first.images, again.images)
    np.testing.assert_array_equal(first.episodes, again.episodes)


def test_frames_that_were_cut_short_are_played_again_from_the_start(tmp_path, monkeypatch):
    def dying(game, seed):
        yield from itertools.islice(random_agent(game, seed), 10)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(frames_module, "random_agent", dying)
        with pytest.raises(Killed):
            recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)
    assert not (tmp_path / "images.npy").exists()
    resumed = recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)
    whole = recorded_frames(tmp_path / "whole", "MsPacman", 30, 8, 0, progress=False)
    np.testing.assert_array_equal(resumed.images, whole.images)


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_frames_are_named(tmp_path, damage):
    recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)
    file = tmp_path / "images.npy"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        np.save(file, np.zeros((30, 4, 4), np.uint8))
    with pytest.raises(InputError, match=r"expected .*frames"):
        recorded_frames(tmp_path, "MsPacman", 30, 8, 0, progress=False)


@pytest.mark.parametrize(
    ("game", "near"),
    [("MsPackman", "MsPacman"), ("ms_pacman", "MsPacman"), ("montezuma", "MontezumaRevenge")],
)
def test_a_wrong_name_is_answered_with_near_ones(game, near):
    with pytest.raises(InputError, match=rf"expected game to be one of .*{near}.*, got '{game}'"):
        require_game(game)


def test_a_name_like_no_other_is_answered_with_all_of_them():
    with pytest.raises(InputError, match=r"Adventure, .*Seaquest.*, got 'xyzzyq'"):
        require_game("xyzzyq")


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "ale_py":
            raise ModuleNotFoundError("No module named 'ale_py'", name="ale_py")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r'ale-py, got none: pip install "rlreps\[atari\]"'):
        require_game("MsPacman")
