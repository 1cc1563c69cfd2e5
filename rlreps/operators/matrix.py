"""Operators on states: a matrix, a Markov chain's graph Laplacian, and its samples, slowness."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy  # Its submodules load on first use; every loss imports this module.
from jax import Array, lax

from rlreps.config import configurable, leaf
from rlreps.errors import require
from rlreps.numerics import matmul
from rlreps.operators.base import Operator, Sample, require_symmetric_entries


@configurable
@dataclasses.dataclass(frozen=True, eq=False)
class MatrixOperator(Operator):
    """(Ku)(s) = Σ_s' K[s, s'] u(s'), for inputs that are state indices [b] (integers).

    It evaluates the functions at all n states for every batch, and gives NaN for indices beyond
    the states.

    Attributes:
        values: K, [n, n], floating.
        measure: Probability with which each state is drawn, [n]; None draws all states equally.

    Raises:
        InputError: If it is not a square matrix of finite floating values, or D(measure)·K is not
            symmetric.
    """

    values: Any = leaf()
    measure: dataclasses.InitVar[np.ndarray | None] = None

    def __post_init__(self, measure: np.ndarray | None) -> None:
        array = jnp.asarray(self.values)
        square = array.ndim == 2 and array.shape[0] == array.shape[1]
        require(square, "a matrix of shape [states, states]", array.shape)
        require(jnp.issubdtype(array.dtype, jnp.floating), "a floating matrix", array.dtype.name)
        require(bool(jnp.isfinite(array).all()), "a matrix of finite entries", "NaN or infinity")
        form = np.asarray(array)
        if measure is not None:
            form = np.asarray(measure, form.dtype)[:, None] * form
        expected = "a matrix that is symmetric in the measure of its states"
        require_symmetric_entries(form, expected, "states")
        object.__setattr__(self, "values", array)

    def apply(self, sample: Sample) -> Array:
        rows = self.values.at[sample.inputs].get(mode="fill", fill_value=jnp.nan)
        return matmul(rows, sample.function(jnp.arange(len(self.values))))


@configurable
@dataclasses.dataclass(frozen=True)
class Slowness(Operator):
    """The operator of the quadratic form E[(u(s_t) − u(s_{t+1}))²], for slow feature analysis.

    The measure is that of both ends of a step, with second moment ½E[u(s_t)² + u(s_{t+1})²]. In it
    the operator is (Ku)(s) = 2(u(s) − E[u at the other end of a step from or to s]): Σ⁻¹L of
    ``GraphLaplacian``, sampled. Its eigenvalues lie in [0, 4]: 0 for a constant; 1 − λ/2 is the
    correlation of an eigenfunction with itself a step later.

    Inputs are a ``Clip`` of l consecutive states. The form is the mean over a clip's l − 1 steps,
    the measure that of its l states. The eigenvalues of a sample can reach
    2(1 + cos(π/l)) l/(l − 1), which is 4 for l = 2.

    Raises:
        InputError: From ``apply``, for single states.
    """

    @property
    def needs_clips(self) -> bool:
        return True

    def apply(self, sample: Sample) -> Array:
        rows, length = len(sample.features), sample.clip_length
        expected = "rows that are pairs or clips of states (rlreps.sources.pair_source)"
        require(length >= 2, expected, "single states")
        states = sample.features.reshape(length, rows // length, -1)
        steps = jnp.pad(states[1:] - states[:-1], ((1, 1), (0, 0), (0, 0)))
        images = (steps[:-1] - steps[1:]) * (length / (length - 1))
        return images.reshape(rows, -1)


@configurable
@dataclasses.dataclass(frozen=True, eq=False)
class GraphOperator(Operator):
    """Σ⁻¹L of a ``GraphLaplacian`` on state indices [b], stored by its non-zero entries.

    Images are sums over steps of probability times u(s) − u(s'), in which the constant vanishes
    without rounding. The operator evaluates the functions at all n states for every batch, and
    gives NaN for indices beyond the states.

    Attributes:
        columns: Columns s' of the entries in each state's row, [n, k].
        values: These entries of Σ⁻¹L, [n, k].
    """

    columns: Array = leaf()
    values: Array = leaf()

    def apply(self, sample: Sample) -> Array:
        """Compute Σ⁻¹Lu at a sample's states, [b, d]."""
        states = jnp.arange(len(self.values), dtype=jnp.int32)
        others = sample.function(states)[self.columns[sample.inputs]]  # [b, k, d]
        differences = others - sample.features[:, None, :]
        rates = self.values.at[sample.inputs].get(mode="fill", fill_value=jnp.nan)
        rates = rates.astype(differences.dtype)
        return jnp.einsum("bk,bkd->bd", rates, differences, precision=lax.Precision.HIGHEST)


class GraphLaplacian(NamedTuple):
    """The generalised eigenproblem L u = λ Σ u of a Markov chain's slowness.

    Attributes:
        laplacian: L = D(ξ) + D(ν) − D(ξ)P − PᵀD(ξ), [n, n], sparse.
        measure: (ξ + ν) / 2, the diagonal of Σ, [n].
        next_distribution: ν = Pᵀξ, [n].
    """

    laplacian: "scipy.sparse.csr_array"
    measure: np.ndarray
    next_distribution: np.ndarray

    def operator(self) -> Operator:
        """Return Σ⁻¹L on state indices, symmetric in ``measure``, which ``Slowness`` samples.

        Raises:
            InputError: If there are states that the chain never visits.
        """
        never = np.flatnonzero(self.measure <= 0.0)
        require(len(never) == 0, "a chain that visits every state", f"{len(never)} never visited")
        rates = scipy.sparse.diags_array(1.0 / self.measure) @ self.laplacian
        others = scipy.sparse.csr_array(rates - scipy.sparse.diags_array(rates.diagonal()))
        columns, values = (jnp.asarray(part) for part in padded_rows(others))
        return GraphOperator(columns, values.astype(jnp.result_type(float)))


def graph_laplacian(
    transition: "np.ndarray | scipy.sparse.sparray", distribution: np.ndarray
) -> GraphLaplacian:
    """Compute the graph Laplacian of a transition matrix.

    uᵀLu = E[(u(s_t) − u(s_{t+1}))²] and uᵀΣu = ½E[u(s_t)² + u(s_{t+1})²] for s_t ~ ξ and
    s_{t+1} ~ P(s_t, ·). ξ need not be stationary.

    Args:
        transition: P, [n, n], dense or sparse, rows sum to 1.
        distribution: ξ, [n], sums to 1.

    Returns:
        L and the measure, in float64.

    Raises:
        InputError: If P is not square, its shape does not fit that of ξ, an entry is negative, or a
            sum is not 1.
    """
    # SciPy's types have no union of a dense and a sparse array.
    given: Any = transition
    chain: Any = scipy.sparse.csr_array(given).astype(np.float64)
    distribution = np.asarray(distribution, np.float64)
    require(distribution.ndim == 1, "a distribution of shape [states]", distribution.shape)
    states = len(distribution)
    expected = (states, states)
    require(chain.shape == expected, f"transitions of shape {expected}", chain.shape)
    for name, sums, values in (
        ("rows of transitions", chain.sum(axis=1), chain.data),
        ("a distribution", distribution.sum(keepdims=True), distribution),
    ):
        # A sparse chain may store no entry at all.
        least = float(values.min(initial=np.inf))
        require(least >= 0.0, f"{name} with entries >= 0", f"{least:g}")
        off = float(np.abs(sums - 1.0).max())
        require(off < 1e-5, f"{name} with sums of 1", f"a sum off by {off:g}")
    next_distribution = chain.T @ distribution
    flow = scipy.sparse.diags_array(distribution) @ chain
    degrees = scipy.sparse.diags_array(distribution + next_distribution)
    laplacian = scipy.sparse.csr_array(degrees - flow - flow.T)
    return GraphLaplacian(laplacian, (distribution + next_distribution) / 2.0, next_distribution)


def padded_rows(matrix: "scipy.sparse.csr_array") -> tuple[np.ndarray, np.ndarray]:
    """Pad a sparse matrix's rows with the last column and zero.

    Returns:
        Columns (int32) and values (float64), [n, k] each.
    """
    per_row = np.diff(matrix.indptr)
    place = np.arange(per_row.max())[None, :]
    source = matrix.indptr[:-1, None] + np.minimum(place, per_row[:, None] - 1)
    columns = matrix.indices[source].astype(np.int32)
    values = np.where(place < per_row[:, None], matrix.data[source], 0.0)
    return columns, values
