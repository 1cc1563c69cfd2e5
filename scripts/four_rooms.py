"""The four rooms of Sutton, Precup & Singh (1999): a small JAX environment of one's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.envs import TimeStep

FOUR_ROOMS = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
"""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FourRooms:
    """A gridworld that meets the environment contract; its state is the index of a free square.

    An action moves one square, or nowhere into a wall; with probability 1/3 another one is taken.

    Attributes:
        targets: Square to which each action leads from each square, [squares, 4] (int32).
        positions: (column, row) of each square, row upwards, [squares, 2] (int32).
    """

    targets: Array
    positions: Array

    @property
    def num_actions(self) -> int:
        """Up, right, down and left."""
        return 4

    def reset(self, key: Array) -> Array:
        """A free square, uniformly."""
        return jax.random.randint(key, (), 0, self.targets.shape[0], jnp.int32)

    def step(self, key: Array, state: Array, action: Array) -> TimeStep:
        """Moves; there is neither a reward nor an end."""
        slip_key, turn_key = jax.random.split(key)
        slips = jax.random.uniform(slip_key) < 1.0 / 3.0
        turn = jax.random.randint(turn_key, (), 1, 4, jnp.int32)
        taken = jnp.where(slips, (action + turn) % 4, action)
        state = self.targets[state, taken]
        never = jnp.asarray(False)
        return TimeStep(state, self.observe(state), jnp.zeros(()), never, never)

    def observe(self, state: Array) -> Array:
        """Column and row of the square [2]."""
        return self.positions[state]


def four_rooms() -> FourRooms:
    """The gridworld of the map above."""
    free = free_squares()
    rows, columns = np.nonzero(free)
    index = np.full(free.shape, -1)
    index[rows, columns] = np.arange(len(rows))
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    ahead = np.stack([index[rows + up, columns + right] for up, right in moves], axis=1)
    targets = np.where(ahead >= 0, ahead, np.arange(len(rows))[:, None])
    positions = np.stack([columns, rows], axis=1)
    return FourRooms(jnp.asarray(targets, jnp.int32), jnp.asarray(positions, jnp.int32))


def free_squares() -> np.ndarray:
    """Mark the free squares of the map, [rows, columns], row 0 at the bottom."""
    lines = FOUR_ROOMS.strip("\n").split("\n")
    return np.array([[mark == " " for mark in line] for line in lines[::-1]])


def exact_four_rooms(environment: FourRooms, discount: float, horizon: int) -> np.ndarray:
    """Σ_{t<h} γᵗ Pᵗ [squares, squares] under the uniformly random policy, by matrix products."""
    targets = np.asarray(environment.targets)
    # Whatever slips, a uniformly random action stays uniformly random.
    transitions = np.zeros((len(targets), len(targets)))
    np.add.at(transitions, (np.arange(len(targets))[:, None], targets), 0.25)
    total, term = np.zeros_like(transitions), np.eye(len(targets))
    for _ in range(horizon):
        total += term
        term = discount * term @ transitions
    return total
