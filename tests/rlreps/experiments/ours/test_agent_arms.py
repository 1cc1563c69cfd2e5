"""Arms of agents: comparisons of made-up runs with known answers."""

import dataclasses
import math

import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.experiments.harness import Frame
from rlreps.experiments.ours import agent_arms
from rlreps.experiments.ours.agent_arms import NO_TASK, ArmRuns, frame_of
from rlreps.experiments.ours.auxiliary_online import EXPERIMENT, cosines

STEPS = 10_000.0 * np.arange(6)


def runs(label, level, *, seeds=10, seed=0):
    """Agents whose returns stand near a level from step 10,000 on, and never do better before."""
    levels = level + np.random.default_rng(seed).normal(size=(seeds, 1))
    return ArmRuns(
        label=label,
        config=AgentConfig(steps=50_000),
        folder=None,
        steps=STEPS,
        returns=np.concatenate([np.full((seeds, 1), -500.0), np.tile(levels, (1, 5))], axis=1),
        measures={
            "probe_error": np.broadcast_to(np.linspace(0.1, 0.3, seeds)[:, None], (seeds, 6))
        },
        seconds=1.0,
    )


@pytest.fixture
def compared(results_of):
    """Make results of arms by environment."""

    def made(**arms):
        frames = [frame_of(arm, name, -25.0) for name, each in arms.items() for arm in each]
        return results_of(EXPERIMENT, None, Frame.concat(frames))

    return made


def test_an_arm_that_is_better_by_far_has_the_advantage_in_return_and_samples(compared):
    none, better = runs(NO_TASK, -30.0), runs("better", -20.0, seed=1)
    # The evaluation before training counts in no mean.
    np.testing.assert_allclose(none.mean_returns, none.returns[:, -1])
    results = compared(Maze=(none, better))
    (found,) = agent_arms.differences(results)
    assert found["probability"] == 1.0
    assert found["mean_return"] == pytest.approx(10.0, abs=1.0)
    # Reached at the second evaluation at or above, of steps 10,000 and 20,000.
    assert found["samples"] == 20_000 - 50_000
    assert found["mean_return_low"] > 0.0 > found["samples_high"]
    first, second = agent_arms.comparisons(results)
    assert (first["reached"], second["reached"]) == (0, 10)
    assert (first["steps"], second["steps"]) == (50_000, 20_000)
    listed = agent_arms.agents(results)
    assert [row["samples"] for row in listed] == [math.inf] * 10 + [20_000.0] * 10
    assert listed[3]["final_return"] == none.returns[3, -1]
    assert agent_arms.torsos(results)[0]["probe_error"] == pytest.approx(0.2)


def test_what_seeds_have_in_common_widens_no_difference_and_its_number_counts_against_it(compared):
    """Agents whose seeds decide far more than their arms do: 9 of 10 are better by a little."""
    none, easy = runs(NO_TASK, -30.0), np.linspace(-20.0, 20.0, 10)[:, None]
    none = dataclasses.replace(none, returns=none.returns + easy)
    gain = np.where(np.arange(10) == 3, -0.5, np.linspace(0.5, 1.5, 10))[:, None]

    def against(count):
        arms = [
            dataclasses.replace(none, label=str(index), returns=none.returns + gain)
            for index in range(count)
        ]
        return agent_arms.differences(compared(Maze=(none, *arms)))[0]

    found = against(1)
    assert 0.0 < found["mean_return_low"] < gain.mean() < found["mean_return_high"] < 2.0
    # Two of 1,024 flips of signs have so large a mean, and two more its negative.
    p = found["mean_return_p"]
    assert p == pytest.approx(2 * 4 / 1024, abs=4 / 1024)
    assert against(8)["mean_return_p"] == pytest.approx(min(1.0, 16 * p / 2))


def test_improvement_over_all_environments_is_the_mean_over_those_that_have_the_arm(compared):
    first = (runs(NO_TASK, -30.0), runs("a", -20.0), runs("b", -20.0))
    second = (runs(NO_TASK, -30.0), runs("a", -40.0))
    rows = agent_arms.improvements(compared(One=first, Two=second))
    assert list(rows) == ["a, One", "b, One", "a, Two", "a, all environments"]
    assert [rows["a, One"].value, rows["a, Two"].value] == [1.0, 0.0]
    assert rows["a, all environments"].value == pytest.approx(0.5)
    assert list(agent_arms.improvements(compared(One=first))) == ["a", "b"]


def test_fixed_cosines_give_every_agent_the_products_themselves():
    config, start = cosines(AgentConfig(num_features=7, num_seeds=2))
    assert config.dqn.freeze_torso
    states = np.random.default_rng(0).uniform(size=(50, 2)).astype(np.float32)
    encoder = dataclasses.replace(config.encoder, num_features=7)
    features = np.asarray(encoder.apply(start.params[1], states))
    waves = np.cos(np.pi * states)
    # In order of k_x² + k_y²: the first two are cosines of y and of x.
    assert abs(np.corrcoef(features[:, 0], waves[:, 1])[0, 1]) > 0.9999
    assert abs(np.corrcoef(features[:, 1], waves[:, 0])[0, 1]) > 0.9999
    assert np.linalg.matrix_rank(features) == 7
