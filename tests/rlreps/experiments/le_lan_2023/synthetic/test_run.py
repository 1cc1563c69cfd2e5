"""The synthetic experiment from its start to its report, at toy size."""

import csv
import dataclasses
import html
import json
import re

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.synthetic import run as module
from rlreps.experiments.le_lan_2023.synthetic.config import SyntheticConfig
from rlreps.experiments.le_lan_2023.synthetic.run import run_synthetic
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("compilation_cache")

DIVERGING = 1e6
"""κ0 with which no run survives."""

CONFIG = SyntheticConfig(
    num_states=10,
    step_size=0.00005,
    rows=3,
    dimension=2,
    dimensions=(2,),
    rows_by_total=(3,),
    totals=(15,),
    kappa_values=(1.9, DIVERGING),
    kappa_dimensions=(2,),
    steps=100,
    num_seeds=2,
    evaluate_every=20,
    checkpoint_every=20,
)
FIGURES = (
    "distance_by_dimension",
    "distance_by_total",
    "final_distance_by_kappa",
    "final_distance_by_method",
)
RUNS = (
    "danskin_empirical-d2-rows3",
    "danskin_lissa-d2-rows3",
    "naive-d2-rows5",
    "oracle-d2-rows3",
)
TIMES = ("seconds", "member_updates_per_second", "report")


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("synthetic") / "run"
    return out, run_synthetic(CONFIG, out, progress=False)


def table(out, name):
    return json.loads((out / "results" / f"{name}.json").read_text(), parse_constant=pytest.fail)


def untimed(summary):
    return {name: value for name, value in summary.items() if name not in TIMES}


def page_rows(out):
    """Cells of every row of the report's tables."""
    page = (out / "report.html").read_text(encoding="utf-8")
    return [
        [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(<td.*?)</tr>", page)
    ]


def test_a_run_leaves_a_folder_a_program_and_every_figure_with_its_numbers(finished):
    out, summary = finished
    assert sorted(entry.name for entry in (out / "runs").iterdir()) == list(RUNS)
    for name in FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / "results" / f"{name}.csv").is_file()
    assert len(list((out / "figures").iterdir())) == len(FIGURES)
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    assert summary["report"] == str(out / "report.html")
    settings = CONFIG.settings()
    assert len(settings) == len(summary["settings"]) == 10
    assert summary["runs"] == 10 * 2
    assert summary["member_updates"] == 10 * 2 * 100
    assert summary["seconds"] > 0.0


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_file_holds_what_the_json_file_does(finished, name):
    out, _ = finished
    rows = table(out, name)
    with (out / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == cells
    assert rows


def test_numbers_are_those_of_the_runs_metrics(finished):
    out, summary = finished
    by_setting = {
        (row["method"], row["rows"], row["spectrum"], row["kappa0"]): row
        for row in summary["settings"]
    }
    assert len(by_setting) == 10
    for name in RUNS:
        folder = RunFolder(out / "runs" / name)
        records = folder.read_metrics()
        assert [record["step"] for record in records] == list(range(0, 101, 20))
        members = np.asarray(records[-1]["subspace_distance"])
        groups = folder.config["settings"]
        marks = np.asarray(records[-1]["diverged"]).reshape(len(groups), 2)
        np.testing.assert_allclose(members.reshape(marks.shape)[marks], 1.0, rtol=1e-6)
        for setting, distances, lost in zip(
            groups, members.reshape(len(groups), 2), marks, strict=True
        ):
            key = tuple(setting[part] for part in ("method", "rows", "spectrum", "kappa0"))
            row = by_setting[key]
            assert row["mean"] == pytest.approx(distances.mean())
            assert row["mean_low"] == pytest.approx(distances.min())
            assert row["mean_high"] == pytest.approx(distances.max())
            assert (row["step"], row["runs"], row["diverged"]) == (100, 2, lost.sum())


def test_curves_end_at_the_distances_that_the_summary_gives(finished):
    out, summary = finished
    rows = table(out, "distance_by_total")
    assert len(rows) == 2 * 6  # Spectra, measurements.
    last = [row for row in rows if row["step"] == 100]
    assert [(row["spectrum"], row["total_rows"]) for row in last] == [
        ("linear", 15),
        ("exponential", 15),
    ]
    ends = {
        (row["spectrum"], row["rows"]): row["mean"]
        for row in summary["settings"]
        if row["method"] == "danskin_lissa" and row["kappa0"] == 1.9
    }
    for row in last:
        assert row["mean"] == pytest.approx(ends[row["spectrum"], row["rows"]])


@pytest.mark.parametrize("name", ["final_distance_by_method", "final_distance_by_kappa"])
def test_the_report_shows_the_numbers_of_the_results(finished, name):
    out, _ = finished
    shown = page_rows(out)
    for row in table(out, name):
        numbers = ("num_features", "total_rows", "kappa0", "mean", "mean_low", "mean_high")
        cells = [format_number(row[part]) for part in (*numbers, "interquartile_mean")]
        expected = [row["spectrum"], *cells, f"{row['diverged']} of {row['runs']}"]
        assert expected in [[cells[0], *cells[2:]] for cells in shown]


def test_the_report_sets_every_claim_of_the_paper_beside_what_was_found(finished):
    out, summary = finished
    shown = page_rows(out)
    assert [claim["statement"][:3] for claim in summary["claims"]] == [
        "(a)",
        "(b)",
        "(c)",
        "(d)",
    ] * 2
    for claim in summary["claims"]:
        holds = {True: "yes", False: "no", None: "cannot be told from this run"}[claim["holds"]]
        assert [claim["statement"], claim["paper"], claim["found"], holds] in shown


def test_runs_that_diverge_are_counted_at_distance_one_and_said_in_the_report(finished):
    out, summary = finished
    beyond = [row for row in summary["settings"] if row["kappa0"] == DIVERGING]
    assert [row["spectrum"] for row in beyond] == ["linear", "exponential"]
    for row in beyond:
        assert row["diverged"] == 2
        assert row["mean"] == pytest.approx(1.0) == row["mean_low"]
    lost = [row for row in page_rows(out) if format_number(DIVERGING) in row]
    assert [row[-1] for row in lost] == ["2 of 2", "2 of 2"]
    total = sum(row["diverged"] for row in summary["settings"])
    assert summary["diverged"] == total < summary["runs"]
    assert f"{total} runs became infinite, count as distance 1" in (out / "report.html").read_text()
    for claim in summary["claims"]:
        if claim["statement"].startswith("(d)"):
            assert f"1.000 at {DIVERGING:g}" in claim["found"]


def test_the_oracle_ends_closer_than_naive_and_a_short_run_judges_nothing(finished):
    out, summary = finished
    ends = {
        row["method"]: row["mean"]
        for row in summary["settings"]
        if row["spectrum"] == "exponential" and row["total_rows"] == 15 and row["kappa0"] == 1.9
    }
    assert ends["oracle"] < 0.5 * ends["naive"]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 8
    assert (out / "report.html").read_text().count("cannot be told from this run") == 8
    (found,) = [
        claim["found"]
        for claim in summary["claims"]
        if claim["statement"].startswith("(c) exponential")
    ]
    assert f"naive {ends['naive']:.3f}" in found


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def test_an_interrupted_experiment_ends_with_the_same_tables(finished, tmp_path, monkeypatch):
    whole, summary = finished
    append = RunFolder.append_metrics

    def die(self, record):
        if self.path.name == "naive-d2-rows5" and record["step"] == 60:
            raise Killed
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", die)
        with pytest.raises(Killed):
            run_synthetic(CONFIG, tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "summary.json").exists()
    kept = [(tmp_path / "run" / "runs" / name / "metrics.jsonl").read_bytes() for name in RUNS[:2]]
    resumed = run_synthetic(CONFIG, tmp_path / "run", progress=False)
    assert untimed(resumed) == untimed(summary)
    for name in FIGURES:
        for kind in ("csv", "json"):
            file = f"results/{name}.{kind}"
            assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes()
    assert kept == [
        (tmp_path / "run" / "runs" / name / "metrics.jsonl").read_bytes() for name in RUNS[:2]
    ]


def test_a_finished_experiment_returns_its_summary_without_training(
    finished, monkeypatch, files_below
):
    out, summary = finished
    before = files_below(out)
    monkeypatch.setattr(module, "train_members", None)
    assert run_synthetic(CONFIG, out, progress=False) == summary
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_size": 0.001}, r"expected step_size=5e-05, got 0.001"),
        ({"steps": 200, "num_seeds": 3}, r"expected num_seeds=2, got 3; expected steps=100"),
        ({"totals": (15, 30)}, r"expected totals=\[15\], got \[15, 30\]"),
    ],
)
def test_a_folder_of_another_configuration_is_refused_and_left_alone(
    finished, files_below, changes, message
):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match=f"holds another run: {message}"):
        run_synthetic(dataclasses.replace(CONFIG, **changes), out, progress=False)
    assert files_below(out) == before
