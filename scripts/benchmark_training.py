"""Cost of a training step against the bare encoder, and the recommended recipe on a ground truth.

    python scripts/benchmark_training.py [--store data/STORE]

Step times are measured side by side in one run: each method's whole update (sampling, loss, weight
estimates, optimizer) in a scan, against the encoder's forward and backward pass alone in a scan of
the same length. With ``--store``, the recommended recipe is then trained on that ground truth.
"""

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps import encoders
from rlreps.config import with_sizes
from rlreps.losses import OBJECTIVES
from rlreps.sources import matrix as sources
from rlreps.training import Optimizer
from rlreps.training.update import Learner
from rlreps.workflows.train import TrainingConfig, run_training

STATES = 10_000
FEATURES = 10


def bare_pass(encoder: encoders.Encoder, rows: int, length: int) -> Callable[..., Any]:
    """A scan of the encoder's forward and backward pass at a batch size, and nothing else."""

    def run(params: Any, inputs: Array) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            # The tiny step makes each pass depend on the one before, so that none can be skipped.
            gradients = jax.grad(lambda p: jnp.sum(jnp.square(encoder.apply(p, inputs[:rows]))))(
                carry
            )
            return jax.tree.map(lambda p, g: p - 1e-9 * g, carry, gradients), None

        return lax.scan(body, params, None, length=length)[0]

    return jax.jit(run)


def chunk(learner: Learner, source: Any, length: int) -> Callable[[], Any]:
    """A compiled scan of a learner's whole updates."""
    compiled = jax.jit(functools.partial(learner.chunk, length))
    return functools.partial(compiled, learner.init(jnp.uint32(0)), source, jnp.uint32(0))


def step_seconds(
    calls: dict[str, Callable[[], Any]], length: int, repeats: int
) -> dict[str, float]:
    """Median seconds per step of compiled scans of ``length`` steps, interleaved in time."""
    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append((time.perf_counter() - start) / length)
    return {name: statistics.median(values) for name, values in times.items()}


def compare(tasks: int, rows: int, length: int, repeats: int) -> None:
    """Prints each method's step time as a multiple of the bare pass, interleaved in time."""
    key = jax.random.key(0)
    inputs = jax.random.uniform(key, (STATES, 2))
    source = sources.matrix_source(jax.random.normal(key, (STATES, STATES)), inputs)
    encoder = encoders.FourierMLP(FEATURES, num_inputs=2)
    params = encoder.init(key)
    bare = bare_pass(encoder, rows, length)
    calls: dict[str, Callable[[], Any]] = {"bare": lambda: bare(params, inputs)}
    for method in ("large_batch", "explicit", "danskin_lissa"):
        objective = OBJECTIVES[method](FEATURES)
        learner = Learner(
            encoder=encoder,
            objective=with_sizes(objective, num_tasks=STATES, encoder_learning_rate=1e-3),
            optimizer=Optimizer(steps=1000),
            rows=rows,
            tasks=tasks,
        )
        calls[method] = chunk(learner, source, length)
    found = step_seconds(calls, length, repeats)
    base = found.pop("bare")
    print(f"rows {rows}, tasks {tasks}: bare forward and backward pass {1e3 * base:.2f} ms")
    for name, seconds in found.items():
        print(f"  {name:14s} {seconds / base:5.2f} x")


def recipe(store: Path) -> None:
    """Trains the recommended recipe on a stored ground truth and prints distance and time."""
    config = TrainingConfig()
    with tempfile.TemporaryDirectory() as folder:
        summary = run_training(config, store, Path(folder) / "run", progress=False)
    print(
        f"recommended recipe on {store}: {summary['method']}, d = {summary['d']}, "
        f"{summary['steps']} steps: subspace distance {summary['subspace_distance']:.4f} after "
        f"{summary['seconds']:.1f} s of training and {summary['compile_seconds']:.1f} s compiling"
    )


def main() -> None:
    """Runs the comparisons asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--length", type=int, default=100, help="steps in a scan")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--store", type=Path, help="ground truth for the recommended recipe")
    options = parser.parse_args()
    print(f"machine: {os.cpu_count()} CPUs, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    for tasks in (1, 256):
        compare(tasks, options.rows, options.length, options.repeats)
    if options.store is not None:
        recipe(options.store)


if __name__ == "__main__":
    main()
