"""One self-contained, interactive page of a successor measure: numbers in, HTML out.

The page is plain JavaScript and canvas (the modules of ``SCRIPTS``, ``explore.css`` and
``explore.html`` in this package) with its arrays embedded. It needs no server and no network, and
its content security policy forbids network access. The same arguments give the same bytes.

Each map is divided by its largest magnitude and quantised to 8 or 16 bits. The values are then
predicted from the cells to the left and below, and the differences are deflated.
"""

import base64
import dataclasses
import html
import importlib.resources
import io
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image

from rlreps.errors import require
from rlreps.numerics import bytes_of
from rlreps.plotting.style import MISSING, OKABE_ITO, signed_colormap
from rlreps.successor.measure.grids import BoxGrid
from rlreps.typing import DoubleArray

SCRIPTS = ("data.js", "sums.js", "drawing.js", "interface.js")
"""Modules of the page's script. A module imports from those before it; no two share a name."""

_MOST_BYTES = 6 * 2**20
"""Largest size of the compressed frames."""


class Frames(NamedTuple):
    """Pictures of m states, which the page's script lays out instead of a plane.

    Attributes:
        images: [m, height, width, 1 or 3].
        axes: Names of the numbers that describe a state: its own first, then its coordinates.
        places: These numbers, [m, axes].
        values: Name of a coordinate → words for its values 0, 1, ...
        total: n, number of states in the store.
    """

    images: npt.NDArray[np.uint8]
    axes: tuple[str, ...]
    places: DoubleArray
    values: Mapping[str, Sequence[str]]
    total: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapGrid:
    """The grid on which every map is drawn: cells of a box in the plane, or a line of frames.

    Attributes:
        grid: The cells, along two axes.
        states: The cell of each state shown, [m].
        shown: Numbers of these states in the store, [m].
        outlines: Closed lines to draw on every map, [points, 2] each, in the box's units.
        frames: Pictures of the states, if they are not places in the plane.
    """

    grid: BoxGrid
    states: npt.NDArray[np.int64]
    shown: npt.NDArray[np.int64]
    outlines: Sequence[DoubleArray] = ()
    frames: Frames | None = None

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """Numbers of the states shown by rising cell, [m]."""
        return self.shown[np.argsort(self.states)]

    def to_maps(self, values: np.ndarray) -> np.ndarray:
        """Return values of states [n, ...] as maps [..., rows, columns], 0 where no state is."""
        cells = np.zeros((self.grid.num_cells, *values.shape[1:]), values.dtype)
        cells[self.states] = values[self.shown]
        return np.moveaxis(cells, 0, -1).reshape(*values.shape[1:], *self.grid.bins[::-1])


class PageArrays:
    """Arrays of a page as blocks of text, and the information needed to read them.

    Attributes:
        blocks: Name → text.
        entries: Name → type, scales and whether it is read later.
        runs: Entries that the page's script reads for each run.
        cells: The grid of the arrays.
        frames: What the script needs to know of the frames, if there are any.
    """

    def __init__(self, cells: MapGrid) -> None:
        """Start with the indices of the cells that are states."""
        self.blocks: dict[str, str] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.runs: list[dict[str, Any]] = []
        self.cells = cells
        marks = np.zeros(cells.grid.num_cells, np.uint8)
        marks[cells.states] = 1
        self._add_plain("states", marks)
        self.frames = None if cells.frames is None else self._add_frames(cells.frames)

    def add_numbers(self, name: str, values: np.ndarray) -> None:
        """Add a number for each state [n], in single precision."""
        self._add_plain(name, self.cells.to_maps(values).astype(np.float32))

    def add_maps(self, name: str, values: np.ndarray, *, later: bool = False) -> None:
        """Add columns [n, count] as maps in 16 bits."""
        self._add(name, *_pack_maps(self.cells.to_maps(values), 16), later=later)

    def add_moves(self, counts: Sequence[Any]) -> None:
        """Add moves by action: each cell's window (top, left, height, width), and its counts.

        Args:
            counts: For each action, the sparse matrix of the number of moves from cell (row) to
                cell (column).
        """
        for action, matrix in enumerate(counts):
            by_row = matrix.tocsr()
            windows = np.zeros((by_row.shape[0], 4), np.int16)
            along = self.cells.grid.bins[0]
            dense = []
            for cell in np.flatnonzero(np.diff(by_row.indptr)):
                entries = slice(by_row.indptr[cell], by_row.indptr[cell + 1])
                rows, columns = np.divmod(by_row.indices[entries], along)
                top, left = int(rows.min()), int(columns.min())
                height, width = int(rows.max()) - top + 1, int(columns.max()) - left + 1
                window = np.zeros((height, width), np.uint16)
                window[rows - top, columns - left] = by_row.data[entries]
                here = divmod(int(cell), along)
                windows[cell] = top - here[0], left - here[1], height, width
                dense.append(window.ravel())
            self._add_plain(f"windows{action}", windows.T, later=True)
            self._add_plain(f"counts{action}", np.concatenate(dense), later=True)

    def add_run(
        self,
        label: str,
        num_features: int,
        components: Mapping[int, np.ndarray],
        cosines: Mapping[int, np.ndarray],
        curve: tuple[np.ndarray, np.ndarray] | None,
        visits: np.ndarray | None = None,
        fitted: bool = False,
    ) -> None:
        """Add features that one run has learned.

        Args:
            label: Name of the run.
            num_features: d, number of features.
            components: Step of training, increasing → the k = min(d, K) orthonormal directions [n,
                k] in the features' span that are nearest to the true components.
            cosines: Step → |cosine| [k] of each direction with its true component.
            curve: Steps and subspace distances of its learning curve, if it has one.
            visits: How often its data visited each state, [n], if known.
            fitted: Whether it is a fit of recorded data, which has no updates.
        """
        names = {step: f"run{len(self.runs)}-{step}" for step in components}
        for step, name in names.items():
            # Values are projected on the last step; the other steps are only displayed.
            bits = 16 if step == max(names) else 8
            packed = _pack_maps(self.cells.to_maps(components[step]), bits)
            self._add(name, *packed, later=True)
        visited = f"visits{len(self.runs)}"
        if visits is not None:
            self.add_numbers(visited, visits)
        self.runs.append(
            {
                "label": label,
                "features": num_features,
                "steps": list(names),
                "arrays": list(names.values()),
                "cosines": [round_numbers(cosines[step]) for step in names],
                "curve": curve and [curve[0].tolist(), round_numbers(curve[1])],
                "fitted": fitted,
                "visits": None if visits is None else visited,
            }
        )

    def _add_frames(self, frames: Frames) -> dict[str, Any]:
        """Add the different frames on one sheet, almost square, and each state's place on it."""
        images, count = frames.images, len(frames.images)
        same = bytes_of(images, images.dtype)
        _, first, which = np.unique(same, return_index=True, return_inverse=True)
        height, width, channels = images.shape[1:]
        across = min(len(first), math.ceil(math.sqrt(len(first) * height / width)))
        lines = math.ceil(len(first) / across)
        places = np.zeros((lines * across, height, width, channels), np.uint8)
        places[: len(first)] = images[first]
        by_line = places.reshape(lines, across, height, width, channels).swapaxes(1, 2)
        sheet = by_line.reshape(lines * height, across * width, channels)
        picture = io.BytesIO()
        Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet).save(picture, "PNG")
        size = picture.getbuffer().nbytes
        expected = f"frames of at most {_MOST_BYTES >> 20} MiB in all; show fewer (--frames)"
        require(size <= _MOST_BYTES, expected, f"{size / 2**20:.1f} MiB")
        self.blocks["sheet"] = base64.b64encode(picture.getvalue()).decode()
        self._add_plain("frames", which.reshape(count).astype(np.uint16))
        self._add_plain("places", frames.places.T.astype(np.float32))
        sizes = {"width": width, "height": height, "across": across, "different": len(first)}
        return {**sizes, "values": frames.values, "total": frames.total}

    def _add_plain(self, name: str, values: np.ndarray, *, later: bool = False) -> None:
        self._add(name, _deflate(values), {"type": values.dtype.name}, later=later)

    def _add(
        self, name: str, content: bytes, entry: Mapping[str, Any], *, later: bool = False
    ) -> None:
        """Add packed numbers; the page reads those marked ``later`` after its first drawing."""
        self.blocks[name] = base64.b64encode(content).decode()
        self.entries[name] = {**entry, "later": later}


def render_page(facts: Mapping[str, Any], arrays: PageArrays) -> str:
    """Return the page as HTML.

    Args:
        facts: The page's title and JSON values on the matrix, under the names of ``Description`` in
            ``data.js``.
        arrays: ``left``: left singular vectors [n, K]; ``right``: right ones times the singular
            values; ``task_means`` and ``state_means``: the means that centring subtracted;
            ``row_energies``: squared norms of centred rows, if the page has no rows;
            ``rows``: the matrix transposed, if the page holds it; moves of actions, if known; and
            features that runs have learned.
    """
    cells, grid = arrays.cells, arrays.cells.grid
    description = {
        **{"columns": grid.bins[0], "rows": grid.bins[1]},
        **{"low": grid.low, "high": grid.high},
        "axes": grid.names if cells.frames is None else cells.frames.axes,
        "outlines": [np.round(line, 4).tolist() for line in cells.outlines],
        "frames": arrays.frames,
        **facts,
        "colours": {
            "sequential": _encode_colours(matplotlib.colormaps["viridis"]),
            "signed": _encode_colours(signed_colormap()),
            "missing": MISSING,
            "series": list(OKABE_ITO),
        },
        "arrays": arrays.entries,
        "runs": arrays.runs,
    }
    # "<" would end the script that holds the text.
    text = json.dumps(description, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {"title": html.escape(facts["title"]), "described": text}
    parts |= {name: read_asset(name) for name in ("explore.html", "explore.css")}
    parts["scripts"] = join_scripts()
    parts["blocks"] = "\n".join(
        f'<script type="application/octet-stream" id="array-{name}">{block}</script>'
        for name, block in arrays.blocks.items()
    )
    return re.sub(r"@@([\w.]+)@@", lambda match: parts[match[1]], parts.pop("explore.html"))


def join_scripts() -> str:
    """Join the script's modules into one: a page opened from disk may not import files."""
    text = "".join(map(read_asset, SCRIPTS))
    return re.sub(r"^(import [^;]+;\n|export )", "", text, flags=re.MULTILINE)


def read_asset(name: str) -> str:
    """Read a file that lies beside this module."""
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _pack_maps(values: np.ndarray, bits: int) -> tuple[bytes, dict[str, Any]]:
    """Quantise and deflate maps [count, rows, columns]."""
    largest = np.abs(values).max(axis=(1, 2)).astype(np.float64)
    scales = np.where(largest > 0.0, largest, 1.0) / (2 ** (bits - 1) - 1)
    whole = np.rint(values / scales[:, None, None]).astype(f"int{bits}")
    # Integer differences wrap around, and the sums that undo them wrap around too.
    across = np.diff(whole, axis=2, prepend=np.zeros_like(whole[:, :, :1]))
    predicted = np.diff(across, axis=1, prepend=np.zeros_like(across[:, :1]))
    return _deflate(predicted), {"type": whole.dtype.name, "scales": round_numbers(scales)}


def _deflate(values: np.ndarray) -> bytes:
    """Deflate an array in byte planes: the lowest bytes of all entries come first."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    planes = little.reshape(-1, 1).view(np.uint8).T
    return zlib.compress(planes.tobytes(), 6)


def round_numbers(values: Any) -> list[float | None]:
    """Return numbers with seven digits, and None for numbers that are not finite."""
    return [
        float(f"{float(value):.7g}") if math.isfinite(value) else None
        for value in np.asarray(values, np.float64)
    ]


def _encode_colours(colormap: Any) -> str:
    """Return 256 colours, red, green and blue in a byte each, as base64."""
    table = np.rint(255 * np.asarray(colormap(np.arange(256)))[:, :3]).astype(np.uint8)
    return base64.b64encode(table.tobytes()).decode()
