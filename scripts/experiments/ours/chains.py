"""The benchmark's worlds as chains that are known exactly: truths, batches, and controls."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps import losses
from rlreps.cumulants import RandomFourier
from rlreps.encoders import cosine_products
from rlreps.errors import InputError, require
from rlreps.experiments.ours.chain_truths import ChainTruths, Truth
from rlreps.experiments.ours.contestants import BEHIND, COSINES, COUNTED, FIXED_POINT, TRUTHS, Row
from rlreps.experiments.ours.fixed_features import lowest_frequencies
from rlreps.sources import Source, chain_source, matrix_source
from rlreps.successor import BoxGrid
from rlreps.training import Learner
from rlreps.typing import DoubleArray
from rlreps.worlds import WORLDS, World, estimate_arena, load

PENDULUM = "Pendulum-v1"
"""Name of the world whose cells divide the angle and the velocity of Gymnasium's pendulum."""

MOST_STATES = 2_000
"""Largest number of states of a world."""

_TORQUES = (-2.0, 0.0, 2.0)

_SAMPLES = 64
"""Number of steps of the pendulum from each cell with each torque."""

_SQUARES = (4, 2, 1)
"""Sides of the squares of pixels that may be averaged."""


def is_named(name: str) -> bool:
    """Return whether a name is one of ``rlreps.worlds.WORLDS``, or a world's file."""
    return name in WORLDS or name.endswith(".npz")


def world_of(name: str, bins: int) -> World:
    """Return a named world as networks see it, or the cells of an arena or of ``PENDULUM``.

    A named world starts again after its end. The cells of an arena have no rewards.
    """
    if is_named(name):
        return _for_networks(load(name).restarted())
    if name != PENDULUM:
        return estimate_arena(name, bins)
    box = BoxGrid((-np.pi, -8.0), (np.pi, 8.0), (bins, bins))
    to, centres = _pendulum(box), box.unit_centres()
    return World.from_arrays(
        probabilities=to,
        rewards=np.zeros(to.shape[1::-1]),
        observations=centres,
        coordinates=centres,
        names=("x", "y"),
        about={"name": name},
    )


def _for_networks(world: World) -> World:
    """Flatten observations; average pictures over squares of pixels that keep states apart."""
    states, *shape = world.observations.shape
    scale = np.float32(255.0 if world.observations.dtype == np.uint8 else 1.0)
    if len(shape) != 3:
        flat = world.observations.reshape(states, -1) / scale
        return dataclasses.replace(world, observations=flat)
    for side in _SQUARES:
        rows, columns = (length // side for length in shape[:2])
        whole = world.observations[:, : rows * side, : columns * side]
        squares = whole.reshape(states, rows, side, columns, side, -1)
        seen = squares.mean(axis=(2, 4), dtype=np.float32) / scale
        small = dataclasses.replace(world, observations=seen)
        if side == 1 or (min(rows, columns) >= 6 and small.num_aliased == world.num_aliased):
            break
    return small


@dataclasses.dataclass(frozen=True, eq=False)
class KnownChain:
    """A world under the random policy, known exactly.

    Attributes:
        world: The world, without terminal states.
        chain: Its chain.
    """

    world: World
    chain: ChainTruths
    _truths: dict[str, Truth] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: str, bins: int, discount: float) -> "KnownChain":
        """Make the chain of a world, as for ``world_of``."""
        world = world_of(name, bins)
        most = f"a world of at most {MOST_STATES:,} states, whose truths are dense matrices"
        require(world.num_states <= MOST_STATES, most, f"{world.num_states:,}")
        moves = world.transitions.toarray().reshape(*world.rewards.shape, world.num_states)
        return cls(world, ChainTruths(moves.mean(axis=1), discount))

    @property
    def inputs(self) -> Array:
        """Observations of the states, which networks see, [n, ...]."""
        return jnp.asarray(self.world.observations)

    @cached_property
    def places(self) -> npt.NDArray[np.float32]:
        """Coordinates of the states in the unit cube, [n, k]; their numbers without any."""
        grid, cells = self.world.places()
        return np.asarray(grid.unit_centres()[cells])

    @property
    def in_plane(self) -> bool:
        """Tell whether agents see their place in the unit square."""
        seen = self.world.observations
        return seen.shape[1:] == (2,) and np.array_equal(seen, self.places)

    def source(self, row: Row) -> Source:
        """Return the source of an objective's batches."""
        successor, chain = self.chain.successor, self.chain.transition
        if row.objective is not None and row.sees == "entries":
            matrix = successor / (1.0 - self.chain.discount)
            centred = (matrix - matrix.mean(axis=0)).astype(np.float32)
            population = row.objective.needs_population
            return matrix_source(centred, self.inputs, with_population=population)
        # One step by the normalised successor measure is a walk of random length, to a future.
        return chain_source(chain if row.sees == "transitions" else successor, self.inputs)

    def truth(self, name: str) -> Truth:
        """Return one of ``TRUTHS``, which is computed once."""
        if name not in self._truths:
            self._truths[name] = TRUTHS[name](self.chain)
        return self._truths[name]

    def own_truth(self, row: Row, learner: Learner, seed: int) -> Truth | None:
        """Return the first d functions of an objective's truth; None without a fixed point."""
        d, cumulants = learner.objective.num_features, None
        if row.truth != FIXED_POINT:
            return self.truth(row.truth).first(d)
        if isinstance(learner.objective, losses.CumulantDifferences):
            drawn = learner.init(jnp.uint32(seed)).objective.cumulants
            cumulants = np.asarray(learner.objective.cumulants.apply(drawn, self.inputs))
        try:
            return self.chain.temporal_differences(d, cumulants)
        except InputError:
            return None

    def density(self, row: Row, d: int) -> Truth:
        """Return M̃'s first d functions, after the constant for rows that leave it out."""
        whole, behind = self.truth("M̃"), row.sees == "entries" or row.truth == BEHIND
        return (whole.behind_constant() if behind else whole).first(d)

    def control(self, row: Row, d: int, seed: int, seen: Sequence[int]) -> list[Array]:
        """Return features without training, [n, d] for each number of transitions seen."""
        if row == COUNTED:
            return self._counted(d, seed, seen)
        # Together with the constant, which the truth contains too.
        constant = jnp.ones((len(self.inputs), 1))
        if row == COSINES:
            highest, chosen = lowest_frequencies(d - 1)
            others = cosine_products(self.inputs, highest)[:, chosen]
        else:
            waves = RandomFourier(length_scale=0.4)
            others = waves.apply(waves.init(jax.random.key(seed), d - 1), self.inputs)
        return [jnp.concatenate([constant, others], axis=1)] * len(seen)

    def _counted(self, d: int, seed: int, seen: Sequence[int]) -> list[Array]:
        """Decompose the density ratio of a counted chain.

        A millionth is added to every state's count of staying, so that no row of counts sums to
        zero. A state that was never seen stays where it is.
        """
        rng, chain = np.random.default_rng((seed, 2)), self.chain.transition
        counts, tables = 1e-6 * np.eye(len(chain)), []
        for more in np.diff(seen, prepend=0):
            counts = counts + rng.multinomial(rng.multinomial(more, self.chain.start), chain)
            model = ChainTruths(counts / counts.sum(axis=1, keepdims=True), self.chain.discount)
            tables.append(jnp.asarray(model.density_ratio().first(d).functions, jnp.float32))
        return tables


def _pendulum(grid: BoxGrid) -> DoubleArray:
    """Count the steps of Gymnasium's pendulum between cells, [torques, n, n]."""
    pendulum: Any = gymnasium.make(PENDULUM).unwrapped
    pendulum.reset(seed=0)
    generator = np.random.default_rng(0)
    counts = np.zeros((len(_TORQUES), grid.num_cells, grid.num_cells))
    for cell in np.repeat(np.arange(grid.num_cells), _SAMPLES):
        start = grid.sample_with(generator, np.asarray(cell))
        for torque, table in zip(_TORQUES, counts, strict=True):
            pendulum.state = start
            pendulum.step(np.asarray([torque]))
            angle, velocity = pendulum.state
            around = (angle + np.pi) % (2.0 * np.pi) - np.pi
            table[cell, grid.cell((around, velocity))] += 1.0
    return counts / _SAMPLES
