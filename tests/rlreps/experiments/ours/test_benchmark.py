"""The benchmark: rows that fit their worlds, controls, distances and times by hand; its smoke."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import Cosine
from rlreps.experiments.ours import benchmark
from rlreps.experiments.ours.benchmark import EXPERIMENT, Config
from rlreps.experiments.ours.contestants import (
    COSINES,
    COUNTED,
    FIXED_POINT,
    OBJECTIVES,
    RANDOM,
    World,
)

SMALL = Config(worlds=("sutton",), bins=5, encoder=Cosine(frequencies=4), batch=32, trials=12)
BY_METHOD = {row.method: row for row in OBJECTIVES}


@pytest.fixture(scope="module")
def world():
    return World.of("sutton", SMALL.bins, SMALL.discount, SMALL.rows)


def learner_of(row):
    return benchmark.learner_of(SMALL, row, 3, *benchmark.trials(SMALL, row)[0])


def test_every_objective_has_the_same_budget_and_fits_what_it_sees(world):
    assert len(BY_METHOD) == len(OBJECTIVES)
    for row in OBJECTIVES:
        tried = benchmark.trials(SMALL, row)
        assert len({*map(str, tried)}) == SMALL.trials
        assert (row.option == "") == (row.values == ())
        for _, value in tried:
            assert math.isnan(value) or getattr(learner_of(row).objective, row.option) is not None
        learner_of(row).check(world.source(row))
        assert world.own_truth(row, learner_of(row), 0).functions.shape == (25, 3)


def test_pairs_are_drawn_from_the_measure_whose_truth_is_taken(world):
    for method, expected in (
        ("OMM", world.chain.successor),
        ("TD low rank", world.chain.transition),
    ):
        batch = world.source(BY_METHOD[method]).sample(jax.random.key(0), 200_000, 1)
        first, second = (np.rint(np.asarray(each) * 5 - 0.5).astype(int) for each in batch.pair)
        counts = np.zeros((25, 25))
        np.add.at(counts, (first[:, 1] * 5 + first[:, 0], second[:, 1] * 5 + second[:, 0]), 1.0)
        # Five standard deviations of the least certain entry.
        np.testing.assert_allclose(
            counts / 200_000, expected / 25, atol=5 * (0.04 / 200_000) ** 0.5
        )


def test_cumulants_have_truths_of_their_own_and_complex_pairs_none(world):
    row = BY_METHOD["random cumulants by TD"]
    spans = [world.own_truth(row, learner_of(row), seed).functions for seed in (0, 1)]
    assert (
        np.abs(spans[0] @ np.linalg.pinv(spans[0]) - spans[1] @ np.linalg.pinv(spans[1])).max()
        > 0.01
    )
    cycle = dataclasses.replace(world.chain, transition=np.roll(np.eye(25), 1, axis=1))
    turning = dataclasses.replace(world, chain=cycle)
    assert BY_METHOD["TD low rank"].truth == FIXED_POINT
    two = benchmark.learner_of(SMALL, BY_METHOD["TD low rank"], 2, 0.01, 0.1)
    assert turning.own_truth(BY_METHOD["TD low rank"], two, 0) is None


def test_a_counted_model_comes_to_the_truth_and_other_controls_stay(world):
    truth = world.density(COUNTED, 3)
    few, many, most = world.control(COUNTED, 3, 0, [0, 2_000, 10_000_000])
    assert float(truth.distance(few)) > float(truth.distance(many)) > float(truth.distance(most))
    assert float(truth.distance(most)) < 1e-3
    for row in (COSINES, RANDOM):
        first, last = world.control(row, 3, 0, [0, 100])
        np.testing.assert_array_equal(first, last)
        assert np.linalg.matrix_rank(np.asarray(first)) == 3


def test_values_are_explained_by_features_that_hold_them(world):
    # With as many features as states and two states in three labelled ridge does better than none.
    config = dataclasses.replace(SMALL, labels=18, draws=2)
    exact = jnp.asarray(world.truths["M̃"].functions[:, :8], jnp.float32)
    constant = jnp.ones((25, 1), jnp.float32)
    assert benchmark.explained(config, world, exact, 0) > 0.3
    assert benchmark.explained(config, world, constant, 0) < 0.05


def test_times_are_medians_in_which_never_is_infinite(results_of):
    steps, curves = (
        [0, 10, 20, 30],
        {0: [1, 0.05, 0.05, 0.001], 1: [1, 0.5, 0.09, 0.09], 2: [1] * 4},
    )
    rows = [
        {
            **{"world": "w", "d": 2, "method": "m", "seed": seed, "step": step},
            **{"subspace_distance": value, "seconds": step / 100, "environment_steps": math.nan},
        }
        for seed, curve in curves.items()
        for step, value in zip(steps, curve, strict=True)
    ]
    config = dataclasses.replace(SMALL, thresholds=(0.1, 0.01))
    close, closer = benchmark.times(results_of(EXPERIMENT, config, rows))
    assert (close["never"], close["step"], close["seconds"]) == (1, 30.0, 0.3)
    assert math.isnan(close["environment_steps"])
    assert (closer["never"], closer["step"]) == (3, math.inf)
    assert benchmark.spelled("step")(closer) == "never"
    assert benchmark.spelled("environment_steps")(close) is None


@pytest.mark.experiments
def test_the_smoke_preset_measures_every_row_against_its_own_truth(smoke):
    summary, out = smoke("benchmark")
    found = {row["method"]: row for row in summary["benchmark"]}
    assert set(found) == {row.method for row in EXPERIMENT.presets["smoke"].rows}
    for method in ("large batch", "OMM"):
        assert found[method]["subspace_distance"] < 0.1 < found[RANDOM.method]["subspace_distance"]
    assert found["large batch"]["cosine"] is None
    assert 0.0 < found["OMM"]["least_cosine"] <= found["OMM"]["cosine"] <= 1.0
    trials = json.loads((out / "parts" / "trials-OMM-sutton.json").read_text("utf-8"))["trials"]
    assert len(trials) == EXPERIMENT.presets["smoke"].trials
    assert [each[2] for each in trials] == sorted(each[2] for each in trials)
