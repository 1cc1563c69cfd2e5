import dataclasses

import pytest

from rlreps.experiments.ours.puddle_world_fast.config import PRESETS
from rlreps.experiments.ours.puddle_world_fast.report import FastRun, compare_at_equal_time

CONFIG = PRESETS["smoke"]
WINNER, DANSKIN = (recipe.name for recipe in CONFIG.recipes[:2])


def run(recipe, d, distance, seconds, seed=0):
    return FastRun(
        recipe=recipe,
        d=d,
        seed=seed,
        steps=[0, 10],
        seconds=[0.0, seconds],
        distances=[0.9, distance],
        diverged=False,
        released_distance=None,
    )


def claims(distance, seconds):
    """Of Danskin-LISSA at that end, against a winner at 0.01 after 10 s."""
    runs = [run(WINNER, d, 0.01, 10.0) for d in CONFIG.dimensions]
    return compare_at_equal_time(
        CONFIG, [*runs, *(run(DANSKIN, d, distance, seconds) for d in CONFIG.dimensions)]
    )


@pytest.mark.parametrize(
    ("distance", "seconds", "holds"),
    [
        (0.029, 8.0, True),
        (0.029, 10.4, True),
        (0.029, 10.6, None),
        (0.031, 12.0, False),
        (0.031, 9.6, False),
        (0.031, 9.4, None),
    ],
    ids=[
        "within, shorter",
        "within, as long",
        "within, longer",
        "beyond, longer",
        "beyond, as long",
        "beyond, shorter",
    ],
)
def test_a_verdict_at_equal_time_gives_no_method_the_benefit_of_time(distance, seconds, holds):
    found = claims(distance, seconds)
    assert [claim.holds for claim in found] == [holds] * len(CONFIG.dimensions)
    assert f"{distance:.4f} after {seconds:.1f} s against 0.0100 after 10.0 s" in found[0].found


def test_what_is_compared_are_means_over_seeds_at_the_same_d():
    config = dataclasses.replace(CONFIG, num_seeds=2)
    runs = [run(WINNER, d, 0.01, 10.0, seed) for d in config.dimensions for seed in (0, 1)]
    # The mean of two seeds is within the factor at the first d, though one of them is beyond.
    first, second = config.dimensions
    runs += [run(DANSKIN, first, 0.01, 8.0), run(DANSKIN, first, 0.045, 12.0, 1)]
    runs += [run(DANSKIN, second, 0.04, 10.0), run(DANSKIN, second, 0.05, 10.0, 1)]
    found = compare_at_equal_time(config, runs)
    assert [claim.holds for claim in found] == [True, False]
    assert "2.75 times" in found[0].found
    assert "4.50 times" in found[1].found
