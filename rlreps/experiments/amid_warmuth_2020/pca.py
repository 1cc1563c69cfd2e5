"""Shared parts of the experiments on streaming PCA (Amid & Warmuth 2020).

Rules as published, the numbers that the paper prints, exact components, the choice of learning
rates, verdicts. What the text leaves open (starts, grids of η0) follows the authors' code, but for
what ``DEVIATIONS``, ``START`` and ``RATES`` say.
Their "Sanger" is ``explicit_krasulina``; ``sanger`` is Sanger's own rule of 1989.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import numpy.typing as npt
import scipy.linalg

from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.experiments.harness import Found, Run, agrees, all_hold, in_path
from rlreps.runs.intervals import mean_interval
from rlreps.sources.datasets import Observations
from rlreps.streaming import RULES, PowerDecay, Runs, StreamingRule, run_passes
from rlreps.streaming.passes import MakeRule
from rlreps.streaming.rules.factor import FactorRule
from rlreps.subspace.centring import second_moments
from rlreps.subspace.svd import relative_tolerance

DoubleArray = npt.NDArray[np.float64]
Measure = Callable[[DoubleArray], DoubleArray]
"""Mean losses of several choices of runs, [..., choices] → what is compared, [choices]."""

RATES = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Initial learning rates to choose from. The authors' code has these, and some that grow with k."""

SANGER_RATES = (
    *(1e-6, 5e-6, 1e-5, 5e-5, 8e-5, 1e-4, 2e-4, 5e-4, 8e-4, 1e-3, 2e-3, 5e-3),
    *(0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
"""Those that it tries for the explicit rule."""

IMPLICIT, SANGER = "implicit_krasulina", "explicit_krasulina"
PAPER_RULES = ("oja", "krasulina", "incremental_pca", SANGER, IMPLICIT)

ABOUT_SANGER = (
    'The paper\'s "Sanger" is the explicit Krasulina of this page. What it does depends on '
    "η0 / ||C||² alone. As published, C starts from entries close to zero, and first steps far "
    "longer than C itself leave columns so long that later ones hardly turn them; it runs in "
    "float64 here, as in the authors' code. With our start, columns of about unit length, it takes "
    "the other rules' rates and float32."
)

SUBSET = (
    "The paper's CIFAR-10 has 60,000 images. What is run here is a subset of 8,152 training images "
    "where no more are at hand: what the paper states stands beside it, and none of it is decided."
)
PRECISION = (
    "The authors' code computes in float64. Here only the explicit rule does, whose tiny start "
    "needs it: the others run in float32, the precision of accelerators."
)
START = {
    "contenders.4.initial_scale": "The authors' code starts implicit Krasulina from entries of "
    "1e-5 in Table 1 and of 1e-4 elsewhere. Here it starts from 1e-5 wherever it is judged."
}
"""The deviation of experiments other than Table 1's."""
DEVIATIONS: Mapping[str, str] = {"data": SUBSET, "precision": PRECISION}
"""Those of every experiment."""

_LEAST_SHARE = 1e-6
"""Of the variance: what float32 rows can hold beyond their top components."""
_ROUNDING = 1e-12
"""Of a loss: smaller differences are those of sums taken in another order."""
_LAST_DIGIT = 0.01
"""Of printed losses: mean and deviation are rounded by half of it each."""
_TOLERANCE = 0.02
"""Between implicit Krasulina's printed and found losses."""


class Printed(NamedTuple):
    """Mean ± standard deviation over ten runs, as the paper prints them."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


def _read(*ks: int, **tables: str) -> dict[str, list[dict[int, tuple[Printed, ...]]]]:
    """Read tables with a line a rule: data set → rule → k → cells."""

    def cells(line: str) -> dict[int, tuple[Printed, ...]]:
        found = [Printed(*map(float, cell.split("±"))) for cell in line.split()]
        each = len(found) // len(ks)
        return {k: tuple(found[each * place :][:each]) for place, k in enumerate(ks)}

    return {
        name.replace("_", "-"): [cells(line) for line in text.strip().splitlines()]
        for name, text in tables.items()
    }


BATCH: Mapping[str, Mapping[int, float]] = {
    "MNIST": {5: 35.16, 10: 26.95, 20: 18.74},
    "CIFAR-10": {5: 86.98, 10: 65.70, 20: 48.65},
}
"""Data set → k → printed loss of batch PCA."""

TABLE_1 = _read(
    *(5, 10, 20),
    MNIST="""
35.79±.38 35.19±.05 35.29±.01 29.78±.38 26.98±.02 27.08±.01 21.55±.25 18.80±.03 19.01±.01
35.78±.37 35.17±.00 35.30±.01 29.92±.37 26.96±.01 27.09±.01 21.44±.24 18.79±.02 19.02±.02
35.26±.10 27.01±.04 18.83±.05
39.09±.78 36.27±.93 42.36±1.62 30.61±.48 28.00±.38 34.48±.95 22.03±.23 19.82±.18 25.50±.46
35.17±.01 35.17±.01 35.17±.01 26.96±.01 26.97±.03 26.98±.05 18.78±.02 18.77±.02 18.77±.01
""",
    CIFAR_10="""
116.26±2.58 87.28±.43 87.22±.04 66.81±.58 65.90±.01 67.68±.13 58.28±.65 48.86±.05 50.36±.13
116.86±2.58 87.04±.52 87.17±.04 66.76±.65 65.90±.01 67.87±.16 57.62±.65 48.87±.05 50.56±.15
87.50±.46 65.75±.05 48.82±.10
90.74±1.84 88.21±.81 99.78±3.69 70.70±2.18 66.84±.88 77.88±2.62 54.04±.95 50.73±.62 60.21±1.08
87.00±.00 87.01±.00 87.02±.04 65.75±.05 65.78±.09 65.74±.01 48.75±.03 48.74±.04 48.76±.03
""",
)
"""Data set → place of the rule in ``PAPER_RULES`` → k → losses at 0.1, 1 and 10 η0; one of the rule
without a learning rate."""

TABLE_2 = _read(
    *(5, 20),
    MNIST="37.17±.01 35.17±.00 18.77±.02 18.77±.01",
    CIFAR_10="87.01±.00 87.02±.00 48.74±.04 48.76±.04",
)
"""Data set → [implicit Krasulina] → k → losses of a single model and of workers combined."""

MISPRINT, INTENDED = Printed(37.17, 0.01), Printed(35.17, 0.01)
"""A single model's loss in Table 2, and in Table 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A streaming rule, how it starts and how rows are fed to it.

    Attributes:
        rule: One of ``rlreps.streaming.RULES``.
        variant: What sets it apart from the paper's way to run the rule; empty where nothing does.
        powers: γ of the learning rate η0 / t^γ, t = 1, 2, … the update, to choose from; none for a
            rule that has no learning rate.
        learning_rates: η0 to choose from, likewise.
        rows_per_update: b, rows of an update.
        initial_scale: Standard deviation of a factor's entries at the start; None is the rule's
            own.
        double: Whether it runs in float64.
    """

    rule: str
    variant: str = ""
    powers: tuple[float, ...] = (0.8,)
    learning_rates: tuple[float, ...] = RATES
    rows_per_update: int = 1
    initial_scale: float | None = None
    double: bool = False

    def __post_init__(self) -> None:
        require_choice("rule", self.rule, tuple(RULES))
        require_positive("rows_per_update", self.rows_per_update)
        needs = RULES[self.rule].needs_learning_rate
        for name, values, interval in (
            ("powers", self.powers, "[0, inf)"),
            ("learning_rates", self.learning_rates, "(0, inf)"),
        ):
            expected = f"{'' if needs else 'no '}{name} to choose from for {self.rule}"
            require(needs == bool(values), expected, values)
            require(len(set(values)) == len(values), f"different {name}", values)
            for value in values:
                require_interval(name, value, interval)
        require(
            self.initial_scale is None or issubclass(RULES[self.rule], FactorRule),
            "initial_scale for rules on a factor only",
            self.rule,
        )

    @property
    def name(self) -> str:
        """Return what files call it; contenders of one name are the same."""
        rows = "" if self.rows_per_update == 1 else f"-{self.rows_per_update}"
        return f"{self.rule}{rows}{'-' if self.variant else ''}{in_path(self.variant)}"

    @property
    def label(self) -> str:
        """Return its name in figures, with the rows of an update where they are several."""
        rows = "" if self.rows_per_update == 1 else f" ({self.rows_per_update:,})"
        theirs = ' ("Sanger")' if self.rule == SANGER and self.published else ""
        return f"{RULES[self.rule].title}{theirs}{rows}{', ' * bool(self.variant)}{self.variant}"

    @property
    def published(self) -> bool:
        """Return whether the paper has it."""
        return self.rule in PAPER_RULES and not self.variant and self.rows_per_update == 1

    def build(self, features: int, k: int, power: float) -> MakeRule:
        """Return η0 → rule, whose learning rate is η0 / t^power."""
        start: dict[str, Any] = (
            {} if self.initial_scale is None else {"initial_scale": self.initial_scale}
        )

        def make(initial: jax.Array) -> StreamingRule:
            made = RULES[self.rule].at_rate(features, k, PowerDecay(initial, power))
            return dataclasses.replace(made, **start)

        return make

    def stream(
        self,
        over: Callable[..., Any],
        rows: npt.NDArray[np.float32],
        seeds: Sequence[int],
        rates: Sequence[float | None],
        power: float | None,
        k: int,
        **options: Any,
    ) -> Any:
        """Call ``run_passes`` or ``run_workers`` on rows [n, features]; options go to it.

        Rates are η0 of each run, power is γ; both are None for a rule without a learning rate.
        """
        with jax.enable_x64(True) if self.double else contextlib.nullcontext():
            return over(
                self.build(rows.shape[1], k, power or 0.0),
                rows.astype(np.float64) if self.double else rows,
                Runs(seeds, [1.0 if rate is None else rate for rate in rates]),
                rows_per_update=self.rows_per_update,
                **options,
            )


def published(start: float) -> tuple[Contender, ...]:
    """Return the paper's five rules with its γ; the explicit one starts from entries of a size.

    The implicit one starts from the same in the authors' code, here from 1e-5: see ``START``.
    """
    return (
        Contender(rule="oja", powers=(0.9,)),
        Contender(rule="krasulina", powers=(0.9,)),
        Contender(rule="incremental_pca", powers=(), learning_rates=()),
        Contender(rule=SANGER, learning_rates=SANGER_RATES, initial_scale=start, double=True),
        Contender(rule=IMPLICIT, initial_scale=1e-5),
    )


OUR_SANGER = Contender(rule=SANGER, variant="our start")


def choosing_power(contenders: Sequence[Contender], *powers: float) -> tuple[Any, ...]:
    """Let contenders with a learning rate choose γ, too."""
    return tuple(
        dataclasses.replace(each, powers=powers) if each.powers else each for each in contenders
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PcaConfig:
    """Repeated runs of streaming rules, whose learning rates are chosen beforehand.

    Attributes:
        contenders: Rules, each with γ and η0 to choose from.
        components: Numbers of components k.
        tuning_fraction: Share of the rows that γ and η0 are chosen on.
        repeats: Runs of each rule, seeds ``seed`` … ``seed + repeats - 1``: a seed is a start and
            an order of the rows, which all rules share.
        seed: Seed of the first repeat and of the choice of γ and η0.
    """

    contenders: tuple[Contender, ...] = published(1e-5)
    components: tuple[int, ...] = (5, 10, 20)
    tuning_fraction: float = 0.1
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_different("contenders", [contender.name for contender in self.contenders])
        require_different("components", self.components)
        for count in (*self.components, self.repeats):
            require_positive("components and repeats", count)
        require_interval("tuning_fraction", self.tuning_fraction, "(0, 1]")
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def seeds(self) -> range:
        """Return the seed of each repeat."""
        return range(self.seed, self.seed + self.repeats)

    def follows(self, paper: Self, problem: "PcaProblem") -> bool:
        """Return whether a run can decide what the paper states.

        It is on all of the paper's data and that of the ``paper`` preset, but for k, repeats, seed
        and contenders that the preset does not have.
        """
        ours = [each for each in self.contenders if each in paper.contenders]
        there = len(ours) == len(paper.contenders)
        free = ("components", "repeats", "seed", "contenders")
        return there and agrees(self, paper, free) and problem.is_whole


def require_different(name: str, values: Sequence[object]) -> None:
    """Raise an ``InputError`` for no values or for one that comes twice."""
    require(len(set(values)) == len(values) >= 1, f"different {name}, at least one", values)


class Repeated(NamedTuple):
    """Final losses of repeated runs.

    Attributes:
        mean: Their mean; a run that diverged counts with the loss of no components.
        deviation: Their standard deviation (n − 1); 0 of one run.
        low: Lower end of the mean's 95 % interval: Student's of fewer than 20 runs, else the
            bootstrap's; NaN of one.
        high: Upper end.
        diverged: Runs, or workers of all runs, that did.
    """

    mean: float
    deviation: float
    low: float
    high: float
    diverged: int

    def __str__(self) -> str:
        found = f"{self.mean:.3f} ± {self.deviation:.3f}"
        return f"{found} ({self.diverged} diverged)" if self.diverged else found

    def within(self, printed: Printed, allowed: float | None = None) -> bool | None:
        """Decide whether the mean is within the printed spread.

        Args:
            printed: What the paper prints.
            allowed: Distance from its mean; the printed deviation and rounding by default.

        Returns:
            None where the mean is not, but its interval reaches into the spread.
        """
        distance = printed.deviation + _LAST_DIGIT if allowed is None else allowed
        if abs(self.mean - printed.mean) <= distance:
            return True
        outside = self.low > printed.mean + distance or self.high < printed.mean - distance
        return False if outside else None


class PcaProblem(NamedTuple):
    """Rows without their mean, and their exact principal components.

    Attributes:
        name: Name of the data set.
        rows: Less their mean, [n, features] (float32).
        image_shape: (height, width, ...) of rows that are images, or None.
        moments: Covariance of the rows, [features, features].
        variances: Its eigenvalues in descending order, [features].
        basis: Its eigenvectors as columns in that order, [features, features].
        is_mnist: Whether the rows are MNIST's images, image for image.
    """

    name: str
    rows: npt.NDArray[np.float32]
    image_shape: tuple[int, ...] | None
    moments: DoubleArray
    variances: DoubleArray
    basis: DoubleArray
    is_mnist: bool

    @property
    def data_set(self) -> str | None:
        """Return which of the paper's data sets the rows are of, or a part of, if any."""
        if self.is_mnist:
            return "MNIST"
        return "CIFAR-10" if self.name.lower().startswith("cifar-10") else None

    @property
    def is_whole(self) -> bool:
        """Return whether the rows are all of a data set of the paper."""
        return self.data_set == "MNIST" or (
            self.data_set == "CIFAR-10" and self.rows.shape == (60_000, 3_072)
        )

    @property
    def about_data(self) -> str:
        """Return the paragraph on rows that no statement of the paper is decided on, if so."""
        if self.is_whole:
            return ""
        other = "These are not the paper's data: none of its statements is decided."
        return f"\n\n{SUBSET if self.data_set else other}"

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

    def repeated(self, losses: npt.ArrayLike) -> Repeated:
        """Summarise final losses [runs] or, averaged over workers first, [runs, workers]."""
        table = self.counted(losses)
        values = table if table.ndim == 1 else table.mean(axis=1)
        mean = mean_interval(values)
        deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
        diverged = int(np.count_nonzero(~np.isfinite(np.asarray(losses, np.float64))))
        return Repeated(mean.value, deviation, mean.low, mean.high, diverged)


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
        observations.is_mnist,
    )
    share = problem.exact_loss(most) / max(problem.no_components, np.finfo(float).tiny)
    require(
        share > _LEAST_SHARE,
        f"rows of {problem.name} that vary beyond their top {most} components",
        f"a share of {share:.1e} of their variance there",
    )
    return problem


def check(
    config: PcaConfig, observations: Observations, parts: int = 1, of: str = "runs"
) -> PcaProblem:
    """Refuse rows that are too few for so many parts and for updates, then ``make_problem``."""
    count = len(observations.rows)
    require(parts <= count, f"a row for each of {parts} {of}", f"{count} rows")
    for contender in config.contenders:
        tuned = bool(contender.learning_rates)
        available = int(count * config.tuning_fraction) if tuned else count
        where = f"the {config.tuning_fraction:.0%} that η0 is chosen on" if tuned else "all"
        require(
            contender.rows_per_update <= available,
            f"at least {contender.rows_per_update} rows, an update of {contender.rule}, in {where}",
            available,
        )
    return make_problem(config, observations)


def cells(run: Run[Any]) -> dict[str, tuple[Contender, int]]:
    """List every contender with every k."""
    return {
        f"{contender.name}-k{k}": (contender, k)
        for k in run.config.components
        for contender in run.config.contenders
    }


def choose_rates(
    config: PcaConfig,
    contender: Contender,
    k: int,
    problem: PcaProblem,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """Try γ and η0 on a random part of the rows, one pass over it for each pair.

    Amid & Warmuth 2020 choose both on a tenth of the data. As in their code, they are judged by the
    loss on the part that the pass went over.

    Returns:
        ``power`` and ``learning_rate``, the first pair of least loss, ``tuning_losses`` [powers,
        rates] (NaN where a run diverged) and ``all_diverged``: then the first power and the least
        rate were taken. None and none for a rule without a learning rate.
    """
    rates, powers = contender.learning_rates, contender.powers
    if not rates:
        none: dict[str, Any] = {"power": None, "learning_rate": None, "tuning_losses": []}
        return {**none, "all_diverged": False}
    count = int(len(problem.rows) * config.tuning_fraction)
    chosen = np.random.default_rng(config.seed).permutation(len(problem.rows))[:count]
    part = problem.rows[np.sort(chosen)]
    loss = problem._replace(rows=part, moments=second_moments(part)).loss
    seeds = [config.seed] * len(rates)
    options = {"evaluate": loss, "evaluate_every": count, "devices": devices}
    losses = np.stack(
        [
            contender.stream(run_passes, part, seeds, rates, power, k, **options).figures[-1]
            for power in powers
        ]
    )
    diverged = not np.isfinite(losses).any()
    least = np.unravel_index(np.argmin(np.where(np.isfinite(losses), losses, np.inf)), losses.shape)
    power, rate = (0, int(np.argmin(rates))) if diverged else map(int, least)
    return {
        "power": powers[power],
        "learning_rate": rates[rate],
        "tuning_losses": losses.tolist(),
        "all_diverged": diverged,
    }


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """Measurements of a contender for one k.

    Attributes:
        problem: The rows.
        contender: The rule.
        k: Components.
        part: What ``choose_rates`` returned and what was measured with it: ``rows_seen`` [points],
            the start among them, ``seconds`` in updates, without compilation and choice of η0, and
            arrays of losses, NaN where a run had diverged.
    """

    problem: PcaProblem
    contender: Contender
    k: int
    part: Mapping[str, Any]

    @classmethod
    def of_run(cls, run: Run[Any], parts: Mapping[str, Mapping[str, Any]]) -> list["Result"]:
        """Read the results of all ``cells`` from the parts of a run's folder."""
        return [cls(run.data, *cell, parts[name]) for name, cell in cells(run).items()]

    def losses(self, name: str = "losses") -> DoubleArray:
        """Return an array of losses."""
        return np.asarray(self.part[name], np.float64)

    def excess(self, losses: npt.ArrayLike) -> DoubleArray:
        """Compute 100 (loss / exact loss − 1) of losses of this k, diverged ones counted."""
        return self.problem.excess_percent(losses, self.k)

    @property
    def label(self) -> str:
        """Return its name in figures and tables."""
        return self.contender.label

    @property
    def rows_seen(self) -> npt.NDArray[np.int64]:
        """Return the rows that a run had seen at each point, [points]."""
        return np.asarray(self.part["rows_seen"], np.int64)

    @property
    def one_pass(self) -> bool:
        """Return whether the last point is after a whole pass."""
        return int(self.rows_seen[-1]) == len(self.problem.rows)

    def within(self, found: Repeated, printed: Printed) -> bool | None:
        """Decide whether a mean is within what is printed, implicit Krasulina's within 0.02."""
        return found.within(printed, _TOLERANCE if self.contender.rule == IMPLICIT else None)

    @property
    def rates(self) -> dict[str, float | None]:
        """Return γ and η0, None without a learning rate."""
        found = {name: self.part[name] for name in ("power", "learning_rate")}
        return {
            name: v if v is not None and math.isfinite(v) else None for name, v in found.items()
        }


def tuning_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Tabulate what each pair of γ and η0 led to on the part that they were chosen on."""
    return [
        {
            "rule": each.contender.name,
            "k": each.k,
            "power": power,
            "learning_rate": rate,
            "loss": loss,
            "chosen": (power, rate) == (each.rates["power"], each.rates["learning_rate"]),
        }
        for each in results
        for power, losses in zip(each.contender.powers, each.part["tuning_losses"], strict=True)
        for rate, loss in zip(each.contender.learning_rates, losses, strict=True)
    ]


def summary_of(
    run: Run[Any], results: Sequence[Result], described: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Collect ``data``, ``exact`` losses by k, and ``rules`` by name and k for a summary."""
    rules: dict[str, dict[str, Any]] = {}
    for each, found in zip(results, described, strict=True):
        rules.setdefault(each.contender.name, {})[str(each.k)] = {**each.rates, **found}
    exact = {str(k): run.data.exact_loss(k) for k in run.config.components}
    seconds = sum(float(np.sum(np.asarray(each.part["seconds"])[..., -1])) for each in results)
    data = run.folder.config["data"]
    return {"data": data, "exact": exact, "rules": rules, "seconds": round(seconds, 3)}


def batch_claims(problem: PcaProblem, components: Sequence[int]) -> list[Found]:
    """Set the exact losses beside those that the paper prints of batch PCA."""
    printed = BATCH.get(problem.data_set or "", {})
    there = [k for k in components if k in printed]
    exact = [problem.exact_loss(k) for k in there]
    verdict = [
        abs(loss - printed[k]) <= _LAST_DIGIT / 2 for k, loss in zip(there, exact, strict=True)
    ]
    return [
        Found(
            statement=f"Table 1, batch PCA: loss at k = {', '.join(map(str, there))}",
            stated=", ".join(f"{printed[k]:.2f}" for k in there),
            found=", ".join(f"{loss:.3f}" for loss in exact) + f" of {problem.name}",
            holds=all(verdict) if problem.is_whole else None,
        )
    ] * bool(there)


def printed_claim(
    statement: str,
    result: Result,
    found: Sequence[Repeated],
    printed: Sequence[Printed],
    decided: bool,
) -> Found:
    """Set printed losses of one rule and k beside what was found, all within or not."""
    within = [
        result.within(one, INTENDED if other == MISPRINT else other)
        for one, other in zip(found, printed, strict=True)
    ]
    stated = ", ".join(map(str, printed))
    return Found(
        statement=f"{statement}, {result.label}, k = {result.k}",
        stated=stated.replace(str(MISPRINT), f"{MISPRINT} (a misprint: {INTENDED} in Table 1)"),
        found=", ".join(map(str, found)),
        holds=all_hold(within) if decided else None,
    )


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

    What starts and orders of rows have in common drops out of the difference. Its interval is that
    of the mean of the jackknife's pseudo-values, which are the differences of the runs themselves
    where mean losses are compared.

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
    middle, low, high = mean_interval(pseudo_values)
    rounding = _ROUNDING * np.abs(mine).max()
    return bool(middle < 0.0) if max(low, -high) > rounding else None


def least_claims(
    results: Sequence[Any],
    entry: Callable[[Any], Entry],
    statement: str,
    decided: bool,
    *,
    stated: str = "the least of all",
    measure: Measure = lambda means: means,
) -> list[Found]:
    """Found for each k that implicit Krasulina has the least of the paper's rules.

    Args:
        results: Each with a ``contender`` and ``k``.
        entry: What of a result is compared.
        statement: What it is about.
        decided: Whether the run can tell.
        stated: What the paper states.
        measure: What is compared, as for ``is_less``.
    """
    claims = []
    for k in dict.fromkeys(each.k for each in results):
        entries = {
            each.contender.rule: entry(each)
            for each in results
            if each.k == k and each.contender.published
        }
        ours = entries.pop(IMPLICIT, None)
        if ours is None or not entries:
            continue
        listed = ", ".join(f"{each.title} {each.text}" for each in entries.values())
        verdict = all_hold(is_less(ours.losses, each.losses, measure) for each in entries.values())
        claims.append(
            Found(
                statement=f"{statement}, k = {k}",
                stated=f"implicit Krasulina's is {stated}",
                found=f"{ours.text}; {listed}",
                holds=verdict if decided else None,
            )
        )
    return claims
