"""Build every named world and write its page's data, figure and table, and the digests of rules.

python scripts/worlds_page.py [NAME ...]
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlreps.app.worlds import describe_world
from rlreps.plotting import save_figure, signed_colormap, styled
from rlreps.runs.progress import hidden
from rlreps.worlds import WORLDS, World, load

DOCS = Path(__file__).parents[1] / "docs" / "results"
DATA, FIGURE = DOCS / "data" / "worlds" / "worlds.json", DOCS / "figures" / "worlds.png"
DIGESTS = DOCS.parents[1] / "rlreps" / "worlds" / "digests.json"
PAGE = DOCS / "worlds.md"
_COLUMNS = 5

KEPT = ("package", "name", "states", "actions", "deterministic", "terminal", "rewarded", "aliased")
KEPT += ("observation", "digest", "seconds", "optimal_value_at_the_start", "effective_horizon")
KEPT += ("singular_values", "energy_captured")

HEADER = "| world | states | actions | aliased | seconds | V* at the start | horizon | σ |"


def row(name: str, told: dict[str, Any]) -> str:
    """Return a row of the page's table."""
    horizon = told["effective_horizon"]
    cells = [
        f"`{name}`",
        f"{told['states']:,}",
        str(told["actions"]),
        f"{told['aliased']:,}",
        f"{told['seconds']:.1f}",
        f"{told['optimal_value_at_the_start']:.3g}",
        "" if horizon is None else f"{horizon:.1f}",
        ", ".join(f"{value:.2f}" for value in told["singular_values"][:3]),
    ]
    return f"| {' | '.join(cells)} |"


def table(worlds: dict[str, Any]) -> str:
    """Return the page's table."""
    lines = [HEADER, "|---|" + "---:|" * 6 + "---|"]
    return "\n".join(lines + [row(name, told) for name, told in worlds.items()])


@styled
def picture(worlds: dict[str, World]) -> Figure:
    """Draw two components of each world: maps over two coordinates, or a frame at one end."""
    lines = math.ceil(len(worlds) / _COLUMNS)
    figure = Figure(figsize=(1.9 * _COLUMNS, 1.25 * lines))
    panels = figure.subplots(lines, 2 * _COLUMNS, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for index, (name, world) in enumerate(worlds.items()):
        line, column = divmod(index, _COLUMNS)
        basis = world.truth().principal.basis
        for k in range(2):
            axes = panels[line, 2 * column + k]
            _draw(axes, world, basis[:, min(k, basis.shape[1] - 1)])
            if k == 0:
                axes.set_title(name.removeprefix("minigrid-"), fontsize=6.5, loc="left")
    return figure


def _draw(axes: Axes, world: World, values: np.ndarray) -> None:
    grid, cells = world.places()
    if len(grid.bins) < 2:
        axes.imshow(world.observations[int(np.argmax(values))], cmap="gray")
        return
    plane = np.unravel_index(cells, grid.bins[::-1])[::-1]
    shape = grid.bins[1::-1]
    counts, sums = np.zeros(shape), np.zeros(shape)
    np.add.at(counts, (plane[1], plane[0]), 1.0)
    np.add.at(sums, (plane[1], plane[0]), values)
    means = np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)
    limit = float(np.nanmax(np.abs(means))) or 1.0
    axes.imshow(means, origin="lower", cmap=signed_colormap(), vmin=-limit, vmax=limit)


def main(names: list[str]) -> None:
    """Build the worlds, measure them, and write data, figure and page."""
    found: dict[str, Any] = {}
    with hidden():
        for name in names:
            began = time.perf_counter()
            told = describe_world(name)
            found[name] = {key: told[key] for key in KEPT}
            print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
    record = {"command": "python scripts/worlds_page.py", "discount": 0.95, "worlds": found}
    rules = {
        name: {"package": told["package"], "rules": load(name).rules_digest}
        for name, told in found.items()
        if not name.startswith("maze-")
    }
    DIGESTS.write_text(json.dumps(rules, indent=1) + "\n")
    DATA.parent.mkdir(parents=True, exist_ok=True)
    DATA.write_text(json.dumps(record, indent=1) + "\n")
    save_figure(picture({name: load(name) for name in names}), FIGURE)
    write_table(found)


def write_table(worlds: dict[str, Any]) -> None:
    """Put the table in the place of the page's."""
    before, rest = PAGE.read_text().split(HEADER)
    PAGE.write_text(before + table(worlds) + rest[rest.index("\n\n") :])


if __name__ == "__main__":
    main(sys.argv[1:] or list(WORLDS))
