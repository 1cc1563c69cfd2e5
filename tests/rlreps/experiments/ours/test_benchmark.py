"""The benchmark: rows that fit their worlds, controls, distances and times by hand; its smoke."""

import dataclasses
import functools
import json
import math
import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.cli import main
from rlreps.config import as_json, configurable
from rlreps.encoders import Cosine
from rlreps.errors import InputError
from rlreps.experiments.harness import Run, crossed
from rlreps.experiments.ours import benchmark_report, benchmark_runs, few_labels
from rlreps.experiments.ours.benchmark import EXPERIMENT
from rlreps.experiments.ours.benchmark_runs import Config
from rlreps.experiments.ours.contestants import (
    COSINES,
    COUNTED,
    FIXED_POINT,
    OBJECTIVES,
    RANDOM,
    Row,
    row_of,
)
from rlreps.experiments.ours.worlds import PENDULUM, World
from rlreps.losses import GraphDrawing
from rlreps.losses.pairs import PairObjective
from rlreps.runs.folder import RunFolder
from rlreps.successor.forward_backward import STRENGTHS

SMALL = Config(worlds=("sutton",), bins=5, encoder=Cosine(frequencies=4), batch=32, trials=12)
BY_METHOD = {row.method: row for row in OBJECTIVES}


@pytest.fixture(scope="module")
def world():
    return World.of("sutton", SMALL.bins, SMALL.discount)


def learner_of(row):
    return benchmark_runs.learner_of(SMALL, row, 3, *benchmark_runs.trials(SMALL, row)[0])


def test_every_objective_has_the_same_budget_and_fits_what_it_sees(world):
    assert len(BY_METHOD) == len(OBJECTIVES)
    for row in OBJECTIVES:
        tried = benchmark_runs.trials(SMALL, row)
        assert len({*map(str, tried)}) == SMALL.trials
        assert (row.option == "") == (row.values == ())
        for rate, value in tried:
            learner = benchmark_runs.learner_of(SMALL, row, 3, rate, value)
            assert learner.optimizer.learning_rate == rate
            assert value is None or getattr(learner.objective, row.option) == value
        # A resumed run reads them from JSON, and compares them with those of its configuration.
        assert json.loads(json.dumps(tried)) == [[*each] for each in tried]
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
    two = benchmark_runs.learner_of(SMALL, BY_METHOD["TD low rank"], 2, 0.01, 0.1)
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


def test_values_are_explained_as_by_scikit_learn_and_by_features_that_hold_them(world):
    linear_model, metrics = map(pytest.importorskip, ("sklearn.linear_model", "sklearn.metrics"))
    config, seed = dataclasses.replace(SMALL, labels=18, draws=3), 1
    exact = jnp.asarray(world.truth("M̃").functions[:, :5], jnp.float32)
    values = few_labels.value_functions(world.model, few_labels.Config(discount=0.95), seed)
    white = np.linalg.qr(np.asarray(exact, np.float64))[0] * 25**0.5
    rng, expected = np.random.default_rng((seed, 1)), []
    for _ in range(config.draws):
        labelled = rng.permutation(25)[:18]
        rest = np.setdiff1d(np.arange(25), labelled)
        largest = np.linalg.norm(white[labelled] - white[labelled].mean(axis=0), 2) ** 2
        ridge = linear_model.RidgeCV(alphas=STRENGTHS * largest, alpha_per_target=True)
        found = ridge.fit(white[labelled], values[labelled]).predict(white[rest])
        expected.append(metrics.r2_score(values[rest], found))
    found = benchmark_runs.explained(config, world, exact, seed)
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-5)
    # With as many features as states and two states in three labelled ridge does better than none.
    more = jnp.asarray(world.truth("M̃").functions[:, :8], jnp.float32)
    assert benchmark_runs.explained(config, world, more, 0) > 0.3
    assert benchmark_runs.explained(config, world, jnp.ones((25, 1)), 0) < 0.05


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
    close, closer = benchmark_report.times(results_of(EXPERIMENT, config, rows))
    assert (close["never"], close["step"], close["seconds"]) == (1, 30.0, 0.3)
    assert close["environment_steps"] is None
    assert (closer["never"], closer["step"]) == (3, "never")
    # Without a truth of its own a row reaches nothing, and misses nothing.
    unknown = [{**row, "subspace_distance": math.nan} for row in rows]
    assert benchmark_report.times(results_of(EXPERIMENT, config, unknown)) == []


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


def test_released_rows_stand_beside_those_of_a_run_of_the_same_settings(own_module, tmp_path):
    whole, row = Config(), row_of("my_module:BatchMoments")
    alone = dataclasses.replace(whole, rows=(row,))
    folder = RunFolder.create_or_resume(
        tmp_path / "own", kind="benchmark", config={}, provenance={}
    )
    run = Run(alone, folder, data={})
    cells = EXPERIMENT.cells(run)
    assert len(cells) == (len(whole.rows) + 1) * len(whole.worlds) * len(whole.dimensions)
    cell = cells["ALLO-sutton-10"]
    found = benchmark_runs.measure(run, "ALLO-sutton-10", cell)
    distances = benchmark_runs.frame(run, cell, found).pivot("subspace_distance", "seed", "step")[0]
    assert distances.shape == (whole.num_seeds, whole.evaluations + 1)
    assert 0.0 < np.median(distances[:, -1]) < 0.1 < np.median(distances[:, 0])
    # Times of another machine are none to compare with, and other settings have to be released.
    assert np.isnan(benchmark_runs.frame(run, cell, found)["seconds"]).all()
    assert benchmark_runs.released()["config"] == as_json(whole)
    assert len(EXPERIMENT.cells(Run(whole, folder))) == len(cells) - len(cells) // 25
    other = dataclasses.replace(alone, steps=100)
    assert {each["row"] for each in EXPERIMENT.cells(Run(other, folder)).values()} == {row}


def test_a_benchmark_of_nothing_that_can_be_trained_is_refused_without_a_folder(
    own_module, tmp_path
):
    # On pairs, of a source of entries: nothing that it could learn from.
    wrong = dataclasses.replace(row_of("my_module:BatchMoments"), sees="entries", truth="Ψ")
    with pytest.raises(InputError, match=r"batch moments: .*pairs"):
        EXPERIMENT.run(dataclasses.replace(SMALL, rows=(wrong,)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    tried = dataclasses.replace(BY_METHOD["ALLO"], values=tuple(range(1, 8)))
    with pytest.raises(InputError, match="at most 6 values of dual_rate, got 7"):
        benchmark_runs.trials(SMALL, tried)


@configurable
@dataclasses.dataclass(frozen=True)
class Broken(PairObjective):
    """An objective with a fault of its own."""

    def loss(self, params, encode, batch, state, key):
        raise KeyError("weights")


TINY = dataclasses.replace(
    SMALL,
    **{"worlds": ("sutton", "empty"), "dimensions": (2,), "tuned_at": 2, "steps": 4},
    **{"evaluations": 2, "trials": 2, "num_seeds": 3, "labels": 10, "draws": 1},
)


@pytest.mark.integration
def test_an_objective_that_fails_is_a_line_and_the_others_go_on(tmp_path, monkeypatch):
    source = World.source

    def only_in_sutton(world, row):
        if row.method == "choosy" and world.model.arena != "sutton":
            raise InputError("expected entries, got none\nsecond line")
        return source(world, row)

    monkeypatch.setattr(World, "source", only_in_sutton)
    whole, choosy = (Row(each, GraphDrawing(), truth="walk") for each in ("whole", "choosy"))
    rows = (Row("broken", Broken(), truth="walk"), whole, choosy)
    summary = EXPERIMENT.run(dataclasses.replace(TINY, rows=rows), tmp_path / "run")
    lines = {(row["method"], row["world"]): row for row in summary["benchmark"]}
    assert {place: row["note"] for place, row in lines.items()} == {
        ("broken", "sutton"): "tuning: KeyError: 'weights'",
        ("broken", "empty"): "tuning: KeyError: 'weights'",
        ("whole", "sutton"): "",
        ("whole", "empty"): "",
        ("choosy", "sutton"): "",
        ("choosy", "empty"): "tuning: expected entries, got none",
    }
    for row in lines.values():
        known = row["note"] == ""
        assert all((row[name] is not None) == known for name in ("subspace_distance", "diverged"))
    # One name apart, the same objective with the same seeds.
    assert lines["choosy", "sutton"]["r2"] == lines["whole", "sutton"]["r2"]
    [claim] = summary["claims"]
    assert claim["holds"] is False
    assert claim["found"].startswith("broken: sutton: tuning: KeyError")
    assert [row["method"] for row in summary["own_distances"]] == ["whole", "choosy"]


def test_errors_of_the_machine_end_the_run():
    for error in (OSError, MemoryError, jax.errors.JaxRuntimeError):

        @benchmark_runs.attempted
        def fail(kind):
            raise kind("no space left")

        with pytest.raises(error):
            fail(error)


def test_a_seed_without_a_fixed_point_leaves_the_others_their_distances(monkeypatch, results_of):
    row = BY_METHOD["random cumulants by TD"]
    config = dataclasses.replace(TINY, worlds=("sutton",), rows=(row,), dimensions=(2,))
    run = Run(config, folder=None)
    world = World.of("sutton", config.bins, config.discount)
    learners = [benchmark_runs.learner_of(config, row, 2, 0.01, 0.1)] * 3
    _, whole = benchmark_runs.trained(world, row, learners, range(3), steps=4, evaluate_every=2)
    exact = World.own_truth
    monkeypatch.setattr(
        World, "own_truth", lambda *given: None if given[-1] == 1 else exact(*given)
    )
    _, found = benchmark_runs.trained(world, row, learners, range(3), steps=4, evaluate_every=2)
    assert np.isnan(found["subspace_distance"][1]).all()
    kept = [0, 2]
    np.testing.assert_array_equal(
        found["subspace_distance"][kept], whole["subspace_distance"][kept]
    )
    np.testing.assert_array_equal(found["density_distance"], whole["density_distance"])
    assert not found["diverged"].any()
    assert np.isnan(found["cosine"]).all()
    cell = {"row": row, "world": "sutton", "d": 2}
    values = {name: each.tolist() for name, each in found.items()}
    frame = benchmark_runs.frame(run, cell, {"values": values, "steps": [0, 2, 4]})
    [line] = benchmark_report.lines(results_of(EXPERIMENT, config, frame))
    assert line["subspace_distance"] == pytest.approx(found["subspace_distance"][kept, -1].mean())
    assert line["note"] == "no truth of its own for 1 of 3 seeds"


@functools.cache
def released_ends():
    """The released rows' last measurements, a dictionary a seed."""
    config, run = Config(), types.SimpleNamespace(config=dataclasses.replace(Config(), rows=()))
    cells = crossed(
        benchmark_runs.CELL, row=config.rows, world=config.worlds, d=[config.tuned_at]
    ).values()
    frames = [benchmark_runs.frame(run, cell, {}) for cell in cells]
    return [row for frame in frames for row in frame.where(step=config.steps).rows(*frame.columns)]


def rows_of_ends(changed):
    """Return the released ends but for ``changed``."""
    return [{**row, **changed.get((row["method"], row["world"]), {})} for row in released_ends()]


@pytest.mark.parametrize(
    ("number", "methods", "worlds", "value"),
    [
        (None, [], [], {}),
        (1, ["counted model"], ["four_rooms"], {"density_distance": 0.5}),
        (2, ["explicit"], ["sutton"], {"subspace_distance": 0.5}),
        (3, ["OMM"], Config().worlds, {"subspace_distance": 0.001}),
        (4, ["NestedLoRA"], [PENDULUM], {"density_distance": 0.7}),
        (5, ["OMM"], Config().worlds, {"cosine": 0.99}),
        (6, ["large batch"], [PENDULUM], {"r2": 0.96}),
    ],
)
def test_the_advice_agrees_with_the_released_rows_and_each_sentence_can_be_false(
    number, methods, worlds, value, judge
):
    changed = {(method, world): value for method in methods for world in worlds}
    found = judge(EXPERIMENT, Config(), rows_of_ends(changed))
    assert [each.holds for each in found] == [index != number for index in range(7)]
    alone = dataclasses.replace(Config(), rows=Config().rows[:3], steps=100)
    assert len(judge(EXPERIMENT, alone, rows_of_ends(changed))) == 1


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
