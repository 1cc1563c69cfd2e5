"""Slow features of PuddleWorld's random walk against the exact generalised eigenproblem.

The chain is that of the random policy between the cells of a grid, as it continues from cells that
were entered. States are drawn uniformly over the cells, like the rollouts' starts and the weights
in the subspace of the successor measure. True slow features are the generalised eigenfunctions
L u = λ Σ u of its graph Laplacian after the constant. Contenders learn them by spectral inference,
with one network and the constant before its features, which count in the order of training.
Distances and cosines are in the measure of Σ.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.config import with_sizes
from rlreps.encoders import AtStates, Encoder, FourierMLP, WithConstant
from rlreps.envs import load_arena
from rlreps.experiments.harness import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    Claim,
    Curve,
    D,
    Drawn,
    Experiment,
    Frame,
    Measure,
    Results,
    Rows,
    Run,
    Summary,
    Wide,
    design_of,
    in_path,
)
from rlreps.losses import Spin
from rlreps.numerics import jit
from rlreps.operators import Operator, Slowness
from rlreps.plotting import plot_components
from rlreps.runs.contrasts import Verdict
from rlreps.sources.matrix import Source
from rlreps.sources.pairs import chain_source, state_source
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import Transition
from rlreps.successor.slow_features import (
    Learned,
    SlowFeatures,
    slow_features,
    successor_distances,
)
from rlreps.training import Optimizer, train
from rlreps.workflows.ground_truths import generation_figures, own_ground_truth

Action: TypeAlias = Literal["exact", "sampled"]

TRUE = "true slow features"

DISTANCES, COSINES, AFTER = "distances", "cosines", "after training"
"""Parts of the frame: distances and cosines during training, and measures after it."""

HOW = ("action", "averaging_rate", "rows")
"""Columns of how a contender trains."""

_CHECKPOINTS = 4
"""Checkpoints of a run, at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to train.

    Attributes:
        name: What figures and tables call it.
        action: How the operator acts on a batch: ``sampled`` from pairs of consecutive states, or
            ``exact`` by the graph Laplacian's rows, which evaluates all states for every update.
        averaging_rate: β of the moving averages; 1 averages nothing.
        rows: b, states of a batch, two for each sampled pair.
    """

    name: str
    action: Action = "sampled"
    averaging_rate: float = 1.0
    rows: int = 2000
    steps: int = 5000
    optimizer: Optimizer = dataclasses.field(default=Optimizer(schedule="cosine"))


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


class Shared(NamedTuple):
    """The exact parts.

    Attributes:
        problem: The chain and its slow features, with one more than is learned: the gap after the
            last decides how well it can be learned.
        truth: The successor measure's subspace.
        floor: Distances of the true slow features to it, [d].
    """

    problem: SlowFeatures
    truth: GroundTruth
    floor: npt.NDArray[np.float64]


def prepare(run: Run[Config]) -> Shared:
    """Compute the successor measure and the slow features."""
    config, d = run.config, run.config.num_features
    truth = own_ground_truth(config.successor, run.folder, d).truth
    problem = slow_features(config.successor, d + 1)
    return Shared(problem, truth, successor_distances(problem.eigenfunctions[:, :d], truth))


def measure(run: Run[Config], name: str, contender: Contender) -> dict[str, Any]:
    """Train all seeds of a contender, with the constant before the features.

    Returns:
        ``history`` of the training, ``learned`` features with a leading seed axis, and
        ``successor_distances`` [seeds, d].
    """
    config, (problem, truth, _) = run.config, run.shared
    centres, d = jnp.asarray(problem.centres), config.num_features
    encoder = WithConstant(with_sizes(config.encoder, num_inputs=2, num_features=d))
    operator: Operator = Slowness()
    source: Source = chain_source(problem.chain, centres)
    of_batch: Encoder = encoder
    rows = contender.rows // 2
    if contender.action == "exact":
        rows = contender.rows
        operator, source = problem.graph.operator(), state_source(problem.graph.measure)
        of_batch = AtStates(encoder, centres)
    rate = contender.averaging_rate
    result = train(
        of_batch,
        Spin(1 + d, operator=operator, averaging_rate=rate, encoder=encoder),
        source,
        optimizer=contender.optimizer,
        rows=rows,
        seeds=range(config.num_seeds),
        evaluate=problem.followed(encoder, config.dimensions),
        resets_diverged=True,
        **run.training(
            name,
            contender.steps,
            config.evaluations,
            every=max(1, config.evaluations // _CHECKPOINTS),
            title=contender.name,
            contender=contender,
        ),
    )
    apply = jit(encoder.apply)
    learned = [
        problem.measured(apply(result.params(seed), centres)) for seed in range(config.num_seeds)
    ]
    return {
        "history": result.history,
        "learned": Learned(*map(np.stack, zip(*learned, strict=True))),
        "successor_distances": np.stack(
            [successor_distances(each.functions, truth) for each in learned]
        ),
    }


def frame(run: Run[Config], contender: Contender, found: dict[str, Any]) -> Frame:
    """List distances and cosines during training, and measures after it."""
    config, (problem, _, floor) = run.config, run.shared
    history, learned = found["history"], found["learned"]
    seeds, numbers = range(config.num_seeds), range(1, config.num_features + 1)
    seconds = [record["seconds"] for record in history]
    followed = Frame.of_history(history, seeds, contender=contender.name).adding(
        seconds=np.tile(seconds, len(seeds))
    )
    distances = followed.long("distance", "d")
    truth = problem.eigenvalues[: len(numbers)]
    errors = learned.eigenvalues / truth - 1.0
    after = {
        "d": numbers,
        "distance": learned.distances,
        "successor_distance": found["successor_distances"],
        "excess": found["successor_distances"] - floor,
        "true": truth,
        "learned": learned.eigenvalues,
        "relative_error": errors,
        "error": np.abs(errors),
        "matched_cosine": learned.cosines,
        "smallest_cosine": learned.cosines.min(),
        "diverged": np.asarray(history[-1]["diverged"])[:, None],
        "seconds": seconds[-1],
    }
    how = {name: getattr(contender, name) for name in ("name", *HOW)}
    how["contender"] = how.pop("name")
    where = {"seed": seeds, "eigenfunction": numbers, "part": AFTER, "step": contender.steps}
    return Frame.concat(
        [
            distances.adding(part=DISTANCES, subspace_distance=distances["distance"]),
            followed.long("cosine", "eigenfunction").adding(part=COSINES),
            Frame.grid(after, **where, **how),
        ]
    )


_WORST = {
    "distance": ("distance to the slowest d = {dimensions}, largest", "distance"),
    "cosine": ("|cosine| of {count} eigenfunctions, each matched, smallest", "matched_cosine"),
    "eigenvalue_error": ("relative error of an eigenvalue, largest", "error"),
    "excess": (
        "distance to the successor measure's subspace beyond the true slow features' own, largest",
        "excess",
    ),
}
"""Goal → what it is of, and the column."""


def worst(results: Results[Config], name: str) -> Verdict:
    """Set the worst seed of the first contender beside a goal; without goals nothing is judged."""
    config, (_, column) = results.config, _WORST[name]
    found = results.frame.where(part=AFTER, contender=config.contenders[0].name)
    if column in ("distance", "excess"):
        found = found.where(d=config.dimensions)
    value = float(found[column].min() if name == "cosine" else found[column].max())
    goal = getattr(config.goals, name, None)
    holds = None if goal is None else value >= goal if name == "cosine" else value <= goal
    return Verdict(holds, f"{value:.4f}")


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goals of the first contender."""
    config = results.config
    named = {"dimensions": ", ".join(map(str, config.dimensions)), "count": config.num_features}
    for name, (template, _) in _WORST.items():
        goal, statement = getattr(config.goals, name, None), template.format(**named)
        most = "at least" if name == "cosine" else "at most"
        yield Claim(
            f"{config.contenders[0].name}, every seed: {statement}",
            "none" if goal is None else f"{most} {goal:g}",
            partial(worst, name=name),
        )


def beside_truth(results: Results[Config], frame: Frame, column: str) -> Frame:
    """Put the true values, with one seed at most, below the learned ones."""
    problem, _, floor = results.run.shared
    values = {"learned": problem.eigenvalues, "successor_distance": floor}[column]
    numbers = np.arange(1, len(values) + 1)
    exact = {column: values, "d": numbers}
    truth = Frame.grid(exact, contender=TRUE, seed=0, eigenfunction=numbers)
    return Frame.concat([frame.where(part=AFTER), truth])


def draw_maps(results: Results[Config]) -> tuple[Rows, Figure]:
    """Draw eigenfunctions over the arena, the true ones first; of every contender seed 0.

    Signs are the true ones'; nothing is rotated.
    """
    config, (problem, *_), shown = results.config, results.run.shared, results.config.shown
    truth, values = problem.eigenfunctions[:, :shown], problem.eigenvalues[:shown]
    learned = {
        contender.name: found["learned"].functions[0, :, :shown]
        for contender, found in zip(config.contenders, results.found.values(), strict=True)
    }
    cosines = {
        name: np.abs(np.sum(problem.graph.measure[:, None] * table * truth, axis=0))
        for name, table in learned.items()
    }
    figure = plot_components(
        {"true": truth, **learned},
        bins=config.successor.bins,
        labels=[f"{k}: λ = {x:.4f}" for k, x in enumerate(values, start=1)],
        environment=load_arena(config.successor.arena),
        cosines=cosines,
    )
    rows = Frame.grid(
        {"true_eigenvalue": values, "cosine": [*cosines.values()]},
        contender=[*cosines],
        eigenfunction=range(1, 1 + len(values)),
    )
    return rows.rows("contender", "eigenfunction", "true_eigenvalue", "cosine"), figure


def history(name: str, caption: str, part: str, x: Axis, **options: Any) -> Curve:
    """Declare a figure of what was followed in training, whose file has every seed."""
    return Curve(
        name=name,
        caption=caption,
        x=x,
        line="contender",
        # The first measurement precedes all training: a logarithm has no place for it.
        of={"part": part, "step": lambda steps: steps > 0},
        file={"part": part},
        keys=("seed",),
        **options,
    )


UPDATE = dataclasses.replace(STEP, log=True)
TIME = Axis("seconds", "training time of all seeds (s)", log=True)
EIGENFUNCTION = Axis("eigenfunction", "eigenfunction", ticks=True)
EIGENVALUE = Measure(value="learned", label="eigenvalue", log=True)
COSINE = Measure(value="cosine", label="|cosine| with the true eigenfunction of this place")
SUCCESSOR = dataclasses.replace(SUBSPACE_DISTANCE, value="successor_distance", note="")
_EIGENVALUES: dict[str, Any] = {"file": {"part": AFTER}, "keys": ("seed",), "line": "contender"}

EXPERIMENT = Experiment(
    name="slow-puddle",
    title="Slow features of PuddleWorld's random walk",
    paper="ours; spectral inference by Pfau et al. 2019",
    presets=PRESETS,
    prepare=prepare,
    cells=lambda run: {in_path(contender.name): contender for contender in run.config.contenders},
    measure=measure,
    frame=frame,
    value=SUBSPACE_DISTANCE,
    claims=claims,
    sections={
        "Goals": [design_of(__doc__)],
        "Distance to the slowest eigenfunctions": [
            Summary(
                name="contenders",
                caption="Distance at each d, mean over seeds, and the smallest |cosine| of all. "
                "Training time is of all seeds together, without compilation and "
                "evaluation. A run that diverged counts 1.",
                keys=("contender", *HOW, "step", "d"),
                of=lambda r, frame: frame.where(part=AFTER, d=r.config.dimensions),
                measure=dataclasses.replace(SUBSPACE_DISTANCE, value="distance"),
                beside=("smallest_cosine", "seconds", "diverged"),
            ),
            history(
                "distance_by_update",
                "Subspace distance to the slowest eigenfunctions against updates.",
                DISTANCES,
                UPDATE,
                panel="slowest {d}",
                beside=("seconds",),
            ),
            history(
                "distance_by_time",
                "The same against training time.",
                DISTANCES,
                TIME,
                panel="slowest {d}",
                beside=("step",),
            ),
            history(
                "cosines",
                "Each learned eigenfunction against the true one of the same index. If two "
                "eigenvalues are close, their eigenfunctions turn into each other easily.",
                COSINES,
                UPDATE,
                y=COSINE,
                panel="eigenfunction {eigenfunction}",
                beside=("seconds",),
            ),
        ],
        "Eigenvalues": [
            "uᵀLu of the learned eigenfunctions over all states, not estimated from samples. A "
            "feature that collapsed counts 4, the largest possible eigenvalue.",
            Wide(
                caption="Eigenvalues, mean over seeds. The last one is not learned.",
                row="eigenfunction",
                column="contender",
                of=partial(beside_truth, column="learned"),
                measure=EIGENVALUE,
            ),
            Curve(
                name="eigenvalues",
                caption="Learned eigenvalues and the true ones.",
                x=EIGENFUNCTION,
                y=EIGENVALUE,
                of=partial(beside_truth, column="learned"),
                beside=("true", "relative_error", "matched_cosine"),
                **_EIGENVALUES,
            ),
            Curve(
                name="eigenvalue_errors",
                caption="Their relative errors.",
                x=EIGENFUNCTION,
                y=Measure(value="error", label="|relative error|", log=True),
                of={"part": AFTER},
                beside=("true", "learned", "relative_error", "matched_cosine"),
                **_EIGENVALUES,
            ),
        ],
        "Maps": [
            Drawn(
                name="maps",
                caption="The {config.shown} slowest eigenfunctions over the arena and those "
                "that the first seed of each contender learned, in the order of learning. "
                "Signs are aligned, nothing is rotated; each column has common limits. "
                "|cos| is the cosine with the true one.",
                draw=draw_maps,
            ),
        ],
        "The successor measure's subspace": [
            "The successor measure sums powers of the chain, so its leading singular vectors are "
            "nearly the slowest eigenfunctions, but not quite: the chain is not symmetric under "
            "uniform states, and its first step starts anywhere in a cell. Learned slow features "
            "should be as far from it as the true ones are. If two eigenvalues are close, as the "
            "first two are in sutton, a span that ends between them is ill determined: distances "
            "at d = 1 say little.",
            Wide(
                caption="Distance to the successor measure's top-d left singular subspace, mean "
                "over seeds. Features have their mean over states removed, like the matrix.",
                row="contender",
                column="d = {d}",
                of=lambda r, frame: beside_truth(r, frame, "successor_distance").where(
                    d=r.config.dimensions
                ),
                measure=SUCCESSOR,
            ),
            Curve(
                name="successor_distance",
                caption="The same for every d.",
                x=dataclasses.replace(D, log=False),
                y=SUCCESSOR,
                line="contender",
                of=partial(beside_truth, column="successor_distance"),
                keys=("seed",),
                title="slow features and the successor measure",
            ),
        ],
    },
    summary=lambda r: {
        "successor_measure": generation_figures(r.run.folder, r.config.successor),
        "eigenvalues": r.run.shared.problem.eigenvalues.tolist(),
        "true_successor_distances": r.run.shared.floor.tolist(),
    },
    # Each training resumes from its checkpoints, and maps need functions at all states.
    keeps_parts=False,
    stated="goal",
)
