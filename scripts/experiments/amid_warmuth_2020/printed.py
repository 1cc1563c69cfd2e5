"""Printed numbers (Amid & Warmuth 2020, Tables 1 and 2), and their comparison with runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlreps.stats import Verdict, all_of, mean_interval
from rlreps.study import Claim, Frame, Results

IMPLICIT, SANGER = "implicit_krasulina", "explicit_krasulina"
PAPER_RULES = ("oja", "krasulina", "incremental_pca", SANGER, IMPLICIT)

_LAST_DIGIT = 0.01
"""Last digit of printed losses: rounding moves the mean and the deviation by up to half of it."""
_TOLERANCE = 0.02
"""Largest difference of implicit Krasulina's loss from the printed one that counts as equal."""


class Printed(NamedTuple):
    """Mean ± standard deviation over ten runs, as the paper prints them."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


def _read(*ks: int, **tables: str) -> dict[str, list[dict[int, tuple[Printed, ...]]]]:
    """Read tables with a line for each rule: data set → rule → k → cells."""

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
"""Data set → place of the rule in ``PAPER_RULES`` → k → losses at 0.1, 1 and 10 η0; one loss for
the rule without a learning rate."""

TABLE_2 = _read(
    *(5, 20),
    MNIST="37.17±.01 35.17±.00 18.77±.02 18.77±.01",
    CIFAR_10="87.01±.00 87.02±.00 48.74±.04 48.76±.04",
)
"""Data set → [implicit Krasulina] → k → losses of a single model and of workers combined."""

MISPRINT, INTENDED = Printed(37.17, 0.01), Printed(35.17, 0.01)
"""A single model's loss in Table 2, and in Table 1."""


class Repeated(NamedTuple):
    """Final losses of repeated runs.

    Attributes:
        mean: Their mean; a run that diverged counts with the loss of no components.
        deviation: Their standard deviation (n − 1); 0 for one run.
        low: Lower end of the mean's 95 % interval; NaN for one run.
        high: Upper end.
        diverged: Number of runs that diverged, or of workers over all runs.
    """

    mean: float
    deviation: float
    low: float
    high: float
    diverged: int

    @classmethod
    def of(cls, frame: Frame) -> "Repeated":
        """Summarise runs, averaged over their workers first."""
        values = frame.sample("counted", "seed").values
        deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
        mean, low, high = mean_interval(values)
        return cls(mean, deviation, low, high, int(frame["diverged"].sum()))

    def __str__(self) -> str:
        found = f"{self.mean:.3f} ± {self.deviation:.3f}"
        return f"{found} ({self.diverged} diverged)" if self.diverged else found

    def within(self, printed: Printed, rule: str) -> Verdict:
        """Judge that the mean is within the printed spread and rounding.

        It is if its whole interval is, and is not if all of the interval is outside. For implicit
        Krasulina the spread is 0.02, because its printed deviations are close to zero.
        """
        printed = INTENDED if printed == MISPRINT else printed
        distance = _TOLERANCE if rule == IMPLICIT else printed.deviation + _LAST_DIGIT
        least, greatest = printed.mean - distance, printed.mean + distance
        inside = least <= self.low and self.high <= greatest
        outside = self.low > greatest or self.high < least
        return Verdict(True if inside else False if outside else None, str(self))


def batch_claims(results: Results[Any]) -> Iterator[Claim]:
    """Compare the exact losses with the paper's printed losses of batch PCA, on its data only."""
    problem = results.run.data
    printed = BATCH.get(problem.data_set or "", {})
    exact = {k: problem.exact.exact_loss(k) for k in results.config.components if k in printed}
    if exact:
        holds = all(abs(loss - printed[k]) <= _LAST_DIGIT / 2 for k, loss in exact.items())
        found = f"{', '.join(f'{loss:.3f}' for loss in exact.values())} of {problem.name}"
        yield Claim(
            f"Table 1, batch PCA: loss at k = {', '.join(map(str, exact))}",
            ", ".join(f"{printed[k]:.2f}" for k in exact),
            Verdict(holds if problem.is_whole else None, found),
            in_any_preset=True,
        )


def printed_claim(
    about: str, contender: Any, k: int, found: Sequence[Frame], printed: Sequence[Printed]
) -> Claim:
    """Compare printed losses of one rule and k with the findings; all of them must agree."""
    verdicts = [
        Repeated.of(frame).within(other, contender.rule)
        for frame, other in zip(found, printed, strict=True)
    ]
    stated = ", ".join(map(str, printed))
    return Claim(
        f"{about}, {contender.label}, k = {k}",
        stated.replace(str(MISPRINT), f"{MISPRINT} (a misprint: {INTENDED} in Table 1)"),
        all_of(verdicts),
    )
