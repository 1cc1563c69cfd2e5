"""The best recipes of rlreps on PuddleWorld: time to a given subspace distance.

Every recipe trains at every d, one seed at a time, so that no other training slows it down.
Training time excludes compilation and evaluation. Every update draws new entries; nothing is
trained on the ground truth's singular vectors.

Oversampling trains more features than d. The d leading combinations of these features are measured.
They are computed from the matrix, without the ground truth's singular vectors
(``subspace.leading_combinations``). One computation takes about a second, which times do not
include.

A claim limits Danskin-LISSA's distance to ``factor`` times that of large batch at equal time. The
claim holds only if Danskin-LISSA took at most 1.05 times as long, and fails only if it took at
least 0.95 times as long: more time could explain a small distance, less time a large one.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.encoders import Cosine, FourierMLP, Params
from rlreps.losses import DanskinChunked, LargeBatch, Objective
from rlreps.stats import Sample, Verdict, judge_share
from rlreps.study import (
    SUBSPACE_DISTANCE,
    Axis,
    Claim,
    Curve,
    D,
    Experiment,
    Frame,
    OwnGroundTruth,
    Results,
    Run,
    Tabulated,
    design_of,
    in_path,
    own_ground_truth,
    replace_nested,
)
from rlreps.subspace import leading_combinations, subspace_distance
from rlreps.successor import GroundTruth, SuccessorMeasure, Transition, load, open_store
from rlreps.training import Optimizer, TrainingConfig, learner_for, stored_problem, train_population

RELEASED = "sutton-100"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to train d or more features for the d leading components.

    Attributes:
        name: Name in files and figures, the same at every d.
        d: Number of measured features, which are leading combinations of the trained features.
        training: Options of the training.
    """

    name: str
    d: int
    training: TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Every recipe at every d, one seed at a time.

    Attributes:
        recipes: At every d, first the winner, then the winner without oversampling, then the best
            recipe with Danskin-LISSA, then the recipes to compare with.
        evaluations: Measurements after the one before the first update.
        goals: (d, distance, seconds): the winner's d features should reach the distance within the
            seconds with more than half of all seeds.
        factor: Largest ratio allowed at equal time, of Danskin-LISSA's distance to the distance of
            large batch without oversampling.
    """

    successor: SuccessorMeasure = Transition()
    recipes: tuple[Recipe, ...]
    num_seeds: int
    evaluations: int = 20
    goals: tuple[tuple[int, float, float], ...] = (
        (10, 0.001, 10.0),
        (50, 0.004, 60.0),
        (100, 0.01, 120.0),
    )
    factor: float = 3.0

    @property
    def names(self) -> list[str]:
        """Return the names of recipes."""
        return list(dict.fromkeys(each.name for each in self.recipes))

    @property
    def dimensions(self) -> list[int]:
        """Return the d of recipes."""
        return list(dict.fromkeys(each.d for each in self.recipes))


def _recipes(
    name: str,
    objective: Objective,
    encoder: Cosine | FourierMLP,
    *runs: tuple[int, int, int, float, int, int],
) -> list[Recipe]:
    """Make recipes of runs: d, trained features, frequencies, learning rate, steps and rows."""
    return [
        Recipe(
            name=name,
            d=d,
            training=TrainingConfig(
                encoder=dataclasses.replace(encoder, frequencies=frequencies),
                objective=objective,
                optimizer=Optimizer(learning_rate=rate, schedule="linear"),
                num_features=features,
                steps=steps,
                rows=rows,
                tasks=1000,
            ),
        )
        for d, features, frequencies, rate, steps, rows in runs
    ]


_LARGE_BATCH = LargeBatch(precondition=1e-2, leave_one_out=True)

# Found by a search on the refinement-1 transition matrix; data/recipe-search.csv has every trial
# except the first recipe's. The numbers of steps make the second and the third recipe train for
# about the same time on two CPU cores.
_RECIPES = (
    *_recipes(
        "large batch, cosines, oversampled",
        _LARGE_BATCH,
        Cosine(),
        (2, 7, 19, 0.03, 600, 1000),
        (5, 10, 19, 0.03, 600, 1000),
        (10, 20, 23, 0.03, 700, 1000),
        (20, 35, 27, 0.1, 1200, 1000),
        (50, 80, 35, 0.1, 1800, 1000),
        (100, 140, 37, 0.2, 1600, 2000),
    ),
    *_recipes(
        "large batch, cosines",
        _LARGE_BATCH,
        Cosine(),
        (2, 2, 19, 0.03, 600, 1000),
        (5, 5, 19, 0.03, 600, 1000),
        (10, 10, 19, 0.03, 1000, 1000),
        (20, 20, 23, 0.03, 2200, 1000),
        (50, 50, 31, 0.1, 5400, 1000),
        (100, 100, 31, 0.1, 3500, 1500),
    ),
    *_recipes(
        "Danskin-LISSA in chunks, cosines",
        DanskinChunked(),
        Cosine(),
        (2, 2, 19, 0.03, 540, 1000),
        (5, 5, 19, 0.03, 540, 1000),
        (10, 10, 19, 0.03, 900, 1000),
        (20, 20, 23, 0.01, 1000, 2000),
        (50, 50, 31, 0.05, 1340, 4000),
        (100, 100, 31, 0.03, 1360, 4000),
    ),
    *_recipes(
        "large batch, network",
        _LARGE_BATCH,
        FourierMLP(hidden=(256, 256)),
        (2, 2, 8, 2e-3, 600, 1000),
        (5, 5, 8, 2e-3, 600, 1000),
        (10, 10, 8, 2e-3, 1000, 1000),
        (20, 20, 8, 2e-3, 1500, 1000),
        (50, 50, 16, 2e-3, 4000, 1000),
        (100, 100, 16, 2e-3, 4000, 1000),
    ),
)


PRESETS: dict[str, Config] = {
    "smoke": Config(
        successor=Transition(bins=20, points=256),
        recipes=tuple(
            replace_nested(each, rows=240, tasks=128, steps=100)
            for each in _RECIPES
            if each.d in (2, 10)
        ),
        evaluations=5,
        num_seeds=1,
        goals=(),
    ),
    "laptop": Config(recipes=_RECIPES, num_seeds=2),
    "paper": Config(recipes=_RECIPES, num_seeds=10),
}


def prepare(run: Run[Config]) -> tuple[OwnGroundTruth, GroundTruth | None]:
    """Generate the ground truth in the run's folder, and load the process's released one."""
    successor, largest = run.config.successor, max(run.config.dimensions)
    ground = own_ground_truth(successor, run.folder, largest)
    # The default is the process of the released ground truth.
    return ground, load(RELEASED) if successor == Transition() else None


def cells(run: Run[Config]) -> dict[str, Recipe]:
    """Return every recipe with every seed, by name."""
    return {
        in_path(f"{each.name} d{each.d} seed{seed}"): replace_nested(each, seed=seed)
        for each in run.config.recipes
        for seed in range(run.config.num_seeds)
    }


def measure(run: Run[Config], name: str, recipe: Recipe) -> dict[str, Any]:
    """Train one seed of one recipe at one d.

    Returns:
        Distances (1 after divergence) and seconds of training at each measurement, and the final
        distance to the released ground truth of the same process.
    """
    ground, released = run.shared
    d, training, store = recipe.d, recipe.training, open_store(ground.path)
    learner = learner_for(training, ground.truth, store.shape[1], resets_diverged=True)
    encoder, inputs = learner.encoder, ground.truth.inputs(learner.encoder)
    basis = jnp.asarray(ground.truth.principal.truncated(d).basis)
    matrix = jnp.asarray(ground.truth.matrix)

    def kept(params: Params, matrix: Array) -> Array:
        features = encoder.apply(params, inputs)
        if training.num_features == d:
            return features
        return features @ leading_combinations(features, matrix, d)

    problem = stored_problem(training, store, ground.truth)
    result = train_population(
        learner,
        problem.source,
        own_numbers=False,
        seeds=[training.seed],
        evaluate=lambda params, matrix: {
            "subspace_distance": subspace_distance(kept(params, matrix), basis)
        },
        measured=matrix[None],
        **run.training(name, training.steps, run.config.evaluations, training=training),
    )
    features, history = jax.jit(kept)(result.params(), matrix), result.history
    return {
        "values": {
            "subspace_distance": [record["subspace_distance"][0] for record in history],
            "seconds": [record["seconds"] for record in history],
        },
        "axes": {
            "step": [record["step"] for record in history],
            "recipe": recipe.name,
            "d": d,
            "seed": training.seed,
            "diverged": bool(history[-1]["diverged"][0]),
            "released_distance": None if released is None else float(released.distance(features)),
        },
    }


def ends(results: Results[Config], place: int, d: int) -> tuple[Sample, Sample]:
    """Return final distances and seconds at d of the recipe at a place in the list."""
    which: dict[str, Any] = {"recipe": results.config.names[place], "d": d}
    return results.end(**which), results.end("seconds", **which)


def reaches(results: Results[Config], d: int, goal: float, limit: float) -> Verdict:
    """Judge that the winner's distance and time are below a goal for most seeds."""
    distance, seconds = ends(results, 0, d)
    met = (distance.values <= goal) & (seconds.values <= limit)
    return judge_share(0.5, met, f"{distance.mean:.4f} after {seconds.mean:.1f} s")


def keeps_up(results: Results[Config], d: int) -> Verdict:
    """Judge that Danskin-LISSA's distance is within the factor after equal time."""
    (best, time), (distance, seconds) = (ends(results, place, d) for place in (1, 2))
    within = distance < results.config.factor * best
    ratio = seconds.mean / time.mean
    fair = ratio <= 1.05 if within.holds else ratio >= 0.95
    found = within.saying(
        f"{distance.mean:.4f} after {seconds.mean:.1f} s against {best.mean:.4f} after "
        f"{time.mean:.1f} s: {distance.mean / max(best.mean, 1e-12):.2f} times"
    )
    return found if fair else found.open()


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the winner's goals, and the largest distance of Danskin-LISSA at equal time."""
    config = results.config
    winner, rival, danskin = config.names[:3]
    for d, distance, seconds in config.goals:
        if d in config.dimensions:
            yield Claim(
                f"d = {d}: {winner}",
                f"{distance:g} within {seconds:g} s with most seeds",
                partial(reaches, d=d, goal=distance, limit=seconds),
            )
    for d in config.dimensions:
        yield Claim(
            f"d = {d}: {danskin}",
            f"within {config.factor:g} times {rival} at equal time",
            partial(keeps_up, d=d),
        )


def at_mean_times(results: Results[Config], frame: Frame) -> Frame:
    """Replace the times of a step's measurements by their mean over seeds."""
    # The first measurement is at time 0, which a logarithmic axis cannot show.
    later = frame.where(step=lambda steps: steps > 0)
    groups = later.groups("recipe", "d", "step").values()
    return Frame.concat(each.adding(seconds=float(each["seconds"].mean())) for each in groups)


EXPERIMENT = Experiment(
    name="puddle-world-fast",
    title="PuddleWorld: time to a given subspace distance",
    presets=PRESETS,
    prepare=prepare,
    cells=cells,
    measure=measure,
    value=SUBSPACE_DISTANCE,
    claims=claims,
    sections={
        "Goals": [design_of(__doc__)],
        "Distance against training time": [
            Curve(
                name="distance_by_time",
                caption="Subspace distance against time spent in updates, for every d.",
                x=Axis("seconds", "training time (s)", log=True),
                line="recipe",
                panel="d = {d}",
                of=at_mean_times,
                file={},
                keys=("seed",),
                beside=("step",),
            ),
        ],
        "Distance against the number of features": [
            Curve(
                name="distance_by_dimension",
                caption="Subspace distance at the end of training.",
                x=D,
                line="recipe",
                at_end=True,
                keys=("seed", "step"),
                beside=("seconds", "released_distance", "diverged"),
            ),
            Tabulated(
                caption="Every run. The distance is measured to the subspace of the training "
                f"matrix, the released distance to the subspace of {RELEASED}.",
                rows=lambda r: r.rows["distance_by_dimension"],
            ),
        ],
    },
    stated="goal",
)
