"""The lines of the benchmark as data: objectives, what each sees and leads to, and its worlds."""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps import losses
from rlreps.config import options
from rlreps.cumulants import RandomFourier
from rlreps.encoders import cosine_products, lowest_frequencies
from rlreps.envs import load_arena
from rlreps.errors import InputError, require, require_choice
from rlreps.experiments.ours.mazes import CellModel
from rlreps.losses import Objective
from rlreps.operators import Slowness
from rlreps.sources import Source, chain_source, matrix_source
from rlreps.successor.grids import BoxGrid, Grid
from rlreps.successor.kernels.actions import cell_moves
from rlreps.successor.truths import ChainTruths, Truth
from rlreps.training import Learner

FloatArray = npt.NDArray[np.float64]

TRUTHS: Mapping[str, Callable[[ChainTruths], Truth]] = {
    "Ψ": lambda chain: chain.successor_measure(centred=True),
    "M̃": ChainTruths.density_ratio,
    "log M̃": ChainTruths.log_density_ratio,
    "walk": ChainTruths.walk,
    "walk behind the constant": lambda chain: chain.walk().behind_constant(),
    "walk, largest |λ|": ChainTruths.largest_of_walk,
    "steps, largest |λ|": lambda chain: dataclasses.replace(chain, discount=0.0).largest_of_walk(),
}
"""Name → truth of a chain; that of temporal differences depends on d and on cumulants."""

FIXED_POINT = "fixed point of TD"

PENDULUM = "Pendulum-v1"
"""World of cells of the angle and the velocity of Gymnasium's pendulum."""

_TORQUES = (-2.0, 0.0, 2.0)

_SAMPLES = 64
"""The pendulum's steps from each cell with each torque."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        method: Its label.
        objective: What is trained; None for a control.
        option: Its option that is tuned beside the learning rate, if any.
        values: Values of ``option`` to try.
        sees: What a row of its batches is.
        truth: Its own: of ``TRUTHS``, or ``FIXED_POINT``.
        ordered: Whether its k-th feature is to be the k-th function.
        towers: Whether two encoders are trained, f and g.
    """

    method: str
    objective: Objective | None = None
    option: str = ""
    values: tuple[float, ...] = ()
    _: dataclasses.KW_ONLY
    sees: Literal["entries", "transitions", "futures", "nothing"] = "futures"
    truth: str = "M̃"
    ordered: bool = False
    towers: bool = False

    @property
    def family(self) -> str:
        """Name of the rows that are drawn together: by what they see, and whether ordered."""
        return f"{self.sees}, ordered" if self.ordered else self.sees


COSINES = Row("cosines, no data", sees="nothing")
RANDOM = Row("random features, no data", sees="nothing")
COUNTED = Row("counted model", sees="transitions")
CONTROLS = (COSINES, RANDOM, COUNTED)

_ENTRIES: Any = {"sees": "entries", "truth": "Ψ"}
_IN_ORDER: Any = {"truth": "walk", "ordered": True}
_BEHIND: Any = {"truth": "walk behind the constant"}
_NESTED: Any = {"towers": True, "ordered": True}
_STEPS: Any = {"sees": "transitions"}
_RATES = (0.03, 0.1, 0.3)
_PENALTIES = (2.0, 5.0, 20.0)
_LARGE_BATCH = losses.LargeBatch(precondition=1e-2, leave_one_out=True)
_EXPLICIT = losses.Explicit(weight_learning_rate=0.03)
_SEQUENTIAL = losses.NestedLora(nesting="sequential")
_GENERALISED = losses.GeneralizedGraphDrawing()
_SELF, _FUTURE_SELF = losses.SelfPrediction(), losses.BYOLGamma()

OBJECTIVES = (
    Row("large batch", _LARGE_BATCH, "precondition", (1e-3, 1e-2, 1e-1), **_ENTRIES),
    Row("Danskin-LISSA", losses.DanskinLissa(), "kappa0", (0.5, 1.0, 1.9), **_ENTRIES),
    Row("Danskin in chunks", losses.DanskinChunked(), "chunk_step", (0.25, 0.5, 0.75), **_ENTRIES),
    Row("explicit", _EXPLICIT, "weight_learning_rate", (3e-3, 3e-2, 3e-1), **_ENTRIES),
    Row("SpIN", losses.Spin(operator=Slowness()), **_IN_ORDER),
    Row("graph drawing", losses.GraphDrawing(), "penalty", _PENALTIES, truth="walk"),
    Row("generalised graph drawing", _GENERALISED, "penalty", _PENALTIES, **_IN_ORDER),
    Row("ALLO", losses.AugmentedLagrangian(), "dual_rate", (1e-3, 1e-2, 1e-1), **_IN_ORDER),
    Row("OMM", losses.OrbitalMinimization(), **_IN_ORDER),
    Row("NeuralEF", losses.NeuralEigenfunctions(), **_IN_ORDER),
    Row("spectral contrastive", losses.SpectralContrastive(), towers=True),
    Row("NestedLoRA", losses.NestedLora(), **_NESTED),
    Row("NestedLoRA, sequential", _SEQUENTIAL, **_NESTED),
    Row("InfoNCE", losses.InfoNCE(), truth="log M̃", towers=True),
    Row(
        *("TD InfoNCE", losses.TDInfoNCE(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": "log M̃", "towers": True},
    ),
    Row(
        *("TD low rank", losses.TDLowRank(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": FIXED_POINT, "towers": True},
    ),
    Row(
        *("random cumulants by TD", losses.CumulantDifferences(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": FIXED_POINT},
    ),
    Row("Barlow Twins", losses.BarlowTwins(), "redundancy", (5e-3, 5e-2, 5e-1), **_BEHIND),
    Row("VICReg", losses.VICReg(), "covariance", (1.0, 10.0, 100.0), **_BEHIND),
    Row(
        *("self-prediction", _SELF, "averaging_rate", (0.03, 0.3, 1.0)),
        **{**_STEPS, "truth": "steps, largest |λ|"},
    ),
    Row("BYOL-γ", _FUTURE_SELF, "averaging_rate", (0.03, 0.3, 1.0), truth="walk, largest |λ|"),
)
"""Every objective that is compared."""


def row_of(place: str) -> Row:
    """Load a row of the user's own.

    An objective whose rows are pairs sees futures and has one encoder, so that its truth is the
    walk; another one sees entries, and its truth is Ψ. A ``Row`` says it itself.

    Args:
        place: ``module:name`` of an objective, of a class of objectives whose options all have
            defaults, or of a ``Row``. The working folder is searched too.

    Raises:
        InputError: If there is no such thing, its name is that of a row of the table, or a row
            names no option that it could have.
    """
    home, _, name = place.partition(":")
    require(bool(home and name), "an objective as module:name", place)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(home), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"expected an objective at {place}, got: {error}") from error
    found = found() if isinstance(found, type) else found
    if isinstance(found, Objective):
        sees: Any = {"truth": "walk"} if found.needs_clips else _ENTRIES
        found = Row(found.title, found, **sees)
    if not (isinstance(found, Row) and found.objective is not None):
        raise InputError(f"expected an Objective or a Row at {place}, got {type(found).__name__}")
    taken = {row.method for row in (*OBJECTIVES, *CONTROLS)}
    require(found.method not in taken, "a title that no row of the table has", found.method)
    require_choice("truth", found.truth, (*TRUTHS, FIXED_POINT))
    require_choice("sees", found.sees, ("entries", "transitions", "futures"))
    if found.option or found.values:
        require_choice("option", found.option, [each.name for each in options(found.objective)])
        require(len(found.values) >= 1, f"values of {found.option} to try", found.values)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class World:
    """An exact chain and what is needed of it.

    Attributes:
        model: The cells as a decision process.
        chain: Under the random policy.
        truths: Those that depend on the chain alone.
    """

    model: CellModel
    chain: ChainTruths
    truths: Mapping[str, Truth]

    @classmethod
    def of(cls, arena: str, bins: int, discount: float, rows: Collection[Row]) -> "World":
        """Count the moves between the cells of an arena, or of ``PENDULUM``; take rows' truths."""
        if arena == PENDULUM:
            box = BoxGrid((-np.pi, -8.0), (np.pi, 8.0), (bins, bins))
            cells, to, centres = np.arange(box.num_cells), _pendulum(box), box.unit_centres()
        else:
            moves = cell_moves(load_arena(arena), Grid(bins), jax.random.key(0))
            cells, to, centres = moves.cells, moves.to, Grid(bins).centres()[moves.cells]
        chain = ChainTruths(to.mean(axis=0), discount)
        needed = {row.truth for row in rows} & {*TRUTHS} | {"M̃"}
        truths = {name: TRUTHS[name](chain) for name in sorted(needed)}
        return cls(CellModel(to, arena, cells, centres, centres), chain, truths)

    def source(self, row: Row) -> Source:
        """Return where an objective's batches come from."""
        successor, chain = self.chain.successor, self.chain.transition
        if row.objective is not None and row.sees == "entries":
            matrix = successor / (1.0 - self.chain.discount)
            centred = (matrix - matrix.mean(axis=0)).astype(np.float32)
            population = row.objective.needs_population
            return matrix_source(centred, self.model.centres, with_population=population)
        # A single step by M is a future: the pairs are those of a walk of random length.
        return chain_source(chain if row.sees == "transitions" else successor, self.model.centres)

    @property
    def inputs(self) -> Array:
        """(x, y) of the states, [n, 2]."""
        return jnp.asarray(self.model.centres)

    def own_truth(self, row: Row, learner: Learner, seed: int) -> Truth | None:
        """Return the first d functions that an objective leads to, or None where there are none."""
        d, cumulants = learner.objective.num_features, None
        if row.truth != FIXED_POINT:
            return self.truths[row.truth].first(d)
        if isinstance(learner.objective, losses.CumulantDifferences):
            drawn = learner.init(jnp.uint32(seed)).objective.cumulants
            cumulants = np.asarray(learner.objective.cumulants.apply(drawn, self.inputs))
        try:
            return self.chain.temporal_differences(d, cumulants)
        except InputError:
            return None

    def density(self, row: Row, d: int) -> Truth:
        """Return M̃'s first d functions, behind the constant for rows that are to find none."""
        density, own = self.truths["M̃"], self.truths.get(row.truth)
        behind = row.sees == "entries" or (own is not None and own.constants_free)
        return (density.behind_constant() if behind else density).first(d)

    def control(self, row: Row, d: int, seed: int, seen: Sequence[int]) -> list[Array]:
        """Return features without training, [n, d] for each number of transitions seen."""
        if row == COUNTED:
            return self._counted(d, seed, seen)
        # Beside the constant, which the truth holds too.
        constant = jnp.ones((len(self.inputs), 1))
        if row == COSINES:
            highest, chosen = lowest_frequencies(d - 1)
            others = cosine_products(self.inputs, highest)[:, chosen]
        else:
            waves = RandomFourier(length_scale=0.4)
            others = waves.apply(waves.init(jax.random.key(seed), d - 1), self.inputs)
        return [jnp.concatenate([constant, others], axis=1)] * len(seen)

    def _counted(self, d: int, seed: int, seen: Sequence[int]) -> list[Array]:
        """Decompose the density ratio of a counted chain; a state that was not seen stays.

        So every other state does with a millionth of a count: nothing is divided by zero.
        """
        rng, chain = np.random.default_rng((seed, 2)), self.chain.transition
        counts, tables = 1e-6 * np.eye(len(chain)), []
        for more in np.diff(seen, prepend=0):
            counts = counts + rng.multinomial(rng.multinomial(more, self.chain.start), chain)
            model = ChainTruths(counts / counts.sum(axis=1, keepdims=True), self.chain.discount)
            tables.append(jnp.asarray(model.density_ratio().first(d).functions, jnp.float32))
        return tables


def _pendulum(grid: BoxGrid) -> FloatArray:
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
