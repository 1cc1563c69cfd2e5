"""Linear slow feature analysis of pixels and of functions of the balls' positions.

Both are exact solutions in a space of functions: the first is the baseline, the second, which sees
what no video shows, tells how slow features of a frame can be.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array

from rlreps.encoders import Encoder, FunctionEncoder, WithConstant
from rlreps.envs import BouncingBalls
from rlreps.errors import require
from rlreps.experiments.pfau_2019.bouncing_balls.video import FramePairs
from rlreps.operators import Slowness
from rlreps.training.evaluation import sampled_moments

DoubleArray = npt.NDArray[np.float64]

_LEAST_VARIANCE = 1e-5
"""Variance of the least principal component that is kept, relative to the greatest."""


class Basis(NamedTuple):
    """Functions whose combinations slow feature analysis is to choose from.

    Attributes:
        function: Inputs [b, ...] → values [b, m].
        bodies: Balls that each function takes together, [m]; 0 where that has no meaning.
    """

    function: Callable[[Array], Array]
    bodies: npt.NDArray[np.int64]


def pixels(video: BouncingBalls, pooling: int) -> Basis:
    """Pixels of frames [b, size, size, 1], averaged over squares.

    Args:
        video: The balls.
        pooling: Side of a square in pixels.

    Raises:
        InputError: If squares do not tile a frame.
    """
    size = video.frame_size
    require(size % pooling == 0, f"pooling that divides a frame's side ({size})", pooling)
    side = size // pooling

    def function(frames: Array) -> Array:
        squares = frames.reshape(len(frames), side, pooling, side, pooling)
        return squares.mean(axis=(2, 4)).reshape(len(frames), -1)

    return Basis(function, np.zeros(side * side, np.int64))


def positions(video: BouncingBalls, degree: int) -> Basis:
    """Functions of centres [b, balls, 2] that do not tell the balls apart.

    With cosines cos(iπx)cos(jπy), of degree i + j, over the square that centres can be in: their
    sums over balls, and products of two and of three such sums. They span all symmetric
    polynomials in the cosines, for up to three balls, to the degree given.

    Args:
        video: The balls.
        degree: Greatest total degree.
    """
    waves = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j > 0]
    products = [
        chosen
        for bodies in range(1, min(video.num_balls, 3) + 1)
        for chosen in itertools.combinations_with_replacement(range(len(waves)), bodies)
        if sum(sum(waves[wave]) for wave in chosen) <= degree
    ]
    # The last column of ones fills products of fewer than three.
    filled = np.asarray([(*chosen, *[len(waves)] * (3 - len(chosen))) for chosen in products])
    across, along = (jnp.asarray(part) for part in np.transpose(waves))

    def function(centres: Array) -> Array:
        unit = (centres - video.radius) / (1.0 - 2.0 * video.radius)
        multiples = jnp.pi * jnp.arange(degree + 1, dtype=unit.dtype)
        cosines = jnp.cos(unit[..., None] * multiples[None, None, None, :])
        sums = jnp.sum(cosines[:, :, 0, across] * cosines[:, :, 1, along], axis=1)
        sums = jnp.concatenate([sums, jnp.ones_like(sums[:, :1])], axis=1)
        return jnp.prod(sums[:, filled], axis=2)

    return Basis(function, np.asarray([len(chosen) for chosen in products]))


def linear_slow_features(
    basis: Basis,
    source: FramePairs,
    key: Array,
    count: int,
    *,
    rows: int,
    batches: int,
    components: int,
) -> Encoder:
    """The slowest combinations of functions, by the generalised eigenproblem.

    Principal components first: what hardly varies would be fitted to the sample.

    Args:
        basis: The functions.
        source: Where pairs come from.
        key: Random key.
        count: Slow features wanted.
        rows: Frames of a batch, two a pair.
        batches: Batches to learn from.
        components: Most principal components to keep.

    Returns:
        An encoder of ``count`` features, the slowest first, of unit variance and mean zero; its
        parameters are the combinations [functions, count] and what they subtract [count].

    Raises:
        InputError: If fewer principal components than features vary.
    """
    functions = FunctionEncoder(lambda _: (), lambda _, inputs: basis.function(inputs))
    moments = jax.jit(
        lambda source, key: sampled_moments(
            WithConstant(functions), (), Slowness(), source, key, rows=rows, batches=batches
        )
    )(source, key)
    second, changes = (np.asarray(part, np.float64) for part in moments)
    mean = second[0, 1:]
    covariance = second[1:, 1:] - np.outer(mean, mean)
    variances, axes = scipy.linalg.eigh(covariance)
    kept = variances > _LEAST_VARIANCE * variances[-1]
    kept[: -min(components, len(kept))] = False
    axes = axes[:, kept]
    require(axes.shape[1] >= count, f"at least {count} components that vary", axes.shape[1])
    changes = (changes + changes.T)[1:, 1:] / 2.0
    _, mixing = scipy.linalg.eigh(
        axes.T @ changes @ axes, np.diag(variances[kept]), subset_by_index=(0, count - 1)
    )
    weights = axes @ mixing
    fitted = (jnp.asarray(weights, jnp.float32), jnp.asarray(mean @ weights, jnp.float32))

    def apply(params: tuple[Array, Array], inputs: Array) -> Array:
        values = basis.function(inputs)
        combined = jnp.matmul(values, params[0], precision=jax.lax.Precision.HIGHEST)
        return combined - params[1][None, :]

    return FunctionEncoder(lambda _: fitted, apply)


def explained(features: npt.ArrayLike, values: npt.ArrayLike) -> DoubleArray:
    """Share of each feature's variance that a linear combination of functions explains, [d].

    The last third of the rows is predicted from a fit to the rest, so that functions which are
    many do not explain by chance; what predicts worse than the mean is negative.

    Args:
        features: [n, d].
        values: The functions at the same inputs, [n, m].
    """
    targets, given = (np.asarray(part, np.float64) for part in (features, values))
    design = np.column_stack([np.ones(len(given)), given])
    fitted = 2 * len(targets) // 3
    normal = design[:fitted].T @ design[:fitted]
    ridge = 1e-9 * np.trace(normal) / len(normal) * np.eye(len(normal))
    weights = np.linalg.solve(normal + ridge, design[:fitted].T @ targets[:fitted])
    left = targets[fitted:] - design[fitted:] @ weights
    share: DoubleArray = 1.0 - np.mean(np.square(left), axis=0) / targets[fitted:].var(axis=0)
    return share
