"""What was found beside what Pfau et al. (2019) state, and beside our own goals."""

from typing import Any

import numpy as np

from rlreps.experiments.pfau_2019.bouncing_balls.linear import DoubleArray
from rlreps.experiments.results import Claim
from rlreps.runs.intervals import aggregate

ENCODES, ONE_BALL, TOGETHER, ORDERED = 0.9, 0.9, 0.5, 0.05
"""Shares of variance, and the relative distance to Rayleigh-Ritz, by which claims are judged."""


def compare(
    learned: DoubleArray,
    ritz: DoubleArray,
    linear: DoubleArray,
    best: DoubleArray,
    one_ball: DoubleArray,
    all_balls: DoubleArray,
) -> list[Claim]:
    """The claims.

    Args:
        learned: Eigenvalues of networks in learned order, [networks, d].
        ritz: Of their spans, [networks, d].
        linear: Of linear analysis of pixels, [d].
        best: Of analysis of functions of positions, [d].
        one_ball: Shares of variance that functions of single balls explain, [networks, d].
        all_balls: Shares that functions of all balls explain, [networks, d].

    Returns:
        Claims. What the paper says of eigenfunctions cannot be told of networks that are not
        slower than linear analysis: they have not learned them.
    """
    totals = aggregate(learned.sum(axis=1))
    ratio = learned.sum(axis=1).max() / linear.sum()
    learnt = bool(ratio < 1.0)
    first, later = one_ball[:, :2], one_ball[:, 2:]
    interactions = (all_balls[:, 2:] - later) > TOGETHER
    disorder = float(np.max(np.abs(learned / ritz - 1.0)))
    return [
        Claim(
            statement="All features (holds if functions of balls' positions explain "
            f"{ENCODES:.0%} of the variance on average)",
            paper="encode where balls are",
            found=f"{_percent(all_balls.mean())} on average, {_percent(all_balls.min())} at least",
            holds=bool(all_balls.mean() >= ENCODES) if learnt else None,
        ),
        Claim(
            statement="The first two (holds if functions of single balls explain "
            f"{ONE_BALL:.0%} of the variance)",
            paper="low-order functions of single balls' positions",
            found=f"{_percent(first.min())} at least",
            holds=bool(first.min() >= ONE_BALL) if learnt else None,
        ),
        Claim(
            statement="Some later ones (holds if functions of two and three balls add "
            f"{TOGETHER:.0%} of the variance in every network)",
            paper="interactions, seen in the frames that excite them, not in maps of single balls",
            found=f"{interactions.sum()} of {interactions.size} do",
            holds=bool(interactions.any(axis=1).all()) if learnt else None,
        ),
        Claim(
            statement="Deep against linear slow features (our goal; told from two networks on)",
            paper="a smaller sum of eigenvalues than linear analysis of pixels",
            found=f"{totals['mean']:.3f}{_interval(totals)} against {linear.sum():.3f}; "
            f"analysis of positions: {best.sum():.3f}",
            holds=bool(totals["mean_high"] < linear.sum()) if len(learned) > 1 else None,
        ),
        Claim(
            statement=f"Order of features (our goal; holds within {ORDERED:.0%})",
            paper="every eigenvalue is that of the features' span (Rayleigh-Ritz)",
            found=f"{_percent(disorder)} off at most",
            holds=disorder <= ORDERED,
        ),
    ]


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _interval(aggregated: dict[str, Any]) -> str:
    if aggregated["runs"] == 1:
        return ""
    return f" [{aggregated['mean_low']:.3f}, {aggregated['mean_high']:.3f}]"
