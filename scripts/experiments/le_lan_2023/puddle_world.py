"""PuddleWorld under the paper's protocol: subspace distance against d (Le Lan et al. 2023, C.3).

``paper`` is the protocol: training states anywhere in the square, Large Batch with weights from the
centres of all cells, means centred as in the authors' code. Its 10⁸ updates are for accelerators.
``trend`` shrinks it to 20 x 20 cells, 40,000 updates, three seeds and three d, and also trains
explicit weights that start as in rlreps or that have several columns per update, which the paper
suggests against stale weights. ``laptop`` keeps the paper's grid, on which weights from all 10,000
centres cost too much; it runs another variant of Large Batch under its own name.

All d and seeds of a method train in one program: features beyond a member's d are masked. A masked
feature is zero at every state: LISSA and least squares give it weight zero, stored weights have no
effect, and the member learns as with an encoder of d features.
"""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
from matplotlib.figure import Figure

from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.experiments.components import aligned_maps
from rlreps.experiments.le_lan_2023.masked import train_masked
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.plotting import plot_components
from rlreps.stats import Sample, Verdict, all_of
from rlreps.study import (
    STEP,
    SUBSPACE_DISTANCE,
    Claim,
    Curve,
    D,
    Drawn,
    Experiment,
    Frame,
    Results,
    Run,
    TableRows,
    in_path,
    own_ground_truth,
    replace_nested,
    tabulate_summary,
)
from rlreps.successor import MonteCarlo
from rlreps.training import Optimizer, TrainingConfig, evaluate_features

_METHODS: tuple[Objective, ...] = (
    DanskinLissa(gradient_rows=50, weight_rows=50, covariance_rows=50),
    # The stored weights have the start and optimizer of the authors' code; the paper gives neither.
    Explicit(weight_start=1.0, dense_optimizer=True),
    LargeBatch(weight_rows="all"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Every method at every d with every seed, under the paper's protocol.

    Attributes:
        training: The protocol; objective and number of features are replaced run by run.
        columns: Further numbers of tasks per update, besides ``training.tasks``, with which every
            explicit objective is trained. With more tasks, fewer updates pass before a column's
            weights move again (Sec. 5.3).
        headline_dimension: The d of the pictures of components.
    """

    successor: MonteCarlo = MonteCarlo(centring="rows")
    objectives: tuple[Objective, ...] = _METHODS
    training: TrainingConfig
    columns: tuple[int, ...] = ()
    dimensions: tuple[int, ...]
    headline_dimension: int = 10

    @property
    def methods(self) -> dict[str, TrainingConfig]:
        """Return each method's training by label, with enough features for the largest d."""
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
        """Return the label of the first method of an objective; None if there is none."""
        return next((each.label for each in self.objectives if each.name == name), None)


PAPER = Config(
    training=TrainingConfig(
        encoder=MLP(hidden=(512, 512)),
        optimizer=Optimizer(name="adam", learning_rate=1e-4, schedule="constant"),
        rows=250,
        tasks=1,
        states="uniform",
        steps=100_000_000,
        num_seeds=5,
        evaluate_every=20_000,
        checkpoint_every=100_000,
    ),
    dimensions=(1, 2, 5, 10, 15, 20, 25, 50, 75, 100),
)
_SHORT = replace_nested(PAPER, num_seeds=3, evaluate_every=500, checkpoint_every=1_000)

PRESETS: dict[str, Config] = {
    "smoke": replace_nested(
        PAPER,
        successor=MonteCarlo(bins=16, rollouts=50, horizon=200, block_rows=64, centring="rows"),
        hidden=(32,),
        steps=100,
        num_seeds=2,
        evaluate_every=50,
        checkpoint_every=50,
        dimensions=(2, 5),
        headline_dimension=5,
    ),
    "laptop": replace_nested(
        _SHORT, objectives=(*_METHODS[:2], LargeBatch()), steps=6_000, dimensions=(2, 5, 10, 20, 50)
    ),
    "paper": PAPER,
    "trend": replace_nested(
        _SHORT,
        objectives=(*_METHODS, Explicit()),
        columns=(20,),
        successor=MonteCarlo(bins=20, centring="rows"),
        steps=40_000,
        evaluate_every=1_000,
        checkpoint_every=2_000,
        dimensions=(2, 10, 50),
    ),
}

DEVIATIONS = {
    "objectives.2.ridge": "The paper solves least squares over all cells without a ridge. A ridge "
    "keeps the solve defined if features depend on each other: 1.2e-6·d of the mean eigenvalue, "
    "the least in float32, below which the field's 1e-6 has no effect.",
    "moves inside puddles": "App. C.3 says that the agent only moves by 0.025 inside a puddle and "
    "that noise of standard deviation 0.01 is added. As in the authors' code, a puddle slows the "
    "path to the end point, noise included: wholly inside a puddle, the noise's standard deviation "
    "is 0.005 instead of 0.01; a path across an edge is slowed on the part inside.",
    "means that are removed": "The text subtracts row sums to centre columns, which is ambiguous. "
    "As in the authors' code, each row's mean is subtracted.",
    "start of explicit weights": "The text is silent. As in the authors' code, weights start from "
    "N(0, 1), and one Adam moves the weights of all columns in every update.",
}


LISSA, LARGE, EXPLICIT = "danskin_lissa", "large_batch", "explicit"
"""Objectives that the paper compares."""


def measure(run: Run[Config], name: str, label: str) -> dict[str, Any]:
    """Train all runs of a method together.

    Returns:
        A ``frame`` of subspace distances, with a row for each run and step, and ``features``
        [n, headline d] of the first seed.
    """
    config, ground = run.config, run.shared
    members = [*itertools.product(config.dimensions, config.training.seeds)]
    result, features_of = train_masked(
        config.methods[label],
        ground.path,
        ground.truth,
        members,
        folder=run.training_folder(name, method=label),
        devices=run.devices,
        description=f"{label}, {len(members)} runs",
    )
    drawn = members.index((config.headline_dimension, config.training.seed))
    about = [
        {"d": d, "seed": seed, "noise_floor": ground.error and ground.error.floor(d)}
        for d, seed in members
    ]
    made = Frame.of_history(result.history, about, method=label)
    return {"frame": made, "features": features_of(drawn)}


def end(results: Results[Config], name: str, d: int) -> Sample:
    """Return the final distances of the first method of an objective."""
    return results.end(method=results.config.label_of(name), d=d)


def rise(results: Results[Config], name: str) -> Sample:
    """Return each seed's final distance at the largest d minus its final distance at the least."""
    dimensions = results.config.dimensions
    return end(results, name, max(dimensions)) - end(results, name, min(dimensions))


def reaches_range(results: Results[Config]) -> bool:
    """Return whether d ranges from at most 2 to at least 50, as growing d needs."""
    return min(results.config.dimensions) <= 2 and max(results.config.dimensions) >= 50


def falls_behind(results: Results[Config]) -> Verdict:
    """Judge that large batch ends farther with growing d, and farther than LISSA at the largest."""
    most = max(results.config.dimensions)
    behind = end(results, LISSA, most) < end(results, LARGE, most)
    return all_of({"rise": rise(results, LARGE) > 0.0, f"d = {most}": behind})


CLAIMS = [
    Claim(
        "Danskin-LISSA with growing d (Sec. 5.3, Fig. 4)",
        "degrades gracefully, where Large Batch does not",
        lambda r: rise(r, LISSA) < rise(r, LARGE),
    ),
    Claim(
        "Large Batch with growing d (Sec. 5.3, Fig. 4)",
        "is only practical for small d",
        falls_behind,
    ),
    Claim(
        "Explicit weights (Sec. 5.3, Fig. 4)",
        "perform poorly: one column at a time leaves weights stale",
        lambda r: all_of(
            {f"d = {d}": end(r, LISSA, d) < end(r, EXPLICIT, d) for d in r.config.dimensions}
        ),
    ),
]


def draw_components(results: Results[Config]) -> tuple[TableRows, Figure]:
    """Draw leading components above those of the first seeds; list cosines and angles."""
    truth, successor = results.run.shared.truth, results.config.successor
    parts = zip(results.config.methods, results.found.values(), strict=True)
    features = {label: jnp.asarray(part["features"]) for label, part in parts}
    basis = truth.principal.truncated(results.config.headline_dimension).basis
    maps, cosines = aligned_maps(basis, features)
    rows = []
    for label, each in features.items():
        found = evaluate_features(each, truth)
        columns = {
            "matched_cosine": found["matched_cosines"],
            "principal_angle": found["principal_angles"],
        }
        made = Frame.grid(columns, component=range(1, 1 + each.shape[1]), method=label)
        rows += made.rows("method", "component", *columns)
    figure = plot_components(
        {"ground truth": basis, **maps},
        bins=successor.bins,
        environment=load_arena(successor.arena),
        cosines=cosines,
    )
    return rows, figure


EXPERIMENT = Experiment(
    name="puddle-world",
    title="PuddleWorld by the paper's methods",
    paper="Le Lan et al. 2023, Section 5.3, Figure 4 and Appendix C.3",
    presets=PRESETS,
    prepare=lambda run: own_ground_truth(
        run.config.successor, run.folder, max(run.config.dimensions)
    ),
    cells=lambda run: {in_path(label): label for label in run.config.methods},
    measure=measure,
    value=SUBSPACE_DISTANCE,
    claims=CLAIMS,
    decided_on=PAPER,
    free=(
        *("dimensions", "headline_dimension", "columns"),
        *("training.seed", "training.evaluate_every", "training.checkpoint_every"),
    ),
    decides=reaches_range,
    sections={
        "Against the paper": [
            "A ReLU network on raw coordinates, {config.training.rows} states and one task an "
            "update. All runs of a method are trained together. A run on a smaller grid has "
            "another matrix. Neither such a run nor a run of fewer updates decides the paper's "
            "statements."
        ],
        "Distances": [
            tabulate_summary(
                caption="Subspace distance after {config.training.steps:,} updates: means over "
                "seeds; a run that diverged counts 1. The middle half is the interquartile mean.",
                keys=("method", "d"),
                beside=("noise_floor", "diverged"),
            ),
            Curve(
                name="distance_by_dimension",
                caption="Subspace distance against the number of features. The dashed line is "
                "the error of the ground truth itself.",
                x=D,
                at_end=True,
                keys=("step",),
                beside=("diverged", "noise_floor"),
            ),
            Curve(
                name="curves",
                caption="Subspace distance during training.",
                x=STEP,
                line="d = {d}",
                panel="method",
            ),
            Drawn(
                name="components",
                caption="The {config.headline_dimension} leading principal components (top row) "
                "and those learned by the first seed of each method, rotated within their "
                "span onto the true ones. |cos| is the cosine with the true component.",
                draw=draw_components,
            ),
        ],
    },
    # Each program resumes from its checkpoints, and a figure needs features at all states.
    keeps_parts=False,
    deviations=DEVIATIONS,
)
