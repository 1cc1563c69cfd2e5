"""Releases a run of ``rlreps benchmark --preset laptop``, beside which others set their own rows.

    python scripts/release_benchmark.py runs/benchmark

Writes ``data/benchmark.json.gz``: what each cell measured, with four significant digits, and the
features that the report draws.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from rlreps.experiments.harness import crossed
from rlreps.experiments.ours.benchmark_runs import CELL, Config


def rounded(value: Any) -> Any:
    """Round every number in nested lists and dictionaries."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Gather the parts of the run."""
    run, config, found = Path(sys.argv[1]), Config(), {}
    cells = crossed(CELL, row=config.rows, world=config.worlds, d=config.dimensions)
    for name, cell in cells.items():
        part = json.loads((run / "parts" / f"{name}.json").read_text(encoding="utf-8"))
        if (cell["world"], cell["d"]) != (config.worlds[0], config.tuned_at):
            part.pop("features", None)
        found[name] = rounded(part)
    text = json.dumps(found, separators=(",", ":")).encode()
    released = Path(__file__).parents[1] / "data" / "benchmark.json.gz"
    released.write_bytes(gzip.compress(text, mtime=0))
    print(f"{released}: {len(found)} cells, {released.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
