"""Release a run of the benchmark's or the games' laptop preset, to compare other objectives with.

    python scripts/release_results.py runs/benchmark [--retime]
    python scripts/release_results.py runs/games

Writes ``data/benchmark.json.gz`` or ``data/games.json.gz``: what each cell measured, with four
significant digits, and the features that the benchmark's report draws.

``--retime`` first replaces the seconds in a benchmark's parts, which other work on the machine may
have increased. The new value is the number of updates times the least time of an update in the
first world, over several repeated measurements. Start ``rlreps benchmark`` again without
``summary.json`` for a report with these times.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.config import as_json
from rlreps.errors import require
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.ours.benchmark_runs import TRIALS, Config, learner_of, trained
from rlreps.experiments.ours.chains import KnownChain
from rlreps.experiments.ours.contestants import Row
from rlreps.files import read_json, write_atomically
from rlreps.runs import RunFolder
from rlreps.study import Run, in_path

CONFIG = Config()
CELLS = EXPERIMENTS["benchmark"].load().cells(Run(CONFIG, None))
UPDATES, REPEATS = 50, 6
"""Number of updates that are timed together, and number of repeats."""


def rounded(value: Any) -> Any:
    """Round every number in nested lists and dictionaries."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def update_seconds(run: Path, row: Row, world: KnownChain, d: int) -> float | None:
    """Measure the time of one update of one seed, the least over repeats; None if it failed."""
    name = in_path(TRIALS.format(row=row, world=CONFIG.worlds[0]))
    tuned = read_json(run / "parts" / f"{name}.json")
    if "trials" not in tuned:
        return None
    rate, value, _ = tuned["trials"][0]
    learner = learner_of(CONFIG, world, row, d, rate, value)
    seeds = range(CONFIG.num_seeds)
    result, _ = trained(
        world, row, [learner] * len(seeds), seeds, steps=UPDATES * REPEATS, evaluate_every=UPDATES
    )
    spans = np.diff([each["seconds"] for each in result.history])
    return float(np.min(spans)) / (UPDATES * len(seeds))


def retime(run: Path) -> None:
    """Replace the seconds in a run's parts, after all updates are timed."""
    world, costs = KnownChain.of(CONFIG.worlds[0], CONFIG.bins, CONFIG.discount), {}
    for row in CONFIG.rows:
        for d in CONFIG.dimensions if row.objective is not None else ():
            costs[row.method, d] = cost = update_seconds(run, row, world, d)
            print(f"{row.method}, d = {d}: {cost} s", flush=True)
    for name, cell in CELLS.items():
        path, cost = run / "parts" / f"{name}.json", costs.get((cell["row"].method, cell["d"]))
        part = read_json(path)
        if cost is not None and "values" in part:
            part["values"]["seconds"] = [[cost * step for step in part["steps"]]]
            write_atomically(path, json.dumps(part).encode())


def gathered(run: Path) -> dict[str, Any]:
    """Gather a run's configuration and its parts, without seconds.

    Raises:
        InputError: For another experiment, or another preset, whose parts have the same names.
    """
    folder = RunFolder(run)
    require(folder.kind in ("benchmark", "games"), "a run of benchmark or games", folder.kind)
    experiment = EXPERIMENTS[folder.kind].load()
    config = experiment.presets["laptop"]
    require(folder.config == as_json(config), "a run of the laptop preset", str(run))
    found = {}
    for name, cell in experiment.cells(Run(config, folder)).items():
        part = read_json(run / "parts" / f"{name}.json")
        part.get("values", {}).pop("seconds", None)
        if (cell["world"], cell.get("d")) != (CONFIG.worlds[0], CONFIG.tuned_at):
            part.pop("features", None)
        found[name] = rounded(part)
    return {"config": folder.config, "cells": found}


def main() -> None:
    """Write the release, after timing again if asked to."""
    run = Path(sys.argv[1])
    content = gathered(run)
    if "--retime" in sys.argv:
        require(RunFolder(run).kind == "benchmark", "a run of benchmark to time", str(run))
        retime(run)
    text = json.dumps(content, separators=(",", ":")).encode()
    released = Path(__file__).parents[1] / "data" / f"{RunFolder(run).kind}.json.gz"
    write_atomically(released, gzip.compress(text, mtime=0))
    print(f"{released}: {len(content['cells'])} cells, {released.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
