"""Every objective on the same chains, beside the exact truth.

**Question.** Which objective comes closest to the functions that it is meant to find, to the
singular functions of the density ratio M̃, and to values? How many updates, seconds and environment
steps does it take?

**Worlds** are chains of states under the random policy. By default, states are 20 x 20 cells: of
the position in an arena, or of the angle and the velocity of Gymnasium's pendulum. A chain of cells
is estimated once, from 256 moves from each cell by each action (the pendulum's from 64 moves by
each of three torques). The estimated chain then is the world itself, so that every truth is exact.
States are drawn uniformly. All objectives see the two coordinates of a cell through the same
encoder, whose cosines can represent any function of the cells.

**Rows.** An objective sees entries of the successor measure Ψ (columns centred), transitions
(s, s'), or futures (s, s⁺), s⁺ from the normalised successor measure. A transition costs one
environment step, a future costs 1/(1 - γ) steps on average, and an entry of an exact matrix costs
none. Temporal differences lack a fixed point if d separates a complex pair of eigenvalues; means
are over seeds with a fixed point. Self-prediction has no optimum: only some starts reach its truth.

**Tuning.** In each world, every objective has the same number of trials of the same length, on
seeds that are not reported: a grid of learning rates and values of one of its options. The best
trial ends closest to the objective's truth or, if ordered, has the largest mean |cosine|.

**Controls** need no training: cosines of lowest frequency and random features, each together with
the constant, and the singular functions of a chain counted from as many transitions as other rows
draw.

**Time** counts updates only: all seeds train in one program, whose time is divided by their number.
R² measures the prediction of values of random policies and rewards at the states without a label,
by ridge regression on whitened features.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlreps.encoders import Cosine
from rlreps.errors import InputError
from rlreps.experiments.ours import benchmark_report as report
from rlreps.experiments.ours.benchmark_runs import (
    TRIALS,
    Config,
    fitting,
    frame,
    in_world,
    measure,
    released_rows,
    tune,
    with_objective,
)
from rlreps.experiments.ours.chains import PENDULUM, KnownChain
from rlreps.experiments.ours.contestants import CONTROLS, COUNTED, OBJECTIVES
from rlreps.stats import Verdict, all_of
from rlreps.study import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    Claim,
    Drawn,
    Experiment,
    Results,
    Run,
    Tabulated,
    design_of,
    product_cells,
)

_SHOWN = ("large batch", "OMM", "TD low rank")

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
    "laptop": Config(),
    "paper": Config(
        dimensions=(5, 10, 20, 50),
        steps=20_000,
        batch=512,
        trials=24,
        tuning_seeds=3,
        num_seeds=20,
    ),
    "released": Config(rows=()),
}


def check(config: Config, _: object) -> dict[str, KnownChain]:
    """Make the worlds' chains.

    Raises:
        InputError: If no row can be trained in any world.
    """
    worlds = {name: KnownChain.of(name, config.bins, config.discount) for name in config.worlds}
    faults = {}
    if not config.rows:  # Released results need no training.
        return worlds
    for row, world in itertools.product(config.rows, worlds.values()):
        found = fitting(config, row, world)
        if not found:
            return worlds
        faults[row.method] = found["failed"]
    raise InputError("; ".join(f"{method}: {fault}" for method, fault in faults.items()))


def prepare(run: Run[Config]) -> dict[str, Any]:
    """Tune every objective in every world."""
    objectives = [row for row in run.config.rows if row.objective is not None]
    cells = product_cells(TRIALS, row=objectives, world=run.config.worlds)
    return run.measured(tune, cells, keep=True, title="trials")


def claims(results: Results[Config]) -> list[Claim]:
    """State that no row failed and, if all rows ran, the advice of docs/results/benchmark.md."""
    whole = Config()
    ends = results.ends.groups("method", "world", "failed")
    faults = [": ".join(each) for each in ends if each[2]]
    for (method,), group in results.ends.groups("method").items():
        if lost := int(np.nansum(group["diverged"])):
            faults.append(f"{method}: {lost} of {len(group)} trainings diverged")
    ran = Verdict(not faults, "; ".join(faults) or "no failure")
    judged = {"Every row can be trained and measured in every world": ran}
    present = (*results.config.rows, *released_rows(results.config))
    if all(row in present for row in whole.rows) and {*whole.worlds} <= {*results.config.worlds}:
        judged |= advice(results)
    found = "on the mean over worlds unless one is named, with the seeds that the advice is from"
    return [Claim(statement, found, verdict) for statement, verdict in judged.items()]


def advice(results: Results[Config]) -> dict[str, Verdict]:
    """Judge each advice by the last measurements of the methods that it names."""
    rows = {row.method: row for row in Config().rows}

    def less(
        value: str, lower: Iterable[str], higher: Iterable[str], worlds: Sequence[str] = ()
    ) -> Verdict:
        """Judge that the means of some methods are below the means of all the others."""
        at: Any = {"d": results.config.tuned_at, "world": worlds or results.config.worlds}
        parts = {}
        for low, high in itertools.product(lower, higher):
            ours, theirs = (results.end(value, method=each, **at) for each in (low, high))
            parts[f"{low} and {high}"] = ours < theirs
        return all_of(parts)

    own, density, cumulants = "subspace_distance", "density_distance", "random cumulants by TD"
    sampled = [name for name, row in rows.items() if row.objective and row.sees != "entries"]
    futures = [name for name in sampled if rows[name].sees == "futures"]
    steps = [name for name, row in rows.items() if row.sees == "transitions" and name != cumulants]
    arenas = [world for world in Config().worlds if world != PENDULUM]
    walks = [name for name in futures if rows[name].truth.startswith("walk")]
    of_density = [name for name in futures if rows[name].truth == "M̃"]
    near = ["explicit", "Danskin in chunks", "large batch"]
    close = ["graph drawing", "NestedLoRA", "ALLO"]
    even = ["SpIN", "NestedLoRA, sequential", "spectral contrastive"]
    in_order = ["ALLO", "NestedLoRA, sequential"]
    mixed = [name for name in futures if rows[name].ordered and name not in in_order]
    return {
        "1. A counted model is closer to M̃ than all that see transitions or futures": less(
            density, [COUNTED.method], sampled
        ),
        "2. Explicit weights, Danskin-LISSA in chunks and a large batch are closer to their truth "
        "than Danskin-LISSA": less(own, near, ["Danskin-LISSA"]),
        "3. Graph drawing, NestedLoRA and ALLO are closer to their truth than all others that see "
        "futures but SpIN, sequential NestedLoRA and the spectral contrastive loss": less(
            own, close, [name for name in futures if name not in (*close, *even)]
        ),
        "3. On the pendulum, NestedLoRA and the spectral contrastive loss are closer to M̃ than all "
        "whose truth is the walk": less(density, of_density, walks, [PENDULUM]),
        "4. ALLO and sequential NestedLoRA have a larger mean |cosine| than all other ordered "
        "objectives": less("cosine", mixed, in_order),
        "5. Random cumulants explain more of values than all other rows that see transitions": less(
            "r2", steps, [cumulants]
        ),
        "5. In the arenas, random cumulants are closer to their truth than TD low rank": less(
            own, [cumulants], ["TD low rank"], arenas
        ),
        "5. On the pendulum, random cumulants explain more of values than all other rows": less(
            "r2", [name for name in rows if name != cumulants], [cumulants], [PENDULUM]
        ),
    }


def of_means(name: str, value: str, caption: str) -> Tabulated:
    """Declare a table of means with a line for each method and a column for each world."""
    rows = partial(report.by_world, value=value)
    caption = f"{caption}, d = {{config.tuned_at}}: means over seeds."
    return Tabulated(name=name, rows=rows, caption=caption)


EXPERIMENT = Experiment(
    name="benchmark",
    title="Every objective beside the exact truth",
    presets=PRESETS,
    check=check,
    options={"objective": with_objective, "world": in_world},
    prepare=prepare,
    cells=lambda run: product_cells(
        "{row.method}-{world}-{d}",
        row=(*run.config.rows, *released_rows(run.config)),
        world=run.config.worlds,
        d=run.config.dimensions,
    ),
    measure=measure,
    frame=frame,
    value=SUBSPACE_DISTANCE,
    claims=claims,
    sections={
        "Table": [
            "{config.num_seeds} seeds, {config.steps:,} updates, {config.trials} trials of each "
            "objective in each world.",
            report.about_worlds,
            design_of(__doc__),
            Drawn(
                name="ranking",
                caption="Means of every method, d = {config.tuned_at}, by what methods see; in a "
                "group, the least mean distance from the own truth comes first. Bold: methods that "
                "the advice of the handbook names, with its number.",
                draw=report.draw_ranking,
            ),
            of_means("own_distances", "subspace_distance", "Distance to the own truth"),
            of_means("density_distances", "density_distance", "Distance to M̃'s functions"),
            of_means(
                "least_cosines",
                "least_cosine",
                "Least |cosine| of a feature with its own function, ordered objectives",
            ),
            of_means("values", "r2", "R² of values from {config.labels} labels"),
            Tabulated(
                name="benchmark",
                rows=report.lines,
                caption="The end of training: means over seeds with 95 % intervals. Ordered "
                "objectives have cosines: the mean over components, and the least. A note says why "
                "a row could not be trained, or how many seeds lack a truth.",
            ),
        ],
        "Time": [
            Tabulated(
                name="benchmark_times",
                rows=report.times,
                caption="Cost until the distance to the own truth is below a threshold in two of "
                "three consecutive evaluations: the median over seeds and its 95 % interval by "
                "order statistics. A run that does not reach it counts as infinite.",
            ),
        ],
        "Curves": [
            *report.curves("own_by_update", STEP),
            *report.curves("density_by_update", STEP, report.DENSITY),
            *report.curves("own_by_time", Axis("seconds", "training time (s)", log=True)),
        ],
        "Components": [
            Drawn(
                name=report.named("components", family),
                caption="Functions of M̃ behind the constant in {config.worlds[0]}, and features of "
                f"objectives that see {family} at d = {{config.tuned_at}}, rotated within their "
                "span onto these functions.",
                draw=partial(report.draw_components, family=family),
            )
            for family in report.FAMILIES
        ],
    },
)
