import itertools

import jax
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019 import frames
from rlreps.experiments.pfau_2019.frames import (
    Frames,
    FrameSplit,
    random_agent,
    record_frames,
    shrink,
)


def toy_frames(lengths=(40, 40, 20), size=20, seed=0):
    """Frames of which each shows its own number, in episodes of given lengths."""
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    numbered = np.arange(len(episodes), dtype=np.uint8)[:, None, None]
    actions = np.random.default_rng(seed).integers(0, 3, len(episodes))
    return Frames(np.tile(numbered, (1, size, size)), episodes, actions)


@pytest.mark.parametrize("length", [1, 2, 7, 20])
def test_windows_lie_within_an_episode(length):
    frames = toy_frames((40, 6, 25))
    found = frames.windows(length)
    inside = [i for i in range(71) if len(set(frames.episodes[i : i + length])) == 1]
    np.testing.assert_array_equal(found, [i for i in inside if i + length <= 71])
    assert len(found) == sum(max(n - length + 1, 0) for n in (40, 6, 25))
    with pytest.raises(InputError, match="an episode of at least 41 frames, got 'none'"):
        frames.windows(41)


def test_sampled_rows_are_clips_of_stacks_and_what_was_done_after_them():
    recorded = toy_frames((40, 40, 20))
    split = FrameSplit.of(recorded, recorded, 4)
    source = split.clips(recorded, 7)
    batch = jax.jit(lambda key: source.sample(key, 600, 1))(jax.random.key(0))
    assert [stacks.shape for stacks in batch.inputs] == 7 * [(600, 20, 20, 4)]
    shown = np.asarray(batch.inputs.joined())[:, 0, 0] * 255.0 + split.mean[0, 0]
    clips = np.rint(shown).astype(int).reshape(7, 600, 4)
    np.testing.assert_allclose(clips.reshape(-1, 4), shown, atol=1e-3)
    first = clips[0, :, 0]
    expected = first[None, :, None] + np.arange(7)[:, None, None] + np.arange(4)[None, None, :]
    np.testing.assert_array_equal(clips, expected)
    assert set(first) == set(recorded.windows(10))
    np.testing.assert_array_equal(batch.targets, np.eye(3)[recorded.actions[clips[0, :, 3]]])


def test_test_frames_are_the_newest_of_their_stacks_and_encoded_in_any_number_of_blocks(
    monkeypatch,
):
    recorded = toy_frames((40, 2, 30))
    split = FrameSplit.of(toy_frames(), recorded, 4)
    newest = np.r_[3:40, 45:72]
    np.testing.assert_array_equal(recorded.newest(4)[:, 0, 0], newest)
    monkeypatch.setattr(frames, "_BLOCK", 13)
    found = split.encoded(lambda stacks: 255.0 * stacks[:, 0, 0, ::3] + split.mean[0, 0])
    np.testing.assert_allclose(found, np.stack([newest - 3, newest], axis=1), atol=1e-3)


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
    assert np.abs(shrink(frame, size) - means).max() <= 0.5 + 1e-9


def test_frames_are_kept_whole_or_played_again(tmp_path, monkeypatch):
    def record(folder):
        return record_frames(folder, "MsPacman", 20, 60, 0)

    whole = record(tmp_path / "whole")
    played = list(itertools.islice(random_agent("MsPacman", 0), 60))
    np.testing.assert_array_equal(whole.images, [shrink(frame, 20) for frame, *_ in played])
    for part, index in ((whole.episodes, 1), (whole.actions, 2)):
        np.testing.assert_array_equal(part, [step[index] for step in played])

    def dying(game, seed):
        yield from itertools.islice(random_agent(game, seed), 10)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(frames, "random_agent", dying)
        with pytest.raises(Killed):
            record(tmp_path)
    np.testing.assert_array_equal(record(tmp_path).images, whole.images)
    monkeypatch.setattr(frames, "random_agent", None)
    np.testing.assert_array_equal(record(tmp_path).actions, whole.actions)
