"""Throughput of the synthetic experiment: seeds in one scan against updates from a Python loop.

    python scripts/benchmark_synthetic.py [--seeds 30]

Both are measured side by side in one run. All seeds of a setting are members of one compiled scan,
as the experiment runs them; the other way dispatches one jitted update of one seed at a time.
Nothing is timed that has become infinite: the benchmark stops if a run does.
"""

import argparse
import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlreps.experiments.le_lan_2023.synthetic import PRESETS, ROLES, Setting, make_members
from rlreps.numerics import largest_even_share
from rlreps.training.devices import devices_for_small_runs, make_placement
from rlreps.training.population import Population

STATES, FEATURES, ROWS = 50, 10, 5
CONFIG = dataclasses.replace(PRESETS["laptop"], num_states=STATES, step_size=1e-6)
"""Every run stays finite at this step size; of the naive method's, all 30 diverge at 1e-5."""
OPTIONS = {
    "danskin_lissa": "batch",
    "danskin_empirical": "pseudo",
    "naive": "pseudo",
    "oracle": "",
}
"""Method → its normaliser of κ, or which inverse it takes."""
GOALS = {"danskin_lissa": 50.0}
"""Method → the least ratio asked for."""


def calls_of(method: Any, seeds: int, length: int, loop_length: int) -> list[Callable[[], Any]]:
    """[a scan of ``length`` updates of all seeds, a loop of ``loop_length`` updates of one]."""
    setting = Setting(method, FEATURES, ROWS, OPTIONS[method], 1, "exponential", CONFIG.kappa0)
    learners, source, _ = make_members(CONFIG, [(setting, seed) for seed in range(seeds)])
    placement = make_placement(largest_even_share(devices_for_small_runs(), seeds), seeds)
    members = Population(
        learners, source, range(seeds), placement, own_numbers=True, own_sources=True
    )
    numbers = jnp.arange(seeds, dtype=jnp.uint32)
    states = members.init()
    spread = placement.spread_seeds(functools.partial(members.chunk, length), own_sources=True)
    one = jax.tree.map(lambda leaf: leaf[0], (states, source, numbers, learners))
    update = jax.jit(one[3].update)

    def loop() -> Any:
        state = one[0]
        for _ in range(loop_length):
            state, loss = update(state, one[1], one[2])
        return state, loss

    arguments = placement.put_seeds((states, source, numbers, learners))
    return [functools.partial(jax.jit(spread).lower(*arguments).compile(), *arguments), loop]


def seconds(call: Callable[[], Any]) -> float:
    """Seconds until a call's result is there."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def require_finite(method: str, scanned: Any, looped: Any) -> None:
    """Stops where a run of either way has become infinite: its speed would be that of NaN.

    Raises:
        RuntimeError: If one has.
    """
    diverged = int(jnp.sum(scanned[1].bad_step >= 0))
    leaves = jax.tree.leaves((looped[0].params, looped[1]))
    finite = all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
    if diverged or not finite:
        raise RuntimeError(
            f"expected finite runs of {method}, got {diverged} infinite ones in the scan and "
            f"{int(not finite)} in the loop: lower its step size"
        )


def compare(method: str, seeds: int, length: int, loop_length: int, repeats: int) -> None:
    """Prints both throughputs of a method and their ratio, measured in turns."""
    calls = calls_of(method, seeds, length, loop_length)
    require_finite(method, *(call() for call in calls))
    times = [[seconds(call) for call in calls] for _ in range(repeats)]
    together, alone = (statistics.median(column) for column in zip(*times, strict=True))
    rates = (seeds * length / together, loop_length / alone)
    goal = f"   goal {GOALS[method]:.0f}" if method in GOALS else ""
    print(f"{method:18s} {rates[0]:12,.0f} {rates[1]:12,.0f} {rates[0] / rates[1]:8.1f} x{goal}")


def main(arguments: list[str] | None = None) -> None:
    """Compares every method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--length", type=int, default=2000, help="updates in a scan")
    parser.add_argument("--loop-length", type=int, default=1000, help="updates from Python")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    devices = len(devices_for_small_runs())
    print(
        f"machine: {os.cpu_count()} CPUs, {jax.devices()[0].device_kind} x {devices}, "
        f"jax {jax.__version__}"
    )
    print(f"d = {FEATURES}, J = M = N = {ROWS}, {STATES} x {STATES}; updates of one seed a second")
    print(f"{'method':18s} {f'{options.seeds} in a scan':>12s} {'loop':>12s} {'ratio':>8s}")
    for method in ROLES:
        compare(method, options.seeds, options.length, options.loop_length, options.repeats)


if __name__ == "__main__":
    main()
