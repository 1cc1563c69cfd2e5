"""The benchmark of spectral inference, at its smallest."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def benchmark():
    """The script, imported as running it from its folder would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("benchmark_spectral")


@pytest.mark.parametrize("networks", ["shared", "separate"])
def test_every_way_is_timed_against_the_same_network(benchmark, monkeypatch, networks):
    monkeypatch.setitem(benchmark.HIDDEN, networks, (4,))
    found = benchmark.compare(networks, 2, "potential", rows=8, length=2, repeats=1)
    assert list(found) == ["bare", "β = 1", "β = 0.01"]
    assert all(seconds > 0.0 for seconds in found.values())
