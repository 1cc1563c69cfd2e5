import dataclasses
import math

import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison, in_path
from rlreps.experiments.ours.agent_arms_figures import (
    draw_returns,
    improvements,
    interquartile_curve,
)
from rlreps.experiments.ours.agent_arms_findings import (
    advantage,
    advantages,
    corrected_confidence,
    improvement_claims,
    overall_improvement,
)
from rlreps.experiments.ours.agent_arms_report import summary_of

STEPS = np.arange(0.0, 60_000.0, 10_000.0)
CONFIG = AgentConfig(steps=50_000)


def runs(label, level, *, seeds=10, noise=1.0, seed=0):
    """Agents whose returns stand at a level, give or take a number a seed, from step 10,000 on."""
    levels = level + noise * np.random.default_rng(seed).normal(size=(seeds, 1))
    returns = np.concatenate([np.full((seeds, 1), -500.0), np.tile(levels, (1, 5))], axis=1)
    return ArmRuns(
        label=label,
        config=CONFIG,
        folder=None,
        steps=STEPS,
        returns=returns,
        measures={},
        seconds=1.0,
    )


def compared(*arms, environment="Maze", threshold=-25.0):
    return Comparison(environment=environment, threshold=threshold, runs=arms)


def test_the_evaluation_before_training_counts_in_no_mean_return():
    arm = runs("none", -30.0)
    np.testing.assert_allclose(arm.mean_returns, arm.final_returns)


def test_an_arm_that_is_better_by_far_has_the_advantage_in_return_and_samples():
    none, better = runs("none", -30.0), runs("better", -20.0, seed=1)
    found = advantage(better, none, -25.0)
    assert found.probability.value == 1.0
    assert found.mean_return.value == pytest.approx(10.0, abs=1.0)
    # Reached at the second evaluation at or above, of steps 10,000 and 20,000.
    assert found.samples.value == 20_000 - 50_000
    assert found.better_return
    assert found.fewer_samples
    back = advantage(none, better, -25.0)
    assert not back.better_return
    assert not back.fewer_samples


@pytest.mark.parametrize(
    ("level", "seeds", "holds"),
    [
        (-20.0, 10, [True, True, True]),
        (-28.0, 10, [True, False, True]),
        (-30.0, 10, [False] * 3),
        (-40.0, 10, [False] * 3),
        (-20.0, 9, [None] * 3),
    ],
)
def test_one_arm_of_several_is_enough_for_the_claim_and_fewer_than_ten_agents_are_not(
    level, seeds, holds
):
    arms = [
        runs("none", -30.0, seeds=seeds),
        runs("same", -30.0, seeds=seeds),
        runs("other", level, seeds=seeds, seed=1 if level != -30.0 else 0),
    ]
    claims = improvement_claims(compared(*arms), subject="auxiliary objective")
    assert [claim.holds for claim in claims] == holds
    assert all(claim.statement.startswith("Maze: at least one auxiliary") for claim in claims)
    assert "not corrected for the 2 arms" in claims[0].paper
    assert "corrected for 4 comparisons" in claims[2].paper


@pytest.mark.parametrize(("shift", "holds"), [(0.5, False), (0.95, False), (1.5, True)])
def test_a_difference_that_only_an_uncorrected_interval_tells_is_not_claimed_when_corrected(
    shift, holds
):
    none = runs("none", -30.0)
    arms = [
        dataclasses.replace(none, label=str(index), returns=none.returns + shift)
        for index in range(8)
    ]
    plain, _, corrected = improvement_claims(compared(none, *arms), subject="objective")
    assert plain.holds is (shift > 0.5)
    assert corrected.holds is holds


def test_the_corrected_intervals_are_bonferronis_for_both_measures_of_all_arms():
    arms = compared(*(runs(name, -30.0) for name in ("none", "a", "b")))
    assert corrected_confidence(arms) == pytest.approx(1 - 0.05 / 4)
    for plain, strict in zip(
        advantages(arms), advantages(arms, confidence=corrected_confidence(arms)), strict=True
    ):
        assert strict.mean_return.low < plain.mean_return.low
        assert strict.mean_return.high > plain.mean_return.high


def test_improvement_over_all_environments_is_the_mean_over_those_that_have_the_arm():
    first = compared(runs("none", -30.0), runs("a", -20.0), runs("b", -20.0), environment="One")
    second = compared(runs("none", -30.0), runs("a", -40.0), environment="Two")
    assert set(overall_improvement([first, second])) == {"a"}
    assert overall_improvement([first, second])["a"].value == pytest.approx(0.5)
    rows = improvements([first, second])
    assert list(rows) == ["a, One", "b, One", "a, Two", "a, all environments"]
    assert [rows["a, One"].value, rows["a, Two"].value] == [1.0, 0.0]
    assert list(improvements([first])) == ["a", "b"]


def test_the_axis_of_returns_leaves_out_what_untrained_networks_did():
    axes = draw_returns(compared(runs("none", -30.0), runs("a", -20.0))).axes[0]
    low, high = axes.get_ylim()
    assert -40.0 < low < -30.0
    assert -20.0 < high < -15.0


def test_points_that_a_seed_lacks_are_left_out_of_curves():
    mean, low, high = interquartile_curve(np.array([[1.0, math.nan, 3.0], [1.0, 2.0, 5.0]]))
    np.testing.assert_array_equal(mean, [1.0, math.nan, 4.0])
    assert low[2] < 4.0 < high[2]
    assert all(math.isnan(part[1]) for part in (low, high))


def test_the_summary_says_what_each_agent_got_and_when():
    found = summary_of(compared(runs("none", -30.0, seeds=3), runs("a", -20.0, seeds=3)))
    none, better = found["arms"]
    assert none["against_first"] is None
    assert none["samples"] == [math.inf] * 3
    assert better["samples"] == [20_000.0] * 3
    assert better["against_first"]["mean_return"]["value"] == pytest.approx(10.0)
    assert len(better["final_returns"]) == 3


def test_names_become_plain_folders():
    assert in_path("ALE/Breakout-v5") == "ALE-Breakout-v5"
    assert in_path("PuddleWorld, arena a.toml") == "PuddleWorld-arena-a-toml"
