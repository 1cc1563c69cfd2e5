"""Smoke presets of papers' experiments. The fixture ``smoke`` compares their results."""

import pytest

from rlreps.experiments import EXPERIMENTS

NAMES = [
    name
    for name, entry in EXPERIMENTS.items()
    # Those with data have tests of their own.
    if entry.paper != "ours" and "data" not in entry.takes and name != "synthetic"
]


@pytest.mark.experiments
@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_preset_leaves_the_frozen_results(smoke, name):
    smoke(name)
