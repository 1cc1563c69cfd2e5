"""The atom as spectral inference sees it: points, networks, Hamiltonian, measurements."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.encoders import MLP, Encoder, FunctionEncoder, Params, SeparateMLP
from rlreps.experiments.pfau_2019.hydrogen.closed_form import energies, wavefunctions
from rlreps.experiments.pfau_2019.hydrogen.config import NUM_FEATURES, Contender
from rlreps.losses.base import Batch, Objective
from rlreps.losses.spectral import Spin
from rlreps.operators import Diagonal, Laplacian, Operator, Weights
from rlreps.subspace import orthonormal_basis, subspace_distance
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training.optimizers import SCHEDULES

_PANELS = (0.0, 1.0, 3.0, 8.0, 20.0)
"""Radii between which the quadrature is by Gauss and Legendre; the last panel ends at the box."""

_NODES, _ANGLES = 24, 64


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BoxSource:
    """Points in the box [−D, D]².

    Attributes:
        half_width: D, [].
        radial: Whether points are uniform in log(1 + r) up to the corners' radius, stratified in
            it, and uniform in the angle, rather than uniform in the box.
    """

    half_width: Array
    radial: bool = dataclasses.field(metadata={"static": True})

    @property
    def num_tasks(self) -> int | None:
        """No task columns: targets are empty."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Points [num_rows, 2] and targets [num_rows, 0]."""
        del num_tasks
        targets = jnp.zeros((num_rows, 0), self.half_width.dtype)
        uniform = jax.random.uniform(key, (num_rows, 2), self.half_width.dtype)
        if not self.radial:
            return Batch((2.0 * uniform - 1.0) * self.half_width, targets)
        # The ground state fills a thousandth of the box, the highest most of it: every scale gets
        # its share of the points.
        share = (jnp.arange(num_rows, dtype=uniform.dtype) + uniform[:, 0]) / num_rows
        radius = jnp.expm1(share * _log_of_corner(self.half_width))
        angle = 2.0 * jnp.pi * uniform[:, 1]
        return Batch(radius[:, None] * _directions(angle), targets)

    def weights(self) -> Weights:
        """One over the density of the points, up to a factor; zero outside the box."""

        def weigh(positions: Array) -> Array:
            if not self.radial:
                return jnp.ones(len(positions), positions.dtype)
            radius = _radius(positions)[:, 0]
            inside = jnp.all(jnp.abs(positions) < self.half_width, axis=1)
            return jnp.where(inside, radius * (1.0 + radius), 0.0)

        return weigh


def _log_of_corner(half_width: Array) -> Array:
    return jnp.log1p(half_width * jnp.sqrt(jnp.asarray(2.0, half_width.dtype)))


def _directions(angle: Array) -> Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)


def _radius(positions: Array) -> Array:
    """Distances from the nucleus [b, 1], differentiable there."""
    smallest = float(np.finfo(positions.dtype).tiny)
    return jnp.sqrt(jnp.sum(jnp.square(positions), axis=1, keepdims=True) + smallest)


def make_source(contender: Contender, half_width: float) -> BoxSource:
    """The contender's points."""
    return BoxSource(
        jnp.asarray(half_width, jnp.result_type(float)), contender.sampling == "radial"
    )


def hamiltonian() -> Operator:
    """H = −∇² − 1/r."""
    return -Laplacian() + Diagonal(lambda positions: -1.0 / _radius(positions)[:, 0])


def make_encoder(contender: Contender, half_width: float) -> Encoder:
    """Networks on positions [b, 2] times a factor that is zero at the box's boundary: [b, 9]."""
    embed = INPUTS[contender.inputs]
    num_inputs = embed(jnp.ones((1, 2)), half_width).shape[1]
    network = NETWORKS[contender.networks](num_inputs, contender.hidden)

    def apply(params: Params, positions: Array) -> Array:
        boundary = jnp.prod(1.0 - jnp.square(positions / half_width), axis=1)
        return network.apply(params, embed(positions, half_width)) * boundary[:, None]

    return FunctionEncoder(network.init, apply)


def _radial_inputs(positions: Array, half_width: float) -> Array:
    radius = _radius(positions)
    # Centred about its mean over the sampled scales.
    scale = jnp.log1p(radius) / 2.0 - 1.0
    return jnp.concatenate([positions / (1.0 + radius), scale, radius / half_width], axis=1)


INPUTS: dict[str, Callable[[Array, float], Array]] = {
    "cartesian": lambda positions, half_width: positions / half_width,
    "radial": _radial_inputs,
}
"""Name → (positions [b, 2], D) → inputs of the networks."""

NETWORKS: dict[str, Callable[[int, tuple[int, ...]], Encoder]] = {
    "separate": lambda inputs, hidden: SeparateMLP(NUM_FEATURES, num_inputs=inputs, hidden=hidden),
    "shared": lambda inputs, hidden: MLP(
        NUM_FEATURES, num_inputs=inputs, hidden=hidden, activation="tanh"
    ),
}
"""Name → encoder of NUM_FEATURES features for (inputs, hidden widths)."""


def make_objective(contender: Contender, encoder: Encoder, source: BoxSource) -> Objective:
    """Spectral inference of the lowest eigenfunctions of H."""
    return Spin(
        NUM_FEATURES,
        operator=hamiltonian(),
        averaging_rate=contender.averaging_rate,
        encoder=encoder,
        separate=contender.networks == "separate",
        weights=source.weights(),
    )


def make_optimizer(contender: Contender) -> optax.GradientTransformation:
    """The contender's optimizer with its schedule."""
    schedule = SCHEDULES[contender.schedule](contender.learning_rate, contender.steps)
    if contender.optimizer == "rmsprop":
        return optax.rmsprop(schedule, decay=0.999)
    return optax.adam(schedule)


class Quadrature(NamedTuple):
    """Points and weights that integrate over the box.

    Attributes:
        positions: [m, 2].
        weights: [m].
    """

    positions: Array
    weights: Array


def make_quadrature(half_width: float) -> Quadrature:
    """Gauss-Legendre in panels of the radius up to the box's edge, even in the angle."""
    nodes, node_weights = np.polynomial.legendre.leggauss(_NODES)
    positions, weights = [], []
    for angle in 2.0 * np.pi * (np.arange(_ANGLES) + 0.5) / _ANGLES:
        direction = np.asarray([np.cos(angle), np.sin(angle)])
        edge = half_width / np.abs(direction).max()
        ends = [*(radius for radius in _PANELS if radius < edge), edge]
        for low, high in itertools.pairwise(ends):
            radius = (high - low) / 2.0 * nodes + (high + low) / 2.0
            positions.append(radius[:, None] * direction)
            weights.append((high - low) / 2.0 * node_weights * radius * 2.0 * np.pi / _ANGLES)
    dtype = jnp.result_type(float)
    return Quadrature(
        jnp.asarray(np.concatenate(positions), dtype), jnp.asarray(np.concatenate(weights), dtype)
    )


def make_evaluation(encoder: Encoder, half_width: float) -> Callable[[Params], dict[str, Array]]:
    """What is measured during training, by quadrature.

    Returns:
        Parameters → ``energy_1`` … ``energy_9`` (ordered Rayleigh quotients, from
        ∫|∇u|² − u²/r: upper bounds up to the error of the quadrature), ``worst_error``, the largest
        of their relative errors, and ``subspace_distance`` to the nine closed-form wavefunctions.
    """
    quadrature = make_quadrature(half_width)
    positions = quadrature.positions
    root = jnp.sqrt(quadrature.weights)[:, None]
    target = orthonormal_basis(
        jnp.asarray(wavefunctions(np.asarray(positions, np.float64)), root.dtype) * root
    )[0]
    exact = jnp.asarray(energies(), root.dtype)
    potential = -1.0 / _radius(positions)

    def evaluate(params: Params) -> dict[str, Array]:
        features = encoder.apply(params, positions)
        operator_matrix = _inner(features * root, potential * features * root)
        for direction in jnp.eye(2, dtype=positions.dtype):
            slope = _slope(encoder, params, positions, direction) * root
            operator_matrix = operator_matrix + _inner(slope, slope)
        covariance = _inner(features * root, features * root)
        found = ordered_spectrum(covariance, operator_matrix).eigenvalues
        figures = {f"energy_{index + 1}": value for index, value in enumerate(found)}
        return {
            **figures,
            "worst_error": jnp.max(jnp.abs(found / exact - 1.0)),
            "subspace_distance": subspace_distance(features * root, target),
        }

    return evaluate


def _inner(left: Array, right: Array) -> Array:
    return jnp.matmul(left.T, right, precision=lax.Precision.HIGHEST)


def _slope(encoder: Encoder, params: Params, positions: Array, direction: Array) -> Array:
    """Derivatives of the features along a direction, [m, 9]."""
    tangents: Any = jnp.broadcast_to(direction[None, :], positions.shape)
    slope: Array = jax.jvp(lambda points: encoder.apply(params, points), (positions,), (tangents,))[
        1
    ]
    return slope
