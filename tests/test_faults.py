"""The list of one-line faults in the mathematics stays plantable; scripts/faults.py plants them."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_fault_can_be_planted_and_names_tests_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    script = importlib.import_module("faults")
    faults = script.read_faults()
    assert len({fault["name"] for fault in faults}) == len(faults) >= 60
    for fault in faults:
        assert script.plant(fault)
        assert fault["tests"]
        assert all((ROOT / test).is_file() for test in fault["tests"])
    with pytest.raises(ValueError, match="expected gone once"):
        script.plant({"name": "gone", "file": "pyproject.toml", "find": "not in it", "replace": ""})
