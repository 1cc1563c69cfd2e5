"""Slow features of PuddleWorld: goals; the smoke preset."""

import dataclasses
import json

import numpy as np
import pytest

from rlreps.experiments.ours.slow_puddle import AFTER, EXPERIMENT, PRESETS, Goals

SMOKE = PRESETS["smoke"]


def rows(**worst):
    """Measurements of two seeds; those named are the second seed's, at d = 2."""
    fine = {"distance": 0.009, "matched_cosine": 0.99, "error": 0.019, "excess": 0.004}
    return [
        {"contender": contender.name, "part": AFTER, "seed": seed, "d": d, "step": 5, **fine}
        | (worst if contender is SMOKE.contenders[0] and (seed, d) == (1, 2) else {})
        | ({"distance": 1.0, "excess": 1.0} if d == 3 else {})
        for contender in SMOKE.contenders
        for seed in (0, 1)
        for d in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("worst", "holds"),
    [
        ({}, [True] * 4),
        ({"distance": 0.011}, [False, True, True, True]),
        ({"matched_cosine": 0.97}, [True, False, True, True]),
        ({"error": 0.021}, [True, True, False, True]),
        ({"excess": 0.0051}, [True, True, True, False]),
    ],
)
def test_goals_are_judged_by_the_worst_seed_and_without_goals_not_at_all(judge, worst, holds):
    goals = dataclasses.replace(SMOKE, goals=Goals())
    assert [claim.holds for claim in judge(EXPERIMENT, goals, rows(**worst))] == holds
    assert [claim.holds for claim in judge(EXPERIMENT, SMOKE, rows(**worst))] == [None] * 4


@pytest.mark.experiments
def test_the_smoke_preset_learns_the_slow_functions(smoke):
    summary, out = smoke("slow-puddle")
    truth = np.asarray(summary["eigenvalues"])
    curves, values, ends = (
        json.loads((out / "results" / f"{name}.json").read_text())
        for name in ("distance_by_update", "eigenvalues", "contenders")
    )
    assert len(curves) == 3 * 2 * 11 * 2
    assert ends == summary["contenders"]
    assert {(row["diverged"], row["runs"]) for row in ends} == {(0, 2)}
    for contender in SMOKE.contenders:
        which = [row for row in values if row["contender"] == contender.name]
        for seed in (0, 1):
            learned = [row["learned"] for row in which if row["seed"] == seed]
            # No learned functions are slower together than the true ones.
            assert np.sum(learned) > truth[:4].sum() * (1.0 - 1e-6)
        for d in (2, 4):
            last = [
                row["subspace_distance"]
                for row in curves
                if (row["contender"], row["d"], row["step"]) == (contender.name, d, contender.steps)
            ]
            (end,) = (row for row in ends if (row["contender"], row["d"]) == (contender.name, d))
            assert np.mean(last) == pytest.approx(end["mean"], rel=1e-3, abs=1e-5)
    winner = {row["d"]: row["mean"] for row in ends[:2]}
    first = np.mean([row["subspace_distance"] for row in curves if row["step"] == 0])
    assert winner[2] < 0.1 * first
    assert winner[4] < 0.05
