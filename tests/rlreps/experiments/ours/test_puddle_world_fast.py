"""Time to a given distance: goals, verdicts at equal time, presets; the smoke preset."""

import dataclasses

import pytest

from rlreps.experiments.ours.puddle_world_fast import EXPERIMENT, PRESETS

SMOKE = PRESETS["smoke"]
FIRST, SECOND = SMOKE.dimensions
WINNER, RIVAL, DANSKIN = SMOKE.names[:3]


def rows(recipe, d, distances, seconds):
    """Measurements of seeds 0, 1, ... before and after training."""
    return [
        {"recipe": recipe, "d": d, "seed": seed, "step": step}
        | {"seconds": end[0], "subspace_distance": end[1]}
        for seed, pair in enumerate(zip(seconds, distances, strict=True))
        for step, end in ((0, (0.0, 0.9)), (10, pair))
    ]


@pytest.mark.parametrize(
    ("distances", "seconds", "holds"),
    [
        ((0.02899, 0.02901), (10.4, 10.4), True),
        ((0.02899, 0.02901), (10.6, 10.6), None),
        ((0.03099, 0.03101), (9.6, 9.6), False),
        ((0.03099, 0.03101), (9.4, 9.4), None),
    ],
)
def test_a_verdict_is_of_means_at_one_d_and_gives_no_method_the_benefit_of_time(
    judge, distances, seconds, holds
):
    given = [
        *(row for d in SMOKE.dimensions for row in rows(RIVAL, d, (0.01, 0.01), (10.0, 10.0))),
        *rows(DANSKIN, FIRST, distances, seconds),
        *rows(DANSKIN, SECOND, (0.0445, 0.0455), (10.0, 10.0)),
    ]
    found = judge(EXPERIMENT, SMOKE, given)
    assert [claim.holds for claim in found] == [holds, False]


@pytest.mark.parametrize(
    ("distances", "seconds", "holds"),
    [
        ((0.018, 0.020) * 3, (9.8, 10.0) * 3, True),
        ((0.021, 0.022) * 3, (9.8, 9.8) * 3, False),
        ((0.018, 0.018) * 3, (9.8, 10.2) * 3, None),
        ((0.018, 0.020), (9.8, 10.0), None),
    ],
)
def test_a_goal_is_a_distance_within_a_time_with_most_seeds(judge, distances, seconds, holds):
    goals = ((FIRST, 0.02, 10.0), (77, 0.02, 10.0))
    config = dataclasses.replace(SMOKE, goals=goals)
    claim, *_ = judge(EXPERIMENT, config, rows(WINNER, FIRST, distances, seconds))
    assert claim.holds is holds
