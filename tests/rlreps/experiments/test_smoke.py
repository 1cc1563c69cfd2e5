"""Smoke presets of papers' experiments: their results are the frozen ones."""

import pytest


@pytest.mark.experiments
@pytest.mark.parametrize("name", ["atari", "bouncing-balls", "hydrogen", "puddle-world"])
def test_a_smoke_preset_leaves_the_frozen_results(smoke, name):
    smoke(name)
