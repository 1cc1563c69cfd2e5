"""GIF files, read back frame by frame."""

import numpy as np
import pytest
from PIL import Image, ImageSequence

from rlreps.envs import load_arena, render_frame
from rlreps.plotting.animation import write_gif


def frames_of(path):
    with Image.open(path) as image:
        return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]


def durations_of(path):
    with Image.open(path) as image:
        return [frame.info["duration"] for frame in ImageSequence.Iterator(image)]


def noise(count, colours=5, seed=0):
    """Frames that differ, of few colours."""
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 256, (colours, 3), dtype=np.uint8)
    return [table[generator.integers(colours, size=(6, 9))] for _ in range(count)]


@pytest.mark.parametrize("colours", [5, 256])
def test_frames_of_few_colours_come_back_as_they_were_and_play_for_ever(tmp_path, colours):
    frames = noise(4, colours)
    path = write_gif(tmp_path / "new" / "episode.gif", frames)
    assert path == tmp_path / "new" / "episode.gif"
    assert [entry.name for entry in path.parent.iterdir()] == ["episode.gif"]
    # Pillow looks colours up in cells of four levels a side.
    for found, expected in zip(frames_of(path), frames, strict=True):
        np.testing.assert_allclose(found.astype(int), expected, atol=0 if colours == 5 else 6)
    with Image.open(path) as image:
        assert image.info["loop"] == 0


@pytest.mark.parametrize("rate", [1.0, 7.0, 24.0, 30.0, 50.0])
def test_frames_start_within_half_a_hundredth_of_their_time(tmp_path, rate):
    path = write_gif(tmp_path / "a.gif", noise(12), frames_per_second=rate)
    ends = np.cumsum(durations_of(path))
    assert len(ends) == 12
    np.testing.assert_allclose(ends, 1000.0 * np.arange(1, 13) / rate, atol=5.0)


def test_the_agent_keeps_its_colour_among_many_shades(tmp_path):
    environment = load_arena("sutton").with_task()
    generator = np.random.default_rng(1)
    shades = generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    frames = []
    for place in ((0.2, 0.2), (0.45, 0.6), (0.8, 0.9)):
        frame = render_frame(environment, place, 64)
        frame[32:48, :16] = shades[32:48, :16]  # more colours than a palette holds
        frames.append(frame)
    for found, expected in zip(
        frames_of(write_gif(tmp_path / "a.gif", frames)), frames, strict=True
    ):
        still = np.ones((64, 64), bool)
        still[32:48, :16] = False
        difference = np.abs(found.astype(int) - expected)[still]
        assert difference.mean() < 0.5
        assert difference.max() < 60
