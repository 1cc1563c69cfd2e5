"""Learn the 36 lowest bound states of hydrogen in the plane, by NestedLoRA and by SpIN.

Ryu et al. (2024) compare the two on H = −∇² − 1/r. Their protocol has Gaussian points with a
standard deviation of 16, 36 levels, the operator −100 H, batches of 128 and 500,000 updates. We
chose the inputs, smaller networks, an envelope exp(−r/22), exact derivatives and Adam.

    python scripts/hydrogen_levels.py spin --steps 200000 --out runs/levels-spin

With `--points radial`, the points are uniform in log(1 + r) and in the angle.

A run continues in its folder if it is started again. The last line is JSON.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from tyro.conf import Positional

from rlreps.encoders import FunctionEncoder, Params, SeparateMLP
from rlreps.experiments.pfau_2019.atom import (
    BoxSource,
    box_quadrature,
    box_spectrum,
    hamiltonian,
    radius,
)
from rlreps.losses import Batch, NestedLora, Spin
from rlreps.operators import Weights
from rlreps.runs import RunFolder
from rlreps.training import Optimizer, train

SHELLS = 6
ENERGIES = np.repeat([-1.0 / (2 * n + 1) ** 2 for n in range(SHELLS)], range(1, 2 * SHELLS, 2))
SCALE = 16.0
"""Standard deviation of the points, in the units of H."""
HALF_WIDTH = 150.0
"""Half a side of the box in which energies are integrated."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GaussianPoints:
    """Points in the plane, from a Gaussian around the nucleus; a ``Source`` without targets."""

    num_tasks = None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw points [num_rows, 2]."""
        del num_tasks
        return Batch(SCALE * jax.random.normal(key, (num_rows, 2)), jnp.zeros((num_rows, 0)))


def weigh(positions: Array) -> Array:
    """Compute the inverse density of the points, [b], 1 at the nucleus."""
    return jnp.exp(jnp.sum(jnp.square(positions), axis=1) / (2.0 * SCALE**2))


def make_encoder(width: int) -> FunctionEncoder:
    """Build one network for each level, on positions [b, 2] at every scale."""
    networks = SeparateMLP(len(ENERGIES), num_inputs=4, hidden=(width, width))

    def apply(params: Params, positions: Array) -> Array:
        r = radius(positions)
        inputs = [positions / (1.0 + r), jnp.log1p(r) / 2.0 - 1.0, r / 50.0]
        return networks.apply(params, jnp.concatenate(inputs, axis=1)) * jnp.exp(-r / 22.0)

    return FunctionEncoder(networks.init, apply)


def main(
    method: Positional[Literal["spin", "joint", "sequential"]],
    out: Path,
    points: Literal["gaussian", "radial"] = "gaussian",
    steps: int = 20_000,
    rows: int = 128,
    width: int = 32,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> None:
    """Train one method and print the relative errors of its energies."""
    given = {name: str(value) for name, value in locals().items() if name != "out"}
    encoder, operator, d = make_encoder(width), hamiltonian(), len(ENERGIES)
    source: Any = GaussianPoints()
    weights_of: Weights = weigh
    if points == "radial":
        source = BoxSource(jnp.asarray(HALF_WIDTH), radial=True)
        weights_of = source.weights()
    objective = (
        Spin(d, operator=operator, weights=weights_of, encoder=encoder, separate=True)
        if method == "spin"
        else NestedLora(d, operator=-100.0 * operator, weights=weights_of, nesting=method)
    )
    positions, weights = box_quadrature(HALF_WIDTH)

    def errors(params: Params) -> dict[str, Array]:
        found = box_spectrum(lambda at: encoder.apply(params, at), positions, weights)
        relative = jnp.abs(found.eigenvalues / jnp.asarray(ENERGIES) - 1.0)
        shells = [relative[n**2 : (n + 1) ** 2].mean() for n in range(SHELLS)]
        named = {f"shell_{n + 1}": each for n, each in enumerate(shells)}
        return {"mean_error": relative.mean(), "worst_error": relative.max(), **named}

    folder = RunFolder.create_or_resume(out, kind="hydrogen-levels", config=given, provenance={})
    result = train(
        encoder,
        objective,
        source,
        optimizer=Optimizer(learning_rate=learning_rate, schedule="cosine"),
        steps=steps,
        rows=rows,
        seeds=[seed],
        evaluate=errors,
        evaluate_every=max(steps // 20, 1),
        folder=folder,
        resets_diverged=True,
    )
    last = result.history[-1]
    ends = {name: last[name][0] for name in last if "error" in name or "shell" in name}
    print(json.dumps({**given, "seconds": round(result.seconds, 1), **ends}))


if __name__ == "__main__":
    tyro.cli(main)
