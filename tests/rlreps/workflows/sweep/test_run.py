import csv
import dataclasses
import json
import re
import signal
import time

import numpy as np
import pytest
from scipy import stats

from rlreps import cli
from rlreps.configs import EncoderConfig, OptimizerConfig, TrainingConfig
from rlreps.configs.sweep import SweepConfig, parse_grid
from rlreps.errors import InputError
from rlreps.losses import Explicit
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.workflows.sweep import run as sweep_run
from rlreps.workflows.sweep.run import run_sweep
from rlreps.workflows.train import ground_truth_for, run_training

pytestmark = pytest.mark.usefixtures("compilation_cache")

BASE = TrainingConfig(
    encoder=EncoderConfig(hidden=(16,), frequencies=4),
    objective=dataclasses.replace(TrainingConfig().objective, name="danskin_lissa"),
    optimizer=OptimizerConfig(schedule="constant"),
    num_features=3,
    steps=200,
    rows=40,
    tasks=32,
    num_seeds=2,
    seed=5,
    evaluate_every=20,
    checkpoint_every=100,
)


def words(text):
    return text.split()


ARGUMENTS = words(
    "--hidden 16 --frequencies 4 --method danskin_lissa --schedule constant --num-features 3 "
    "--rows 40 --num-seeds 2 --seed 5 --evaluate-every 20 --checkpoint-every 100 --quiet"
)


def configured(*texts, **changes):
    return SweepConfig(base=dataclasses.replace(BASE, **changes), grid=parse_grid(texts))


def members(out, group):
    return json.loads((out / "groups" / f"{group:03d}" / "summary.json").read_text())["members"]


def without_times(summary):
    if isinstance(summary, dict):
        return {
            name: without_times(value)
            for name, value in summary.items()
            if not name.endswith("seconds") and name != "report"
        }
    return [without_times(item) for item in summary] if isinstance(summary, list) else summary


# Two programs, of which each trains two points that learn and two that diverge.
GRID = ("tasks=16,32", "learning-rate=1e-2,1e30", "kappa0=0.3,1.9")
FLAGS = [word for text in GRID for word in ("--grid", text)]


@pytest.fixture(scope="module")
def finished(toy_store, compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweeps") / "sweep"
    return out, run_sweep(configured(*GRID), toy_store, out, progress=False)


def require_equal(together, alone):
    for ours, theirs in zip(together, alone["per_seed"], strict=True):
        for name in ("subspace_distance", "representation_loss", "principal_angles"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, err_msg=name)


def test_runs_of_one_program_are_those_of_a_program_of_their_own(finished, toy_store, tmp_path):
    out, summary = finished
    assert summary["groups"] == 2
    # The first point, beside seeds, rates and step sizes of others, some of which diverge.
    alone = run_training(configured(*GRID).points[0].config, toy_store, tmp_path, progress=False)
    together = members(out, 1)
    require_equal(together[:2], alone)
    learned = [run["subspace_distance"] for run in together if not run["diverged"]]
    assert len({*learned}) == 4


def test_each_run_of_one_program_has_its_own_rate_for_stored_weights(toy_store, tmp_path):
    objective = Explicit()
    config = configured("weight-learning-rate=none,0.3", objective=objective, steps=100)
    out = tmp_path / "sweep"
    assert run_sweep(config, toy_store, out, progress=False)["groups"] == 1
    alone = run_training(config.points[1].config, toy_store, tmp_path / "alone", progress=False)
    together = members(out, 1)
    require_equal(together[2:], alone)
    assert len({run["subspace_distance"] for run in together}) == 4


def test_a_run_that_diverges_is_counted_and_stops_no_other(finished):
    out, summary = finished
    for point in summary["points"]:
        diverges = point["optimizer.learning_rate"] > 1
        assert (point["runs"], point["diverged"]) == (2, 2 if diverges else 0)
    for group in (1, 2):
        assert [run["diverged"] for run in members(out, group)] == 4 * [False] + 4 * [True]
        first, *_, last = RunFolder(out / "groups" / f"{group:03d}").read_metrics()
        assert last["diverged"] == 4 * [False] + 4 * [True]
        learned, started = (record["subspace_distance"][:4] for record in (last, first))
        assert np.all(np.asarray(learned) < 0.9 * np.asarray(started))
    assert "16 runs at 8 points, of which 8 diverged" in (out / "report.html").read_text()


def test_the_worst_values_are_those_of_knowing_nothing(finished, toy_store):
    principal = ground_truth_for(toy_store, 3).principal
    for point in finished[1]["points"]:
        if point["diverged"]:
            captured = float(np.sum(principal.singular_values[:3] ** 2))
            excess = principal.total_energy / (principal.total_energy - captured) - 1
            assert point["excess_loss_mean"] == pytest.approx(excess, rel=1e-3)
            assert point["subspace_distance_mean"] == pytest.approx(1.0, abs=1e-6)


def test_the_table_holds_means_and_intervals_of_every_points_own_runs(finished):
    out, summary = finished
    assert summary["fields"] == [
        "tasks",
        "optimizer.learning_rate",
        "objective.kappa0",
    ]
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    assert json.loads((out / "results" / "sweep.json").read_text()) == summary["points"]
    with (out / "results" / "sweep.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    runs = members(out, 1) + members(out, 2)
    for index, (row, point) in enumerate(zip(table, summary["points"], strict=True)):
        assert {name: str(value) for name, value in point.items()} == row
        own = [run["subspace_distance"] for run in runs[2 * index : 2 * index + 2]]
        assert point["subspace_distance_mean"] == pytest.approx(np.mean(own))
        assert point["subspace_distance_interquartile_mean"] == pytest.approx(
            stats.trim_mean(own, 0.25)
        )
        # Of two runs, a resample is one of them twice with probability 1/2.
        assert point["subspace_distance_mean_low"] == pytest.approx(min(own))
        assert point["subspace_distance_mean_high"] == pytest.approx(max(own))
        assert (point["group"], point["runs_together"]) == (1 + index // 4, 8)
        assert point["seconds"] > 0.0


def test_a_finished_sweep_computes_nothing_and_changes_nothing(
    finished, toy_store, monkeypatch, files_below
):
    out, summary = finished
    before = files_below(out)
    monkeypatch.setattr(sweep_run, "train_members", None)
    monkeypatch.setattr(sweep_run, "ground_truth_for", None)
    assert run_sweep(configured(*GRID), toy_store, out, progress=False) == summary
    assert files_below(out) == before


class SimulatedKillError(Exception):
    """Stands for whatever ends a process."""


def test_a_sweep_interrupted_between_groups_trains_only_the_others(
    finished, toy_store, tmp_path, monkeypatch
):
    config, out, train = configured(*GRID), tmp_path / "sweep", sweep_run.train_members
    trained = []

    def train_one(*arguments, **options):
        if trained:
            raise SimulatedKillError
        trained.append(options["folder"].path)
        return train(*arguments, **options)

    monkeypatch.setattr(sweep_run, "train_members", train_one)
    with pytest.raises(SimulatedKillError):
        run_sweep(config, toy_store, out, progress=False)
    assert not (out / "summary.json").exists()
    assert trained == [out / "groups" / "001"]
    trained.clear()
    resumed = run_sweep(config, toy_store, out, progress=False)
    assert trained == [out / "groups" / "002"]
    assert without_times(resumed) == without_times(finished[1])


def test_a_sweep_interrupted_inside_a_group_goes_on_from_its_checkpoint(
    finished, toy_store, tmp_path, monkeypatch
):
    config, out, save = configured(*GRID), tmp_path / "sweep", Checkpoints.save
    saved = []

    def save_three(checkpoints, step, state):
        save(checkpoints, step, state)
        saved.append(step)
        if len(saved) == 3:
            raise SimulatedKillError

    monkeypatch.setattr(Checkpoints, "save", save_three)
    with pytest.raises(SimulatedKillError):
        run_sweep(config, toy_store, out, progress=False)
    assert saved == [100, 200, 100]
    resumed = run_sweep(config, toy_store, out, progress=False)
    assert saved == [100, 200, 100, 200]
    assert without_times(resumed) == without_times(finished[1])
    for group in (1, 2):
        assert members(out, group) == members(finished[0], group)


def test_another_grid_or_another_matrix_is_refused_and_nothing_is_lost(
    finished, toy_store, tmp_path, files_below
):
    out, _ = finished
    before = files_below(out)
    for texts, changes, message in (
        (GRID[:2], {}, "expected grid.objective.kappa0"),
        (GRID, {"steps": 60}, "expected base.steps=200, got 60"),
    ):
        with pytest.raises(InputError, match=message):
            run_sweep(configured(*texts, **changes), toy_store, out, progress=False)
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["depth=3"], "expected a field to sweep of encoder.name, .* got 'depth'"),
        (["num-features=2,x"], "expected an integer, got 'x' for num-features"),
        (["num-features=2,64"], "expected d < 64, the number of states .*, got 64"),
        (["rows=3"], r"expected rows >= 5, .* got 3 \(at the point rows=3\)"),
        ([], "expected at least one field to sweep, got none"),
    ],
)
def test_bad_grids_end_in_one_line_and_code_2_before_anything_is_written(
    capsys, toy_store, tmp_path, grid, message
):
    options = [word for text in grid for word in ("--grid", text)]
    out = tmp_path / "sweep"
    with pytest.raises(SystemExit) as ending:
        cli.main(["sweep", str(toy_store), "--out", str(out), *ARGUMENTS, *options])
    said = capsys.readouterr()
    assert (ending.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert said.err.startswith("rlreps: error: ")
    assert re.search(message, said.err)
    assert not out.exists()


def test_the_command_trains_prints_the_table_and_comes_back_to_it(
    capsys, finished, toy_store, tmp_path
):
    out = tmp_path / "sweep"
    command = ["sweep", str(toy_store), "--out", str(out), *ARGUMENTS, "--steps", "200", *FLAGS]
    cli.main(command)
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads((out / "config.json").read_text())["config"] == RunFolder(finished[0]).config
    lines = said.out.splitlines()
    header = next(line for line in lines if "tasks" in line)
    assert "learning-rate" in header
    rows = [line.split() for line in lines if line.split()[:1] in (["16"], ["32"])]
    assert [row[:5] for row in rows] == [
        [tasks, rate, kappa0, "2", diverged]
        for tasks in ("16", "32")
        for rate, diverged in (("0.01", "0"), ("1e+30", "2"))
        for kappa0 in ("0.3", "1.9")
    ]
    for row, point in zip(rows, finished[1]["points"], strict=True):
        assert float(row[5]) == pytest.approx(point["subspace_distance_mean"], abs=2e-4)
    assert lines[-1] == f"Report: {out / 'report.html'}"
    cli.main(command)
    assert capsys.readouterr().out == said.out


def test_a_killed_sweep_goes_on_where_it_was(toy_store, tmp_path, start_rlreps, compilation_cache):
    out = tmp_path / "sweep"
    options = [*ARGUMENTS, "--steps", "600", *FLAGS]
    running = start_rlreps("sweep", toy_store, "--out", out, *options)
    metrics = out / "groups" / "002" / "metrics.jsonl"
    while running.poll() is None and not (
        metrics.exists() and metrics.read_bytes().count(b"\n") > 7
    ):
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert not (out / "groups" / "002" / "summary.json").exists()
    first = (out / "groups" / "001" / "summary.json").read_bytes()
    config = configured(*GRID, steps=600)
    resumed = run_sweep(config, toy_store, out, progress=False)
    assert (out / "groups" / "001" / "summary.json").read_bytes() == first
    whole = run_sweep(config, toy_store, tmp_path / "whole", progress=False)
    assert without_times(resumed) == without_times(whole)
