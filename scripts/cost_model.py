"""Fit what generation, decomposition, training and streaming cost, and check it on other sizes.

    python scripts/cost_model.py --out runs/cost --page docs/results/cost-model.md

Each point runs one stage at one size in 1 to 8 processes on this machine, which find each other as
on a cluster. In generation and decomposition each process has one core while there are enough; in
training and streaming, whose exchange waits on threads of its own, all share all cores. A stage's
seconds are modelled as a sum of terms with coefficients >= 0, fitted to the relative errors of two
points in three. Every third point is held out. Points that were measured are kept in
``OUT/points.json``.

Compilation, start-up and evaluation are left out. Matrices to decompose and to train on hold random
numbers, since times do not depend on them.
"""

import argparse
import ctypes
import dataclasses
import datetime
import functools
import itertools
import json
import math
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from rlreps.files import write_atomically

Sizes = Mapping[str, int]
Model = Mapping[str, float]
Work = Callable[[], object]

WITHIN = 0.25
"""Largest relative error asked for."""
OVERSAMPLING, READS = 40, 3
BLOCK_ROWS, CACHE = 100, 2**25
"""Rows of a block, and bytes of the last cache of the machine that the page is of."""
HIDDEN = (128, 128)
INPUTS = 18
"""Layers of the encoder that is trained, whose first has two coordinates and their cosines."""
MATRIX = 5_000, 10_000
"""Shape of what it is trained on: more than a cache holds."""
LIMIT = 600.0
"""Seconds that a point may take."""


class Machine(NamedTuple):
    """Processes of one kind.

    Attributes:
        processes: How many.
        cores: Cores of all together.
    """

    processes: int
    cores: int

    @property
    def waiting(self) -> float:
        """Times as long that one process's own work takes, where processes share cores."""
        return max(1.0, self.processes / self.cores)


# The work of each stage, in every process.


def generation(sizes: Sizes, place: Path) -> Work:
    """Simulate and write some rows of a Monte-Carlo successor measure."""
    from rlreps.runs.processes import first_does, process_count, process_index
    from rlreps.successor.measure import MonteCarlo
    from rlreps.successor.store.estimates import create_estimates

    block, count = 32, sizes["rows"] // 32
    measure = MonteCarlo(bins=sizes["bins"], rollouts=sizes["rollouts"], block_rows=block)
    create = functools.partial(
        create_estimates,
        place,
        # Of the rows alone: a disk must hold the whole shape.
        shape=(block * count, measure.num_states),
        block_rows=block,
        settings=measure.store_settings(),
        provenance={},
        sampled=True,
    )
    first_does(lambda: create() and None)
    store, estimator = create(), measure.estimator()
    starts = [measure.num_states // block * index // count * block for index in range(count)]
    mine = range(count)[process_index() :: process_count()]

    def work() -> None:
        for index in mine:
            store.remove_block(index)
        rows = [range(starts[index], starts[index] + block) for index in mine]
        for index, found in zip(mine, estimator.row_blocks(rows), strict=True):
            store.write_block(index, found)

    return work


def decomposition(sizes: Sizes, place: Path) -> Work:
    """Run power iterations of ``randomized_svd`` on a stored matrix, a read of it for each."""
    from rlreps.runs.processes import first_does, process_count, process_index, total
    from rlreps.subspace import CentredBlocks
    from rlreps.subspace.products import SharedProducts, orthonormalise
    from rlreps.successor.store.blocks import StoreBlocks
    from rlreps.successor.store.format import create_or_resume

    shape = sizes["states"], sizes["tasks"]
    create = functools.partial(
        create_or_resume, place, shape=shape, block_rows=BLOCK_ROWS, settings={}, provenance={}
    )

    def fill() -> None:
        store, rng = create(), np.random.default_rng(0)
        for index in store.missing_blocks():
            first, last = store.block_range(index)
            store.write_block(index, rng.random((last - first, shape[1]), np.float32))

    first_does(fill)
    store = create()
    bounds = [
        store.num_blocks * index // process_count()
        for index in (process_index(), process_index() + 1)
    ]
    part = StoreBlocks(store, range(*bounds))
    own = CentredBlocks(part, np.full(shape[1], 0.5))
    products = SharedProducts(own, part.rows.start, shape[0], total)
    width = sizes["components"] + OVERSAMPLING
    panel = np.random.default_rng(1).standard_normal((shape[1], width)).astype(np.float32)
    panels = [orthonormalise(panel)]

    def work() -> None:
        for _ in range(READS):
            panels.append(products.sharpen(panels.pop()))

    return work


def training(sizes: Sizes, place: Path) -> Work:
    """Train an encoder by large batch on random entries of a matrix in memory."""
    import jax

    from rlreps.encoders import FourierMLP
    from rlreps.losses import LargeBatch
    from rlreps.sources.matrix import matrix_source
    from rlreps.training import Optimizer, train_population
    from rlreps.training.devices import choose_devices
    from rlreps.training.update import Learner

    features, rng = sizes["features"], np.random.default_rng(0)
    matrix = rng.random(MATRIX, np.float32)
    source = matrix_source(matrix, rng.random((len(matrix), 2), np.float32))
    learner = Learner(
        encoder=FourierMLP(features, num_inputs=2, hidden=HIDDEN),
        objective=LargeBatch(features, precondition=1e-2, leave_one_out=True),
        optimizer=Optimizer(steps=10**6),
        rows=sizes["rows"],
        tasks=sizes["tasks"],
    )
    devices = choose_devices(None) if jax.process_count() > 1 else None
    updates = sizes["updates"]

    def work() -> float:
        result = train_population(
            learner,
            source,
            steps=updates,
            seeds=range(sizes["seeds"]),
            own_numbers=False,
            evaluate_every=updates,
            checkpoint_every=updates,
            devices=devices,
            progress=False,
        )
        return result.seconds

    return work


def streaming(sizes: Sizes, place: Path) -> Work:
    """Learn components on every process's own rows, and combine the models, several times."""
    import jax
    import jax.numpy as jnp

    from rlreps.runs.processes import process_index
    from rlreps.streaming import ImplicitKrasulina, PowerDecay
    from rlreps.streaming.workers import share_rows, start_workers, worker_mesh, worker_step

    rule = ImplicitKrasulina(
        sizes["features"], sizes["components"], learning_rate=PowerDecay(1.0, 0.9)
    )
    mesh = worker_mesh()
    rng = np.random.default_rng(process_index())
    own = rng.standard_normal((1, sizes["rows"], sizes["features"]), np.float32)
    rows, weights = share_rows(own, mesh), jnp.ones(mesh.size)
    step = jax.jit(worker_step(rule, mesh=mesh))
    states = [start_workers(rule, jax.random.key(0), mesh.size, mesh=mesh)]

    def work() -> None:
        for _ in range(sizes["steps"]):
            states.append(step(states.pop(), rows, weights)[1])
        jax.block_until_ready(states)

    return work


# What each stage costs: the sizes that its time is proportional to.


def generation_terms(sizes: Sizes, on: Machine) -> dict[str, float]:
    """Return the terms of ``generation``.

    Visits of 250 rollouts at a time are counted for 32 cells: at more tasks, in slower memory.
    """
    tasks = sizes.get("tasks", sizes["bins"] ** 2)
    transitions = 700 * sizes["rollouts"] * sizes["rows"] / on.cores
    blocks = 2 * math.ceil(sizes["rollouts"] // 2 / 250)
    return {
        "transitions": transitions,
        "transitions times log2(tasks / 2,500)": transitions * math.log2(tasks / 2500),
        "entries times blocks of rollouts": sizes["rows"] * tasks * blocks / on.cores,
    }


def decomposition_terms(sizes: Sizes, on: Machine) -> dict[str, float]:
    """Return the terms of ``decomposition``.

    Panels take time beside the rows: sums in float64, copies, and a QR each.
    """
    reads, tasks = sizes.get("reads", READS), sizes["tasks"]
    entries, width = sizes["states"] * tasks, sizes["components"] + OVERSAMPLING
    beyond = BLOCK_ROWS * 4 * tasks > CACHE
    exchanged = 2 * (on.processes - 1) / on.processes
    return {
        "entries read": reads * entries / on.cores,
        f"entries of blocks beyond {CACHE >> 20} MiB, a cache": reads * entries * beyond / on.cores,
        "entries times columns of the panel": reads * entries * width / on.cores,
        "entries of the panel": reads * tasks * width * on.waiting,
        "QR of the panel": reads * tasks * width**2 * on.waiting,
        "panels exchanged": reads * tasks * width * exchanged * on.waiting,
    }


def training_terms(sizes: Sizes, on: Machine) -> dict[str, float]:
    """Return the terms of ``training``; processes with seeds of their own exchange nothing.

    Those that share rows out bring each the batch's targets together, and add up gradients and W's
    products [d, t], around a ring: every array takes two rounds for each of the others.
    """
    layers = (INPUTS, *HIDDEN, sizes["features"])
    weights = sum(a * b for a, b in itertools.pairwise(layers))
    updates, batch = sizes["updates"], sizes["rows"] * sizes["seeds"]
    entries, products = updates * batch * sizes["tasks"], sizes["tasks"] * sizes["features"]
    exchange = on.processes > 1 and sizes["seeds"] % on.processes != 0
    rounds = 2 * (on.processes - 1) * updates * exchange * on.waiting
    return {
        "updates": updates * on.waiting,
        "rows times weights": updates * batch * weights / on.cores,
        "entries": entries / on.cores,
        "entries times features": entries * sizes["features"] / on.cores,
        "rounds of exchange": rounds,
        "numbers exchanged": rounds * (weights + products) / on.processes,
        "entries exchanged": rounds * batch * sizes["tasks"] / on.processes,
    }


def streaming_terms(sizes: Sizes, on: Machine) -> dict[str, float]:
    """Return the terms of ``streaming``: each process learns from rows of its own."""
    steps, model = sizes["steps"], sizes["features"] * sizes["components"]
    # The inverse is computed anew every 64 rows, at the end of a step and when models combine.
    anchors = sizes["rows"] / 64 + 2
    return {
        "rows times entries of the model": steps * sizes["rows"] * model * on.waiting,
        "inverses": steps * anchors * model * sizes["components"] * on.waiting,
        "models combined": steps * model * on.processes * on.waiting,
        "exchanges": steps * (on.processes > 1) * on.waiting,
    }


class Stage(NamedTuple):
    """A stage.

    Attributes:
        work: What is timed.
        terms: What its time is modelled by.
        bound: Whether each process has one core while there are enough.
        names: Of sizes.
        points: Processes, then sizes; every third is held out.
    """

    work: Callable[[Sizes, Path], Work]
    terms: Callable[[Sizes, Machine], dict[str, float]]
    bound: bool
    names: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]


STAGES = {
    "generation": Stage(
        generation,
        generation_terms,
        True,
        ("bins", "rows", "rollouts"),
        (
            (1, 50, 320, 500),
            (2, 100, 640, 1000),
            (2, 100, 576, 600),
            (2, 200, 320, 200),
            (4, 50, 640, 500),
            (8, 50, 512, 800),
            (1, 400, 96, 50),
            (4, 400, 256, 1000),
            (4, 200, 384, 400),
            (2, 400, 256, 50),
            (8, 200, 320, 1000),
            (8, 400, 512, 250),
            (4, 100, 640, 200),
            (1, 200, 96, 1000),
            (2, 400, 192, 150),
        ),
    ),
    "decomposition": Stage(
        decomposition,
        decomposition_terms,
        True,
        ("states", "tasks", "components"),
        (
            (1, 5_000, 5_000, 20),
            (1, 10_000, 10_000, 100),
            (1, 7_000, 10_000, 40),
            (1, 9_000, 10_000, 60),
            (2, 10_000, 10_000, 10),
            (2, 3_000, 30_000, 60),
            (2, 2_400, 40_000, 100),
            (2, 3_200, 40_000, 40),
            (4, 8_000, 10_000, 50),
            (4, 10_000, 10_000, 100),
            (4, 2_400, 40_000, 10),
            (4, 1_600, 50_000, 60),
            (4, 2_000, 40_000, 80),
            (8, 5_000, 5_000, 50),
            (8, 2_400, 30_000, 40),
            (8, 3_200, 40_000, 30),
            (2, 800, 160_000, 20),
            (1, 1_000, 120_000, 30),
            (4, 400, 160_000, 60),
            (1, 800, 160_000, 60),
            (2, 600, 200_000, 50),
            (2, 800, 120_000, 40),
            (1, 200, 1_000_000, 10),
            (1, 160, 600_000, 30),
            (1, 160, 800_000, 20),
            (2, 100, 1_000_000, 30),
        ),
    ),
    "training": Stage(
        training,
        training_terms,
        False,
        ("rows", "tasks", "features", "seeds", "updates"),
        (
            (1, 250, 50, 10, 1, 2000),
            (1, 1000, 1000, 10, 1, 200),
            (1, 600, 200, 60, 1, 400),
            (1, 800, 300, 40, 1, 400),
            (1, 1000, 1000, 100, 1, 100),
            (2, 500, 100, 20, 1, 300),
            (2, 1000, 1000, 50, 1, 100),
            (2, 300, 80, 16, 1, 400),
            (2, 2000, 400, 40, 1, 80),
            (2, 4000, 500, 20, 1, 60),
            (1, 4000, 50, 100, 1, 100),
            (1, 2000, 600, 16, 1, 150),
            (2, 800, 600, 20, 2, 200),
            (4, 1000, 1000, 10, 1, 60),
            (4, 600, 400, 30, 1, 80),
            (2, 2000, 250, 100, 2, 60),
            (4, 800, 200, 80, 1, 80),
            (8, 800, 150, 60, 1, 40),
            (8, 1000, 250, 50, 1, 40),
            (8, 2000, 1000, 10, 8, 10),
            (4, 1600, 800, 24, 4, 40),
            (8, 1600, 600, 30, 1, 30),
        ),
    ),
    "streaming": Stage(
        streaming,
        streaming_terms,
        False,
        ("features", "components", "rows", "steps"),
        (
            (1, 784, 20, 2_000, 40),
            (1, 3_136, 40, 1_000, 20),
            (1, 3_136, 20, 2_000, 10),
            (2, 784, 20, 100, 200),
            (2, 3_136, 40, 1_000, 15),
            (2, 1_568, 10, 2_000, 30),
            (4, 784, 40, 1_000, 20),
            (4, 3_136, 10, 100, 60),
            (4, 1_568, 20, 1_000, 20),
            (8, 784, 10, 500, 30),
            (8, 1_568, 40, 100, 40),
            (8, 3_136, 20, 500, 10),
            (1, 784, 80, 500, 20),
            (2, 1_568, 80, 200, 20),
            (4, 1_568, 60, 300, 20),
        ),
    ),
}

LARGE: dict[str, tuple[Sizes, str]] = {
    "generation": (
        {"bins": 1000, "rows": 10**6, "rollouts": 1000, "tasks": 10**6},
        "1,000 rollouts of 700 steps from each state",
    ),
    "decomposition": (
        {"states": 10**6, "tasks": 10**6, "components": 100, "reads": 19},
        "100 components, 19 reads",
    ),
    "training": (
        {"rows": 1024, "tasks": 1000, "features": 100, "seeds": 1, "updates": 10**6},
        "10⁶ updates of 1,024 rows and 1,000 tasks, d = 100, entries at hand",
    ),
    "streaming": (
        {"features": 10**6, "components": 100, "rows": 1000, "steps": 1000},
        "1,000 times 1,000 rows in each process, k = 100",
    ),
}
"""Stage → sizes of 10⁶ states and 10⁶ tasks, and what is done with them."""


# Measuring.


def be_worker(
    stage: str, sizes: Sizes, place: Path, address: Sequence[str], cores: list[int], repeats: int
) -> None:
    """Do a stage's work as one process on its cores; the first prints the median of its seconds."""
    set_death_signal = 1  # A worker ends with the process that started it.
    ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGKILL), 0, 0, 0)
    os.sched_setaffinity(0, cores)  # Before JAX starts its threads, which inherit it.
    from rlreps.runs.processes import ProcessesConfig, process_index, together, wait_for_all

    coordinator, count, index = address[0], int(address[1]), int(address[2])
    config = ProcessesConfig(num_processes=1)
    if count > 1:
        config = ProcessesConfig(coordinator=coordinator, num_processes=count, process_id=index)
    with together(config):
        work = STAGES[stage].work(sizes, place)
        work()
        seconds = []
        for _ in range(repeats):
            wait_for_all()
            began = time.perf_counter()
            own = work()
            wait_for_all()
            # Training compiles again, and tells its own time.
            seconds.append(own if isinstance(own, float) else time.perf_counter() - began)
        if process_index() == 0:
            print(statistics.median(seconds), flush=True)


def measure(stage: str, processes: int, sizes: Sizes, repeats: int, compiled: Path) -> float:
    """Return the seconds of a stage's work in processes of its own; stores lie in memory."""
    cores, bound = sorted(os.sched_getaffinity(0)), STAGES[stage].bound
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(compiled.absolute()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        running = []
        for index in range(processes):
            own = [cores[index % len(cores)]] if bound else cores
            words = [stage, json.dumps(sizes), f"{folder}/store", coordinator, processes, index]
            command = [sys.executable, __file__, "--worker", *words, json.dumps(own), repeats]
            running.append(
                subprocess.Popen(
                    [*map(str, command)],
                    stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
                    text=True,
                    env=environment,
                )
            )
        try:
            printed, _ = running[0].communicate(timeout=LIMIT)
            codes = [process.wait(timeout=LIMIT) for process in running]
        finally:
            for process in running:
                process.kill()
    if any(codes):
        raise RuntimeError(f"expected {stage} of {sizes} to succeed, got codes {codes}")
    return float(printed)


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured point."""

    stage: str
    processes: int
    sizes: Sizes
    held: bool
    seconds: float

    def terms(self, cores: int) -> dict[str, float]:
        """Return the terms of its stage on a machine of so many cores."""
        stage = STAGES[self.stage]
        machine = Machine(self.processes, min(self.processes, cores) if stage.bound else cores)
        return stage.terms(self.sizes, machine)


def conditions() -> dict[str, Any]:
    """Tell what times depend on beside sizes."""
    import jax

    described = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(described, capture_output=True, text=True, check=False)
    return {
        "date": str(datetime.datetime.now(datetime.UTC).date()),
        "revision": done.stdout.strip() or "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "machine": f"{platform.system()} {platform.machine()}",
        "jax": jax.__version__,
    }


def measured(out: Path, stages: Sequence[str], repeats: int) -> list[Point]:
    """Measure every point that the folder does not hold yet.

    Raises:
        ValueError: If it holds points of another kind.
    """
    file = out / "points.json"
    kind = {**conditions(), "repeats": repeats, "reads": READS}
    found = json.loads(file.read_text()) if file.exists() else {"kind": kind, "seconds": {}}
    if {**found["kind"], "date": kind["date"]} != kind:
        raise ValueError(f"expected points of {kind}, got {found['kind']} in {out}")
    known: dict[str, float] = found["seconds"]
    points = []
    for stage in stages:
        names = STAGES[stage].names
        for number, (processes, *values) in enumerate(STAGES[stage].points):
            sizes = dict(zip(names, values, strict=True))
            name = f"{stage}, {processes} processes, {json.dumps(sizes)}"
            if name not in known:
                known[name] = measure(stage, processes, sizes, repeats, out / "compiled")
                write_atomically(file, json.dumps(found, indent=1).encode())
                print(f"{name}: {known[name]:.3f} s", flush=True)
            points.append(Point(stage, processes, sizes, number % 3 == 2, known[name]))
    return points


# Fitting.


def fit(points: Sequence[Point], cores: int) -> Model:
    """Return coefficients >= 0 of a stage's terms that fit relative errors in least squares."""
    rows = [[*point.terms(cores).values()] for point in points]
    scaled = np.array(rows) / np.array([[point.seconds] for point in points])
    sizes = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)  # Of very different magnitudes.
    found, _ = scipy.optimize.nnls(scaled / sizes, np.ones(len(points)))
    return dict(zip(points[0].terms(cores), found / sizes, strict=True))


def predict(terms: Mapping[str, float], coefficients: Model) -> float:
    """Return the seconds that a model says."""
    return sum(coefficients[name] * size for name, size in terms.items())


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Write a table as Markdown, its header first."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def in_words(seconds: float) -> str:
    """Say how long that is."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            count = seconds / size
            return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


PAGE = """# Cost model

```bash
python scripts/cost_model.py --out runs/cost --page docs/results/{page}
```

{date}, {cores} cores of {machine}, JAX {jax}, rlreps at {revision}. Each stage ran in 1 to 8
processes, which found each other over the loopback interface. Times are medians of {repeats}, after
a first that does not count. In generation and decomposition each process had one core while there
were enough; in training and streaming all shared all cores. Compilation, start-up and evaluation
are left out. Stores lay in memory: no disk was read or written.

Seconds are modelled as a sum of terms. Work that is shared out is divided by the cores at work;
work that every process does takes longer where processes share cores. Coefficients are fitted to
the relative errors of two points in three. Terms were chosen by what an earlier version measured
at other held-out sizes.

{verdict}

{tables}
## A million states and a million tasks

What the models say of processes with one core like these each: an extrapolation by orders of
magnitude, whose error was not measured. In brackets, the range of what they say when any one fitted
point is left out. More than two processes never had a core each here, and in training and streaming
not even two: we assume that more processes scale equally well. Costs are left out that appear only
at these sizes: disks (a store of 4 TB, or 8 TB with the half differences that measure its sampling
error), a network between machines, counts of visits and models that no cache holds.

{large}

Processes that decompose the matrix hold the panel of 140 columns several times, 1.1 GB each in
float64. Processes that combine models of 10⁶ x 100 hold all of them, 400 MB each: 26 GB of 64.
Training on a store reads the rows that it draws: 4 GB for 1,000 rows of 10⁶ tasks, in each update.
`rlreps train-live` samples tasks from the environment and keeps no matrix.
"""


def stage_text(stage: str, points: Sequence[Point], coefficients: Model, cores: int) -> str:
    """Describe a stage: its model, and every point beside what the model says."""
    names = STAGES[stage].names
    terms = [["term", "seconds for each 10⁹"]]
    terms += [[name, f"{1e9 * value:.3g}"] for name, value in coefficients.items()]
    rows = [["processes", *(name.replace("_", " ") for name in names), "s", "model", "error", ""]]
    for point in points:
        said = predict(point.terms(cores), coefficients)
        rows.append(
            [
                str(point.processes),
                *(f"{point.sizes[name]:,}" for name in names),
                f"{point.seconds:.3g}",
                f"{said:.3g}",
                f"{said / point.seconds - 1.0:+.0%}",
                "held out" if point.held else "fitted",
            ]
        )
    return f"## {stage.capitalize()}\n\n{markdown(terms)}\n\n{markdown(rows)}\n"


def worst(points: Sequence[Point], models: Mapping[str, Model], cores: int) -> float:
    """Return the largest relative error."""
    return max(
        abs(predict(point.terms(cores), models[point.stage]) / point.seconds - 1.0)
        for point in points
    )


def without_each(points: Sequence[Point], cores: int) -> list[Model]:
    """Fit as often as there are points, without one of them each time."""
    return [fit([*points[:index], *points[index + 1 :]], cores) for index in range(len(points))]


def write_page(path: Path, points: Sequence[Point], on: Mapping[str, Any]) -> None:
    """Write the page: models, points, verdict and the large case, under these conditions."""
    cores: int = on["cores"]
    stages = dict.fromkeys(point.stage for point in points)
    by_stage = {each: [point for point in points if point.stage == each] for each in stages}
    models = {
        each: fit([point for point in own if not point.held], cores)
        for each, own in by_stage.items()
    }
    errors = {
        each: worst([point for point in own if point.held], models, cores)
        for each, own in by_stage.items()
    }
    largest = ", ".join(f"{each} {error:.0%}" for each, error in errors.items())
    met = "met" if max(errors.values()) <= WITHIN else "not met"
    verdict = f"Largest errors at held-out points: {largest}. The goal of {WITHIN:.0%} is {met}."
    machines = [Machine(count, count) for count in (1, 8, 64)]
    large = [["", "what", *(f"processes: {each.processes}" for each in machines)]]
    for each, own in by_stage.items():
        sizes, what = LARGE[each]
        others = without_each([point for point in own if not point.held], cores)
        cells = []
        for machine in machines:
            terms = STAGES[each].terms(sizes, machine)
            low, *_, high = sorted(predict(terms, model) for model in others)
            said = in_words(predict(terms, models[each]))
            cells.append(f"{said} ({in_words(low)} to {in_words(high)})")
        large.append([each, what, *cells])
    text = PAGE.format(
        page=path.name,
        **on,
        verdict=verdict,
        tables="\n".join(
            stage_text(each, own, models[each], cores) for each, own in by_stage.items()
        ),
        large=markdown(large),
    )
    path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of what was measured")
    parser.add_argument("--page", type=Path, help="page to write")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=[*STAGES])
    parser.add_argument("--repeats", type=int, default=3, help="beside a first that is not timed")
    parser.add_argument("--worker", nargs=8, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        stage, sizes, place, *address, cores, repeats = options.worker
        own = json.loads(cores)
        be_worker(stage, json.loads(sizes), Path(place), address, own, int(repeats))
        return
    if options.out is None:
        parser.error("expected --out, got none")
    if options.page and conditions()["revision"].endswith("-dirty"):
        parser.error("expected a page of committed code, got changes; commit them")
    options.out.mkdir(parents=True, exist_ok=True)
    points = measured(options.out, options.stages, options.repeats)
    page = options.page or options.out / "page.md"
    write_page(page, points, json.loads((options.out / "points.json").read_text())["kind"])
    print(f"{page}")


if __name__ == "__main__":
    main()
