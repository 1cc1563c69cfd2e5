"""One model out of several: what workers that went on from a common model make of it together."""

import jax
import jax.numpy as jnp
from jax import Array, lax

_HIGHEST = lax.Precision.HIGHEST


def shares(weights: Array) -> Array:
    """Weights [workers] divided by their sum."""
    normalized: Array = weights / jnp.sum(weights)
    return normalized


def online_em_average(rows: Array, weights: Array) -> Array:
    """The weighted mean of factors, Σ_m w_m C_m with Σ_m w_m = 1.

    Amid & Warmuth 2020, Eq. 18: it minimises the weighted sum of the relative entropies between
    the probabilistic models x = Cy + noise with y ~ N(0, I), each of which is ‖C_m − C‖² / 2σ².
    A rotation of y would change the mean and no model: workers have to start from a common C.

    Args:
        rows: C_mᵀ, [workers, k, features].
        weights: [workers], of positive sum.

    Returns:
        Cᵀ, [k, features].
    """
    mean: Array = jnp.einsum("m,mkf->kf", shares(weights), rows, precision=_HIGHEST)
    return mean


def projection_average(rows: Array, weights: Array) -> Array:
    """The k-dimensional subspace nearest to several, as an orthonormal basis near theirs.

    Amid & Warmuth 2020: the span of the top k eigenvectors of Σ_m w_m V_m V_mᵀ, the subspace whose
    projector is nearest to the workers' in squared Frobenius norm. Eigenvectors come from the inner
    products of all workers' vectors, [workers · k, workers · k]. Of all bases of that subspace the
    one nearest to the workers' mean basis is returned, so that components keep their places and
    models that agree are left as they are.

    Args:
        rows: V_mᵀ with orthonormal rows, [workers, k, features].
        weights: [workers], none negative, of positive sum.

    Returns:
        Vᵀ with orthonormal rows, [k, features].
    """
    workers, k, width = rows.shape
    scaled = (jnp.sqrt(shares(weights))[:, None, None] * rows).reshape(workers * k, width)
    gram = jnp.matmul(scaled, scaled.T, precision=_HIGHEST)
    values, vectors = jnp.linalg.eigh(gram)
    leading = vectors[:, -k:] / jnp.sqrt(values[-k:])[None, :]
    basis = jnp.matmul(leading.T, scaled, precision=_HIGHEST)
    return nearest_basis(basis, online_em_average(rows, weights))


def nearest_basis(basis: Array, target: Array) -> Array:
    """The orthonormal basis of a span that is nearest to given vectors (orthogonal Procrustes).

    Args:
        basis: Orthonormal rows, [k, features].
        target: Vectors to be near to, [k, features].

    Returns:
        R · basis for the rotation R that minimises ‖R · basis − target‖_F, [k, features].
    """
    overlaps = jnp.matmul(target, basis.T, precision=_HIGHEST)
    left, _, right = jnp.linalg.svd(overlaps, full_matrices=False)
    rotation = jnp.matmul(left, right, precision=_HIGHEST)
    turned: Array = jnp.matmul(rotation, basis, precision=_HIGHEST)
    return turned


def broadcast(state: object, workers: int) -> object:
    """A state with a leading axis of ``workers`` copies: where all go on from."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *jnp.shape(leaf))), state)
