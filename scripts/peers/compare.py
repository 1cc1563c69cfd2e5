"""Time rlreps beside other packages on the same work, in turns, and write the page of results.

    python scripts/peers/compare.py run streaming_pca --sizes images MNIST_FOLDER
    python scripts/peers/compare.py run dqn_gymnax --checkouts purejaxrl CHECKOUT
    python scripts/peers/compare.py page

A row is a module beside this file: ``TITLE`` and ``WORK`` say what is done (with sizes as
replacement fields), ``SIZES`` has its defaults, ``prepare`` makes the data, ``SIDES`` are the
implementations (ours begin with "rlreps"), and ``quality`` measures a result. All get the sizes and
the number of calls. A row with a ``seed`` gets another one in every turn. Each run of a side has a
process of its own, without a cache of compiled programs; its first call of the work counts as cold,
its last as warm.
"""

import datetime
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rlreps.files import read_json
from rlreps.formatting import format_number
from rlreps.stats import format_interval, mean_interval
from rlreps.stats.intervals import Interval

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "results"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
CLOCKS = {"cold": ("wall", 0), "warm": ("wall", -1), "warm, processor": ("processor", -1)}
"""Kind of time → clock and number of the call."""


def measure(
    row: str, side: str, given: Mapping[str, Any], path: str | None, python: str
) -> dict[str, Any]:
    """Run one side once in a process of its own."""
    hidden = ("JAX_COMPILATION_CACHE_DIR", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    if path is not None:
        environment["PYTHONPATH"] = path
    words = json.dumps({"driver": row, "side": side, **given})
    command = [python, str(HERE / "side.py"), words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


Runs = Sequence[Mapping[str, Any]]


def ratio(ours: Runs, theirs: Runs, clock: str) -> list[float]:
    """Return the geometric mean of the ratios of our time to theirs, with its 95 % interval."""
    kind, call = CLOCKS[clock]
    logs = [np.log(a[kind][call] / b[kind][call]) for a, b in zip(ours, theirs, strict=True)]
    return [float(np.exp(end)) for end in mean_interval(logs)]


def run(
    row: str,
    /,
    sizes: dict[str, str] | None = None,
    pairs: int = 5,
    calls: int = 2,
    cores: int = 1,
    checkouts: dict[str, str] | None = None,
    python: str = sys.executable,
    label: str = "",
    out: Path = DOCS / "data" / "peers",
) -> None:
    """Measure one row and write its numbers.

    Args:
        row: Name of the row's module.
        sizes: Other values of its ``SIZES``; a folder's name is not written down.
        pairs: Times that each side runs, in turns.
        calls: Calls of the work in one process, the last of which is warm.
        cores: Cores that a side may use.
        checkouts: Beginning of a side's name → folder from which that side imports.
        python: Python of the peers; that of rlreps is the one that runs this.
        label: Added to the row's name, for measurements with other options.
        out: Folder of the file ``ROW.json``.
    """
    module = importlib.import_module(row)
    kinds = {name: type(value) for name, value in module.SIZES.items()}
    own = {name: kinds[name](value) for name, value in (sizes or {}).items()}
    names = list(module.SIDES)
    found: dict[str, list[Any]] = {name: [] for name in names}
    load = os.getloadavg()[0]
    for index in range(pairs):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            ours = name.startswith("rlreps")
            paths = [path for key, path in (checkouts or {}).items() if name.startswith(key)]
            seeded = {**own, "seed": index} if "seed" in module.SIZES else own
            given = {"sizes": seeded, "calls": calls, "cores": cores}
            path = paths[0] if paths else None
            each = measure(row, name, given, path, sys.executable if ours else python)
            found[name].append(each)
            print(index, name, [f"{t:.2f} s" for t in each["wall"]], each["quality"], flush=True)
    shown = {name: name.upper() if "/" in str(value) else value for name, value in own.items()}
    known = {**module.SIZES, **shown, "calls": calls}
    # The names of folders are not written down.
    words = [
        before.strip("-").upper() if "/" in word else word
        for before, word in itertools.pairwise(sys.argv)
    ]
    summary = {
        "title": module.TITLE + label.replace("_", " "),
        "work": module.WORK.format(**known),
        "command": " ".join(["python scripts/peers/compare.py", *words]),
        "date": datetime.date.today().isoformat(),
        "cores": cores,
        "machine": {"cores": os.cpu_count(), "load": [load, os.getloadavg()[0]]},
        "sizes": known,
        "ratios": [
            {"ours": a, "peer": b, **{clock: ratio(found[a], found[b], clock) for clock in CLOCKS}}
            for a, b in itertools.product(found, found)
            if a.startswith("rlreps") and not b.startswith("rlreps")
        ],
        "runs": found,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{row}{label}.json").write_text(
        json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def page(data: Path = DOCS / "data" / "peers", out: Path = DOCS / "peers.md") -> None:
    """Write the generated part of the page from the numbers of all rows; keep the rest."""
    titles = ["work", "rlreps", "peer", *CLOCKS, "quality: rlreps, peer"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    details = []
    for path in sorted(data.glob("*.json")):
        row = read_json(path)
        measures = [*next(iter(row["runs"].values()))[0]["quality"]]

        def found(side: str, measure: str, row: Any = row) -> str:
            values = [each["quality"][measure] for each in row["runs"][side]]
            return format_number(statistics.median(values))

        for each in row["ratios"]:
            cells = [format_interval(Interval(*each[kind])) for kind in CLOCKS]
            names = each["ours"], each["peer"]
            cells += [
                "; ".join(f"{m} {', '.join(found(name, m) for name in names)}" for m in measures)
            ]
            link = f"[{row['title']}](#{row['title'].lower().replace(' ', '-')})"
            lines.append(f"| {' | '.join([link, *names, *cells])} |")
        details += [
            f"\n## {row['title']}\n",
            textwrap.fill(row["work"], 125, break_on_hyphens=False),
            f"\n`{row['command']}`\n",
        ]
        details.append("| | cold, s | warm, s | " + " | ".join(measures) + " | versions |")
        details.append("|---" * (4 + len(measures)) + "|")
        for name, runs in row["runs"].items():
            seconds = [statistics.median(each["wall"][call] for each in runs) for call in (0, -1)]
            versions = ", ".join(f"{k} {v}" for k, v in runs[0]["versions"].items() if v)
            cells = [*map(format_number, seconds), *(found(name, m) for m in measures)]
            details.append(f"| {name} | {' | '.join(cells)} | {versions} |")
    text = out.read_text(encoding="utf-8") if out.exists() else f"# Peers\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    generated = "\n".join([BEGIN, *lines, *details, END])
    out.write_text(before + generated + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"run": run, "page": page})
