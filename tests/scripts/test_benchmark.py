"""The benchmarks, at their smallest."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.streaming import ImplicitKrasulina, PowerDecay
from rlreps.streaming.rules.factor import FactorState, inverse_gram
from rlreps.subspace.reconstruction import exact_components


@pytest.fixture(scope="module")
def script(load):
    return load("benchmark")


def test_numpys_loop_makes_the_updates_that_it_is_compared_with(script):
    rows = script.random_rows(200, 12)
    start = 1e-2 * np.random.default_rng(0).normal(size=(12, 3))
    factor, inverse = script.numpy_loop(rows.astype(np.float64), start)
    np.testing.assert_allclose(inverse, np.linalg.pinv(factor), atol=1e-10)
    with jax.enable_x64(True):
        rule = ImplicitKrasulina(12, 3, learning_rate=PowerDecay(script.RATE, script.POWER))
        state = FactorState(
            jnp.zeros((), jnp.int32), jnp.asarray(start.T), inverse_gram(jnp.asarray(start.T))
        )
        ended = rule.update_each(state, jnp.asarray(rows, jnp.float64))
        np.testing.assert_allclose(ended.rows.T, factor, atol=1e-9)


def test_speed_counts_the_steps_of_all_agents(script, monkeypatch):
    config, _ = script.agent_cases(2)["compiled"]
    trainer = SimpleNamespace(init=tuple, advance=lambda *_: ((), {}), close=lambda: None)
    monkeypatch.setattr(script, "make_trainer", lambda config, devices: trainer)
    times = iter([0.0, 9.0, 10.0, 12.0, 20.0, 21.0])
    monkeypatch.setattr(script.time, "perf_counter", lambda: next(times))
    # Two agents of 40 steps in 2 s, then in 1 s: the better round counts, the first does not.
    assert script.agent_speed(config, 40, 2) == {"whole": pytest.approx(80.0)}


@pytest.mark.integration
def test_every_streaming_method_and_batch_size_is_timed_and_measured(script):
    rows = script.random_rows(600, 12)
    points = script.accuracy_against_time(exact_components(rows), 3, (1, 20), repeats=1)
    assert [(point.method, point.rows_per_update) for point in points] == [
        ("implicit Krasulina", 1),
        ("implicit Krasulina", 20),
        ("incremental PCA", 20),
        ("scikit-learn IncrementalPCA", 20),
    ]
    assert all(point.seconds > 0.0 and 0.0 <= point.percent_excess < 20.0 for point in points)
    assert len(script.plot_accuracy(points, "rows").axes[0].lines) == 3
    assert np.isfinite(script.slope("oja", [(12, 2), (12, 4)], 50, repeats=1))
    found = script.compare_with_numpy(script.random_rows(100, 12), 3, repeats=1)
    assert len(found) == 6
    assert all(seconds > 0.0 for seconds in found.values())


@pytest.mark.integration
def test_comparisons_print_a_line_for_each_way(script, capsys, monkeypatch):
    script.ground_truth(1, rows=2, rollouts=2, seconds=0.1)
    script.training(1, states=300, length=2)
    script.spectral(1, sizes=(2,), rows=8, length=2)
    lines = capsys.readouterr().out.splitlines()
    assert [len(re.findall(r"[\d.]+ times", line)) for line in lines] == [1] * 11 + [2] * 4
    # Averages of networks that share layers take d (d + 1) / 2 passes, of others d.
    assert [line.rpartition("; ")[2] for line in lines[-4:]] == ["3 passes", "2 passes"] * 2


@pytest.mark.integration
def test_a_scan_of_seeds_makes_the_updates_of_a_loop_and_nothing_infinite(script, monkeypatch):
    calls = script.seeds_and_loop("naive", 3, 4)
    (scanned, _), (looped, _) = calls["scan"](), calls["loop"]()
    np.testing.assert_array_equal(scanned.step, [4, 4, 4])
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(looped), strict=True):
        np.testing.assert_allclose(np.asarray(one)[0], other, rtol=1e-3, atol=1e-3)
    wild = dataclasses.replace(script.SYNTHETIC, step_size=1e3)
    monkeypatch.setattr(script, "SYNTHETIC", wild)
    monkeypatch.setattr(script, "METHODS", {"naive": "pseudo"})
    with pytest.raises(RuntimeError, match="expected finite runs of naive, got 2 infinite ones"):
        script.synthetic_seeds(1, seeds=2, length=50)
