"""Measure what faults do to running commands and to the files that they leave.

    python scripts/faults_campaign.py --out runs/faults
    python scripts/faults_campaign.py --out runs/faults --only kill/train 'flip/*store*' --trials 10
    python scripts/faults_campaign.py --out runs/faults --page docs/results/faults-campaign.md

A trial starts a tiny command in a folder of its own, harms it or its files at a random moment or
place, runs the same command again until it ends, and compares what is there with an undisturbed
run. Each is a line of ``OUT/trials.jsonl``; a call makes the trials that have none yet, and trial i
of a row draws the same numbers every time. ``OUT/table.md`` and ``OUT/table.csv`` sum them up.

Commands are forked from a process that has imported the packages and started no thread, so moments
fall into their work rather than into imports; the undisturbed run is a process of its own that
imports everything itself. Every process of a trial is bound to one core, and ``--jobs`` trials go
on at a time. File systems are mounted in a name space that ends with the campaign; rows that the
system does not permit, or whose command has no such option, are "not supported".
"""

import argparse
import contextlib
import csv
import ctypes
import dataclasses
import datetime
import fnmatch
import functools
import hashlib
import io
import json
import logging
import os
import platform
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

ROOT = Path(__file__).parents[1]
PAGE = 4096
HEARTBEAT = 5
"""Seconds after which processes that work together miss one of them, where that can be set."""
TIMEOUT = 30
"""Seconds that processes wait for the others to start: a kill may come before they have met."""
GOES_ON = "the same command, started everywhere, goes on from what was saved"
"""What processes say that end because another did."""
LOST_ANOTHER = 1, -signal.SIGABRT
"""Codes with which they do."""
SAY_EVERY = 60.0
"""Seconds between lines on how far it has come."""
RESULT_FREE = {"provenance", "checksum", "files", "peak_memory_mib"}
"""Keys of JSON files that tell of one process and its times; so does any with ``second`` in it."""

Contents = dict[str, tuple[int, str]]
"""Name of a part → its size and what tells it from others."""


# Commands.


@dataclasses.dataclass(frozen=True)
class Job:
    """A tiny command.

    Attributes:
        words: Its arguments; ``{here}`` is the folder of the trial.
        output: The folder below that it works in.
        start: The job whose finished folder it starts from.
        modules: What is imported before it is forked.
        processes: How many work together.
    """

    name: str
    words: str
    output: str
    start: str = ""
    modules: tuple[str, ...] = ()
    processes: int = 1

    @property
    def key(self) -> str:
        """Name of its undisturbed run."""
        return self.name if self.processes == 1 else f"{self.name} x {self.processes}"


GENERATE = (
    "successor generate --bins 16 --block-rows 7 --discount 0.95 --rollouts 300 --horizon 600 "
    "--quiet --out {here}/psi"
)
SVD = "svd {here}/psi --rank 60 --power-iterations 300 --quiet"
TRAIN = (
    "train {here}/psi --out {here}/run --num-features 3 --steps 240 --rows 100 --tasks 32 --hidden "
    "32 --evaluate-every 20 --checkpoint-every 40 --num-seeds 2 --quiet"
)
AGENT = (
    "agent train --out {here}/run --num-features 8 --hidden 16 --num-seeds 2 --steps 1200 --warmup "
    "100 --evaluate-every 100 --checkpoint-every 200 --evaluation-episodes 4 --max-episode-steps "
    "50 --quiet"
)
_RUNS = ("rlreps.runs.checkpoints", "matplotlib.pyplot", "tensorboardX")
JOBS = {
    job.name: job
    for job in (
        Job("generate", GENERATE, "psi", modules=("cli.successor", "rlreps.workflows.generate")),
        Job("svd", SVD, "psi", "generate", ("cli.successor", "rlreps.workflows.generate")),
        Job("train", TRAIN, "run", "svd", ("cli.training", "rlreps.workflows.train", *_RUNS)),
        Job("agent", AGENT, "run", modules=("cli.agent", "rlreps.workflows.agents", *_RUNS)),
        Job("streaming", "streaming {here}/run", "run", modules=("rlreps.streaming", *_RUNS)),
    )
}


def stream(folder: Path, batches: int = 200, every: int = 10) -> None:
    """Learn components of a stream of rows online, with a checkpoint every few batches.

    A user's program over ``rlreps.streaming``, which leaves checkpoints to ``rlreps.runs``.
    """
    import jax
    import jax.numpy as jnp

    from rlreps.files import write_atomically
    from rlreps.runs.checkpoints import Checkpoints
    from rlreps.runs.locks import exclusive
    from rlreps.streaming import ImplicitKrasulina, PowerDecay

    rule = ImplicitKrasulina(64, 8, learning_rate=PowerDecay(1.0, 0.9))
    scales = jnp.linspace(3.0, 0.3, 64)

    @jax.jit
    def learn(state: Any, batch: jax.Array) -> Any:
        rows = scales * jax.random.normal(jax.random.fold_in(jax.random.key(1), batch), (256, 64))
        return rule.update_each(state, rows)

    checkpoints = Checkpoints(folder / "checkpoints")
    with exclusive(folder):
        state, done = rule.init(jax.random.key(0)), 0
        if checkpoints.latest_step() is not None:
            done, state = checkpoints.restore_latest(state)
        for batch in range(done, batches):
            state = learn(state, batch)
            if (batch + 1) % every == 0:
                checkpoints.save(batch + 1, state)
        content = io.BytesIO()
        np.save(content, np.asarray(rule.components(state)))
        write_atomically(folder / "components.npy", content.getvalue())


def enter(words: Sequence[str]) -> None:
    """Run a command as its own process would."""
    from rlreps import cli

    sys.argv = ["rlreps", *words]
    if words[0] != "streaming":
        cli.main()
        return
    for name in ("absl", "asyncio"):  # As the command line does: Orbax's threads say much.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    try:
        stream(Path(words[1]))
    except (ValueError, OSError) as error:
        print(f"rlreps: error: {' '.join(str(error).splitlines())}", file=sys.stderr, flush=True)
        os._exit(2)


# What a folder holds.


def contents(folder: Path) -> Contents:
    """Tell what a folder holds of results: what two undisturbed runs have in common.

    JSON comes without ``RESULT_FREE`` and times; a checkpoint as the keys and bytes that Orbax
    keeps in its database, whose files have random names, with its seal's step and run. Left out are
    reports in HTML and TensorBoard's events, which state times, locks, and what a kill left under a
    temporary name.
    """
    found: Contents = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        parts = name.split("/")
        if not file.is_file() or is_litter(name) or "tensorboard" in parts or name.endswith("html"):
            continue
        if "default" in parts and (file.parent / "_METADATA").exists():
            if file.name == "manifest.ocdbt":
                found.update(_database(file.parent, name))
            if file.name not in ("_METADATA", "_sharding"):
                continue
        elif "ocdbt.process_" in name or file.parent.name == "d" or "array_metadatas" in parts:
            continue
        if file.name in ("_CHECKPOINT_METADATA", "commit_success.txt"):
            continue  # Times.
        found[name] = _part(_plain(file))
    return found


def as_contents(loaded: Mapping[str, Any]) -> Contents:
    """Return contents that were JSON."""
    return {name: (size, mark) for name, (size, mark) in loaded.items()}


def is_litter(name: str) -> bool:
    """Tell whether a name is one under which nothing is looked for: temporary, or a lock."""
    return any(
        part.startswith(".") or part.endswith(".__lock") or ".orbax-checkpoint-tmp" in part
        for part in name.split("/")
    )


def _part(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()[:16]


def _database(folder: Path, name: str) -> Contents:
    import tensorstore as ts

    try:
        store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{folder}/"}).result()
        keys = sorted(store.list().result())
        values = {key.decode(): _part(store.read(key).result().value) for key in keys}
    except ValueError as error:
        return {name: (0, f"unreadable: {error}"[:200])}
    return {f"{name.removesuffix('manifest.ocdbt')}{key}": part for key, part in values.items()}


def _plain(file: Path) -> bytes:
    """Read a file without what tells of one process."""
    content = file.read_bytes()
    try:
        if file.name == "seal.json":
            seal = json.loads(content)
            return json.dumps({name: seal[name] for name in ("layout", "step", "run")}).encode()
        if file.suffix == ".json":
            return json.dumps(_timeless(json.loads(content))).encode()
        if file.suffix == ".jsonl":
            lines = content.splitlines()
            return json.dumps([_timeless(json.loads(line)) for line in lines]).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # Damaged: as it is.
    return content


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _timeless(item)
        for key, item in value.items()
        if key not in RESULT_FREE and "second" not in key
    }


def differences(expected: Contents, found: Contents) -> list[str]:
    """Name the parts that are missing or not as expected; what there is beside them is no loss."""
    return [name for name, part in expected.items() if found.get(name) != part]


def bytes_of(expected: Contents, names: Sequence[str]) -> int:
    """Add up the sizes of some parts."""
    return sum(expected[name][0] for name in names)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fork, whose threads end with it; results are JSON values."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(writer, "w", encoding="utf-8") as out:
                json.dump(function(*arguments), out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with open(reader, encoding="utf-8") as text:
        content = text.read()
    os.waitpid(child, 0)
    return json.loads(content)


# Processes.


class End(NamedTuple):
    """How the processes of a command ended.

    Attributes:
        codes: Exit codes, negative for signals.
        printed: Standard output of the first.
        said: Last line of standard error of whichever failed, or any said.
        errors: All of standard error.
        hung: Whether they had to be killed after the time limit.
        seconds: From start to end.
    """

    codes: list[int]
    printed: str
    said: str
    errors: str
    hung: bool
    seconds: float

    @property
    def done(self) -> bool:
        """Whether all succeeded."""
        return not any(self.codes)

    @property
    def refused(self) -> bool:
        """Whether the command ended with one of its own lines and code 2, as all have to."""
        return not self.hung and {*self.codes} <= {0, 2} and any(self.codes) and self.named

    @property
    def named(self) -> bool:
        """Whether the last line is one of the command's own."""
        return self.said.startswith("rlreps: ")

    def unclear(self, *allowed: int) -> str:
        """Say what is wrong with this end, if its codes are none of those allowed."""
        if self.hung:
            return ""
        if "Traceback" in self.errors:
            return "a traceback"
        strange = [code for code in self.codes if code not in (0, 2, *allowed)]
        if strange:
            return f"code {strange[0]}"
        if {*self.codes} & {*LOST_ANOTHER} and GOES_ON not in self.errors:
            return "the loss of another process, and no line that the command goes on"
        return "" if 2 not in self.codes or self.named else "code 2 without a line of its own"


class Running:
    """A command that was started in processes of its own."""

    def __init__(
        self,
        bench: "Bench",
        words: str,
        place: Path,
        processes: int = 1,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._files, self._fds, self.pids = [], [], []
        self._codes: dict[int, int] = {}
        self.worked = [0.0] * processes
        self._began = time.monotonic()
        shared = []
        if processes > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            shared = f"--coordinator 127.0.0.1:{port} --num-processes {processes}".split()
            shared += bench.heartbeat
        for index in range(processes):
            own = [*shared, "--process-id", str(index)] if shared else []
            base = place / f"log-{time.monotonic_ns()}-{index}"
            files = base.with_suffix(".out"), base.with_suffix(".err")
            for file in files:  # It may be killed before it has opened them.
                file.touch()
            command = [word.format(here=place / "here", place=place) for word in words.split()]
            core = bench.cores[(bench.core + index) % len(bench.cores)]
            pid = os.fork()
            if pid == 0:
                _become([*command, *own], files, core, prepare)
            self._files.append(files)
            self.pids.append(pid)
            self._fds.append(os.pidfd_open(pid))

    def ended_within(self, seconds: float) -> bool:
        """Wait for all to end, for at most some seconds."""
        deadline = time.monotonic() + seconds
        while left := [fd for index, fd in enumerate(self._fds) if index not in self._codes]:
            ready, _, _ = select.select(left, [], [], max(0.0, deadline - time.monotonic()))
            for index in map(self._fds.index, ready):
                _, status, used = os.wait4(self.pids[index], 0)
                self._codes[index] = os.waitstatus_to_exitcode(status)
                self.worked[index] = used.ru_utime + used.ru_stime
            if not ready and time.monotonic() >= deadline:
                return False
        return True

    def ended_before(self, moment: float, limit: float, index: int = 0) -> bool:
        """Wait until a process has worked for so many seconds of a processor, or all have ended."""
        deadline = time.monotonic() + limit
        scheduled = 2  # Of Linux's clocks of a process: what ``clock_getcpuclockid`` returns.
        while not self.ended_within(0.002):
            if index in self._codes:
                return self.ended_within(limit)
            clock = (~self.pids[index] << 3) | scheduled
            if time.clock_gettime(clock) >= moment or time.monotonic() >= deadline:
                return False
        return True

    def signal(self, number: int, index: int = 0) -> None:
        """Send a signal to a process that has not ended."""
        if index not in self._codes:
            os.kill(self.pids[index], number)

    def end(self, limit: float) -> End:
        """Wait until all have ended, or kill them after the time limit."""
        hung = not self.ended_within(limit)
        if hung:
            for index in range(len(self.pids)):
                self.signal(signal.SIGKILL, index)
            self.ended_within(60)
        texts = [[file.read_text(errors="replace") for file in files] for files in self._files]
        for fd in self._fds:
            os.close(fd)
        codes = [self._codes.get(index, -9) for index in range(len(self.pids))]
        failed = [err for code, (_, err) in zip(codes, texts, strict=True) if code and err.strip()]
        spoken = failed or [err for _, err in texts if err.strip()]
        said = spoken[0].strip().splitlines()[-1] if spoken else ""
        errors = "".join(err for _, err in texts)
        return End(codes, texts[0][0], said, errors, hung, time.monotonic() - self._began)


def _become(
    words: list[str], files: tuple[Path, Path], core: int, prepare: Callable[[], None] | None
) -> None:
    """Be the process of a command from here on."""
    code = 1
    try:
        _end_with_parent()
        for number, file in zip((1, 2), files, strict=True):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(file, flags, 0o666), number)
        os.sched_setaffinity(0, {core})
        os.setsid()
        if prepare is not None:
            prepare()
        enter(words)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _end_with_parent() -> None:
    """Have this process killed when the one that forked it ends."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGKILL), 0, 0, 0)


# The bench.


@dataclasses.dataclass
class Bench:
    """Where trials are made: a folder, cores, and the undisturbed runs."""

    out: Path
    cores: list[int]
    core: int = 0
    heartbeat: list[str] = dataclasses.field(default_factory=list)
    references: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def limit(self, job: Job) -> float:
        """Seconds after which a job counts as hanging; other work may slow it down."""
        return 120.0 + 20.0 * self.seconds(job) + 2 * HEARTBEAT * (job.processes > 1)

    def seconds(self, job: Job) -> float:
        """Seconds that an undisturbed run takes."""
        found: float = self.references.get(job.key, {}).get("seconds", 0.0)
        return found

    def work(self, job: Job, index: int) -> float:
        """Seconds of a processor that a process of an undisturbed run takes."""
        found: float = self.references[job.key]["worked"][index]
        return found

    def expected(self, job: Job) -> Contents:
        """What is there after an undisturbed run."""
        found: Contents = self.references[job.key]["contents"]
        return found

    def folder(self, job: Job) -> Path:
        """The place of the undisturbed run."""
        return self.out / "undisturbed" / job.key.replace(" ", "")

    def prepare(self, job: Job, place: Path) -> None:
        """Fill a trial's folder with what its job starts from."""
        place.mkdir(parents=True, exist_ok=True)
        if job.start:
            start = self.folder(JOBS[job.start]) / "here"
            shutil.copytree(start, place / "here", dirs_exist_ok=True)
        else:
            (place / "here").mkdir(exist_ok=True)

    def refer(self, job: Job) -> None:
        """Make the undisturbed run of a job, if it is not there, by processes of its own.

        Raises:
            RuntimeError: If two such runs differ, which no trial could then be compared with.
        """
        if job.key in self.references:
            return
        if job.start:
            self.refer(JOBS[job.start])
        folder = self.folder(job)
        record = folder / "reference.json"
        if not record.exists():
            # The first compiles, in a process of its own where it can; the second is timed.
            made, seconds, worked = [], 0.0, [0.0]
            for place in (folder, folder / "again"):
                shutil.rmtree(place, ignore_errors=True)
                self.prepare(job, place)
                began = time.monotonic()
                if place == folder and job.processes == 1:
                    self._fresh(job, place)
                else:
                    running = Running(self, job.words, place, job.processes)
                    if not (end := running.end(self.limit(job))).done:
                        raise RuntimeError(f"expected {job.key} to succeed, got {end}")
                    worked = running.worked
                seconds = time.monotonic() - began
                made.append(as_contents(apart(contents, place / "here")))
            if made[0] != made[1]:
                found = differences(*made) or differences(*made[::-1])
                raise RuntimeError(f"expected runs of {job.key} that agree, got others in {found}")
            shutil.rmtree(folder / "again")
            found = {"seconds": seconds, "worked": worked, "contents": made[0]}
            record.write_text(json.dumps(found))
        found = json.loads(record.read_text())
        self.references[job.key] = {**found, "contents": as_contents(found["contents"])}

    def _fresh(self, job: Job, place: Path) -> None:
        core = {self.cores[self.core % len(self.cores)]}
        words = [word.format(here=place / "here") for word in job.words.split()]
        program = "import faults_campaign, sys; faults_campaign.enter(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=ROOT / "scripts",
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        if done.returncode != 0:
            raise RuntimeError(f"expected {job.key} to succeed, got {done.stderr}")


@dataclasses.dataclass
class Trial:
    """One trial: a job, random numbers, a place whose folder ``here`` the job may work in.

    Attributes:
        found: What became of it: a line of the file.
    """

    bench: Bench
    job: Job
    rng: np.random.Generator
    place: Path
    found: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {
            **dict.fromkeys(("identical", "named", "repaired", "refused", "wrong", "hang"), False),
            **dict.fromkeys(("signals", "lost", "left", "again"), 0),
            **{"longest": 0.0, "unclear": "", "did": "", "said": ""},
        }
    )

    @property
    def here(self) -> Path:
        """The folder that the job works in."""
        return self.place / "here"

    def fill(self) -> None:
        """Fill the folder with what the job starts from."""
        self.bench.prepare(self.job, self.place)

    def moment(self, index: int = 0) -> float:
        """Draw a moment of a process's work, in seconds of a processor."""
        return float(self.rng.uniform(0.0, self.bench.work(self.job, index)))

    def ended_before(self, running: Running, moment: float, index: int = 0) -> bool:
        """Let a process come to a moment of its work; return whether all have ended before."""
        return running.ended_before(moment, self.bench.limit(self.job), index)

    def start(self, prepare: Callable[[], None] | None = None) -> Running:
        """Start the job."""
        return Running(self.bench, self.job.words, self.place, self.job.processes, prepare)

    def end(self, running: Running, *allowed: int) -> End:
        """Wait for processes to end, and enter how they did."""
        end = running.end(self.bench.limit(self.job))
        self.found["longest"] = max(self.found["longest"], round(end.seconds, 2))
        self.found["hang"] |= end.hung
        self.found["unclear"] = self.found["unclear"] or end.unclear(*allowed)
        self.found["said"] = (end.said or self.found["said"])[:300]
        return end

    def contents(self) -> Contents:
        """Tell what is there."""
        return as_contents(apart(contents, self.here))

    def resume(self) -> None:
        """Run the job until it ends, and compare what is there with the undisturbed run.

        Processes on busy cores may miss each other's heartbeats, and say that the command goes on.
        """
        found, others = self.found, LOST_ANOTHER if self.job.processes > 1 else ()
        end = self.end(self.start(), *others)
        if {*end.codes} & {*others}:
            found["again"] = 1
            end = self.end(self.start())
        expected, there = self.bench.expected(self.job), self.contents()
        lost = differences(expected, there)
        found["left"] = sum(is_litter(file.name) for file in self.here.rglob("*"))
        found["lost"] = bytes_of(expected, lost)
        found["identical"] = end.done and not lost
        found["wrong"] |= end.done and bool(lost)
        found["refused"] |= end.refused
        if not end.done:
            found["unclear"] = found["unclear"] or "could not be resumed"
        if lost:
            found["differs"] = lost[:5]

    def interrupt(self, number: int, times: int, prepare: Callable[[], None] | None = None) -> None:
        """Send a signal to a process of the job at random moments, up to so many times.

        Where the job ends before the first, it starts again from nothing.
        """
        moments: list[float] = []
        for _ in range(20):
            victim = int(self.rng.integers(self.job.processes))
            moment, running = self.moment(victim), self.start(prepare)
            if self.ended_before(running, moment, victim):
                self.end(running)
                if moments:
                    break
                shutil.rmtree(self.here)
                self.fill()
                continue
            running.signal(number, victim)
            # Who is asked to end tells the others, who end with the same code, once they have met.
            others = LOST_ANOTHER if self.job.processes > 1 else ()
            end = self.end(running, -number, 128 + number, *others)
            self.found["named"] |= end.named
            moments.append(round(moment, 3))
            if len(moments) == times:
                break
        self.found["signals"] += len(moments)
        name = signal.Signals(number).name
        self.found["did"] += f"{name} after {', '.join(map(str, moments)) or 'no'} s"


# Faults.


def kill(trial: Trial) -> None:
    """Kill it at one to three random moments."""
    trial.fill()
    trial.interrupt(signal.SIGKILL, int(trial.rng.integers(1, 4)))
    trial.resume()


def terminate(trial: Trial) -> None:
    """Ask it to end, once, as cluster managers do."""
    trial.fill()
    trial.interrupt(signal.SIGTERM, 1)
    trial.resume()


def full_disk(trial: Trial) -> None:
    """Let its disk be full: from the start but for a random rest, or from a random moment on."""
    sizes = [size for size, _ in trial.bench.expected(trial.job).values()]
    need = sum(-(-size // PAGE) * PAGE + PAGE for size in sizes) + 2**20
    trial.here.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={4 * need}", "none", trial.here)
    try:
        trial.fill()
        late = trial.rng.random() < 0.5
        room = 0 if late else int(trial.rng.uniform(0.0, 0.6) * need)
        moment = trial.moment() if late else 0.0
        trial.found["did"] = f"{room:,} bytes left after {moment:.3f} s"
        running = trial.start() if late else None
        if running is not None:
            trial.ended_before(running, moment)
        ballast = trial.here / ".ballast"
        _fill(ballast, room)
        trial.found["named"] = trial.end(running or trial.start()).refused
        ballast.unlink()
        trial.resume()
    finally:
        _mount(trial.here, command="umount", lazy=True)


def _fill(ballast: Path, room: int) -> None:
    """Leave so many bytes of a file system."""
    with ballast.open("wb", buffering=0) as file:
        for _ in range(5):  # Others free and write meanwhile.
            free = os.statvfs(ballast.parent)
            left = free.f_bavail * free.f_bsize - room
            with contextlib.suppress(OSError):
                while left > 0:
                    left -= file.write(bytes(min(left, 2**16)))


def short_write(trial: Trial) -> None:
    """Cut files off at a random size: the write that reaches it is short, the next one fails."""
    trial.fill()
    largest = max(size for size, _ in trial.bench.expected(trial.job).values())
    limit = int(np.exp(trial.rng.uniform(np.log(2048), np.log(max(4096, largest)))))
    trial.found["did"] = f"files of at most {limit:,} bytes"
    running = trial.start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    trial.found["named"] = trial.end(running).refused
    trial.resume()


def clock(trial: Trial) -> None:
    """Kill it, date its files anew, and go on with clocks that jump by up to ten years."""
    trial.fill()
    years = 10 * 365 * 86400.0
    trial.found["did"] = "clocks jump; "
    for again in (False, True):
        wall, after = trial.rng.uniform(-years, years), trial.moment()
        steady = trial.rng.uniform(-0.9 * time.monotonic(), years)

        def jump(wall: float = wall, after: float = after, steady: float = steady) -> None:
            _shift_monotonic_clock(int(steady))
            _shift_wall_clock(wall, after)

        if again:
            trial.end(trial.start(jump))
        else:
            trial.interrupt(signal.SIGKILL, 1, jump)
        for file in trial.here.rglob("*"):
            moment = time.time() + trial.rng.uniform(-years, years)
            os.utime(file, (moment, moment))
    trial.resume()


def _shift_monotonic_clock(seconds: int) -> None:
    """Enter a name space whose steady clocks are ahead."""
    libc, new_time = ctypes.CDLL(None, use_errno=True), 0x80
    if libc.unshare(new_time) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/timens_offsets").write_text(f"monotonic {seconds} 0\nboottime {seconds} 0\n")
    if libc.setns(os.open("/proc/self/ns/time_for_children", os.O_RDONLY), new_time) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _shift_wall_clock(seconds: float, after: float) -> None:
    """Let Python's ``time.time`` jump once; the system's clock stays, as others use it."""
    real, real_ns, start = time.time, time.time_ns, time.monotonic()

    def offset() -> float:
        return seconds if time.monotonic() - start > after else 0.0

    time.time = lambda: real() + offset()
    time.time_ns = lambda: real_ns() + int(offset() * 1e9)


def two_at_once(trial: Trial) -> None:
    """Start it twice in one folder, a random time apart; kill the first in half of the trials."""
    trial.fill()
    moment, later = trial.moment(), trial.moment()
    first = trial.start()
    trial.ended_before(first, moment)
    second = trial.start()
    trial.found["did"] = f"the second after {moment:.3f} s"
    if trial.rng.random() < 0.5:
        trial.ended_before(first, moment + later)
        first.signal(signal.SIGKILL)
        trial.found["did"] += f", the first killed {later:.3f} s later"
    ends = [trial.end(running, -signal.SIGKILL) for running in (first, second)]
    trial.found["named"] = any(end.refused and "in use by" in end.said for end in ends)
    trial.resume()


def read_only(trial: Trial) -> None:
    """Let its file system be read-only, from the start or from a random moment on."""
    trial.fill()
    moment = trial.moment() if trial.rng.random() < 0.8 else 0.0
    trial.found["did"] = f"read-only after {moment:.3f} s"
    _mount("--bind", trial.here, trial.here)
    try:
        running = trial.start() if moment else None
        if running is not None:
            trial.ended_before(running, moment)
        deadline = time.monotonic() + trial.bench.limit(trial.job)
        while True:  # Refused while a file is open for writing.
            with contextlib.suppress(subprocess.CalledProcessError):
                _mount("-o", "remount,bind,ro", trial.here)
                break
            if time.monotonic() > deadline:
                raise TimeoutError("the folder was never free to be made read-only")
            if running is not None:
                running.ended_within(0.05)  # Trying takes the processor that it works on.
        trial.found["named"] = trial.end(running or trial.start()).refused
    finally:
        _mount(trial.here, command="umount", lazy=True)
    trial.resume()


def vanished(trial: Trial) -> None:
    """Move its folder away at a random moment, and back once it has ended."""
    trial.fill()
    folder, elsewhere = trial.here / trial.job.output, trial.place / "elsewhere"
    moment = trial.moment()
    trial.found["did"] = f"moved away after {moment:.3f} s"
    running = trial.start()
    while not folder.exists() and not running.ended_within(0.001):
        pass
    trial.ended_before(running, moment)
    folder.rename(elsewhere)
    end = trial.end(running)
    trial.found["named"] = end.refused
    if folder.exists():
        trial.found["did"] += ", made anew"
        # A command that has seen its folder go must not end as if nothing was missing.
        trial.found["wrong"] = end.done
        shutil.rmtree(folder)
    elsewhere.rename(folder)
    trial.resume()


def _mount(*words: object, command: str = "mount", lazy: bool = False) -> None:
    options = ["--lazy"] if lazy else []
    subprocess.run([command, *options, *map(str, words)], check=True, capture_output=True)


# Flipped bits.


class Bytes(NamedTuple):
    """A class of bytes: files that match, and which of their bytes; the job that wrote them."""

    job: str
    pattern: str
    part: str = "all"
    but: str = ""


STORE, RUN, PART, AGENTS = "finished store", "finished run", "interrupted run", "interrupted agents"
_STEP = r"run/checkpoints/\d+/"
CLASSES: dict[str, Bytes] = {
    f"{STORE}: metadata (zarr.json)": Bytes("svd", r".*zarr\.json"),
    f"{STORE}: values of a block": Bytes("svd", r".*/c/\d+/0", "payload"),
    f"{STORE}: checksum of a block": Bytes("svd", r".*/c/\d+/0", "checksum"),
    f"{STORE}: seal of a block": Bytes("svd", r".*/seal"),
    f"{STORE}: cached subspace": Bytes("svd", r".*/subspace/.*\.npz"),
    f"{RUN}: config.json": Bytes("train", r"run/config\.json"),
    f"{RUN}: summary.json": Bytes("train", r"run/summary\.json"),
    f"{RUN}: metrics.jsonl": Bytes("train", r"run/metrics\.jsonl"),
    f"{RUN}: features": Bytes("train", r"run/features/.*"),
    f"{RUN}: seal of a checkpoint": Bytes("train", _STEP + r"seal\.json"),
    f"{RUN}: arrays of a checkpoint": Bytes("train", _STEP + r"default/(.*/)?d/.*"),
    f"{RUN}: Orbax's own files": Bytes("train", _STEP + r"(?!seal|.*/d/|default/d/).*"),
    **{
        f"{base}: {what}": Bytes(job, pattern)
        for base, job in ((PART, "train"), (AGENTS, "agent"))
        for what, pattern in {
            "config.json": r"run/config\.json",
            "metrics.jsonl": r"run/metrics\.jsonl",
            "seal of a checkpoint": _STEP + r"seal\.json",
            "arrays of a checkpoint": _STEP + r"default/(.*/)?d/.*",
            "Orbax's own files": _STEP + r"(?!seal|.*/d/|default/d/).*",
        }.items()
    },
}

READERS = {
    STORE: (
        GENERATE,
        "successor verify {here}/psi",
        SVD,
        "svd {here}/psi --rank 59 --power-iterations 20 --quiet",
        "successor info {here}/psi --json --quiet",
    ),
    RUN: (
        TRAIN,
        "evaluate {here}/run",
        "plot curves {here}/run --out {place}/made/curves.png",
        "explore {here}/psi {here}/run --components 5 --quiet --out {place}/made/page.html",
    ),
    PART: (TRAIN,),
    AGENTS: (AGENT,),
}
"""What is read → the commands that read it; the first goes on with it."""


def flip(trial: Trial, kind: str) -> None:
    """Flip one bit of a class, run all commands that read it, then do what they advise."""
    base, found = kind.partition(":")[0], trial.found
    source = _flip_base(trial.bench, base, trial.job)
    shutil.copytree(source / "here", trial.here)
    file, offset = _draw(trial.here, CLASSES[kind], trial.rng)
    bit = int(trial.rng.integers(8))
    content = bytearray(file.read_bytes())
    content[offset] ^= 1 << bit
    file.write_bytes(content)
    name = str(file.relative_to(trial.here))
    found["did"] = f"bit {bit} of byte {offset:,} of {name}"
    expected, said = json.loads((source / "readers.json").read_text()), ""
    for words, (right, usual) in zip(READERS[base], expected, strict=True):
        end, output = _read(trial, words)
        warned = end.said.replace(str(trial.place), "PLACE") != usual
        if end.done and output != right and not warned:
            found["wrong"] = True
            found["differs"] = [*found.get("differs", []), words.partition(" {")[0]]
        found["refused"] |= end.refused
        found["named"] |= end.refused and _names(end.said, file)
        said += f" {end.said}"
    whole, there = trial.bench.expected(trial.job), trial.contents()
    ended = not found["refused"]
    if base in (PART, AGENTS) and ended:
        found["wrong"] |= bool(differences(whole, there))
    # Nothing but the flipped file may have suffered, or its checkpoint, that a newer one replaces.
    kept = whole if base in (STORE, RUN) or ended else as_contents(apart(contents, source / "here"))
    lost = [each for each in differences(kept, there) if not _belongs(each, name)]
    found["lost"] = bytes_of(kept, lost)
    if ended:
        # What nobody uses may stay as it is.
        found["identical"] = not found["wrong"] and not lost
        found["repaired"] = not found["wrong"] and not differences(whole, there)
    else:
        _follow_advice(trial, base, said)
        found["repaired"] = not differences(whole, trial.contents())
        # A run may have come further before it met the damage.
        found["lost"] *= not found["repaired"]
    found["said"] = said.strip()[:300]


def _belongs(part: str, flipped: str) -> bool:
    """Tell whether a part is of the file that was flipped, or of the same checkpoint."""
    step = re.match(_STEP, flipped)
    return part == flipped or (step is not None and part.startswith(step[0]))


def _names(said: str, file: Path) -> bool:
    block = f"block {file.parent.name} " if file.parent.name.isdecimal() else file.name
    return any(text in said for text in (block, file.name + " ", str(file), str(file.parent)))


def _follow_advice(trial: Trial, base: str, said: str) -> None:
    """Delete the checkpoint or cache that messages name, and go on; a store is repaired."""
    for folder in re.findall(r"expected an undamaged checkpoint in (\S+), got", said):
        shutil.rmtree(folder, ignore_errors=True)
    for file in re.findall(r"\S+\.npz", said):
        Path(file).unlink(missing_ok=True)
    for words in (f"{GENERATE} --repair", SVD) if base == STORE else READERS[base][:1]:
        _read(trial, words)


def _read(trial: Trial, words: str) -> tuple[End, str]:
    """Run a command that reads; return how it ended and what it made, without times and places."""
    made = trial.place / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    end = trial.end(Running(trial.bench, words, trial.place))
    printed = end.printed.replace(str(trial.place), "PLACE")
    kept = [line for line in printed.splitlines() if not re.search(r"second|MiB|memory| s$", line)]
    files = [_part(file.read_bytes())[1] for file in sorted(made.iterdir())]
    return end, "\n".join([*kept, *files])


def _draw(here: Path, bytes_: Bytes, rng: np.random.Generator) -> tuple[Path, int]:
    """Draw a file of a class of bytes and one of its bytes."""
    files = [
        file
        for file in sorted(here.rglob("*"))
        if file.is_file()
        and re.fullmatch(bytes_.pattern, str(file.relative_to(here)))
        and file.stat().st_size > 4
    ]
    file = files[int(rng.integers(len(files)))]
    size = file.stat().st_size
    first, last = {"all": (0, size), "payload": (0, size - 4), "checksum": (size - 4, size)}[
        bytes_.part
    ]
    return file, int(rng.integers(first, last))


def _flip_base(bench: Bench, base: str, job: Job) -> Path:
    """Return the place of what bits are flipped in."""
    return bench.folder(job) if base in (STORE, RUN) else bench.out / "undisturbed" / base


def prepare_flips(bench: Bench, base: str, job: Job) -> None:
    """Make what bits are flipped in, and record what its readers say where nothing is flipped."""
    place = _flip_base(bench, base, job)
    record = place / "readers.json"
    if record.exists():
        return
    if base in (PART, AGENTS):
        shutil.rmtree(place, ignore_errors=True)
        bench.prepare(job, place)
        running = Running(bench, job.words, place)
        while len(list(place.glob("here/run/checkpoints/*/seal.json"))) < 2:
            if running.ended_within(0.002):
                raise RuntimeError(f"expected {job.key} to be killed after two checkpoints")
        running.signal(signal.SIGKILL)
        running.end(60)
    copy = Trial(bench, job, np.random.default_rng(0), bench.out / "work" / "readers")
    shutil.rmtree(copy.place, ignore_errors=True)
    shutil.copytree(place / "here", copy.here)
    outputs = []
    for words in READERS[base]:
        first, second = (_read(copy, words) for _ in range(2))
        if not (first[0].done and second[0].done) or first[1] != second[1]:
            raise RuntimeError(f"expected {words} to do the same twice, got {first} and {second}")
        outputs.append([second[1], second[0].said.replace(str(copy.place), "PLACE")])
    shutil.rmtree(copy.place)
    record.write_text(json.dumps(outputs))


# Rows.


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: a fault, what it is done to, and how often."""

    kind: str
    title: str
    fault: Callable[[Trial], None]
    job: Job
    trials: int

    @property
    def name(self) -> str:
        """What ``--only`` and the file know it by."""
        what = self.title.partition("bit flipped, ")[2] if self.kind == "flip" else self.job.key
        return f"{self.kind}/{what}"


KILLED, OTHERS = 50, 4
"""Trials of a row: about 100 kills, and what else fits into an hour of two cores."""


def rows() -> list[Row]:
    """List all rows."""
    found = []
    labels = {"generate": "successor generate", "agent": "agent train"}

    def add(
        kind: str,
        what: str,
        fault: Callable[[Trial], None],
        names: Sequence[str],
        trials: int = OTHERS,
        count: int = 1,
    ) -> None:
        for name in names:
            job = dataclasses.replace(JOBS[name], processes=count)
            several = f", {count} processes" if count > 1 else ""
            title = f"{what}: {labels.get(name, name)}{several}"
            found.append(Row(kind, title, fault, job, trials))

    everything, together = list(JOBS), ["generate", "svd", "train", "agent"]
    add("kill", "kill -9 at 1 to 3 moments", kill, everything, KILLED)
    add("kill", "kill -9 of one at 1 to 3 moments", kill, together, KILLED, 2)
    add("sigterm", "SIGTERM at a random moment", terminate, everything)
    add("sigterm", "SIGTERM to one of them", terminate, together, count=2)
    add("disk", "full disk, then space", full_disk, everything)
    add("short", "short write, file size limited", short_write, everything)
    for kind, bytes_ in CLASSES.items():
        fault = functools.partial(flip, kind=kind)
        found.append(Row("flip", f"bit flipped, {kind}", fault, JOBS[bytes_.job], OTHERS))
    add("clock", "clocks jump, killed, files redated", clock, everything)
    add("two", "two runs on one folder", two_at_once, everything)
    add("readonly", "file system turns read-only", read_only, everything)
    add("vanished", "folder moved away and back", vanished, everything)
    return found


MOUNTS = {"disk", "readonly"}


def unsupported(row: Row, can_mount: bool) -> str:
    """Say why a row cannot be tried, if it cannot."""
    if row.kind in MOUNTS and not can_mount:
        return "mounting is not permitted here"
    if row.job.processes > 1 and "--num-processes" not in _help(row.job):
        return "the command has no --num-processes"
    return ""


def _help(job: Job) -> str:
    """Return the help of a job's command."""
    words = re.split(r" (?:--|\{)", job.words)[0].split()

    def ask() -> str:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            enter([*words, "--help"])
        return text.getvalue()

    return str(apart(ask))


# The campaign.

COLUMNS = {
    "signals": lambda found: found["signals"],
    "started once more": lambda found: found["again"],
    "resumed bit-identical": lambda found: found["identical"],
    "named": lambda found: found["named"],
    "repaired": lambda found: found["repaired"],
    "refused": lambda found: found["refused"],
    "bytes lost": lambda found: found["lost"],
    "wrong results used": lambda found: found["wrong"],
    "hangs": lambda found: found["hang"],
    "unclear ends": lambda found: bool(found["unclear"]),
}


def tabulate(
    lines: Sequence[Mapping[str, Any]], titles: Mapping[str, str], missing: Mapping[str, str]
) -> list[list[str]]:
    """Sum trials up, a row for each name in ``titles`` and one for all; a header comes first.

    Args:
        lines: Trials.
        titles: Name → what was done.
        missing: Name → why it was not tried.
    """
    table = [["what was done", "trials", *COLUMNS]]
    for name, title in {**titles, "": "all"}.items():
        own = [line for line in lines if name in ("", line["row"])]
        if own:
            sums = [f"{sum(count(line) for line in own):,}" for count in COLUMNS.values()]
            table.append([title, f"{len(own):,}", *sums])
        else:
            why = f"not supported: {missing[name]}" if name in missing else "0"
            table.append([title, why, *[""] * len(COLUMNS)])
    return table


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Write a table as Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]]) + "\n"


def is_bad(line: Mapping[str, Any]) -> bool:
    """Tell whether a trial found what must not be."""
    return any(line[kind] for kind in ("wrong", "hang", "unclear", "lost"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the trials of a file; a last line that was cut off counts for nothing."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def try_once(bench: Bench, row: Row, index: int) -> dict[str, Any]:
    """Make a trial of a row; what went wrong in it stays in its folder."""
    identity = zlib.crc32(row.name.encode())
    place = bench.out / "work" / f"{identity:08x}-{index}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = time.monotonic()
    trial = Trial(bench, row.job, np.random.default_rng([identity, index]), place)
    try:
        row.fault(trial)
    except Exception as error:
        # The campaign's own failure is no result: it shows.
        traceback.print_exc()
        trial.found["unclear"] = f"the campaign failed: {error!r}"[:300]
    if not is_bad(trial.found):
        shutil.rmtree(place, ignore_errors=True)
    seconds = round(time.monotonic() - began, 2)
    return {"row": row.name, "trial": index, **trial.found, "seconds": seconds}


def campaign(
    bench: Bench, chosen: Sequence[Row], trials: int | None, jobs: int, missing: Mapping[str, str]
) -> None:
    """Make the trials that have no line yet, a few at a time, and say how far it has come."""
    path = bench.out / "trials.jsonl"
    path.touch()
    if (text := path.read_bytes()) and not text.endswith(b"\n"):
        path.write_bytes(text + b"\n")
    known = {(line["row"], line["trial"]) for line in read_lines(path)}
    pending = {
        row: [index for index in range(trials or row.trials) if (row.name, index) not in known]
        for row in chosen
        if row.name not in missing
    }
    revision = _revision()
    for row, indices in pending.items():
        if not indices:
            continue
        bench.refer(row.job)
        if row.kind == "flip":
            prepare_flips(bench, row.name.partition("/")[2].partition(":")[0], row.job)
        workers = min(jobs, len(indices))
        children = {}
        for worker in range(workers):
            pid = os.fork()
            if pid == 0:
                _work(bench, row, indices[worker::workers], worker, revision)
            children[os.pidfd_open(pid)] = pid
        while children:
            for fd in select.select([*children], [], [], SAY_EVERY)[0]:
                _, status = os.waitpid(children.pop(fd), 0)
                os.close(fd)
                if status != 0:
                    sys.exit(f"expected the trials of {row.name} to be made, got status {status}")
            print(progress(row.name, pending, read_lines(path), jobs), flush=True)
        for line in read_lines(path):
            if line["row"] == row.name and line["trial"] in indices and is_bad(line):
                print(f"  trial {line['trial']}: {line['did']}: {_trouble(line)}", flush=True)


def _work(bench: Bench, row: Row, indices: Sequence[int], worker: int, revision: str) -> NoReturn:
    """Make trials of a row in a fork of its own, which ends here."""
    try:
        _end_with_parent()
        bench.core = worker
        for index in indices:
            line = json.dumps({**try_once(bench, row, index), "revision": revision})
            with (bench.out / "trials.jsonl").open("ab", buffering=0) as file:
                file.write(f"{line}\n".encode())  # Whole, as one write.
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def progress(
    now: str,
    pending: Mapping[Row, Sequence[int]],
    lines: Sequence[Mapping[str, Any]],
    jobs: int,
) -> str:
    """Say how much of a row is done, and how long the rest will take at the mean so far."""
    made = {(line["row"], line["trial"]) for line in lines}
    seconds: dict[str, list[float]] = {}
    for line in lines:
        seconds.setdefault(line["row"], []).append(line["seconds"])
    rates = {name: sum(each) / len(each) for name, each in seconds.items()}
    usual = sum(rates.values()) / max(1, len(rates))
    left, done, planned = 0.0, 0, 0
    for row, indices in pending.items():
        open_ = sum((row.name, index) not in made for index in indices)
        left += open_ * rates.get(row.name, usual) / jobs
        if row.name == now:
            planned, done = len(indices), len(indices) - open_
    return f"{now}: {done} of {planned} trials; about {left / 60:.0f} min left in all"


def _trouble(line: Mapping[str, Any]) -> str:
    kinds = [kind for kind in ("wrong", "hang") if line[kind]]
    kinds += [line["unclear"]] * bool(line["unclear"])
    kinds += [f"{line['lost']:,} bytes lost"] * bool(line["lost"])
    where = f" in {', '.join(line['differs'])}" if line.get("differs") else ""
    return f"{', '.join(kinds)}{where}; {line['said'] or 'no word'}"


def _revision() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


PAGE_TEXT = """# Runs under faults

`scripts/faults_campaign.py` harms tiny commands and their files at random moments and places, runs
the same command again until it ends, and compares what is there with an undisturbed run.

```bash
python scripts/faults_campaign.py --out runs/faults --page docs/results/{page}{options}
```

{date}, rlreps {version} ({revisions}), {cores} cores of {machine}: {trials:,} trials.

{table}
- **signals**: sent to a process at work. Commands that finished before the signal were restarted.
- **started once more**: resumptions in which processes missed each other's heartbeats.
- **resumed bit-identical**: the same command, run again, ended with the undisturbed run's results.
- **named**: a line with code 2 said what was wrong, with the file or folder; or, for signals and
  processes that died, that the same command goes on.
- **repaired**: mended by the command itself, or by what its message advised, to the same results.
- **refused**: a command that would have used it ended with one line and code 2.
- **bytes lost**: of results that the fault itself did not touch, missing or different in the end.
- **wrong results used**: a command ended with 0, no word, and another result than undisturbed.
- **unclear ends**: a traceback, or an exit code that is not documented.

A trial may count in several columns. A flip in what informs and decides nothing, such as the date
of a store, or in what nobody reads, such as the checkpoint before the last, counts as
bit-identical. Compared are blocks, seals, cached subspaces, features and figures byte by byte,
arrays of checkpoints by the keys of Orbax's database, and configurations, metrics and summaries as
values without times and provenance. Not compared: TensorBoard's events and HTML reports, which
state times; locks and temporary files. Commands are forked from a process that has imported the
packages, so that moments fall into work. Kill times are in processor time of an undisturbed run,
so parallel trials do not shift them. The clock that jumps is Python's, beside the
steady clock of a name space of its own; the system's own stays.

Of two processes, one was killed or asked to end. No other fault was tried with two, nor was
streaming.

{bad}
What fails in {worst:.1f} % of trials or more would have failed here with a probability of 95 %,
over all rows together; a single row says much less.
"""


def write_page(
    path: Path, lines: Sequence[Mapping[str, Any]], table: str, options: Sequence[str]
) -> None:
    """Write the page of a campaign that was run with these options."""
    from rlreps import __version__

    listed = "".join(
        f"- {line['row']}, trial {line['trial']}, {line['did']}: {_trouble(line)}\n"
        for line in lines
        if is_bad(line)
    )
    text = PAGE_TEXT.format(
        page=path.name,
        options="".join(f" {shlex.quote(word)}" for word in options),
        date=datetime.datetime.now(datetime.UTC).date(),
        version=__version__,
        revisions=", ".join(sorted({line["revision"] for line in lines})),
        cores=len(os.sched_getaffinity(0)),
        machine=f"{platform.system()} {platform.machine()}",
        trials=len(lines),
        table=table,
        worst=100.0 * (1.0 - 0.05 ** (1.0 / max(len(lines), 1))),
        bad=f"What must not be:\n\n{listed}" if listed else "Nothing lost, wrong or hung.\n",
    )
    path.write_text(text, encoding="utf-8")


def warm(chosen: Sequence[Row]) -> None:
    """Import what commands need, and start no thread.

    Raises:
        RuntimeError: If something has started one, which a fork would lack.
    """
    import importlib

    importlib.import_module("rlreps.cli")
    names = {name for row in chosen for name in row.job.modules}
    if any(row.kind == "flip" for row in chosen):
        names |= {name for job in JOBS.values() for name in job.modules}
        names |= {"cli.plot", "cli.explore"}
    for name in sorted(names):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"rlreps.{name}" if name.startswith("cli.") else name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"expected one thread to fork from, got {threads}")


def _own_mounts() -> bool:
    """Enter a name space of mounts that ends with this process, if that is permitted."""
    libc, new_mounts = ctypes.CDLL(None, use_errno=True), 0x20000
    if libc.unshare(new_mounts) != 0:
        return False
    with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
        _mount("--make-rprivate", "/")
        return True
    return False


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    everything = rows()
    names = [row.name for row in everything]
    parser.add_argument("--out", type=Path, required=True, help="folder of the campaign")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="KIND",
        default=["*"],
        help=f"kinds of faults, or rows, or patterns of rows: {', '.join(names)}",
    )
    parser.add_argument("--trials", type=int, help="of each row")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--page", type=Path, help="page to write")
    arguments = parser.parse_args()

    out = arguments.out.absolute()
    (out / "work").mkdir(parents=True, exist_ok=True)
    variables = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", str(out / "compiled")
        ),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "OPENBLAS_NUM_THREADS": "1",  # NumPy's threads would not be forked.
        "MPLBACKEND": "agg",
    }
    if not variables.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **variables})
    chosen = [
        row
        for row in everything
        if any(word == row.kind or fnmatch.fnmatch(row.name, word) for word in arguments.only)
    ]
    if not chosen:
        parser.error(f"expected some of {', '.join(names)}, got {' '.join(arguments.only)}")
    revision = _revision()
    made = {line.get("revision", revision) for line in read_lines(out / "trials.jsonl")}
    if made - {revision}:  # What is undisturbed was computed by the same code.
        others = ", ".join(sorted(made))
        parser.error(f"expected trials of revision {revision} in {out}, got {others}")
    if arguments.page and revision.endswith("-dirty"):
        parser.error(f"expected a revision without changes for a page, got {revision}")
    can_mount = _own_mounts()
    warm(chosen)
    missing = {row.name: why for row in chosen if (why := unsupported(row, can_mount))}
    bench = Bench(out, sorted(os.sched_getaffinity(0)))
    several = [row.job for row in chosen if row.job.processes > 1 and row.name not in missing]
    if several and "--heartbeat" in _help(several[0]):
        bench.heartbeat = ["--heartbeat", str(HEARTBEAT), "--timeout", str(TIMEOUT)]
    campaign(bench, chosen, arguments.trials, max(1, arguments.jobs), missing)

    lines = read_lines(out / "trials.jsonl")
    titles = {row.name: row.title for row in everything}
    table = tabulate(lines, titles, missing)
    (out / "table.md").write_text(markdown(table), encoding="utf-8")
    with (out / "table.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(table)
    print(markdown(table))
    if arguments.page:
        options = ["--jobs", str(arguments.jobs)]
        options += [] if arguments.trials is None else ["--trials", str(arguments.trials)]
        options += [] if arguments.only == ["*"] else ["--only", *arguments.only]
        write_page(arguments.page, lines, markdown(table), options)
    if bad := [line for line in lines if is_bad(line)]:
        sys.exit(f"{len(bad)} of {len(lines)} trials lost, used or left something they must not")


if __name__ == "__main__":
    main()
