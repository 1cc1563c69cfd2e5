"""PuddleWorld under the paper's protocol: subspace distance against d (Le Lan et al. 2023, C.3).

``paper`` is the protocol: training states anywhere in the square, Large Batch with weights from the
centres of all cells, means centred as by the authors' code. Its 10⁸ updates are for accelerators.
``trend`` shrinks it to 20 x 20 cells, 40,000 updates, three seeds and three d: the same
methods on a problem 25 times smaller, which shows which way distances move with d, and decides none
of the paper's statements. Beside them it trains explicit weights from our start and with several
columns an update, which the paper names as a remedy for stale weights. ``laptop`` keeps the paper's
grid; there weights from all 10,000 centres cost too much, and its Large Batch is another method,
named so.

All d and seeds of a method train in one program: features beyond a member's d are masked. A masked
feature is zero at every state: LISSA and least squares give it weight zero, stored weights have no
effect, and the member learns as an encoder of d features would.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps import subspace
from rlreps.config import configurable, leaf
from rlreps.encoders import MLP, Encoder, Params
from rlreps.envs import load_arena
from rlreps.errors import require, require_choice, require_positive
from rlreps.experiments import harness
from rlreps.experiments.harness import Experiment, Findings, Found, Run
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.numerics import matmul
from rlreps.plotting import Line, Panel, plot_components, plot_panels
from rlreps.plotting.lines import DISTANCE, floor_of, over_runs
from rlreps.report.page import Section
from rlreps.runs.intervals import aggregate, mean_interval
from rlreps.successor.ground_truth import CENTRING
from rlreps.successor.measure import MonteCarlo
from rlreps.successor.store import open_store
from rlreps.training import Learner, Optimizer, evaluation, stack, train_population
from rlreps.workflows.ground_truths import OwnGroundTruth, generation_figures, own_ground_truth
from rlreps.workflows.train import TrainingConfig, batches_of, learner_for

MASKABLE = ("danskin_lissa", "explicit", "large_batch")
"""Methods to which a feature that is zero at every state is the same as one that is not there."""

_METHODS: tuple[Objective, ...] = (
    DanskinLissa(gradient_rows=50, weight_rows=50, covariance_rows=50),
    # Start and optimizer of the stored weights as in the authors' code; the text is silent.
    Explicit(weight_start=1.0, dense_optimizer=True),
    LargeBatch(weight_rows="all"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Every method at every d with every seed, under the paper's protocol.

    Attributes:
        successor: The ground truth.
        objectives: The methods.
        training: The protocol; objective and number of features are replaced run by run.
        columns: Tasks an update with which every explicit objective is trained as well, beside
            ``training.tasks``: fewer updates pass before a column's weights move again (Sec. 5.3).
        dimensions: d.
        headline_dimension: The d of the pictures of components.
        members: Most runs of one method in one program; beyond, it takes several programs.
    """

    successor: MonteCarlo = dataclasses.field(default=MonteCarlo(centring="rows"))
    objectives: tuple[Objective, ...] = _METHODS
    training: TrainingConfig
    columns: tuple[int, ...] = ()
    dimensions: tuple[int, ...]
    headline_dimension: int = 10
    members: int = 64

    def __post_init__(self) -> None:
        require(len(self.objectives) >= 1, "at least one objective", self.objectives)
        counts = [self.training.tasks, *self.columns]
        require(len(set(counts)) == len(counts), "other columns than training.tasks, once", counts)
        for count in self.columns:
            require_positive("columns", count)
        labels = [objective.label for objective in self.objectives]
        require(len(set(labels)) == len(labels), "every method once", labels)
        for d in self.dimensions:
            require(1 <= d < self.successor.num_states, f"d in [1, {self.successor.num_states})", d)
        require(
            self.headline_dimension in self.dimensions,
            f"headline_dimension to be one of dimensions {self.dimensions}",
            self.headline_dimension,
        )
        require_positive("members", self.members)
        for objective in self.objectives:
            require_choice("objectives", str(objective.name), MASKABLE)
            require(
                getattr(objective, "precondition", None) is None
                and not getattr(objective, "whitening", False),
                "objectives without precondition and whitening, which mix masked features in",
                objective,
            )
            objective.require_rows(self.training.rows)

    @property
    def methods(self) -> dict[str, TrainingConfig]:
        """Return how each method trains, with features enough for the largest d, by its label."""
        most = max(self.dimensions)
        found = {}
        for objective in self.objectives:
            training = dataclasses.replace(self.training, objective=objective, num_features=most)
            found[objective.label] = training
            for count in self.columns if isinstance(objective, Explicit) else ():
                label = f"{objective.label}, {count} columns an update"
                found[label] = dataclasses.replace(training, tasks=count)
        return found

    def label_of(self, name: str) -> str | None:
        """Return the label of the first method of an objective, if there is one."""
        return next((each.label for each in self.objectives if each.name == name), None)

    @property
    def is_published(self) -> bool:
        """True for the paper's protocol, whatever is measured of it and when."""
        paper = PRESETS["paper"]
        trained = harness.agrees(self.training, paper.training, _FREE_OF_TRAINING)
        return trained and harness.agrees(self, paper, ("training", *_FREE))


_PROTOCOL = TrainingConfig(
    encoder=MLP(hidden=(512, 512)),
    optimizer=Optimizer(name="adam", learning_rate=1e-4, schedule="constant"),
    rows=250,
    tasks=1,
    states="uniform",
    steps=100_000_000,
    num_seeds=5,
    evaluate_every=20_000,
    checkpoint_every=100_000,
)

PRESETS: dict[str, Config] = {
    "smoke": Config(
        successor=MonteCarlo(bins=16, rollouts=50, horizon=200, block_rows=64, centring="rows"),
        training=dataclasses.replace(
            _PROTOCOL,
            encoder=MLP(hidden=(32,)),
            steps=100,
            num_seeds=2,
            evaluate_every=50,
            checkpoint_every=50,
        ),
        dimensions=(2, 5),
        headline_dimension=5,
    ),
    "laptop": Config(
        objectives=(*_METHODS[:2], LargeBatch()),
        training=dataclasses.replace(
            _PROTOCOL, steps=6_000, num_seeds=3, evaluate_every=500, checkpoint_every=1_000
        ),
        dimensions=(2, 5, 10, 20, 50),
    ),
    "paper": Config(training=_PROTOCOL, dimensions=(1, 2, 5, 10, 15, 20, 25, 50, 75, 100)),
    "trend": Config(
        objectives=(*_METHODS, Explicit()),
        columns=(20,),
        successor=MonteCarlo(bins=20, centring="rows"),
        training=dataclasses.replace(
            _PROTOCOL, steps=40_000, num_seeds=3, evaluate_every=1_000, checkpoint_every=2_000
        ),
        dimensions=(2, 10, 50),
    ),
}
"""Preset name → configuration."""

_FREE = ("dimensions", "headline_dimension", "members", "columns")
_FREE_OF_TRAINING = ("seed", "evaluate_every", "checkpoint_every")
"""Fields that change no run, or on which the paper is silent."""

DEVIATIONS = {
    "objectives.2.ridge": "The paper solves least squares over all cells as they are. A ridge "
    "keeps the solve defined where features depend on each other: of the mean eigenvalue 1.2e-6·d, "
    "the least in float32, below which the field's 1e-6 has no effect.",
    "moves inside puddles": "App. C.3 says that the agent only moves by 0.025 inside a puddle and "
    "that noise of standard deviation 0.01 is added. As in the authors' code, a puddle slows the "
    "path to the end point, noise included: wholly inside one, the noise's standard deviation is "
    "0.005 in place of 0.01, and a path across an edge is slowed on the part inside.",
    "means that are removed": "The text subtracts row sums to centre columns, which is ambiguous. "
    "As in the authors' code, each row's mean is subtracted.",
    "start of explicit weights": "The text is silent. As in the authors' code, weights start from "
    "N(0, 1), and one Adam moves the weights of all columns in every update.",
}


def masks(dimensions: Sequence[int], largest: int) -> Array:
    """Return 1 for the features of members with these d and 0 beyond, [members, largest]."""
    return jnp.asarray(np.arange(largest) < np.asarray(dimensions)[:, None], jnp.float32)


@configurable
@dataclasses.dataclass(frozen=True)
class Masked(Encoder):
    """An encoder with features [b, largest d] of which only those of a mask are not zero.

    Attributes:
        encoder: Gives all features.
        mask: 1 for those that are kept, [largest d].
    """

    encoder: Encoder = leaf()
    mask: Array = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(params, inputs) * self.mask[None, :]


def masked_learners(learner: Learner, mask: Array) -> Learner:
    """Make a population of learners, one for each mask [members, largest d]."""
    return stack(
        [dataclasses.replace(learner, encoder=Masked(learner.encoder, row)) for row in mask]
    )


def masked_evaluation(
    encoder: Encoder, inputs: Array, basis: Array
) -> Callable[[Params, Array], dict[str, Array]]:
    """Measure the subspace distance of each member to its own d leading components.

    Args:
        encoder: The encoder without mask.
        inputs: Encoder inputs of all states, [n, ...].
        basis: Leading left singular vectors, [n, largest d].

    Returns:
        A member's parameters and mask → ``subspace_distance``, [].
    """

    def evaluate(params: Params, mask: Array) -> dict[str, Array]:
        panel, _ = subspace.orthonormal_basis(Masked(encoder, mask).apply(params, inputs))
        residual = basis - matmul(panel, matmul(panel.T, basis))
        outside = jnp.sum(jnp.square(residual), axis=0)
        return {"subspace_distance": jnp.minimum(jnp.sum(mask * outside) / jnp.sum(mask), 1.0)}

    return evaluate


class Member(NamedTuple):
    """One run of a method."""

    d: int
    seed: int


class Cell(NamedTuple):
    """Runs of one method that one program makes.

    Attributes:
        label: Of the method.
        members: The runs.
    """

    label: str
    members: tuple[Member, ...]

    def described(self) -> dict[str, Any]:
        """Return what is trained, as JSON values."""
        return {"method": self.label, "members": [each._asdict() for each in self.members]}


class Group(NamedTuple):
    """The measurements of a cell.

    Attributes:
        steps: Updates at which it was measured, [p].
        distances: Subspace distances, [members, p]; 1 from where a run diverged.
        diverged: [members].
        features: Of the member that is drawn, [n, headline d], if it is among these.
        seconds: Time spent in updates.
    """

    steps: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    diverged: Sequence[bool]
    features: Array | None
    seconds: float


def prepare(run: Run[Config]) -> OwnGroundTruth:
    """Generate the ground truth in the run's folder."""
    config = run.config
    return own_ground_truth(
        config.successor, run.folder, max(config.dimensions), progress=run.progress
    )


def cells(run: Run[Config]) -> dict[str, Cell]:
    """Split every method's runs into programs of no more members than the configuration lets."""
    config, seeds = run.config, run.config.training.seeds
    members = tuple(Member(d, seed) for d in config.dimensions for seed in seeds)
    found: dict[str, Cell] = {}
    for label, training in config.methods.items():
        name = str(training.objective.name)
        for start in range(0, len(members), config.members):
            number = sum(other.startswith(f"{name}-") for other in found)
            found[f"{name}-{number}"] = Cell(label, members[start : start + config.members])
    return found


def measure(run: Run[Config], name: str, cell: Cell) -> Group:
    """Train a cell's members together."""
    config, ground = run.config, run.shared
    training = config.methods[cell.label]
    store = open_store(ground.path)
    learner = learner_for(training, ground.truth, store.shape[1], resets_diverged=True)
    inputs = ground.truth.inputs(learner.encoder)
    basis = jnp.asarray(ground.truth.principal.truncated(training.num_features).basis)
    mask = masks([member.d for member in cell.members], training.num_features)
    with batches_of(training, store, ground.truth, inputs) as source:
        result = train_population(
            masked_learners(learner, mask),
            source,
            steps=training.steps,
            seeds=[member.seed for member in cell.members],
            evaluate=masked_evaluation(learner.encoder, inputs, basis),
            measured=mask,
            evaluate_every=training.evaluate_every,
            folder=run.training_folder(name, **cell.described()),
            checkpoint_every=training.checkpoint_every,
            devices=run.devices,
            description=f"{name}, {len(cell.members)} runs",
            progress=run.progress,
        )
    features, drawn = None, Member(config.headline_dimension, training.seed)
    if drawn in cell.members:
        params = result.params(cell.members.index(drawn))
        features = jax.jit(learner.encoder.apply)(params, inputs)[:, : drawn.d]
    return Group(
        np.asarray([record["step"] for record in result.history]),
        np.transpose([record["subspace_distance"] for record in result.history]),
        result.history[-1]["diverged"],
        features,
        result.seconds,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Method:
    """The measurements of one method.

    Attributes:
        steps: Updates at which it was measured, [p].
        distances: d → subspace distances, [seeds, p].
        diverged: d → how many runs diverged; their distance is 1.
        features: Those that are drawn, of the headline d and the first seed, [n, d].
        seconds: Time spent in updates of all d and seeds.
    """

    steps: npt.NDArray[np.int64]
    distances: Mapping[int, npt.NDArray[np.float64]]
    diverged: Mapping[int, int]
    features: Array
    seconds: float

    @classmethod
    def of_groups(cls, config: Config, groups: Sequence[Group]) -> "Method":
        """Collect the runs of all programs of a method, in the order of ``cells``."""
        by_d = (len(config.dimensions), config.training.num_seeds)
        distances = np.concatenate([group.distances for group in groups])
        diverged = np.concatenate([group.diverged for group in groups]).reshape(by_d).sum(axis=1)
        (features,) = (group.features for group in groups if group.features is not None)
        return cls(
            steps=groups[0].steps,
            distances=dict(zip(config.dimensions, distances.reshape(*by_d, -1), strict=True)),
            diverged=dict(zip(config.dimensions, diverged.tolist(), strict=True)),
            features=features,
            seconds=sum(group.seconds for group in groups),
        )


Methods = Mapping[str, Method]


def compare_with_paper(config: Config, methods: Methods) -> list[Found]:
    """Decide the three statements of Sec. 5.3 about Fig. 4, under the paper's protocol alone.

    Seeds are common to all d, so a rise from the smallest d to the largest is one run's own.
    """
    few, many = min(config.dimensions), max(config.dimensions)
    lissa, large, explicit = "danskin_lissa", "large_batch", "explicit"
    labels = {name: config.label_of(name) for name in (lissa, large, explicit)}
    ends = {
        name: {d: runs[:, -1] for d, runs in methods[label].distances.items()}
        for name, label in labels.items()
        if label is not None and label in methods
    }
    rises = {name: mean_interval(each[many] - each[few]) for name, each in ends.items()}

    def found(*names: str) -> str:
        return "; ".join(
            f"{labels[name]} "
            + ", ".join(f"{ends[name][d].mean():.3f} (d = {d})" for d in (few, many))
            for name in names
            if name in ends
        )

    def decided(
        needed: tuple[str, ...], verdicts: Callable[[], Sequence[bool | None]]
    ) -> bool | None:
        told = config.is_published and many > few and set(needed) <= set(ends)
        return harness.all_hold(verdicts()) if told else None

    return [
        Found(
            statement="Danskin-LISSA with growing d (Sec. 5.3, Fig. 4)",
            stated="degrades gracefully, where Large Batch does not",
            found=found(lissa, large),
            holds=decided((lissa, large), lambda: [rises[lissa].below(rises[large])]),
        ),
        Found(
            statement="Large Batch with growing d (Sec. 5.3, Fig. 4)",
            stated="is only practical for small d",
            found=found(large, lissa),
            holds=decided(
                (lissa, large),
                lambda: [
                    mean_interval(ends[large][few]).below(mean_interval(ends[large][many])),
                    mean_interval(ends[lissa][many]).below(mean_interval(ends[large][many])),
                ],
            ),
        ),
        Found(
            statement="Explicit weights (Sec. 5.3, Fig. 4)",
            stated="perform poorly: one column at a time leaves weights stale",
            found=found(explicit, lissa),
            holds=decided(
                (lissa, explicit),
                lambda: [
                    mean_interval(ends[lissa][d]).below(mean_interval(ends[explicit][d]))
                    for d in config.dimensions
                ],
            ),
        ),
    ]


def report(run: Run[Config], found: Mapping[str, Group]) -> Findings:
    """Draw distances and components, and judge the paper's ordering."""
    config, ground = run.config, run.shared
    groups: dict[str, list[Group]] = {}
    for cell, group in zip(cells(run).values(), found.values(), strict=True):
        groups.setdefault(cell.label, []).append(group)
    methods = {label: Method.of_groups(config, parts) for label, parts in groups.items()}
    rows = [
        {
            "method": label,
            "d": d,
            "step": int(method.steps[-1]),
            "diverged": method.diverged[d],
            "noise_floor": ground.floor(d),
            **aggregate(distances[:, -1], within=(0.0, 1.0)),
        }
        for label, method in methods.items()
        for d, distances in method.distances.items()
    ]
    note = f"{over_runs(config.training.num_seeds)}; a run that diverged counts 1"
    columns: dict[str, Any] = {
        "method": "method",
        "d": "d",
        **harness.MEANS,
        "noise floor": "noise_floor",
        "diverged": harness.diverged_of,
    }
    table = harness.table_of(
        rows,
        columns,
        f"Subspace distance after {config.training.steps:,} updates: {note}. The middle half is "
        "the interquartile mean.",
    )
    dimensions = config.dimensions
    lines = [
        Line.of_runs(
            label,
            dimensions,
            np.stack([method.distances[d][:, -1] for d in dimensions], axis=1),
            within=(0.0, 1.0),
        )
        for label, method in methods.items()
    ]
    by_dimension = plot_panels(
        [
            Panel(
                title=f"after {config.training.steps:,} updates",
                lines=lines,
                noise_floor=floor_of(ground.noise_floor, dimensions),
            )
        ],
        x_label="number of features d",
        y_label=DISTANCE,
        log_x=True,
        x_ticks=dimensions,
        note=note,
    )
    curves = plot_panels(
        [
            Panel(
                title=label,
                lines=[
                    Line.of_runs(f"d = {d}", method.steps, distances, within=(0.0, 1.0))
                    for d, distances in method.distances.items()
                ],
            )
            for label, method in methods.items()
        ],
        x_label="update",
        y_label=DISTANCE,
        note=note,
    )
    points = [
        row
        for label, method in methods.items()
        for d, distances in method.distances.items()
        for row in harness.curve_rows(method.steps, distances, method=label, d=d)
    ]
    figures = [
        run.show(
            "distance_by_dimension",
            "Subspace distance against the number of features. The dashed line is the error of the "
            "ground truth itself.",
            rows,
            by_dimension,
        ),
        run.show("curves", "Subspace distance during training.", points, curves),
        _components(run, methods),
    ]
    return Findings(
        abstract=_abstract(config, methods),
        claims=compare_with_paper(config, methods),
        sections=[
            Section(title="Against the paper"),
            Section(title="Distances", tables=[table], figures=figures),
        ],
        summary={
            "ground_truth": {
                **generation_figures(run.folder, config.successor),
                "standard_error": ground.standard_error,
            },
            "distances": rows,
            "seconds": {label: round(method.seconds, 3) for label, method in methods.items()},
        },
    )


def _components(run: Run[Config], methods: Methods) -> tuple[Any, str]:
    """Draw the components of the headline d, rotated onto the true ones."""
    config, truth = run.config, run.shared.truth
    basis = truth.principal.truncated(config.headline_dimension).basis
    learned = {label: method.features for label, method in methods.items()}
    maps, cosines = harness.aligned(basis, learned)
    rows = []
    for label, method in methods.items():
        found = evaluation.evaluate_features(method.features, truth)
        pairs = zip(found["matched_cosines"], found["principal_angles"], strict=False)
        rows += [
            {
                "method": label,
                "component": number,
                "matched_cosine": cosine,
                "principal_angle": angle,
            }
            for number, (cosine, angle) in enumerate(pairs, start=1)
        ]
    figure = plot_components(
        {"ground truth": basis, **maps},
        bins=config.successor.bins,
        environment=load_arena(config.successor.arena),
        cosines=cosines,
    )
    caption = (
        f"The {config.headline_dimension} leading principal components (top row) and those learned "
        "by the first seed of each method, rotated within their span onto the true ones. |cos| is "
        "the cosine with the true component."
    )
    return run.show("components", caption, rows, figure)


_STATES = {"centres": "cells' centres", "uniform": "anywhere in the square"}


def _abstract(config: Config, methods: Methods) -> str:
    training, published = config.training, PRESETS["paper"].training.steps
    successor, paper = config.successor, PRESETS["paper"].successor
    seconds = sum(method.seconds for method in methods.values())
    runs = len(config.dimensions) * training.num_seeds
    hidden = " x ".join(map(str, getattr(training.encoder, "hidden", ())))
    fewer = ""
    if training.steps < published:
        fewer = (
            f" The paper takes {published:,} updates; this run took {training.steps:,}, "
            f"{published / training.steps:,.0f} times fewer: its methods are compared on the way."
        )
    if successor.num_states < paper.num_states:
        fewer += (
            f" The grid has {successor.bins} x {successor.bins} cells where the paper's has "
            f"{paper.bins} x {paper.bins}: another matrix, with other components. The run shows "
            "how distances move with d there and decides none of the paper's statements."
        )
    return (
        f"A ReLU network of hidden widths {hidden} on raw coordinates, Adam at "
        f"{training.optimizer.learning_rate:g}, {training.rows} states "
        f"({_STATES[training.states]}) and one task an update. Components of the matrix less "
        f"{CENTRING[successor.centring].removesuffix(' removed')}. {runs} runs of each method "
        f"trained together, {seconds:,.0f} s in all.{fewer}"
    )


EXPERIMENT = Experiment(
    name="puddle-world",
    title=lambda config: (
        "PuddleWorld under the paper's protocol"
        if config.is_published
        else "PuddleWorld by the paper's methods, with less than its protocol"
    ),
    paper="Le Lan et al. 2023, Section 5.3, Figure 4 and Appendix C.3",
    presets=PRESETS,
    prepare=prepare,
    cells=cells,
    measure=measure,
    report=report,
    # Each program resumes from its checkpoints, and a figure needs features at all states.
    keeps_parts=False,
    deviations=DEVIATIONS,
)
