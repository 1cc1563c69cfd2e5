"""PuddleWorld as a Markov chain on the cells of a grid."""

import jax.numpy as jnp
from jax import Array

from rlreps.envs import PuddleWorld
from rlreps.successor.counter_random import standard_normal, threefry2x32
from rlreps.successor.grid import Grid
from rlreps.successor.markov_chain import MarkovChain, Words


def puddle_world_chain(
    environment: PuddleWorld, grid: Grid
) -> MarkovChain[Array, tuple[Array, Array, Array]]:
    """PuddleWorld under the uniformly random policy, started uniformly inside a cell of a grid.

    ``environment_chain`` would do; this one spends a single block of random bits on a whole step.

    Args:
        environment: The dynamics.
        grid: The cells.

    Returns:
        The chain; its states are positions [2].
    """

    def draw(words: Words, rollout: Array, time: Array) -> tuple[Array, Array, Array]:
        first, second = threefry2x32(words, (rollout, time))
        # Normals use the high bits of each word, the action two of the low ones.
        action = (first & jnp.uint32(environment.num_actions - 1)).astype(jnp.int32)
        return standard_normal(first), standard_normal(second), action

    def advance(position: Array, draws: tuple[Array, Array, Array]) -> Array:
        noise_x, noise_y, action = draws
        return environment.move(position, action, jnp.stack([noise_x, noise_y]))

    return MarkovChain(
        num_cells=grid.num_cells, start=grid.sample, draw=draw, advance=advance, cell=grid.cell
    )
