"""Defects of features: which there are, in words, and what to try."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

from rlreps.auditing.measures import Health
from rlreps.typing import DoubleArray

COLLAPSED = 2.0
LOW_RANK, ENOUGH = 0.25, 10
OFFSET = 10.0
QUIET = 0.25
ALIKE = 0.25
ALIASED = 0.05
BURIED = 0.05
SCALE = 1e4
FEWEST_STATES = 4
BY_CHANCE = 0.1
ABSENT, PRESENT = 0.05, 0.5
UNKNOWN = 0.03
"""Bounds of the defects, as ``find_defects`` states them."""


class Defect(NamedTuple):
    """A defect.

    Attributes:
        name: One of the names that ``find_defects`` lists.
        found: What is wrong, with its number.
        advice: What to try.
    """

    name: str
    found: str
    advice: str

    def line(self) -> str:
        """Return the defect in one line."""
        return f"{self.name}: {self.found}; {self.advice}"


def find_defects(
    health: Health,
    components: DoubleArray,
    held_out: float,
    aliased: float,
    *,
    error: DoubleArray | None,
    states: int,
    units: int,
) -> list[Defect]:
    """List the defects of features, the gravest first.

    Args:
        health: Their health.
        components: Share of each leading component in their span, [k].
        held_out: Mean R² of the leading ten components at states held out.
        aliased: Share of states that have an alias.
        error: The truth's own error of the leading k components for each k, if known.
        states: n.
        units: p.
    """
    least, lost = min(COLLAPSED, 0.5 * (1 + units)), round(health.rounded * units)
    if health.balanced_rank < least <= health.balanced_rank + lost:
        rounded = Defect(
            "offset",
            f"{lost} of {units} units vary within the rounding of their means",
            "subtract the mean in double precision before features are rounded; units that are "
            "constant then have collapsed",
        )
        return [rounded]  # Nothing is known of these units.
    found = []
    collapsed = health.balanced_rank < least
    if collapsed:
        found.append(
            Defect(
                "collapsed",
                f"effective rank {health.balanced_rank:.2f} of {units} units of like scale"
                if health.rank
                else "no unit varies over the states",
                "train with a term against collapse (orthonormality, variance, a larger learning "
                "rate of the predictor), and check that targets differ between states",
            )
        )
        if not health.rank:
            return found
    else:  # Collapse would explain these.
        if health.rank < min(LOW_RANK * units, ENOUGH):
            found.append(
                Defect(
                    "low rank",
                    f"numerical rank {health.rank} of {units} units",
                    "use fewer units, or add a loss that rewards rank",
                )
            )
        # Half of the states fit a map of as many units to anything: that map says nothing.
        leading = components[:10]
        exceeds = leading.mean() > _most_by_chance(health.rank, states, len(leading)) or (
            # A single component may be held, which nine others hide in the mean.
            leading.max() > _largest_by_chance(health.rank, states, len(leading))
        )
        if held_out < BY_CHANCE and not exceeds and 2 * health.rank < states:
            found.append(
                Defect(
                    "no better than chance",
                    f"R² {held_out:.3f} of the leading components at held-out states, and a "
                    "captured share that is not clearly above chance",
                    "check that row i of the features is state i of the truth, and that the "
                    "network saw the truth's observations",
                )
            )
        else:
            found += _of_contents(health.rank, components, aliased, error, states)
    found += _of_units(health, collapsed)
    if states < FEWEST_STATES * units:
        found.append(
            Defect(
                "overfitted",
                f"{states} states for {units} units: a span of so many units holds much of any "
                "function of the states",
                "read the R² at held-out states, not the captured share, or measure at more states",
            )
        )
    return found


def _most_by_chance(rank: int, states: int, count: int) -> float:
    """Return the mean share of so many components that random features of this rank rarely exceed.

    Their share of a component has mean c = r / (n − 1) and variance 2 c (1 − c) / (n + 1): the
    bound is three standard deviations above it.
    """
    chance = rank / max(states - 1, 1)
    return chance + 3.0 * math.sqrt(2.0 * chance * max(1.0 - chance, 0.0) / (states + 1) / count)


def _largest_by_chance(rank: int, states: int, count: int) -> float:
    """Return a bound that the largest of so many shares of random features exceeds once in 1,000.

    Their share of a component has a beta distribution with r / 2 and (n − 1 − r) / 2.
    """
    rest = max(states - 1 - rank, 1)
    return float(scipy.stats.beta.isf(0.001 / count, 0.5 * rank, 0.5 * rest))


def _of_contents(
    rank: int, components: DoubleArray, aliased: float, error: DoubleArray | None, states: int
) -> Iterator[Defect]:
    if aliased > ALIASED:
        yield Defect(
            "aliased",
            f"{aliased:.0%} of the states have the features of a state far away in the truth",
            "give the network what tells these states apart (aliases lists pairs)",
        )
    chance = _most_by_chance(rank, states, 1)
    absent, present = min(PRESENT, max(ABSENT, chance)), max(PRESENT, chance)
    lost = []
    for index, share in enumerate(components[:10]):
        # Later components that are missing too say nothing, and one alone is a matter of chance.
        later = components[index + 1 :]
        held = later[later >= absent][:3]
        known = error is None or error[index] < UNKNOWN
        enough = len(held) >= max(1, min(2, len(later)))
        if share < absent and known and enough and float(np.median(held)) > present:
            lost.append(index + 1)
    if lost:
        several = len(lost) > 1
        yield Defect(
            "missing component",
            f"component{'s' * several} {', '.join(map(str, lost))} {'are' if several else 'is'} "
            "not in the span, although later ones are",
            "look at its map: the inputs may not tell the states apart in which it differs",
        )


def _of_units(health: Health, collapsed: bool) -> Iterator[Defect]:
    if health.dormant > QUIET:
        yield Defect(
            "dormant",
            f"{health.dormant:.0%} of the units are dormant or constant",
            "lower the learning rate, reset dormant units, or use another activation",
        )
    if health.duplicated > ALIKE and not collapsed:
        yield Defect(
            "duplicated",
            f"{health.duplicated:.0%} of the units repeat an earlier unit",
            "use fewer units, or start units from different parameters",
        )
    if health.offset > OFFSET:
        yield Defect(
            "offset",
            f"the mean is {health.offset:.3g} times as long as the features' spread",
            "subtract the mean, or read out with an intercept",
        )
    if not 1.0 / SCALE <= health.spread <= SCALE:
        yield Defect(
            "scale",
            f"units have a standard deviation of {health.spread:.3g}",
            "divide by it before anything with a step size or a penalty reads the features",
        )
    if health.buried > BURIED and not collapsed:
        yield Defect(
            "ill-conditioned",
            f"{health.buried:.0%} of the leading components lie in directions a million times as "
            "short as the longest",
            "scale or whiten the features before a linear method reads them",
        )
