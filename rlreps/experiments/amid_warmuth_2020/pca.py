"""Shared parts of the experiments on streaming PCA: problem, choice of η0, verdicts."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.stats

from rlreps.errors import InputError, require, require_choice, require_interval, require_positive
from rlreps.experiments.harness import Claim, Run, all_hold
from rlreps.sources.datasets import Observations
from rlreps.streaming import RULES, PowerDecay, Runs, StreamingRule, run_passes
from rlreps.streaming.passes import MakeRule
from rlreps.subspace.centring import second_moments
from rlreps.subspace.svd import relative_tolerance

DoubleArray = npt.NDArray[np.float64]
Measure = Callable[[DoubleArray], DoubleArray]
"""Mean losses of several choices of runs, [..., choices] → what is compared, [choices]."""

AUTHORS_RATES = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""The initial learning rates that Amid & Warmuth's code tries."""

IMPLICIT = "implicit_krasulina"

EXPLICIT_START = (
    "What explicit Krasulina does depends on η0 / ||C||² alone. Its C starts here with columns of "
    "about unit length, as the bases of Oja and Krasulina do. From entries as small as the "
    "authors' 1e-5, which implicit Krasulina starts from here too, a first step is far longer than "
    "C itself and leaves columns so long that later steps hardly turn them. The implicit rule "
    "damps just these first steps."
)
"""Start of the explicit rule, and the reason for it."""

_LEAST_SHARE = 1e-6
"""Of the variance: what float32 rows can hold beyond their top components."""
_ROUNDING = 1e-12
"""Of a loss: smaller differences are those of sums taken in another order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PcaConfig:
    """Repeated runs of streaming rules, whose initial learning rates are chosen beforehand.

    Attributes:
        components: Numbers of components k.
        tuning_fraction: Share of the rows that initial learning rates are chosen on.
        repeats: Runs of each rule, seeds ``seed`` … ``seed + repeats - 1``: a seed is a start and
            an order of the rows, which all rules share.
        seed: Seed of the first repeat and of the choice of η0.
    """

    components: tuple[int, ...] = (5, 10, 20)
    tuning_fraction: float = 0.1
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_different("components", self.components)
        for count in (*self.components, self.repeats):
            require_positive("components and repeats", count)
        require_interval("tuning_fraction", self.tuning_fraction, "(0, 1]")
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def seeds(self) -> range:
        """Return the seed of each repeat."""
        return range(self.seed, self.seed + self.repeats)


def require_different(name: str, values: Sequence[object]) -> None:
    """Raise an ``InputError`` for no values or for one that comes twice."""
    require(len(set(values)) == len(values) >= 1, f"different {name}, at least one", values)


def require_rules(names: Sequence[str], powers: Sequence[float], rates: Sequence[float]) -> None:
    """Raise an ``InputError`` for unknown rules, negative powers γ or rates that are not > 0."""
    for name in names:
        require_choice("rules", name, tuple(RULES))
    for power in powers:
        require_interval("power", power, "[0, inf)")
    for rate in rates:
        require_interval("learning_rates", rate, "(0, inf)")


class PcaProblem(NamedTuple):
    """Rows without their mean, and their exact principal components.

    Attributes:
        name: Name of the data set.
        rows: Less their mean, [n, features] (float32).
        image_shape: (height, width, ...) of rows that are images, or None.
        moments: Covariance of the rows, [features, features].
        variances: Its eigenvalues in descending order, [features].
        basis: Its eigenvectors as columns in that order, [features, features].
    """

    name: str
    rows: npt.NDArray[np.float32]
    image_shape: tuple[int, ...] | None
    moments: DoubleArray
    variances: DoubleArray
    basis: DoubleArray

    @property
    def is_mnist(self) -> bool:
        """Return whether the rows are the 70,000 images of Amid & Warmuth's tables."""
        return self.name.startswith("MNIST (70,000")

    @property
    def no_components(self) -> float:
        """Return the loss of no components at all, the rows' whole variance."""
        return float(np.trace(self.moments))

    def exact_loss(self, k: int) -> float:
        """Return the mean of ‖x − Px‖² over the rows for the exact top k components."""
        return float(self.variances[k:].sum())

    def loss(self, components: npt.NDArray[np.floating]) -> float:
        """Compute the mean of ‖x − Px‖² over the rows for a span [features, k], in float64.

        Components that depend on those before them, to the rounding of their type, add nothing.
        NaN where components are not finite.
        """
        if not np.isfinite(components).all():
            return float("nan")
        columns = np.asarray(components, np.float64)
        span, upper = np.linalg.qr(columns)
        left, lengths = np.abs(np.diagonal(upper)), np.linalg.norm(columns, axis=0)
        span = span * (left > relative_tolerance(columns.shape, components.dtype) * lengths)
        return float(np.trace(self.moments) - np.sum(span * (self.moments @ span)))

    def counted(self, losses: npt.ArrayLike) -> DoubleArray:
        """Replace the loss of a run that diverged (NaN) by that of no components."""
        table = np.asarray(losses, np.float64)
        return np.where(np.isfinite(table), table, self.no_components)

    def excess_percent(self, losses: npt.ArrayLike, k: int) -> DoubleArray:
        """Compute 100 (loss / exact loss − 1) of losses of k components, diverged ones counted."""
        excess: DoubleArray = 100.0 * (self.counted(losses) / self.exact_loss(k) - 1.0)
        return excess

    def repeated(self, losses: npt.ArrayLike) -> "Repeated":
        """Summarise final losses [runs] or, averaged over workers first, [runs, workers]."""
        table = self.counted(losses)
        values = table if table.ndim == 1 else table.mean(axis=1)
        deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
        diverged = int(np.count_nonzero(~np.isfinite(np.asarray(losses, np.float64))))
        return Repeated(float(values.mean()), deviation, diverged)


class Repeated(NamedTuple):
    """Final losses of repeated runs.

    Attributes:
        mean: Their mean; a run that diverged counts with the loss of no components.
        deviation: Their standard deviation (n − 1); 0 of one run.
        diverged: Runs, or workers of all runs, that did.
    """

    mean: float
    deviation: float
    diverged: int

    def __str__(self) -> str:
        found = f"{self.mean:.3f} ± {self.deviation:.3f}"
        return f"{found} ({self.diverged} diverged)" if self.diverged else found


def make_problem(config: PcaConfig, observations: Observations) -> PcaProblem:
    """Remove the rows' mean and find their exact components.

    Raises:
        InputError: If there are not as many features or rows as components, or no variance is left
            beyond them that an excess could be of.
    """
    (count, features), most = observations.rows.shape, max(config.components)
    require(
        most <= min(count, features),
        f"k in [1, {min(count, features)}] for the {count} rows of {features} features of "
        f"{observations.name}",
        most,
    )
    mean = observations.rows.mean(axis=0, dtype=np.float64)
    rows = observations.rows - mean.astype(np.float32)
    moments = second_moments(rows)
    variances, vectors = scipy.linalg.eigh(moments)
    problem = PcaProblem(
        observations.name,
        rows,
        observations.image_shape,
        moments,
        np.maximum(variances[::-1], 0.0),
        vectors[:, ::-1],
    )
    share = problem.exact_loss(most) / max(problem.no_components, np.finfo(float).tiny)
    require(
        share > _LEAST_SHARE,
        f"rows of {problem.name} that vary beyond their top {most} components",
        f"a share of {share:.1e} of their variance there",
    )
    return problem


def require_rows(config: PcaConfig, observations: Observations, count: int, parts: str) -> None:
    """Raise an ``InputError`` without a row for each of so many parts and for the choice of η0."""
    rows = len(observations.rows)
    require(
        count <= rows and config.tuning_fraction * rows >= 1.0,
        f"a row for each of {count} {parts} and for the choice of η0",
        f"{rows} rows",
    )


def rule_cells(run: Run[Any]) -> dict[str, tuple[str, int]]:
    """List every rule of a configuration with every k."""
    return {f"{rule}-{k}": (rule, k) for rule in run.config.rules for k in run.config.components}


class RatesDivergedError(InputError):
    """Every learning rate that was tried diverged."""


def decaying_rule(rule: str, features: int, k: int, power: float) -> MakeRule:
    """Build a rule whose learning rate is η0 / t^power, for η0."""

    def build(initial: jax.Array) -> StreamingRule:
        made: StreamingRule = RULES[rule].at_rate(features, k, PowerDecay(initial, power))
        return made

    return build


def choose_rate(
    config: PcaConfig,
    rule: str,
    build: MakeRule,
    problem: PcaProblem,
    learning_rates: Sequence[float],
    *,
    rows_per_update: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """Try learning rates on a random part of the rows, one pass over it each.

    Amid & Warmuth 2020 choose η0 on a tenth of the data. As in their code, a rate is judged by the
    loss on the part that the pass went over.

    Returns:
        ``learning_rate``, the first one of least loss, and ``tuning_losses`` (NaN where a run
        diverged); None and none of a rule without a learning rate.

    Raises:
        InputError: As ``run_passes``, if the part has no whole update.
        RatesDivergedError: If all runs diverge.
    """
    if not RULES[rule].needs_learning_rate:
        return {"learning_rate": None, "tuning_losses": []}
    count = int(len(problem.rows) * config.tuning_fraction)
    chosen = np.random.default_rng(config.seed).permutation(len(problem.rows))[:count]
    part = problem.rows[np.sort(chosen)]
    losses = run_passes(
        build,
        part,
        Runs([config.seed] * len(learning_rates), learning_rates),
        evaluate=problem._replace(rows=part, moments=second_moments(part)).loss,
        evaluate_every=count,
        rows_per_update=rows_per_update,
        devices=devices,
    ).figures[-1]
    if not np.isfinite(losses).any():
        raise RatesDivergedError(
            f"expected one of the learning rates {list(learning_rates)} not to diverge on "
            f"{problem.name}, got NaN for all"
        )
    best = float(learning_rates[int(np.nanargmin(losses))])
    return {"learning_rate": best, "tuning_losses": losses.tolist()}


def rate_to_run(tuned: Mapping[str, Any]) -> float:
    """Return the chosen η0; 1 for a rule without a learning rate, which ignores it."""
    rate: float | None = tuned["learning_rate"]
    return 1.0 if rate is None else rate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RuleRuns:
    """The results of one rule for one k; a subclass adds its arrays of losses.

    Attributes:
        problem: The rows.
        rule: Its name.
        k: Components.
        learning_rate: The chosen η0; NaN for a rule without.
        tuning_losses: Loss on the part for each rate that was tried; NaN where it diverged.
        rows_seen: [points], the start among them.
        seconds: Time in the updates of all runs, without compilation and choice of η0.
    """

    problem: PcaProblem
    rule: str
    k: int
    learning_rate: float
    tuning_losses: Sequence[float]
    rows_seen: npt.NDArray[np.int64]
    seconds: float

    @classmethod
    def of_run(cls, run: Run[Any], parts: Mapping[str, Mapping[str, Any]]) -> list[Self]:
        """Read the results for ``rule_cells`` from the parts of a run's folder."""
        common = {field.name for field in dataclasses.fields(RuleRuns)}
        own = [field.name for field in dataclasses.fields(cls) if field.name not in common]
        return [
            cls(
                problem=run.data,
                rule=rule,
                k=k,
                learning_rate=part["learning_rate"],
                tuning_losses=part["tuning_losses"],
                rows_seen=np.asarray(part["rows_seen"], np.int64),
                seconds=part["seconds"],
                **{name: np.asarray(part[name], np.float64) for name in own},
            )
            for (rule, k), part in zip(rule_cells(run).values(), parts.values(), strict=True)
        ]

    @property
    def title(self) -> str:
        """Return its name in figures and tables."""
        return RULES[self.rule].title

    def excess(self, losses: npt.ArrayLike) -> DoubleArray:
        """Compute 100 (loss / exact loss − 1) of losses of this k, diverged ones counted."""
        return self.problem.excess_percent(losses, self.k)


def by_rule(results: Sequence[RuleRuns], described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collect ``rules`` and ``seconds`` of a summary."""
    rules: dict[str, dict[str, Any]] = {}
    for result, found in zip(results, described, strict=True):
        own = rules.setdefault(result.rule, {})
        own[str(result.k)] = {"learning_rate": result.learning_rate, **found}
    return {"rules": rules, "seconds": round(sum(result.seconds for result in results), 3)}


def exact_summary(config: PcaConfig, folder_config: Mapping[str, Any], problem: PcaProblem) -> Any:
    """Collect what every summary says of the rows: ``data`` and ``exact`` losses by k."""
    exact = {str(k): problem.exact_loss(k) for k in config.components}
    return {"data": folder_config["data"], "exact": exact}


class Entry(NamedTuple):
    """A rule in a comparison.

    Attributes:
        title: Its name.
        losses: Of its runs, NaN where one diverged, [runs] or [conditions, runs]; the runs of all
            rules in a comparison have the same seeds in the same order.
        text: What is compared, as the report shows it.
    """

    title: str
    losses: DoubleArray
    text: str


def is_less(
    ours: npt.ArrayLike, theirs: npt.ArrayLike, measure: Measure = lambda means: means
) -> bool | None:
    """Decide whether a figure of mean losses is less than another's, of runs paired by seeds.

    What starts and orders of rows have in common drops out of the difference. Its interval is the
    jackknife's with Student's t for as many runs, of mean losses the interval of the paired t-test:
    a bootstrap's would be far too narrow for two or three runs.

    Args:
        ours: Losses [..., runs].
        theirs: Losses of runs of the same seeds, [..., runs].
        measure: What is compared; the mean losses themselves, of losses [runs].

    Returns:
        None where the 95 % interval of the difference holds 0, a run diverged or there is only one.
    """
    mine, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    runs = mine.shape[-1]
    if runs == 1 or not (np.isfinite(mine).all() and np.isfinite(other).all()):
        return None
    # All runs, then all but one: what each run moves the difference by.
    weights = np.column_stack([np.ones(runs) / runs, (1.0 - np.eye(runs)) / (runs - 1)])
    differences = measure(mine @ weights) - measure(other @ weights)
    pseudo_values = runs * differences[0] - (runs - 1) * differences[1:]
    margin = scipy.stats.t.ppf(0.975, runs - 1) * np.std(pseudo_values, ddof=1) / math.sqrt(runs)
    middle = pseudo_values.mean()
    return bool(middle < 0.0) if abs(middle) > margin + _ROUNDING * np.abs(mine).max() else None


def least_claim(
    statement: str,
    stated: str,
    ours: Entry,
    others: Sequence[Entry],
    *,
    measure: Measure = lambda means: means,
    complete: bool = True,
) -> Claim:
    """Claim that one rule has the least of all.

    Args:
        statement: What it is about.
        stated: What was stated beforehand.
        ours: The rule.
        others: The others.
        measure: What is compared, as for ``is_less``.
        complete: Whether all rules that the statement is about are there.
    """
    listed = ", ".join(f"{each.title} {each.text}" for each in others)
    verdict = all_hold(is_less(ours.losses, each.losses, measure) for each in others)
    found = f"{ours.text}; {listed or 'no other rule'}"
    return Claim(
        statement=statement, stated=stated, found=found, holds=verdict if complete else None
    )


def implicit_claims(
    results: Sequence[Any],
    entry: Callable[[Any], Entry],
    statement: str,
    stated: str,
    *,
    measure: Measure = lambda means: means,
) -> list[Claim]:
    """Claim for each k that implicit Krasulina has the least of all rules there, if it is there."""
    claims = []
    for k in dict.fromkeys(each.k for each in results):
        entries = {each.rule: entry(each) for each in results if each.k == k}
        ours = entries.pop(IMPLICIT, None)
        if ours is not None and entries:
            about = f"{ours.title}, k = {k}: {statement}"
            claims.append(least_claim(about, stated, ours, list(entries.values()), measure=measure))
    return claims
