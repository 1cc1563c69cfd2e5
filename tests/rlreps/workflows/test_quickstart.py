"""The whole pipeline on a tiny ground truth: summary, figures, report, resumption."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from rlreps.encoders import MLP, FourierMLP
from rlreps.losses import Explicit, LargeBatch
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure import MonteCarlo
from rlreps.workflows import quickstart
from rlreps.workflows.quickstart import MEASURES, PRESETS, QuickstartConfig, run_quickstart
from rlreps.workflows.train import TrainingConfig

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
    out = tmp_path_factory.mktemp("quickstart") / "run"
    return out, run_quickstart(CONFIG, out)


@pytest.mark.integration
def test_the_summary_holds_the_ground_truth_and_every_run_once(finished):
    out, summary = finished
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    truth = summary["ground_truth"]
    assert truth["transitions"] == truth["computed_transitions"] == 64 * 40 * 60
    values = np.asarray(truth["singular_values"])
    assert values.shape == (63,)
    assert np.all(np.diff(values) <= 0.0)
    assert [row["recipe"] for row in summary["trainings"]] == 2 * ["recommended"] + 2 * ["paper"]
    for (name, (_, training)), row in zip(CONFIG.runs().items(), summary["trainings"], strict=True):
        stored = json.loads((out / "runs" / name / "summary.json").read_text())
        assert row["method"] == training.objective.label
        assert {key: row[key] for key in MEASURES} == {key: stored[key] for key in MEASURES}
    assert {entry.name for entry in (out / "runs").iterdir()} == CONFIG.runs().keys()
    records = RunFolder(out / "runs" / "recommended-large_batch").read_metrics()
    first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
    assert last < 0.8 * first


@pytest.mark.integration
def test_figures_and_report_are_there(finished):
    out, _ = finished
    assert {entry.stem for entry in (out / "figures").iterdir()} == FIGURES
    page = (out / "report.html").read_text()
    # Not the paper's method, and not named as if it were.
    for text in (
        "large batch (weights from the gradient",
        "which is another method",
        "explore.html",
    ):
        assert text in page


@pytest.mark.integration
def test_a_run_that_lost_a_training_repeats_it_and_ends_the_same(finished, tmp_path, monkeypatch):
    whole, summary = finished
    out, trained = shutil.copytree(whole, tmp_path / "run"), []
    (out / "summary.json").unlink()
    lost = "recommended-explicit"
    shutil.rmtree(out / "runs" / lost)
    real = quickstart.run_training

    def counted(config, store, folder, **options):
        trained.append(folder.name)
        return real(config, store, folder, **options)

    monkeypatch.setattr(quickstart, "run_training", counted)
    again = run_quickstart(CONFIG, out)
    assert lost in trained
    for ours, theirs in zip(again["trainings"], summary["trainings"], strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_the_laptop_preset_compares_all_methods_under_both_recipes_at_ten_features():
    config = PRESETS["laptop"]
    assert config.successor == MonteCarlo(bins=100, rollouts=config.successor.rollouts)
    assert len(config.runs()) == 6
    assert {run.num_features for _, run in config.runs().values()} == {10}
    paper = [run for recipe, run in config.runs().values() if recipe == "paper"]
    assert {run.states for run in paper} == {"uniform"}
    assert {run.objective.label for run in paper} == {
        "large batch (weights from the gradient's rows)",
        "Danskin-LISSA",
        "explicit (weights from N(0, 1²), one optimizer for all)",
    }


@pytest.mark.integration
def test_the_command_prints_a_table_and_the_reports_path(finished, rlreps, monkeypatch):
    out, summary = finished
    monkeypatch.setitem(PRESETS, "smoke", CONFIG)
    printed = rlreps("quickstart", "--preset", "smoke", "--out", out, "--quiet")
    assert printed.startswith("Ground truth: 153,600 transitions in ")
    for row in summary["trainings"]:
        assert row["method"] in printed
    assert printed.rstrip().endswith(f"Report: {out / 'report.html'}")
