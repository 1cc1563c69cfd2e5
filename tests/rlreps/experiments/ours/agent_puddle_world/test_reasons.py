"""What is said of torsos and returns, on runs made up so that the answer is known."""

import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison
from rlreps.experiments.ours.agent_puddle_world.reasons import (
    rank_correlation,
    reasons_text,
    torso_changes,
)


def arm(label, distance, probe, mean_return, agents=10):
    """Agents whose measures and returns are spread a little about what is given."""
    spread = np.linspace(-0.01, 0.01, agents)[:, None] * np.ones((1, 4))
    return ArmRuns(
        label=label,
        config=AgentConfig(),
        folder=None,
        steps=10_000.0 * np.arange(4),
        returns=mean_return + 100.0 * spread,
        measures={"subspace_distance": distance + spread, "probe_error": probe + spread},
        seconds=1.0,
    )


def compared(*arms):
    return Comparison(environment="PuddleWorld", threshold=-40.0, runs=list(arms))


NONE = arm("none", 0.3, 0.2, -50.0)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (arm("taught", 0.1, 0.1, -50.0), "Returns are no better"),
        (arm("taught", 0.1, 0.1, -30.0), "Returns are better with taught"),
        (arm("idle", 0.3, 0.2, -50.0), "No auxiliary task left torsos"),
        # One of the two is not enough.
        (arm("half", 0.1, 0.2, -50.0), "No auxiliary task left torsos"),
        (arm("few", 0.1, 0.1, -50.0, agents=9), "too few agents to tell"),
    ],
)
def test_the_text_says_what_the_intervals_say(other, said):
    comparison = compared(NONE, other)
    assert said in reasons_text(comparison, torso_changes(comparison))


def test_differences_are_those_to_the_first_arm():
    (change,) = torso_changes(compared(NONE, arm("taught", 0.1, 0.15, -30.0)))
    assert change.subspace_distance.value == pytest.approx(-0.2)
    assert change.probe_error.value == pytest.approx(-0.05)
    assert change.mean_return.value == pytest.approx(20.0)
    assert change.subspace_distance.low <= change.subspace_distance.value
    assert change.better_torso


def test_the_correlation_is_minus_one_where_closer_torsos_always_earn_more():
    one, other = arm("none", 0.3, 0.2, -50.0), arm("taught", 0.1, 0.1, -30.0)
    for run in (one, other):
        run.returns[:] = -run.measures["subspace_distance"]
    assert rank_correlation(compared(one, other)) == pytest.approx(-1.0)
