"""Cost of an update of spectral inference, and of its averaged Jacobian, as d grows.

    python scripts/benchmark_spectral.py

Every row compares, side by side in one run, whole updates (points, operator, moments, gradient,
optimizer) in a scan with the same network's forward and backward pass alone at the same batch:
a plain loss. The operator is a potential, which costs nothing, or the hydrogen experiment's
Hamiltonian. Memory is that of the averaged Jacobian beside the parameters.
"""

import argparse
import functools
import os
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from benchmark_training import bare_pass, step_seconds

from rlreps.encoders import MLP, Encoder, SeparateMLP
from rlreps.experiments.pfau_2019.hydrogen import BoxSource, hamiltonian
from rlreps.losses.spectral import CovarianceJacobian, Spin
from rlreps.operators import Diagonal, Operator
from rlreps.training import Optimizer
from rlreps.training.update import Learner

HIDDEN = {"shared": (128, 128, 128), "separate": (32, 32)}
OPERATORS = {
    "potential": Diagonal(lambda positions: jnp.sum(jnp.square(positions), axis=1)),
    "Hamiltonian": hamiltonian(),
}


def make_encoder(networks: str, num_features: int) -> Encoder:
    """The network of a row: one with shared layers, or one for each feature."""
    build = {"shared": MLP, "separate": SeparateMLP}[networks]
    return build(num_features, hidden=HIDDEN[networks], activation="tanh")


def update(
    encoder: Encoder,
    operator: Operator,
    *,
    num_features: int,
    averaging_rate: float,
    separate: bool,
    rows: int,
    length: int,
) -> Callable[[], Any]:
    """A compiled scan of whole updates."""
    learner = Learner(
        encoder=encoder,
        objective=Spin(
            num_features,
            operator=operator,
            averaging_rate=averaging_rate,
            encoder=encoder,
            separate=separate,
        ),
        optimizer=Optimizer(steps=1000),
        rows=rows,
        tasks=1,
    )
    chunk = jax.jit(functools.partial(learner.chunk, length))
    source = BoxSource(jnp.asarray(1.0), radial=False)
    return functools.partial(chunk, learner.init(jnp.uint32(0)), source, jnp.uint32(0))


def compare(
    networks: str, num_features: int, operator: str, rows: int, length: int, repeats: int
) -> dict[str, float]:
    """Median step times of the bare pass and of updates without and with averages, seconds."""
    encoder = make_encoder(networks, num_features)
    params = encoder.init(jax.random.key(0))
    inputs = jax.random.uniform(jax.random.key(1), (rows, 2))
    bare = bare_pass(encoder, rows, length)
    calls: dict[str, Callable[[], Any]] = {"bare": lambda: bare(params, inputs)}
    for rate in (1.0, 0.01):
        calls[f"β = {rate:g}"] = update(
            encoder,
            OPERATORS[operator],
            num_features=num_features,
            averaging_rate=rate,
            separate=networks == "separate",
            rows=rows,
            length=length,
        )
    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(step_seconds(call, length))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Prints a line for every network, number of features and operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 5, 9, 16])
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--length", type=int, default=50, help="steps in a scan")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"machine: {os.cpu_count()} CPUs, {jax.default_backend()}, jax {jax.__version__}")
    for operator in OPERATORS:
        for networks in HIDDEN:
            for d in options.dimensions:
                found = compare(
                    networks, d, operator, options.rows, options.length, options.repeats
                )
                jacobian = CovarianceJacobian(d, networks == "separate")
                ratios = ", ".join(
                    f"{name}: {seconds / found['bare']:5.1f} x"
                    for name, seconds in found.items()
                    if name != "bare"
                )
                print(
                    f"{operator:11s} {networks:8s} d = {d:2d}: bare {1e3 * found['bare']:.2f} ms; "
                    f"{ratios}; {jacobian.num_passes} backward passes and as many times the "
                    "parameters' memory with averages"
                )


if __name__ == "__main__":
    main()
