"""Smoke presets of our own experiments: their results are the frozen ones."""

import pytest

NAMES = [
    *("agents", "benchmark", "control", "defaults", "few-labels", "goal-changes"),
    *("puddle-world-fast", "zero-shot"),
]


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_preset_leaves_the_frozen_results(smoke, name):
    smoke(name)
