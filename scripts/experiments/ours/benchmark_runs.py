"""How one row of the benchmark is tuned, trained and measured in one world."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import with_sizes
from rlreps.cumulants import Cumulants
from rlreps.encoders import MLP, Convolutional, Cosine, Encoder, TwoTowers
from rlreps.errors import InputError, require
from rlreps.experiments.ours import few_labels
from rlreps.experiments.ours.chain_truths import Truth
from rlreps.experiments.ours.chains import PENDULUM, KnownChain
from rlreps.experiments.ours.contestants import (
    CONTROLS,
    OBJECTIVES,
    OF_PLANE,
    OfPixels,
    Row,
    digest_of_code,
    row_of,
)
from rlreps.experiments.ours.released import read_released, released_rest
from rlreps.losses import CumulantDifferences
from rlreps.study import Frame, Run, in_path
from rlreps.subspace import orthonormal_basis
from rlreps.training import Learner, Optimizer, TrainingResult, stack, train_population
from rlreps.typing import DoubleArray
from rlreps.worlds import load

Found: TypeAlias = dict[str, Any]

_ENCODER = Cosine(frequencies=19)

_CHANNELS = (16, 16, 32)
"""Channels of the convolutions that encode pictures."""

_DRAWN = 10
"""Largest number of the first seed's features whose pictures are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """All rows in all worlds at every d.

    Attributes:
        worlds: Arenas, the pendulum, or named worlds.
        bins: Cells along each axis; with 20, the walls of mazes lie along the cells' sides.
        rows: Objectives and controls.
        tuned_at: The d at which options are tuned.
        steps: Number of updates, also of a trial.
        batch: Rows of an update; for objectives that see entries, the number of columns too.
        evaluations: Measurements after the one before the first update.
        trials: Number of trials of each objective in each world.
        rates: Least and largest learning rate of the trials.
        tuning_seeds: Seeds of each trial.
        thresholds: Distances to the own truth; the cost of reaching each is reported.
        labels: States with known values.
        draws: Number of draws of labelled states, for each seed.
        world_digest: Digest of the world that the user names; None for the preset's worlds.
        objective_digest: Digest of the place and the file of the objective that the user names;
            None for the preset's rows.
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
    encoder: Encoder = _ENCODER
    trials: int = 9
    rates: tuple[float, float] = (1e-3, 1e-1)
    tuning_seeds: int = 1
    num_seeds: int = 10
    thresholds: tuple[float, ...] = (0.1, 0.03, 0.01)
    labels: int = 50
    draws: int = 5
    world_digest: str | None = None
    objective_digest: str | None = None


def with_objective(config: Config, place: str) -> Config:
    """Return a configuration whose only row is one of the user's own; see ``row_of``."""
    row = row_of(place)
    digest = digest_of_code(place, row.objective)
    return dataclasses.replace(config, rows=(row,), objective_digest=digest)


def in_world(config: Config, name: str) -> Config:
    """Return a configuration for one named world: its encoder, its rows, and ``tuned_at`` alone.

    Agents that see their place in a plane keep the encoder. A convolutional network encodes
    pictures, from batches of a quarter of the rows; an MLP encodes all other observations. Both
    have learning rates of their own.

    Raises:
        InputError: For a world that does not exist, whose chain has no truth, or that has too few
            or too many states; or if no row makes sense in it.
    """
    digest = load(name).digest  # Builds a world that is not in the cache.
    world = KnownChain.of(name, config.bins, config.discount)
    states, shape = world.world.num_states, world.inputs.shape[1:]
    require(states > config.tuned_at, f"a world of more than {config.tuned_at} states", states)
    rows = tuple(row for row in config.rows if world.in_plane or row not in OF_PLANE)
    require(bool(rows), "a preset and an objective to train in the world", "none")
    encoder, batch, rates = config.encoder, config.batch, config.rates
    if len(shape) == 3:
        encoder, batch = Convolutional(frame_shape=shape, channels=_CHANNELS), batch // 4
    elif not world.in_plane:
        encoder = MLP(num_inputs=shape[0])
    if encoder is not config.encoder:
        rates = (3e-4, 1e-2)  # Of networks with hidden layers.
    return dataclasses.replace(
        config,
        worlds=(name,),
        rows=rows,
        dimensions=(config.tuned_at,),
        encoder=encoder,
        batch=batch,
        rates=rates,
        labels=min(config.labels, states // 2),
        world_digest=digest,
    )


def attempted(make: Callable[..., Found]) -> Callable[..., Found]:
    """Make a function return its error as ``failed``, so that the other rows go on.

    Errors of the machine (memory, files, devices) still end the run, which can be resumed.
    """

    @functools.wraps(make)
    def attempt(*arguments: Any) -> Found:
        try:
            return make(*arguments)
        except (MemoryError, OSError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:
            said = (
                str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            )
            return {"failed": said.partition("\n")[0]}

    return attempt


def forward(encoder: Any, params: Any, inputs: Array) -> Array:
    """Compute the features of the representation; of two towers, the first one's."""
    if isinstance(encoder, TwoTowers):
        encoder, params = encoder.forward, params["forward"]
    features: Array = encoder.apply(params, inputs)
    return features


def learner_of(
    config: Config, world: KnownChain, row: Row, d: int, rate: float, value: float | None
) -> Learner:
    """Make an objective's update at d, with a learning rate and a value of its tuned option."""
    assert row.objective is not None
    one = with_sizes(config.encoder, num_features=d)
    encoder = TwoTowers(one, one) if row.towers else one
    states, *shape = world.inputs.shape
    sizes = {"num_features": d, "num_tasks": states, "encoder_learning_rate": rate}
    objective = with_sizes(row.objective, encoder=encoder, **sizes)
    if isinstance(objective, CumulantDifferences):
        family: Cumulants = with_sizes(objective.cumulants, num_inputs=math.prod(shape))
        family = family if len(shape) == 1 else OfPixels(family)
        objective = dataclasses.replace(objective, cumulants=family)
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
    world: KnownChain, row: Row, learners: Sequence[Learner], seeds: Sequence[int], **options: Any
) -> tuple[TrainingResult, dict[str, DoubleArray]]:
    """Train members in one program; return them and their measures [members, evaluations].

    Measures of the own truth are NaN if there is none, and cosines are NaN if it has no order.
    """
    density, encoder = world.density(row, learners[0].objective.num_features), learners[0].encoder
    own = [world.own_truth(row, *each) for each in zip(learners, seeds, strict=True)]
    # M̃ replaces a missing truth here: a value that is not finite would count as diverged.
    measured = [density if each is None else each for each in own]
    result = train_population(
        stack(learners),
        world.source(row),
        seeds=seeds,
        # Otherwise XLA would fold convolutions of constants, for seconds.
        evaluate=lambda params, truth: figures(
            forward(encoder, params, lax.optimization_barrier(world.inputs)), truth, density
        ),
        measured=jax.tree.map(lambda *each: jnp.asarray(np.stack(each), jnp.float32), *measured),
        **options,
    )
    known = np.array([each is not None for each in own])
    told: dict[str, Any] = {"subspace_distance": known, "density_distance": True, "diverged": True}
    told |= dict.fromkeys(("cosine", "least_cosine"), known & row.ordered)
    return result, {
        name: np.where(kept, [record[name] for record in result.history], math.nan).T
        for name, kept in told.items()
    }


# --- Released rows --------------------------------------------------------------------------------


def released_rows(config: Config) -> tuple[Row, ...]:
    """Return the released rows that a run lacks, if it has the settings of the release."""
    return released_rest("benchmark", config, "rows", Config().rows)


# --- Tuning ---------------------------------------------------------------------------------------


def trials(config: Config, row: Row) -> list[tuple[float, float | None]]:
    """List the trials of an objective: a learning rate and a value of its option, or None.

    Raises:
        InputError: If there are too many values to try two learning rates with each.
    """
    values: tuple[float | None, ...] = row.values or (None,)
    most = config.trials // 2
    require(len(values) <= most, f"at most {most} values of {row.option}", len(values))
    rates = np.geomspace(*config.rates, config.trials // len(values)).tolist()
    return [(rate, value) for rate in rates for value in values]


@attempted
def fitting(config: Config, row: Row, world: KnownChain) -> Found:
    """Check that an objective fits a world; ``failed`` says why it cannot be trained."""
    if row.objective is not None:
        learner = learner_of(config, world, row, config.tuned_at, *trials(config, row)[0])
        learner.check(world.source(row))
    return {}


TRIALS = "trials-{row.method}-{world}"
"""Name of the trials of an objective in a world."""


@attempted
def tune(run: Run[Config], name: str, cell: Mapping[str, Any]) -> Found:
    """Try every setting of an objective in a world; return all settings, the best first.

    The score of a trial is the last distance to the own truth; for an ordered objective, 1 minus
    the mean |cosine|; without an own truth, the distance to M̃.
    """
    config, row, world = run.config, cell["row"], run.data[cell["world"]]
    tried, first = trials(config, row), config.num_seeds
    seeds = [*range(first, first + config.tuning_seeds)] * len(tried)
    learners = [
        learner_of(config, world, row, config.tuned_at, *each)
        for each in tried
        for _ in range(config.tuning_seeds)
    ]
    how: Any = {"steps": config.steps, "evaluate_every": config.steps, "description": name}
    _, found = trained(world, row, learners, seeds, **how)
    own = 1.0 - found["cosine"] if row.ordered else found["subspace_distance"]
    chosen = own if np.isfinite(own).any() else found["density_distance"]
    scores = np.nanmean(np.reshape(chosen[:, -1], (len(tried), -1)), axis=1)
    order = np.argsort(scores, kind="stable")
    return {"trials": [[*tried[index], float(scores[index])] for index in order]}


# --- Measurement ----------------------------------------------------------------------------------


@attempted
def measure(run: Run[Config], name: str, cell: Mapping[str, Any]) -> Found:
    """Train all seeds of an objective, or measure a control; values are [seeds, evaluations].

    A seed that diverged has the R² of no features. A released row has the values of the release.
    """
    config, row, d = run.config, cell["row"], cell["d"]
    if row not in config.rows:
        released: Found = read_released("benchmark")["cells"][name]
        return released
    world, seeds = run.data[cell["world"]], range(config.num_seeds)
    steps = range(0, config.steps + 1, config.steps // config.evaluations)
    values: dict[str, Any]
    if row.objective is None:
        tables = [
            world.control(row, d, seed, [step * config.batch for step in steps]) for seed in seeds
        ]
        features, truth = [table[-1] for table in tables], world.density(row, d)
        distances = [[float(truth.distance(each)) for each in table] for table in tables]
        values = {"subspace_distance": distances, "density_distance": distances}
        values["diverged"] = [[0.0]]
    else:
        tuned = run.shared[in_path(TRIALS.format(**cell))]
        if "failed" in tuned:
            return {"failed": f"tuning: {tuned['failed']}"}
        rate, value, _ = tuned["trials"][0]
        learner = learner_of(config, world, row, d, rate, value)
        about = {"row": row, "d": d, "rate": rate, "value": value}
        how = run.training(name, config.steps, config.evaluations, every=10, **about)
        result, found = trained(world, row, [learner] * len(seeds), seeds, **how)
        values = {each: figure.tolist() for each, figure in found.items()}
        values["seconds"] = [[record["seconds"] / len(seeds) for record in result.history]]
        features = [forward(learner.encoder, result.params(seed), world.inputs) for seed in seeds]
    lost = np.broadcast_to(np.asarray(values["diverged"])[:, -1], len(seeds))
    values["r2"] = [
        [0.0 if diverged else explained(config, world, each, seed)]
        for each, seed, diverged in zip(features, seeds, lost, strict=True)
    ]
    pictures = np.round(np.asarray(features[0], np.float64), 4).tolist()
    return {"values": values, "steps": [*steps], "features": pictures if d <= _DRAWN else None}


def explained(config: Config, world: KnownChain, features: Array, seed: int) -> float:
    """Compute R² of values at states without a label, the mean over draws of labelled states."""
    basis = np.asarray(orthonormal_basis(features)[0], np.float64) * len(features) ** 0.5
    values = few_labels.value_functions(
        world.world, world.places, config.discount, seed, num_policies=20, num_rewards=10
    )
    rng = np.random.default_rng((seed, 1))
    orders = (rng.permutation(len(basis))[: config.labels] for _ in range(config.draws))
    return 1.0 - float(
        np.mean([few_labels.unexplained_share([basis], values, each) for each in orders])
    )


MEASURED = ("subspace_distance", "density_distance", "cosine", "least_cosine", "r2")
"""Measures that are averaged over seeds."""

KEYS = ("world", "d", "method")


def frame(run: Run[Config], cell: Mapping[str, Any], found: Found) -> Frame:
    """Put a cell into long form, with the environment steps that its updates cost.

    A cell that failed has one step, without measures.
    """
    config, row = run.config, cell["row"]
    costs = {"entries": math.nan, "transitions": 1.0, "nothing": math.nan}
    cost = config.batch * costs.get(row.sees, 1.0 / (1.0 - config.discount))
    steps, unknown = found.get("steps", [0]), np.full((1, 1), math.nan)
    given = {name: np.asarray(each, np.float64) for name, each in found.get("values", {}).items()}
    values = {name: given.get(name, unknown) for name in (*MEASURED, "seconds", "diverged")}
    return Frame.grid(
        {**values, "environment_steps": np.round(np.asarray([steps]) * cost)},
        seed=range(config.num_seeds),
        step=steps,
        method=row.method,
        world=cell["world"],
        d=cell["d"],
        sees=row.sees,
        family=row.family,
        truth=row.truth,
        options=(row.objective is not None) + bool(row.option),
        failed=found.get("failed", ""),
        released=row not in config.rows,
    )
