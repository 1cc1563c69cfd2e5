"""Shaping: scales with known answers, verdicts on made-up runs, the smoke preset."""

import json
import math

import numpy as np
import pytest

from rlreps.experiments.ours import shaping
from rlreps.experiments.ours.mazes import CONTROL_ARENA, MAZES
from rlreps.experiments.ours.shaping import (
    ARMS,
    EUCLIDEAN,
    EXPERIMENT,
    LEARNED,
    NONE,
    PRESETS,
    goals_to_repay,
    scaled,
)
from rlreps.stats import Interval
from rlreps.study import replace_nested

LAPTOP = PRESETS["laptop"]


def test_potentials_have_one_spread_and_are_nothing_at_the_goal():
    distances = np.array([3.0, 1.0, 0.0, 2.0, 7.0])
    found = scaled(distances, 2)
    assert found.std() == pytest.approx(16.0)
    assert found[2] == 0.0
    # The nearer, the greater.
    np.testing.assert_array_equal(np.argsort(found), np.argsort(-distances))
    np.testing.assert_allclose(scaled(100.0 * distances, 2), found)


@pytest.mark.parametrize(
    ("saved", "goals"),
    [
        (Interval(10_000.0, -1.0, 15_000.0), (3.0, 2.0, math.inf)),
        (Interval(-2.0, -9.0, -1.0), (math.inf, math.inf, math.inf)),
    ],
)
def test_free_steps_are_repaid_after_as_many_goals_as_save_them(saved, goals):
    assert goals_to_repay(30_000, saved) == goals


def rows(gains, ordered=0.9):
    """Agents of which each arm is better than none by so much in return, in each arena."""
    rng = np.random.default_rng(0)
    level = rng.normal(-150.0, 20.0, LAPTOP.num_pairs)
    return [
        {
            "arena": arena,
            "arm": arm,
            "fit": pair % LAPTOP.fits,
            "mean_return": level[pair] + given.get(arm, 0.0) + rng.normal(0.0, 2.0),
            "order": (ordered if arm == LEARNED else 0.3) + rng.normal(0.0, 0.01),
        }
        for arena, given in zip((*MAZES, CONTROL_ARENA), gains, strict=True)
        for arm in ARMS
        for pair in range(LAPTOP.num_pairs)
    ]


GOOD, USELESS, WORSE = {LEARNED: 30.0}, {}, {LEARNED: -30.0}
BEHIND_EUCLIDEAN = {LEARNED: 30.0, EUCLIDEAN: 60.0}


@pytest.mark.parametrize(
    ("gains", "ordered", "expected"),
    [
        ((GOOD, GOOD, BEHIND_EUCLIDEAN, USELESS), 0.9, [True, True, True]),
        ((GOOD, BEHIND_EUCLIDEAN, USELESS, USELESS), 0.9, [None, True, True]),
        # A gain in the null arena, however small, and features that do not order.
        ((GOOD, BEHIND_EUCLIDEAN, WORSE, {LEARNED: 4.0}), 0.2, [False, False, False]),
    ],
)
def test_learned_potentials_have_to_beat_both_others_in_two_mazes(judge, gains, ordered, expected):
    found = judge(EXPERIMENT, LAPTOP, rows(gains, ordered))
    assert [claim.holds for claim in found] == expected


def test_fewer_pairs_of_agents_than_registered_leave_the_goal_open(judge):
    found = judge(EXPERIMENT, replace_nested(LAPTOP, agents=2), rows((GOOD,) * 4))
    assert [claim.holds for claim in found] == [None, True, False]


def test_means_leave_out_what_was_before_learning_and_thresholds_are_each_goal_s_own():
    config = replace_nested(
        LAPTOP, base=replace_nested(LAPTOP.base, steps=6_000, evaluate_every=2_000)
    )
    none, learned = [-300.0, -100.0, -100.0, -100.0], [-300.0, -30.0, -30.0, -30.0]
    returns = np.array([[none] * 2, [learned] * 2])
    found = shaping.outcomes(config, [0, 2_000, 4_000, 6_000], returns, [20.0, 60.0])
    np.testing.assert_array_equal(found["mean_return"][0, :, 0], [-100.0, -100.0])
    # Thresholds -40 and -120, reached at the second evaluation in a row; one that never gets there
    # counts with the 6,000 steps of training.
    np.testing.assert_array_equal(found["samples"][..., 0], [[6_000, 4_000], [4_000, 4_000]])
    np.testing.assert_array_equal(found["reached"][0, :, 0], [False, True])


def test_pairs_that_share_a_representation_count_once(results_of):
    results = results_of(EXPERIMENT, LAPTOP, rows((USELESS,) * 4))
    assert len(shaping.against(results, "spiral", NONE).differences) == LAPTOP.fits
    goals = LAPTOP.goals_of_pairs
    # Pairs of one representation have one goal.
    assert goals[:10] == goals[10:]


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_the_smoke_preset_starts_all_arms_alike(smoke):
    _, out = smoke("shaping")
    found = json.loads((out / "parts" / "four_rooms.json").read_text())
    returns = np.array(found["values"]["return"])
    assert returns.shape == (len(ARMS), PRESETS["smoke"].num_pairs, 3)
    # Agents of all arms start from the same networks.
    np.testing.assert_array_equal(returns[:, :, 0], np.tile(returns[:1, :, 0], (len(ARMS), 1)))
    spreads = [np.std(found["potentials"][arm]) for arm in ARMS]
    np.testing.assert_allclose(spreads, [0.0, *[16.0] * 5])
