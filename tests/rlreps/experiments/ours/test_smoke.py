"""Smoke presets of our own experiments. The fixture ``smoke`` compares their results.

Those of papers are in ``experiments/test_smoke.py``: files run side by side.
"""

import pytest

from rlreps.experiments import EXPERIMENTS

NAMES = [
    name
    for name, entry in EXPERIMENTS.items()
    if entry.paper == "ours" and name not in ("games", "shaping")  # They have tests of their own.
]


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_preset_leaves_the_frozen_results(smoke, name):
    smoke(name)
