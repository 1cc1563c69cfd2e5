"""Speed and memory of the Monte-Carlo successor measure, side by side with a plain Python loop.

    python scripts/benchmark_successor.py

Prints transitions per second of both, their ratio, what a kernel without dynamics would reach (its
random numbers and visit counts alone), the memory that generation adds beyond the blocks it
returns, and how the rate grows with devices (on a CPU also with cores; devices beyond one
come from XLA_FLAGS=--xla_force_host_platform_device_count=N). Absolute times vary with the machine;
the ratio is measured in one run.
The loop is written as one writes such an environment first; a second figure is for the same loop
after tuning.
"""

import argparse
import dataclasses
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import shapely

from rlreps.envs import load_arena
from rlreps.successor import Grid, RowSampler, puddle_world_chain
from rlreps.successor.chains import MarkovChain
from rlreps.successor.measure import MonteCarlo, SuccessorMeasure

DIRECTIONS = ((0.0, 0.05), (0.05, 0.0), (0.0, -0.05), (-0.05, 0.0))
SUTTON = (((0.1, 0.75), (0.45, 0.75)), ((0.45, 0.4), (0.45, 0.8)))
RADIUS, SPEED, NOISE = 0.1, 0.5, 0.01


class PlainPuddleWorld:
    """PuddleWorld as one writes it first: NumPy for the state, shapely for the puddles."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.puddles = [shapely.LineString(ends).buffer(RADIUS, quad_segs=64) for ends in SUTTON]
        self.position = np.zeros(2)

    def reset(self) -> None:
        """Starts anywhere in the square."""
        self.position = self.generator.uniform(size=2)

    def step(self, action: int) -> None:
        """One move: noise, the square's edge, then each puddle in turn."""
        move = np.asarray(DIRECTIONS[action]) + self.generator.normal(scale=NOISE, size=2)
        end = np.clip(self.position + move, 0.0, 1.0)
        for puddle in self.puddles:
            end = shorten(shapely.LineString([self.position, end]), puddle)
        self.position = np.asarray(end)


class TunedPuddleWorld:
    """The same with every trick that keeps it a Python loop: floats, prepared geometry."""

    def __init__(self) -> None:
        self.generator = random.Random(0)
        self.puddles = [shapely.LineString(ends).buffer(RADIUS, quad_segs=64) for ends in SUTTON]
        for puddle in self.puddles:
            shapely.prepare(puddle)
        self.position = (0.0, 0.0)

    def reset(self) -> None:
        """Starts anywhere in the square."""
        self.position = (self.generator.random(), self.generator.random())

    def step(self, action: int) -> None:
        """One move: noise, the square's edge, then each puddle in turn, if it is touched at all."""
        draw = self.generator.gauss
        end = tuple(
            min(max(start + step + draw(0.0, NOISE), 0.0), 1.0)
            for start, step in zip(self.position, DIRECTIONS[action], strict=True)
        )
        for puddle in self.puddles:
            path = shapely.LineString([self.position, end])
            if puddle.intersects(path):
                end = shorten(path, puddle)
        self.position = end


def shorten(path: shapely.LineString, puddle: shapely.Polygon) -> tuple[float, float]:
    """Find the end of a path whose stretch inside the puddle costs 1 / SPEED per unit length."""
    inside = path.intersection(puddle)
    if inside.is_empty or inside.geom_type != "LineString":
        return path.coords[-1]
    enter, leave = sorted(path.project(shapely.Point(point)) for point in inside.coords)
    travelled = enter + SPEED * (path.length - enter)
    if travelled > leave:
        travelled = path.length - (leave - enter) * (1.0 / SPEED - 1.0)
    return path.interpolate(travelled).coords[0]


def python_loop(
    world: PlainPuddleWorld | TunedPuddleWorld, config: SuccessorMeasure, seconds: float
) -> float:
    """Transitions per second of discounted visit counts from step-by-step rollouts."""
    generator, bins = random.Random(1), config.bins
    visits = np.zeros((bins, bins))
    transitions = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        world.reset()
        weight = 1.0
        for _ in range(config.horizon):
            x, y = world.position
            visits[min(int(y * bins), bins - 1), min(int(x * bins), bins - 1)] += weight
            weight *= config.discount
            world.step(generator.randrange(4))
            transitions += 1
    return transitions / (time.perf_counter() - start)


def without_dynamics(chain: MarkovChain) -> MarkovChain:
    """Return a chain that draws the same random numbers and jumps anywhere in the square."""

    def advance(position: jax.Array, draws: tuple[jax.Array, ...]) -> jax.Array:
        noise_x, noise_y, action = draws
        wide = 10.0 * jnp.stack([noise_x, noise_y + 0.1 * action])
        return wide - jnp.floor(wide)

    return dataclasses.replace(chain, advance=advance)


def rate_of(sampler: RowSampler, config: SuccessorMeasure, rows: int, repeats: int) -> float:
    """Measure the median transitions per second of a compiled kernel."""
    sampler.rows(range(1))
    rates = []
    for repeat in range(repeats):
        cells = [(repeat * rows + offset) % config.num_states for offset in range(rows)]
        start = time.perf_counter()
        sampler.estimates(cells)
        rates.append(rows * config.rollouts * config.horizon / (time.perf_counter() - start))
    return statistics.median(rates)


def kernel(
    config: SuccessorMeasure, rows: int, repeats: int, num_devices: int
) -> tuple[float, float]:
    """Median transitions per second of the compiled kernel, and MiB added beyond the rows."""
    chain = puddle_world_chain(load_arena(config.arena), Grid(config.bins))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampler = RowSampler(chain, config, devices=jax.local_devices()[:num_devices])
    rate = rate_of(sampler, config, rows, repeats)
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # Rows and half differences of a repeat, in float32.
    return rate, added / 1024 - 2 * 4 * rows * config.num_states / 2**20


def limit(config: SuccessorMeasure, rows: int, repeats: int, num_devices: int) -> float:
    """Measure the median transitions per second of the kernel without dynamics."""
    chain = puddle_world_chain(load_arena(config.arena), Grid(config.bins))
    devices = jax.local_devices()[:num_devices]
    sampler = RowSampler(without_dynamics(chain), config, devices=devices)
    return rate_of(sampler, config, rows, repeats)


def doubling(limit: int) -> list[int]:
    """1, 2, 4, ... up to the limit."""
    return [2**power for power in range(limit.bit_length())]


def kernel_on(cores: int, options: argparse.Namespace) -> float:
    """The kernel's rate in a process of its own that may use this many cores only."""
    arguments = [f"--{name}={getattr(options, name)}" for name in ("rows", "rollouts", "repeats")]
    command = [sys.executable, __file__, f"--kernel-on={cores}", *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_scaling(options: argparse.Namespace, config: SuccessorMeasure) -> None:
    """Rates over devices and, on a CPU, whose one device uses all cores, over cores."""
    devices = doubling(jax.local_device_count())
    by_device = [kernel(config, options.rows, options.repeats, count)[0] for count in devices]
    print_rates("device(s)", devices, by_device)
    if jax.default_backend() == "cpu" and hasattr(os, "sched_setaffinity"):
        cores = doubling(len(os.sched_getaffinity(0)))
        print_rates("core(s)", cores, [kernel_on(count, options) for count in cores])


def print_rates(unit: str, counts: list[int], rates: list[float]) -> None:
    """A line for each count, with its rate and how many times the first one's that is."""
    for count, rate in zip(counts, rates, strict=True):
        name = f"{count} {unit}:"
        print(f"{name:<24} {rate:12.4g} transitions/s  {rate / rates[0]:.2f} x")


def main() -> None:
    """Runs both and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256, help="start cells a repeat")
    parser.add_argument("--rollouts", type=int, default=500, help="rollouts a start cell")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python-seconds", type=float, default=10.0)
    parser.add_argument("--kernel-on", type=int, metavar="CORES", help="print that rate alone")
    options = parser.parse_args()
    config = MonteCarlo(rollouts=options.rollouts)
    if options.kernel_on is not None:
        # Before JAX starts its threads, which inherit it.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.kernel_on])
        print(kernel(config, options.rows, options.repeats, 1)[0])
        return
    devices = jax.local_device_count()
    loop = python_loop(PlainPuddleWorld(), config, options.python_seconds)
    tuned = python_loop(TunedPuddleWorld(), config, options.python_seconds)
    rate, memory = kernel(config, options.rows, options.repeats, devices)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    most = limit(config, options.rows, options.repeats, devices)
    full = config.num_states * 1000 * config.horizon
    print(f"machine: {os.cpu_count()} CPUs, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"Python + shapely loop:   {loop:12.4g} transitions/s")
    print(f"the same, tuned:         {tuned:12.4g} transitions/s")
    print(f"rlreps kernel:           {rate:12.4g} transitions/s")
    print(f"kernel / loop:           {rate / loop:12.0f} x")
    print(f"kernel / tuned loop:     {rate / tuned:12.0f} x")
    print(f"without dynamics:        {most:12.4g} transitions/s  {most / rate:.2f} x")
    print(f"memory beyond rows:      {memory:12.0f} MiB")
    print(f"peak memory:             {peak:12.0f} MiB")
    times = [math.ceil(full / each) for each in (rate, most)]
    print(f"the paper's {full:.3g} transitions take {times[0]} s, without dynamics {times[1]} s")
    print_scaling(options, config)


if __name__ == "__main__":
    main()
