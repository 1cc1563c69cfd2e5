"""Release a run of ``rlreps benchmark --preset laptop``, to compare other objectives with.

    python scripts/release_benchmark.py runs/benchmark

Writes ``data/benchmark.json.gz``: what each cell measured, with four significant digits and without
seconds, and the features that the report draws.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from rlreps.config import as_json
from rlreps.errors import require
from rlreps.experiments.harness import crossed
from rlreps.experiments.ours.benchmark_runs import CELL, Config
from rlreps.files import write_atomically

CONFIG = Config()
CELLS = crossed(CELL, row=CONFIG.rows, world=CONFIG.worlds, d=CONFIG.dimensions)


def rounded(value: Any) -> Any:
    """Round every number in nested lists and dictionaries."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def gathered(run: Path) -> dict[str, Any]:
    """Gather a run's configuration and its parts, without seconds.

    Raises:
        InputError: For a run of another preset, whose parts have the same names.
    """
    stored = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
    require(stored == as_json(CONFIG), "a run of the laptop preset", str(run))
    found = {}
    for name, cell in CELLS.items():
        part = json.loads((run / "parts" / f"{name}.json").read_text(encoding="utf-8"))
        part.get("values", {}).pop("seconds", None)
        if (cell["world"], cell["d"]) != (CONFIG.worlds[0], CONFIG.tuned_at):
            part.pop("features", None)
        found[name] = rounded(part)
    return {"config": stored, "cells": found}


def main() -> None:
    """Write the release."""
    content = gathered(Path(sys.argv[1]))
    text = json.dumps(content, separators=(",", ":")).encode()
    released = Path(__file__).parents[1] / "data" / "benchmark.json.gz"
    write_atomically(released, gzip.compress(text, mtime=0))
    print(f"{released}: {len(CELLS)} cells, {released.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
