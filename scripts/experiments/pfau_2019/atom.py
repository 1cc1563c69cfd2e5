"""The hydrogen atom in the plane, H = −∇² − 1/r: exact, by differences, and points in a box.

Bound states have a closed form (Yang et al. 1991). In a box [−D, D]² with functions that vanish at
the edge, the bound states of the three lowest energies hardly differ from the closed form for
D = 50, in the units of H. Pfau et al. (2019), Section 5.1, learn them by spectral inference. Their
Eq. 20 prints V(x) = +1/|x|, which has no bound states: a slip of sign.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array
from scipy.linalg import orthogonal_procrustes
from scipy.sparse.linalg import LaplacianNd, eigsh
from scipy.special import genlaguerre

from rlreps.batch import Batch
from rlreps.numerics import matmul
from rlreps.operators import Diagonal, Laplacian, Operator, Weights
from rlreps.subspace import Spectrum, ordered_spectrum, ritz_spectrum
from rlreps.typing import DoubleArray

NUM_LEVELS = 3
"""Energy levels: 1 + 3 + 5 bound states."""

NUM_STATES = NUM_LEVELS**2

LEVELS = [slice(level**2, (level + 1) ** 2) for level in range(NUM_LEVELS)]
"""Indices of the ordered bound states of each energy level."""

ENERGIES: DoubleArray = np.repeat(
    [-1.0 / (2 * n + 1) ** 2 for n in range(NUM_LEVELS)], [2 * n + 1 for n in range(NUM_LEVELS)]
)
"""Energies of all bound states in order, −1 once, −1/9 three times, …, [9]."""


def wavefunctions(positions: DoubleArray) -> DoubleArray:
    """Compute the bound states in the plane in closed form (Yang et al. 1991).

    The states of angular momentum l are r^|l| exp(−r/(2n+1)) L_{n−|l|}^{2|l|}(2r/(2n+1)) times
    cos lθ or sin |l|θ, for n = 0, 1, 2, … and |l| ≤ n, with energy −1/(2n+1)². At positions [m, 2]
    the result is [m, 9], in the order of ``ENERGIES`` and not normalised.
    """
    distance = np.hypot(positions[:, 0], positions[:, 1])
    angle = np.arctan2(positions[:, 1], positions[:, 0])
    columns = []
    for n in range(NUM_LEVELS):
        scaled = distance / (2 * n + 1)
        for momentum in range(n + 1):
            polynomial = genlaguerre(n - momentum, 2 * momentum)
            radial = scaled**momentum * np.exp(-scaled) * polynomial(2.0 * scaled)
            columns.append(radial * np.cos(momentum * angle))
            if momentum > 0:
                columns.append(radial * np.sin(momentum * angle))
    return np.stack(columns, axis=1)


class GridSolution(NamedTuple):
    """Rising energies [9], orthonormal vectors [points², 9] and positions [points², 2] of a grid.

    The index is row · points + column; rows go upwards in y, columns in x.
    """

    energies: DoubleArray
    functions: DoubleArray
    positions: DoubleArray


def solve_on_grid(points: int, half_width: float) -> GridSolution:
    """Solve −∇² − 1/r in [−D, D]² with zero boundary by five-point differences.

    The number of interior points per side is even: the singularity lies between four points.
    """
    spacing = 2.0 * half_width / (points + 1)
    axis = -half_width + spacing * np.arange(1, points + 1)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    positions = np.stack([columns.ravel(), rows.ravel()], axis=1)
    grid = LaplacianNd((points, points), boundary_conditions="dirichlet", dtype=np.float64)
    potential = scipy.sparse.diags_array(-1.0 / np.hypot(positions[:, 0], positions[:, 1]))
    matrix = scipy.sparse.csc_array(potential - grid.tosparse() / spacing**2)
    start = np.random.default_rng(0).standard_normal(points**2)
    # The matrix, shifted by less than the lowest energy, is positive definite.
    values, vectors = eigsh(matrix, k=NUM_STATES, sigma=-1.5, v0=start)
    order = np.argsort(values)
    return GridSolution(values[order], vectors[:, order], positions)


def radius(positions: Array) -> Array:
    """Compute distances from the nucleus [b, 1], differentiable even at the nucleus."""
    smallest = float(np.finfo(positions.dtype).tiny)
    return jnp.sqrt(jnp.sum(jnp.square(positions), axis=1, keepdims=True) + smallest)


def hamiltonian(laplacian: Operator | None = None) -> Operator:
    """Build H = −∇² − 1/r, by default with the exact Laplacian."""
    return -(laplacian or Laplacian()) + Diagonal(lambda positions: -1.0 / radius(positions)[:, 0])


def box_quadrature(half_width: float) -> tuple[Array, Array]:
    """Return positions [m, 2] and weights [m] that integrate over the box.

    They are Gauss-Legendre points in panels of the radius, and evenly spaced in the angle.
    """
    nodes, node_weights = np.polynomial.legendre.leggauss(24)
    positions, weights = [], []
    for angle in 2.0 * np.pi * (np.arange(64) + 0.5) / 64:
        direction = np.asarray([np.cos(angle), np.sin(angle)])
        edge = half_width / np.abs(direction).max()
        ends = [*(end for end in (0.0, 1.0, 3.0, 8.0, 20.0) if end < edge), edge]
        for low, high in itertools.pairwise(ends):
            distance = (high - low) / 2.0 * nodes + (high + low) / 2.0
            positions.append(distance[:, None] * direction)
            weights.append((high - low) / 2.0 * node_weights * distance * 2.0 * np.pi / 64)
    dtype = jnp.result_type(float)
    points, shares = (np.concatenate(parts).astype(dtype) for parts in (positions, weights))
    return jnp.asarray(points), jnp.asarray(shares)


def box_spectrum(
    function: Callable[[Array], Array], positions: Array, weights: Array, *, ordered: bool = True
) -> Spectrum:
    """Compute eigenvalues and eigenfunctions of H in given functions, by quadrature over the box.

    Eigenvalues are Rayleigh quotients, from ∫|∇u|² − u²/r: upper bounds on the energies up to the
    error of the quadrature.

    Args:
        function: Positions [m, 2] → d functions [m, d] that vanish at the box's edge.
        positions: Points of ``box_quadrature``, [m, 2].
        weights: Weights of ``box_quadrature``, [m].
        ordered: Whether to keep the order of the functions. Otherwise, eigenvalues are those of the
            functions' span: without a mask, learned functions have no order (Pfau et al. 2019, App.
            A.1).
    """
    root, potential = jnp.sqrt(weights)[:, None], -1.0 / radius(positions)
    values = function(positions) * root
    operator_matrix = matmul(values.T, potential * values)
    for direction in jnp.eye(2, dtype=positions.dtype):
        tangents: Any = jnp.broadcast_to(direction[None, :], positions.shape)
        slope = jax.jvp(function, (positions,), (tangents,))[1] * root
        operator_matrix = operator_matrix + matmul(slope.T, slope)
    spectrum = ordered_spectrum if ordered else ritz_spectrum
    return spectrum(matmul(values.T, values), operator_matrix)


def rotate_in_levels(functions: DoubleArray, exact: DoubleArray) -> DoubleArray:
    """Rotate eigenfunctions [m, 9] within each level to the exact ones; columns have length 1.

    Any rotation within a level is as good an eigenbasis; this one solves Procrustes' problem.
    """
    columns = []
    for level in LEVELS:
        basis, target = functions[:, level], exact[:, level]
        turned = basis @ orthogonal_procrustes(basis, target / np.linalg.norm(target, axis=0))[0]
        lengths = np.linalg.norm(turned, axis=0)
        columns.append(turned / np.where(lengths > 0.0, lengths, 1.0))
    return np.concatenate(columns, axis=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BoxSource:
    """Points in the box [−D, D]².

    Attributes:
        half_width: D, [].
        radial: Whether points are uniform in the angle and in log(1 + r), up to the corners'
            radius, with log(1 + r) stratified. Otherwise they are uniform in the box.
    """

    half_width: Array
    radial: bool = dataclasses.field(metadata={"static": True})

    num_tasks = None
    """Targets are empty."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw points [num_rows, 2]; targets are [num_rows, 0]."""
        del num_tasks
        targets = jnp.zeros((num_rows, 0), self.half_width.dtype)
        uniform = jax.random.uniform(key, (num_rows, 2), self.half_width.dtype)
        if not self.radial:
            return Batch((2.0 * uniform - 1.0) * self.half_width, targets)
        # Hydrogen's ground state fills a thousandth of the box, its ninth state most of it: every
        # scale gets its share of the points.
        share = (jnp.arange(num_rows, dtype=uniform.dtype) + uniform[:, 0]) / num_rows
        corner = self.half_width * jnp.sqrt(jnp.asarray(2.0, self.half_width.dtype))
        distance = jnp.expm1(share * jnp.log1p(corner))
        angle = 2.0 * jnp.pi * uniform[:, 1]
        directions = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        return Batch(distance[:, None] * directions, targets)

    def weights(self) -> Weights:
        """Return the inverse density of points, up to a factor; zero outside the box."""

        def weigh(positions: Array) -> Array:
            if not self.radial:
                return jnp.ones(len(positions), positions.dtype)
            distance = radius(positions)[:, 0]
            inside = jnp.all(jnp.abs(positions) < self.half_width, axis=1)
            return jnp.where(inside, distance * (1.0 + distance), 0.0)

        return weigh
