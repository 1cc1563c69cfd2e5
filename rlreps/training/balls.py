"""Positions and velocities of bouncing balls to which features of frames respond."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.numerics import jit
from rlreps.sources.balls import BallClips, of_positions, of_velocities
from rlreps.training.responses import explained_shares, extremes, mean_responses

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]


class BallResponses(NamedTuple):
    """Features of independent inputs, with the balls that the inputs show.

    Attributes:
        video: The balls.
        centres: Centres of the balls, the mean over an input's frames, [n, balls, 2].
        velocities: Velocities of the balls in the input's first frame, [n, balls, 2].
        values: Features, [n, d], signed so that the largest mean response is positive.
        maps: Mean of each feature when a ball is in a cell (``mean_responses``), [bins², d].
    """

    video: BouncingBalls
    centres: FloatArray
    velocities: FloatArray
    values: FloatArray
    maps: DoubleArray

    def shares(self, degree: int) -> dict[str, DoubleArray]:
        """Compute shares of each feature's variance [d], on inputs that were not used in the fit.

        Args:
            degree: Largest degree of the cosines of positions, as for ``of_positions``.

        Returns:
            ``mean_position``: explained linearly by the balls' mean position. ``one_ball``:
            explained by sums over balls of functions of one ball's position. ``all_balls``:
            explained by these and their products, functions of two and three balls. ``velocity``:
            explained in addition by functions of the balls' velocities.
        """
        function, bodies = of_positions(self.video, degree)
        centres = jnp.asarray(self.centres)
        values = np.asarray(jit(function)(centres))
        moving = np.asarray(jit(of_velocities(self.video))(centres, jnp.asarray(self.velocities)))
        all_balls = explained_shares(self.values, values)
        with_velocities = explained_shares(self.values, np.column_stack([values, moving]))
        return {
            "mean_position": explained_shares(self.values, self.centres.mean(axis=1)),
            "one_ball": explained_shares(self.values, values[:, bodies == 1]),
            "all_balls": all_balls,
            "velocity": with_velocities - all_balls,
        }

    def extreme_frames(self, count: int) -> FloatArray:
        """Render the frames that excite features least and most.

        Returns:
            Frames by rising value, with an empty picture (NaN) between the two ends,
            [d, 2 · count + 1, size, size].
        """
        chosen = np.concatenate([*extremes(self.values, count)], axis=1)
        centres = jnp.asarray(self.centres[chosen.ravel()])
        steps = jnp.zeros(len(centres), jnp.int32)
        still = BouncingBallsState(centres, jnp.zeros_like(centres), steps)
        frames = np.asarray(jit(jax.vmap(self.video.render))(still))
        frames = frames.reshape(*chosen.shape, *frames.shape[1:])
        return np.insert(frames, count, np.nan, axis=1)


def ball_responses(
    encoder: Encoder,
    params: Params,
    video: BouncingBalls,
    keys: Array,
    *,
    frames: int,
    rows: int,
    bins: int,
) -> BallResponses:
    """Evaluate an encoder's features on batches of independent inputs.

    Args:
        encoder: The encoder.
        params: Its parameters.
        video: The balls.
        keys: One key per batch, [batches].
        frames: Consecutive frames of an input.
        rows: Inputs of a batch.
        bins: Cells along a side of the maps.
    """
    seen, known = (BallClips(video, frames, frames, None, keys[0], each) for each in (False, True))

    @jit
    def evaluate(params: Params, keys: Array) -> tuple[Array, Array, Array]:
        def one_batch(key: Array) -> tuple[Array, Array, Array]:
            states = seen.states(key, rows)
            inputs, centres = (source.inputs(states)[:, 0] for source in (seen, known))
            return centres, states.velocities[:, 0], encoder.apply(params, inputs)

        measured: tuple[Array, Array, Array] = jax.lax.map(one_batch, keys)
        return measured

    centres, velocities, values = (
        np.asarray(part).reshape(-1, *part.shape[2:]) for part in evaluate(params, keys)
    )
    maps = mean_responses(centres, values, bins)
    largest = np.take_along_axis(maps, np.nanargmax(np.abs(maps), axis=0)[None, :], axis=0)
    signs = np.where(largest < 0.0, -1.0, 1.0)
    return BallResponses(video, centres, velocities, values * np.float32(signs), maps * signs)
