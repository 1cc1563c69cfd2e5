"""The count of compiled programs."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.integration
def test_a_command_is_counted_in_a_process_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("compile_times")
    found = script.measure("train store --num-features 2 --steps 20 --out runs/train")
    assert found["programs"] >= 5
    assert all(found[phase] > 0.0 for phase in script.PHASES.values())
