"""The benchmark's worlds: exact chains between cells, their truths, their batches, and controls."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps import losses
from rlreps.cumulants import RandomFourier
from rlreps.encoders import cosine_products, lowest_frequencies
from rlreps.envs import load_arena
from rlreps.errors import InputError
from rlreps.experiments.ours.contestants import BEHIND, COSINES, COUNTED, FIXED_POINT, TRUTHS, Row
from rlreps.experiments.ours.mazes import CellModel
from rlreps.sources import Source, chain_source, matrix_source
from rlreps.successor import BoxGrid, Grid, cell_moves
from rlreps.successor.exact import ChainTruths, Truth
from rlreps.training import Learner

PENDULUM = "Pendulum-v1"
"""Name of the world whose cells divide the angle and the velocity of Gymnasium's pendulum."""

_TORQUES = (-2.0, 0.0, 2.0)

_SAMPLES = 64
"""Number of steps of the pendulum from each cell with each torque."""


@dataclasses.dataclass(frozen=True, eq=False)
class World:
    """A chain between cells, known exactly.

    Attributes:
        model: The cells as a decision process.
        chain: The chain under the random policy.
    """

    model: CellModel
    chain: ChainTruths
    _truths: dict[str, Truth] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, arena: str, bins: int, discount: float) -> "World":
        """Estimate the chain between the cells of an arena, or of ``PENDULUM``."""
        if arena == PENDULUM:
            box = BoxGrid((-np.pi, -8.0), (np.pi, 8.0), (bins, bins))
            cells, to, centres = np.arange(box.num_cells), _pendulum(box), box.unit_centres()
        else:
            moves = cell_moves(load_arena(arena), Grid(bins), jax.random.key(0))
            cells, to, centres = moves.cells, moves.to, Grid(bins).centres()[moves.cells]
        model = CellModel(to, arena, cells, centres, centres)
        return cls(model, ChainTruths(to.mean(axis=0), discount))

    @property
    def inputs(self) -> Array:
        """Coordinates (x, y) of the states, [n, 2]."""
        return jnp.asarray(self.model.centres)

    def source(self, row: Row) -> Source:
        """Return the source of an objective's batches."""
        successor, chain = self.chain.successor, self.chain.transition
        if row.objective is not None and row.sees == "entries":
            matrix = successor / (1.0 - self.chain.discount)
            centred = (matrix - matrix.mean(axis=0)).astype(np.float32)
            population = row.objective.needs_population
            return matrix_source(centred, self.model.centres, with_population=population)
        # One step by the normalised successor measure is a walk of random length, to a future.
        return chain_source(chain if row.sees == "transitions" else successor, self.model.centres)

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


def _pendulum(grid: BoxGrid) -> npt.NDArray[np.float64]:
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
