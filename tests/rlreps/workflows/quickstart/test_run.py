import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from rlreps.cli.tables import print_quickstart
from rlreps.encoders import MLP, FourierMLP
from rlreps.envs.core import ArenaError
from rlreps.errors import InputError
from rlreps.losses import Explicit, LargeBatch
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure import MonteCarlo
from rlreps.workflows import train as store_training
from rlreps.workflows.quickstart import run as quickstart
from rlreps.workflows.quickstart.config import PRESETS, QuickstartConfig
from rlreps.workflows.quickstart.run import run_quickstart
from rlreps.workflows.train import TrainingConfig

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compilation_cache")]

TRAINING = TrainingConfig(
    encoder=FourierMLP(hidden=(32,), frequencies=4),
    steps=100,
    rows=40,
    tasks=16,
    num_seeds=2,
    evaluate_every=50,
    checkpoint_every=50,
)
CONFIG = QuickstartConfig(
    successor=MonteCarlo(bins=8, rollouts=40, horizon=60, discount=0.9, block_rows=16),
    objectives=(
        LargeBatch(),
        Explicit(weight_learning_rate=0.1),
    ),
    paper=dataclasses.replace(TRAINING, encoder=MLP(hidden=(32,)), tasks=1),
    recommended=dataclasses.replace(TRAINING, tasks=64),
    dimensions=(2, 3),
    headline_dimension=3,
)
RUNS = [
    "paper-explicit-d3",
    "paper-large_batch-d3",
    "recommended-explicit-d2",
    "recommended-explicit-d3",
    "recommended-large_batch-d2",
    "recommended-large_batch-d3",
]
FIGURES = [
    "components_paper.png",
    "components_recommended.png",
    "curves_paper.png",
    "curves_recommended.png",
    "distance_by_dimension.png",
    "environment.png",
    "noise_floor.png",
    "spectrum.png",
]


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart") / "run"
    return out, run_quickstart(CONFIG, out, progress=False)


def test_the_summary_holds_what_it_promises_as_valid_json(finished):
    out, summary = finished
    stored = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    assert stored == summary
    truth = summary["ground_truth"]
    assert truth["transitions"] == truth["computed_transitions"] == 64 * 40 * 60
    assert truth["seconds"] > 0.0
    assert truth["transitions_per_second"] == pytest.approx(
        truth["transitions"] / truth["seconds"], rel=0.01
    )
    values = np.asarray(truth["singular_values"])
    assert values.shape == (63,)
    assert np.all(np.diff(values) <= 0.0)
    assert np.all(np.diff(truth["energy_captured"]) >= 0.0)
    assert sorted(summary["methods"]) == ["explicit", "large_batch"]
    for figures in summary["methods"].values():
        assert figures["recipe"] == "recommended"
        assert (figures["d"], figures["steps"]) == (3, 100)
        assert 0.0 <= figures["subspace_distance"] <= 1.0
        assert figures["relative_excess_loss"] > -1e-4
        assert figures["seconds"] > 0.0
        assert len(figures["runs"]) == 3


def test_the_runs_of_the_recommended_recipe_have_learned(finished):
    out, _ = finished
    for name in RUNS:
        records = RunFolder(out / "runs" / name).read_metrics()
        assert [record["step"] for record in records] == [0, 50, 100]
        first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
        if name.startswith("recommended-large_batch"):
            assert last < 0.8 * first


def test_a_methods_headline_is_its_own_run_and_every_run_is_there_once(finished):
    out, summary = finished
    assert sorted(entry.name for entry in (out / "runs").iterdir()) == RUNS
    seen = set()
    for method, figures in summary["methods"].items():
        for run in figures["runs"]:
            assert run["method"] == method
            assert run["seeds"] == [0, 1]
            name = f"{run['recipe']}-{method}-d{run['d']}"
            stored = json.loads((out / "runs" / name / "summary.json").read_text())
            assert run == {"recipe": run["recipe"], **stored}
            seen.add(name)
        headline = next(
            run for run in figures["runs"] if run["recipe"] == "recommended" and run["d"] == 3
        )
        for name in ("subspace_distance", "relative_excess_loss", "seconds"):
            assert figures[name] == headline[name]
    assert sorted(seen) == RUNS


def test_every_figure_is_a_picture_and_nothing_else_is_left_in_the_folder(finished):
    out, _ = finished
    assert sorted(entry.name for entry in (out / "figures").iterdir()) == FIGURES
    for name in FIGURES:
        with Image.open(out / "figures" / name) as picture:
            picture.load()
            assert min(picture.size) > 100
    assert sorted(entry.name for entry in out.iterdir()) == [
        "config.json",
        "figures",
        "metrics.jsonl",
        "report.html",
        "runs",
        "successor",
        "summary.json",
    ]


def test_the_report_needs_nothing_but_itself(finished):
    out, summary = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == len(FIGURES)
    for source in sources:
        assert source.startswith("data:image/png;base64,")
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    assert "<script" not in page
    assert "&quot;weight_learning_rate&quot;: 0.1" in page
    best = min(figures["subspace_distance"] for figures in summary["methods"].values())
    assert f"subspace distance {best:.4f} after 100 updates" in page
    assert "153,600" in page
    assert "NaN" not in re.sub(r'src="[^"]*"', "", page)
    assert len(set(sources)) == len(sources)


def test_running_it_again_computes_nothing_and_says_the_same(finished, monkeypatch):
    out, summary = finished
    pictures = {name: (out / "figures" / name).read_bytes() for name in FIGURES}
    monkeypatch.setattr(store_training, "train", None)
    assert run_quickstart(CONFIG, out, progress=False) == summary
    assert {name: (out / "figures" / name).read_bytes() for name in FIGURES} == pictures


class Killed(BaseException):
    pass


def test_a_quickstart_killed_anywhere_ends_with_the_same_figures(finished, tmp_path, monkeypatch):
    _, summary = finished
    out = tmp_path / "run"
    summaries = RunFolder.write_summary

    def die_after(count):
        written = []

        def write(self, content):
            if len(written) == count:
                raise Killed
            written.append(content)
            summaries(self, content)

        return write

    for count in (0, 2):
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "write_summary", die_after(count))
            with pytest.raises(Killed):
                run_quickstart(CONFIG, out, progress=False)
        assert not (out / "summary.json").exists()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "succ')
    resumed = run_quickstart(CONFIG, out, progress=False)
    assert resumed["ground_truth"]["singular_values"] == summary["ground_truth"]["singular_values"]
    assert resumed["ground_truth"]["computed_transitions"] == 64 * 40 * 60
    for method, figures in summary["methods"].items():
        for first, second in zip(figures["runs"], resumed["methods"][method]["runs"], strict=True):
            for name in ("subspace_distance", "relative_excess_loss", "per_seed", "seeds"):
                assert first[name] == second[name], (method, name)


def test_lost_blocks_are_generated_again_and_counted_as_what_they_are(finished, tmp_path):
    whole, summary = finished
    out = shutil.copytree(whole, tmp_path / "run")
    (out / "successor" / "c" / "1" / "0").unlink()
    again = run_quickstart(CONFIG, out, progress=False)
    truth = again["ground_truth"]
    assert truth["transitions"] == 64 * 40 * 60
    assert truth["computed_transitions"] == (64 + 16) * 40 * 60
    assert again["methods"] == summary["methods"]


def test_another_preset_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    other = dataclasses.replace(CONFIG, headline_dimension=2)
    with pytest.raises(InputError, match="expected headline_dimension=3, got 2"):
        run_quickstart(other, out, progress=False)
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"successor": dataclasses.replace(CONFIG.successor, arena="atlantis")},
            "atlantis",
        ),
        (
            {"successor": dataclasses.replace(CONFIG.successor, bins=2), "dimensions": (3, 4)},
            r"expected dimensions below 4 cells, got \(3, 4\)",
        ),
    ],
)
def test_input_that_cannot_be_used_leaves_nothing_behind(tmp_path, changes, message):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises((InputError, ArenaError), match=message):
        run_quickstart(config, tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_the_printed_table_names_every_run_and_the_report(finished, capsys):
    _, summary = finished
    print_quickstart(summary)
    out = capsys.readouterr().out
    assert "153,600 transitions" in out
    assert out.count("recommended") == 4
    assert out.count("paper") == 2
    for figures in summary["methods"].values():
        for run in figures["runs"]:
            assert format_number(run["subspace_distance"]) in out
    assert out.rstrip().endswith(f"Report: {summary['report']}")


def test_a_figure_without_a_value_is_a_dash_in_the_table(finished, capsys):
    _, summary = finished
    broken = json.loads(json.dumps(summary))
    broken["methods"]["explicit"]["runs"][0]["relative_excess_loss"] = None
    print_quickstart(broken)
    assert re.search("explicit .* \N{EN DASH}\\s*$", capsys.readouterr().out, flags=re.MULTILINE)


def test_presets_give_every_method_equal_budgets_under_both_recipes():
    for preset in PRESETS.values():
        assert [objective.name for objective in preset.objectives] == [
            "danskin_lissa",
            "large_batch",
            "explicit",
        ]
        for runs in (preset.paper_runs(), preset.recommended_runs()):
            budgets = {(run.steps, run.rows, run.tasks, run.num_seeds, run.seed) for run in runs}
            assert len(budgets) == 1
        assert {run.encoder.name for run in preset.paper_runs()} == {"mlp"}
    assert PRESETS["laptop"].successor.bins == 100
    assert quickstart.KIND == "quickstart"
