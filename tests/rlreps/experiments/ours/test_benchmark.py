"""The benchmark: rows that fit their worlds, controls, distances and times by hand; its smoke."""

import dataclasses
import functools
import itertools
import json
import math
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from rlreps.config import as_json, configurable
from rlreps.encoders import Cosine
from rlreps.errors import InputError
from rlreps.experiments.ours import benchmark_report, benchmark_runs, games_runs
from rlreps.experiments.ours.benchmark import EXPERIMENT
from rlreps.experiments.ours.benchmark_runs import Config
from rlreps.experiments.ours.chains import PENDULUM, KnownChain
from rlreps.experiments.ours.contestants import (
    COSINES,
    COUNTED,
    FIXED_POINT,
    OBJECTIVES,
    RANDOM,
    Row,
    row_of,
)
from rlreps.experiments.ours.games import LAPTOP
from rlreps.losses import GraphDrawing
from rlreps.losses.pairs import PairObjective
from rlreps.study import Run
from rlreps.worlds import World

SMALL = Config(worlds=("sutton",), bins=5, encoder=Cosine(frequencies=4), batch=32, trials=12)
BY_METHOD = {row.method: row for row in OBJECTIVES}


@pytest.fixture(scope="module")
def world():
    return KnownChain.of("sutton", SMALL.bins, SMALL.discount)


def learner_of(world, row):
    return benchmark_runs.learner_of(SMALL, world, row, 3, *benchmark_runs.trials(SMALL, row)[0])


def test_every_objective_has_the_same_budget_and_fits_what_it_sees(world):
    assert len(BY_METHOD) == len(OBJECTIVES)
    for row in OBJECTIVES:
        tried = benchmark_runs.trials(SMALL, row)
        assert len({*map(str, tried)}) == SMALL.trials
        assert (row.option == "") == (row.values == ())
        for rate, value in tried:
            learner = benchmark_runs.learner_of(SMALL, world, row, 3, rate, value)
            assert learner.optimizer.learning_rate == rate
            assert value is None or getattr(learner.objective, row.option) == value
        learner_of(world, row).check(world.source(row))
        assert world.own_truth(row, learner_of(world, row), 0).functions.shape == (25, 3)


def test_cumulants_have_truths_of_their_own_and_complex_pairs_none(world):
    row = BY_METHOD["random cumulants by TD"]
    spans = [world.own_truth(row, learner_of(world, row), seed).functions for seed in (0, 1)]
    assert (
        np.abs(spans[0] @ np.linalg.pinv(spans[0]) - spans[1] @ np.linalg.pinv(spans[1])).max()
        > 0.01
    )
    cycle = dataclasses.replace(world.chain, transition=np.roll(np.eye(25), 1, axis=1))
    turning = dataclasses.replace(world, chain=cycle)
    assert BY_METHOD["TD low rank"].truth == FIXED_POINT
    two = benchmark_runs.learner_of(SMALL, world, BY_METHOD["TD low rank"], 2, 0.01, 0.1)
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def :", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_in_one_line(
    text, said, refused, tmp_path, monkeypatch
):
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    given = ["--objective", "broken_module:NAME", "--preset", "smoke", "--out", "run"]
    expected = f"expected an objective at broken_module:NAME, got {said}"
    assert refused("benchmark", *given).startswith(expected)


def test_an_objective_of_one_s_own_is_a_row_and_what_is_none_is_refused(own_module):
    row = row_of("my_module:BatchMoments")
    assert (row.method, row.sees, row.truth) == ("batch moments", "futures", "walk")
    for place, said in {
        "my_module": "MODULE:NAME",
        "no_module:Any": "No module named",
        "my_module:NUMBER": "got int",
        "my_module:UNSEEN": "sees to be one of",
        "my_module:UNKNOWN": "option to be one of",
        "rlreps.losses:SpectralContrastive": "no row of the table",
    }.items():
        with pytest.raises(InputError, match=said):
            row_of(place)


def test_released_rows_stand_beside_those_of_a_run_of_the_same_settings(own_module):
    alone = dataclasses.replace(Config(), rows=(row_of("my_module:BatchMoments"),))
    rows = {each["row"].method for each in EXPERIMENT.cells(Run(alone, None)).values()}
    assert rows == {row.method for row in (*Config().rows, *alone.rows)}
    other = Run(dataclasses.replace(alone, steps=100), None)
    assert {each["row"] for each in EXPERIMENT.cells(other).values()} == {*alone.rows}


@pytest.mark.parametrize(
    ("preset", "with_objective", "released"),
    [
        (Config(), benchmark_runs.with_objective, benchmark_runs.released_rows),
        (LAPTOP, games_runs.with_objective, games_runs.released_labels),
    ],
    ids=["benchmark", "games"],
)
def test_an_objective_of_one_s_own_is_identified_by_its_place_and_its_code(
    preset, with_objective, released, own_module, monkeypatch
):
    mine, copied = own_module / "my_module.py", own_module / "copied_module.py"
    copied.write_text(mine.read_text("utf-8"), "utf-8")
    (own_module / "third_module.py").write_text("from copied_module import BatchMoments\n")

    def identity(module):
        for name in ("my_module", "copied_module", "third_module"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        config = with_objective(preset, f"{module}_module:BatchMoments")
        assert released(config)  # Beside an objective of any code.
        return json.dumps(as_json(config))

    first = [identity(module) for module in ("my", "copied", "third")]
    assert len({*first}) == 3
    assert [identity(module) for module in ("my", "copied", "third")] == first
    copied.write_text(mine.read_text("utf-8") + "# edited\n", "utf-8")
    changed = [identity(module) for module in ("my", "copied", "third")]
    assert [one != other for one, other in zip(first, changed, strict=True)] == [False, True, True]


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


def save_game(path, seen):
    """Save a walk to and fro, which starts at its left end and ends at the right one."""
    places = np.arange(len(seen))
    to = np.clip(np.stack([places - 1, places + 1], axis=1), 0, len(seen) - 1)
    parts = {"terminal": places == places[-1], "start": (places == 0) * 1.0, "observations": seen}
    World.from_arrays(next_states=to, rewards=to * 0.0, **parts).save(path)
    return str(path)


@pytest.fixture
def pictures(tmp_path):
    """The configuration and the chain of a game of twenty pictures."""
    frames = np.random.default_rng(0).integers(256, size=(20, 24, 28, 3), dtype=np.uint8)
    name = save_game(tmp_path / "game.npz", frames)
    config = benchmark_runs.in_world(Config(), name)
    return config, KnownChain.of(name, config.bins, config.discount)


def test_pictures_have_a_convolutional_network_and_no_controls_of_a_plane(
    pictures, tmp_path, results_of
):
    config, game = pictures
    assert config.encoder.frame_shape == (6, 7, 3)
    # A run in another world is another run, although its file has the same name.
    assert config.world_digest == World.load(config.worlds[0]).digest
    assert (config.dimensions, config.labels) == ((10,), 10)
    assert {*Config().rows} - {*config.rows} == {COSINES, RANDOM}
    np.testing.assert_array_equal(game.chain.transition[19], np.eye(20)[0])  # It starts again.
    results = results_of(EXPERIMENT, config, [])
    results.run.data = {config.worlds[0]: game}
    told = benchmark_report.about_worlds(results)
    assert "6 x 7 x 3 numbers through one encoder (convolutional)" in told
    assert told.endswith("their place in a plane: cosines, no data; random features, no data. ")
    vectors = save_game(tmp_path / "vectors.npz", np.asarray(game.inputs[:, 0, :, 0]))
    assert benchmark_runs.in_world(Config(), vectors).encoder.num_inputs == 7
    # Averages over squares would make these two alike.
    close = np.zeros((20, 24, 28, 1), np.uint8)
    close[np.arange(20), 0, np.arange(20)] = 255
    fine = save_game(tmp_path / "fine.npz", close)
    assert benchmark_runs.in_world(Config(), fine).encoder.frame_shape == (24, 28, 1)


@pytest.mark.integration
def test_cumulants_of_pictures_have_a_truth(pictures):
    config, game = pictures
    row = BY_METHOD["random cumulants by TD"]
    learner = benchmark_runs.learner_of(config, game, row, 10, 0.01, 0.1)
    learner.check(game.source(row))
    assert game.own_truth(row, learner, 0).functions.shape == (20, 10)


def test_names_of_worlds_and_games_without_a_truth_are_refused_before_any_file(refused, tmp_path):
    out = ["--preset", "smoke", "--out", str(tmp_path / "run")]
    for name, said in {
        "nowhere": "the name of a world to be one of atari-freeway-10, ",
        "none.npz": "none.npz",
        save_game(tmp_path / "few.npz", np.eye(3)): "a world of more than 3 states, got 3",
    }.items():
        assert said in refused("benchmark", "--world", name, *out)
    out[1] = "released"
    assert "to train" in refused("benchmark", "--world", "frozenlake-4x4", *out)
    assert not (tmp_path / "run").exists()


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
    source = KnownChain.source

    def only_in_sutton(world, row):
        if row.method == "choosy" and world.world.about["name"] != "sutton":
            raise InputError("expected entries, got none\nsecond line")
        return source(world, row)

    monkeypatch.setattr(KnownChain, "source", only_in_sutton)
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
    [claim] = summary["claims"]
    assert claim["holds"] is False
    assert claim["found"].startswith("broken: sutton: tuning: KeyError")
    assert [row["method"] for row in summary["own_distances"]] == ["whole", "choosy"]


@pytest.mark.parametrize("error", [OSError, MemoryError, jax.errors.JaxRuntimeError])
def test_errors_of_the_machine_end_the_run(error):
    def fail():
        raise error("no space left")

    with pytest.raises(error):
        benchmark_runs.attempted(fail)()


def test_a_seed_without_a_fixed_point_leaves_the_others_their_distances(monkeypatch, results_of):
    row = BY_METHOD["random cumulants by TD"]
    config = dataclasses.replace(TINY, worlds=("sutton",), rows=(row,))
    world = KnownChain.of("sutton", config.bins, config.discount)
    learners = [benchmark_runs.learner_of(config, world, row, 2, 0.01, 0.1)] * 3
    exact = KnownChain.own_truth
    monkeypatch.setattr(
        KnownChain, "own_truth", lambda *given: None if given[-1] == 1 else exact(*given)
    )
    _, found = benchmark_runs.trained(world, row, learners, range(3), steps=4, evaluate_every=2)
    assert np.isnan(found["subspace_distance"]).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(found["density_distance"]).all()
    assert not found["diverged"].any()
    values = {name: each.tolist() for name, each in found.items()}
    cell = {"row": row, "world": "sutton", "d": 2}
    measured = {"values": values, "steps": [0, 2, 4]}
    frame = benchmark_runs.frame(Run(config, folder=None), cell, measured)
    [line] = benchmark_report.lines(results_of(EXPERIMENT, config, frame))
    mean = found["subspace_distance"][[0, 2], -1].mean()
    assert line["subspace_distance"] == pytest.approx(mean)
    assert line["note"] == "no truth of its own for 1 of 3 seeds"
    assert EXPERIMENT.judged(results_of(EXPERIMENT, config, frame))[0].holds is True
    values["diverged"][1][-1] = 1.0
    frame = benchmark_runs.frame(Run(config, folder=None), cell, measured)
    results = results_of(EXPERIMENT, config, frame)
    [line] = benchmark_report.lines(results)
    assert line["note"] == "1 of 3 seeds diverged; no truth of its own for 1 of 3 seeds"
    ran = EXPERIMENT.judged(results)[0]
    assert ran.holds is False
    assert "random cumulants by TD: 1 of 3 trainings diverged" in ran.found


@pytest.mark.integration
def test_a_seed_that_diverged_explains_nothing_of_values(monkeypatch, tmp_path):
    train = benchmark_runs.trained

    def diverging(*given, **options):
        result, found = train(*given, **options)
        found["diverged"][1, -1] = 1.0
        return result, found

    monkeypatch.setattr(benchmark_runs, "trained", diverging)
    monkeypatch.setattr(benchmark_runs, "explained", lambda *_: 0.9)
    rows = (Row("whole", GraphDrawing(), truth="walk"),)
    config = dataclasses.replace(TINY, worlds=("sutton",), rows=rows)
    [line] = EXPERIMENT.run(config, tmp_path / "run")["benchmark"]
    assert (line["diverged"], line["r2"]) == (1, pytest.approx(0.6))


@functools.cache
def released_ends():
    """The released rows' last measurements, a dictionary a seed."""
    config, run = Config(), Run(dataclasses.replace(Config(), rows=()), None)
    cells = {
        name: each for name, each in EXPERIMENT.cells(run).items() if each["d"] == config.tuned_at
    }
    frames = [EXPERIMENT.frame(run, c, EXPERIMENT.measure(run, n, c)) for n, c in cells.items()]
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
        (6, ["TD low rank"], Config().worlds[:3], {"r2": 0.99}),
        (7, ["TD low rank"], Config().worlds[:3], {"subspace_distance": 0.001}),
        (8, ["large batch"], [PENDULUM], {"r2": 0.96}),
    ],
)
def test_the_advice_agrees_with_the_released_rows_and_each_sentence_can_be_false(
    number, methods, worlds, value, judge
):
    changed = {(method, world): value for method in methods for world in worlds}
    found = judge(EXPERIMENT, Config(), rows_of_ends(changed))
    assert [each.holds for each in found] == [index != number for index in range(9)]
    if number is None:
        page = (Path(__file__).parents[4] / "docs/results/benchmark.md").read_text("utf-8")
        assert [each.found for each in found if f"| {each.found} | holds |" not in page] == []


def test_the_ranking_shows_the_page_s_means_with_the_closest_of_a_group_first(results_of):
    results = results_of(EXPERIMENT, Config(), released_ends())
    own, _, values = benchmark_report.draw_ranking(results)[1].axes
    shown = [text.get_text() for text in own.get_yticklabels()]
    assert shown[:3] == ["sees transitions:", "counted model (1)", "random cumulants by TD (5)"]
    assert {*benchmark_report.ADVISED} <= {re.sub(r" \(.*\)$", "", text) for text in shown}
    means = {place: x for x, place in own.lines[-1].get_xydata()}
    for start, end in itertools.pairwise([i for i, text in enumerate(shown) if text[-1] == ":"]):
        group = [means[place] for place in range(start + 1, end)]
        assert group == sorted(group)
    page = (Path(__file__).parents[4] / "docs/results/benchmark.md").read_text("utf-8")
    (x,) = [x for x, place in values.lines[0].get_xydata() if shown[int(place)].startswith("ALLO")]
    assert f"| ALLO | futures | walk | {x:.3f} |" in page.partition("### Values")[2]
    none = {("TD low rank", world): {"subspace_distance": math.nan} for world in Config().worlds}
    ends = results_of(EXPERIMENT, Config(), rows_of_ends(none))
    own = benchmark_report.draw_ranking(ends)[1].axes[0]
    assert "TD low rank" in [text.get_text() for text in own.get_yticklabels()]


@pytest.mark.integration
def test_a_stochastic_game_is_a_world():
    config = benchmark_runs.in_world(EXPERIMENT.presets["smoke"], "frozenlake-8x8")
    game = KnownChain.of("frozenlake-8x8", config.bins, config.discount)
    row, low_rank = (BY_METHOD[name] for name in ("large batch", "TD low rank"))
    learner = benchmark_runs.learner_of(config, game, row, 3, 1e-2, None)
    _, found = benchmark_runs.trained(game, row, [learner], [0], steps=200, evaluate_every=200)
    assert found["subspace_distance"][0, -1] < 0.2 < found["subspace_distance"][0, 0]
    # The third feature separates a complex pair, so that TD low rank has no fixed point.
    learner = benchmark_runs.learner_of(config, game, low_rank, 3, 1e-2, 0.1)
    assert game.own_truth(low_rank, learner, 0) is None


def test_a_median_has_order_statistics_for_ends_and_takes_infinity_for_a_value():
    found = benchmark_report.median_interval([*range(9), np.inf])
    # Binomial(10, 1/2): P(X <= 1) = 11/1024 is below 0.025 and P(X <= 2) = 56/1024 is not.
    assert found == (5.0, 1.0, 8.0)
    assert benchmark_report.median_interval([np.inf, 1.0, np.inf]).value == np.inf
    assert np.isnan(benchmark_report.median_interval([1.0, 2.0]).low)
