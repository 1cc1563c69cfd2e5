"""What trained and exact slow features are measured by, all on the same fresh frames."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.experiments.pfau_2019.bouncing_balls.config import BouncingBallsConfig
from rlreps.experiments.pfau_2019.bouncing_balls.linear import DoubleArray, explained, positions
from rlreps.experiments.pfau_2019.bouncing_balls.video import FramePairs
from rlreps.operators import Slowness
from rlreps.subspace.ordered import ordered_spectrum, ritz_spectrum
from rlreps.training.evaluation import sampled_moments

FloatArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Spectra:
    """Eigenvalues of one analysis, the constant's left out.

    Attributes:
        ordered: λ_k of feature k made orthogonal to those before it, [d].
        ritz: Of the features' span, rising, [d]; the sum is that of ``ordered``.
        transform: The features to eigenfunctions, in learned order, [1 + d, d].
    """

    ordered: DoubleArray
    ritz: DoubleArray
    transform: FloatArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """Shares of each eigenfunction's variance, on frames that were not fitted to, [d].

    Attributes:
        mean_position: By the balls' mean position, linearly.
        one_ball: By sums over balls of functions of one ball's position.
        all_balls: By these and their products, functions of two and three balls together.
    """

    mean_position: DoubleArray
    one_ball: DoubleArray
    all_balls: DoubleArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Responses:
    """Eigenfunctions on unrelated frames.

    Attributes:
        centres: Of the balls, [n, balls, 2].
        values: Of the eigenfunctions, [n, d]; the mean response that is largest in magnitude is
            positive (``mean_responses``).
        maps: Mean of each eigenfunction where one ball is in a cell, [bins², d]; NaN where none is.
    """

    centres: FloatArray
    values: FloatArray
    maps: DoubleArray


def measure_spectra(
    encoder: Encoder,
    params: Params,
    source: FramePairs,
    key: Array,
    *,
    rows: int,
    batches: int,
) -> Spectra:
    """Eigenvalues of features whose first is the constant, from ``batches`` of ``rows`` frames."""
    moments = jax.jit(
        lambda params, source, key: sampled_moments(
            encoder, params, Slowness(), source, key, rows=rows, batches=batches
        )
    )(params, source, key)
    ordered, ritz = ordered_spectrum(*moments), ritz_spectrum(*moments)
    return Spectra(
        ordered=np.asarray(ordered.eigenvalues, np.float64)[1:],
        ritz=np.asarray(ritz.eigenvalues, np.float64)[1:],
        transform=np.asarray(ordered.transform)[:, 1:],
    )


def measure_responses(
    eigenfunctions: Callable[[Array], Array],
    video: BouncingBalls,
    key: Array,
    config: BouncingBallsConfig,
) -> Responses:
    """Eigenfunctions, frames [b, ...] → [b, d], on ``config.frame_batches`` batches of frames."""

    def one_batch(batch_key: Array) -> tuple[Array, Array]:
        states = draw_states(video, batch_key, config.rows)
        return states.positions, eigenfunctions(jax.vmap(video.observe)(states))

    keys = jax.random.split(key, config.frame_batches)
    centres, values = (
        np.asarray(part).reshape(-1, *part.shape[2:])
        for part in jax.jit(lambda keys: jax.lax.map(one_batch, keys))(keys)
    )
    maps = mean_responses(centres, values, config.map_bins)
    largest = np.take_along_axis(maps, np.nanargmax(np.abs(maps), axis=0)[None, :], axis=0)
    signs = np.where(largest < 0.0, -1.0, 1.0)
    return Responses(centres=centres, values=values * np.float32(signs), maps=maps * signs)


def draw_states(video: BouncingBalls, key: Array, count: int) -> BouncingBallsState:
    """Unrelated states, [count, ...]."""
    return jax.vmap(video.reset)(jax.random.split(key, count))


def mean_responses(centres: npt.ArrayLike, values: npt.ArrayLike, bins: int) -> DoubleArray:
    """Mean feature values given that one ball is in a cell of the unit square, whichever ball.

    Args:
        centres: Of the balls, [n, balls, 2].
        values: Of the features, [n, d].
        bins: Cells a side.

    Returns:
        [bins², d], cell row · bins + column with rows upwards in y; NaN where no ball has been.
    """
    points, features = np.asarray(centres), np.asarray(values, np.float64)
    columns, rows = np.moveaxis(np.clip((points * bins).astype(int), 0, bins - 1), -1, 0)
    cells = rows * bins + columns
    counts = np.bincount(cells.ravel(), minlength=bins * bins)
    totals = np.stack(
        [
            np.bincount(cells.ravel(), np.repeat(feature, cells.shape[1]), minlength=bins * bins)
            for feature in features.T
        ],
        axis=1,
    )
    means: DoubleArray = np.where(counts > 0, totals.T / np.maximum(counts, 1), np.nan).T
    return means


def measure_explained(
    responses: Responses, video: BouncingBalls, config: BouncingBallsConfig
) -> Explained:
    """How much of the eigenfunctions low-order functions of positions explain."""
    basis = positions(video, config.degree)
    values = np.asarray(jax.jit(basis.function)(jnp.asarray(responses.centres)))
    return Explained(
        mean_position=explained(responses.values, responses.centres.mean(axis=1)),
        one_ball=explained(responses.values, values[:, basis.bodies == 1]),
        all_balls=explained(responses.values, values),
    )


def extreme_frames(responses: Responses, video: BouncingBalls, count: int) -> FloatArray:
    """The frames that excite each eigenfunction least and most.

    Returns:
        [d, 2 · count, size, size]: the least exciting first, rising.
    """
    order = np.argsort(responses.values, axis=0)
    chosen = np.concatenate([order[:count], order[-count:]]).T
    centres = jnp.asarray(responses.centres[chosen.ravel()])
    still = BouncingBallsState(centres, jnp.zeros_like(centres), jnp.zeros(len(centres), jnp.int32))
    frames = np.asarray(jax.jit(jax.vmap(video.render))(still))
    return frames.reshape(*chosen.shape, *frames.shape[1:])
