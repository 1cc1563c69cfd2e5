"""Measure the effect of kills, signals, short writes and flipped bits on commands and files.

    python scripts/faults_campaign.py --out runs/campaign

A trial starts a tiny command in a folder of its own, disturbs the command at a random moment or its
files at a random place, runs the same command again, and compares the files with an undisturbed
run. The table that it prints is on ``docs/results/faults-campaign.md``.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tyro

LIMIT = 300.0
"""Seconds after which a command counts as hanging."""
JOBS: Mapping[str, tuple[str, str]] = {
    "successor generate": (
        "",
        "successor generate --bins 16 --block-rows 7 --rollouts 300 --horizon 600 --out psi",
    ),
    "svd": ("successor generate", "svd psi --rank 60 --power-iterations 300"),
    "train": (
        "svd",
        "train psi --out run --num-features 3 --steps 240 --rows 100 --tasks 32 --hidden 32 "
        "--evaluate-every 20 --checkpoint-every 40 --num-seeds 2",
    ),
    "agent train": (
        "",
        "agent train --out run --num-features 8 --hidden 16 --num-seeds 2 --steps 1200 "
        "--warmup 100 --evaluate-every 100 --checkpoint-every 200 --evaluation-episodes 4 "
        "--max-episode-steps 50",
    ),
}
"""Command → the command whose folder it starts from, if any, and its arguments."""


def start(job: str, folder: Path, prepare: Callable[[], None] | None = None) -> Any:
    """Start a command in a folder."""
    program = [sys.executable, "-c", "from rlreps.app.main import main; main()"]
    words = [*JOBS[job][1].split(), "--quiet"]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*program, *words], cwd=folder, preexec_fn=prepare, **pipes)


def end(process: Any) -> tuple[int | None, str]:
    """Wait for a command; return its code (None if it hangs) and its last line of errors."""
    try:
        _, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, ""
    return process.returncode, (errors.strip().splitlines() or [""])[-1]


def results(folder: Path) -> dict[str, str]:
    """Return file → checksum, of the content in which two undisturbed runs agree.

    Times and provenance are removed from JSON. Reports, checkpoints and TensorBoard's events are
    left out because they state times; temporary files and locks are left out too.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        parts = {"checkpoints", "tensorboard"} & {*name.split("/")}
        if not path.is_file() or parts or "/." in f"/{name}" or name.endswith((".html", ".lock")):
            continue
        content = path.read_bytes()
        if path.suffix in (".json", ".jsonl"):
            text = content.decode(errors="replace")
            lines = [text] if path.suffix == ".json" else text.splitlines()
            with contextlib.suppress(ValueError):  # A damaged file counts with its bytes.
                content = json.dumps([_timeless(json.loads(line)) for line in lines]).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    if not isinstance(value, dict):
        return value
    untold = ("second", "provenance", "checksum", "files", "compile")
    return {
        key: _timeless(each)
        for key, each in value.items()
        if not any(name in key for name in untold)
    }


def undisturbed_seconds(job: str, out: Path) -> float:
    """Run a command twice, the first time to compile; return the seconds of the second run.

    Raises:
        RuntimeError: If the command fails, so that no trial could be compared with it.
    """
    before, folder, seconds = JOBS[job][0], out / "undisturbed" / job.replace(" ", "-"), 0.0
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        if before:
            shutil.copytree(out / "undisturbed" / before.replace(" ", "-"), folder)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        code, said = end(start(job, folder))
        seconds = time.monotonic() - began
        if code != 0:
            raise RuntimeError(f"expected {job} to succeed, got code {code}: {said}")
    return seconds


def flip(folder: Path, generator: np.random.Generator) -> str:
    """Flip one bit of one file, and return the file's name."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    path = files[generator.integers(len(files))]
    content = bytearray(path.read_bytes())
    content[generator.integers(len(content))] ^= 1 << int(generator.integers(8))
    path.write_bytes(content)
    return path.relative_to(folder).as_posix()


def trial(fault: str, job: str, index: int, out: Path, seconds: float) -> str:
    """Disturb a command or its files, run it again, and return the result's column."""
    generator = np.random.default_rng([zlib.crc32(f"{fault}/{job}".encode()), index])
    undisturbed, before = out / "undisturbed", JOBS[job][0]
    folder = out / "work" / f"{fault}-{job}-{index}".replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    if source := job if fault == "flip, finished" else before:
        shutil.copytree(undisturbed / source.replace(" ", "-"), folder)
    folder.mkdir(parents=True, exist_ok=True)
    if fault == "short write":
        size = int(np.exp(generator.uniform(np.log(2e3), np.log(1e6))))
        limit = resource.RLIMIT_FSIZE, (size, size)
        end(start(job, folder, lambda: resource.setrlimit(*limit)))
    elif fault != "flip, finished":
        for _ in range(1 if "flip" in fault else int(generator.integers(1, 3))):
            process = start(job, folder)
            time.sleep(float(generator.uniform(0.3, 1.0)) * seconds)
            process.send_signal(signal.SIGTERM if fault == "SIGTERM" else signal.SIGKILL)
            end(process)
    harmed = flip(folder, generator) if "flip" in fault else ""
    code, said = end(start(job, folder))
    if code == 2 and said.startswith("rlreps: ") and harmed:
        return "refused"
    if code != 0:
        print(f"{folder.name}: code {code}: {said}", flush=True)
        return "unclear ends"
    found, expected = results(folder), results(undisturbed / job.replace(" ", "-"))
    differing = [name for name, mark in expected.items() if found.get(name) != mark]
    if differing == [harmed]:
        return "left as it was"
    if differing:
        print(f"{folder.name}: others in {', '.join(differing)}", flush=True)
        return "wrong results used"
    shutil.rmtree(folder)
    return "bit-identical"


FAULTS = {
    "kill -9": 20,
    "SIGTERM": 4,
    "short write": 4,
    "flip, interrupted": 10,
    "flip, finished": 10,
}
"""Fault → trials of each command."""
COLUMNS = ("bit-identical", "refused", "left as it was", "wrong results used", "unclear ends")


def main(out: Path, trials: int | None = None, jobs: int = 2) -> None:
    """Run the campaign.

    Args:
        out: Folder of the campaign.
        trials: Trials of each fault and command; the numbers of ``FAULTS`` by default.
        jobs: Trials at a time.
    """
    out = out.absolute()
    os.environ["JAX_PLATFORMS"] = "cpu"
    seconds = {job: undisturbed_seconds(job, out) for job in JOBS}
    lines = [f"| what was done | trials | {' | '.join(COLUMNS)} |", "|---" * 7 + "|"]
    bad = 0
    for fault, usual in FAULTS.items():
        for job in JOBS:
            count = trials or usual
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                ends = pool.map(
                    lambda index, fault=fault, job=job: trial(fault, job, index, out, seconds[job]),
                    range(count),
                )
                found = collections.Counter(ends)
            bad += found["wrong results used"] + found["unclear ends"]
            numbers = " | ".join(str(found[column]) for column in COLUMNS)
            lines.append(f"| {fault}: {job} | {count} | {numbers} |")
            print(lines[-1], flush=True)
    if bad:
        sys.exit(f"{bad} trials used a wrong result or ended unclearly")


if __name__ == "__main__":
    tyro.cli(main)
