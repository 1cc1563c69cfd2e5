"""One self-contained, interactive page of a successor measure: numbers in, HTML out.

The page is plain JavaScript and canvas (``explore.js``, ``explore.css``, ``explore.html`` beside
this module) with its arrays embedded. It asks nothing of a server or of the network, which its
content security policy also forbids. The same arguments give the same bytes.

Maps are quantised to 8 or 16 bits, each map by its own largest magnitude, predicted from the cells
to the left and below, and deflated.
"""

import base64
import dataclasses
import html
import importlib.resources
import json
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import numpy.typing as npt

from rlreps.errors import require
from rlreps.files import write_atomically
from rlreps.plotting.style import MISSING, OKABE_ITO, signed_colormap

MOST_BYTES = 12_000_000
"""Largest page; steps of training are left out until it is kept."""

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """The grid that every map is drawn on: cells of a box in the plane.

    Attributes:
        columns: Cells along the first coordinate, which counts fastest.
        rows: Cells along the second.
        states: The cells that are states, rising, [n].
        low: Lower corner of the box, [2].
        high: Upper corner, [2].
        axes: Names of the coordinates.
        outlines: Closed lines to draw on every map, [points, 2] each, in the box's units.
    """

    columns: int
    rows: int
    states: npt.NDArray[np.int64]
    low: tuple[float, float] = (0.0, 0.0)
    high: tuple[float, float] = (1.0, 1.0)
    axes: tuple[str, str] = ("x", "y")
    outlines: Sequence[FloatArray] = ()

    def on_cells(self, values: np.ndarray) -> np.ndarray:
        """Return values of states [n, ...] as maps [..., rows, columns], 0 where no state is."""
        cells = np.zeros((self.columns * self.rows, *values.shape[1:]), values.dtype)
        cells[self.states] = values
        return np.moveaxis(cells, 0, -1).reshape(*values.shape[1:], self.rows, self.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exact:
    """Numbers that the page calls exact.

    Attributes:
        kind: ``rows`` if the page holds every row of the matrix; ``chain`` if it solves for rows
            with the moves of the one-step chain and closes the sum at rank K; ``rank`` if there is
            nothing better than rank K.
        difference: Root mean square, over entries, between what the page shows and the stored
            matrix.
        sampling_error: The stored entries' own standard error, where they were sampled.
        rows: The matrix [n, n], for ``rows``.
        steps: Steps of the chain that are taken, for ``chain``.
        reference: Whose rows the difference is from, as text.
    """

    kind: Literal["rows", "chain", "rank"]
    difference: float
    sampling_error: float | None = None
    rows: np.ndarray | None = None
    steps: int = 0
    reference: str = "the store"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moves:
    """Moves of each action between cells, counted.

    Attributes:
        names: Names of the actions.
        arrows: Their directions in the plane, [actions, 2].
        counts: For each action, moves from row to column over all cells: a sparse matrix with rows
            that sum to ``points`` in states.
        points: Moves from each state by each action.
    """

    names: Sequence[str]
    arrows: Sequence[tuple[float, float]]
    counts: Sequence[Any]
    points: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned:
    """Features that one run has learned.

    Attributes:
        label: Its name.
        num_features: d, features that it learned.
        components: By step of training, the k = min(d, K) orthonormal directions of their span that
            are nearest to the true components, [n, k].
        cosines: By step, |cosine| [k] of each with the true component.
        curve: Steps and subspace distances of its learning curve, where it has one.
    """

    label: str
    num_features: int
    components: Mapping[int, np.ndarray]
    cosines: Mapping[int, np.ndarray]
    curve: tuple[Sequence[int], Sequence[float]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """Everything on the page.

    Attributes:
        title: Title of the page.
        about: Facts on how the matrix was made: name → value, as text.
        cells: The grid.
        discount: γ; needed where there are moves, as is the horizon.
        horizon: Terms of the sum.
        count_start: Whether the sum starts at the start state.
        left: Left singular vectors U_K [n, K] of the centred matrix.
        right: Right ones times the singular values, V_K Σ_K, [n, K].
        task_means: What centring took off each column, [n].
        state_means: What it took off each row, [n].
        row_energies: Squared norm of each centred row, [n]; needed where exact means rank K.
        singular_values: All that are known, [k].
        total_energy: Squared Frobenius norm of the centred matrix.
        noise_floor: Expected subspace distance from the truth for d = 1 …; None without sampling.
        exact: What exact means.
        moves: Where actions lead, for greedy policies; None if that is not known.
        runs: What runs have learned.
    """

    title: str
    about: Mapping[str, str]
    cells: Cells
    discount: float | None
    horizon: int | None
    count_start: bool
    left: np.ndarray
    right: np.ndarray
    task_means: np.ndarray
    state_means: np.ndarray
    row_energies: np.ndarray | None
    singular_values: np.ndarray
    total_energy: float
    noise_floor: np.ndarray | None
    exact: Exact
    moves: Moves | None = None
    runs: Sequence[Learned] = ()

    def to_html(self, *, most_bytes: int = MOST_BYTES) -> str:
        """Return the page.

        Args:
            most_bytes: Steps of training are left out, every second one at a time but never the
                last, until the page is no larger.

        Raises:
            InputError: If it is larger all the same.
        """
        arrays = _Arrays()
        described = self._describe(arrays)
        runs = [_pack_run(run, self.cells) for run in self.runs]
        fixed = _page(self.title, described, arrays.blocks)
        room = most_bytes - len(fixed.encode())
        while sum(run.size for run in runs) > room and any(len(run.steps) > 1 for run in runs):
            largest = max((run for run in runs if len(run.steps) > 1), key=lambda run: run.size)
            largest.thin()
        described["runs"] = [
            run.describe(f"run{number}", arrays) for number, run in enumerate(runs)
        ]
        page = _page(self.title, described, arrays.blocks)
        size = len(page.encode())
        require(size <= most_bytes, f"a page of at most {most_bytes} bytes; fewer components", size)
        return page

    def _describe(self, arrays: "_Arrays") -> dict[str, Any]:
        cells, exact = self.cells, self.exact
        is_state = np.zeros(cells.columns * cells.rows, np.uint8)
        is_state[cells.states] = 1
        arrays.plain("states", is_state)
        arrays.maps("left", cells.on_cells(self.left))
        arrays.maps("right", cells.on_cells(self.right))
        for name in ("task_means", "state_means", "row_energies"):
            if getattr(self, name) is not None:
                arrays.plain(name, cells.on_cells(getattr(self, name)).astype(np.float32))
        if exact.rows is not None:
            arrays.maps("rows", cells.on_cells(exact.rows.T), later=True)
        if self.moves is not None:
            _pack_moves(self.moves, cells, arrays)
        floor = self.noise_floor
        return {
            "title": self.title,
            "about": dict(self.about),
            "columns": cells.columns,
            "rows": cells.rows,
            "low": cells.low,
            "high": cells.high,
            "axes": cells.axes,
            "outlines": [np.round(line, 4).tolist() for line in cells.outlines],
            "discount": self.discount,
            "horizon": self.horizon,
            "countStart": self.count_start,
            "components": self.left.shape[1],
            "singularValues": _short(self.singular_values),
            "totalEnergy": self.total_energy,
            "noiseFloor": None if floor is None else _short(floor),
            "exact": {
                "kind": exact.kind,
                "difference": exact.difference,
                "samplingError": exact.sampling_error,
                "steps": exact.steps,
                "reference": exact.reference,
            },
            "moves": None
            if self.moves is None
            else {
                "names": list(self.moves.names),
                "arrows": [list(arrow) for arrow in self.moves.arrows],
                "points": self.moves.points,
            },
            "colours": {
                "sequential": _colours(matplotlib.colormaps["viridis"]),
                "signed": _colours(signed_colormap()),
                "missing": MISSING,
                "series": list(OKABE_ITO),
            },
            "arrays": arrays.described,
            "runs": [],
        }


def write_exploration(path: str | os.PathLike[str], page: Exploration) -> Path:
    """Write the page and return its path; a page that is there is replaced by a complete one.

    Raises:
        InputError: If the page would be larger than ``MOST_BYTES``.
    """
    return write_atomically(path, page.to_html().encode(errors="xmlcharrefreplace"))


def _page(title: str, described: Mapping[str, Any], blocks: Mapping[str, str]) -> str:
    # "<" would end the script that holds the text.
    text = json.dumps(described, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {"title": html.escape(title), "described": text}
    for name in ("explore.html", "explore.css", "explore.js"):
        source = importlib.resources.files(__package__).joinpath(name)
        parts[name] = source.read_text(encoding="utf-8")
    parts["blocks"] = "\n".join(
        f'<script type="application/octet-stream" id="array-{name}">{block}</script>'
        for name, block in blocks.items()
    )
    return re.sub(r"@@([\w.]+)@@", lambda match: parts[match[1]], parts.pop("explore.html"))


class _Arrays:
    """Arrays as blocks of text, and what is needed to read them."""

    def __init__(self) -> None:
        self.blocks: dict[str, str] = {}
        self.described: dict[str, dict[str, Any]] = {}

    def plain(self, name: str, values: np.ndarray) -> None:
        """Add numbers as they are."""
        self.add(name, _deflated(values), {"type": values.dtype.name})

    def maps(self, name: str, values: np.ndarray, *, later: bool = False) -> None:
        """Add maps [count, rows, columns] in 16 bits."""
        self.add(name, *_packed_maps(values, 16), later=later)

    def add(
        self, name: str, content: bytes, described: Mapping[str, Any], *, later: bool = False
    ) -> None:
        """Add packed numbers; ``later`` ones are read once the page has drawn something."""
        self.blocks[name] = base64.b64encode(content).decode()
        self.described[name] = {**described, "later": later}


def _packed_maps(values: np.ndarray, bits: int) -> tuple[bytes, dict[str, Any]]:
    """Quantise and deflate maps [count, rows, columns]."""
    largest = np.abs(values).max(axis=(1, 2)).astype(np.float64)
    scales = np.where(largest > 0.0, largest, 1.0) / (2 ** (bits - 1) - 1)
    whole = np.rint(values / scales[:, None, None]).astype(f"int{bits}")
    # Differences wrap around, and so do the sums that undo them.
    across = np.diff(whole, axis=2, prepend=np.zeros_like(whole[:, :, :1]))
    predicted = np.diff(across, axis=1, prepend=np.zeros_like(across[:, :1]))
    return _deflated(predicted), {"type": whole.dtype.name, "scales": _short(scales)}


def _deflated(values: np.ndarray) -> bytes:
    """Deflate an array, the lowest bytes of all entries before the next ones."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    planes = little.reshape(-1, 1).view(np.uint8).T
    return zlib.compress(planes.tobytes(), 6)


def _pack_moves(moves: Moves, cells: Cells, arrays: _Arrays) -> None:
    """Add the counts by action: each cell's window (top, left, height, width), and its counts."""
    for action, matrix in enumerate(moves.counts):
        counts = matrix.tocsr()
        per_row = np.diff(counts.indptr)
        windows = np.zeros((counts.shape[0], 4), np.int16)
        dense = []
        for cell in np.flatnonzero(per_row):
            entries = slice(counts.indptr[cell], counts.indptr[cell + 1])
            rows, columns = np.divmod(counts.indices[entries], cells.columns)
            top, left = int(rows.min()), int(columns.min())
            height, width = int(rows.max()) - top + 1, int(columns.max()) - left + 1
            window = np.zeros((height, width), np.uint16)
            window[rows - top, columns - left] = counts.data[entries]
            here = divmod(int(cell), cells.columns)
            windows[cell] = top - here[0], left - here[1], height, width
            dense.append(window.ravel())
        arrays.add(f"windows{action}", _deflated(windows.T), {"type": "int16"}, later=True)
        content = _deflated(np.concatenate(dense))
        arrays.add(f"counts{action}", content, {"type": "uint16"}, later=True)


class _PackedRun:
    """A run's maps by step, some of which may have to go."""

    def __init__(self, run: Learned, steps: dict[int, tuple[bytes, dict[str, Any]]]) -> None:
        self.run, self.steps = run, steps

    @property
    def size(self) -> int:
        """Bytes on the page, about."""
        return sum(4 * math.ceil(len(content) / 3) + 250 for content, _ in self.steps.values())

    def thin(self) -> None:
        """Leave out every second step, counted from the last."""
        kept = sorted(self.steps)[::-1][::2]
        self.steps = {step: self.steps[step] for step in sorted(kept)}

    def describe(self, name: str, arrays: _Arrays) -> dict[str, Any]:
        """Add the maps under a name, and describe the run."""
        names = []
        for step, (content, described) in self.steps.items():
            names.append(f"{name}-{step}")
            arrays.add(names[-1], content, described, later=True)
        curve = self.run.curve
        return {
            "label": self.run.label,
            "features": self.run.num_features,
            "steps": list(self.steps),
            "arrays": names,
            "cosines": [_short(self.run.cosines[step]) for step in self.steps],
            "curve": None if curve is None else [list(curve[0]), _short(curve[1])],
        }


def _pack_run(run: Learned, cells: Cells) -> _PackedRun:
    last = max(run.components)
    packed = {
        # Values are projected on the last ones; the others are to be looked at.
        step: _packed_maps(cells.on_cells(run.components[step]), 16 if step == last else 8)
        for step in sorted(run.components)
    }
    return _PackedRun(run, packed)


def _short(values: Any) -> list[float | None]:
    """Return numbers with seven digits, None for what is not finite."""
    return [
        float(f"{float(value):.7g}") if math.isfinite(value) else None
        for value in np.asarray(values, np.float64)
    ]


def _colours(colormap: Any) -> str:
    """Return 256 colours, red, green and blue in a byte each, as base64."""
    table = np.rint(255 * np.asarray(colormap(np.arange(256)))[:, :3]).astype(np.uint8)
    return base64.b64encode(table.tobytes()).decode()
