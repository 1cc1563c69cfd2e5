"""Every objective on the same chains, beside the exact truth.

**Question.** Which objective comes closest to what it is meant to find, to the singular functions
of the density ratio M̃, and to values; after how many updates, seconds and environment steps?

**Worlds** are chains between 20 x 20 cells under the random policy: cells of the place in an arena,
or of the angle and the velocity of Gymnasium's pendulum. The chain is counted from 256 moves from
each cell by each action (the pendulum's from 64 by each of three torques), and then is the world
itself, so that every truth is exact (``rlreps.successor.truths``). States are drawn uniformly. All
objectives see the two coordinates through the same encoder, whose cosines can represent any
function of the cells.

**Rows.** An objective sees entries of the successor measure Ψ (columns centred), transitions
(s, s'), or futures (s, s⁺), s⁺ from the normalised successor measure. A transition costs one
environment step, a future 1/(1 - γ) of them on average; an entry of an exact matrix has no such
cost. Each objective is measured against its own truth and against M̃: a large distance from M̃ of
an objective that reaches its own truth does not mean that the optimiser failed. Where d separates a
complex pair, temporal differences have no fixed point, and the distance to the own truth stays
empty. Self-prediction has no optimum: only some starts reach its truth here, the functions of
largest |λ|.

**Tuning.** Every objective has the same number of trials in each world, on seeds that are not
reported, with equal updates (not equal time): a grid of learning rates by an option of its own, or
of as many more learning rates where it has none. The trial whose last distance to the own truth is
least is taken: tuned with the truth at hand, all alike.

**Controls** need no training: the cosines of lowest frequency and untrained random features, both
beside the constant, and the singular functions of a chain that is counted from as many transitions
as others draw.

**Time** is that of updates alone, of all seeds in one program, divided by their number. R² is of
values of random policies for random rewards at the states without a label, from a ridge regression
on whitened features.
"""

import dataclasses
import importlib.resources
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from rlreps.config import with_sizes
from rlreps.encoders import Cosine, TwoTowers
from rlreps.errors import InputError, require
from rlreps.experiments import harness
from rlreps.experiments.harness import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    Curve,
    Drawn,
    Experiment,
    Frame,
    Measure,
    Results,
    Rows,
    Run,
    Tabulated,
    design_of,
    in_path,
)
from rlreps.experiments.harness.figures import aligned
from rlreps.experiments.ours import few_labels
from rlreps.experiments.ours.contestants import CONTROLS, OBJECTIVES, PENDULUM, Row, World
from rlreps.plotting import plot_components
from rlreps.runs.intervals import mean_interval, median_interval, samples_to_reach
from rlreps.subspace.metrics import orthonormal_basis
from rlreps.successor.forward_backward import unexplained_share
from rlreps.successor.truths import Truth
from rlreps.training import Learner, Optimizer, train_population
from rlreps.training.population import TrainingResult, stack


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """All rows in all worlds at every d.

    Attributes:
        worlds: Arenas.
        bins: Cells along each axis; in mazes walls lie along the sides of 20.
        rows: Objectives and controls.
        tuned_at: The d at which options are tuned.
        steps: Updates, of a trial too.
        batch: Rows of an update, and columns where entries are seen.
        evaluations: Measurements after the first.
        trials: Number of trials of each objective in each world.
        rates: Least and largest learning rate of the trials.
        tuning_seeds: Seeds of each trial.
        thresholds: Distances to the own truth, the time to which is reported.
        labels: States with known values.
        draws: Number of draws of labelled states, for each seed.
    """

    worlds: tuple[str, ...] = ("sutton", "spiral", "four_rooms", PENDULUM)
    bins: int = 20
    rows: tuple[Row, ...] = (*OBJECTIVES, *CONTROLS)
    dimensions: tuple[int, ...] = (5, 10, 20)
    tuned_at: int = 10
    discount: float = 0.95
    steps: int = 2_000
    batch: int = 256
    evaluations: int = 40
    encoder: Cosine
    trials: int = 9
    rates: tuple[float, float] = (1e-3, 1e-1)
    tuning_seeds: int = 1
    num_seeds: int = 10
    thresholds: tuple[float, ...] = (0.1, 0.03, 0.01)
    labels: int = 50
    draws: int = 5


_SHOWN = ("large batch", "OMM", "TD low rank")
_FULL = Cosine(frequencies=19)

_DRAWN = 10
"""Most features whose pictures are kept, of the first seed."""

PRESETS = {
    "smoke": Config(
        worlds=("sutton",),
        bins=8,
        rows=(*(row for row in OBJECTIVES if row.method in _SHOWN), *CONTROLS),
        dimensions=(3,),
        tuned_at=3,
        steps=200,
        batch=64,
        evaluations=4,
        encoder=Cosine(frequencies=7),
        trials=6,
        num_seeds=2,
        draws=2,
    ),
    "laptop": Config(encoder=_FULL),
    "paper": Config(
        encoder=_FULL,
        dimensions=(5, 10, 20, 50),
        steps=20_000,
        batch=512,
        trials=24,
        tuning_seeds=3,
        num_seeds=20,
    ),
}


# --- What is trained ------------------------------------------------------------------------------


def forward(encoder: Any, params: Any, inputs: Array) -> Array:
    """Compute the features that are the representation: of two towers those of the first."""
    if isinstance(encoder, TwoTowers):
        encoder, params = encoder.forward, params["forward"]
    features: Array = encoder.apply(params, inputs)
    return features


def learner_of(config: Config, row: Row, d: int, rate: float, value: float) -> Learner:
    """Make the update of an objective at d with a learning rate and a value of its own option."""
    assert row.objective is not None
    one = with_sizes(config.encoder, num_features=d)
    encoder = TwoTowers(one, one) if row.towers else one
    sizes = {"num_features": d, "num_tasks": config.bins**2, "encoder_learning_rate": rate}
    objective = with_sizes(row.objective, encoder=encoder, **sizes)
    own: dict[str, Any] = {row.option: value} if row.option else {}
    own |= {"discount": config.discount} if hasattr(objective, "discount") else {}
    return Learner(
        encoder=encoder,
        objective=dataclasses.replace(objective, **own),
        optimizer=Optimizer(learning_rate=rate, steps=config.steps),
        rows=config.batch,
        tasks=config.batch if row.sees == "entries" else 1,
        resets_diverged=True,
    )


def figures(features: Array, truth: Truth, density: Truth) -> dict[str, Array]:
    """Measure features [n, d] against the own truth and against M̃."""
    cosines = truth.cosines(features)
    return {
        "subspace_distance": truth.distance(features),
        "density_distance": density.distance(features),
        "cosine": jnp.mean(cosines),
        "least_cosine": jnp.min(cosines),
    }


def trained(
    run: Run[Config],
    world: World,
    row: Row,
    learners: Sequence[Learner],
    seeds: Sequence[int],
    evaluations: int,
    **options: Any,
) -> tuple[TrainingResult, bool]:
    """Train members of one program; return them, and whether there is a truth of their own."""
    density, encoder = world.density(row, learners[0].objective.num_features), learners[0].encoder
    own = [world.own_truth(row, *each) for each in zip(learners, seeds, strict=True)]
    known = [each for each in own if each is not None]
    measured = known if len(known) == len(own) else [density] * len(own)
    result = train_population(
        stack(learners),
        world.source(row),
        steps=run.config.steps,
        seeds=seeds,
        evaluate=lambda params, truth: figures(
            forward(encoder, params, world.inputs), truth, density
        ),
        measured=jax.tree.map(lambda *each: jnp.asarray(np.stack(each), jnp.float32), *measured),
        evaluate_every=run.config.steps // evaluations,
        **options,
    )
    return result, len(known) == len(own)


def trials(config: Config, row: Row) -> list[tuple[float, float]]:
    """List the learning rates and values of the own option of an objective's trials.

    Raises:
        InputError: If there are too many values for two learning rates each.
    """
    values = row.values or (math.nan,)
    most = config.trials // 2
    require(len(values) <= most, f"at most {most} values of {row.option}", len(values))
    rates = np.geomspace(*config.rates, config.trials // len(values)).tolist()
    return [(rate, value) for rate in rates for value in values]


def trials_of(row: Row, arena: str) -> str:
    """Name the trials of an objective in a world."""
    return in_path(f"trials {row.method} {arena}")


def tune(run: Run[Config], name: str, cell: tuple[Row, str]) -> dict[str, Any]:
    """Try every setting of an objective in a world; return them all, the best first."""
    config, (row, arena) = run.config, cell
    tried, first = trials(config, row), config.num_seeds
    seeds = [*range(first, first + config.tuning_seeds)] * len(tried)
    learners = [
        learner_of(config, row, config.tuned_at, *each)
        for each in tried
        for _ in range(config.tuning_seeds)
    ]
    world = run.shared.worlds[arena]
    result, known = trained(run, world, row, learners, seeds, 1, description=name)
    value = "subspace_distance" if known else "density_distance"
    found = np.reshape(result.history[-1][value], (len(tried), -1)).mean(axis=1)
    order = np.argsort(found, kind="stable")
    return {"trials": [[*tried[index], float(found[index])] for index in order]}


# --- What is measured -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Shared:
    """Worlds and tuned options, which all cells share.

    Attributes:
        worlds: By arena.
        tuned: Name of an objective's trials in a world → them, the best first.
        left_out: Method → why it cannot be trained here.
    """

    worlds: Mapping[str, World]
    tuned: Mapping[str, Any]
    left_out: Mapping[str, str]


def prepare(run: Run[Config]) -> Shared:
    """Count the worlds, and tune every objective in each of them.

    Raises:
        InputError: If no row can be trained here.
    """
    config, trained_rows = run.config, [row for row in run.config.rows if row.objective is not None]
    worlds = {
        arena: World.of(arena, config.bins, config.discount, config.rows) for arena in config.worlds
    }
    left_out = {}
    for row in trained_rows:
        try:
            learner = learner_of(config, row, config.tuned_at, *trials(config, row)[0])
            learner.check(next(iter(worlds.values())).source(row))
        except InputError as error:
            left_out[row.method] = str(error).partition("\n")[0]
    if len(left_out) == len(config.rows):
        raise InputError("; ".join(left_out.values()))
    run.shared = Shared(worlds, {}, left_out)
    able = [row for row in trained_rows if row.method not in left_out]
    cells = {trials_of(row, arena): (row, arena) for row in able for arena in worlds}
    return Shared(worlds, run.measured(tune, cells, keep=True, title="trials"), left_out)


def cells(run: Run[Config]) -> dict[str, dict[str, Any]]:
    """Return every row in every world at every d."""
    config = run.config
    rows = {row.method: row for row in config.rows if row.method not in run.shared.left_out}
    axes: Any = {"method": rows, "world": config.worlds, "d": config.dimensions}
    found = harness.crossed("{method}-{world}-{d}", **axes)
    return {name: {**cell, "row": rows[cell["method"]]} for name, cell in found.items()}


def measure(run: Run[Config], name: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Train all seeds of an objective, or measure a control; values are [seeds, evaluations]."""
    config, row, d = run.config, cell["row"], cell["d"]
    world, seeds = run.shared.worlds[cell["world"]], range(config.num_seeds)
    steps = range(0, config.steps + 1, config.steps // config.evaluations)
    nothing = [[math.nan]]
    if row.objective is None:
        tables = [
            world.control(row, d, seed, [step * config.batch for step in steps]) for seed in seeds
        ]
        truth = world.density(row, d)
        measured = [[figures(each, truth, truth) for each in table] for table in tables]
        values = {
            each: [[float(one[each]) for one in line] for line in measured]
            for each in ("subspace_distance", "density_distance")
        }
        values |= {"cosine": nothing, "least_cosine": nothing, "diverged": [[0.0]]}
        values["seconds"] = nothing
        features = [table[-1] for table in tables]
    else:
        rate, value, _ = run.shared.tuned[trials_of(row, cell["world"])]["trials"][0]
        learner = learner_of(config, row, d, rate, value)
        folder = run.training_folder(name, row=row, d=d, rate=rate, value=value)
        learners = [learner] * len(seeds)
        result, known = trained(
            run, world, row, learners, seeds, config.evaluations, folder=folder, description=name
        )
        unknown = set() if known else {"subspace_distance"}
        unknown |= set() if row.ordered and known else {"cosine", "least_cosine"}
        values = {
            each: np.transpose([record[each] for record in result.history]).tolist()
            for each in (
                "subspace_distance",
                "density_distance",
                "cosine",
                "least_cosine",
                "diverged",
            )
        }
        values |= dict.fromkeys(unknown, nothing)
        values["seconds"] = [[record["seconds"] / len(seeds) for record in result.history]]
        features = [forward(learner.encoder, result.params(seed), world.inputs) for seed in seeds]
    values["r2"] = [[explained(config, world, *each)] for each in zip(features, seeds, strict=True)]
    pictures = np.round(np.asarray(features[0], np.float64), 4).tolist()
    return {"values": values, "steps": [*steps], "features": pictures if d <= _DRAWN else None}


def explained(config: Config, world: World, features: Array, seed: int) -> float:
    """Compute R² of values at states without a label, the mean over draws of labelled states."""
    basis = np.asarray(orthonormal_basis(features)[0], np.float64) * len(features) ** 0.5
    how = few_labels.Config(discount=config.discount)
    values = few_labels.value_functions(world.model, how, seed)
    rng = np.random.default_rng((seed, 1))
    orders = (rng.permutation(len(basis))[: config.labels] for _ in range(config.draws))
    return 1.0 - float(np.mean([unexplained_share([basis], values, each) for each in orders]))


def frame(run: Run[Config], cell: Mapping[str, Any], found: Mapping[str, Any]) -> Frame:
    """Put a cell into long form, with what its updates cost in environment steps."""
    config, row = run.config, cell["row"]
    costs = {"entries": math.nan, "transitions": 1.0, "nothing": math.nan}
    cost = config.batch * costs.get(row.sees, 1.0 / (1.0 - config.discount))
    values = {name: np.asarray(each, np.float64) for name, each in found["values"].items()}
    return Frame.grid(
        {**values, "environment_steps": np.round(np.asarray([found["steps"]]) * cost)},
        seed=range(config.num_seeds),
        step=found["steps"],
        **{name: cell[name] for name in KEYS},
        sees=row.sees,
        family=row.family,
        truth=row.truth,
        options=(row.objective is not None) + bool(row.option),
    )


# --- What is reported -----------------------------------------------------------------------------

KEYS = ("world", "d", "method")

NEVER = "never"

DENSITY = Measure(
    value="density_distance",
    label="subspace distance to M̃ (0 equal, 1 orthogonal)",
    within=(0.0, 1.0),
    log=True,
)


def lines(results: Results[Config]) -> Rows:
    """Tabulate every row at the end of training: means over seeds with intervals."""
    found, named = [], (*KEYS, "sees", "truth", "options")
    for values, group in results.ends.groups(*named).items():
        row: dict[str, object] = dict(zip(named, values, strict=True))
        for name in ("subspace_distance", "density_distance", "cosine", "least_cosine", "r2"):
            column = np.asarray(group[name], np.float64)
            ends: list[float | None] = [None] * 3
            if np.isfinite(column).all():
                # No distance and no cosine is below 0; R² may be.
                least = -math.inf if name == "r2" else 0.0
                ends = np.clip(mean_interval(column), least, 1.0).tolist()
            row |= zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
        diverged = int(np.sum(group["diverged"]))
        found.append({**row, "seconds": float(group["seconds"][0]), "diverged": diverged})
    return [*found, *released(results, "benchmark")]


def by_world(value: str) -> Callable[[Results[Config]], Rows]:
    """Return what tabulates means of a value at ``tuned_at``, a line a method and column a world.

    Methods are sorted by the mean over worlds, the best first, and those that lack the value of a
    world last. Methods without any value are left out.
    """

    def tabulated(results: Results[Config]) -> Rows:
        found: dict[str, dict[str, object]] = {}
        for row in results.once(lines):
            if row["d"] == results.config.tuned_at:
                line = {name: row[name] for name in ("method", "sees", "truth")}
                found.setdefault(str(row["method"]), line)[str(row["world"])] = row[value]
        sign = 1.0 if value.endswith("distance") else -1.0

        def rank(line: Mapping[str, Any]) -> float:
            values = [line.get(world) for world in results.config.worlds]
            return math.inf if None in values else sign * float(np.mean(np.asarray(values)))

        known = [
            line
            for line in found.values()
            if any(isinstance(each, float) for each in line.values())
        ]
        return sorted(known, key=rank)

    return tabulated


def released(results: Results[Config], name: str) -> Rows:
    """Read the rows that come with the package, where all else is as they were made."""
    whole, here = PRESETS["laptop"], {row.method for row in results.config.rows}
    same = dataclasses.replace(results.config, rows=whole.rows) == whole
    if not same or {row.method for row in whole.rows} <= here:
        return []
    file = importlib.resources.files("rlreps.data") / f"{name}.json"
    rows: Rows = json.loads(file.read_text(encoding="utf-8"))
    return [{**row, "released": True} for row in rows if row["method"] not in here]


def times(results: Results[Config]) -> Rows:
    """Tabulate what each row needs to come within each threshold: medians with intervals."""
    found = []
    for values, group in results.frame.groups(*KEYS).items():
        curves, _, steps = group.pivot("subspace_distance", "seed", "step")
        for threshold in results.config.thresholds:
            row: dict[str, object] = dict(zip(KEYS, values, strict=True))
            never = int(np.isinf(samples_to_reach(steps, -curves, -threshold)).sum())
            row |= {"threshold": threshold, "never": never}
            for name in ("step", "seconds", "environment_steps"):
                # The same for all seeds.
                places = group.adding(place=group[name]).pivot("place", "seed", "step")[0][0]
                ends: Sequence[float | None] = (None,) * 3
                if np.isfinite(places).all():
                    reached = median_interval(samples_to_reach(places, -curves, -threshold))
                    ends = [None if math.isnan(each) else each for each in reached]
                row |= {
                    f"{name}{end}": NEVER if each == math.inf else each
                    for end, each in zip(("", "_low", "_high"), ends, strict=True)
                }
            found.append(row)
    return [*found, *released(results, "benchmark_times")]


_PICTURES = 4
"""Functions whose pictures are shown."""

FAMILIES = {
    "entries": ("entries", "objectives that see entries"),
    "transitions": ("transitions", "objectives that see transitions"),
    "futures": ("futures", "objectives that see futures, without order"),
    "futures, ordered": ("futures_ordered", "ordered objectives that see futures"),
}
"""``Row.family`` → how names of its figures end, and what they show."""


def curves(start: str, x: Axis, y: Measure = SUBSPACE_DISTANCE) -> list[Curve]:
    """Draw a distance at ``tuned_at``, where both it and x are known and x is above 0.

    Each family has a figure of all worlds, with the controls.
    """

    def of(family: str) -> Callable[[Results[Any], Frame], Frame]:
        def known(results: Results[Any], rows: Frame) -> Frame:
            methods = [row.method for row in results.config.rows if row.family == family]
            methods += [row.method for row in CONTROLS if methods]
            above: Any = {x.column: lambda each: each > 0, y.value: np.isfinite}
            return rows.where(d=results.config.tuned_at, method=methods, **above)

        return known

    return [
        Curve(
            name=f"{start}_{spelled_family}",
            caption=f"{y.label[0].upper()}{y.label[1:]}: {shown}, and controls where they have an "
            f"{x.label}, d = {{config.tuned_at}}; each against its own truth unless M̃ is named.",
            x=x,
            y=y,
            of=of(family),
            panel="{world}",
        )
        for family, (spelled_family, shown) in FAMILIES.items()
    ]


def draw_components(results: Results[Config], family: str) -> tuple[Rows | None, Figure] | None:
    """Draw what the first seed learned in the first world at ``tuned_at``, beside M̃'s functions.

    Features are rotated within their span onto the functions, which are orthogonal as they are:
    states are drawn uniformly.
    """
    config, arena = results.config, results.config.worlds[0]
    world, drawn = results.run.shared.worlds[arena], {}
    for name, frame_ in results.cells.items():
        chosen = frame_.where(world=arena, d=config.tuned_at, family=family)
        if len(chosen) and results.found[name]["features"] is not None:
            drawn[str(chosen["method"][0])] = jnp.asarray(results.found[name]["features"])
    if not drawn:
        return None
    behind = world.truths["M̃"].behind_constant().first(config.tuned_at).functions
    exact = behind / np.linalg.norm(behind, axis=0)
    maps, cosines = aligned(exact, drawn)
    shown = slice(_PICTURES)
    exact, maps, cosines = (
        exact[:, shown],
        *(
            {name: np.asarray(each)[..., shown] for name, each in found.items()}
            for found in (maps, cosines)
        ),
    )
    figure = plot_components(
        {"M̃": exact, **maps}, bins=config.bins, cells=world.model.cells, cosines=cosines
    )
    return None, figure


EXPERIMENT = Experiment(
    name="benchmark",
    title="Every objective beside the exact truth",
    paper="Our own experiment.",
    presets=PRESETS,
    prepare=prepare,
    cells=cells,
    measure=measure,
    frame=frame,
    value=SUBSPACE_DISTANCE,
    sections={
        "Table": [
            "{config.num_seeds} seeds, {config.steps:,} updates, {config.trials} trials of each "
            "objective in each world.",
            design_of(__doc__),
            Tabulated(
                name="own_distances",
                rows=by_world("subspace_distance"),
                caption="Distance to the own truth, d = {config.tuned_at}: means over seeds.",
            ),
            Tabulated(
                name="density_distances",
                rows=by_world("density_distance"),
                caption="Distance to M̃'s functions, d = {config.tuned_at}: means over seeds.",
            ),
            Tabulated(
                name="least_cosines",
                rows=by_world("least_cosine"),
                caption="Least |cosine| of a feature with its own function, ordered objectives, "
                "d = {config.tuned_at}: means over seeds.",
            ),
            Tabulated(
                name="values",
                rows=by_world("r2"),
                caption="R² of values from {config.labels} labels, d = {config.tuned_at}: means "
                "over seeds.",
            ),
            Tabulated(
                name="benchmark",
                rows=lines,
                caption="The end of training: means over seeds with 95 % intervals. Cosines are of "
                "ordered objectives: the mean over components, and the least.",
            ),
            Tabulated(
                caption="Objectives that cannot be trained here.",
                rows=lambda results: [
                    {"method": method, "why": why}
                    for method, why in results.run.shared.left_out.items()
                ],
            ),
        ],
        "Time": [
            Tabulated(
                name="benchmark_times",
                rows=times,
                caption="Until the distance to the own truth is below a threshold in two of three "
                "evaluations in a row: the median over seeds and its 95 % interval by order "
                "statistics. A run that does not reach it counts as infinite.",
            ),
        ],
        "Curves": [
            *curves("own_by_update", STEP),
            *curves("density_by_update", STEP, DENSITY),
            *curves("own_by_time", Axis("seconds", "training time (s)", log=True)),
        ],
        "Components": [
            Drawn(
                name=f"components_{spelled_family}",
                caption="Functions of M̃ behind the constant in {config.worlds[0]}, and features of "
                f"{shown} at d = {{config.tuned_at}}, rotated within their span onto them.",
                draw=partial(draw_components, family=family),
            )
            for family, (spelled_family, shown) in FAMILIES.items()
        ],
    },
    stated="our goal",
)
