"""The benchmarks, at their smallest."""

import contextlib
import dataclasses
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import DQNConfig
from rlreps.encoders import MLP
from rlreps.experiments.amid_warmuth_2020.pca import PcaConfig, make_problem
from rlreps.sources.datasets import Observations
from rlreps.streaming import ImplicitKrasulina, PowerDecay
from rlreps.streaming.rules.factor import FactorState, inverse_gram


@pytest.fixture(scope="module")
def agents(load):
    return load("benchmark_agents")


@pytest.fixture(scope="module")
def streaming(load):
    return load("benchmark_streaming")


@pytest.fixture(scope="module")
def synthetic(load):
    return load("benchmark_synthetic")


def test_all_ways_run_one_agent_and_differ_only_in_where_it_acts(agents):
    base, *others = [case.config for case in agents.cases(10)]
    for config in others:
        parts = (config.dqn, config.encoder, config.replay)
        assert parts == (base.dqn, base.encoder, base.replay)
    assert [config.num_envs for config in (base, *others)] == [1, 4, 4]
    assert [config.num_seeds for config in (base, *others)] == [10, 10, 10]


@pytest.mark.integration
def test_speed_counts_the_steps_of_all_agents(agents, monkeypatch):
    case = agents.cases(2)[-1]
    config = dataclasses.replace(
        case.config,
        encoder=MLP(hidden=(8,)),
        num_features=4,
        dqn=DQNConfig(warmup=40, batch_size=4),
    )
    case = dataclasses.replace(case, config=config, steps=40)
    times = iter([0.0, 2.0, 10.0, 11.0])
    with contextlib.closing(agents.make_trainer(config)) as loop:
        monkeypatch.setattr(agents.time, "perf_counter", lambda: next(times))
        # Two agents of 40 steps in 2 s, then in 1 s: the better round counts.
        assert agents.steps_per_second(case, loop, 2) == pytest.approx(80.0)


@pytest.mark.integration
def test_spectral_updates_are_timed_against_the_same_network(load, monkeypatch, capsys):
    script = load("benchmark_spectral")
    monkeypatch.setattr(script, "HIDDEN", {"shared": (4,), "separate": (4,)})
    monkeypatch.setattr(script, "OPERATORS", {"potential": script.OPERATORS["potential"]})
    options = ["--dimensions", "2", "--rows", "8", "--length", "2", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["benchmark_spectral.py", *options])
    script.main()
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["shared", "separate"]
    for row, passes in zip(rows, (3, 2), strict=True):
        ratios = re.search(r"β = 1: +([\d.]+) x, β = 0.01: +([\d.]+) x; (\d) backw", row).groups()
        assert int(ratios[2]) == passes


def test_numpys_loop_makes_the_updates_that_it_is_compared_with(streaming):
    rows = streaming.random_rows(200, 12)
    start = 1e-2 * np.random.default_rng(0).normal(size=(12, 3))
    factor, inverse = streaming.numpy_loop(rows.astype(np.float64), start)
    np.testing.assert_allclose(inverse, np.linalg.pinv(factor), atol=1e-10)
    with jax.enable_x64(True):
        rule = ImplicitKrasulina(12, 3, learning_rate=PowerDecay(streaming.RATE, streaming.POWER))
        state = FactorState(
            jnp.zeros((), jnp.int32), jnp.asarray(start.T), inverse_gram(jnp.asarray(start.T))
        )
        ended = rule.update_each(state, jnp.asarray(rows, jnp.float64))
        np.testing.assert_allclose(ended.rows.T, factor, atol=1e-9)


def test_the_slope_of_a_power_law_is_its_exponent(streaming):
    sizes = (10, 20, 40)
    assert streaming.slope(sizes, [3e-6 * size**1.5 for size in sizes]) == pytest.approx(1.5)


@pytest.mark.integration
def test_every_streaming_method_and_batch_size_is_timed_and_measured(streaming):
    problem = make_problem(
        PcaConfig(components=(3,)), Observations("rows", streaming.random_rows(600, 12), None)
    )
    points = streaming.accuracy_against_time(problem, 3, (1, 20, 100), repeats=1)
    assert [(point.method, point.rows_per_update) for point in points] == [
        ("implicit Krasulina", 1),
        ("implicit Krasulina", 20),
        ("implicit Krasulina", 100),
        ("incremental PCA", 20),
        ("incremental PCA", 100),
        ("scikit-learn IncrementalPCA", 20),
        ("scikit-learn IncrementalPCA", 100),
    ]
    assert all(point.seconds > 0.0 and 0.0 <= point.percent_excess < 20.0 for point in points)
    figure = streaming.plot_accuracy(points, "rows")
    assert len(figure.axes[0].lines) == 3
    found = streaming.compare_with_numpy(streaming.random_rows(100, 12), 3, repeats=1)
    assert list(found) == [
        "rlreps float32",
        "its products alone",
        "NumPy float64, all threads",
        "NumPy float64, one",
        "NumPy float32, all threads",
        "NumPy float32, one",
    ]
    assert all(seconds > 0.0 for seconds in found.values())


@pytest.mark.integration
def test_both_ways_of_the_synthetic_experiment_make_the_same_finite_updates(synthetic, monkeypatch):
    (scanned, _), (looped, _) = (call() for call in synthetic.calls_of("naive", 3, 4, 4))
    np.testing.assert_array_equal(scanned.step, [4, 4, 4])
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(looped), strict=True):
        np.testing.assert_allclose(np.asarray(one)[0], other, rtol=1e-3, atol=1e-3)
    for method in synthetic.ROLES:
        calls = synthetic.calls_of(method, 30, 2000, 1000)
        synthetic.require_finite(method, *(call() for call in calls))
    # What became infinite is not timed.
    wild = dataclasses.replace(synthetic.CONFIG, step_size=1e3)
    monkeypatch.setattr(synthetic, "CONFIG", wild)
    with pytest.raises(RuntimeError, match="expected finite runs of naive, got 2 infinite ones"):
        synthetic.compare("naive", 2, 50, 50, 1)


@pytest.mark.integration
def test_a_method_is_a_row_with_both_throughputs_and_their_ratio(synthetic, capsys, monkeypatch):
    assert list(synthetic.ROLES) == ["danskin_lissa", "danskin_empirical", "naive", "oracle"]
    monkeypatch.setattr(synthetic, "ROLES", {"danskin_lissa": 5})
    synthetic.main(["--seeds", "2", "--length", "3", "--loop-length", "3", "--repeats", "1"])
    printed = capsys.readouterr().out
    rows = re.findall(r"^(\w+) +([\d,]+) +([\d,]+) +([\d.]+) x", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["danskin_lissa"]
    for _, scan, loop, ratio in rows:
        expected = float(scan.replace(",", "")) / float(loop.replace(",", ""))
        assert float(ratio) == pytest.approx(expected, rel=0.05, abs=0.1)
    assert "goal 50" in printed
