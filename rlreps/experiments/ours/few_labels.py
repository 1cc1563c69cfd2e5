"""Values from few labels: learned features against bases that need no data.

**Question.** Someone knows the values of a policy at a few states and wants them everywhere. What
are features worth that were learned, without rewards, from 30,000 steps of the random policy?

**Arms**, each with ridge regression whose strength is chosen for each value function by
leave-one-out:

- learned: features of ``rlreps.successor.fit`` scaled by their singular values (what
  ``rep.fit_values`` does), and whitened;
- oracle: as many exact components of the exact measure of the cells' model, scaled alike;
- without data: cosines of (x, y), random Fourier features and random networks of (x, y), and
  random Fourier features of what agents see. The cosines' decay and the others' length scales are
  chosen by leave-one-out too, for each value function. Those of (x, y) know the agent's place,
  which nobody tells the learned ones: in mazes these see codes of cells, whose distinct ones are
  counted. In ``sutton`` agents see (x, y), and random Fourier features of it are fitted.

**Metric.** The share of the variance of values over the cells without labels that is not explained
(1 - R²), the mean over 200 value functions: 20 random policies times 10 random rewards, solved for
in the cells' model. A policy's rewards and logits are smooth functions of (x, y), as in
``agents.probes``.

**Design.** Ten replicates an arena, each with transitions, a fit and value functions of its own,
and five draws of labelled cells for each number of labels; all arms share them. Replicates are the
units of intervals and tests, as their draws share a fit. "The best basis without data" is the best
of those of (x, y) in each arena and number of labels, picked in hindsight: in its favour.

**Goal**, judged at each number of labels by itself: at most half the unexplained variance of the
best basis without data, in at least two of three mazes. **Refuted** where the 95 % interval of
learned minus half the best lies above 0 in two mazes. In ``sutton`` we expect no such effect. The
smallest difference from the best that the runs' own spread could show (80 % power, level 0.05
divided by the number of tests) stands in the table beside the one that was found: that of the sign
flips which are reported, not of a t-test, whose power is greater. Verdicts are by each interval
itself; beside them stand the goal's own p-values, corrected for their number.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.agents.probes import POLICY_SHARPNESS
from rlreps.cumulants import Cumulants, RandomFourier, RandomNetwork
from rlreps.errors import require, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, in_path, table_of
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import FIT, MAZES, NULL, CellModel, in_two_mazes
from rlreps.numerics import seed_key
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.report.page import Section
from rlreps.report.table import format_number
from rlreps.runs.intervals import (
    Interval,
    holm,
    mean_interval,
    sign_flip_p_value,
    smallest_detectable,
)
from rlreps.successor.forward_backward import ridge_by_leave_one_out
from rlreps.successor.methods import FitConfig

FloatArray = npt.NDArray[np.float64]

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

LEVEL = 0.05
FEWEST = 10
"""Replicates below which no verdict is given."""

_MULTIPLES = 12
"""Cosines along each axis."""
_DECAYS = (0.0, 1.0, 2.0, 3.0)
"""Standard deviations of cosines' weights a priori fall as (1 + k²)^(-decay / 2)."""
_LENGTHS = (0.1, 0.2, 0.4, 0.8)
"""Length scales, in sides of the square; of codes times √c, the growth of distances."""
_WIDTH = 128
"""Random features."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Values from few labels in some arenas.

    Attributes:
        arenas: Their names.
        steps: Transitions of the random policy, without rewards.
        num_features: Of learned and exact components.
        labels: Numbers of labelled cells, increasing.
        replicates: Sets of transitions, fits and value functions.
        draws: Of labelled cells, for each replicate and number.
        num_policies: Of a replicate.
        num_rewards: That each policy is valued for.
        length_scale: Over which logits and rewards vary, in sides of the square.
        discount: γ.
        seed: Of the first replicate.
    """

    arenas: tuple[str, ...] = (*MAZES, NULL)
    steps: int = 30_000
    num_features: int = 128
    labels: tuple[int, ...] = (20, 50, 100, 200)
    replicates: int = 10
    draws: int = 5
    num_policies: int = 20
    num_rewards: int = 10
    length_scale: float = 0.2
    discount: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "num_features", "replicates", "draws", "num_policies", "num_rewards"):
            require_positive(name, getattr(self, name))
        increasing = all(a < b for a, b in zip(self.labels, self.labels[1:], strict=False))
        require(increasing and min(self.labels) >= 2, "increasing labels >= 2", self.labels)
        require_interval("length_scale", self.length_scale, "(0, inf)")
        require_interval("discount", self.discount, "(0, 1)")

    def fit(self, seed: int) -> FitConfig:
        """Return how a replicate's representation is fitted."""
        return dataclasses.replace(
            FIT, num_features=self.num_features, discount=self.discount, seed=seed
        )


PRESETS = {
    "smoke": Config(
        arenas=("five_corridors", NULL),
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


def value_functions(model: CellModel, config: Config, seed: int) -> FloatArray:
    """Solve for values of random policies and rewards, [n, policies · rewards], policy by policy.

    Logits are random waves, rewards random networks, as of ``agents.probes.puddle_world_probe``.
    """
    waves = RandomFourier(length_scale=config.length_scale)
    networks = RandomNetwork(input_scale=1.0 / config.length_scale)
    actions = model.uniform.shape[1]
    logits = _drawn(waves, config.num_policies * actions, seed, 0, model.centres)
    rewards = _drawn(networks, config.num_rewards, seed, 1, model.centres)
    columns = []
    for logit in POLICY_SHARPNESS * logits.reshape(model.num_cells, -1, actions).swapaxes(0, 1):
        weights = np.exp(logit)
        policy = weights / weights.sum(axis=1, keepdims=True)
        columns.append(model.policy_values(policy, rewards, config.discount))
    return np.concatenate(columns, axis=1)


def bases(model: CellModel, seed: int) -> dict[str, list[FloatArray]]:
    """List the candidates of each basis without data, tables [n, features] at the cells."""
    places = model.centres
    multiples = np.indices((_MULTIPLES,) * 2).reshape(2, -1)
    waves = np.cos(np.pi * places[:, :, None] * multiples[None]).prod(axis=1)
    squares = 1.0 + np.sum(multiples**2, axis=0)
    found = {
        COSINES: [waves * squares ** (-decay / 2.0) for decay in _DECAYS],
        FOURIER: [
            _drawn(RandomFourier(length_scale=length), _WIDTH, seed, 2, places)
            for length in _LENGTHS
        ],
        NETWORKS: [
            _drawn(
                RandomNetwork(hidden=(_WIDTH, _WIDTH), input_scale=1.0 / length),
                _WIDTH,
                seed,
                3,
                places,
            )
            for length in _LENGTHS
        ],
    }
    seen = model.observations
    if model.arena != NULL:  # There they are the places.
        size = seen.shape[1]
        found[CODES] = [
            _drawn(
                RandomFourier(length_scale=length * size**0.5, num_inputs=size),
                _WIDTH,
                seed,
                4,
                seen,
            )
            for length in _LENGTHS
        ]
    return found


def _drawn(
    family: Cumulants, number: int, seed: int, part: int, places: npt.ArrayLike
) -> FloatArray:
    return np.asarray(_functions(family, number, seed_key(seed, part), places), np.float64)


@partial(jax.jit, static_argnums=(0, 1))
def _functions(family: Cumulants, number: int, key: jax.Array, places: jax.Array) -> jax.Array:
    return family.apply(family.init(key, number), places)


def unexplained(
    candidates: Sequence[FloatArray], values: FloatArray, labelled: npt.NDArray[np.int64]
) -> float:
    """Fit values [n, m] at the labelled cells and compute their mean 1 - R² at the others.

    Args:
        candidates: Tables [n, d]; each value function takes the one of least leave-one-out error.
        values: Of m value functions.
        labelled: Indices of cells.
    """
    fits = [ridge_by_leave_one_out(table[labelled], values[labelled]) for table in candidates]
    chosen = np.argmin([ridge.error for ridge in fits], axis=0)
    rest = np.delete(np.arange(len(values)), labelled)
    predicted = np.stack(
        [
            table[rest] @ ridge.weights + ridge.intercept
            for table, ridge in zip(candidates, fits, strict=True)
        ]
    )[chosen, :, np.arange(values.shape[1])].T
    held_out = values[rest]
    residual = np.sum(np.square(held_out - predicted), axis=0)
    return float(np.mean(residual / np.sum(np.square(held_out - held_out.mean(axis=0)), axis=0)))


def cells(run: Run[Config]) -> dict[str, tuple[str, int]]:
    """List the replicates."""
    seeds = range(run.config.seed, run.config.seed + run.config.replicates)
    return {
        f"{in_path(arena)}-{seed}": (arena, seed) for arena in run.config.arenas for seed in seeds
    }


def measure(run: Run[Config], name: str, cell: tuple[str, int]) -> dict[str, Any]:
    """Measure a replicate: arm → unexplained shares [labels][draws]."""
    config, (arena, seed) = run.config, cell
    data = mazes.free_transitions(arena, config.steps, seed)
    learned = mazes.fitted(arena, data, config.fit(seed))
    model = learned.model
    values = value_functions(model, config, seed)
    tables = {
        LEARNED: [learned.features("singular").astype(np.float64)],
        WHITE: [learned.features("white").astype(np.float64)],
        ORACLE: [model.components(config.num_features, config.discount)],
        **bases(model, seed),
    }
    rng = np.random.default_rng((seed, 1))
    orders = [rng.permutation(model.num_cells) for _ in range(config.draws)]
    shares = {
        arm: [
            [unexplained(candidates, values, order[:count]) for order in orders]
            for count in config.labels
        ]
        for arm, candidates in tables.items()
    }
    return {"arena": arena, "seed": seed, "rows": len(data), "shares": shares}


# --- What is reported -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """Learned features against the best basis without data, in one arena at one number of labels.

    Attributes:
        arena: Its name.
        labels: Number of labelled cells.
        best: The basis.
        shares: Arm → unexplained share of each replicate, the mean of its draws, [replicates].
    """

    arena: str
    labels: int
    best: str
    shares: Mapping[str, FloatArray]

    @property
    def differences(self) -> FloatArray:
        """Learned less best, [replicates]; better below 0."""
        return self.shares[LEARNED] - self.shares[self.best]

    @property
    def beyond_half(self) -> Interval:
        """Learned less half the best, with its 95 % interval; the goal is below 0."""
        return mean_interval(self.shares[LEARNED] - 0.5 * self.shares[self.best])

    @property
    def halves(self) -> bool | None:
        """Tell whether the goal is met; None where it cannot be told."""
        if len(self.differences) < FEWEST:
            return None
        return self.beyond_half.below(Interval(0.0, 0.0, 0.0))

    @property
    def p_value(self) -> float:
        """Of the differences' mean, not adjusted."""
        return sign_flip_p_value(self.shares[LEARNED], self.shares[self.best])

    @property
    def half_p_value(self) -> float:
        """Of the mean of learned less half the best, not adjusted."""
        return sign_flip_p_value(self.shares[LEARNED], 0.5 * self.shares[self.best])


def contrasts(config: Config, found: Sequence[Mapping[str, Any]]) -> list[Contrast]:
    """Collect the replicates' shares, arena by arena, label by label."""
    collected = []
    for arena in config.arenas:
        parts = [each["shares"] for each in found if each["arena"] == arena]
        for index, labels in enumerate(config.labels):
            shares = {
                arm: np.array([np.mean(part[arm][index]) for part in parts]) for arm in parts[0]
            }
            best = min(OF_PLACES, key=lambda arm: float(shares[arm].mean()))
            collected.append(Contrast(arena=arena, labels=labels, best=best, shares=shares))
    return collected


_EXACT = 14
"""Pairs whose sign flips are counted out, as by ``sign_flip_p_value``."""


def detectable(differences: FloatArray, level: float) -> float | None:
    """Compute the smallest mean difference that sign flips of these pairs detect in 80 of 100.

    Differences are taken to be normal, of these ones' standard deviation. Of more than 14 pairs it
    is the paired t-test's, as which sign flips then detect about as much.

    Args:
        differences: Of pairs, [runs].
        level: Of the test, corrected for the number of tests.

    Returns:
        The difference, by 4,000 simulated sets of pairs; None where no p-value of so few pairs is
        at or below the level.
    """
    runs = len(differences)
    if runs > _EXACT:
        return smallest_detectable(differences, level)
    found = _detectable_by_flips(runs, level)
    return None if found is None else found * float(differences.std(ddof=1))


@cache
def _detectable_by_flips(runs: int, level: float) -> float | None:
    """Simulate ``detectable`` in standard deviations of a difference."""
    if runs < 2 or 2.0 ** (1 - runs) > level:
        return None
    # A flip of all signs is as far from 0: half of the flips are enough.
    signs = 1.0 - 2.0 * (np.arange(2 ** (runs - 1))[:, None] >> np.arange(runs) & 1)
    noise = np.random.default_rng(0).normal(size=(4_000, runs))

    def power(effect: float) -> float:
        given = noise + effect
        sums = np.abs(given @ signs.T)
        p_values = np.mean(sums >= np.abs(given.sum(axis=1, keepdims=True)) - 1e-9, axis=1)
        return float(np.mean(p_values <= level))

    low, high = 0.0, 1.0
    while power(high) < 0.8:
        low, high = high, 2.0 * high
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if power(middle) >= 0.8 else (middle, high)
    return high


def judge(found: Sequence[Contrast]) -> list[Found]:
    """Judge the goal at each number of labels, and the null in ``sutton``."""

    def said(each: Contrast) -> str:
        ratio = each.shares[LEARNED].mean() / each.shares[each.best].mean()
        return f"{each.arena}: {format_number(ratio)} of {each.best}"

    claims = []
    for labels in dict.fromkeys(each.labels for each in found):
        here = [each for each in found if each.labels == labels]
        in_mazes = [each for each in here if each.arena != NULL]
        claims.append(
            Found(
                statement=f"{labels} labels, mazes: learned features leave at most half the "
                "variance unexplained that the best basis without data leaves",
                stated="learned less half the best below 0 in at least two mazes, by 95 % "
                "intervals, each by itself",
                found="; ".join(map(said, in_mazes)),
                holds=in_two_mazes([each.halves for each in in_mazes]),
            )
        )
        for each in here:
            if each.arena == NULL:
                halves = each.halves
                claims.append(
                    Found(
                        statement=f"{labels} labels, {NULL}: they do not",
                        stated="learned less half the best above 0, by the 95 % interval",
                        found=said(each),
                        holds=None if halves is None else not halves,
                    )
                )
    return claims


def _test_of(replicates: int) -> str:
    return "the sign flips" if replicates <= _EXACT else "a paired t-test"


def report(run: Run[Config], found: dict[str, Any]) -> Findings:
    """Tabulate and draw unexplained variance, and judge the goal."""
    config, collected = run.config, contrasts(run.config, list(found.values()))
    adjusted = holm([each.p_value for each in collected])
    of_halves = holm([each.half_p_value for each in collected])
    level = LEVEL / len(collected)
    rows = [
        {
            "arena": each.arena,
            "labels": each.labels,
            "learned": float(each.shares[LEARNED].mean()),
            "best": each.best,
            "best_share": float(each.shares[each.best].mean()),
            "difference": mean_interval(each.differences).value,
            "difference_low": mean_interval(each.differences).low,
            "difference_high": mean_interval(each.differences).high,
            "p_value": p_value,
            "detectable": detectable(each.differences, level),
            "beyond_half_low": each.beyond_half.low,
            "beyond_half_high": each.beyond_half.high,
            "half_p_value": half_p_value,
        }
        for each, p_value, half_p_value in zip(
            collected, adjusted.tolist(), of_halves.tolist(), strict=True
        )
    ]
    run.write_rows("contrasts", rows)
    arms = list(dict.fromkeys(arm for each in collected for arm in each.shares))
    means = [
        {
            "arena": each.arena,
            "labels": each.labels,
            "arm": arm,
            **mean_interval(shares)._asdict(),
        }
        for each in collected
        for arm, shares in each.shares.items()
    ]

    def line(arena: str, arm: str) -> Line:
        shares = [each.shares[arm] for each in collected if each.arena == arena]
        return Line.of_runs(arm, config.labels, np.transpose(shares))

    panels = [
        Panel(
            title=arena,
            lines=[
                line(arena, arm)
                for arm in arms
                if all(arm in each.shares for each in collected if each.arena == arena)
            ],
        )
        for arena in config.arenas
    ]
    figure = run.show(
        "unexplained",
        "Share of the variance of held-out values that is not explained, against the number of "
        f"labelled cells: mean over {config.replicates} replicates, 95 % interval.",
        means,
        plot_panels(
            panels,
            note=f"mean over {config.replicates} replicates, 95 % interval",
            x_label="labelled cells",
            y_label="unexplained share of variance",
            log_x=True,
            x_ticks=config.labels,
        ),
    )
    table = table_of(
        rows,
        {
            "arena": "arena",
            "labels": "labels",
            "learned": "learned",
            "best basis without data": "best",
            "its share": "best_share",
            "difference": "difference",
            "low": "difference_low",
            "high": "difference_high",
            "p, adjusted": "p_value",
            "detectable": "detectable",
            "learned - half the best, low": "beyond_half_low",
            "high ": "beyond_half_high",
            "p, adjusted ": "half_p_value",
        },
        "Unexplained shares, means over replicates, with 95 % intervals of paired differences "
        "(below 0: learned features explain more). The first p-value and what is detectable are of "
        "no difference; the goal is of learned less half the best, to which the last three columns "
        "belong. p-values are of sign flips, each kind adjusted for its number (Holm 1979); "
        "intervals, by which the goal is judged, are not. Detectable: the smallest difference that "
        f"{_test_of(config.replicates)} would find with 80 % power at level "
        f"{format_number(level)}, from the spread of these replicates.",
    )
    every = table_of(
        [
            {"arm": arm}
            | {
                f"{each.arena} {each.labels}": float(each.shares[arm].mean())
                for each in collected
                if arm in each.shares
            }
            for arm in arms
        ],
        {"": "arm"}
        | {f"{each.arena}, {each.labels}": f"{each.arena} {each.labels}" for each in collected},
        "Unexplained share of every arm by arena and number of labels.",
    )
    count = config.num_policies * config.num_rewards
    goals = Section(
        title="Goals",
        text=f"Values of {count} policies and rewards are known at a few cells and predicted at "
        f"the others. Learned features are {config.num_features} singular functions of the "
        f"successor measure, fitted to {config.steps:,} steps of the random policy without "
        "rewards; these steps are what they cost beside bases that need none. In mazes agents see "
        "codes that tell nothing of places, and a table over the distinct codes is fitted; bases "
        f"of (x, y) know the place. In {NULL} agents see (x, y). Each of {config.replicates} "
        f"replicates has its own data, fit, value functions and {config.draws} draws of labelled "
        f"cells; fewer than {FEWEST} replicates give no verdict.",
        tables=[table],
        figures=[figure],
    )
    abstract = "; ".join(
        f"{row['arena']}, {row['labels']} labels: {format_number(row['learned'])} against "
        f"{format_number(row['best_share'])}"
        for row in rows
    )
    return Findings(
        abstract="Unexplained share of the variance of values, learned features against the best "
        f"basis without data. {abstract}.",
        claims=judge(collected),
        sections=[goals, Section(title="Every arm", tables=[every])],
        summary={"contrasts": rows},
    )


EXPERIMENT = Experiment(
    name="few-labels",
    title="Values from few labels",
    paper="Our own experiment.",
    presets=PRESETS,
    cells=cells,
    measure=measure,
    report=report,
    counts_cells=True,
    stated="our goal",
)
