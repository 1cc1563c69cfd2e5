import jax
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.sources import frames
from rlreps.sources.frames import Frames, FrameSplit


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
