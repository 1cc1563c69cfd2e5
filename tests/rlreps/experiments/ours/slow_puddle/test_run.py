import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image

from rlreps.encoders import Tabular
from rlreps.errors import InputError
from rlreps.experiments.ours.slow_puddle import run as run_module
from rlreps.experiments.ours.slow_puddle.config import PRESETS, Contender, SlowPuddleConfig
from rlreps.experiments.ours.slow_puddle.problem import make_problem
from rlreps.experiments.ours.slow_puddle.run import folder_name, run_slow_puddle
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure import MonteCarlo, Transition

SMOKE = PRESETS["smoke"]
SHORT = dataclasses.replace(
    SMOKE,
    contenders=tuple(dataclasses.replace(each, steps=40) for each in SMOKE.contenders[:2]),
    evaluations=4,
)
FIGURES = [
    "cosines",
    "distance_by_time",
    "distance_by_update",
    "eigenvalue_errors",
    "eigenvalues",
    "maps",
    "successor_distance",
]

pytestmark = pytest.mark.usefixtures("compilation_cache")


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("slow_puddle") / "run"
    return out, run_slow_puddle(SMOKE, out, progress=False)


def test_the_smoke_preset_learns_and_says_so_as_valid_json(finished):
    out, summary = finished
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    assert [each["name"] for each in summary["contenders"]] == [c.name for c in SMOKE.contenders]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 4
    truth = make_problem(SMOKE.successor, SMOKE.num_features + 1)
    np.testing.assert_allclose(summary["eigenvalues"], truth.eigenvalues)
    for each, contender in zip(summary["contenders"], SMOKE.contenders, strict=True):
        name = folder_name(contender)
        folder = RunFolder(out / "runs" / name)
        records = folder.read_metrics()
        last = each["per_seed"]["subspace_distance"]
        for d in SMOKE.dimensions:
            ends = [distances[d - 1] for distances in last]
            np.testing.assert_allclose(records[-1][f"distance_{d}"], ends, rtol=1e-3, atol=1e-5)
            assert each["subspace_distance"][str(d)]["mean"] == pytest.approx(np.mean(ends))
        assert each["diverged"] == 0
        assert each["runs"] == 2
    winner = summary["contenders"][0]
    records = RunFolder(out / "runs" / "pairs-512-rows-1").read_metrics()
    assert winner["subspace_distance"]["2"]["mean"] < 0.1 * np.mean(records[0]["distance_2"])
    assert winner["subspace_distance"]["4"]["mean"] < 0.05


def test_no_learned_eigenfunctions_are_slower_together_than_the_true_ones(finished):
    _, summary = finished
    for each in summary["contenders"]:
        # Ky Fan: the sum over any d orthonormal functions is at least that of the d slowest.
        sums = np.cumsum(each["per_seed"]["eigenvalues"], axis=1)
        assert np.all(sums >= np.cumsum(summary["eigenvalues"][: sums.shape[1]]) * (1 - 1e-6))


def test_every_figure_has_its_numbers_beside_it(finished):
    out, summary = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in FIGURES:
        rows = json.loads((out / "results" / f"{name}.json").read_text())
        with (out / "results" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
        with Image.open(out / "figures" / f"{name}.png") as picture:
            picture.load()
            assert min(picture.size) > 300
    curves = json.loads((out / "results" / "distance_by_update.json").read_text())
    assert len(curves) == 3 * 2 * 11 * 2
    floor = json.loads((out / "results" / "successor_distance.json").read_text())[:4]
    assert [row["contender"] for row in floor] == ["true slow features"] * 4
    distances = [row["subspace_distance"] for row in floor]
    np.testing.assert_allclose(distances, summary["true_successor_distances"])
    errors = json.loads((out / "results" / "eigenvalue_errors.json").read_text())
    for row in errors:
        expected = row["learned"] / row["true"] - 1
        assert row["relative_error"] == pytest.approx(expected)


def test_the_report_holds_the_goals_and_needs_nothing_but_itself(finished):
    out, _ = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    assert page.count("cannot be told from this run") == 4


def test_a_finished_run_does_nothing_when_it_is_started_again(finished, monkeypatch, files_below):
    out, summary = finished
    before = files_below(out)
    names = ("train_population", "own_ground_truth", "make_problem", "write_slow_puddle_report")
    for name in names:
        monkeypatch.setattr(run_module, name, None)
    assert run_slow_puddle(SMOKE, out, progress=False) == summary
    assert files_below(out) == before


def test_another_configuration_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        run_slow_puddle(dataclasses.replace(SMOKE, num_seeds=3), out, progress=False)
    assert files_below(out) == before


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_an_experiment_killed_while_it_averages_ends_as_one_that_was_not(tmp_path, monkeypatch):
    whole = run_slow_puddle(SHORT, tmp_path / "whole", progress=False)
    append = RunFolder.append_metrics

    def die(self, record):
        append(self, record)
        if "0-5" in self.path.name and record["step"] == 30:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", die)
        with pytest.raises(Killed):
            run_slow_puddle(SHORT, tmp_path / "killed", progress=False)
    assert not (tmp_path / "killed" / "summary.json").exists()
    resumed = run_slow_puddle(SHORT, tmp_path / "killed", progress=False)
    for left, right in zip(whole["contenders"], resumed["contenders"], strict=True):
        assert left["per_seed"] == right["per_seed"]


def config(**changes):
    settings = {
        "successor": Transition(bins=4),
        "contenders": (Contender(name="one", steps=20),),
        "dimensions": (2, 4),
        "shown": 2,
    }
    return SlowPuddleConfig(**{**settings, **changes})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Contender(name="one", rows=5), "an even number of rows, two for each pair, got 5"),
        (lambda: Contender(name="one", averaging_rate=0.0), r"averaging_rate in \(0, 1\], got 0.0"),
        (lambda: Contender(name="one", action="guessed"), "action to be one of exact, sampled"),
        (lambda: Contender(name="one", steps=0), "steps >= 1, got 0"),
        (lambda: config(contenders=()), "at least one contender, each once"),
        (lambda: config(contenders=(Contender(name="a"),) * 2), "each once"),
        (
            lambda: config(contenders=(Contender(name="a", steps=30),)),
            r"evaluations \(20\), got 30",
        ),
        (lambda: config(successor=MonteCarlo(bins=4)), "method transition, got 'monte_carlo'"),
        (lambda: config(encoder=Tabular()), "an encoder of coordinates"),
        (lambda: config(dimensions=(4, 2)), "dimensions >= 1, rising"),
        (lambda: config(dimensions=(0, 2)), "dimensions >= 1, rising"),
        (lambda: config(dimensions=(2, 14)), "dimensions <= 13, got 14"),
        (lambda: config(shown=5), "1 <= shown <= the largest d, got 5"),
        (lambda: config(num_seeds=0), "num_seeds >= 1, got 0"),
    ],
)
def test_settings_without_meaning_are_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_one_row_is_enough_for_the_exact_operator_and_presets_differ_in_numbers_only():
    assert Contender(name="one", action="exact", rows=1).rows == 1
    for preset in PRESETS.values():
        assert {each.action for each in preset.contenders} == {"sampled", "exact"}
        assert min(each.averaging_rate for each in preset.contenders) < 1.0
