"""Speed and memory of the Monte-Carlo successor measure, side by side with a plain Python loop.

    python scripts/benchmark_successor.py

Prints transitions per second of both, their ratio, and the memory that generation adds beyond the
block of rows it returns. Absolute times vary with the machine; the ratio is measured in one run.
"""

import argparse
import math
import os
import random
import resource
import statistics
import time

import jax
import shapely

from rlreps.configs import SuccessorConfig
from rlreps.envs import load_arena
from rlreps.successor import Grid, RolloutSettings, RowSampler, puddle_world_chain

DIRECTIONS = ((0.0, 0.05), (0.05, 0.0), (0.0, -0.05), (-0.05, 0.0))
SUTTON = (((0.1, 0.75), (0.45, 0.75)), ((0.45, 0.4), (0.45, 0.8)))


def python_loop(bins: int, discount: float, horizon: int, seconds: float) -> float:
    """Transitions per second of a step-by-step rollout in Python with shapely's geometry."""
    puddles = [shapely.LineString(ends).buffer(0.1, quad_segs=64) for ends in SUTTON]
    for puddle in puddles:
        shapely.prepare(puddle)
    generator = random.Random(0)
    visits: dict[tuple[int, int], float] = {}
    transitions = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        x, y = generator.random(), generator.random()
        weight = 1.0
        for _ in range(horizon):
            cell = (min(int(y * bins), bins - 1), min(int(x * bins), bins - 1))
            visits[cell] = visits.get(cell, 0.0) + weight
            weight *= discount
            x, y = python_step(x, y, puddles, generator)
            transitions += 1
    return transitions / (time.perf_counter() - start)


def python_step(
    x: float, y: float, puddles: list[shapely.Polygon], generator: random.Random
) -> tuple[float, float]:
    """One move: noise, the square's edge, then each puddle in turn."""
    step_x, step_y = DIRECTIONS[generator.randrange(4)]
    end_x = min(max(x + step_x + generator.gauss(0.0, 0.01), 0.0), 1.0)
    end_y = min(max(y + step_y + generator.gauss(0.0, 0.01), 0.0), 1.0)
    for puddle in puddles:
        path = shapely.LineString([(x, y), (end_x, end_y)])
        if path.length == 0.0 or not puddle.intersects(path):
            continue
        inside = puddle.intersection(path)
        distances = [path.project(shapely.Point(point)) for point in inside.coords]
        if len(distances) < 2:
            continue
        enter, leave, budget = min(distances), max(distances), path.length
        travelled = min(enter + 0.5 * (budget - enter), leave)
        if travelled == leave:
            travelled = max(leave, budget - (leave - enter))
        end_x, end_y = path.interpolate(travelled).coords[0]
    return end_x, end_y


def kernel(config: SuccessorConfig, rows: int, repeats: int) -> tuple[float, float]:
    """Median transitions per second of the compiled kernel, and MiB added beyond the rows."""
    chain = puddle_world_chain(load_arena(config.arena), Grid(config.bins))
    settings = RolloutSettings(
        rollouts=config.rollouts,
        horizon=config.horizon,
        discount=config.discount,
        count_start=config.count_start,
        seed=config.seed,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampler = RowSampler(chain, settings)
    sampler.rows(range(1))
    rates = []
    for repeat in range(repeats):
        cells = [(repeat * rows + offset) % config.num_cells for offset in range(rows)]
        start = time.perf_counter()
        block = sampler.rows(cells)
        rates.append(rows * config.rollouts * config.horizon / (time.perf_counter() - start))
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return statistics.median(rates), added / 1024 - block.nbytes / 2**20


def main() -> None:
    """Runs both and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256, help="start cells a repeat")
    parser.add_argument("--rollouts", type=int, default=250, help="rollouts a start cell")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python-seconds", type=float, default=10.0)
    options = parser.parse_args()
    config = SuccessorConfig(rollouts=options.rollouts)
    loop = python_loop(config.bins, config.discount, config.horizon, options.python_seconds)
    rate, memory = kernel(config, options.rows, options.repeats)
    full = config.num_cells * 1000 * config.horizon
    print(f"machine: {os.cpu_count()} CPUs, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"Python + shapely loop: {loop:12.4g} transitions/s")
    print(f"rlreps kernel:         {rate:12.4g} transitions/s")
    print(f"ratio:                 {rate / loop:12.0f} x")
    print(f"memory beyond rows:    {memory:12.0f} MiB")
    print(f"the paper's {full:.3g} transitions would take {math.ceil(full / rate)} s")


if __name__ == "__main__":
    main()
