"""Eigenvalues of slowness on fresh clips, and the slowest linear combinations of functions."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array, lax

from rlreps.encoders import Encoder, FunctionEncoder, Params, WithConstant
from rlreps.numerics import jit, matmul
from rlreps.operators import Slowness, act
from rlreps.sources import Source
from rlreps.subspace import Spectrum, ordered_spectrum, ritz_spectrum
from rlreps.typing import DoubleArray

_LEAST_VARIANCE = 1e-5
"""Smallest variance of a principal component that is kept, relative to the largest."""


class Spectra(NamedTuple):
    """Eigenvalues of the features after the constant; the constant's eigenvalue is left out.

    Attributes:
        ordered: λ_k of feature k, made orthogonal to the features before it, [d].
        ritz: Eigenvalues of the features' span, rising, [d], with the same sum as ``ordered``.
        transform: Maps features to eigenfunctions, in learned order, [1 + d, d].
    """

    ordered: DoubleArray
    ritz: DoubleArray
    transform: npt.NDArray[np.float32]


class Draw(NamedTuple):
    """Clips to average over; a new key gives fresh clips.

    Attributes:
        source: Draws the clips.
        key: Random key of the draws.
        rows: Clips of a batch.
        batches: Number of batches; one is in memory at a time.
    """

    source: Source
    key: Array
    rows: int
    batches: int

    def moments(self, encoder: Encoder, params: Params) -> tuple[Array, Array]:
        """Average Σ = E[u uᵀ] and Π = E[u (Ku)ᵀ] of features, [d, d] each."""

        def one(key: Array) -> tuple[Array, Array]:
            clips = self.source.sample(key, self.rows, 1).inputs
            found = act(Slowness(), lambda inputs: encoder.apply(params, inputs), clips)
            return found.covariance, found.operator_matrix

        def add(total: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], None]:
            return jax.tree.map(jnp.add, total, one(key)), None

        shapes = jax.eval_shape(one, self.key)
        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        total, _ = lax.scan(add, start, jax.random.split(self.key, self.batches))
        return total[0] / self.batches, total[1] / self.batches


def slow_spectra(encoder: Encoder, params: Params, draw: Draw) -> Spectra:
    """Measure the eigenvalues of slowness of features, the first of which is the constant."""
    found = _spectra(encoder, draw.rows, draw.batches, params, draw.source, draw.key)
    ordered, ritz = found
    return Spectra(
        np.asarray(ordered.eigenvalues, np.float64)[1:],
        np.asarray(ritz.eigenvalues, np.float64)[1:],
        np.asarray(ordered.transform)[:, 1:],
    )


@partial(jit, static_argnums=(0, 1, 2))
def _spectra(
    encoder: Encoder, rows: int, batches: int, params: Params, source: Source, key: Array
) -> tuple[Spectrum, Spectrum]:
    # Networks and draws are arguments, so that one program measures all of them.
    found = Draw(source, key, rows, batches).moments(encoder, params)
    return ordered_spectrum(*found), ritz_spectrum(*found)


def linear_slow_features(
    function: Callable[[Array], Array],
    draw: Draw,
    num_features: int,
    components: int | None = None,
) -> tuple[Encoder, tuple[Array, Array]]:
    """Find the slowest combinations of functions by the generalised eigenproblem.

    It starts from principal components, since directions that hardly vary would fit sampling noise.

    Args:
        function: Inputs [b, ...] → functions [b, m].
        draw: The clips to fit to.
        num_features: d.
        components: Largest number of principal components; by default all that vary.

    Returns:
        An encoder of the constant and the features, the slowest first, of unit variance and mean
        zero; and its parameters, the combinations [m, d] and the offsets [d] that they subtract.
    """
    functions = WithConstant(FunctionEncoder(lambda _: (), lambda _, inputs: function(inputs)))
    average = jit(lambda source, key: draw._replace(source=source, key=key).moments(functions, ()))
    found = average(draw.source, draw.key)
    second, changes = (np.asarray(part, np.float64) for part in found)
    mean = second[0, 1:]
    variances, axes = scipy.linalg.eigh(second[1:, 1:] - np.outer(mean, mean))
    kept = variances > _LEAST_VARIANCE * variances[-1]
    kept[: -min(components or len(kept), len(kept))] = False
    axes = axes[:, kept]
    changes = (changes + changes.T)[1:, 1:] / 2.0
    _, mixing = scipy.linalg.eigh(
        axes.T @ changes @ axes, np.diag(variances[kept]), subset_by_index=(0, num_features - 1)
    )
    weights = axes @ mixing
    fitted = (jnp.asarray(weights, jnp.float32), jnp.asarray(mean @ weights, jnp.float32))
    features = FunctionEncoder(
        lambda _: fitted,
        lambda params, inputs: matmul(function(inputs), params[0]) - params[1][None, :],
    )
    return WithConstant(features), fitted
