"""The benchmark: rows that fit their worlds, controls, distances and times by hand; its smoke."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.cli import main
from rlreps.encoders import Cosine
from rlreps.errors import InputError
from rlreps.experiments.harness import Run
from rlreps.experiments.ours import benchmark
from rlreps.experiments.ours.benchmark import EXPERIMENT, Config
from rlreps.experiments.ours.contestants import (
    CONTROLS,
    COSINES,
    COUNTED,
    FIXED_POINT,
    OBJECTIVES,
    RANDOM,
    World,
    row_of,
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
    assert close["environment_steps"] is None
    assert (closer["never"], closer["step"]) == (3, "never")


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """The working folder with the objective of docs/losses.md in ``my_module``."""
    text = (Path(__file__).parents[4] / "docs/losses.md").read_text("utf-8")
    [block] = re.findall(r"```python\n((?:(?!```).)*class BatchMoments.*?)```", text, re.S)
    rows = (
        "from rlreps.experiments.ours.contestants import Row\n"
        "NUMBER = 3\n"
        "UNSEEN = Row('a', BatchMoments(), sees='future')\n"
        "UNKNOWN = Row('a', BatchMoments(), 'weight', (1.0,))\n"
    )
    (tmp_path / "my_module.py").write_text(f"{block}\n{rows}", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_module", None)


def test_an_objective_of_one_s_own_is_a_row_and_what_is_none_is_refused(own_module):
    row = row_of("my_module:BatchMoments")
    assert (row.method, row.sees, row.truth) == ("batch moments", "futures", "walk")
    for place, said in {
        "my_module": "module:name",
        "no_module:Any": "No module named",
        "my_module:Other": "no attribute",
        "my_module:NUMBER": "got int",
        "my_module:UNSEEN": "sees to be one of",
        "my_module:UNKNOWN": "option to be one of",
        "rlreps.losses:SpectralContrastive": "no row of the table",
    }.items():
        with pytest.raises(InputError, match=said):
            row_of(place)


def test_released_rows_stand_beside_those_of_a_run_of_the_same_settings(own_module, results_of):
    whole, row = benchmark.PRESETS["laptop"], row_of("my_module:BatchMoments")
    alone = dataclasses.replace(whole, rows=(row,))
    found = benchmark.released(results_of(EXPERIMENT, alone, []), "benchmark")
    assert {each["method"] for each in found} == {each.method for each in whole.rows}
    assert len(found) == len(whole.rows) * len(whole.worlds) * len(whole.dimensions)
    assert benchmark.released(results_of(EXPERIMENT, whole, []), "benchmark") == []
    other = dataclasses.replace(alone, steps=100)
    assert benchmark.released(results_of(EXPERIMENT, other, []), "benchmark") == []


def test_an_objective_that_cannot_be_trained_is_left_out_with_a_line(own_module):
    # On pairs, of a source of entries: nothing that it could learn from.
    wrong = dataclasses.replace(row_of("my_module:BatchMoments"), sees="entries", truth="Ψ")
    config = dataclasses.replace(SMALL, rows=(wrong, *CONTROLS), dimensions=(3,), tuned_at=3)
    run = Run(config, folder=None, progress=False)
    run.shared = benchmark.prepare(run)
    assert "pairs" in run.shared.left_out["batch moments"]
    alone = Run(dataclasses.replace(config, rows=(wrong,)), folder=None, progress=False)
    with pytest.raises(InputError, match="pairs"):
        benchmark.prepare(alone)
    tried = dataclasses.replace(BY_METHOD["ALLO"], values=tuple(range(1, 8)))
    with pytest.raises(InputError, match="at most 6 values of dual_rate, got 7"):
        benchmark.trials(config, tried)
    assert {each["method"] for each in benchmark.cells(run).values()} == {
        row.method for row in CONTROLS
    }


@pytest.mark.experiments
def test_an_objective_of_one_s_own_is_trained_alone(own_module, capsys):
    words = ["benchmark", "--preset", "smoke", "--objective", "my_module:BatchMoments"]
    main([*words, "--out", "mine", "--quiet"])
    summary = json.loads(Path("mine/summary.json").read_text("utf-8"))
    [line] = summary["benchmark"]
    assert line["method"] == "batch moments"
    assert line["subspace_distance"] < 0.3


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
