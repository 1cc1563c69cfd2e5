"""Arms of agents: comparisons of made-up runs with known answers."""

import dataclasses
import math

import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.errors import InputError
from rlreps.experiments.harness import in_path
from rlreps.experiments.ours.agent_arms import (
    ArmRuns,
    Comparison,
    advantage,
    draw_returns,
    improvements,
    interquartile_curve,
    overall_improvement,
)
from rlreps.experiments.ours.auxiliary_online import cosines

STEPS = 10_000.0 * np.arange(6)


def runs(label, level, *, seeds=10, seed=0, distance=0.3, probe=0.2):
    """Agents whose returns stand near a level from step 10,000 on, and never do better before."""
    levels = level + np.random.default_rng(seed).normal(size=(seeds, 1))
    spread = np.linspace(-0.01, 0.01, seeds)[:, None] * np.ones((1, 6))
    return ArmRuns(
        label=label,
        config=AgentConfig(steps=50_000),
        folder=None,
        steps=STEPS,
        returns=np.concatenate([np.full((seeds, 1), -500.0), np.tile(levels, (1, 5))], axis=1),
        measures={"leading_distance": distance + spread, "probe_error": probe + spread},
        seconds=1.0,
    )


def compared(*arms, environment="Maze"):
    return Comparison(environment=environment, threshold=-25.0, runs=arms)


def test_an_arm_that_is_better_by_far_has_the_advantage_in_return_and_samples():
    none, better = runs("none", -30.0), runs("better", -20.0, seed=1)
    # The evaluation before training counts in no mean.
    np.testing.assert_allclose(none.mean_returns, none.returns[:, -1])
    comparison = compared(none, better)
    found = comparison.advantages["better"]
    assert found.probability.value == 1.0
    assert found.mean_return.value == pytest.approx(10.0, abs=1.0)
    # Reached at the second evaluation at or above, of steps 10,000 and 20,000.
    assert found.samples.value == 20_000 - 50_000
    assert found.mean_return.low > 0.0 > found.samples.high
    assert advantage(none, better, -25.0).mean_return.high < 0.0
    first, second = comparison.summary()["arms"]
    assert (first["samples"], second["samples"]) == ([math.inf] * 10, [20_000.0] * 10)
    assert first["against_first"] is None
    assert second["against_first"]["mean_return"]["value"] == found.mean_return.value
    assert second["against_first"]["samples"]["high"] == found.samples.high


def test_what_seeds_have_in_common_widens_no_difference_and_its_number_counts_against_it():
    """Agents whose seeds decide far more than their arms do: 9 of 10 are better by a little."""
    none, easy = runs("none", -30.0), np.linspace(-20.0, 20.0, 10)[:, None]
    none = dataclasses.replace(none, returns=none.returns + easy)
    gain = np.where(np.arange(10) == 3, -0.5, np.linspace(0.5, 1.5, 10))[:, None]

    def against(count):
        arms = [
            dataclasses.replace(none, label=str(index), returns=none.returns + gain)
            for index in range(count)
        ]
        return compared(none, *arms)

    comparison = against(1)
    found = comparison.advantages["0"].mean_return
    assert 0.0 < found.low < found.value < found.high < 2.0
    # Two of 1,024 flips of signs have so large a mean, and two more its negative.
    p = comparison.adjusted["0"].mean_return
    assert p == pytest.approx(2 * 4 / 1024, abs=4 / 1024)
    assert against(8).adjusted["0"].mean_return == pytest.approx(min(1.0, 16 * p / 2))
    other = dataclasses.replace(none, config=dataclasses.replace(none.config, seed=7))
    with pytest.raises(InputError, match=r"agents of the seeds of none, range\(0, 10\)"):
        advantage(other, none, -25.0)


def test_improvement_over_all_environments_is_the_mean_over_those_that_have_the_arm():
    first = compared(runs("none", -30.0), runs("a", -20.0), runs("b", -20.0), environment="One")
    second = compared(runs("none", -30.0), runs("a", -40.0), environment="Two")
    assert set(overall_improvement([first, second])) == {"a"}
    rows = improvements([first, second])
    assert list(rows) == ["a, One", "b, One", "a, Two", "a, all environments"]
    assert [rows["a, One"].value, rows["a, Two"].value] == [1.0, 0.0]
    assert rows["a, all environments"].value == pytest.approx(0.5)
    assert list(improvements([first])) == ["a", "b"]


def test_curves_and_axes_leave_out_missing_points_and_untrained_networks():
    curve = interquartile_curve(np.array([[1.0, math.nan, 3.0], [1.0, 2.0, 5.0]]))
    np.testing.assert_array_equal(curve.value, [1.0, math.nan, 4.0])
    assert curve.low[2] < 4.0 < curve.high[2]
    assert math.isnan(curve.low[1])
    low, high = draw_returns(compared(runs("none", -30.0), runs("a", -20.0))).axes[0].get_ylim()
    assert -40.0 < low < -30.0
    assert -20.0 < high < -15.0


def test_names_become_plain_folders():
    assert in_path("ALE/Breakout-v5") == "ALE-Breakout-v5"
    assert in_path("PuddleWorld (β = 1)") == "PuddleWorld-1"


def test_the_cosines_are_those_of_the_lowest_frequencies():
    config, start = cosines(AgentConfig(num_features=7, num_seeds=2))
    assert config.dqn.freeze_torso
    states = np.random.default_rng(0).uniform(size=(50, 2)).astype(np.float32)
    encoder = dataclasses.replace(config.encoder, num_features=7)
    features = np.asarray(encoder.apply(start.params[1], states))
    pairs = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1)]
    waves = np.stack([np.prod(np.cos(np.pi * states * pair), axis=1) for pair in pairs], axis=1)
    correlations = np.abs(np.corrcoef(features.T, waves.T)[:7, 7:])
    np.testing.assert_allclose(correlations.max(axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(correlations.max(axis=0), 1.0, atol=1e-4)
