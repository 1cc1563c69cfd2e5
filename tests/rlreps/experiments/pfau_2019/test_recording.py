import itertools

import numpy as np
import pytest

from rlreps.experiments.pfau_2019 import recording
from rlreps.experiments.pfau_2019.recording import random_agent, recorded_frames, shrunk


class Killed(BaseException):
    pass


def test_the_agent_plays_the_same_frames_for_a_seed_and_one_episode_after_the_other():
    played = list(itertools.islice(random_agent("MsPacman", 0), 700))
    frames, episodes, actions = (np.stack(part) for part in zip(*played, strict=True))
    again, other = (list(itertools.islice(random_agent("MsPacman", s), 120)) for s in (0, 4))
    np.testing.assert_array_equal(frames[:120], [frame for frame, *_ in again])
    assert not np.array_equal(frames[:120], [frame for frame, *_ in other])
    assert set(np.diff(episodes)) == {0, 1}
    start = int(np.argmax(episodes))
    np.testing.assert_array_equal(frames[start], frames[0])
    assert not np.array_equal(frames[start - 1], frames[0])
    # Each of the nine actions is as likely as the others, but where nothing is to be done.
    counts = np.bincount(actions[np.diff(episodes, append=0) == 0], minlength=9)
    assert len(counts) == 9
    assert np.abs(counts / counts.sum() - 1 / 9).max() < 5 * np.sqrt(8 / 81 / counts.sum())
    assert actions[start - 1] == 0


@pytest.mark.parametrize("size", [7, 64])
def test_shrinking_averages_over_areas(size):
    frame = np.random.default_rng(size).integers(0, 256, (21, 16), dtype=np.uint8)
    # Each pixel as size x size equal ones: whole numbers of them then make up every target pixel.
    fine = np.kron(frame, np.ones((size, size)))
    means = fine.reshape(size, 21, size, 16).mean(axis=(1, 3))
    assert np.abs(shrunk(frame, size) - means).max() <= 0.5 + 1e-9


def test_frames_are_kept_whole_or_played_again(tmp_path, monkeypatch):
    def record(folder):
        return recorded_frames(folder, "MsPacman", 20, 60, 0)

    whole = record(tmp_path / "whole")
    played = list(itertools.islice(random_agent("MsPacman", 0), 60))
    np.testing.assert_array_equal(whole.images, [shrunk(frame, 20) for frame, *_ in played])
    for part, index in ((whole.episodes, 1), (whole.actions, 2)):
        np.testing.assert_array_equal(part, [step[index] for step in played])

    def dying(game, seed):
        yield from itertools.islice(random_agent(game, seed), 10)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(recording, "random_agent", dying)
        with pytest.raises(Killed):
            record(tmp_path)
    np.testing.assert_array_equal(record(tmp_path).images, whole.images)
    monkeypatch.setattr(recording, "random_agent", None)
    np.testing.assert_array_equal(record(tmp_path).actions, whole.actions)
