"""Comparisons of finished runs, against SciPy's t-tests."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlreps.app.jobs.train_live import LiveConfig
from rlreps.config import as_json
from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.stats import mean_interval
from rlreps.study.compare import compare
from rlreps.study.final_values import FinalValues
from rlreps.study.monitor import _read_training
from rlreps.training import TrainingResult
from rlreps.training.config import TrainingConfig

MATRIX = {"checksum": "abc", "states": 64, "tasks": 64}
RNG = np.random.default_rng(0)


@pytest.fixture
def finished(tmp_path):
    """Writes the folder of a finished run, as far as it is read."""

    def write(name, kind, config, summary, metrics=()):
        came = {"store": str(tmp_path / "gone"), "store_from_run": "gone"}
        path = tmp_path / name
        folder = RunFolder.create_or_resume(path, kind=kind, config=config, provenance=came)
        for record in metrics:
            folder.append_metrics(record)
        if summary is not None:
            folder.write_summary(summary)
        return path

    return write


@pytest.fixture
def trained(finished):
    """Writes a training run with random figures, and returns its folder and its distances."""

    def write(name, seeds, *, d=3, steps=60, matrix=MATRIX):
        config = TrainingConfig(num_features=d, steps=steps, num_seeds=len(seeds))
        distances = RNG.uniform(0.1, 0.2, len(seeds)).tolist()
        summary = {
            **{"method": "large_batch", "steps": steps, "seeds": [*seeds]},
            "per_seed": [
                {"subspace_distance": each, "relative_excess_loss": each / 2} for each in distances
            ],
        }
        metrics = [{"step": step, "subspace_distance": distances} for step in (0, steps)]
        stored = {"matrix": matrix, **as_json(config)}
        return finished(name, "train", stored, summary, metrics), np.array(distances)

    return write


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ends(row, name):
    return [row[f"{name}_low"], row[f"{name}_high"]]


def test_the_recipe_of_the_handbook_loads_figures_into_pandas_as_numbers(trained, tmp_path):
    pandas = pytest.importorskip("pandas")
    (first, one), (second, _) = trained("first", range(3, 5)), trained("second", range(3, 5))
    compare([first, second], str(tmp_path / "compared"))
    page = (Path(__file__).parents[3] / "docs/command-line.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```py\n(import json, pathlib, pandas.*?)```", page, re.DOTALL)
    for name, path in ("DIR", tmp_path / "compared"), ("RUN", first):
        recipe = recipe.replace(f'"{name}/', f'"{path}/')
    found = {}
    exec(recipe, found)
    final, curves = found["final"], found["curves"]
    kept = final[final.run == "first"].set_index("seed").subspace_distance
    assert kept.to_dict() == dict(zip((3, 4), one, strict=True))
    expected = pandas.DataFrame(
        {"step": [0, 0, 60, 60], "subspace_distance": [*one, *one], "seed": [3, 4, 3, 4]}
    )
    pandas.testing.assert_frame_equal(curves.reset_index(drop=True), expected)


def test_runs_that_share_seeds_are_compared_in_pairs(trained, rlreps, tmp_path):
    (first, one), (second, other) = trained("first", range(5)), trained("second", range(5))
    out = tmp_path / "compared"
    said = rlreps("compare", first, second, "--out", out, "--quiet")
    rows = {(row["run"], row["measure"]): row for row in read(out / "comparison.csv")}
    found = {
        name: float(value or "nan")
        for name, value in rows["second", "subspace_distance"].items()
        if name not in ("run", "method", "measure")
    }
    np.testing.assert_allclose(ends(found, "difference"), mean_interval(other - one)[1:])
    np.testing.assert_allclose(ends(found, "mean"), mean_interval(other)[1:])
    assert (found["d"], found["steps"], found["seeds"], found["pairs"]) == (3, 60, 5, 5)
    assert rows["first", "subspace_distance"]["difference"] == ""
    seeds = [row for row in read(out / "seeds.csv") if row["run"] == "second"]
    assert [int(row["seed"]) for row in seeds] == [*range(5)]
    assert [float(row["subspace_distance"]) for row in seeds] == other.tolist()
    assert (out / "curves.png").stat().st_size > 1000
    assert "difference from first" in said
    ((label, task),) = json.loads((out / "evaluations.json").read_text())["rlreps"].items()
    assert (label, [*task]) == ("task", ["first", "second"])
    (step, figures), (last, finals) = task["second"]["run_5"].items()
    assert (step, last, figures.pop("step_count")) == ("step_1", "absolute_metrics", 60)
    assert figures == finals
    assert finals["subspace distance"] == [other[4]]
    assert "note:" not in said


def test_runs_with_few_seeds_in_common_are_compared_by_welchs_test(trained):
    (first, one), (second, other) = trained("first", range(5)), trained("second", range(3, 12))
    row = next(row for row in compare([first, second]).rows if "difference" in row)
    assert row["pairs"] == 0
    expected = stats.ttest_ind(other, one, equal_var=False)
    low, high = ends(row, "difference")
    assert low <= expected.confidence_interval().low < expected.confidence_interval().high <= high


def test_a_sweep_is_compared_point_by_point(finished, trained):
    path, distances = trained("run", range(2))
    points = [
        {"num_features": d, "subspace_distances": [0.1 * d, 0.2], "excess_losses": [None, 1.0]}
        for d in (2, 3)
    ]
    base, grid = as_json(TrainingConfig(num_seeds=2, steps=60)), {"num_features": [2, 3]}
    summary = {"points": [{**each, "diverged": 1} for each in points]}
    config = {"data": MATRIX, "base": base, "grid": grid}
    found = compare([path, finished("grid", "sweep", config, summary)])
    labels = ["run", "grid num-features=2", "grid num-features=3"]
    rows = [row for row in found.rows if row["measure"] == "subspace_distance"]
    assert [row["run"] for row in rows] == labels
    assert [row.get("pairs") for row in rows] == [None, None, 2]
    assert rows[2]["difference"] == pytest.approx(0.25 - distances.mean())
    assert "expected d=3, got 2" in found.notes[1]
    assert found.notes[0].startswith("1 of 2 runs of grid num-features=2 diverged")


def test_runs_of_other_problems_have_no_difference_and_other_steps_are_noted(finished, trained):
    first, _ = trained("first", range(3))
    others = {"smaller": {"d": 2}, "other": {"matrix": {**MATRIX, "checksum": "xyz"}}}
    paths = [trained(name, range(3), **changes)[0] for name, changes in others.items()]
    longer, _ = trained("longer", range(3), steps=90)
    config = as_json(LiveConfig(training=TrainingConfig(num_features=3, num_seeds=3)))
    summary = RunFolder(first).read_summary()
    metrics = RunFolder(first).read_metrics()
    config["target"] = {"checksum": "abc"}
    live = finished("live", "train-live", config, summary, metrics)
    found = compare([first, *paths, longer, live], first.parent / "out")
    compared = {row["run"] for row in found.rows if "difference" in row}
    assert compared == {"longer"}
    smaller, other, note, of_live = found.notes
    assert smaller == "smaller is not measured as first is: expected d=3, got 2"
    assert "expected matrix.checksum='abc', got 'xyz'" in other
    assert note == "longer made 90 updates, first 60"
    assert "target.checksum" in of_live or "target=" in of_live


def test_fits_are_compared_by_what_they_predict(finished):
    paths = []
    for seed, r_squared in ((0, 0.5), (1, 0.25)):
        config = {"method": None, "num_features": 4, "seed": seed, "data": {"sha256": "a"}}
        summary = {"quality": {"r_squared": r_squared, "discount": 0.9}}
        paths.append(finished(f"fit{seed}", "successor representation", config, summary))
    first, second = compare(paths).rows
    assert (first["mean"], second["difference"]) == (0.5, -0.25)
    assert np.isnan(second["difference_low"])


def test_what_cannot_be_compared_is_refused_in_one_line(finished, trained, refused, tmp_path):
    run, _ = trained("run", range(2))
    config = {"matrix": MATRIX, **as_json(TrainingConfig())}
    live = {**as_json(LiveConfig()), "target": None}
    summary = {"method": "large_batch", "steps": 2, "seeds": [0], "loss": [0.1]}
    (tmp_path / "file.csv").write_text("precious")
    swept = {"base": as_json(TrainingConfig()), "grid": {"optimizer.learning_rate": [0.1, 0.2]}}
    for others, message in {
        (): "expected at least two runs to compare, got 1",
        (finished("unfinished", "train", config, None),): "expected finished runs, got",
        (finished("start", "quickstart", {}, {}),): "which holds a run of quickstart",
        (finished("live", "train-live", live, summary),): "measured against a ground truth",
        (finished("old", "sweep", swept, {}),): "expected a run of sweep of this version in ",
        (run, "--out", tmp_path / "file.csv"): "expected a folder to write tables",
    }.items():
        assert message in refused("compare", run, *others)


# Results in memory.


def test_problems_differ_in_what_both_know():
    def of(**problem):
        return FinalValues(label="run", about={}, measures={}, problem=problem)

    agent = of(environment="CartPole-v1", goal=None, max_episode_steps=200)
    log = of(environment="CartPole-v1")  # As monitor.csv of Stable-Baselines3.
    assert not log.differences_from(agent)
    for other in (of(environment="Acrobot-v1"), of(**{**agent.problem, "max_episode_steps": 9})):
        assert other.differences_from(agent)
    # Without an environment, what only one of them has is a difference.
    assert of(d=3, matrix="a").differences_from(of(d=3))


def test_arrays_are_compared_by_seed_and_by_their_last_step():
    random = np.random.default_rng(0)
    mine = random.normal(size=8)
    theirs = mine + 0.5 + 0.01 * random.normal(size=8)
    curves = np.stack([np.zeros(8), theirs], axis=1)
    found = compare({"mine": mine, "theirs": curves})
    row = found.rows[1]
    assert (row["pairs"], row["measure"]) == (8, "value")
    np.testing.assert_allclose(row["difference"], np.mean(theirs - mine))
    # Pairs remove what seeds share: the interval is far narrower than the spread of seeds.
    assert row["difference_high"] - row["difference_low"] < 0.05 < np.std(mine)
    (line,) = found.lines()
    assert line.startswith("theirs: value above that of mine, +0.")
    assert line.endswith(" (8 pairs)")
    longer = compare({"mine": curves, "theirs": np.hstack([curves, curves])})
    assert repr(longer).endswith("\nnote: theirs made 4 steps, mine 2")


def test_named_seeds_are_paired_by_name_and_few_common_seeds_by_none():
    values = {seed: float(seed) for seed in range(6)}
    shifted = {seed: values[seed] + (1.0 if seed % 2 else 1.25) for seed in reversed(range(6))}
    row = compare({"a": values, "b": shifted}).rows[1]
    assert (row["pairs"], row["difference"]) == (6, pytest.approx(1.125))
    from_json = json.loads(json.dumps(shifted))
    assert compare({"a": values, "b": from_json}).rows[1]["pairs"] == 6
    apart = compare({"a": values, "b": {seed: seed - 3.5 for seed in range(4, 9)}})
    assert apart.rows[1]["pairs"] == 0
    assert apart.lines()[0].endswith(" (5 and 6 seeds)")
    assert "cannot be told (detectable: " in apart.lines()[0]
    why = "cannot be told (single runs or equal ones show no spread)"
    assert why in compare({"a": [1.0] * 6, "b": [2.0] * 6}).lines()[0]
    assert why in compare({"a": [1.0], "b": [2.0]}).lines()[0]


def test_series_and_frames_are_paired_by_their_index():
    pandas = pytest.importorskip("pandas")
    values, other = np.random.default_rng(0).normal(size=(2, 6))
    mine, theirs = pandas.Series(values), pandas.Series(values + 0.5 + 0.1 * other)
    expected = compare({"mine": values, "theirs": theirs.tolist()}).rows[1]
    assert compare({"mine": mine, "theirs": theirs}).rows[1] == expected
    theirs = theirs.sample(frac=1.0, random_state=1)
    assert [*theirs.index] != [*range(6)]
    row = compare({"mine": mine, "theirs": theirs}).rows[1]
    assert row == pytest.approx(expected)
    curves = pandas.DataFrame({1: 0.0, 2: theirs})
    found = compare({"mine": mine, "theirs": curves}).rows[1]
    assert found["difference"] == pytest.approx(expected["difference"])
    apart = compare({"mine": mine, "theirs": theirs.set_axis(range(100, 106))})
    assert apart.rows[1]["pairs"] == 0
    with pytest.raises(InputError, match=r"different seeds, got \[0, 0\]"):
        compare({"mine": mine, "theirs": pandas.Series([1.0, 2.0], index=[0, 0])})


def test_trainings_are_compared_without_folders():
    rng = np.random.default_rng(1)
    results = {
        name: TrainingResult(
            state=None,
            history=[{"step": 9, "loss": [0.0] * 6, "subspace_distance": values.tolist()}],
            seconds=0.0,
            compile_seconds=0.0,
            seeds=tuple(range(6)),
        )
        for name, values in (("long", rng.random(6)), ("short", 2.0 + rng.random(6)))
    }
    found = compare(results)
    assert found.rows[1]["measure"] == "subspace_distance"
    assert found.lines()[0].startswith("short: subspace distance above that of long")


def test_a_difference_without_a_p_value_counts_as_a_test():
    first = np.arange(6.0)
    other = first + np.array([0.1, 0.9, 0.4, -0.1, 0.5, 0.3])
    (_, alone) = compare({"first": first, "other": other}).rows
    found = compare({"first": first, "other": other, "shifted": first + 1.0}).rows
    assert found[2]["p_value"] is None
    assert found[1]["p_value"] == pytest.approx(2.0 * alone["p_value"])


@pytest.mark.parametrize("paired", [True, False])
def test_detectable_differences_are_told_in_80_of_100_comparisons(paired):
    rng, seeds = np.random.default_rng(0), range(5)

    def compared(shift):
        runs = {
            name: {(seed if paired else f"{name} {seed}"): rng.normal() for seed in seeds}
            for name in ("first", "other")
        }
        runs["other"] = {seed: shift + value for seed, value in runs["other"].items()}
        return compare(runs)

    least = np.mean([compared(0.0).rows[1]["detectable"] for _ in range(100)])
    told = np.mean(["above" in compared(least).lines()[0] for _ in range(300)])
    assert told == pytest.approx(0.8, abs=0.08)


def test_many_differences_are_tested_together():
    first, pattern = np.arange(6.0), np.array([1.0, -1.0, 0.5, -0.5, 0.8, -0.8])
    others = {f"{shift}": first + shift + pattern for shift in (0.5, 1.0, 2.0)}
    rows = compare({"first": first, **others}).rows[1:]
    raw = {label: stats.ttest_rel(values, first).pvalue for label, values in others.items()}
    (small, middle, large), labels = sorted(raw.values()), sorted(raw, key=raw.get)
    corrected = dict(
        zip(labels, np.maximum.accumulate([3 * small, 2 * middle, large]), strict=True)
    )
    found = {row["run"]: row["p_value"] for row in rows}
    assert found == pytest.approx(corrected)
    alone = compare({"first": first, labels[1]: others[labels[1]]})
    (row,) = alone.rows[1:]
    together = next(each for each in rows if each["run"] == labels[1])
    assert row["p_value"] < 0.05 < together["p_value"]
    assert row["detectable"] < together["detectable"]
    assert " above that of first" in alone.lines()[0]
    said = compare({"first": first, **others}).lines()
    assert sum("cannot be told" in line for line in said) == sum(p >= 0.05 for p in found.values())


def test_interquartile_means_and_the_probability_of_improvement_are_given():
    row = compare({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 2.5, 3.5, 90.0]}).rows[1]
    assert row["interquartile_mean"] == pytest.approx(3.0)
    assert row["probability_above"] == pytest.approx((1.5 + 3 + 4 + 4) / 16)
    assert row["probability_above_low"] < 0.75 < row["probability_above_high"] <= 1.0


# Logs of Stable-Baselines3.


def write_monitor(path, returns, lengths, *, start=100.0, environment="CartPole-v1"):
    """Write a log as ``stable_baselines3.common.monitor.Monitor`` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f'#{{"t_start": {start}, "env_id": "{environment}"}}', "r,l,t"]
    times = np.cumsum(lengths) / 1000.0
    lines += [f"{r},{n},{t:.6f}" for r, n, t in zip(returns, lengths, times, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_episodes_are_never_taken_for_seeds(tmp_path):
    random = np.random.default_rng(0)
    means = random.normal(size=5)
    noise = random.normal(size=(5, 100))
    noise[:, 90:] -= noise[:, 90:].mean(axis=1, keepdims=True)
    for seed in range(5):
        path = tmp_path / f"mine/seed{seed}/monitor.csv"
        write_monitor(path, means[seed] + noise[seed], [10] * 100)
    row, _ = compare([tmp_path / "mine", tmp_path / "mine"]).rows
    assert (row["measure"], row["seeds"]) == ("return", 5)  # Of 500 episodes.
    np.testing.assert_allclose(ends(row, "mean"), mean_interval(means)[1:], rtol=1e-4)


def test_logs_count_up_to_the_steps_that_all_trainings_reached(tmp_path):
    # Ten episodes of 10 steps, and one episode more that the other training lacks.
    long = write_monitor(tmp_path / "a/monitor.csv", [*range(10), 99.0], [10] * 11)
    short = write_monitor(tmp_path / "b/monitor.csv", [5.0, 7.0], [40, 60])
    third = write_monitor(tmp_path / "c/monitor.csv", [*range(10), 99.0], [10, *[20] * 10])
    with long.open("a") as stream:
        stream.write("99.0,1")  # Half of a line.
    results = {"one": [long, short], "two": {"x": long.parent, "y": short}, "longer": third}
    found = compare(results)
    assert {row["steps"] for row in found.rows} == {100}
    assert found.notes == [
        "longer has a training of 210 steps and counts at step 100, which the shortest training "
        "of all reached",
        "1 of 1 trainings of longer end no episode in the last tenth of 100 steps and count with "
        "their last tenth in which one ends, at most 10 steps earlier",
    ]
    assert found.runs[2].measures["return"].values.tolist() == [4.0]
    (one,) = found.runs[:1]
    assert one.about["steps"] == 100
    assert one.measures["return"].values.tolist() == [9.0, 7.0]
    assert [*found.runs[1].seeds] == ["x", "y"]


def test_only_tenths_in_which_every_training_ends_an_episode_are_compared(tmp_path):
    often = write_monitor(tmp_path / "often/monitor.csv", range(20), [5] * 20)
    seldom = write_monitor(tmp_path / "seldom/monitor.csv", [5.0, 6.0, 7.0], [40, 5, 55])
    once = write_monitor(tmp_path / "once/monitor.csv", [50.0, 99.0], [35, 900])
    found = compare({"often": often, "seldom": [seldom, often]})
    assert found.notes == []
    tasks = found.evaluations()["rlreps"]["cartpole-v1"]
    # Episodes of ``seldom`` end at steps 40, 45 and 100.
    for label, run, figures in (
        ("often", "run_1", (6.5, 8.5, 18.5)),
        ("seldom", "run_1", (5.0, 6.0, 7.0)),
        ("seldom", "run_2", (6.5, 8.5, 18.5)),
    ):
        assert tasks[label][run] == {
            **{
                f"step_{number}": {"step_count": step, "return": [figure]}
                for number, (step, figure) in enumerate(
                    zip((40, 50, 100), figures, strict=True), start=1
                )
            },
            "absolute_metrics": {"return": [figures[-1]]},
        }
    late = compare({"often": often, "once": [once, often]})
    assert late.notes[1:] == [
        "1 of 2 trainings of once end no episode in the last tenth of 100 steps and count with "
        "their last tenth in which one ends, at most 60 steps earlier"
    ]
    assert late.runs[1].measures["return"].values.tolist() == [50.0, 18.5]
    runs = late.evaluations()["rlreps"]["cartpole-v1"]["once"].values()
    steps = [{name: figures.get("step_count") for name, figures in run.items()} for run in runs]
    assert steps == [{"step_1": 40, "absolute_metrics": None}] * 2
    # Tenths in which some training ends no episode are left out, here all of them.
    apart = compare({"seldom": seldom, "once": once}).evaluations()["rlreps"]["cartpole-v1"]
    assert {"step_1", "absolute_metrics"} == {*apart["once"]["run_1"]}
    with pytest.raises(InputError, match="an episode of each training in the first 20 steps"):
        compare({"a": write_monitor(tmp_path / "short/monitor.csv", [1.0], [20]), "once": once})


def test_a_last_line_counts_without_its_end_if_it_has_every_field(tmp_path):
    log = write_monitor(tmp_path / "monitor.csv", [3.0], [10])
    log.write_text(log.read_text().rstrip())
    assert compare({"a": log, "b": log}).runs[0].measures["return"].values.tolist() == [3.0]


def test_parallel_environments_are_one_training_and_other_names_are_seeds(tmp_path):
    for rank, (value, start) in enumerate(((1.0, 0.0), (3.0, 0.005))):
        write_monitor(tmp_path / f"one/{rank}.monitor.csv", [value] * 10, [10] * 10, start=start)
    for seed, value in (("a", 1.0), ("b", 3.0)):
        write_monitor(tmp_path / f"two/{seed}.monitor.csv", [value] * 20, [10] * 20)
    one, two = compare([tmp_path / "one", tmp_path / "two"]).runs
    assert [*one.seeds] == [0]
    assert one.measures["return"].values.tolist() == [2.0]
    assert [*two.seeds] == ["a", "b"]
    assert (one.about["steps"], two.about["steps"]) == (200, 200)


def test_a_continued_training_counts_the_episodes_that_came_last(tmp_path):
    # ``Monitor(override_existing=False)`` appends to a log; its times begin again.
    returns, lengths = np.arange(100.0), [10] * 100
    whole = write_monitor(tmp_path / "whole/0.monitor.csv", returns, lengths)
    first, second = tmp_path / "parts/0.monitor.csv", tmp_path / "other/0.monitor.csv"
    write_monitor(first, returns[:60], lengths[:60])
    write_monitor(second, returns[60:], lengths[60:])
    with first.open("a") as stream:
        stream.writelines(f"{line}\n" for line in second.read_text().splitlines()[2:])
    for log in (whole, first):  # A parallel environment beside each.
        log.with_name("1.monitor.csv").write_text(log.read_text())
    expected, found = compare({"whole": whole.parent, "parts": first.parent}).runs
    np.testing.assert_array_equal(found.curves["return"], expected.curves["return"])
    assert found.measures["return"].values.tolist() == [np.mean(returns[90:])]


def test_logs_of_parallel_environments_are_continued_together(tmp_path):
    times = {0: [50.0, 100.0, 40.0, 100.0], 1: [70.0, 69.0, 20.0]}
    returns = {0: [0.0, 2.0, 4.0, 6.0], 1: [1.0, 3.0, 5.0]}
    for rank in times:
        path = write_monitor(tmp_path / f"{rank}.monitor.csv", [0.0], [10])
        head = path.read_text().splitlines()[:2]
        rows = [f"{r},10,{t}" for r, t in zip(returns[rank], times[rank], strict=True)]
        path.write_text("\n".join([*head, *rows]) + "\n")
    episodes = _read_training(tmp_path)[1]
    # The end at 69 after 70 is a clock that was set back, not a continued training.
    assert episodes[:, 0].tolist() == [0.0, 3.0, 1.0, 2.0, 5.0, 4.0, 6.0]


@pytest.mark.parametrize(
    "content",
    [
        "r,l,t\n1,2,3\n",
        '#{"t_start": 0}\nr,l,t\n',
        '#{"t_start": 0}\nr,l,t\n1,2\n',
        '#{"t_start": 0}\nr,l,t\n1,0,3\n',
        '#{"t_start": 0}\nr,l,t\nx,2,3\n',
        '#{"t_start": 0}\nr,t\n1,3\n',
        "",
    ],
)
def test_other_logs_are_refused(content, tmp_path):
    good = write_monitor(tmp_path / "good/monitor.csv", [1.0], [10])
    bad = tmp_path / "monitor.csv"
    bad.write_text(content)
    with pytest.raises(InputError, match=re.escape(str(bad))):
        compare({"a": good, "b": bad})


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({"a": [1.0, 2.0]}, "at least two runs"),
        (
            {"a": [1.0], "b": np.zeros((2, 2, 2))},
            r"finite numbers \[seeds\] or \[seeds, steps\] of 'b'",
        ),
        ({"a": [1.0], "b": [1j]}, "finite numbers"),
        ({"a": {0: 1.0, "0": 2.0}, "b": [1.0]}, "different seeds, got "),
        ({"a": ["x/monitor.csv"] * 2, "b": [1.0]}, "logs of different trainings"),
        ([np.zeros(5), np.zeros(5)], "results by name"),
        ("runs/a", "results by name, .* got 'str'"),
        (Path("runs/a"), "results by name, .* got '.*Path'"),
        ({1: [1.0], "1": [2.0]}, "results with different labels, got "),
        ({"a": [1.0], "b": ["x"]}, r"files of Stable-Baselines3 called \*monitor.csv"),
        ({"a": [1.0, 2.0], "b": [1.0, np.nan]}, "finite numbers"),
        ({"a": [1.0, 2.0], "b": [1e200, 2e200]}, "finite numbers .* 'b' within float32"),
        ({"a": [1.0, 2.0], "b": [[1.0], [1.0, 2.0]]}, "finite numbers"),
    ],
)
def test_other_results_are_refused(results, words):
    with pytest.raises(InputError, match=words):
        compare(results)
