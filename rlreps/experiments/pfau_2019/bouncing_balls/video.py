"""The video as batches of consecutive frames, or of where the balls are in them."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.errors import require
from rlreps.losses.base import Batch


def draw_pairs(video: BouncingBalls, key: Array, count: int) -> BouncingBallsState:
    """States and, in the second half, the states one frame later, [2 · count, ...].

    A start of an episode has the law of every later frame, so pairs are independent of each other
    and nothing has to be stored.
    """
    before = jax.vmap(video.reset)(jax.random.split(key, count))
    positions, velocities = jax.vmap(video.move)(before.positions, before.velocities)
    after = BouncingBallsState(positions, velocities, before.steps + 1)
    states: BouncingBallsState = jax.tree.map(lambda *parts: jnp.concatenate(parts), before, after)
    return states


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FramePairs:
    """Fresh pairs of consecutive frames, as ``operators.slowness`` takes them.

    A frame is a picture of positions alone: velocities show in no single frame.

    Attributes:
        video: The balls.
        as_positions: Whether inputs are the balls' centres [rows, balls, 2] in place of frames; the
            same key draws the same states either way.
    """

    video: BouncingBalls
    as_positions: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def num_tasks(self) -> None:
        """There are no task columns."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Frames [num_rows, size, size, 1], i and i + num_rows / 2 consecutive; targets [rows, 0].

        Raises:
            InputError: For an odd number of rows.
        """
        del num_tasks
        require(num_rows % 2 == 0, "an even number of rows, pairs of frames", num_rows)
        states = draw_pairs(self.video, key, num_rows // 2)
        inputs = states.positions if self.as_positions else jax.vmap(self.video.observe)(states)
        return Batch(inputs, jnp.zeros((len(inputs), 0), inputs.dtype))
