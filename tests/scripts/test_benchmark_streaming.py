"""The benchmark of online principal component analysis, at its smallest."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.experiments.amid_warmuth_2020.pca import PcaConfig, make_problem
from rlreps.sources.datasets import Observations
from rlreps.streaming import ImplicitKrasulina, PowerDecay
from rlreps.streaming.rules.factor import FactorState, inverse_gram

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def benchmark():
    """The script, imported as running it from its folder would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("benchmark_streaming")


def test_numpys_loop_makes_the_updates_that_it_is_compared_with(benchmark):
    rows = benchmark.random_rows(200, 12)
    start = 1e-2 * np.random.default_rng(0).normal(size=(12, 3))
    factor, inverse = benchmark.numpy_loop(rows.astype(np.float64), start)
    np.testing.assert_allclose(inverse, np.linalg.pinv(factor), atol=1e-10)
    with jax.enable_x64(True):
        rule = ImplicitKrasulina(12, 3, learning_rate=PowerDecay(benchmark.RATE, benchmark.POWER))
        state = FactorState(
            jnp.zeros((), jnp.int32), jnp.asarray(start.T), inverse_gram(jnp.asarray(start.T))
        )
        ended = rule.update_each(state, jnp.asarray(rows, jnp.float64))
        np.testing.assert_allclose(ended.rows.T, factor, atol=1e-9)


def test_the_slope_of_a_power_law_is_its_exponent(benchmark):
    sizes = (10, 20, 40)
    assert benchmark.slope(sizes, [3e-6 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_every_method_and_batch_size_is_timed_and_measured(benchmark):
    problem = make_problem(
        PcaConfig(components=(3,)), Observations("rows", benchmark.random_rows(600, 12), None)
    )
    points = benchmark.accuracy_against_time(problem, 3, (1, 20, 100), repeats=1)
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
    figure = benchmark.plot_accuracy(points, "rows")
    assert len(figure.axes[0].lines) == 3


def test_numpy_and_the_rule_are_timed_side_by_side(benchmark):
    found = benchmark.compare_with_numpy(benchmark.random_rows(100, 12), 3, repeats=1)
    assert list(found) == [
        "rlreps float32",
        "NumPy float64, all threads",
        "NumPy float64, one",
        "NumPy float32, all threads",
        "NumPy float32, one",
    ]
    assert all(seconds > 0.0 for seconds in found.values())
