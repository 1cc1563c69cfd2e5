"""Runs of an experiment that trains nothing: files, resumption, jobs, refusals."""

import csv
import dataclasses
import json
import math
import os
import sys

import cloudpickle
import numpy as np
import pytest
from matplotlib.figure import Figure

from rlreps.errors import InputError, require
from rlreps.experiments.harness import (
    Claim,
    Drawn,
    Experiment,
    Frame,
    Measure,
    Section,
    Tabulated,
)
from rlreps.runs.contrasts import Verdict


@dataclasses.dataclass(frozen=True)
class Data:
    numbers: tuple[float, ...]

    def fingerprint(self):
        return {"numbers": len(self.numbers)}


@dataclasses.dataclass(frozen=True)
class Config:
    scales: tuple[float, ...] = (1.0, 2.0)


def draw(results):
    rows = [
        {"name": name, "mean": np.mean(part["values"]), "nothing": part["nothing"]}
        for name, part in results.found.items()
    ] + [{"name": "other", "extra": True}]
    figure = Figure()
    figure.add_subplot(xlabel="value", ylabel="mean")
    return rows, figure


def check(config, data):
    require(len(data.numbers) > 1, "two numbers", len(data.numbers))
    return data


def toy(measured=(), dies_in=None, **changes):
    """Make an experiment that lists what it measures."""

    def measure(run, name, scale):
        if name == dies_in:
            raise KeyboardInterrupt
        measured.append(name)
        return {"values": [scale * each for each in run.shared], "nothing": math.nan}

    options = {
        "name": "toy",
        "title": lambda config: f"A toy of {len(config.scales)}",
        "paper": "Nobody 2000",
        "presets": {"smoke": Config()},
        "cells": lambda run: {f"scale-{scale:g}": scale for scale in run.config.scales},
        "measure": measure,
        "frame": lambda run, scale, found: Frame.grid({"value": found["values"]}, seed=[0, 1, 2]),
        "value": Measure(value="value", label="value"),
        "abstract": "An abstract.",
        "claims": [
            Claim(word, "so it is", Verdict(holds, word))
            for word, holds in (("held", True), ("broken", False), ("open", None))
        ],
        "sections": [
            Section(
                "First",
                show=[
                    Tabulated(name="plain", caption="Own.", rows=lambda r: [{"a": 1.5}]),
                    Drawn(name="means", caption="Means & more.", draw=draw),
                ],
            ),
            Section("Second"),
        ],
        "summary": lambda r: {
            "means": [np.mean(part["values"]) for part in r.found.values()],
            "worst": math.inf,
        },
        "load": lambda path: Data((1.0, 2.0, 6.0) if path is None else (1.0,)),
        "check": check,
        "prepare": lambda run: run.data.numbers,
        **changes,
    }
    return Experiment(**options)


def test_a_run_leaves_parts_results_figures_a_report_in_order_and_a_summary(tmp_path):
    out, measured = tmp_path / "run", []
    summary = toy(measured).run(Config(), out, progress=False)
    assert measured == ["scale-1", "scale-2"]
    assert (summary["means"], summary["worst"]) == ([3.0, 6.0], None)
    assert summary["plain"] == [{"a": 1.5}]
    assert [claim["holds"] for claim in summary["claims"]] == [True, False, None]
    assert json.loads((out / "summary.json").read_text()) == summary
    config = json.loads((out / "config.json").read_text())
    assert config["kind"] == "toy"
    assert config["config"] == {"data": {"numbers": 3}, "scales": [1.0, 2.0]}
    for file in ("parts/scale-1.json", "parts/scale-2.json", "figures/means.png"):
        assert (out / file).exists()
    rows = json.loads((out / "results" / "means.json").read_text())
    assert rows[0] == {"name": "scale-1", "mean": 3.0, "nothing": None, "extra": None}
    with (out / "results" / "means.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["name", "mean", "nothing", "extra"],
            ["scale-1", "3.0", "", ""],
            ["scale-2", "6.0", "", ""],
            ["other", "", "", "True"],
        ]
    page = (out / "report.html").read_text()
    places = [
        page.index(text)
        for text in (
            "<h1>A toy of 2</h1>",
            "<p>Nobody 2000</p>",
            "<p>An abstract.</p>",
            "<h2>First</h2>",
            "Table 1. What the paper states and what was found.",
            "Table 2. Own.",
            "Figure 1. Means &amp; more.",
            "<h2>Second</h2>",
            "&quot;scales&quot;",
        )
    ]
    assert places == sorted(places)
    for verdict in ("yes", "no", "cannot be told from this run"):
        assert page.count(f"<td>{verdict}</td>") == 1


def test_a_resumed_run_measures_what_is_missing_and_a_finished_one_nothing(tmp_path, files_below):
    out, resumed = tmp_path / "run", []
    whole = toy([]).run(Config(), tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        toy([], dies_in="scale-2").run(Config(), out, progress=False)
    assert not (out / "summary.json").exists()
    summary = toy(resumed).run(Config(), out, progress=False)
    assert resumed == ["scale-2"]
    assert {**summary, "report": ""} == {**whole, "report": ""}
    before = files_below(out)
    assert toy(dies_in="scale-1").run(Config(), out, progress=False) == summary
    assert files_below(out) == before


def test_measurements_that_are_not_kept_may_be_any_object_and_trainings_have_folders(tmp_path):
    kept = []

    def measure(run, name, scale):
        kept.append(run.training_folder(name, scale=scale))
        return {"values": [scale] * 3, "nothing": 0.0, "object": object()}

    experiment = toy(keeps_parts=False, measure=measure)
    assert experiment.run(Config(), tmp_path / "run", progress=False)["means"] == [1.0, 2.0]
    assert not (tmp_path / "run" / "parts").exists()
    assert [folder.path.name for folder in kept] == ["scale-1", "scale-2"]
    assert kept[0].kind == "toy-run"
    assert kept[0].config["scale"] == 1.0
    assert kept[0].config["experiment"]["scales"] == [1.0, 2.0]


@pytest.mark.parametrize("keeps", [True, False])
def test_jobs_measure_in_processes_of_their_own_and_find_the_same(tmp_path, keeps):
    def measure(run, name, scale):
        assert not run.progress
        return {"values": [scale], "process": os.getpid()}

    experiment = toy(
        keeps_parts=keeps,
        measure=measure,
        sections=[Section("Only")],
        summary=lambda r: {"found": r.found},
        frame=lambda run, scale, found: Frame.of([]),
    )
    config = Config(scales=(3.0, 1.0, 2.0))
    # Workers cannot import this module, where tests start without the checkout in their path.
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        summary = experiment.run(config, tmp_path / "run", progress=False, jobs=2)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    found = summary["found"]
    assert list(found) == ["scale-3", "scale-1", "scale-2"]
    assert [part["values"] for part in found.values()] == [[3.0], [1.0], [2.0]]
    assert os.getpid() not in [part["process"] for part in found.values()]
    assert (tmp_path / "run/parts").exists() == keeps


def test_what_is_refused_leaves_nothing_behind(tmp_path, files_below):
    out = tmp_path / "run"
    for options, message in (
        ({"data": tmp_path}, "expected two numbers, got 1"),
        ({"jobs": 0}, r"expected jobs in \[1, "),
        ({"jobs": 10_000}, r"expected jobs in \[1, "),
    ):
        with pytest.raises(InputError, match=message):
            toy().run(Config(), out, progress=False, **options)
        assert not out.exists()
    toy([]).run(Config(), out, progress=False)
    before = files_below(out)
    with pytest.raises(InputError, match=r"holds another run: expected scales=.*, got \[3.0\]"):
        toy().run(Config((3.0,)), out, progress=False)
    assert files_below(out) == before
