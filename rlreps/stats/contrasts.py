"""Comparisons of runs that share seeds, and tables of them.

Runs that share a seed share their start and their data. They are compared in pairs, so that
variation between seeds does not widen the interval. ``verdicts`` has the rule for verdicts.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from rlreps.config import checked
from rlreps.errors import require
from rlreps.formatting import format_number
from rlreps.stats.intervals import (
    Interval,
    StandardError,
    detectable_difference,
    equal_outcomes_interval,
    holm,
    mean_interval,
    sign_flip_p_value,
    standard_error,
    student_interval,
)
from rlreps.stats.signs import detectable_share, sign_test
from rlreps.stats.verdicts import Verdict, judge_interval
from rlreps.typing import DoubleArray

_LEVEL = 0.05
"""Level of a whole family of tests."""


def format_interval(found: Interval, *, signed: bool = False) -> str:
    """Write an estimate with its interval, if it has one: "0.120 [0.110, 0.130]"."""
    value, low, high = (
        ("+" if signed and part > 0.0 else "") + format_number(part) for part in found
    )
    # NaN differs from itself; ends may also be text, such as "never".
    return value if found.low != found.low else f"{value} [{low}, {high}]"


@checked
@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """A number for each of several runs, or for other units such as rewards.

    Samples are compared by their common units: ``a < b``, or ``a < 0.5``, is a verdict on the
    mean difference. ``a - b`` and ``0.5 * a`` are samples.

    Attributes:
        values: [units].
        units: Different names of the units, such as seeds.
        fewest: Least number of units for a verdict.
        largest: Largest number that values were computed from, such as the terms of differences. A
            spread below its rounding error counts as none.
    """

    values: DoubleArray
    units: Sequence[Hashable]
    fewest: int = 2
    largest: float = 0.0

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        values = np.asarray(self.values, np.float64)
        expected = "values [units], and a name of its own for each unit"
        shape = (values.shape, [*self.units])
        require(values.shape == (len({*self.units}),) == (len(self.units),), expected, shape)
        object.__setattr__(self, "values", values)

    @cached_property
    def interval(self) -> Interval:
        """Mean with its 95 % interval."""
        return mean_interval(self.values, self._largest)

    @cached_property
    def _largest(self) -> float:
        known = self.values[np.isfinite(self.values)]
        return max(self.largest, float(np.abs(known).max(initial=0.0)))

    @property
    def mean(self) -> float:
        """Mean."""
        return float(self.values.mean())

    def against(self, other: "Sample | float", effect: float = 0.0) -> "Contrast":
        """Pair this sample with another, or with a number, by their common units."""
        ours, theirs, _ = self._paired(other)
        least = max(self.fewest, getattr(other, "fewest", 0))
        constant = not isinstance(other, Sample)
        largest = self._largest_with(other)
        return Contrast(
            ours, theirs, effect=effect, fewest=least, constant=constant, largest=largest
        )

    def needing(self, fewest: int) -> "Sample":
        """Return the sample with another value of ``fewest``."""
        return dataclasses.replace(self, fewest=fewest)

    def __lt__(self, other: "Sample | float") -> Verdict:
        return self.against(other).below

    def __gt__(self, other: "Sample | float") -> Verdict:
        return self.against(other).above

    def __sub__(self, other: "Sample | float") -> "Sample":
        ours, theirs, units = self._paired(other)
        largest = self._largest_with(other)
        return dataclasses.replace(self, values=ours - theirs, units=units, largest=largest)

    def __mul__(self, factor: float) -> "Sample":
        largest = float(abs(factor) * self.largest)
        return dataclasses.replace(self, values=factor * self.values, largest=largest)

    __rmul__ = __mul__

    def _largest_with(self, other: "Sample | float") -> float:
        theirs = other._largest if isinstance(other, Sample) else abs(float(other))
        return max(self._largest, theirs)

    def _paired(
        self, other: "Sample | float"
    ) -> tuple[DoubleArray, DoubleArray, Sequence[Hashable]]:
        """Return values of both samples at their common units, and the units."""
        if not isinstance(other, Sample):
            return self.values, np.full(len(self.values), float(other)), self.units
        place = {unit: index for index, unit in enumerate(other.units)}
        pairs = [(i, place[unit]) for i, unit in enumerate(self.units) if unit in place]
        require(len(pairs) >= 1, "samples with a common unit", (self.units, other.units))
        ours, theirs = map(list, zip(*pairs, strict=True))
        return self.values[ours], other.values[theirs], [self.units[index] for index in ours]


@checked
@dataclasses.dataclass(frozen=True, eq=False)
class Contrast:
    """A paired comparison of the runs of two methods with the same seeds.

    Attributes:
        ours: [pairs].
        theirs: Runs with the same seeds in the same order, [pairs].
        effect: Verdicts compare the mean of ours minus theirs with this number.
        fewest: Least number of pairs for a verdict.
        constant: Whether ``theirs`` is one number, known beforehand.
        by_signs: Whether to test the signs of differences, for runs that succeed or fail.
        largest: As for ``Sample``.
    """

    ours: DoubleArray
    theirs: DoubleArray
    effect: float = 0.0
    fewest: int = 2
    constant: bool = False
    by_signs: bool = False
    largest: float = 0.0

    @cached_property
    def differences(self) -> DoubleArray:
        """Ours minus theirs, [pairs]."""
        with np.errstate(invalid="ignore"):  # Of two infinite runs.
            return np.asarray(self.ours, np.float64) - np.asarray(self.theirs, np.float64)

    @cached_property
    def interval(self) -> Interval:
        """Mean difference with its 95 % interval; NaN ends if a difference is not finite.

        Equal differences have NaN ends too. Differences of successes (``by_signs``) have no long
        tail: their interval is Student's, or exact if they are all equal.
        """
        if not self._finite:
            return Interval(_mean(self.differences), math.nan, math.nan)
        if self.by_signs and self.error.freedom:
            value = float(np.mean(self.differences))
            if self.error.error:
                return student_interval(value, self.error)
            return equal_outcomes_interval(value, len(self.differences), -1.0, 1.0)
        return mean_interval(self.differences, self._largest)

    @cached_property
    def _largest(self) -> float:
        return max(
            self.largest,
            *(float(np.abs(part).max(initial=0.0)) for part in (self.ours, self.theirs)),
        )

    @cached_property
    def _finite(self) -> bool:
        return bool(np.isfinite(self.differences).all())

    @cached_property
    def error(self) -> StandardError:
        """Standard error of the mean difference; infinite if a difference is not finite."""
        if not self._finite:
            return StandardError(math.inf, 0)
        return standard_error(self.differences, self._largest)

    @cached_property
    def p_value(self) -> float:
        """Two-sided p-value for a mean difference equal to the effect; not adjusted.

        By sign flips, or by the exact test of signs (``sign_test``). NaN if a difference is not
        finite.
        """
        if not self._finite:
            return math.nan
        if self.by_signs:
            return sign_test(self.differences, self.effect)
        ours = np.asarray(self.ours, np.float64) - self.effect
        return sign_flip_p_value(ours, self.theirs, self._largest)

    def detectable(self, level: float) -> float | None:
        """Compute the smallest mean difference that a paired t-test detects in 80 of 100 cases.

        The reported p-value is by sign flips, which detect about as much as a t-test. With
        ``by_signs``, compute the smallest detectable difference of shares instead
        (``detectable_share``).

        Args:
            level: Level of the test, corrected for the number of tests.

        Returns:
            The difference; None if there are too few pairs for any p-value at or below the level,
            if all differ equally, if a difference is not finite, or if no difference of shares is
            detectable.
        """
        if not self._finite:
            return None
        if self.by_signs:
            found = detectable_share(self.differences, level)
        elif 2.0 ** (1 - len(self.differences)) > level:
            return None
        else:
            found = detectable_difference(self.error, level)
        return found if math.isfinite(found) else None

    @property
    def above(self) -> Verdict:
        """Judge that the mean difference is above the effect."""
        _, low, high = self.interval
        holds = judge_interval(low, high, self.effect)
        return Verdict(None if len(self.differences) < self.fewest else holds, self.words)

    @property
    def below(self) -> Verdict:
        """Judge that the mean difference is below the effect."""
        return ~self.above

    @property
    def of_signs(self) -> "Contrast":
        """The contrast, tested by the signs of its differences."""
        return dataclasses.replace(self, by_signs=True)

    @property
    def words(self) -> str:
        """Describe the finding: both means, and the difference with its interval."""
        if self.constant:
            # The difference plus the constant is the mean of ours, with its interval.
            return format_interval(Interval(*(part + self.theirs[0] for part in self.interval)))
        means = [format_number(_mean(runs)) for runs in (self.ours, self.theirs)]
        return f"{means[0]} against {means[1]}, {format_interval(self.interval, signed=True)}"


def _mean(runs: DoubleArray) -> float:
    """Return the mean of runs [pairs], NaN of opposite infinities."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(runs))


Key = TypeVar("Key", bound=Hashable)


def judge_family(contrasts: Mapping[Key, Contrast]) -> dict[Key, Verdict]:
    """Judge whether each contrast of a family is above its effect, with p-values by Holm's method.

    A contrast holds if ``Contrast.above`` holds and the adjusted p-value for a difference equal to
    the effect is below 0.05. If only ``Contrast.above`` holds, the statement cannot be told.
    If the interval says that the contrast does not hold, the p-value does not count.
    """
    verdicts = {}
    p_values = holm([contrast.p_value for contrast in contrasts.values()]).tolist()
    for (name, contrast), p_value in zip(contrasts.items(), p_values, strict=True):
        found = f"{format_interval(contrast.interval, signed=True)}, p = {format_number(p_value)}"
        if contrast.effect:
            found += f" against {contrast.effect:g}"
        verdict = contrast.above.saying(found)
        verdicts[name] = verdict.open() if verdict.holds and p_value >= _LEVEL else verdict
    return verdicts


def interval_columns(name: str, found: Interval) -> dict[str, float]:
    """Return an estimate and the ends of its interval as columns of a result file."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def interval_of(row: Mapping[str, Any], name: str) -> Interval:
    """Return an estimate of ``interval_columns``; both ends are NaN if the row lacks one."""
    ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
    missing = any(end is None or end != end for end in ends)
    return Interval(row.get(name), *((math.nan, math.nan) if missing else ends))


def contrast_rows(
    contrasts: Sequence[tuple[Mapping[str, Any], Contrast]],
    tested: Callable[[Mapping[str, Any]], bool] = lambda about: True,
) -> list[dict[str, Any]]:
    """Tabulate a family of contrasts: differences, p-values and detectable differences.

    Args:
        contrasts: Pairs of a label (columns of the row) and a contrast.
        tested: Whether to test a contrast, by its label; the others have only an interval.

    Returns:
        A row for each: its label, ``pairs``, ``difference``, ``difference_low``,
        ``difference_high``, ``p_value`` (Holm 1979) and ``detectable`` at 0.05 divided by the
        number of tests.
    """
    chosen = [index for index, (about, _) in enumerate(contrasts) if tested(about)]
    p_values = dict(zip(chosen, holm([contrasts[i][1].p_value for i in chosen]), strict=True))
    return [
        {
            **about,
            "pairs": len(contrast.differences),
            **interval_columns("difference", contrast.interval),
            "p_value": float(p_values[i]) if i in p_values else None,
            "detectable": contrast.detectable(_LEVEL / len(chosen)) if i in p_values else None,
        }
        for i, (about, contrast) in enumerate(contrasts)
    ]
