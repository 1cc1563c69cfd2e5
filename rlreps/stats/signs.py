"""The exact sign test of pairs, for runs that succeed or fail."""

import math

import numpy as np
import scipy  # Loads its modules on first use.

from rlreps.errors import require
from rlreps.stats.intervals import POWER
from rlreps.typing import ArrayLike


def sign_test(differences: ArrayLike, effect: float = 0.0) -> float:
    """Compute the two-sided exact p-value of the sign test of pairs; McNemar's test if all are ±1.

    With ``effect=0``, ties do not count (Conover 1999, Section 3.4). Otherwise the null hypothesis
    is that the share of positive pairs minus the share of negative ones equals the effect. Outcomes
    are ordered by the t statistic of their signs. The null hypothesis does not fix the share of
    negative pairs, so each tail probability is the largest over a grid of this share. The p-value
    is twice the smaller tail probability.

    Args:
        differences: Differences of pairs, [pairs]; their signs count.
        effect: Difference of shares, strictly between -1 and 1.
    """
    require(abs(effect) < 1.0, "an effect strictly between -1 and 1", effect)
    more, fewer, pairs = _signs(differences)
    if not effect:
        return float(scipy.stats.binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
    if not pairs:
        return 1.0
    gains, losses = np.indices((pairs + 1, pairs + 1))
    possible = gains + losses <= pairs
    beyond = (gains - losses) / pairs - effect
    variance = (gains + losses) / pairs - ((gains - losses) / pairs) ** 2
    # The variance is zero if all signs are equal. The small term keeps the statistic finite.
    order = beyond / np.sqrt(np.maximum(variance, 0.0) + 1e-12)
    found = order[more, fewer]
    slack = 1e-9 * abs(found)
    tails = [possible & (order >= found - slack), possible & (order <= found + slack)]
    losing = np.linspace(max(0.0, -effect), (1.0 - effect) / 2.0, 101)[:, None, None]
    share = np.minimum(1.0, (losing + effect) / (1.0 - losing))
    lost, gained = (
        scipy.stats.binom.pmf(losses, pairs, losing),
        scipy.stats.binom.pmf(gains, pairs - losses, share),
    )
    chances = np.asarray(lost * gained)
    largest = [float(chances[:, tail].sum(axis=1).max()) for tail in tails]
    return min(1.0, 2.0 * min(largest))


def detectable_share(differences: ArrayLike, level: float) -> float:
    """Compute the smallest difference of shares that the exact sign test of pairs would detect.

    The assumed experiment has as many pairs as ``differences``, and the same share with the rarer
    sign. The power is exact, from the trinomial distribution of positive, negative and tied pairs.

    Args:
        differences: Differences of pairs, [pairs]; their signs count.
        level: Level of the two-sided test.

    Returns:
        The share of positive pairs minus the share of negative ones, detected in 80 of 100 cases;
        infinite if even the largest possible difference is not detectable.
    """
    more, fewer, pairs = _signs(differences)
    if not pairs:
        return math.inf
    against = min(more, fewer) / pairs
    gains, losses = np.indices((pairs + 1, pairs + 1))
    fewest = np.minimum(gains, losses)
    shown = 2.0 * scipy.stats.binom.cdf(fewest, gains + losses, 0.5) < level

    def missing(gained: float) -> float:
        """Power still missing if this share of pairs gains."""
        others = against / (1.0 - gained) if gained < 1.0 else 0.0
        chances = scipy.stats.binom.pmf(gains, pairs, gained)
        chances = chances * scipy.stats.binom.pmf(losses, pairs - gains, min(others, 1.0))
        return float(POWER - np.sum(chances[shown]))

    if missing(1.0 - against) > 0.0:
        return math.inf
    return float(scipy.optimize.brentq(missing, against, 1.0 - against)) - against


def _signs(differences: ArrayLike) -> tuple[int, int, int]:
    """Count positive and negative differences, and all pairs; refuse NaN."""
    values = np.asarray(differences, np.float64)
    unknown = int(np.isnan(values).sum())
    known = values.ndim == 1 and not unknown
    got = f"shape {values.shape}, {unknown} of them NaN"
    require(known, "differences of pairs [pairs], not NaN", got)
    return int(np.sum(values > 0.0)), int(np.sum(values < 0.0)), len(values)
