"""Cost of an update of spectral inference, and of its averaged Jacobian, as d grows.

    python scripts/benchmark_spectral.py

Every row compares, side by side in one run, whole updates (points, operator, moments, gradient,
optimizer) in a scan with the same network's forward and backward pass alone at the same batch:
a plain loss. The operator is a potential, which costs nothing, or the hydrogen experiment's
Hamiltonian. Memory is that of the averaged Jacobian beside the parameters.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from benchmark_training import bare_pass, chunk, step_seconds

from rlreps.encoders import MLP, SeparateMLP
from rlreps.experiments.pfau_2019.hydrogen import BoxSource, hamiltonian
from rlreps.losses.spectral import CovarianceJacobian, Spin
from rlreps.operators import Diagonal
from rlreps.training import Optimizer
from rlreps.training.update import Learner

HIDDEN = {"shared": (128, 128, 128), "separate": (32, 32)}
OPERATORS = {
    "potential": Diagonal(lambda positions: jnp.sum(jnp.square(positions), axis=1)),
    "Hamiltonian": hamiltonian(),
}


def compare(
    networks: str, num_features: int, operator: str, rows: int, length: int, repeats: int
) -> dict[str, float]:
    """Median step times of the bare pass and of updates without and with averages, seconds."""
    build = {"shared": MLP, "separate": SeparateMLP}[networks]
    encoder = build(num_features, hidden=HIDDEN[networks], activation="tanh")
    params = encoder.init(jax.random.key(0))
    inputs = jax.random.uniform(jax.random.key(1), (rows, 2))
    bare = bare_pass(encoder, rows, length)
    calls: dict[str, Callable[[], Any]] = {"bare": lambda: bare(params, inputs)}
    for rate in (1.0, 0.01):
        objective = Spin(
            num_features,
            operator=OPERATORS[operator],
            averaging_rate=rate,
            encoder=encoder,
            separate=networks == "separate",
        )
        learner = Learner(
            encoder=encoder,
            objective=objective,
            optimizer=Optimizer(steps=1000),
            rows=rows,
            tasks=1,
        )
        calls[f"β = {rate:g}"] = chunk(learner, BoxSource(jnp.asarray(1.0), radial=False), length)
    return step_seconds(calls, length, repeats)


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
                bare = found.pop("bare")
                ratios = ", ".join(f"{name}: {s / bare:5.1f} x" for name, s in found.items())
                print(
                    f"{operator:11s} {networks:8s} d = {d:2d}: bare {1e3 * bare:.2f} ms; "
                    f"{ratios}; {jacobian.num_passes} backward passes and as many times the "
                    "parameters' memory with averages"
                )


if __name__ == "__main__":
    main()
