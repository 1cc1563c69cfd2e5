"""The one rule for verdicts on statements, and verdicts combined.

A statement says that a mean difference is above an effect. It **holds** if the whole 95 % interval
lies above the effect, and **does not hold** if the whole interval lies below. It **cannot be told**
if the interval contains the effect, if there are too few runs, or if all differences are equal: no
interval has width zero (``Contrast.above``). A statement that holds or fails in each run is judged
by the share of runs in which it holds, with the exact interval of this share (``judge_share``).
Families of statements (``contrasts.judge_family``) and ``study.compare`` also ask for a corrected
p-value.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NoReturn

import scipy  # Loads its modules on first use.

VERDICTS: Mapping[bool | None, str] = {
    True: "holds",
    False: "does not hold",
    None: "cannot be told",
}
"""``Verdict.holds`` → its name in reports."""

NOTHING = "nothing to compare"
"""Words of a verdict that combines no verdicts."""

LONGEST = 120
"""Largest number of characters of a verdict's words."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict on a statement, and the finding behind it.

    Attributes:
        holds: None if it cannot be told.
        words: The finding; cut to 120 characters.
    """

    holds: bool | None
    words: str

    def __post_init__(self) -> None:
        if self.holds is not None:
            object.__setattr__(self, "holds", bool(self.holds))  # JSON refuses NumPy's.
        if len(self.words) > LONGEST:
            object.__setattr__(self, "words", f"{self.words[: LONGEST - 1].rstrip()}…")

    def __bool__(self) -> NoReturn:
        raise TypeError("a Verdict has three values; ask .holds")

    def __invert__(self) -> "Verdict":
        """Judge the opposite statement with the same finding."""
        return dataclasses.replace(self, holds=None if self.holds is None else not self.holds)

    def __and__(self, other: "Verdict") -> "Verdict":
        """Judge that both statements hold."""
        return all_of([self, other])

    def open(self) -> "Verdict":
        """Return the verdict that the statement cannot be told, with the same words."""
        return dataclasses.replace(self, holds=None)

    def saying(self, words: str) -> "Verdict":
        """Describe the finding in other words."""
        return dataclasses.replace(self, words=words)


Parts = Mapping[str, Verdict] | Iterable[Verdict]
"""Verdicts to combine. Names in a mapping stand before the words of each verdict."""


def at_least(count: int | None, parts: Parts, *, of: int = 0) -> Verdict:
    """Judge that at least a number of statements hold.

    Args:
        count: How many must hold; None is all of them.
        parts: Their verdicts. If their words together are too long, the words of one are shown: the
            first that does not hold, else the first that cannot be told, else the first.
        of: Number of statements. A statement that has no verdict in ``parts`` cannot be told.
    """
    if isinstance(parts, Mapping):
        pairs = [(verdict.holds, f"{name}: {verdict.words}") for name, verdict in parts.items()]
    else:
        pairs = [(verdict.holds, verdict.words) for verdict in parts]
    told = [holds for holds, _ in pairs]
    words = "; ".join(part for _, part in pairs) or NOTHING
    if len(words) > LONGEST:
        deciding = next((holds for holds in (False, None) if holds in told), True)
        words = f"{told.count(True)} of {len(told)} as stated; {pairs[told.index(deciding)][1]}"
    total = max(of, len(told))
    needed, most = total if count is None else count, total - told.count(False)
    holds = True if told.count(True) >= needed else False if most < needed else None
    return Verdict(holds if total else None, words)


def all_of(parts: Parts) -> Verdict:
    """Judge that all statements hold, as ``at_least`` does. Without statements: cannot be told."""
    return at_least(None, parts)


def any_of(parts: Parts) -> Verdict:
    """Judge that at least one statement holds, as ``at_least`` does."""
    return at_least(1, parts)


def judge_interval(low: float, high: float, effect: float) -> bool | None:
    """Tell whether an interval lies above an effect (True), below it (False), or neither (None)."""
    return True if low > effect else False if high < effect else None


def judge_share(share: float, holding: Iterable[bool], words: str) -> Verdict:
    """Judge that a statement holds for more than a share of all runs, by the exact interval.

    Six runs that agree are the fewest that decide a share of one half.

    Args:
        share: The share.
        holding: Whether the statement holds for each run, independent of other runs.
        words: The finding.
    """
    found = [bool(holds) for holds in holding]
    if not found:
        return Verdict(None, words)
    low, high = scipy.stats.binomtest(sum(found), len(found)).proportion_ci()
    return Verdict(judge_interval(low, high, share), words)
