"""Plant each one-line fault of tests/faults.toml in a copy and report which ones the tests notice.

    python scripts/faults.py --area losses --results runs/faults.csv

The tests must pass without a fault. For each fault, the tests of tier 0 then run up to the first
failure. Faults that the results list as caught are not run again. A repeated call thus continues an
interrupted one, and tries again the faults that were not caught.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

ROOT = Path(__file__).parents[1]
TIMEOUT = 600.0
"""Seconds after which tests count as failed, since a fault may make a loop endless."""

Fault = dict[str, Any]


class Result(NamedTuple):
    """Result of a fault; ``test`` is the first test that failed, empty if none failed."""

    name: str
    area: str
    caught: str
    test: str
    seconds: float


def read_faults(path: Path = ROOT / "tests/faults.toml") -> list[Fault]:
    """Read the list of faults."""
    faults: list[Fault] = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    return faults


def plant(fault: Fault, checkout: Path = ROOT) -> str:
    """Return the text of a fault's file with the fault in it.

    Raises:
        ValueError: If the line to replace does not occur exactly once, or is not changed.
    """
    text = (checkout / fault["file"]).read_text(encoding="utf-8")
    count = text.count(fault["find"])
    if count != 1 or fault["find"] == fault["replace"]:
        raise ValueError(f"expected {fault['name']} once in {fault['file']}, got {count} times")
    planted: str = text.replace(fault["find"], fault["replace"])
    return planted


def copy_checkout(folder: Path) -> None:
    """Copy packages and tests to a folder from which Python imports the packages."""
    for part in ("rlreps", "agents", "envs", "data", "scripts", "tests", "docs"):
        shutil.copytree(ROOT / part, folder / part)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy2(ROOT / name, folder)
    for part in ("agents", "envs", "data", "scripts/experiments"):
        (folder / "rlreps" / Path(part).name).symlink_to(folder / part)


def first_failure(folder: Path, tests: Sequence[str]) -> str:
    """Run tests in a copy up to the first failure and name it; empty if all pass."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not integration and not experiments"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"timeout of {TIMEOUT:g} s"
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2].partition(" - ")[0]
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    if done.returncode != 0:
        # No test failed or passed: with a wrong path, nothing is known about the fault.
        raise RuntimeError(f"expected tests to run, got from pytest:\n{done.stdout}{done.stderr}")
    return ""


def try_fault(fault: Fault, folder: Path) -> Result:
    """Run the tests of one fault in a copy, then restore the copy."""
    began = time.perf_counter()
    file = folder / fault["file"]
    sound = file.read_text(encoding="utf-8")
    file.write_text(plant(fault, folder), encoding="utf-8")
    try:
        test = first_failure(folder, fault["tests"])
    finally:
        file.write_text(sound, encoding="utf-8")
    caught = "yes" if test else "no"
    seconds = round(time.perf_counter() - began, 1)
    return Result(fault["name"], fault["area"], caught, test, seconds)


def read_results(path: Path) -> dict[str, Result]:
    """Read earlier results by name; none if there is no file."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [[row[name] for name in Result._fields] for row in csv.DictReader(file)]
    return {row[0]: Result(*row) for row in rows}  # type: ignore[arg-type]


def write_results(path: Path, results: Sequence[Result]) -> None:
    """Write all results as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([Result._fields, *results])


def summary(results: Sequence[Result]) -> str:
    """Return the counts by area as a Markdown table."""
    lines = ["| area | faults | caught by tier 0 |", "|---|---|---|"]
    areas = {result.area: [r for r in results if r.area == result.area] for result in results}
    for area, found in {**areas, "all": results}.items():
        lines.append(f"| {area} | {len(found)} | {sum(r.caught == 'yes' for r in found)} |")
    return "\n".join(lines)


def main(
    only: Sequence[str] = (), area: Sequence[str] = (), results: Path = Path("runs/faults.csv")
) -> None:
    """Try faults.

    Args:
        only: Names of the faults to try; all by default.
        area: Areas of the faults to try; all by default.
        results: File of the results.
    """
    faults = read_faults()
    for fault in faults:
        plant(fault)
    found = read_results(results)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name).resolve()
        copy_checkout(folder)
        chosen = [
            fault
            for fault in faults
            if (not only or fault["name"] in only)
            and (not area or fault["area"] in area)
            and not (fault["name"] in found and found[fault["name"]].caught == "yes")
        ]
        files = sorted({test for fault in chosen for test in fault["tests"]})
        if files and (test := first_failure(folder, files)):
            sys.exit(f"expected tests that pass without a fault, got {test}")
        for fault in chosen:
            result = found[fault["name"]] = try_fault(fault, folder)
            write_results(results, list(found.values()))
            print(*result, flush=True)
    print(summary(list(found.values())))
    if survivors := [result.name for result in found.values() if result.caught == "no"]:
        sys.exit(f"expected these to be caught: {', '.join(survivors)}")


if __name__ == "__main__":
    tyro.cli(main)
