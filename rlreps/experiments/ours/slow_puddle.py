"""Slow features of PuddleWorld's random walk against the exact generalised eigenproblem.

The chain is that of PuddleWorld's random policy between the cells of a grid. States are drawn
uniformly over the cells, as the successor measure's rollouts start and as its subspace weighs them:
ξ is uniform. (The stationary distribution would make ξ and ν equal and weigh slow puddles more; the
eigenproblem is symmetric for either.) Contenders learn the slowest eigenfunctions L u = λ Σ u of
its graph Laplacian by spectral inference.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from jax import Array

from rlreps.config import as_json, configurable, leaf, with_sizes
from rlreps.encoders import AtStates, Encoder, FourierMLP, Params, Tabular, WithConstant
from rlreps.envs import load_arena
from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Rows, Run, in_path
from rlreps.losses import Spin
from rlreps.losses.base import Batch
from rlreps.numerics import jit, matmul
from rlreps.operators import GraphLaplacian, Operator, Sample, Slowness, graph_laplacian
from rlreps.plotting import Line, Panel, plot_components, plot_panels
from rlreps.plotting.lines import DISTANCE, over_runs
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import aggregate
from rlreps.sources.matrix import Source
from rlreps.sources.pairs import chain_source, padded_rows
from rlreps.subspace import matched_cosines, subspace_distance
from rlreps.subspace.svd import fix_signs
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.kernels.matrix import one_step
from rlreps.successor.measure import Transition
from rlreps.training import Optimizer, train
from rlreps.workflows.ground_truths import generation_figures, own_ground_truth

DoubleArray: TypeAlias = npt.NDArray[np.float64]
Action: TypeAlias = Literal["exact", "sampled"]
Shown: TypeAlias = tuple[Path, str]

TRUE = "true slow features"

_CHECKPOINTS = 4
"""Checkpoints of a run, at most."""
_LARGEST = 4.0
"""Eigenvalue of slowness that none exceeds."""
_SHIFT = -1e-3
"""Below the smallest eigenvalue, zero, where L itself is singular."""
_DENSE = 400
"""States up to which the eigenproblem is solved as a dense one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to train.

    Attributes:
        name: What figures and tables call it.
        action: How the operator acts on a batch: ``sampled`` from pairs of consecutive states, or
            ``exact`` by the graph Laplacian's rows, which evaluates all states for every update.
        averaging_rate: β of the moving averages; 1 averages nothing.
        rows: b, states of a batch, two for each sampled pair.
        steps: Updates.
        optimizer: The optimizer.
    """

    name: str
    action: Action = "sampled"
    averaging_rate: float = 1.0
    rows: int = 2000
    steps: int = 5000
    optimizer: Optimizer = dataclasses.field(default=Optimizer(schedule="cosine"))

    def __post_init__(self) -> None:
        require_choice("action", self.action, get_args(Action))
        require_interval("averaging_rate", self.averaging_rate, "(0, 1]")
        require_positive("rows", self.rows)
        even = self.action == "exact" or self.rows % 2 == 0
        require(even, "an even number of rows, two for each pair", self.rows)
        require_positive("steps", self.steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goals:
    """A goal for the first contender, every seed of it.

    Attributes:
        distance: Largest subspace distance to the slowest eigenfunctions, at every d.
        cosine: Smallest |cosine| of a matched eigenfunction with the true one.
        eigenvalue_error: Largest relative error of an eigenvalue.
        excess: By how much its distance to the successor measure's subspace may exceed the true
            eigenfunctions' own.
    """

    distance: float = 0.01
    cosine: float = 0.98
    eigenvalue_error: float = 0.02
    excess: float = 0.005


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Slow features of PuddleWorld's random walk between cells.

    Attributes:
        successor: The successor measure that slow features are compared with; its arena, cells,
            quadrature points and seed are also those of the chain that they are learned from.
        contenders: Ways to train; ours first.
        encoder: The network, of cell centres, common to all.
        dimensions: Dimensions d at which distances are followed, rising; the network learns the
            largest number of eigenfunctions, and their order serves the others.
        num_seeds: Seeds 0 … num_seeds - 1 of each, trained together.
        evaluations: Measurements during training, after the one before it.
        shown: Eigenfunctions drawn as maps.
        goals: What the first contender is to reach; None judges nothing.
    """

    successor: Transition
    contenders: tuple[Contender, ...]
    encoder: Encoder = dataclasses.field(default=FourierMLP())
    dimensions: tuple[int, ...] = (2, 5, 10)
    num_seeds: int = 3
    evaluations: int = 20
    shown: int = 8
    goals: Goals | None = dataclasses.field(default_factory=Goals)

    def __post_init__(self) -> None:
        names = [contender.name for contender in self.contenders]
        require(len(set(names)) == len(names) >= 1, "at least one contender, each once", names)
        found = self.successor.method
        require(found == "transition", "method transition", found)
        refinement = self.successor.refinement
        require(refinement == 1, "refinement 1, the chain's own cells", refinement)
        tabular = isinstance(self.encoder, Tabular)
        require(not tabular, "an encoder of coordinates", "tabular")
        rising = tuple(sorted(set(self.dimensions)))
        require(
            len(rising) >= 1 and rising[0] >= 1 and self.dimensions == rising,
            "dimensions >= 1, rising",
            self.dimensions,
        )
        # The constant and the eigenfunction after the last, for the gap, are wanted too.
        most = self.successor.num_states - 3
        require(self.num_features <= most, f"dimensions <= {most}", self.num_features)
        require(1 <= self.shown <= self.num_features, "1 <= shown <= the largest d", self.shown)
        require_positive("num_seeds", self.num_seeds)
        require_positive("evaluations", self.evaluations)
        for contender in self.contenders:
            require(
                contender.steps % self.evaluations == 0,
                f"steps to be a multiple of evaluations ({self.evaluations})",
                contender.steps,
            )

    @property
    def num_features(self) -> int:
        """Return how many eigenfunctions are learned, the constant not counted."""
        return self.dimensions[-1]


# Measured on 100 x 100 cells, distance at d = 10 as a mean over three seeds of the laptop preset:
# 0.00063 with 2,000 rows. With 256 rows it stays at 0.0226, after 5,000 updates (0.0243) as after
# 40,000, as a bias of O(1/b) with β = 1 would have it. An average of the Jacobian (β < 1) takes 66
# backward passes an update and learns slowly: 0.093 after 1,200 updates with β = 0.1; with
# β = 0.01, one seed, 0.37 after 1,000. The exact operator, which needs the transition matrix, has
# neither bias nor noise at the eigenfunctions: 0.00011.
_ENCODER = FourierMLP(hidden=(128, 128), frequencies=8)
_CONTENDERS = (
    Contender(name="pairs, 2,000 rows, β = 1", rows=2000, steps=8000),
    Contender(name="pairs, 256 rows, β = 1", rows=256, steps=40_000),
    Contender(name="pairs, 256 rows, β = 0.1", averaging_rate=0.1, rows=256, steps=1200),
    Contender(name="exact operator, 256 rows", action="exact", rows=256, steps=6000),
)
_FAST: dict[str, Any] = {"optimizer": Optimizer(learning_rate=1e-2, schedule="cosine")}

PRESETS = {
    "smoke": Config(
        successor=Transition(bins=16, points=256),
        contenders=(
            Contender(name="pairs, 512 rows, β = 1", rows=512, steps=1500, **_FAST),
            Contender(
                name="pairs, 64 rows, β = 0.5", averaging_rate=0.5, rows=64, steps=200, **_FAST
            ),
            Contender(name="exact operator, 64 rows", action="exact", rows=64, steps=500, **_FAST),
        ),
        encoder=FourierMLP(hidden=(32,), frequencies=8),
        dimensions=(2, 4),
        num_seeds=2,
        evaluations=10,
        shown=4,
        goals=None,
    ),
    "laptop": Config(successor=Transition(points=1024), contenders=_CONTENDERS, encoder=_ENCODER),
    "paper": Config(
        successor=Transition(),
        contenders=tuple(dataclasses.replace(each, steps=5 * each.steps) for each in _CONTENDERS),
        encoder=_ENCODER,
        num_seeds=10,
        evaluations=50,
    ),
}


class Problem(NamedTuple):
    """The chain and what is exact about it.

    Attributes:
        chain: P, [n, n], sparse.
        graph: L and the measure on the diagonal of Σ, which sums to 1.
        centres: The states' centres in [0, 1]², [n, 2] (float32).
        eigenvalues: The smallest of L u = λ Σ u after the constant's, rising, [k].
        eigenfunctions: Orthonormal in the measure, [n, k].
    """

    chain: scipy.sparse.csr_array
    graph: GraphLaplacian
    centres: npt.NDArray[np.float32]
    eigenvalues: DoubleArray
    eigenfunctions: DoubleArray


def make_problem(config: Transition, count: int) -> Problem:
    """Build the random walk between the cells of a successor measure and solve for k = ``count``.

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If some cell is never visited, or the chain falls apart.
    """
    grid = config.grid
    chain = one_step(config.environment(), grid, points=config.points, seed=config.seed).chain
    if grid.walls:
        chain = scipy.sparse.csr_array(chain[grid.states][:, grid.states])
    graph = graph_laplacian(chain, np.full(grid.num_states, 1.0 / grid.num_states))
    eigenvalues, eigenfunctions = slowest_eigenfunctions(graph, 1 + count)
    require(eigenvalues[1] > 1e-9, "a chain that connects all cells", f"{eigenvalues[1]:g}")
    return Problem(chain, graph, grid.centres(), eigenvalues[1:], eigenfunctions[:, 1:])


def slowest_eigenfunctions(graph: GraphLaplacian, count: int) -> tuple[DoubleArray, DoubleArray]:
    """Find the smallest eigenvalues of L u = λ Σ u, the constant's among them.

    Shift-invert Lanczos on Σ^(-1/2) L Σ^(-1/2), and a dense solver for a few hundred states.

    Args:
        graph: L and the diagonal of Σ.
        count: How many.

    Returns:
        Eigenvalues [count], rising, and eigenfunctions [n, count], orthonormal in the measure, with
        the entry of largest magnitude positive.

    Raises:
        InputError: If a state has no measure, or there are fewer than ``count`` + 1 states.
    """
    never = np.count_nonzero(graph.measure <= 0.0)
    require(never == 0, "a measure of every state", f"{never} states without")
    states = len(graph.measure)
    require(count < states, f"fewer eigenfunctions than the {states} states", count)
    scale = 1.0 / np.sqrt(graph.measure)
    rescale = scipy.sparse.diags_array(scale)
    symmetric = scipy.sparse.csc_array(rescale @ graph.laplacian @ rescale)
    if states <= _DENSE:
        values, vectors = scipy.linalg.eigh(symmetric.toarray(), subset_by_index=(0, count - 1))
    else:
        # A start that is fixed makes the result the same every time.
        start = np.random.default_rng(0).normal(size=states)
        values, vectors = scipy.sparse.linalg.eigsh(symmetric, k=count, sigma=_SHIFT, v0=start)
    order = np.argsort(values)
    return values[order], fix_signs(scale[:, None] * vectors[:, order])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StateSource:
    """State indices drawn from a measure.

    Attributes:
        cumulative: Measure of each state and those before it, [n].
    """

    cumulative: Array
    num_tasks: ClassVar[None] = None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw state indices [num_rows] (int32)."""
        del num_tasks
        levels = jax.random.uniform(key, (num_rows,), self.cumulative.dtype)
        states = jnp.searchsorted(self.cumulative, levels, side="right").astype(jnp.int32)
        states = jnp.minimum(states, len(self.cumulative) - 1)
        return Batch(states, jnp.zeros((num_rows, 0), self.cumulative.dtype))


def state_source(measure: DoubleArray) -> StateSource:
    """Build the source of states of a measure [n] that sums to 1."""
    return StateSource(jnp.asarray(np.cumsum(measure).astype(jnp.result_type(float))))


@configurable
@dataclasses.dataclass(frozen=True, eq=False)
class SparseGraphOperator(Operator):
    """``GraphLaplacian.operator`` from the entries of L that are not zero, on state indices [b].

    Images are sums over steps of probability times u(s) − u(s'), in which the constant vanishes
    without rounding; at all n states u is evaluated once a batch.

    Attributes:
        columns: States s' that each state's row has entries at, [n, k].
        values: The entries of Σ⁻¹L there, [n, k].
    """

    columns: Array = leaf()
    values: Array = leaf()

    def apply(self, sample: Sample) -> Array:
        """Compute Σ⁻¹Lu at a sample's states, [b, d]."""
        states = jnp.arange(len(self.values), dtype=jnp.int32)
        others = sample.function(states)[self.columns[sample.inputs]]  # [b, k, d]
        differences = others - sample.features[:, None, :]
        rates = self.values[sample.inputs].astype(differences.dtype)
        return jnp.einsum("bk,bkd->bd", rates, differences, precision=jax.lax.Precision.HIGHEST)


def sparse_graph_operator(graph: GraphLaplacian) -> Operator:
    """Build the sparse operator of a graph Laplacian."""
    weights = scipy.sparse.diags_array(1.0 / graph.measure) @ graph.laplacian
    away = scipy.sparse.csr_array(weights - scipy.sparse.diags_array(weights.diagonal()))
    columns, values = (jnp.asarray(part) for part in padded_rows(away))
    return SparseGraphOperator(columns, values.astype(jnp.result_type(float)))


def ordered_basis(features: Array) -> Array:
    """Make features orthonormal one after the other: the k-th mixes the first k only.

    Args:
        features: [n, 1 + d]; the first is the constant, all weighed by the root of the measure.

    Returns:
        The later ones' parts, [n, d]; a feature that those before it fix gives zeros.
    """
    lengths = jnp.linalg.norm(features, axis=0)
    scaled = features / jnp.where(lengths > 0.0, lengths, 1.0)[None, :]
    basis, triangle = jnp.linalg.qr(scaled)
    smallest = 10.0 * float(np.finfo(features.dtype).eps) * len(features) ** 0.5
    kept = jnp.abs(jnp.diagonal(triangle)) > smallest
    # A QR leaves the sign of each open.
    signs = jnp.where(jnp.diagonal(triangle) < 0.0, -1.0, 1.0).astype(features.dtype)
    ordered: Array = (basis * jnp.where(kept, signs, 0.0)[None, :])[:, 1:]
    return ordered


def training_measures(
    encoder: Encoder, problem: Problem, dimensions: Sequence[int]
) -> Callable[[Params], dict[str, Array]]:
    """Build what is followed during training.

    Args:
        encoder: Gives the constant and d features of cell centres.
        problem: The ground truth.
        dimensions: Where distances are taken.

    Returns:
        Parameters → ``distance_d`` of the first d eigenfunctions' span, for every dimension,
        ``subspace_distance``, that of the largest, and ``cosine_k``, the k-th's |cosine| with the
        true k-th, each [].
    """
    root = np.sqrt(problem.graph.measure)[:, None]
    truth = jnp.asarray(root * problem.eigenfunctions, jnp.float32)
    centres, weights = jnp.asarray(problem.centres), jnp.asarray(root, jnp.float32)

    def evaluate(params: Params) -> dict[str, Array]:
        basis = ordered_basis(encoder.apply(params, centres) * weights)
        overlaps = matmul(basis.T, truth[:, : basis.shape[1]])

        def distance(d: int) -> Array:
            # As ``subspace_distance``, of a basis that is orthonormal already.
            shared = matmul(basis[:, :d], overlaps[:d, :d])
            return jnp.minimum(jnp.sum(jnp.square(truth[:, :d] - shared)) / d, 1.0)

        distances = {f"distance_{d}": distance(d) for d in dimensions}
        cosines = {
            f"cosine_{k}": jnp.abs(value) for k, value in enumerate(jnp.diagonal(overlaps), start=1)
        }
        largest = distances[f"distance_{dimensions[-1]}"]
        return {"subspace_distance": largest, **distances, **cosines}

    return evaluate


class Learned(NamedTuple):
    """One seed's eigenfunctions, in the order in which they were learned.

    Attributes:
        functions: Orthonormal in the measure, signs those of the true ones, [n, d]; zeros where
            features collapsed.
        eigenvalues: uᵀLu of each, exact, [d]; NaN where features collapsed.
        cosines: |cosine| of the eigenfunction matched to each true one, [d].
        distances: To the span of the first d true ones, for every d from 1, [d].
        successor_distances: To the successor measure's top-d subspace, for every d from 1, [d].
    """

    functions: DoubleArray
    eigenvalues: DoubleArray
    cosines: DoubleArray
    distances: DoubleArray
    successor_distances: DoubleArray


def measure_features(features: Array, problem: Problem, successor: GroundTruth) -> Learned:
    """Compute everything that is measured of a seed's features after training, in float64.

    Args:
        features: The constant and d features of all states, [n, 1 + d].
        problem: The ground truth.
        successor: The successor measure's.
    """
    root = np.sqrt(problem.graph.measure)[:, None]
    # The host's precision: eigenvalues are small differences of features.
    with jax.enable_x64(True):
        basis = np.asarray(ordered_basis(jnp.asarray(np.asarray(features, np.float64) * root)))
        truth = root * problem.eigenfunctions[:, : basis.shape[1]]
        cosines = matched_cosines(jnp.asarray(basis), jnp.asarray(truth))
    basis = basis * np.where(np.sum(basis * truth, axis=0) < 0.0, -1.0, 1.0)
    functions = basis / root
    rates = np.sum(functions * (problem.graph.laplacian @ functions), axis=0)
    return Learned(
        functions=functions,
        eigenvalues=np.where(basis.any(axis=0), rates, np.nan),
        cosines=np.asarray(cosines, np.float64),
        distances=nested_distances(basis, truth),
        successor_distances=successor_distances(functions, successor),
    )


def nested_distances(functions: DoubleArray, basis: DoubleArray) -> DoubleArray:
    """Compute the distance between the first d of either, for d = 1 … all functions', [d]."""
    with jax.enable_x64(True):
        left, right = jnp.asarray(functions), jnp.asarray(basis, jnp.float64)
        numbers = range(1, functions.shape[1] + 1)
        return np.asarray([float(subspace_distance(left[:, :d], right[:, :d])) for d in numbers])


def successor_distances(functions: DoubleArray, successor: GroundTruth) -> DoubleArray:
    """Compute the first d functions' distance to the successor measure's top d, every d, [d].

    That matrix has its columns' means over states removed, which leaves its left singular vectors
    without a constant part; so the functions' means are removed as well. All states count alike.
    """
    centred = functions - functions.mean(axis=0, keepdims=True)
    return nested_distances(centred, np.asarray(successor.principal.basis, np.float64))


def prepare(run: Run[Config]) -> tuple[Problem, GroundTruth, DoubleArray]:
    """Compute the successor measure and the slowest eigenfunctions.

    Returns:
        The chain, the successor measure's subspace, and the true eigenfunctions' distances to it,
        [d].
    """
    config, d = run.config, run.config.num_features
    truth = own_ground_truth(config.successor, run.folder, d, progress=run.progress).truth
    # One eigenfunction more than is learned: the gap after the last decides how well it can be.
    problem = make_problem(config.successor, d + 1)
    return problem, truth, successor_distances(problem.eigenfunctions[:, :d], truth)


class Result(NamedTuple):
    """A contender's finished runs.

    Attributes:
        contender: Its settings.
        history: Records, with ``step``, ``seconds`` of all seeds together (without compilation and
            evaluation) and lists over seeds.
        learned: What seeds ended with, every array with a leading seed axis.
    """

    contender: Contender
    history: list[dict[str, Any]]
    learned: Learned

    @property
    def name(self) -> str:
        """Return the contender's name."""
        return self.contender.name

    def relative_errors(self, truth: DoubleArray) -> DoubleArray:
        """Compute |relative error| of eigenvalues, [seeds, d]; infinite for collapsed features."""
        learned = self.learned.eigenvalues
        errors = np.abs(learned / truth[: learned.shape[1]] - 1.0)
        return np.where(np.isnan(errors), np.inf, errors)


def measure(run: Run[Config], name: str, contender: Contender) -> Result:
    """Train all seeds of a contender, with the constant before the features."""
    config, (problem, truth, _) = run.config, run.shared
    centres = jnp.asarray(problem.centres)
    encoder = WithConstant(
        with_sizes(config.encoder, num_inputs=2, num_features=config.num_features)
    )
    operator: Operator = Slowness()
    source: Source = chain_source(problem.chain, centres)
    of_batch: Encoder = encoder
    rows = contender.rows // 2
    if contender.action == "exact":
        rows = contender.rows
        operator, source = sparse_graph_operator(problem.graph), state_source(problem.graph.measure)
        of_batch = AtStates(encoder, centres)
    every = contender.steps // config.evaluations
    result = train(
        of_batch,
        Spin(
            1 + config.num_features,
            operator=operator,
            averaging_rate=contender.averaging_rate,
            encoder=encoder,
        ),
        source,
        optimizer=contender.optimizer,
        steps=contender.steps,
        rows=rows,
        seeds=range(config.num_seeds),
        evaluate=training_measures(encoder, problem, config.dimensions),
        evaluate_every=every,
        folder=run.training_folder(name, contender=as_json(contender)),
        checkpoint_every=every * max(1, config.evaluations // _CHECKPOINTS),
        devices=run.devices,
        resets_diverged=True,
        description=contender.name,
        progress=run.progress,
    )
    apply = jit(encoder.apply)
    learned = [
        measure_features(apply(result.params(seed), centres), problem, truth)
        for seed in range(config.num_seeds)
    ]
    return Result(contender, result.history, Learned(*map(np.stack, zip(*learned, strict=True))))


def judge(config: Config, truth: DoubleArray, floor: DoubleArray, result: Result) -> list[Found]:
    """Set the first contender's worst seed beside the goals.

    Args:
        config: The preset; without goals nothing is judged.
        truth: The true eigenvalues.
        floor: Distances of the true eigenfunctions to the successor measure's, [d].
        result: The first contender's.
    """
    chosen = np.asarray(config.dimensions) - 1
    dimensions = ", ".join(map(str, config.dimensions))
    excess = result.learned.successor_distances - floor
    found = {
        "distance": (
            f"distance to the slowest d = {dimensions}, largest",
            result.learned.distances[:, chosen].max(),
        ),
        "cosine": (
            f"|cosine| of {config.num_features} eigenfunctions, each matched, smallest",
            result.learned.cosines.min(),
        ),
        "eigenvalue_error": (
            "relative error of an eigenvalue, largest",
            result.relative_errors(truth).max(),
        ),
        "excess": (
            "distance to the successor measure's subspace beyond the true slow features' own, "
            "largest",
            excess[:, chosen].max(),
        ),
    }
    claims = []
    for name, (statement, value) in found.items():
        goal = None if config.goals is None else getattr(config.goals, name)
        at_least = name == "cosine"
        claims.append(
            Found(
                statement=f"{result.name}, every seed: {statement}",
                stated="none" if goal is None else f"at {'least' if at_least else 'most'} {goal:g}",
                found=f"{value:.4f}",
                holds=None if goal is None else bool(value >= goal if at_least else value <= goal),
            )
        )
    return claims


def report(run: Run[Config], found: Mapping[str, Result]) -> Findings:
    """Draw curves, eigenvalues, maps and distances, and judge the goals."""
    config, (problem, _, floor) = run.config, run.shared
    results = list(found.values())
    first, summaries = results[0], [_summary(config, problem, result) for result in results]
    distance = float(first.learned.distances[:, -1].mean())
    goals = Section(
        title="Goals",
        text="The chain is that of the random policy between the cells of a grid, as it goes on "
        "from cells that were entered; states are drawn uniformly over the cells. The true slow "
        "features are the generalised eigenfunctions L u = λ Σ u of its graph Laplacian after the "
        "constant. Learned ones come from one network with the constant before its features, in "
        "the order of training; distances and cosines are in the measure of Σ.",
    )
    return Findings(
        abstract=f"Spectral inference ({first.name}; {first.contender.steps:,} updates) learns the "
        f"{config.num_features} slowest eigenfunctions after the constant to a mean subspace "
        f"distance of {distance:.4f} over {config.num_seeds} seeds, in "
        f"{first.history[-1]['seconds']:,.0f} s of training for all of them.",
        claims=judge(config, problem.eigenvalues, floor, first),
        sections=[
            goals,
            _distance_section(run, results, summaries),
            _eigenvalue_section(run, results),
            Section(title="Maps", figures=[_show_maps(run, results)]),
            _successor_section(run, results, summaries),
        ],
        summary={
            "successor_measure": generation_figures(run.folder, config.successor),
            "eigenvalues": problem.eigenvalues.tolist(),
            "true_successor_distances": floor.tolist(),
            "contenders": summaries,
        },
    )


def _summary(config: Config, problem: Problem, result: Result) -> dict[str, Any]:
    """Collect a contender's figures, for every dimension and seed."""
    distances, successor = result.learned.distances, result.learned.successor_distances
    errors, last = result.relative_errors(problem.eigenvalues), result.history[-1]
    return {
        **as_json(result.contender),
        "runs": len(distances),
        "diverged": int(np.sum(last["diverged"])),
        "seconds": round(last["seconds"], 3),
        **{
            name: {str(d): aggregate(of[:, d - 1], within=(0.0, 1.0)) for d in config.dimensions}
            for name, of in (("subspace_distance", distances), ("successor_distance", successor))
        },
        "per_seed": {
            "subspace_distance": distances.tolist(),
            "successor_distance": successor.tolist(),
            "matched_cosines": result.learned.cosines.tolist(),
            "eigenvalues": result.learned.eigenvalues.tolist(),
            "largest_eigenvalue_error": errors.max(axis=1).tolist(),
        },
    }


def _show_lines(
    run: Run[Config], name: str, caption: str, rows: Rows, panels: Sequence[Panel], **axes: Any
) -> Shown:
    seeds = run.config.num_seeds
    note = over_runs(seeds)
    return run.show(name, f"{caption}: {note}.", rows, plot_panels(panels, note=note, **axes))


def _history(
    results: Sequence[Result],
    followed: str,
    numbers: Sequence[int],
    columns: tuple[str, str],
    title: str,
    *,
    x: str = "step",
) -> tuple[Rows, list[Panel]]:
    """Collect rows of what was followed during training, and a panel for each number.

    Args:
        results: Of all contenders.
        followed: The figure ``followed_number`` of records.
        numbers: The numbers.
        columns: Names of the number and of the figure in rows.
        title: Of the panels, before the number.
        x: What panels draw it against.
    """
    rows = [
        {
            "contender": result.name,
            columns[0]: number,
            "seed": seed,
            "step": record["step"],
            "seconds": record["seconds"],
            columns[1]: value,
        }
        for result in results
        for number in numbers
        for record in result.history
        for seed, value in enumerate(record[f"{followed}_{number}"])
    ]

    def line(result: Result, number: int) -> Line:
        # The first measurement precedes all training: a logarithm has no place for it.
        records = result.history[1:]
        values = np.transpose([record[f"{followed}_{number}"] for record in records])
        return Line.of_runs(result.name, [record[x] for record in records], values)

    panels = [
        Panel(title=f"{title} {number}", lines=[line(result, number) for result in results])
        for number in numbers
    ]
    return rows, panels


def _distance_section(
    run: Run[Config], results: Sequence[Result], summaries: Sequence[Mapping[str, Any]]
) -> Section:
    config = run.config
    names = ("name", "action", "averaging_rate", "rows", "steps", "seconds")
    header = ("contender", "operator", "β", "rows", "updates", "training s")
    table = Table(
        (*header, *(f"d = {d}" for d in config.dimensions), "smallest |cos|", "diverged"),
        [
            (
                *(each[name] for name in names),
                *(each["subspace_distance"][str(d)]["mean"] for d in config.dimensions),
                min(map(min, each["per_seed"]["matched_cosines"])),
                each["diverged"],
            )
            for each in summaries
        ],
        f"Mean distance over {config.num_seeds} seeds at each d. Training time is of all seeds "
        "together, without compilation and evaluation. A run that diverged counts with distance 1.",
    )
    distance = (results, "distance", config.dimensions, ("d", "subspace_distance"), "slowest")
    seeds = "1 seed" if config.num_seeds == 1 else f"all {config.num_seeds} seeds"
    numbers = range(1, config.num_features + 1)
    figures = [
        _show_lines(
            run,
            "distance_by_update",
            "Subspace distance to the slowest eigenfunctions against updates",
            *_history(*distance),
            x_label="update",
            y_label=DISTANCE,
            log_x=True,
        ),
        _show_lines(
            run,
            "distance_by_time",
            "The same against training time",
            *_history(*distance, x="seconds"),
            x_label=f"training time of {seeds} (s)",
            y_label=DISTANCE,
            log_x=True,
        ),
        _show_lines(
            run,
            "cosines",
            "Each learned eigenfunction against the true one of the same place; where two "
            "eigenvalues lie close together their eigenfunctions turn into each other easily",
            *_history(results, "cosine", numbers, ("eigenfunction", "cosine"), "eigenfunction"),
            x_label="update",
            y_label="|cosine| with the true eigenfunction of this place",
            log_x=True,
            log_y=False,
        ),
    ]
    return Section(title="Distance to the slowest eigenfunctions", tables=[table], figures=figures)


def _eigenvalue_section(run: Run[Config], results: Sequence[Result]) -> Section:
    """Set learned eigenvalues beside the true ones.

    In figures a collapsed feature counts with the largest eigenvalue that there can be.
    """
    (problem, *_), numbers = run.shared, np.arange(1, run.config.num_features + 1)
    *truth, after = problem.eigenvalues
    means = {result.name: result.learned.eigenvalues.mean(axis=0) for result in results}
    table = Table(
        ("eigenfunction", "true", *means),
        [
            *(
                (k, *(f"{values[k - 1]:.5f}" for values in (truth, *means.values())))
                for k in numbers.tolist()
            ),
            (f"{len(truth) + 1} (not learned)", f"{after:.5f}", *("" for _ in means)),
        ],
        "Eigenvalues, mean over seeds.",
    )
    rows = [
        {
            "contender": result.name,
            "eigenfunction": k,
            "seed": seed,
            "true": truth[k - 1],
            "learned": value,
            "relative_error": value / truth[k - 1] - 1.0,
            "matched_cosine": result.learned.cosines[seed, k - 1],
        }
        for result in results
        for seed, eigenvalues in enumerate(result.learned.eigenvalues)
        for k, value in enumerate(eigenvalues, start=1)
    ]
    values, errors = [], []
    for result in results:
        found = np.nan_to_num(result.learned.eigenvalues, nan=_LARGEST)
        values.append(Line.of_runs(result.name, numbers, found))
        errors.append(Line.of_runs(result.name, numbers, np.abs(found / truth - 1.0)))
    # Last, so that contenders look the same in every figure.
    values.append(Line(label="true", x=numbers, mean=truth, low=truth, high=truth))
    figures = [
        _show_lines(
            run,
            name,
            caption,
            rows,
            [Panel(title="after training", lines=lines)],
            x_label="eigenfunction",
            y_label=y_label,
            x_ticks=numbers.tolist(),
        )
        for name, lines, y_label, caption in (
            ("eigenvalues", values, "eigenvalue", "Learned eigenvalues and the true ones"),
            ("eigenvalue_errors", errors, "|relative error|", "Their relative errors"),
        )
    ]
    return Section(
        title="Eigenvalues",
        text="uᵀLu of the learned eigenfunctions over all states, not estimated from samples.",
        tables=[table],
        figures=figures,
    )


def _show_maps(run: Run[Config], results: Sequence[Result]) -> Shown:
    """Show eigenfunctions over the arena, the true ones first; of every contender the first seed.

    Signs are the true ones'; nothing is rotated.
    """
    config, (problem, *_), shown = run.config, run.shared, run.config.shown
    truth = problem.eigenfunctions[:, :shown]
    learned = {result.name: result.learned.functions[0, :, :shown] for result in results}
    cosines = {
        name: np.abs(np.sum(problem.graph.measure[:, None] * table * truth, axis=0))
        for name, table in learned.items()
    }
    rows = [
        {
            "contender": name,
            "eigenfunction": index + 1,
            "true_eigenvalue": problem.eigenvalues[index],
            "cosine": cosine,
        }
        for name, row in cosines.items()
        for index, cosine in enumerate(row)
    ]
    figure = plot_components(
        {"true": truth, **learned},
        bins=config.successor.bins,
        labels=[f"{k}: λ = {x:.4f}" for k, x in enumerate(problem.eigenvalues[:shown], start=1)],
        environment=load_arena(config.successor.arena),
        cosines=cosines,
    )
    caption = (
        f"The {shown} slowest eigenfunctions over the arena and those that the first seed of each "
        "contender learned, in the order of learning. Signs are aligned, nothing is rotated; "
        "limits are shared down each column. |cos| is the cosine with the true one."
    )
    return run.show("maps", caption, rows, figure)


def _successor_section(
    run: Run[Config], results: Sequence[Result], summaries: Sequence[Mapping[str, Any]]
) -> Section:
    """Set d slow features beside the successor measure's top-d subspace."""
    config, (*_, floor) = run.config, run.shared
    table = Table(
        ("features", *(f"d = {d}" for d in config.dimensions)),
        [
            (TRUE, *(floor[d - 1] for d in config.dimensions)),
            *(
                (
                    each["name"],
                    *(each["successor_distance"][str(d)]["mean"] for d in config.dimensions),
                )
                for each in summaries
            ),
        ],
        "Distance to the successor measure's top-d left singular subspace, mean over seeds. "
        "Features have their mean over states removed, as the matrix has.",
    )
    numbers = np.arange(1, config.num_features + 1)
    learned = {result.name: result.learned.successor_distances for result in results}
    rows = [
        {"contender": name, "d": d, "seed": seed, "subspace_distance": distances[d - 1]}
        for name, seed, distances in [
            (TRUE, None, floor),
            *(
                (name, seed, each)
                for name, table in learned.items()
                for seed, each in enumerate(table)
            ),
        ]
        for d in numbers.tolist()
    ]
    lines = [Line.of_runs(name, numbers, each, within=(0.0, 1.0)) for name, each in learned.items()]
    lines.append(Line(label=TRUE, x=numbers, mean=floor, low=floor, high=floor))
    figure = _show_lines(
        run,
        "successor_distance",
        "The same for every d",
        rows,
        [Panel(title="slow features and the successor measure", lines=lines)],
        x_label="number of features d",
        y_label=DISTANCE,
        x_ticks=numbers.tolist(),
    )
    return Section(
        title="The successor measure's subspace",
        text="The successor measure sums powers of the chain, so its leading singular vectors are "
        "nearly the slowest eigenfunctions, but not quite: the chain is not symmetric under "
        "uniform states, and its first step starts anywhere in a cell. What the true slow "
        "features are away from it is what to expect of learned ones. Where two eigenvalues lie "
        "close together, as the first two do in sutton, a span that ends between them is open: "
        "distances at d = 1 say little.",
        tables=[table],
        figures=[figure],
    )


EXPERIMENT = Experiment(
    name="slow-puddle",
    title="Slow features of PuddleWorld's random walk",
    paper="ours; spectral inference by Pfau et al. 2019",
    presets=PRESETS,
    prepare=prepare,
    cells=lambda run: {in_path(contender.name): contender for contender in run.config.contenders},
    measure=measure,
    report=report,
    keeps_parts=False,
    stated="goal",
)
