"""The benchmark of the synthetic experiment, at its smallest."""

import dataclasses
import importlib
import re
from pathlib import Path

import jax
import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def benchmark():
    """The script, imported as running it from its folder would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("benchmark_synthetic")


def test_both_ways_make_the_same_updates(benchmark):
    (scanned, _), (looped, _) = (call() for call in benchmark.calls_of("naive", 3, 4, 4))
    np.testing.assert_array_equal(scanned.step, [4, 4, 4])
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(looped), strict=True):
        np.testing.assert_allclose(np.asarray(one)[0], other, rtol=1e-3, atol=1e-3)


def test_what_became_infinite_is_not_timed(benchmark, monkeypatch):
    wild = dataclasses.replace(benchmark.CONFIG, step_size=1e3)
    monkeypatch.setattr(benchmark, "CONFIG", wild)
    with pytest.raises(RuntimeError, match="expected finite runs of naive, got 2 infinite ones"):
        benchmark.compare("naive", 2, 50, 50, 1)


@pytest.mark.integration
def test_no_method_becomes_infinite_over_the_whole_benchmark(benchmark):
    for method in benchmark.ROLES:
        benchmark.require_finite(
            method, *(call() for call in benchmark.calls_of(method, 30, 2000, 1000))
        )


@pytest.mark.integration
def test_a_method_is_a_row_with_both_throughputs_and_their_ratio(benchmark, capsys, monkeypatch):
    assert list(benchmark.ROLES) == ["danskin_lissa", "danskin_empirical", "naive", "oracle"]
    monkeypatch.setattr(benchmark, "ROLES", {"danskin_lissa": 5})
    benchmark.main(["--seeds", "2", "--length", "3", "--loop-length", "3", "--repeats", "1"])
    printed = capsys.readouterr().out
    rows = re.findall(r"^(\w+) +([\d,]+) +([\d,]+) +([\d.]+) x", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["danskin_lissa"]
    for _, scan, loop, ratio in rows:
        expected = float(scan.replace(",", "")) / float(loop.replace(",", ""))
        assert float(ratio) == pytest.approx(expected, rel=0.05, abs=0.1)
    assert "goal 50" in printed
