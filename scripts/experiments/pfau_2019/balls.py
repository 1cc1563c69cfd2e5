"""Clips of a video of bouncing balls, and the positions and velocities that features respond to."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.batch import Batch, Clip
from rlreps.encoders import Encoder, Params
from rlreps.experiments.pfau_2019.responses import explained_shares, extremes, mean_responses
from rlreps.experiments.pfau_2019.video import BouncingBalls, BouncingBallsState
from rlreps.numerics import jit, matmul
from rlreps.typing import DoubleArray

FloatArray: TypeAlias = npt.NDArray[np.float32]
Function: TypeAlias = Callable[[Array], Array]
"""Inputs [b, ...] → values [b, m]."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BallClips:
    """Consecutive inputs of clips of a video, for ``operators.Slowness``.

    An input is one frame or several consecutive frames, as channels. The start of an episode has
    the same distribution as every later frame, so clips that start there are independent. A random
    key determines each clip: nothing is stored.

    Attributes:
        video: The balls.
        frames: Consecutive frames of an input.
        clip_frames: Frames of a clip.
        num_clips: Number of clips in the video; None never repeats one.
        key: Random key of the video's clips.
        as_positions: Whether inputs are the balls' centres [rows, balls, 2], the mean over an
            input's frames, instead of frames; the same key draws the same states either way.
    """

    video: BouncingBalls
    frames: int = dataclasses.field(metadata={"static": True})
    clip_frames: int = dataclasses.field(metadata={"static": True})
    num_clips: int | None = dataclasses.field(metadata={"static": True})
    key: Array
    as_positions: bool = dataclasses.field(default=False, metadata={"static": True})

    num_tasks = None
    """Targets are empty."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw clips of l = clip_frames − frames + 1 inputs [num_rows, size, size, frames]."""
        del num_tasks
        inputs = self.inputs(self.states(key, num_rows))
        clip = Clip(tuple(jnp.swapaxes(inputs, 0, 1)))
        return Batch(clip, jnp.zeros((num_rows, 0), inputs.dtype))

    def states(self, key: Array, num_rows: int) -> BouncingBallsState:
        """Draw the states behind the frames of clips, leaves [num_rows, clip_frames, ...]."""
        if self.num_clips is None:
            keys = jax.random.split(key, num_rows)
        else:
            numbers = jax.random.randint(key, (num_rows,), 0, self.num_clips)
            keys = jax.vmap(partial(jax.random.fold_in, self.key))(numbers)
        return jax.vmap(lambda clip: play(self.video, self.video.reset(clip), self.clip_frames))(
            keys
        )

    def inputs(self, states: BouncingBallsState) -> Array:
        """Group the consecutive frames of clips into inputs.

        Args:
            states: Leaves [clips, count, ...].

        Returns:
            [clips, count − frames + 1, size, size, frames], or the mean of the balls' centres
            [clips, count − frames + 1, balls, 2].
        """
        render = jax.vmap(jax.vmap(self.video.render))
        shown = states.positions if self.as_positions else render(states)[..., None]
        count = shown.shape[1] - self.frames + 1
        shifted = [shown[:, first : first + count] for first in range(self.frames)]
        if self.as_positions:
            return jnp.mean(jnp.stack(shifted), axis=0)
        return jnp.concatenate(shifted, axis=-1)


def play(video: BouncingBalls, state: BouncingBallsState, count: int) -> BouncingBallsState:
    """Return a state and the states of the frames after it, leaves [count, ...]."""

    def move(state: BouncingBallsState, _: None) -> tuple[BouncingBallsState, BouncingBallsState]:
        after = video.move(state)
        return after, after

    later = jax.lax.scan(move, state, None, length=count - 1)[1]
    states: BouncingBallsState = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest]), state, later
    )
    return states


def pooled_pixels(size: int, pooling: int) -> Function:
    """Average frames [b, size, size, frames] over squares of ``pooling`` x ``pooling`` pixels."""
    side = size // pooling

    def function(frames: Array) -> Array:
        squares = frames.reshape(len(frames), side, pooling, side, pooling, -1)
        return squares.mean(axis=(2, 4)).reshape(len(frames), -1)

    return function


def make_position_functions(
    video: BouncingBalls, degree: int
) -> tuple[Function, npt.NDArray[np.int64]]:
    """Build functions of centres [b, balls, 2] → [b, m] that do not distinguish the balls.

    They use cosines cos(iπx)cos(jπy), of degree i + j up to ``degree``, over the square in which
    centres can be: their sums over balls, and products of two and three sums. For up to three
    balls, they span all symmetric polynomials in the cosines up to this degree.

    Returns:
        The functions, and the number of balls that each combines, [m].
    """
    waves = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j > 0]
    products = [
        chosen
        for bodies in range(1, min(video.num_balls, 3) + 1)
        for chosen in itertools.combinations_with_replacement(range(len(waves)), bodies)
        if sum(sum(waves[wave]) for wave in chosen) <= degree
    ]
    # The last column of ones completes products of fewer than three sums.
    filled = np.asarray([(*chosen, *[len(waves)] * (3 - len(chosen))) for chosen in products])
    across, along = (jnp.asarray(part) for part in np.transpose(waves))

    def function(centres: Array) -> Array:
        cosines = _cosines(video, centres, degree)
        sums = jnp.sum(cosines[:, :, 0, across] * cosines[:, :, 1, along], axis=1)
        sums = jnp.concatenate([sums, jnp.ones_like(sums[:, :1])], axis=1)
        return jnp.prod(sums[:, filled], axis=2)

    return function, np.asarray([len(chosen) for chosen in products])


def make_velocity_functions(video: BouncingBalls) -> Callable[[Array, Array], Array]:
    """Build functions of centres and velocities [b, balls, 2] → [b, 30] that vary with velocities.

    Sums over balls of v_x, v_y, v_x², v_y² and v_x v_y times cosines to degree 2 of the ball's
    centre.
    """
    waves = [(i, j) for i in range(3) for j in range(3 - i)]
    across, along = (jnp.asarray(part) for part in np.transpose(waves))

    def function(centres: Array, velocities: Array) -> Array:
        cosines = _cosines(video, centres, 2)
        shapes = cosines[:, :, 0, across] * cosines[:, :, 1, along]
        x, y = velocities[..., 0] / video.speed, velocities[..., 1] / video.speed
        moves = jnp.stack([x, y, x * x, y * y, x * y], axis=-1)
        products = matmul(jnp.swapaxes(shapes, 1, 2), moves)
        return products.reshape(len(products), -1)

    return function


def _cosines(video: BouncingBalls, centres: Array, degree: int) -> Array:
    """Compute cos(iπx), i = 0 … degree, over the square in which centres are, [..., degree+1]."""
    unit = (centres - video.radius) / (1.0 - 2.0 * video.radius)
    multiples = jnp.pi * jnp.arange(degree + 1, dtype=unit.dtype)
    return jnp.cos(unit[..., None] * multiples[None, None, None, :])


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
            degree: Largest degree of the cosines of positions, as for ``make_position_functions``.

        Returns:
            ``mean_position``: explained linearly by the balls' mean position. ``one_ball``:
            explained by sums over balls of functions of one ball's position. ``all_balls``:
            explained by these and their products, functions of two and three balls. ``velocity``:
            explained in addition by functions of the balls' velocities.
        """
        function, bodies = make_position_functions(self.video, degree)
        centres = jnp.asarray(self.centres)
        values = np.asarray(jit(function)(centres))
        moving = np.asarray(
            jit(make_velocity_functions(self.video))(centres, jnp.asarray(self.velocities))
        )
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
        still = BouncingBallsState(centres, jnp.zeros_like(centres))
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
    seen, known = (
        BallClips(video, frames, frames, None, keys[0], known) for known in (False, True)
    )

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
