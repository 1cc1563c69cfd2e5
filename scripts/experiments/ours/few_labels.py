"""Values from few labels: learned features against bases that need no data.

**Question.** The values of a policy are known at a few states and wanted at all others. How much do
features help if they were learned, without rewards, from 30,000 steps of the random policy?

**Arms**, each with ridge regression whose strength is chosen for each value function by
leave-one-out:

- learned: features of ``rlreps.successor.fit``, scaled by their singular values or whitened. In
  mazes they are tables over the distinct codes, in ``sutton`` random Fourier features of (x, y);
- oracle: equally many exact components of the cells' model, scaled by their singular values;
- without data: cosines of (x, y), random Fourier features and random networks of (x, y), which know
  the agent's place, and random Fourier features of codes. The cosines' decay and the others' length
  scales are also chosen by leave-one-out.

**Metric.** The unexplained share of the variance of values over the cells without labels (1 - R²),
averaged over 200 value functions (20 random policies times 10 random rewards, smooth in (x, y)),
which are computed exactly in the cells' model.

**Design.** Each arena has ten replicates with their own transitions, fit and value functions, and
five draws of labelled cells for each number of labels; all arms share them. Intervals and tests are
over replicates. "The best basis without data" is the best basis of (x, y) in each arena and for
each number of labels, picked in hindsight, which favours it.

**Goal**, judged separately at each number of labels: at most half the unexplained variance of the
best basis without data, in at least two of three mazes. **Refuted** if the 95 % interval of learned
minus half the best lies above 0 in two mazes. In ``sutton`` we expect no such effect. Verdicts use
intervals that are not adjusted for their number; the table has the goal's adjusted p-values.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.cumulants import Cumulants, RandomFourier, RandomNetwork
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import CONTROL_ARENA, FIT, MAZES
from rlreps.experiments.ours.tabular import exact_components
from rlreps.formatting import format_number
from rlreps.numerics import seed_key
from rlreps.stats import Sample, Verdict, contrast_rows
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Metric,
    Results,
    Run,
    TableRows,
    Tabulated,
    design_of,
    product_cells,
    tabulate_wide,
)
from rlreps.subspace import ridge_by_leave_one_out
from rlreps.typing import DoubleArray
from rlreps.worlds import World

LEARNED = "learned, scaled by singular values"
WHITE = "learned, whitened"
ORACLE = "exact components"
COSINES = "cosines of (x, y)"
FOURIER = "random Fourier features of (x, y)"
NETWORKS = "random networks of (x, y)"
CODES = "random Fourier features of codes"
"""Labels of the arms."""

OF_PLACES = (COSINES, FOURIER, NETWORKS)
"""Bases without data that know the agent's place."""

FEWEST = 10
"""Least number of replicates for a verdict."""

_MULTIPLES = 12
"""Number of cosines along each axis."""
_DECAYS = (0.0, 1.0, 2.0, 3.0)
"""Standard deviations of cosines' weights a priori fall as (1 + k²)^(-decay / 2)."""
_LENGTHS = (0.1, 0.2, 0.4, 0.8)
"""Length scales, in sides of the square; for codes they are multiplied by √c, as distances grow."""
_WIDTH = 128
"""Random features."""
_SMOOTH = 0.2
"""Length scale of logits and rewards, in sides of the square."""
POLICY_SHARPNESS = 2.0
"""Factor of the waves that serve as logits of a random policy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Values from few labels in some arenas.

    Attributes:
        steps: Transitions of the random policy, without rewards.
        num_features: Number of learned and of exact components.
        labels: Numbers of labelled cells, increasing.
        replicates: Sets of transitions, fits and value functions.
        draws: Number of draws of labelled cells, for each replicate and number of labels.
        num_policies: Number of policies of a replicate.
        num_rewards: Number of rewards for which each policy is valued.
    """

    arenas: tuple[str, ...] = (*MAZES, CONTROL_ARENA)
    steps: int = 30_000
    num_features: int = 128
    labels: tuple[int, ...] = (20, 50, 100, 200)
    replicates: int = 10
    draws: int = 5
    num_policies: int = 20
    num_rewards: int = 10
    discount: float = 0.95


PRESETS = {
    "smoke": Config(
        arenas=("five_corridors", CONTROL_ARENA),
        steps=3_000,
        num_features=8,
        labels=(20, 50),
        replicates=1,
        draws=2,
        num_policies=2,
        num_rewards=2,
    ),
    "laptop": Config(),
    "paper": Config(replicates=40, draws=5, num_policies=40),
}


# --- What is measured -----------------------------------------------------------------------------


def value_functions(
    world: World,
    places: npt.NDArray[Any],
    discount: float,
    seed: int,
    num_policies: int,
    num_rewards: int,
) -> DoubleArray:
    """Solve for values of random policies and rewards, [n, policies · rewards], policy by policy.

    Logits are random waves of the places [n, k] times ``POLICY_SHARPNESS``. Rewards are random
    networks of the places, and are paid on arrival.
    """
    size = places.shape[1]
    waves = RandomFourier(length_scale=_SMOOTH, num_inputs=size)
    networks = RandomNetwork(input_scale=1.0 / _SMOOTH, num_inputs=size)
    states, actions = world.rewards.shape
    logits = _drawn(waves, num_policies * actions, seed, 0, places)
    rewards = _drawn(networks, num_rewards, seed, 1, places)
    columns = []
    for logit in POLICY_SHARPNESS * logits.reshape(states, -1, actions).swapaxes(0, 1):
        weights = np.exp(logit)
        policy = weights / weights.sum(axis=1, keepdims=True)
        solver = world.successor(policy, discount=discount)
        columns.append(solver.multiply(solver.chain @ rewards))
    return np.concatenate(columns, axis=1)


def bases(world: World, seed: int) -> dict[str, list[DoubleArray]]:
    """List the candidates of each basis without data, tables [n, features] at the cells."""
    places, seen = np.asarray(world.coordinates, np.float32), world.observations
    size = seen.shape[1]
    multiples = np.indices((_MULTIPLES,) * 2).reshape(2, -1)
    waves = np.cos(np.pi * places[:, :, None] * multiples[None]).prod(axis=1)
    squares = 1.0 + np.sum(multiples**2, axis=0)
    found = {COSINES: [waves * squares ** (-decay / 2.0) for decay in _DECAYS]}
    for length in _LENGTHS:
        networks = RandomNetwork(hidden=(_WIDTH, _WIDTH), input_scale=1.0 / length)
        drawn = {
            FOURIER: _drawn(RandomFourier(length_scale=length), _WIDTH, seed, 2, places),
            NETWORKS: _drawn(networks, _WIDTH, seed, 3, places),
        }
        if world.about["name"] != CONTROL_ARENA:  # There they are the places.
            of_codes = RandomFourier(length_scale=length * size**0.5, num_inputs=size)
            drawn[CODES] = _drawn(of_codes, _WIDTH, seed, 4, seen)
        for name, table in drawn.items():
            found.setdefault(name, []).append(table)
    return found


def _drawn(
    family: Cumulants, number: int, seed: int, part: int, places: npt.NDArray[Any]
) -> DoubleArray:
    """Draw functions of a family, and return their values at places, [n, number]."""
    params = family.init(seed_key(seed, part), number)
    return np.asarray(family.apply(params, jnp.asarray(places)), np.float64)


def unexplained_share(
    candidates: Sequence[np.ndarray], values: np.ndarray, labelled: np.ndarray
) -> float:
    """Fit values [n, m] at labelled states and compute the mean 1 - R² at the other states.

    Args:
        candidates: Tables [n, d]; each value function uses the table with the smallest
            leave-one-out error.
        values: m value functions, [n, m].
        labelled: Indices of states.
    """
    fits = [ridge_by_leave_one_out(table[labelled], values[labelled]) for table in candidates]
    chosen = np.argmin([ridge.error for ridge in fits], axis=0)
    rest = np.delete(np.arange(len(values)), labelled)
    predicted = np.stack(
        [ridge.predict(table[rest]) for table, ridge in zip(candidates, fits, strict=True)]
    )[chosen, :, np.arange(values.shape[1])].T
    held_out = values[rest]
    residual = np.sum(np.square(held_out - predicted), axis=0)
    return float(np.mean(residual / np.sum(np.square(held_out - held_out.mean(axis=0)), axis=0)))


def measure(run: Run[Config], name: str, cell: dict[str, Any]) -> dict[str, Any]:
    """Measure the unexplained shares of a replicate, [arms][labels][draws]."""
    config, arena, seed = run.config, cell["arena"], cell["seed"]
    size, discount = config.num_features, config.discount
    data = mazes.free_transitions(arena, config.steps, seed)
    how = dataclasses.replace(FIT, num_features=size, discount=discount, seed=seed)
    learned = mazes.fit_at_cells(arena, data, how)
    world, counts = learned.world, (config.num_policies, config.num_rewards)
    values = value_functions(world, np.asarray(world.coordinates), discount, seed, *counts)
    tables = {
        LEARNED: [learned.features("singular").astype(np.float64)],
        WHITE: [learned.features("white").astype(np.float64)],
        ORACLE: [exact_components(world, size, discount)],
        **bases(world, seed),
    }
    rng = np.random.default_rng((seed, 1))
    orders = [rng.permutation(world.num_states) for _ in range(config.draws)]
    shares = [
        [
            [unexplained_share(candidates, values, order[:count]) for order in orders]
            for count in config.labels
        ]
        for candidates in tables.values()
    ]
    axes = {"arm": [*tables], "labels": config.labels, "draw": [*range(config.draws)]}
    return {"values": {"share": shares}, "axes": axes}


# --- What is reported -----------------------------------------------------------------------------


def pair(results: Results[Config], arena: str, labels: int) -> tuple[Sample, Sample, str]:
    """Return the shares of learned features and of the best basis without data, and its name.

    The best basis of (x, y) leaves the least variance unexplained. Its share is too small, since
    the replicates that choose it also measure it: a basis is hard to beat by chance.
    """
    of = partial(results.sample, arena=arena, labels=labels)
    best = min(OF_PLACES, key=lambda arm: of(arm=arm).mean)
    return of(arm=LEARNED), of(arm=best), best


def halves(results: Results[Config], arena: str, labels: int) -> Verdict:
    """Judge that learned features leave less than half of the best basis's unexplained share."""
    ours, theirs, _ = pair(results, arena, labels)
    return (ours < 0.5 * theirs).saying(f"{format_number(ours.mean / theirs.mean)} of the best's")


def exceeds_half(results: Results[Config], arena: str, labels: int) -> Verdict:
    """Judge that learned features leave more than half of the best basis's unexplained share.

    The other replicates choose the basis of each replicate.
    """
    of = partial(results.sample, arena=arena, labels=labels)
    ours, shares = of(arm=LEARNED), np.stack([of(arm=arm).values for arm in OF_PLACES])
    chosen = (shares.sum(axis=1, keepdims=True) - shares).argmin(axis=0)
    theirs = dataclasses.replace(ours, values=np.choose(chosen, shares))
    return (ours > 0.5 * theirs).saying(f"{format_number(ours.mean / theirs.mean)} of the best's")


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goal at each number of labels, and the null in ``sutton``."""
    for labels in results.config.labels:
        halved = partial(halves, results, labels=labels)
        yield Claim(
            f"{labels} labels, mazes: learned features leave at most half the variance "
            "unexplained that the best basis without data leaves",
            "learned less half the best below 0 in at least two mazes, by 95 % intervals, each by "
            "itself",
            mazes.in_mazes(results, halved),
        )
        if CONTROL_ARENA in results.config.arenas:
            yield Claim(
                f"{labels} labels, {CONTROL_ARENA}: they do not",
                "learned less half the best above 0, by the 95 % interval",
                exceeds_half(results, CONTROL_ARENA, labels),
            )


def contrasts(results: Results[Config]) -> TableRows:
    """Tabulate learned features against the best basis, and against half of its share."""
    whole, half = list[Any](), list[Any]()
    for arena, labels in itertools.product(results.config.arenas, results.config.labels):
        ours, theirs, best = pair(results, arena, labels)
        about = {"arena": arena, "labels": labels, "learned": ours.mean}
        about |= {"best": best, "best_share": theirs.mean}
        whole.append((about, ours.against(theirs)))
        half.append(({}, ours.against(0.5 * theirs)))
    names = {f"difference{end}": f"beyond_half{end}" for end in ("", "_low", "_high")}
    names["p_value"] = "half_p_value"
    return [
        {**row, **{new: other[name] for name, new in names.items()}}
        for row, other in zip(contrast_rows(whole), contrast_rows(half), strict=True)
    ]


EXPERIMENT = Experiment(
    name="few-labels",
    title="Values from few labels",
    presets=PRESETS,
    cells=lambda run: product_cells(
        "{arena}-{seed}", arena=run.config.arenas, seed=range(run.config.replicates)
    ),
    measure=measure,
    value=Metric(value="share", label="unexplained share of variance", log=True),
    fewest=FEWEST,
    claims=claims,
    sections={
        "Goals": [
            design_of(__doc__),
            Tabulated(
                name="contrasts",
                rows=contrasts,
                caption="Unexplained shares, means over replicates, with 95 % intervals of "
                "paired differences (below 0: learned features explain more). The first p-value "
                "and the detectable difference concern a difference of zero; the last two columns "
                "concern the goal, half of the best basis's share. p-values are by sign flips, "
                f"adjusted separately in each of the two columns (Holm 1979). {DETECTABLE}",
            ),
            Curve(
                name="unexplained",
                caption="Unexplained share of the variance of held-out values, against the number "
                "of labelled cells: mean over {config.replicates} replicates, 95 % interval.",
                x=Axis("labels", "labelled cells", log=True, ticks=True),
                line="arm",
                panel="arena",
                note="mean over replicates, 95 % interval",
            ),
        ],
        "Every arm": [
            tabulate_wide(
                caption="Unexplained share of every arm by arena and number of labels.",
                row="arm",
                column="{arena}, {labels}",
            ),
        ],
    },
)
