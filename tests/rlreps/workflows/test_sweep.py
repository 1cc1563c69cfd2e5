"""Grids, the programs that train them, and the report of a sweep."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from rlreps.cli import main
from rlreps.config import as_json
from rlreps.encoders import MLP, FourierMLP
from rlreps.errors import InputError
from rlreps.experiments.harness import Run
from rlreps.losses import DanskinLissa, Explicit, Naive
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.intervals import mean_interval
from rlreps.training import Optimizer
from rlreps.workflows.compare import compare_runs
from rlreps.workflows.grid import (
    SweepConfig,
    as_text,
    flag_of,
    parse_grid,
    sweepable_fields,
)
from rlreps.workflows.sweep import (
    Member,
    experiment_of,
    groups_of,
    rows_of_points,
    run_sweep,
)
from rlreps.workflows.train import TrainingConfig, ground_truth_for, make_learner, run_training


def sweep(*texts, **base):
    return SweepConfig(base=TrainingConfig(**base), grid=parse_grid(texts))


def learner_of(config):
    return make_learner(config, num_inputs=2, num_states=64, num_tasks=64)


def groups(config):
    return groups_of(config, learner_of)


SAMPLES = {
    "num_features": "3",
    "method": "spin",
    "encoder.hidden": "3 4",
    "optimizer.name": "sgd",
    "objective.ridge": "0.25",
}


def test_every_field_has_a_flag_of_train_and_the_points_are_their_product(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    words = capsys.readouterr().out
    for field, sample in SAMPLES.items():
        assert field in sweepable_fields()
        assert f"--{flag_of(field)}" in words
        for name in (field, field.replace("_", "-"), flag_of(field)):
            ((swept, (value,)),) = parse_grid([f"{name}={sample}"]).items()
            assert (swept, as_text(value)) == (field, sample)
    assert parse_grid(["method=danskin-lissa"]) == parse_grid(["method=danskin_lissa"])
    config = sweep("num-features=5,10", "learning_rate=1e-3, 3e-4", steps=7)
    found = [
        (point.values, point.config.num_features, point.config.optimizer.learning_rate)
        for point in config.points
    ]
    assert found == [
        ({"num_features": d, "optimizer.learning_rate": rate}, d, rate)
        for d in (5, 10)
        for rate in (1e-3, 3e-4)
    ]
    assert {point.config.steps for point in config.points} == {7}


def test_methods_and_their_options_are_swept_together():
    config = sweep("method=danskin_lissa,naive", "whitening=true,false", encoder=MLP(hidden=(3,)))
    objectives = [point.config.objective for point in config.points]
    assert objectives == [cls(whitening=w) for cls in (DanskinLissa, Naive) for w in (True, False)]
    assert all(point.config.encoder == MLP(hidden=(3,)) for point in config.points)
    # Fields of one name are of several types in several classes.
    (values,) = parse_grid(["weight-rows=all,gradient,50,none"]).values()
    assert values == ("all", "gradient", 50, None)
    with pytest.raises(InputError, match=r"expected weight_rows of LargeBatch .* got 'every'"):
        sweep("weight-rows=every")
    # A method's own options stay where it is the base's.
    base = Naive(gradient_rows=1, weight_rows=1, covariance_rows=1)
    config = sweep("method=naive", "objective.gradient-rows=20", "rows=22", objective=base, rows=3)
    assert config.points[0].config.objective == dataclasses.replace(base, gradient_rows=20)


def test_what_the_base_says_of_swept_fields_does_not_matter():
    first, second = (sweep("seed=3,4", seed=seed) for seed in (0, 9))
    assert first == second
    assert as_json(first) == as_json(second) != as_json(sweep("seed=3,4", steps=9))
    assert as_json(first)["grid"] == {"seed": [3, 4]}
    json.dumps(as_json(first))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one field to sweep, got 'none'"),
        (["num-featurs=3"], "got 'num-featurs'; did you mean num-features[?]$"),
        (["learning-rate=fast"], "learning_rate of Optimizer as .*float.*, got 'fast'"),
        (
            ["method=explicit,naive", "kappa0=1.5"],
            r"the fields of Explicit, got .*'kappa0' \(at the point method=",
        ),
    ],
)
def test_a_grid_that_is_none_is_refused(texts, message):
    with pytest.raises(InputError, match=f"^expected .*{message}"):
        sweep(*texts, num_features=3)


def test_runs_that_differ_in_seeds_and_numbers_share_a_program_and_others_do_not():
    config = sweep(
        "num-features=5,10",
        "learning-rate=1e-3,1e-2",
        "seed=0,4",
        "weight-learning-rate=none,0.5",
        objective=Explicit(),
    )
    first, second = groups(config)
    assert (first.config.num_features, second.config.num_features) == (5, 10)
    assert [member.point for member in second.members] == list(range(8, 16))
    assert first.members[4] == Member(4, 0)
    # Without a rate of their own, stored weights take the encoder's.
    rates = first.learner.objective.weight_learning_rate
    np.testing.assert_allclose(rates, [1e-3, 0.5, 1e-3, 0.5, 1e-2, 0.5, 1e-2, 0.5])
    np.testing.assert_allclose(first.learner.optimizer.learning_rate, [1e-3] * 4 + [1e-2] * 4)
    for field in ("steps=3,4", "optimizer=sgd,adam", "hidden=3,4", "schedule=cosine,constant"):
        assert len(groups(sweep(field))) == 2
    (group,) = groups(sweep("num-seeds=2,3", seed=5))
    seeds = [(member.point, member.seed) for member in group.members]
    assert seeds == [(0, 5), (0, 6), (1, 5), (1, 6), (1, 7)]


def measured(*texts, excess=0.5, **base):
    """A sweep and its results, from made-up distances 0.01, 0.02, ... by point and seed."""
    config = sweep(*texts, **base)
    cells = dict(enumerate(groups(config), start=1))
    order = sorted(member for group in cells.values() for member in group.members)
    found = {
        number: {
            "group": number,
            "seconds": 10.0 * number,
            "members": [
                {
                    "subspace_distance": 0.01 * (1 + order.index(member)),
                    "relative_excess_loss": excess,
                    "diverged": False,
                }
                for member in group.members
            ],
        }
        for number, group in cells.items()
    }
    return experiment_of(config).results(Run(config, None), cells, found)


def test_rows_come_in_the_order_of_the_grid_whichever_program_trained_them():
    rows = rows_of_points(measured("learning-rate=0.1,0.2", "num-features=5,10", num_seeds=3))
    assert [row["num_features"] for row in rows] == [5, 10, 5, 10]
    assert [row["group"] for row in rows] == [1, 2, 1, 2]
    for index, row in enumerate(rows):
        own = mean_interval(0.01 * np.arange(1 + 3 * index, 4 + 3 * index))
        # Student's interval of three runs near 0 reaches below any distance.
        assert (own.low < 0.0) is (index == 0)
        found = [row[f"subspace_distance{end}"] for end in ("", "_low", "_high")]
        assert found == pytest.approx([own.value, max(own.low, 0.0), own.high])
        assert row["runs"] == 3
    rows = rows_of_points(measured("hidden=8 8,16", "leave-one-out=true", excess=None))
    assert [row["encoder.hidden"] for row in rows] == ["8 8", "16"]
    for row in rows:
        assert row["objective.leave_one_out"] is True
        assert row["subspace_distance"] is not None
        assert np.isnan(row["subspace_distance_high"])
        assert row["relative_excess_loss"] is None


@pytest.mark.parametrize(
    ("texts", "x_label", "lines"),
    [
        (
            ["method=naive,oracle", "num-features=8,5", "rows=50,60"],
            "num-features",
            [f"method = {name}, rows = {b}" for name in ("naive", "oracle") for b in (50, 60)],
        ),
        (["rows=50", "method=naive,oracle"], "method", ["rows = 50"]),
    ],
)
def test_the_figure_runs_along_the_first_field_of_several_numbers(texts, x_label, lines):
    results = measured(*texts)
    _, _, curve = experiment_of(results.config).sections["Final distances"]
    assert curve.x.label == x_label
    assert [*results.frame.labelled("line")] == lines


BASE = TrainingConfig(
    encoder=FourierMLP(hidden=(16,), frequencies=4),
    objective=DanskinLissa(),
    optimizer=Optimizer(schedule="constant"),
    num_features=3,
    steps=100,
    rows=40,
    tasks=16,
    num_seeds=2,
    seed=5,
    evaluate_every=50,
    checkpoint_every=50,
)
GRID = ("learning-rate=1e-2,1e30", "kappa0=0.3,1.9")
"""One program that trains two points that learn and two that diverge."""


def configured(*texts, **changes):
    return SweepConfig(base=dataclasses.replace(BASE, **changes), grid=parse_grid(texts))


@pytest.fixture(scope="module")
def finished(toy_store, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweeps") / "sweep"
    return out, run_sweep(configured(*GRID), toy_store, out)


@pytest.mark.integration
def test_runs_of_one_program_are_those_of_their_own_and_divergence_stops_no_other(
    finished, toy_store, tmp_path
):
    out, summary = finished
    alone = run_training(configured(*GRID).points[0].config, toy_store, tmp_path)
    first = summary["points"][0]["subspace_distances"]
    theirs = [each["subspace_distance"] for each in alone["per_seed"]]
    np.testing.assert_allclose(first, theirs, rtol=1e-3)
    learned = [each for row in summary["points"][:2] for each in row["subspace_distances"]]
    assert len({*learned}) == 4
    assert max(learned) < 0.9
    compared = [row for row in compare_runs([out]).rows if row["measure"] == "subspace_distance"]
    assert [row.get("pairs") for row in compared] == [None, 2, 2, 2]
    means = [point["subspace_distance"] for point in summary["points"]]
    assert [row["mean"] for row in compared] == pytest.approx(means)
    principal = ground_truth_for(toy_store, 3).principal
    captured = float(np.sum(principal.singular_values[:3] ** 2))
    excess = principal.total_energy / (principal.total_energy - captured) - 1
    for point in summary["points"]:
        diverges = point["optimizer.learning_rate"] > 1
        assert (point["runs"], point["diverged"]) == (2, 2 if diverges else 0)
        if diverges:
            assert point["relative_excess_loss"] == pytest.approx(excess, rel=1e-3)
            assert point["subspace_distance"] == pytest.approx(1.0, abs=1e-6)
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    assert json.loads((out / "results" / "points.json").read_text()) == summary["points"]
    assert (out / "figures" / "sweep.png").stat().st_size > 1000
    with (out / "results" / "points.csv").open(encoding="utf-8", newline="") as file:
        table = [*csv.DictReader(file)]
    assert table == [{k: str(value) for k, value in point.items()} for point in summary["points"]]


@pytest.mark.integration
def test_a_sweep_without_its_summary_trains_nothing_again_and_ends_the_same(
    finished, toy_store, tmp_path, monkeypatch
):
    whole, summary = finished
    out = shutil.copytree(whole, tmp_path / "sweep")
    (out / "summary.json").unlink()
    (out / "results" / "points.csv").unlink()
    monkeypatch.setattr(Checkpoints, "save", None)
    again = run_sweep(configured(*GRID), toy_store, out)
    assert again["points"] == summary["points"]
    assert (out / "results" / "points.csv").exists()


def test_runs_of_one_program_that_memory_cannot_hold_are_refused(toy_store, tmp_path, monkeypatch):
    config, out = configured("learning-rate=1e-2,1e-3"), tmp_path / "sweep"
    batch = 4 * config.base.rows * config.base.tasks * config.base.num_seeds
    # Room for the batches of either point.
    monkeypatch.setattr("rlreps.errors.usable_memory", lambda: 3 * batch // 2)
    with pytest.raises(InputError, match="expected the states and batches of 4 runs in"):
        run_sweep(config, toy_store, out)
    assert not out.exists()


@pytest.mark.integration
def test_an_interrupted_sweep_trains_what_is_left_and_another_grid_is_refused(
    toy_store, tmp_path, monkeypatch
):
    config, out = configured("tasks=8,16"), tmp_path / "sweep"
    save, saved = Checkpoints.save, []

    def save_three(checkpoints, step, state, **options):
        save(checkpoints, step, state, **options)
        saved.append(step)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", save_three)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(config, toy_store, out)
    assert not (out / "summary.json").exists()
    with pytest.raises(InputError, match="holds another run"):
        run_sweep(configured("tasks=8,32"), toy_store, out)
    resumed = run_sweep(config, toy_store, out)
    # The first group is not trained again, and the second goes on from its checkpoint.
    assert saved == [50, 100, 50, 100]
    whole = run_sweep(config, toy_store, tmp_path / "whole")
    for mine, other in zip(resumed["points"], whole["points"], strict=True):
        assert {**mine, "seconds": 0} == {**other, "seconds": 0}


OPTIONS = (
    "--hidden 16 --frequencies 4 --method danskin_lissa --schedule constant --num-features 3 "
    "--steps 100 --rows 40 --tasks 16 --num-seeds 2 --seed 5 --evaluate-every 50 "
    "--checkpoint-every 50 --quiet"
)


@pytest.mark.integration
def test_the_command_is_the_same_sweep_and_prints_its_table(finished, rlreps, toy_store):
    out, summary = finished
    grid = [word for text in GRID for word in ("--grid", text)]
    said = rlreps("sweep", toy_store, "--out", out, *OPTIONS.split(), *grid).splitlines()
    header = next(index for index, line in enumerate(said) if "learning-rate" in line)
    assert said[header].split()[:4] == ["learning-rate", "kappa0", "runs", "diverged"]
    found = [line.split() for line in said[header + 1 : -1] if line.strip("─━ ")]
    assert [row[:4] for row in found] == [
        [str(point[field]) for field in (*parse_grid(GRID), "runs", "diverged")]
        for point in summary["points"]
    ]
    assert said[-1] == f"Report: {out / 'report.html'}"
