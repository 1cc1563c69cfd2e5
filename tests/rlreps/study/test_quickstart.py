"""The whole pipeline on a tiny ground truth: summary, figures, report, resumption."""

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlreps.app.job import run_job
from rlreps.app.main import main
from rlreps.encoders import MLP, FourierMLP
from rlreps.losses import Explicit, LargeBatch
from rlreps.runs.folder import RunFolder
from rlreps.study import quickstart
from rlreps.study.quickstart import MEASURES, PRESETS, Quickstart, QuickstartConfig
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.training.config import TrainingConfig

TRAINING = TrainingConfig(
    encoder=FourierMLP(hidden=(32,), frequencies=4),
    num_features=3,
    steps=100,
    rows=40,
    tasks=64,
    num_seeds=2,
    evaluate_every=50,
    checkpoint_every=50,
)
CONFIG = QuickstartConfig(
    successor=MonteCarlo(bins=8, rollouts=40, horizon=60, discount=0.9, block_rows=16),
    objectives=(LargeBatch(), Explicit(weight_learning_rate=0.1)),
    paper=dataclasses.replace(TRAINING, encoder=MLP(hidden=(32,)), tasks=1),
    recommended=TRAINING,
)
FIGURES = {"components", "environment", "noise_floor", "spectrum"}
FIGURES |= {
    f"{name}_{recipe}" for name in ("components", "curves") for recipe in ("paper", "recommended")
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A quickstart by the command, and its summary."""
    out = tmp_path_factory.mktemp("quickstart") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "smoke", CONFIG)
        main(["quickstart", "--preset", "smoke", "--out", str(out), "--quiet"])
    return out, json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.integration
def test_the_summary_holds_the_ground_truth_and_every_run_once(finished):
    out, summary = finished
    truth = summary["ground_truth"]
    assert truth["transitions"] == truth["computed_transitions"] == 64 * 40 * 60
    values = np.asarray(truth["singular_values"])
    assert values.shape == (63,)
    assert [row["recipe"] for row in summary["trainings"]] == 2 * ["recommended"] + 2 * ["paper"]
    for (name, (_, training)), row in zip(CONFIG.runs().items(), summary["trainings"], strict=True):
        stored = json.loads((out / "runs" / name / "summary.json").read_text())
        assert row["method"] == training.objective.label
        assert {key: row[key] for key in MEASURES} == {key: stored[key] for key in MEASURES}
    records = RunFolder(out / "runs" / "recommended-large_batch").read_metrics()
    first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
    assert last < 0.8 * first
    assert {entry.stem for entry in (out / "figures").iterdir()} == FIGURES
    assert "explore.html" in (out / "report.html").read_text()


def test_the_page_names_the_methods_that_failed():
    rows = [
        {"method": method, "recipe": "paper", "subspace_distance": distance}
        for method, distance in (("good", 0.1), ("bad", 0.7), ("worse", 0.9))
    ]
    assert quickstart._describe_failures(rows[:1]) == ""
    assert quickstart._describe_failures(rows) == (
        " More than half of the components are missing: bad, paper recipe (0.70); "
        "worse, paper recipe (0.90)."
    )


@pytest.mark.integration
def test_a_lost_training_is_repeated_on_an_executor_and_ends_the_same(
    finished, tmp_path, monkeypatch
):
    whole, summary = finished
    out, trained = shutil.copytree(whole, tmp_path / "run"), []
    (out / "summary.json").unlink()
    lost = "recommended-explicit"
    shutil.rmtree(out / "runs" / lost)
    real = quickstart.run_job

    def counted(job, folder):
        trained.append(folder.name)
        return real(job, folder)

    monkeypatch.setattr(quickstart, "run_job", counted)
    with ThreadPoolExecutor(1) as executor:
        again = run_job(Quickstart(config=CONFIG), out, executor=executor)
    assert lost in trained
    for ours, theirs in zip(again["trainings"], summary["trainings"], strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
