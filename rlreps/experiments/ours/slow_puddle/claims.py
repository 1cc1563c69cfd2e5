"""What the slow-puddle experiment is to reach, and what it reached."""

import numpy as np

from rlreps.experiments.ours.slow_puddle.config import SlowPuddleConfig
from rlreps.experiments.ours.slow_puddle.figures import ContenderResult
from rlreps.experiments.ours.slow_puddle.problem import DoubleArray, Problem
from rlreps.experiments.results import Claim


def compare_with_goals(
    config: SlowPuddleConfig, problem: Problem, floor: DoubleArray, result: ContenderResult
) -> list[Claim]:
    """The first contender's worst seed beside the goals.

    Args:
        config: The preset; without goals nothing is judged.
        problem: The ground truth.
        floor: Distances of the true eigenfunctions to the successor measure's, [d].
        result: The first contender's.

    Returns:
        A claim for each goal.
    """
    goals = config.goals
    chosen = np.asarray(config.dimensions) - 1
    distance = float(result.final("distances")[:, chosen].max())
    cosine = float(result.final("cosines").min())
    error = float(relative_errors(problem, result).max())
    excess = float((result.final("successor_distances") - floor)[:, chosen].max())
    dimensions = ", ".join(map(str, config.dimensions))
    who = f"{result.name}, every seed"
    return [
        _claim(
            f"{who}: distance to the slowest d = {dimensions}, largest",
            distance,
            "at most",
            None if goals is None else goals.distance,
        ),
        _claim(
            f"{who}: |cosine| of {config.num_features} eigenfunctions, each matched, smallest",
            cosine,
            "at least",
            None if goals is None else goals.cosine,
        ),
        _claim(
            f"{who}: relative error of an eigenvalue, largest",
            error,
            "at most",
            None if goals is None else goals.eigenvalue_error,
        ),
        _claim(
            f"{who}: distance to the successor measure's subspace beyond the true slow features' "
            "own, largest",
            excess,
            "at most",
            None if goals is None else goals.excess,
        ),
    ]


def _claim(statement: str, found: float, side: str, goal: float | None) -> Claim:
    if goal is None:
        return Claim(statement=statement, paper="none", found=f"{found:.4f}", holds=None)
    return Claim(
        statement=statement,
        paper=f"{side} {goal:g}",
        found=f"{found:.4f}",
        holds=found >= goal if side == "at least" else found <= goal,
    )


def relative_errors(problem: Problem, result: ContenderResult) -> DoubleArray:
    """|relative error| of every eigenvalue, [seeds, d]; infinite where features collapsed."""
    learned = result.final("eigenvalues")
    errors = np.abs(learned / problem.eigenvalues[: learned.shape[1]] - 1.0)
    return np.where(np.isnan(errors), np.inf, errors)
