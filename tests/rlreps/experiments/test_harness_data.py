"""Experiments as data: frames, figures, tables, claims; runs of one that trains nothing."""

import csv
import dataclasses
import json
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest
from matplotlib.figure import Figure

from rlreps.errors import InputError, require
from rlreps.stats import LONGEST, Sample, Verdict, mean_interval
from rlreps.study import (
    Axis,
    Claim,
    Curve,
    D,
    Drawn,
    Experiment,
    Frame,
    Metric,
    NotRunError,
    Tabulated,
    aggregate_units,
    falling,
    follows,
    halved,
    list_changed_fields,
    product_cells,
    replace_nested,
    tabulate_summary,
    tabulate_wide,
)

ROWS = [
    {"method": method, "d": d, "seed": seed, "step": step, "distance": distance, "diverged": lost}
    for method, d, seed, lost in (
        ("b", 2, 0, False),
        ("b", 2, 1, True),
        ("a", 2, 0, False),
        ("a", 2, 1, False),
        ("a", 5, 0, False),
        ("a", 5, 1, False),
    )
    for step in (0, 10)
    for distance in [(ord(method) - 96) / (d + seed + step)]
]


def test_cells_of_every_combination_have_names_of_their_own():
    with pytest.raises(InputError, match="cells with different names"):
        product_cells("{rate}", rate=(0.1, "0-1"))


def test_rows_are_selected_grouped_and_labelled_in_their_order():
    frame = Frame.of(ROWS)
    for wanted, is_kept in (
        ({"method": "a"}, lambda row: row["method"] == "a"),
        ({"d": (5, 7), "step": 10}, lambda row: (row["d"], row["step"]) == (5, 10)),
        ({"seed": range(1, 3)}, lambda row: row["seed"] == 1),
        ({"distance": lambda column: column > 0.4}, lambda row: row["distance"] > 0.4),
    ):
        kept = [row["distance"] for row in ROWS if is_kept(row)]
        assert frame.where(**wanted)["distance"].tolist() == kept
    groups = frame.groups("method", "d")
    assert list(groups) == [("b", 2), ("a", 2), ("a", 5)]
    assert all(set(group["d"]) == {d} for (_, d), group in groups.items())
    assert list(frame.labelled("d = {d}")) == ["d = 2", "d = 5"]
    assert list(frame.labelled("method")) == ["b", "a"]
    unknown = Frame.of([{"d": d, "value": 1.0} for d in (np.nan, 2.0, np.nan)])
    assert [len(group) for group in unknown.groups("d").values()] == [2, 1]
    assert unknown.pivot("value", "d")[0].shape == (2, 1)


def test_stacked_columns_keep_numbers_and_words_apart():
    frames = [Frame.of([{"d": d, "value": 0.5}]) for d in (1, "all", 2.5, True)]
    stacked = Frame.concat(frames)
    assert stacked["d"].tolist() == [1, "all", 2.5, True]
    assert [len(stacked.where(d=each)) for each in ("all", 2.5, ["all", 2.5])] == [1, 1, 2]
    assert stacked.where(d=[1, "all", 2.5]).pivot("value", "value", "d")[2] == [1, 2.5, "all"]
    assert stacked["value"].dtype == np.float64


def test_arrays_become_rows_in_the_order_of_their_axes():
    values = np.arange(6).reshape(2, 3)
    frame = Frame.grid(
        {"value": values, "lost": np.array([[True], [False]])},
        seed=[7, 8],
        step=range(3),
        name="x",
        floor=None,
    )
    for row in frame.rows("seed", "step", "value", "lost"):
        assert row["value"] == values[row["seed"] - 7, row["step"]]
        assert row["lost"] == (row["seed"] == 7)
    assert set(frame["name"]) == {"x"}
    history = [{"step": 5 * step, "loss": [step, step + 0.5], "seconds": 1.0} for step in range(3)]
    members = Frame.of_history(history, [{"seed": 3}, {"seed": 4}], method="m")
    assert members.where(seed=4, step=10)["loss"].tolist() == [2.5]


def test_summaries_are_means_over_units_with_counts_beside_them():
    rows = aggregate_units(
        Frame.of(ROWS), ("method", "d"), "distance", "seed", x="step", beside=("diverged",)
    )
    assert [row["step"] for row in rows[:2]] == [0, 10]
    for row in rows:
        wanted = {name: row[name] for name in ("method", "d", "step")}
        expected = mean_interval(Frame.of(ROWS).where(**wanted)["distance"])
        assert (row["mean"], row["mean_high"]) == pytest.approx((expected.value, expected.high))
        assert (row["runs"], row["diverged"]) == (2, int(row["method"] == "b"))
    # What is not finite is left out.
    broken = Frame.of([{**row, "distance": np.nan} if row["seed"] else row for row in ROWS])
    assert {row["runs"] for row in aggregate_units(broken, ("d",), "distance", "seed")} == {1}


@dataclasses.dataclass(frozen=True)
class Inner:
    steps: int = 10
    width: int = 3


@dataclasses.dataclass(frozen=True)
class Config:
    inner: Inner = Inner()
    others: tuple[Inner, ...] = (Inner(), Inner(width=4))
    d: int = 2


PAPER = Config()


def test_presets_vary_fields_wherever_they_are():
    assert replace_nested(PAPER, steps=5, width=7, d=3) == Config(Inner(5, 7), d=3)
    assert replace_nested(PAPER, inner=Inner(1), width=2) == Config(Inner(1, 2))
    with pytest.raises(InputError, match="expected one part of Config with nothing"):
        replace_nested(PAPER, nothing=1)


def test_differences_are_dotted_but_for_free_fields():
    other = Config(Inner(5), (Inner(), Inner(width=5)), d=3)
    assert list_changed_fields(other, PAPER, ("d",)) == {
        "inner.steps": (10, 5),
        "others.1.width": (4, 5),
    }
    assert list_changed_fields({}, {"others": [{"name": "a"}]}) == {"others.0.name": ("a", None)}
    assert follows(other, PAPER, ("d", "inner", "others"))
    assert not follows(other, PAPER, ("d", "inner"))


def draw_odd(results):
    """Return rows that lack columns, and a value that JSON cannot hold."""
    figure = Figure()
    figure.add_subplot(xlabel="x", ylabel="y")
    return [{"name": "a", "x": math.nan}, {"name": "b", "extra": True}], figure


def experiment(**changes):
    figure = Curve(
        name="curve",
        caption="Of d = {config.d}.",
        x=Axis("step", "step"),
        line="{method}, d = {d}",
        beside=("diverged",),
    )
    options = {
        "name": "data",
        "title": "Data",
        "paper": "Nobody 2000",
        "presets": {"paper": PAPER, "more": {"methods": ["a", "b", "c"]}},
        "cells": lambda run: {"only": None},
        "measure": lambda run, name, cell: {"rows": ROWS},
        "frame": lambda run, cell, found: Frame.of(found["rows"]),
        "value": Metric(value="distance", label="distance", within=(0.0, 1.0)),
        "sections": {
            "All": [
                "Text.",
                figure,
                Curve(
                    name="by_d",
                    caption="By d.",
                    x=D,
                    at_end=True,
                    line="d = {d}",
                    variant="method",
                    axes={"looks": {"a": {}, "b": {"linestyle": ":"}}},
                    rows=lambda r: [{"own": len(r.ends)}],
                ),
                dataclasses.replace(figure, name="runs", line="method", keys=("seed", "d")),
                tabulate_summary(caption="Ends.", keys=("method", "d"), name="ends"),
                tabulate_wide(caption="Wide.", row="method", column="d = {d}"),
                Tabulated(
                    caption="Own & more.",
                    rows=lambda r: [{"x": 3.0, "x_low": 2.0, "x_high": "never", "y": None}],
                ),
                Drawn(name="odd", caption="", draw=draw_odd),
            ],
            "Second": [],
        },
        "claims": [
            Claim("a is nearer", "so", lambda r: r.end(method="a") < r.end(method="b")),
            Claim("c is nearer", "so", lambda r: r.end(method="c") < r.end(method="b")),
            Claim("words", "long", lambda r: Verdict(False, "x" * 500), in_any_preset=True),
        ],
        **changes,
    }
    return Experiment(**options)


def test_claims_of_runs_that_no_preset_names_are_refused(results_of):
    results = results_of(experiment(), PAPER, ROWS)
    with pytest.raises(NotRunError):
        results.end(method="c")
    with pytest.raises(InputError, match="expected a known method, got 'd'"):
        results.end(method="d", seed=0)
    with pytest.raises(NotRunError):  # Both values are known; no run has both.
        results.end(method="b", d=5)


def test_an_experiment_writes_what_it_declares(tmp_path):
    summary = experiment().run(PAPER, tmp_path / "run")
    held, missing, long = summary["claims"]
    mine, theirs = (
        [Frame.of(ROWS).where(method=name, step=10, seed=s)["distance"].mean() for s in (0, 1)]
        for name in "ab"
    )
    expected = Sample(np.array(mine), [0, 1]) < Sample(np.array(theirs), [0, 1])
    assert (held["holds"], held["found"]) == (True, expected.words)
    assert (missing["holds"], missing["found"]) == (None, "not run in this preset")
    assert (long["holds"], len(long["found"])) == (False, LONGEST)
    assert json.loads((tmp_path / "run/summary.json").read_text()) == summary

    def rows_of(name):
        return json.loads((tmp_path / f"run/results/{name}.json").read_text())

    options = {"x": "step", "within": (0.0, 1.0), "beside": ("diverged",)}
    expected = aggregate_units(Frame.of(ROWS), ("method", "d"), "distance", "seed", **options)
    assert rows_of("curve") == json.loads(json.dumps(expected))
    columns = ("method", "seed", "d", "step", "distance", "diverged")
    assert rows_of("runs") == [{name: row[name] for name in columns} for row in ROWS]
    at_end = [row["mean"] for row in expected if row["step"] == 10]
    assert [row["mean"] for row in summary["ends"]] == at_end
    assert rows_of("by_d") == [{"own": 6}]
    with (tmp_path / "run/results/odd.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["name", "x", "extra"], ["a", "", ""], ["b", "", "True"]]
    figures = {path.stem for path in (tmp_path / "run/figures").iterdir()}
    assert figures == {"curve", "by_d", "runs", "odd"}
    page = (tmp_path / "run/report.html").read_text()
    in_order = ("Statements: 1 holds, 1 does not hold, 1 can", "<p>Text.</p>", "Table 2. Ends.")
    in_order += ("<td>3.00 [2.00, never]</td>", "Figure 1. Of d = 2.", "<h2>Second</h2>")
    places = [page.index(text) for text in in_order]
    assert places == sorted(places)


@dataclasses.dataclass(frozen=True)
class Data:
    size: int

    def fingerprint(self):
        return {"size": self.size}


def check(config, data):
    require(data.size > 1, "two numbers", data.size)
    return data


def listed(results):
    """List what the cells measured but for their rows."""
    return [
        {"cell": name, **{key: part[key] for key in ("value", "process") if key in part}}
        for name, part in results.found.items()
    ]


def in_parts(measured, dies_in=None, **changes):
    """Make an experiment of three cells that lists what it measures of its data."""

    def measure(run, name, cell):
        if name == dies_in:
            raise KeyboardInterrupt
        measured.append(name)
        return {"rows": ROWS, "value": cell * run.shared}

    options = {
        "cells": lambda run: {"c": 3, "a": 1, "b": 2},
        "measure": measure,
        "sections": {"All": [Tabulated(name="found", rows=listed, shown=False)]},
        "load": lambda path: Data(5 if path is None else 1),
        "check": check,
        "prepare": lambda run: run.data.size,
    }
    return experiment(**options | changes)


def test_measurements_without_a_place_on_the_axis_are_not_drawn_but_tabulated(tmp_path):
    made = experiment(
        cells=lambda run: {"1": 1, "2": 2, "all": "all", "none": None},
        measure=lambda run, name, cell: {"x": [0.1, 0.2, 0.3]},
        frame=lambda run, cell, found: Frame.grid(
            {"distance": found["x"]}, method="a", d=cell, step=1, seed=range(3)
        ),
        sections={
            "All": [
                Curve(name="by_d", caption="By d.", x=D),
                tabulate_summary(caption="Every d.", keys=("d",), name="summary"),
            ]
        },
        claims=[],
    )
    made.run(PAPER, tmp_path)
    assert (tmp_path / "figures/by_d.png").exists()
    drawn, listed = (
        csv.DictReader((tmp_path / f"results/{name}.csv").read_text().splitlines())
        for name in ("by_d", "summary")
    )
    assert [row["d"] for row in drawn] == ["1", "2"]
    assert [row["d"] for row in listed] == ["1", "2", "all", ""]


def test_a_resumed_run_measures_what_is_missing_and_a_finished_one_nothing(tmp_path, files_below):
    out, resumed = tmp_path / "run", []
    whole = in_parts([]).run(PAPER, tmp_path / "whole")
    values = [(row["cell"], row["value"]) for row in whole["found"]]
    assert values == [("c", 15), ("a", 5), ("b", 10)]
    config = json.loads((tmp_path / "whole/config.json").read_text())
    assert (config["kind"], config["config"]["data"]) == ("data", {"size": 5})
    with pytest.raises(KeyboardInterrupt):
        in_parts([], dies_in="a").run(PAPER, out)
    assert not (out / "summary.json").exists()
    summary = in_parts(resumed).run(PAPER, out)
    assert resumed == ["a", "b"]
    assert {**summary, "report": ""} == {**whole, "report": ""}
    before = files_below(out)
    assert in_parts([], dies_in="c").run(PAPER, out) == summary
    assert files_below(out) == before


def test_measurements_that_are_not_kept_may_be_any_object_and_trainings_have_folders(tmp_path):
    kept = []

    def measure(run, name, cell):
        kept.append(run.training_folder(name, scale=cell))
        return {"rows": ROWS, "object": object()}

    unkept = in_parts([], measure=measure, keeps_parts=False)
    found = unkept.run(PAPER, tmp_path / "run")["found"]
    assert not (tmp_path / "run" / "parts").exists()
    assert [row["cell"] for row in found] == [each.path.name for each in kept] == ["c", "a", "b"]
    assert (kept[0].config["scale"], kept[0].config["experiment"]["d"]) == (3, 2)


@pytest.mark.integration
def test_jobs_measure_in_processes_of_their_own_and_find_the_same(tmp_path):
    def measure(run, name, cell):
        return {"rows": ROWS, "value": cell, "process": os.getpid()}

    # Workers cannot import this module, where tests start without the checkout in their path.
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        made = in_parts([], measure=measure)
        found = made.run(PAPER, tmp_path / "run", jobs=2)["found"]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert [(row["cell"], row["value"]) for row in found] == [("c", 3), ("a", 1), ("b", 2)]
    assert os.getpid() not in [row["process"] for row in found]
    assert (tmp_path / "run/parts").exists()


def test_an_executor_measures_what_is_missing_and_this_thread_writes_it(tmp_path):
    measured = []

    class Recorded(ThreadPoolExecutor):
        def submit(self, function, pickled, name):
            measured.append(name)
            assert not list(out.glob("parts/*"))[1:]
            return super().submit(function, pickled, name)

    out, whole = tmp_path / "run", in_parts([]).run(PAPER, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        in_parts([], dies_in="a").run(PAPER, out)
    with Recorded(2) as executor:
        found = in_parts([]).run(PAPER, out, executor=executor)
    assert measured == ["a", "b"]
    assert {**found, "report": ""} == {**whole, "report": ""}
    for name in ("parts/a.json", "results/found.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_is_refused_leaves_nothing_behind(tmp_path, files_below):
    out = tmp_path / "run"
    for options, message in (
        ({"data": tmp_path}, "expected two numbers, got 1"),
        ({"jobs": 10_000}, r"expected jobs in \[1, "),
        ({"jobs": 2, "executor": object()}, "expected jobs or an executor, got 'both'"),
    ):
        with pytest.raises(InputError, match=message):
            in_parts([]).run(PAPER, out, **options)
        assert not out.exists()
    in_parts([]).run(PAPER, out)
    before = files_below(out)
    with pytest.raises(InputError, match=r"holds another run: expected d=2, got 3"):
        in_parts([]).run(replace_nested(PAPER, d=3), out)
    assert files_below(out) == before


def test_only_the_papers_configuration_decides_and_the_report_says_what_a_run_changes(tmp_path):
    claims = [
        Claim("decided", "", lambda r: Verdict(True, "found")),
        Claim("goal", "", lambda r: Verdict(True, "found"), in_any_preset=True),
    ]
    options = {"claims": lambda r: iter(claims), "decided_on": PAPER, "free": ("d",)}
    judged = experiment(**options, sections={"All": []})
    for name, config, decided in (
        ("paper", PAPER, True),
        ("free", replace_nested(PAPER, d=7), True),
        ("other", replace_nested(PAPER, steps=7), None),
    ):
        found = judged.run(config, tmp_path / name)["claims"]
        assert [claim["holds"] for claim in found] == [decided, True]
        assert [claim["found"] for claim in found] == ["found"] * 2
    assert "inner.steps" in (tmp_path / "other/report.html").read_text()
    other_data = dataclasses.replace(judged, decides=lambda r: len(r.frame) > 12)
    found = other_data.run(PAPER, tmp_path / "data")["claims"]
    assert [claim["holds"] for claim in found] == [None, True]


def test_a_course_is_judged_by_halves_and_by_neighbours():
    start, end = (Sample(np.array(values), [0, 1, 2]) for values in ([0.9, 1.0, 1.1], [0.3] * 3))
    assert halved(start, end) == Verdict(True, "1.00 to 0.300")
    assert halved(start, start).holds is False
    assert falling({"a": start, "b": end}).holds is True
    assert falling({"a": end, "b": start, "c": end}).holds is False
    assert falling({"a": start}).holds is None
