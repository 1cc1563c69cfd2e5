"""Count the programs that a command compiles, and the seconds of tracing, lowering and compiling.

    python scripts/compile_times.py quickstart train fit agent
    python scripts/compile_times.py "train store --method danskin_lissa --out runs/a"

A name stands for a small command of its kind; any other argument is the arguments of ``rlreps``.
Each command runs in a process of its own, without the compilation cache, in a folder that holds a
small store of PuddleWorld, ``store``. A program that JAX makes for one operation outside a compiled
function counts too.
"""

import collections
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import tyro

COMMANDS = {
    "quickstart": "quickstart --preset smoke --out runs/quickstart",
    "train": "train store --num-features 10 --steps 200 --out runs/train",
    "fit": "fit CartPole-v1 --collect 5000 --out runs/fit",
    "agent": "agent train --steps 4000 --evaluate-every 2000 --out runs/agent",
}
"""Name → arguments of ``rlreps``."""

PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
"""JAX's name of an event → phase."""


def record(place: Path, arguments: list[str]) -> None:
    """Run a command in this process; write the count and the seconds of each phase as JSON."""
    import jax.monitoring

    from rlreps.app.main import main

    counts: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()

    def listen(event: str, duration: float, **_: object) -> None:
        if phase := PHASES.get(event):
            counts[phase] += 1
            seconds[phase] += duration

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        main(arguments)
    finally:
        place.write_text(json.dumps({"programs": counts["compile"], **seconds}))


def measure(arguments: str) -> dict[str, float]:
    """Run a command in a process of its own; return its programs and the seconds of each phase."""
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "found.json"
        store = "successor generate --bins 10 --rollouts 16 --out store"
        subprocess.run(
            [sys.executable, "-P", "-m", "rlreps", *store.split()],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--record", str(place)]
        subprocess.run(
            [*command, *shlex.split(arguments)],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found: dict[str, float] = json.loads(place.read_text())
    return found


def main(commands: tyro.conf.Positional[tuple[str, ...]] = tuple(COMMANDS)) -> None:
    """Print a Markdown table of commands.

    Args:
        commands: Names of ``COMMANDS``, or arguments of ``rlreps``.
    """
    print("| command | programs | trace, s | lower, s | compile, s |\n|---|---:|---:|---:|---:|")
    for command in commands:
        arguments = COMMANDS.get(command, command)
        found = measure(arguments)
        phases = " | ".join(f"{found.get(phase, 0.0):.1f}" for phase in PHASES.values())
        print(f"| `rlreps {arguments}` | {found['programs']:.0f} | {phases} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(Path(sys.argv[2]), sys.argv[3:])
    else:
        tyro.cli(main)
