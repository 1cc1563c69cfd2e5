"""Grids, the programs that train them, and the report of a sweep."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from rlreps.app.job import run_job
from rlreps.app.jobs.train import CHOICES, Train
from rlreps.app.main import main
from rlreps.config import as_json, options
from rlreps.encoders import MLP, FourierMLP
from rlreps.errors import InputError
from rlreps.losses import DanskinLissa, Explicit, Naive
from rlreps.runs.checkpoints import Checkpoints
from rlreps.study import SUBSPACE_DISTANCE, Frame, Results, Run
from rlreps.study.compare import compare
from rlreps.study.grid import (
    SweepConfig,
    parse_grid,
)
from rlreps.study.sweep import (
    groups_of,
    rows_of_points,
    sweep_over,
)
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig, make_learner
from rlreps.training.on_store import ground_truth_for


def sweep(*texts, **base):
    return SweepConfig(base=TrainingConfig(**base), grid=parse_grid(texts))


def learner_of(config):
    return make_learner(config, num_inputs=2, num_states=64, num_tasks=64)


def groups(config):
    return groups_of(config, learner_of)


def test_the_points_are_the_product_of_the_values():
    config = sweep("num-features=5,10", "learning_rate=1e-3, 3e-4", steps=7)
    found = [
        (point.values, point.config.num_features, point.config.optimizer.learning_rate)
        for point in config.points
    ]
    assert found == [
        ({"num_features": d, "learning_rate": rate}, d, rate)
        for d in (5, 10)
        for rate in (1e-3, 3e-4)
    ]
    assert {point.config.steps for point in config.points} == {7}


def test_methods_and_their_options_are_swept_together():
    config = sweep("method=danskin_lissa,naive", "whitening=true,false", encoder=MLP(hidden=(3,)))
    objectives = [point.config.objective for point in config.points]
    assert objectives == [cls(whitening=w) for cls in (DanskinLissa, Naive) for w in (True, False)]
    assert all(point.config.encoder == MLP(hidden=(3,)) for point in config.points)
    # Values of one field are of several types.
    found = sweep("weight-rows=all,50", "leave-one-out=false").points
    assert [point.config.objective.weight_rows for point in found] == ["all", 50]
    # A method's own options stay where it is the base's.
    base = Naive(gradient_rows=1, weight_rows=1, covariance_rows=1)
    config = sweep("method=naive", "gradient-rows=20", "rows=22", objective=base, rows=3)
    assert config.points[0].config.objective == dataclasses.replace(base, gradient_rows=20)


def test_every_method_and_encoder_of_the_command_is_swept_with_its_options():
    for field, part in (("method", "objective"), ("encoder", "encoder")):
        (classes,) = (each.classes for each in CHOICES.values() if each.flag == field)
        found = sweep(f"{field}={','.join(classes)}").points
        assert [type(getattr(point.config, part)) for point in found] == [*classes.values()]
        for name, cls in classes.items():
            for option in options(cls):
                given = option.default if isinstance(option.default, tuple) else [option.default]
                text = " ".join(map(str, given)).replace("None", "none")
                text = text.lower() if isinstance(option.default, bool) else text
                (point,) = sweep(f"{field}={name}", f"{option.name}={text}").points
                assert getattr(getattr(point.config, part), option.name) == option.default
    found = sweep("leave-one-out=True,false").points
    assert [point.config.objective.leave_one_out for point in found] == [True, False]
    # One number is several numbers where an encoder has them.
    found = sweep("encoder=mlp,convolutional", "hidden=16,32").points
    assert [point.config.encoder.hidden for point in found] == [(16,), (32,), 16, 32]


def test_what_the_base_says_of_swept_fields_does_not_matter():
    first, second = (sweep("seed=3,4", seed=seed) for seed in (0, 9))
    assert first == second
    assert as_json(first) == as_json(second) != as_json(sweep("seed=3,4", steps=9))
    assert as_json(first)["grid"] == {"seed": [3, 4]}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one field to sweep, got 'none'"),
        (["num-seeds=2,3"], r"points without a run in common, got 'seed 0 in two of them'"),
        (["num-featurs=3"], "got --num-featurs; did you mean --num-features[?];"),
        (
            ["method=explicit,naive", "kappa0=1.5"],
            r"got --kappa0; options .* of explicit: --dense.* \(at the point method=",
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
    # Without a rate of their own, stored weights take the encoder's.
    rates = first.learner.objective.weight_learning_rate
    np.testing.assert_allclose(rates, [1e-3, 0.5, 1e-3, 0.5, 1e-2, 0.5, 1e-2, 0.5])
    np.testing.assert_allclose(first.learner.optimizer.learning_rate, [1e-3] * 4 + [1e-2] * 4)
    for field in ("steps=3,4", "optimizer=sgd,adam", "hidden=3,4", "schedule=cosine,constant"):
        assert len(groups(sweep(field))) == 2
    (group,) = groups(sweep("seed=5,7", num_seeds=2))
    seeds = [(member.point, member.seed) for member in group.members]
    assert seeds == [(0, 5), (0, 6), (1, 7), (1, 8)]


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


OPTIONS = (
    "--hidden 16 --frequencies 4 --method danskin_lissa --schedule constant --num-features 3 "
    "--steps 100 --rows 40 --tasks 16 --num-seeds 2 --seed 5 --evaluate-every 50 "
    "--checkpoint-every 50 --quiet"
)
"""The base, as options of the command."""


@pytest.fixture(scope="module")
def finished(toy_store, tmp_path_factory):
    """A sweep by the command, and its summary, as a finished sweep returns it."""
    out = tmp_path_factory.mktemp("sweeps") / "sweep"
    grid = [word for text in GRID for word in ("--grid", text)]
    main(["sweep", str(toy_store), "--out", str(out), *OPTIONS.split(), *grid])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", None)
        return out, run_job(sweep_over(configured(*GRID), toy_store), out)


def test_intervals_hold_possible_values_alone_and_few_runs_are_listed():
    config = sweep("steps=1")
    measured = {"diverged": [False] * 2, "subspace_distance": [0.01, 0.9]}
    frame = Frame.grid(
        {**measured, "relative_excess_loss": [0.001, 0.2], "group": 1, "seconds": 1.0},
        point=0,
        seed=[0, 1],
    )
    (row,) = rows_of_points(Results(Run(config, None), {}, {"": frame}, SUBSPACE_DISTANCE))
    assert (row["subspace_distance_low"], row["subspace_distance_high"]) == (0.0, 1.0)
    assert row["relative_excess_loss_low"] == 0.0
    assert row["relative_excess_loss_high"] > 1.0
    points = [{**row, "runs": 4}, {**row, "runs": 5}]
    table, _ = sweep_over(config, Path()).show({"points": points, "report": ""})
    shown = [cells[table.header.index("distance")] for cells in table.rows]
    assert shown == ["0.455 (runs: 0.0100, 0.900)", "0.455 [0, 1.00]"]


@pytest.mark.integration
def test_runs_of_one_program_are_those_of_their_own_and_divergence_stops_no_other(
    finished, toy_store, tmp_path
):
    out, summary = finished
    alone = run_job(Train(store=toy_store, config=configured(*GRID).points[0].config), tmp_path)
    first = summary["points"][0]["subspace_distances"]
    theirs = [each["subspace_distance"] for each in alone["per_seed"]]
    np.testing.assert_allclose(first, theirs, rtol=1e-3)
    learned = [each for row in summary["points"][:2] for each in row["subspace_distances"]]
    assert len({*learned}) == 4
    assert max(learned) < 0.9
    compared = [row for row in compare([out]).rows if row["measure"] == "subspace_distance"]
    assert [row.get("pairs") for row in compared] == [None, 2, 2, 2]
    means = [point["subspace_distance"] for point in summary["points"]]
    assert [row["mean"] for row in compared] == pytest.approx(means)
    principal = ground_truth_for(toy_store, 3).principal
    captured = float(np.sum(principal.singular_values[:3] ** 2))
    excess = principal.total_energy / (principal.total_energy - captured) - 1
    for point in summary["points"]:
        diverges = point["learning_rate"] > 1
        assert (point["runs"], point["diverged"]) == (2, 2 if diverges else 0)
        if diverges:
            assert point["relative_excess_loss"] == pytest.approx(excess, rel=1e-3)
            assert point["subspace_distance"] == pytest.approx(1.0, abs=1e-6)
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    assert (out / "figures" / "sweep.png").stat().st_size > 1000


def test_runs_of_one_program_that_memory_cannot_hold_are_refused(toy_store, tmp_path, monkeypatch):
    config, out = configured("learning-rate=1e-2,1e-3"), tmp_path / "sweep"
    batch = 4 * config.base.rows * config.base.tasks * config.base.num_seeds
    # Room for the batches of either point.
    monkeypatch.setattr("rlreps.errors.usable_memory", lambda: 3 * batch // 2)
    with pytest.raises(InputError, match="expected the states and batches of 4 runs in"):
        run_job(sweep_over(config, toy_store), out)
    assert not out.exists()


@pytest.mark.integration
def test_an_interrupted_sweep_trains_what_is_left_and_another_grid_is_refused(
    toy_store, tmp_path, monkeypatch
):
    config, out = configured("learning-rate=1e-2,1e-3", "tasks=8,16"), tmp_path / "sweep"
    save, saved = Checkpoints.save, []

    def save_three(checkpoints, step, state, **options):
        save(checkpoints, step, state, **options)
        saved.append(step)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", save_three)
    with pytest.raises(KeyboardInterrupt):
        run_job(sweep_over(config, toy_store), out)
    assert not (out / "summary.json").exists()
    with pytest.raises(InputError, match="holds another run"):
        run_job(sweep_over(configured("learning-rate=1e-2,1e-3", "tasks=8,32"), toy_store), out)
    resumed = run_job(sweep_over(config, toy_store), out)
    # The first group is not trained again, and the second goes on from its checkpoint.
    assert saved == [50, 100, 50, 100]
    whole = run_job(sweep_over(config, toy_store), tmp_path / "whole")
    for mine, other in zip(resumed["points"], whole["points"], strict=True):
        assert {**mine, "seconds": 0} == {**other, "seconds": 0}
    # Points come in the order of the grid, whichever program trained them.
    assert [point["tasks"] for point in whole["points"]] == [8, 16, 8, 16]
    assert [point["group"] for point in whole["points"]] == [1, 2, 1, 2]
    alone = run_job(Train(store=toy_store, config=config.points[2].config), tmp_path / "alone")
    found = whole["points"][2]["subspace_distance"]
    assert found == pytest.approx(alone["subspace_distance"], rel=1e-3)
