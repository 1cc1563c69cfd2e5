"""Measure rlreps on an accelerator: what agrees with a CPU, rates, and runs too long for a CPU.

    python -P scripts/accelerator.py OUT --parts training agents --minutes 4

rlreps must be installed; ``-P`` keeps the checkout's own folder out of the way. Parts run one after
the other, each in a process of its own with its share of the time. Each finding is a line of
OUT/found.jsonl as soon as it is known. Long runs are cut off there, and kept as OUT/*.tar.gz; if
the archive is unpacked in --work, they go on. ``--small`` tries everything on a CPU.
``docs/results/accelerators.md`` describes the findings.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
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
        """Run a command of rlreps; note its time, and the summary that it prints."""
        given = [str(word) for word in words]
        began = time.monotonic()
        done = run_limited(["-m", "rlreps", *given, "--quiet"], limit, **environment)
        found = {"command": " ".join(given), "environment": environment, "code": done.returncode}
        self.note(part, **found, wall=round(time.monotonic() - began, 1), said=done.stdout[-3000:])

    def keep(self, folder: Path) -> None:
        """Note the last record of a run that was cut off, and write its folder to OUT."""
        for path in folder.glob("runs/*/metrics.jsonl"):
            self.note(folder.name, run=path.parent.name, last=path.read_text().split("\n")[-2])
        if folder.exists():
            shutil.make_archive(str(self.out / folder.name), "gztar", folder.parent, folder.name)


def run_limited(words: list[str], limit: float, **environment: str) -> Any:
    """Run Python; interrupt it after ``limit`` seconds, and kill it 15 seconds later."""
    limited = ["timeout", "--signal=INT", "--kill-after=15", str(limit), sys.executable, "-P"]
    return subprocess.run(
        [*limited, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def steady(advance: Callable[[Any], Any], state: Any, seconds: float) -> float:
    """Return the median seconds of a call, which returns its next argument and something else."""
    import jax

    times: list[float] = []
    until = time.monotonic() + seconds
    while len(times) < 4 or time.monotonic() < until:
        began = time.monotonic()
        state, _ = jax.block_until_ready(advance(state))
        times.append(time.monotonic() - began)
    return sorted(times[1:])[len(times) // 2 - 1]  # The first may compile.


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
    exact = jnp.matmul(a[:64], a, precision="highest")
    for name in ("default", "highest"):
        error = jnp.linalg.norm(jnp.matmul(a[:64], a, precision=name) - exact)
        product = jax.jit(lambda x, precision=name: (jnp.matmul(a, x, precision=precision), ()))
        rate = 2 * size**3 / steady(product, a / jnp.sqrt(size), 1.0)
        found = {"flops_per_second": rate, "relative_error": float(error / jnp.linalg.norm(exact))}
        setting.note("devices", product=name, **found)
    long = jnp.ones(2**20 if setting.small else 2**30)
    seconds = steady(jax.jit(lambda x: (x + 1.0, ())), long, 1.0)
    setting.note("devices", copy_bytes_per_second=8 * long.size / seconds)


def tests(setting: Setting) -> None:
    """Compare the numerics with oracles."""
    places = [f"tests/rlreps/{name}" for name in (TESTS[:1] if setting.small else TESTS)]
    words = ["-m", "pytest", "-q", "--tb=short", "-n", "logical", *places]
    # A module that a test needs may be missing; its benchmarks warn beside xdist.
    words += ["--continue-on-collection-errors", "-p", "no:benchmark", "-p", "no:cacheprovider"]
    done = run_limited(words, 0.8 * setting.seconds, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    (setting.out / "tests.log").write_text(done.stdout)
    setting.note("tests", code=done.returncode, tail=done.stdout[-2000:])


def generation(setting: Setting) -> None:
    """Generate ground truths, and compare bytes with a CPU."""
    from rlreps.successor.truth.store import open_store

    paper = ["--bins", 100, "--rollouts", 1000, "--horizon", 700]
    large = ["--bins", 200, "--rollouts", 50, "--horizon", 700]
    few = ["--bins", 20, "--rollouts", 50, "--horizon", 200]
    cases = [("few", few, {}), ("cpu", few, {"JAX_PLATFORMS": "cpu"})]
    if not setting.small:
        cases += [("paper", paper, {}), ("large", large, {})]
    for name, options, environment in cases:
        words = ["successor", "generate", *options, "--out", setting.work / name]
        setting.command("generation", words, 120, **environment)
    keys = [open_store(setting.work / name).content_key() for name in ("few", "cpu")]
    setting.note("generation", keys=keys, same=keys[0] == keys[1])


def trainings(small: bool) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield a description and the members of each training whose rate is measured."""
    import jax
    import jax.numpy as jnp

    from rlreps.config import with_sizes
    from rlreps.encoders import MLP, FourierMLP
    from rlreps.losses import OBJECTIVES
    from rlreps.sources import matrix_source
    from rlreps.training import Learner, Optimizer
    from rlreps.training.devices import Placement
    from rlreps.training.population import Members

    key, states = jax.random.key(0), 400 if small else 10_000
    inputs = jax.random.uniform(key, (states, 2))
    source = matrix_source(jax.random.normal(key, (states, states)), inputs)
    ours, paper = FourierMLP(10, num_inputs=2), MLP(10, num_inputs=2, hidden=(512, 512))
    for method in ("large_batch", "danskin_lissa", "danskin_chunked", "explicit"):
        objective = with_sizes(OBJECTIVES[method](10), num_tasks=states, encoder_learning_rate=1e-3)
        for name, encoder, rows, tasks in (("ours", ours, 1000, 1000), ("paper", paper, 250, 1)):
            learner = Learner(
                encoder=encoder,
                objective=objective,
                optimizer=Optimizer(learning_rate=1e-4, schedule="constant"),
                rows=min(rows, states),
                tasks=min(tasks, states),
            )
            # XLA counts the operations of programs for a CPU alone.
            first = jnp.uint32(0)
            traced = jax.jit(learner.update).trace(learner.init(first), source, first)
            costs = traced.lower(lowering_platforms=("cpu",)).cost_analysis() or {}
            for size in (2,) if small else (1, 8, 64):
                found = {"name": f"{method}, {name}", "members": size}
                found["flops_per_update"] = size * costs.get("flops", float("nan"))
                yield found, Members(learner, source, range(size), Placement())


def training(setting: Setting) -> None:
    """Note updates a second of each objective, by members trained together."""
    count = 10 if setting.small else 200

    def compiled(case: tuple[dict[str, Any], Any]) -> Any:
        found, members = case
        began = time.monotonic()
        try:
            state = members.init()
            members.prepare(state, count)
        except Exception as error:
            setting.note("training", **found, error=f"{type(error).__name__}: {error}"[:500])
            return None
        found["compile_seconds"] = round(time.monotonic() - began, 1)
        return state

    cases = [*trainings(setting.small)]
    with ThreadPoolExecutor(8) as pool:  # Updates are measured when nothing compiles beside them.
        states = [*pool.map(compiled, cases)]
    for (found, members), state in zip(cases, states, strict=True):
        if state is not None:
            advance = functools.partial(members.advance, step=0, count=count)
            seconds = steady(advance, state, 0.2 if setting.small else 1.0)
            setting.note("training", **found, updates_per_second=found["members"] * count / seconds)


def agents(setting: Setting) -> None:
    """Note environment steps a second of compiled agents, by their number."""
    from rlreps.agents import AgentConfig, make_program
    from rlreps.encoders import Convolutional
    from rlreps.envs import Image
    from rlreps.training.devices import devices_for_small_runs

    steps = 400 if setting.small else 4_000
    base = AgentConfig(evaluate_every=4_000, checkpoint_every=1_000_000, steps=1_000_000)
    image = dataclasses.replace(base, observation=Image(), encoder=Convolutional())
    for name, config, counts in (("positions", base, (1, 64, 1024)), ("images", image, (1, 64))):
        for count in counts[:1] if setting.small else counts:
            each = dataclasses.replace(config, num_seeds=count)
            with contextlib.closing(make_program(each, devices=devices_for_small_runs())) as made:
                warm, _ = made.advance(made.init(), 0, each.dqn.warmup)
                advance = functools.partial(made.advance, step=each.dqn.warmup, count=steps)
                rate = count * steps / steady(advance, warm, 2.0)
            setting.note("agents", observation=name, agents=count, steps_per_second=rate)


def figure4(setting: Setting, method: int) -> None:
    """Train one method by the protocol of Le Lan et al. 2023, Fig. 4."""
    from rlreps.app.job import run_job
    from rlreps.experiments.le_lan_2023 import puddle_world
    from rlreps.study import replace_nested
    from rlreps.study.experiment import StudyRun

    config = puddle_world.PRESETS["smoke" if setting.small else "paper"]
    every = {} if setting.small else {"evaluate_every": 10_000, "checkpoint_every": 1_000_000}
    alone = replace_nested(config, objectives=(config.objectives[method],), **every)
    job = StudyRun(experiment=puddle_world.EXPERIMENT, config=alone)
    run_job(job, setting.work / f"figure4-{method}")


def hydrogen(setting: Setting) -> None:
    """Train Pfau et al.'s protocol with β = 0.01, in the folder that the whole study resumes."""
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
    **{f"figure4-{k}": (functools.partial(figure4, method=k), 0.17) for k in range(3)},
    "hydrogen": (hydrogen, 0.3),
}
"""Each part, and its share of the time if all before it take theirs."""


def main() -> None:
    """Run the parts of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "accelerator")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--here", action="store_true", help="run one part in this process")
    given = parser.parse_args()
    given.out, given.work = given.out.resolve(), given.work.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    setting = Setting(given.out, given.work, 60.0 * given.minutes, given.small)
    if given.here:
        return PARTS[given.parts[0]][0](setting)
    end = time.monotonic() + setting.seconds
    whole = sum(PARTS[name][1] for name in given.parts)
    for name in given.parts:
        left = end - time.monotonic()
        limit = min(left, PARTS[name][1] / whole * left)
        whole -= PARTS[name][1]
        words = [__file__, str(given.out), "--work", str(given.work), "--parts", name, "--here"]
        words += ["--minutes", str(limit / 60.0), *(["--small"] if given.small else [])]
        began = time.monotonic()
        done = run_limited(words, limit)
        code, wall = done.returncode, round(time.monotonic() - began, 1)
        setting.note(name, wall=wall, code=code, said=done.stdout[-1500:] if code else "")
        setting.keep(given.work / name)


if __name__ == "__main__":
    main()
