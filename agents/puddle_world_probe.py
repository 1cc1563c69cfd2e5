"""A value probe over PuddleWorld, whose values are solved for and not sampled."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents.value_probe import ValueProbe, require_probe
from rlreps.cumulants import Cumulants, RandomFourier, RandomNetwork
from rlreps.envs import PuddleWorld, PuddleWorldState
from rlreps.errors import require, require_positive
from rlreps.successor.grids import Grid

FloatArray = npt.NDArray[np.float64]

POLICY_SHARPNESS = 2.0
"""Factor of the waves that are the logits of a random policy."""

_SAMPLES = 256
"""Moves from each cell by each action."""

_PULLED_BACK = 1e-3
"""Share of a move that is taken back before its end is given to a cell. An agent that a wall has
stopped stands on the wall's edge, which may be the edge of a cell within the wall."""

_LEAST_FREE = 0.05
"""Share of a cell that must be outside the walls; of less there would be too few moves."""


def puddle_world_probe(
    environment: PuddleWorld,
    *,
    bins: int = 25,
    num_policies: int = 8,
    num_rewards: int = 8,
    discount: float = 0.95,
    length_scale: float = 0.2,
    seed: int = 0,
) -> ValueProbe:
    """Values of random policies and rewards over PuddleWorld, exact up to the grid.

    Policies and rewards are constant over a cell, and an agent that enters a cell is taken to be
    anywhere in it: V = (I - γ P_π)⁻¹ r of a chain between cells, r counted from the first state on
    as in the successor measure. P is estimated from 256 moves from each cell by each action. Logits
    of the policies are random waves (``RandomFourier``), rewards random networks
    (``RandomNetwork``), and under these no episode ends. Where the environment has rewards of its
    own they are one reward more, the last of each policy, and there its goal ends episodes. Cells
    that are more than 95 % wall are left out.

    Args:
        environment: The dynamics, and the task.
        bins: Cells along each axis; time and memory grow as bins⁶ and bins⁴.
        num_policies: Random policies.
        num_rewards: Random rewards that each of them is valued for.
        discount: γ, in [0, 1).
        length_scale: Over which waves and networks vary, in sides of the square.
        seed: Of everything random.

    Returns:
        A probe of the cells' centres, a random half of them to fit; policy by policy.

    Raises:
        InputError: For numbers out of range.
    """
    require_probe(discount, length_scale, num_rewards, seed)
    require_positive("num_policies", num_policies)
    require(bins >= 2, "bins >= 2", bins)
    grid, key = Grid(bins), jax.random.key(seed)
    moves = _moves(environment, grid, jax.random.fold_in(key, 0))
    centres = jnp.asarray(grid.centres()[moves.cells])
    actions = environment.num_actions

    def functions(family: Cumulants, part: int, number: int) -> FloatArray:
        drawn = _drawn(family, number, jax.random.fold_in(key, part), centres)
        return np.asarray(drawn, np.float64)

    waves = RandomFourier(length_scale=length_scale)
    logits = POLICY_SHARPNESS * functions(waves, 1, num_policies * actions)
    weights = np.exp(logits.reshape(-1, num_policies, actions))
    policies = weights / weights.sum(axis=2, keepdims=True)
    rewards = functions(RandomNetwork(input_scale=1.0 / length_scale), 2, num_rewards)
    rewarding = environment.step_penalty or environment.puddle_penalty
    columns = []
    for policy in policies.transpose(1, 0, 2):
        columns.append(_discounted_sums(policy, moves.to, rewards, discount))
        if rewarding:
            own = np.sum(policy * moves.rewards, axis=1)
            columns.append(_discounted_sums(policy, moves.on, own[:, None], discount))
    train = np.random.default_rng(seed).permutation(len(centres)) < len(centres) // 2
    values = np.concatenate(columns, axis=1)
    return ValueProbe(centres, jnp.asarray(values, jnp.float32), jnp.asarray(train))


@partial(jax.jit, static_argnums=(0, 1))
def _drawn(family: Cumulants, number: int, key: Array, positions: Array) -> Array:
    return family.apply(family.init(key, number), positions)


def _discounted_sums(
    policy: FloatArray, moves: FloatArray, rewards: FloatArray, discount: float
) -> FloatArray:
    """(I - γ P_π)⁻¹ r [n, r] of a policy [n, a], moves [a, n, n] and rewards [n, r]."""
    chain = np.einsum("sa,ast->st", policy, moves)
    values: FloatArray = np.linalg.solve(np.eye(len(chain)) - discount * chain, rewards)
    return values


class _Moves(NamedTuple):
    """Steps between the n cells that are outside the walls.

    Attributes:
        cells: Their indices in the grid, [n].
        to: P(S_1 in column | row, action), [actions, n, n].
        on: P(S_1 in column and the episode goes on | row, action), [actions, n, n].
        rewards: Expected reward of a step, [n, actions].
    """

    cells: npt.NDArray[np.int64]
    to: FloatArray
    on: FloatArray
    rewards: FloatArray


def _moves(environment: PuddleWorld, grid: Grid, key: Array) -> _Moves:
    """Steps from places drawn in each cell; those within a wall, which no move leaves, are none."""
    keys = jax.random.split(key, (grid.num_cells, _SAMPLES))
    targets, rewards, terminated, held = (
        np.asarray(part) for part in _sampled_steps(environment, keys, grid)
    )
    cells = np.flatnonzero(1.0 - held.mean(axis=1) >= _LEAST_FREE)
    places = np.full(grid.num_cells, -1)
    places[cells] = np.arange(len(cells))
    # [n, samples, actions] from here on.
    targets, counted = places[targets[cells]], ~held[cells][:, :, None]
    inside = counted & (targets >= 0)
    to, on = (_counts(targets, chosen) for chosen in (inside, inside & ~terminated[cells]))
    total = np.maximum(to.sum(axis=2, keepdims=True), 1.0)
    mean_rewards = np.sum(rewards[cells] * counted, axis=1, dtype=np.float64) / counted.sum(axis=1)
    return _Moves(cells, to / total, on / total, mean_rewards)


@partial(jax.jit, static_argnums=2)
def _sampled_steps(
    environment: PuddleWorld, keys: Array, grid: Grid
) -> tuple[Array, Array, Array, Array]:
    """Target cells, rewards, terminations [n, samples, actions]; held starts [n, samples]."""
    actions = jnp.arange(environment.num_actions, dtype=jnp.int32)

    def one(key: Array, cell: Array) -> tuple[Array, Array, Array, Array]:
        start_key, step_key = jax.random.split(key)
        start = grid.sample(start_key, cell)
        state = PuddleWorldState(start, jnp.zeros((), jnp.int32))
        step = jax.vmap(lambda action: environment.step(step_key, state, action))(actions)
        ends = step.observation
        targets = jax.vmap(grid.cell)(ends + _PULLED_BACK * (start[None] - ends))
        return targets, step.reward, step.terminated, jnp.all(ends == start[None])

    cells = jnp.arange(grid.num_cells, dtype=jnp.int32)
    sampled: tuple[Array, Array, Array, Array]
    sampled = jax.vmap(jax.vmap(one, in_axes=(0, None)))(keys, cells)
    return sampled


def _counts(targets: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> FloatArray:
    """Chosen moves [n, samples, actions] from row to column by action, [actions, n, n]."""
    num_cells, _, num_actions = targets.shape
    sources, _, actions = np.nonzero(chosen)
    index = (actions * num_cells + sources) * num_cells + targets[chosen]
    counts = np.bincount(index, minlength=num_actions * num_cells**2).astype(np.float64)
    return counts.reshape(num_actions, num_cells, num_cells)
