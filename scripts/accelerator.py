"""Measure rlreps on an accelerator: what agrees with a CPU, rates, and runs too long for a CPU.

    python -P scripts/accelerator.py OUT
    python -P scripts/accelerator.py OUT --parts training agents --minutes 4

rlreps must be installed; ``-P`` keeps the checkout's own folder out of the way. Parts run one after
the other, each in a process of its own with its share of the time. Each finding is a line of
OUT/found.jsonl as soon as it is known, and OUT/*.tar.gz has the folders of runs. ``--small`` tries
everything on a CPU. ``docs/results/accelerators.md`` describes the findings.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NO_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
TESTS = ("losses", "subspace", "operators", "sources", "encoders", "streaming", "successor")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where a part writes, how long it may take, and whether sizes are those of a rehearsal."""

    out: Path
    work: Path
    seconds: float
    small: bool

    def note(self, part: str, **found: Any) -> None:
        """Append a finding."""
        line = json.dumps({"part": part, **found})
        with (self.out / "found.jsonl").open("a") as file:
            file.write(line + "\n")
        print(line[:300], flush=True)

    def command(self, part: str, words: list[Any], limit: float, **environment: str) -> None:
        """Run a command of rlreps; note its time, its summary's numbers or its last words."""
        given = [str(word) for word in words]
        began = time.monotonic()
        done = run_limited(
            [sys.executable, "-P", "-m", "rlreps", *given, "--quiet"], limit, **environment
        )
        found: dict[str, Any] = {"command": " ".join(given), "environment": environment}
        found |= {"wall": round(time.monotonic() - began, 1), "code": done.returncode}
        try:
            summary = json.loads(done.stdout)
        except ValueError:
            found["said"] = done.stdout[-800:]
        else:
            plain = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
            seeds = [each["subspace_distance"] for each in summary.get("per_seed", ())]
            found |= {"summary": plain, "distances": seeds}
        self.note(part, **found)

    def keep(self, folder: Path) -> None:
        """Write a folder to OUT as an archive."""
        if folder.exists():
            with tarfile.open(self.out / f"{folder.name}.tar.gz", "w:gz") as archive:
                archive.add(folder, folder.name)


def run_limited(words: list[str], limit: float, **environment: str) -> Any:
    """Run a program; interrupt it after ``limit`` seconds, and kill it 15 seconds later."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    for each in (signal.SIGINT, signal.SIGKILL):
        try:
            said, _ = process.communicate(timeout=limit)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, each)
            limit = 15.0
    else:
        said, _ = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, said)


def steady(advance: Callable[[Any], Any], state: Any, seconds: float) -> tuple[float, Any]:
    """Return the median seconds of a call that takes the state it returned, and the last state."""
    import jax

    state = jax.block_until_ready(advance(state))
    times: list[float] = []
    until = time.monotonic() + seconds
    while len(times) < 3 or time.monotonic() < until:
        began = time.monotonic()
        state = jax.block_until_ready(advance(state))
        times.append(time.monotonic() - began)
    return sorted(times)[len(times) // 2], state


def devices(setting: Setting) -> None:
    """Note versions, memory, and the rates of products and of copies, the limits of an update."""
    import jax
    import jax.numpy as jnp

    first = jax.devices()[0]
    memory = (first.memory_stats() or {}).get("bytes_limit")
    versions = {"jax": jax.__version__, "python": sys.version.split()[0], "cores": os.cpu_count()}
    setting.note("devices", device=first.device_kind, memory=memory, **versions)
    size = 512 if setting.small else 8192
    a = jax.random.normal(jax.random.key(0), (size, size))
    for name in ("default", "highest"):
        product = jax.jit(functools.partial(jnp.matmul, precision=name))
        seconds, _ = steady(functools.partial(product, a), a / jnp.sqrt(size), 1.0)
        error = jnp.linalg.norm(product(a[:64], a) - jnp.matmul(a[:64], a, precision="highest"))
        relative = float(error / jnp.linalg.norm(jnp.matmul(a[:64], a, precision="highest")))
        setting.note(
            "devices", product=name, flops_per_second=2 * size**3 / seconds, relative_error=relative
        )
    long = jnp.ones(2**20 if setting.small else 2**30)
    seconds, _ = steady(jax.jit(lambda x: x + 1.0), long, 1.0)
    setting.note("devices", copy_bytes_per_second=8 * long.size / seconds)


def tests(setting: Setting) -> None:
    """Compare the numerics with oracles; what fails runs again with products in full float32."""
    places = [f"tests/rlreps/{name}" for name in (TESTS[:1] if setting.small else TESTS)]
    cached = ["-o", f"cache_dir={setting.work / 'pytest'}"]
    words = [sys.executable, "-P", "-m", "pytest", "-q", "--tb=short", "-n", "logical", *cached]
    # A module that a test needs may be missing; its benchmarks warn beside xdist.
    words += ["--continue-on-collection-errors", "-p", "no:benchmark"]
    for name, more, environment in (
        ("as it is", [], {}),
        ("failed, full float32", ["--lf"], {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}),
    ):
        limit = setting.seconds * (0.12 if more else 0.78)
        done = run_limited([*words, *more, *places], limit, **environment, **NO_PREALLOCATION)
        (setting.out / f"tests-{'again' if more else 'first'}.log").write_text(done.stdout)
        setting.note("tests", run=name, code=done.returncode, tail=done.stdout[-2000:])
        if done.returncode == 0:
            break


def digest(store: Path) -> str:
    """Return a digest of a store's chunks."""
    chunks = sorted(each for each in (store / "c").rglob("*") if each.is_file())
    return hashlib.sha256(b"".join(each.read_bytes() for each in chunks)).hexdigest()[:16]


def generation(setting: Setting) -> None:
    """Generate ground truths; compare bytes with a CPU, and distances at two precisions."""
    small, work = setting.small, setting.work
    few = ["--bins", 20, "--rollouts", 50, "--horizon", 200]
    paper = few if small else ["--bins", 100, "--rollouts", 1000, "--horizon", 700]
    generate = ["successor", "generate"]
    setting.command("generation", [*generate, *paper, "--out", work / "store"], 120)
    for name, environment in (("device", {}), ("cpu", {"JAX_PLATFORMS": "cpu"})):
        words = [*generate, *few, "--out", work / f"few-{name}"]
        setting.command("generation", words, 60, **environment)
    digests = [digest(work / f"few-{name}") for name in ("device", "cpu")]
    setting.note("generation", digests=digests, same=digests[0] == digests[1])
    steps = 40 if small else 2000
    options = ["--num-seeds", 8, "--steps", steps, "--evaluate-every", steps]
    for precision in ("default", "highest"):
        name = f"train-{precision}"
        words = ["train", work / "store", "--out", work / name, *options]
        words += ["--checkpoint-every", steps]
        setting.command("distances", words, 60, JAX_DEFAULT_MATMUL_PRECISION=precision)
    if not small:
        words = ["--bins", 200, "--rollouts", 50, "--horizon", 700, "--out", work / "large"]
        setting.command("generation", [*generate, *words], 75)


def learners(small: bool) -> Iterator[tuple[str, Any, Any, int]]:
    """Yield the name, learner, source and members of each training whose rate is measured."""
    import jax

    from rlreps.config import with_sizes
    from rlreps.encoders import MLP, FourierMLP
    from rlreps.experiments.pfau_2019 import hydrogen
    from rlreps.losses import OBJECTIVES
    from rlreps.sources import matrix_source
    from rlreps.training import Learner, Optimizer

    key, states = jax.random.key(0), 400 if small else 10_000
    inputs = jax.random.uniform(key, (states, 2))
    source = matrix_source(jax.random.normal(key, (states, states)), inputs)
    ours, paper = FourierMLP(10, num_inputs=2), MLP(10, num_inputs=2, hidden=(512, 512))
    for method in ("large_batch", "danskin_lissa", "danskin_chunked", "explicit"):
        objective = with_sizes(OBJECTIVES[method](10), num_tasks=states, encoder_learning_rate=1e-3)
        for name, encoder, rows, tasks in (("ours", ours, 1000, 1000), ("paper", paper, 250, 1)):
            if name == "paper" and method == "danskin_chunked":
                continue
            learner = Learner(
                encoder=encoder,
                objective=objective,
                optimizer=Optimizer(learning_rate=1e-4, schedule="constant"),
                rows=min(rows, states),
                tasks=min(tasks, states),
            )
            for members in (1, 4) if small else (1, 8, 64):
                yield f"{method}, {name}", learner, source, members
    box = hydrogen.BoxSource(jax.numpy.asarray(50.0), radial=False)
    for contender in (hydrogen.PUBLISHED, hydrogen.UNAVERAGED):
        network = hydrogen.make_encoder(contender, 50.0)
        objective = with_sizes(
            contender.objective,
            operator=hydrogen.hamiltonian(contender.laplacian),
            encoder=network,
            weights=box.weights(),
        )
        learner = Learner(
            encoder=network, objective=objective, optimizer=contender.optimizer, rows=128, tasks=1
        )
        for members in (1,) if small else (1, 8):
            yield contender.name, learner, box, members


def training(setting: Setting) -> None:
    """Note updates a second of each objective, by members trained together."""
    import jax
    import jax.numpy as jnp

    from rlreps.training.devices import Placement
    from rlreps.training.population import Members

    count = 10 if setting.small else 200
    cases = []
    for name, learner, source, size in learners(setting.small):
        cases.append((name, learner, source, Members(learner, source, range(size), Placement())))

    def compiled(case: Any) -> Any:
        members, began = case[-1], time.monotonic()
        state = members.init()
        members.prepare(state, count)
        return state, time.monotonic() - began

    with ThreadPoolExecutor(8) as pool:
        ready = [pool.submit(compiled, case) for case in cases]
        for (name, learner, source, members), future in zip(cases, ready, strict=True):
            try:
                state, took = future.result()
            except Exception as error:
                setting.note("training", name=name, error=f"{type(error).__name__}: {error}"[:500])
                continue
            # Updates are measured when nothing compiles beside them.
            for other in ready:
                with contextlib.suppress(Exception):
                    other.result()
            size = len(jax.tree.leaves(state.params)[0])
            alone = jax.tree.map(lambda leaf: leaf[0], state)
            # XLA counts the operations of programs for a CPU alone.
            traced = jax.jit(learner.update).trace(alone, source, jnp.uint32(0))
            costs = traced.lower(lowering_platforms=("cpu",)).cost_analysis() or {}
            seconds, _ = steady(
                lambda now, its=members: its.advance(now, 0, count)[0],
                state,
                0.2 if setting.small else 1.0,
            )
            setting.note(
                "training",
                name=name,
                members=size,
                updates_per_second=size * count / seconds,
                milliseconds_per_update=1e3 * seconds / count,
                flops_per_update=size * costs.get("flops", float("nan")),
                compile_seconds=round(took, 1),
            )


def agents(setting: Setting) -> None:
    """Note environment steps a second of compiled agents, by their number."""
    from rlreps.agents import AgentConfig, make_program
    from rlreps.encoders import Convolutional
    from rlreps.envs import Image
    from rlreps.training.devices import devices_for_small_runs

    base = AgentConfig(evaluate_every=4_000, checkpoint_every=1_000_000, steps=1_000_000)
    image = dataclasses.replace(base, observation=Image(), encoder=Convolutional())
    counts = {"positions": (1, 4) if setting.small else (1, 64, 1024)}
    counts["images"] = (1,) if setting.small else (1, 64)
    for name, config in (("positions", base), ("images", image)):
        for count in counts[name]:
            each = dataclasses.replace(config, num_seeds=count)
            steps = 400 if setting.small else 4_000
            with contextlib.closing(make_program(each, devices=devices_for_small_runs())) as made:
                warm = each.dqn.warmup
                state, _ = made.advance(made.init(), 0, warm)
                began = time.monotonic()
                state, _ = made.advance(state, warm, steps)
                took = time.monotonic() - began
                step = warm + steps
                seconds, _ = steady(
                    lambda now, of=made, at=step, by=steps: of.advance(now, at, by)[0], state, 2.0
                )
            found = {"agents": count, "steps_per_second": count * steps / seconds}
            setting.note("agents", observation=name, **found, first_round=round(took, 1))


def figure4(setting: Setting, method: int | None = None) -> None:
    """Train by the protocol of Le Lan et al. 2023, Fig. 4, each method for a third of the time."""
    if method is None:
        for index in range(3):
            words = [__file__, str(setting.out), "--work", str(setting.work), "--parts", "figure4"]
            words += ["--method", str(index), *(["--small"] if setting.small else [])]
            done = run_limited([sys.executable, "-P", *words], setting.seconds / 3 - 5)
            folder = setting.work / f"figure4-{index}"
            found = [*folder.glob("runs/*/metrics.jsonl")]
            last = found[0].read_text().splitlines()[-1][:3000] if found else done.stdout[-800:]
            setting.note("figure4", method=index, last=last)
            for path in found:
                (setting.out / f"figure4-{index}.jsonl").write_bytes(path.read_bytes())
        return
    from rlreps.app.job import run_job
    from rlreps.experiments.le_lan_2023 import puddle_world
    from rlreps.study import replace_nested
    from rlreps.study.experiment import StudyRun

    config = puddle_world.PRESETS["smoke" if setting.small else "paper"]
    alone = replace_nested(config, objectives=(config.objectives[method],))
    if not setting.small:
        alone = replace_nested(alone, evaluate_every=10_000, checkpoint_every=1_000_000)
    run_job(
        StudyRun(experiment=puddle_world.EXPERIMENT, config=alone),
        setting.work / f"figure4-{method}",
    )


def hydrogen(setting: Setting) -> None:
    """Train Pfau et al.'s protocol with β = 0.01, from the checkpoint in --work if there is one."""
    words = [__file__, str(setting.out), "--work", str(setting.work), "--parts", "train_hydrogen"]
    words += ["--small"] if setting.small else []
    done = run_limited([sys.executable, "-P", *words], setting.seconds - 20, **NO_PREALLOCATION)
    found = [*(setting.work / "hydrogen").glob("runs/*/metrics.jsonl")]
    last = found[0].read_text().splitlines()[-1][:2000] if found else done.stdout[-800:]
    setting.note("hydrogen", last=last)
    setting.keep(setting.work / "hydrogen")


def train_hydrogen(setting: Setting) -> None:
    """Train the one contender, in the folder that the whole experiment resumes."""
    from rlreps.app.job import run_job
    from rlreps.experiments.pfau_2019 import hydrogen as study
    from rlreps.study.experiment import StudyRun

    config = study.PRESETS["smoke" if setting.small else "paper"]
    index, contender = next(
        (k, each) for k, each in enumerate(config.contenders) if "β = 0.01" in each.name
    )
    alone = dataclasses.replace(
        study.EXPERIMENT,
        cells=lambda _: {f"{index:02d}": contender},
        claims=(),
        sections={"Contender": []},  # Figures draw all contenders.
    )
    run_job(StudyRun(experiment=alone, config=config), setting.work / "hydrogen")


PARTS: dict[str, tuple[Callable[..., None], float]] = {
    "devices": (devices, 0.08),
    "tests": (tests, 0.3),
    "generation": (generation, 0.27),
    "training": (training, 0.22),
    "agents": (agents, 0.13),
    "figure4": (figure4, 0.5),
    "hydrogen": (hydrogen, 0.3),
    "train_hydrogen": (train_hydrogen, 1.0),
}
"""Each part, and its share of the time if all before it take theirs."""


def main() -> None:
    """Run the parts of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS][:-1])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "accelerator")
    parser.add_argument("--method", type=int)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    given.out, given.work = given.out.resolve(), given.work.resolve()
    for folder in (given.out, given.work):
        folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(given.out, given.work, 60.0 * given.minutes, given.small)
    if len(given.parts) == 1:
        more = {} if given.method is None else {"method": given.method}
        return PARTS[given.parts[0]][0](setting, **more)
    end = time.monotonic() + setting.seconds
    whole = sum(PARTS[name][1] for name in given.parts)
    for name in given.parts:
        left = end - time.monotonic()
        limit = min(left, PARTS[name][1] / whole * left)
        whole -= PARTS[name][1]
        words = [__file__, str(given.out), "--work", str(given.work), "--parts", name]
        words += ["--minutes", str(limit / 60.0), *(["--small"] if given.small else [])]
        began = time.monotonic()
        done = run_limited([sys.executable, "-P", *words], limit)
        setting.note(name, wall=round(time.monotonic() - began, 1), code=done.returncode)
        if done.returncode:
            setting.note(name, said=done.stdout[-1500:])


if __name__ == "__main__":
    main()
