"""Slow features of PuddleWorld: goals; the smoke preset."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.harness import in_path
from rlreps.experiments.ours.slow_puddle import AFTER, EXPERIMENT, PRESETS, Goals
from rlreps.runs.folder import RunFolder

SMOKE = PRESETS["smoke"]


def rows(**worst):
    """Measurements of two seeds; those named are the second seed's, at d = 2."""
    fine = {"distance": 0.009, "matched_cosine": 0.99, "error": 0.019, "excess": 0.004}
    return [
        {"contender": contender.name, "part": AFTER, "seed": seed, "d": d, "step": 5, **fine}
        | (worst if contender is SMOKE.contenders[0] and (seed, d) == (1, 2) else {})
        | ({"distance": 1.0, "excess": 1.0} if d == 3 else {})
        for contender in SMOKE.contenders
        for seed in (0, 1)
        for d in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("worst", "holds"),
    [
        ({}, [True] * 4),
        ({"distance": 0.011}, [False, True, True, True]),
        ({"matched_cosine": 0.97}, [True, False, True, True]),
        ({"error": 0.021}, [True, True, False, True]),
        ({"excess": 0.0051}, [True, True, True, False]),
    ],
)
def test_goals_are_judged_by_the_worst_seed_and_without_goals_not_at_all(judge, worst, holds):
    goals = dataclasses.replace(SMOKE, goals=Goals())
    assert [claim.holds for claim in judge(EXPERIMENT, goals, rows(**worst))] == holds
    assert [claim.holds for claim in judge(EXPERIMENT, SMOKE, rows(**worst))] == [None] * 4


def test_batches_are_pairs_and_evaluations_divide_the_updates():
    for preset in PRESETS.values():
        for contender in preset.contenders:
            assert contender.steps % preset.evaluations == 0
            assert contender.action == "exact" or contender.rows % 2 == 0


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_a_killed_run_goes_on_to_the_same(tmp_path, monkeypatch):
    append, out = RunFolder.append_metrics, tmp_path / "whole"

    def die(self, record):
        append(self, record)
        if "0-5" in self.path.name and record["step"] == 120:
            raise KeyboardInterrupt

    summary = EXPERIMENT.run(SMOKE, out, progress=False)
    # Killed in the second training, as after the same first one.
    killed = shutil.copytree(out, tmp_path / "killed")
    (killed / "summary.json").unlink()
    first, *others = map(in_path, (contender.name for contender in SMOKE.contenders))
    assert sorted(path.name for path in (killed / "runs").iterdir()) == sorted([first, *others])
    for name in others:
        shutil.rmtree(killed / "runs" / name)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", die)
        with pytest.raises(KeyboardInterrupt):
            EXPERIMENT.run(SMOKE, killed, progress=False)
    resumed = EXPERIMENT.run(SMOKE, killed, progress=False)
    for name in ("successor_distance", "eigenvalues"):
        left, right = (folder / "results" / f"{name}.json" for folder in (out, killed))
        assert left.read_bytes() == right.read_bytes()
    timeless = [
        [{**row, "seconds": None} for row in each["contenders"]] for each in (summary, resumed)
    ]
    assert timeless[0] == timeless[1]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 4
    truth = np.asarray(summary["eigenvalues"])
    curves, values, ends = (
        json.loads((out / "results" / f"{name}.json").read_text())
        for name in ("distance_by_update", "eigenvalues", "contenders")
    )
    assert len(curves) == 3 * 2 * 11 * 2
    assert ends == summary["contenders"]
    assert {(row["diverged"], row["runs"]) for row in ends} == {(0, 2)}
    for contender in SMOKE.contenders:
        which = [row for row in values if row["contender"] == contender.name]
        for seed in (0, 1):
            learned = [row["learned"] for row in which if row["seed"] == seed]
            # No learned functions are slower together than the true ones.
            assert np.sum(learned) > truth[:4].sum() * (1.0 - 1e-6)
        for d in (2, 4):
            last = [
                row["subspace_distance"]
                for row in curves
                if (row["contender"], row["d"], row["step"]) == (contender.name, d, contender.steps)
            ]
            (end,) = (row for row in ends if (row["contender"], row["d"]) == (contender.name, d))
            assert np.mean(last) == pytest.approx(end["mean"], rel=1e-3, abs=1e-5)
    winner = {row["d"]: row["mean"] for row in ends[:2]}
    first = np.mean([row["subspace_distance"] for row in curves if row["step"] == 0])
    assert winner[2] < 0.1 * first
    assert winner[4] < 0.05
    figures = sorted(file.stem for file in (out / "figures").iterdir())
    results = {file.stem for file in (out / "results").glob("*.csv")}
    assert results == {*figures, "contenders"}
    assert len(figures) == 7
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 7
    other = dataclasses.replace(SMOKE, num_seeds=3)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        EXPERIMENT.run(other, out, progress=False)
