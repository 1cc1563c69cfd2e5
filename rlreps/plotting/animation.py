"""Moving pictures: frames in, a GIF file out."""

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from rlreps.errors import require
from rlreps.files import write_atomically

Picture: TypeAlias = npt.NDArray[np.uint8]

_COLOURS, _LOOKED_AT = 256, 32
"""Entries of a GIF's palette, and number of evenly chosen frames from whose colours it is made."""


def write_gif(
    path: str | os.PathLike[str],
    frames: Iterable[Picture],
    *,
    frames_per_second: float = 20.0,
) -> Path:
    """Write frames as a GIF that plays for ever, and return the path.

    Frames share one palette without dithering, so that still parts do not flicker. The palette
    holds their own colours if these are at most 256; else one half holds the most frequent ones and
    the other half a median cut of the rest. Durations are whole hundredths of a second, spread so
    that frame i starts at the hundredth nearest to i / ``frames_per_second``. Missing folders are
    made. Even a kill leaves no partial file at ``path``.

    Args:
        path: Ends in .gif.
        frames: uint8 [height, width, 3] each, RGB, all of one shape; at least one.
        frames_per_second: At most 50, the fastest that viewers can play.

    Raises:
        InputError: For another suffix.
    """
    target = Path(path)
    require(target.suffix.lower() == ".gif", "an animation file ending in .gif", str(target))
    pictures = list(frames)
    palette = _palette(pictures)
    images = [
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in pictures
    ]
    starts = np.rint(np.arange(len(images) + 1) * (100.0 / frames_per_second)).astype(int)
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=(10 * np.diff(starts)).tolist(),  # in milliseconds
        loop=0,
    )
    return write_atomically(target, buffer.getvalue())


def _palette(pictures: list[Picture]) -> Image.Image:
    """Make an image with a palette of at most 256 colours that stand for all."""
    chosen = np.unique(np.linspace(0, len(pictures) - 1, _LOOKED_AT).astype(int))
    every = np.concatenate([pictures[index].reshape(-1, 3) for index in chosen])
    colours, counts = np.unique(every, axis=0, return_counts=True)
    if len(colours) > _COLOURS:
        # Cut by pixels, the palette would lose small parts, such as an agent.
        order = np.argsort(-counts, kind="stable")
        frequent, rare = np.split(colours[order], [_COLOURS // 2])
        cut = Image.fromarray(rare[None]).quantize(_COLOURS // 2, Image.Quantize.MEDIANCUT)
        others = np.asarray(cut.getpalette(), np.uint8).reshape(-1, 3)[: _COLOURS // 2]
        colours = np.concatenate([frequent, others])
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours.tobytes())
    return palette
