import csv
import dataclasses

import pytest

from rlreps.errors import InputError
from rlreps.experiments.ours.puddle_world_fast.config import PRESETS, Goal, PuddleWorldFastConfig
from rlreps.experiments.ours.puddle_world_fast.run import run_puddle_world_fast
from rlreps.runs.checkpoints import Checkpoints
from rlreps.successor.measure import Transition

pytestmark = pytest.mark.usefixtures("compilation_cache")


def shorter(recipe):
    """A recipe at d = 2 alone, at toy size."""
    training = dataclasses.replace(
        recipe.trainings[0],
        encoder=dataclasses.replace(recipe.trainings[0].encoder, hidden=(8,), frequencies=4),
        steps=40,
        rows=96,
        tasks=32,
        evaluate_every=20,
        checkpoint_every=20,
    )
    return dataclasses.replace(recipe, trainings=(training,))


CONFIG = PuddleWorldFastConfig(
    successor=Transition(bins=8, points=64, horizon=60, discount=0.9, block_rows=32),
    recipes=tuple(shorter(recipe) for recipe in PRESETS["laptop"].recipes[:2]),
    num_seeds=2,
    goals=(Goal(d=2, distance=1.0, seconds=1e3), Goal(d=2, distance=1e-9, seconds=1e3)),
)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("fast") / "run"
    return out, run_puddle_world_fast(CONFIG, out, progress=False)


def test_every_seed_is_a_run_of_its_own_with_its_own_time(finished):
    out, summary = finished
    assert len(summary["runs"]) == 4
    assert {(row["recipe"], row["seed"]) for row in summary["runs"]} == {
        (recipe.name, seed) for recipe in CONFIG.recipes for seed in (0, 1)
    }
    for row in summary["runs"]:
        assert row["seconds"] > 0.0
        assert 0.0 < row["subspace_distance"] < 1.0
        assert row["released_distance"] is None  # That is of another process.
    assert len({row["subspace_distance"] for row in summary["runs"]}) == 4
    assert len(list((out / "runs").iterdir())) == 4


def test_goals_are_judged_by_the_numbers(finished):
    _, summary = finished
    assert [claim["holds"] for claim in summary["claims"][:2]] == [True, False]
    ends = {}
    for row in summary["runs"]:
        ends.setdefault(row["recipe"], []).append(row["subspace_distance"])
    winner, danskin = (sum(ends[recipe.name]) / 2 for recipe in CONFIG.recipes)
    assert f"{danskin / winner:.2f} times" in summary["claims"][2]["found"]


def test_tables_and_figures_hold_every_measurement(finished):
    out, summary = finished
    rows = list(csv.DictReader((out / "results" / "distance_by_time.csv").read_text().splitlines()))
    assert len(rows) == 4 * 3
    last = [row for row in rows if row["step"] == "40"]
    found = {float(row["subspace_distance"]) for row in last}
    assert found == {row["subspace_distance"] for row in summary["runs"]}
    for name in ("distance_by_time", "distance_by_dimension"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000
    assert "Every update draws its entries afresh" in (out / "report.html").read_text()


def test_an_interrupted_run_goes_on_with_the_seed_it_was_at(finished, tmp_path, monkeypatch):
    _, summary = finished
    save, saved = Checkpoints.save, []

    def save_then_fail(checkpoints, step, state):
        save(checkpoints, step, state)
        saved.append(step)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", save_then_fail)
    with pytest.raises(KeyboardInterrupt):
        run_puddle_world_fast(CONFIG, tmp_path / "run", progress=False)
    monkeypatch.undo()
    resumed = run_puddle_world_fast(CONFIG, tmp_path / "run", progress=False)
    assert [row["subspace_distance"] for row in resumed["runs"]] == [
        row["subspace_distance"] for row in summary["runs"]
    ]


def test_recipes_must_be_for_the_same_dimensions():
    other = dataclasses.replace(CONFIG.recipes[1], trainings=CONFIG.recipes[1].trainings * 2)
    with pytest.raises(InputError, match=r"expected recipes for d = \(2,\), got \(2, 2\)"):
        dataclasses.replace(CONFIG, recipes=(CONFIG.recipes[0], other))


def test_presets_measure_twenty_times_at_every_dimension_of_the_table():
    for name in ("laptop", "paper"):
        preset = PRESETS[name]
        assert preset.dimensions == (2, 5, 10, 20, 50, 100)
        for recipe in preset.recipes:
            for training in recipe.trainings:
                assert training.steps == 20 * training.evaluate_every
