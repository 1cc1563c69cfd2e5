"""The benchmarks, at their smallest."""

import re

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


@pytest.mark.integration
def test_every_streaming_method_and_batch_size_is_timed_and_measured(script):
    rows = script.random_rows(600, 12)
    points = script.accuracy_against_time(exact_components(rows), 3, (1, 20), repeats=1)
    assert [point[:2] for point in points] == [
        ("implicit Krasulina", 1),
        ("implicit Krasulina", 20),
        ("incremental PCA", 20),
        ("scikit-learn IncrementalPCA", 20),
    ]
    assert all(seconds > 0.0 and 0.0 <= excess < 20.0 for *_, seconds, excess in points)
    found = script.compare_with_numpy(script.random_rows(100, 12), 3, repeats=1)
    assert len(found) == 6
    assert all(seconds > 0.0 for seconds in found.values())


@pytest.mark.integration
def test_comparisons_print_a_line_for_each_way(script, capsys, monkeypatch):
    script.ground_truth(1, rows=2, rollouts=2)
    script.training(1, states=300, length=2)
    script.spectral(1, sizes=(2,), rows=8, length=2)
    lines = capsys.readouterr().out.splitlines()
    assert [len(re.findall(r"[\d.]+ times", line)) for line in lines] == [0] * 2 + [1] * 8 + [2] * 4
