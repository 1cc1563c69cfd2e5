"""Shaping: scales with known answers, verdicts on made-up runs, the smoke preset."""

import json
import math

import numpy as np
import pytest

from rlreps.experiments.harness import varied
from rlreps.experiments.ours import shaping
from rlreps.experiments.ours.mazes import MAZES, NULL
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
from rlreps.runs.intervals import Interval

LAPTOP, SMOKE = PRESETS["laptop"], PRESETS["smoke"]


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
        (Interval(10_000.0, 5_000.0, 15_000.0), (3.0, 2.0, 6.0)),
        (Interval(10_000.0, -1.0, 15_000.0), (3.0, 2.0, math.inf)),
        (Interval(-2.0, -9.0, -1.0), (math.inf, math.inf, math.inf)),
    ],
)
def test_free_steps_are_repaid_after_as_many_goals_as_save_them(saved, goals):
    assert goals_to_repay(30_000, saved) == goals


def rows(gains, ordered=0.9, arenas=(*MAZES, NULL), config=LAPTOP):
    """Agents of which each arm is better than none by so much in return, in each arena."""
    rng = np.random.default_rng(0)
    level = rng.normal(-150.0, 20.0, config.num_pairs)
    return [
        {
            "arena": arena,
            "arm": arm,
            "fit": pair % config.fits,
            "mean_return": level[pair] + given.get(arm, 0.0) + rng.normal(0.0, 2.0),
            "order": np.broadcast_to(ordered, 2)[pair % 2] if arm == LEARNED else 0.3,
        }
        for arena, given in zip(arenas, gains, strict=True)
        for arm in ARMS
        for pair in range(config.num_pairs)
    ]


GOOD, USELESS, WORSE = {LEARNED: 30.0}, {}, {LEARNED: -30.0}
BEHIND_EUCLIDEAN = {LEARNED: 30.0, EUCLIDEAN: 60.0}


@pytest.mark.parametrize(
    ("gains", "options", "expected"),
    [
        ((GOOD, GOOD, GOOD, USELESS), {}, [True, True, True]),
        ((GOOD, GOOD, BEHIND_EUCLIDEAN, USELESS), {}, [True, True, True]),
        ((GOOD, BEHIND_EUCLIDEAN, USELESS, USELESS), {}, [None, True, True]),
        ((GOOD, BEHIND_EUCLIDEAN, WORSE, USELESS), {}, [False, True, True]),
        # A gain in the null arena, however small, and features that do not order.
        ((GOOD, GOOD, GOOD, GOOD), {"ordered": 0.2}, [True, False, False]),
        ((GOOD, GOOD, GOOD, {LEARNED: 4.0}), {}, [True, True, False]),
        # An order that differs from fit to fit.
        ((GOOD, GOOD, GOOD, USELESS), {"ordered": (0.1, 0.6)}, [True, None, True]),
        # Fewer pairs, fits or mazes than were registered.
        ((GOOD,) * 4, {"config": varied(LAPTOP, agents=2)}, [None, True, False]),
        (
            (GOOD,) * 2,
            {"arenas": MAZES[:2], "config": varied(LAPTOP, arenas=MAZES[:2])},
            [True, None],
        ),
    ],
)
def test_learned_potentials_have_to_beat_both_others_in_two_mazes(judge, gains, options, expected):
    found = judge(EXPERIMENT, options.get("config", LAPTOP), rows(gains, **options))
    assert [claim.holds for claim in found] == expected


def test_means_leave_out_what_was_before_learning_and_thresholds_are_each_goal_s_own(results_of):
    found = {
        "steps": [0, 2_000, 4_000, 6_000],
        "optimal_steps": [20.0, 60.0],
        "returns": {
            NONE: [[-300.0, -100.0, -100.0, -100.0]] * 2,
            LEARNED: [[-300.0, -30.0, -30.0, -30.0]] * 2,
        },
        "rank_correlation": {LEARNED: [1.0, 1.0]},
    }
    config = varied(SMOKE, base=varied(LAPTOP.base, steps=6_000, evaluate_every=2_000), fits=2)
    results = results_of(EXPERIMENT, config, [])
    frame = shaping.frame(results.run, "spiral", found).where(step=6_000)
    none, learned = frame.where(arm=NONE), frame.where(arm=LEARNED)
    np.testing.assert_array_equal(none["mean_return"], [-100.0, -100.0])
    # Thresholds -40 and -120, reached at the second evaluation in a row; one that never gets there
    # counts with the 6,000 steps of training.
    np.testing.assert_array_equal(none["samples"], [6_000.0, 4_000.0])
    np.testing.assert_array_equal(none["reached"], [False, True])
    np.testing.assert_array_equal(learned["samples"], [4_000.0, 4_000.0])


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
    assert {path.stem for path in (out / "parts").iterdir()} == {*SMOKE.arenas}
    for name in SMOKE.arenas:
        found = json.loads((out / "parts" / f"{name}.json").read_text())
        assert np.shape(found["returns"][LEARNED]) == (SMOKE.num_pairs, 3)
        # Agents of all arms start from the same networks.
        starts = [values[0][0] for values in found["returns"].values()]
        assert starts == starts[:1] * len(ARMS)
        assert all(np.std(values) == pytest.approx(16.0) for values in found["potentials"].values())
