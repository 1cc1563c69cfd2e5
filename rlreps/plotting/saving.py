"""Figures to bytes and to files."""

import io
import os
from pathlib import Path

from matplotlib.figure import Figure

from rlreps.errors import InputError
from rlreps.files import write_atomically
from rlreps.plotting.style import RESOLUTION, styled

# No date in the file: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


@styled
def figure_bytes(figure: Figure, *, image_format: str = "png") -> bytes:
    """The contents of an image file of `figure`.

    Args:
        figure: What to draw.
        image_format: "png" (200 dots per inch), "svg" or "pdf".

    Raises:
        InputError: `image_format` is none of these.
    """
    if image_format not in _METADATA:
        raise InputError(
            f"expected an image format of {', '.join(_METADATA)}, got {image_format!r}"
        )
    buffer = io.BytesIO()
    figure.savefig(buffer, format=image_format, dpi=RESOLUTION, metadata=_METADATA[image_format])
    return buffer.getvalue()


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes `figure` to `path` in the format of its suffix and returns the path.

    Folders on the way are made. Not even a kill halfway leaves part of a file at `path`.

    Raises:
        InputError: The suffix is not .png, .svg or .pdf.
    """
    target = Path(path)
    image_format = target.suffix.removeprefix(".").lower()
    if image_format not in _METADATA:
        suffixes = ", ".join(f".{name}" for name in _METADATA)
        raise InputError(f"expected a figure file ending in {suffixes}, got {str(target)!r}")
    return write_atomically(target, figure_bytes(figure, image_format=image_format))
