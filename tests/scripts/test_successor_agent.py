"""Features in front of an agent of another kind, at its smallest and as it is."""

import pytest


def test_the_goal_is_opposite_and_codes_say_nothing_of_places(load):
    script = load("successor_agent")
    environment = script.CodedRing(task=True)
    environment.reset(seed=0)
    steps = [environment.step(1) for _ in range(script.PLACES // 2)]
    assert [terminated for _, _, terminated, *_ in steps] == [False] * (len(steps) - 1) + [True]
    assert {reward for _, reward, *_ in steps} == {-1.0}


@pytest.mark.integration
def test_an_agent_learns_from_features_where_it_does_not_from_codes(load):
    found = load("successor_agent").main([])
    assert found["features"] > -40.0
    assert found["codes"] < -150.0
