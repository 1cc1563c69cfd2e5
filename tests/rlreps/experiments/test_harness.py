"""The harness of experiments, with a toy experiment that trains nothing."""

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


@dataclasses.dataclass
class Toy:
    """An experiment that counts what it is asked to do."""

    dies_in: str | None = None
    measured: list = dataclasses.field(default_factory=list)

    def measure(self, run, name, scale):
        if name == self.dies_in:
            raise KeyboardInterrupt
        self.measured.append(name)
        return {"values": [scale * each for each in run.shared], "nothing": math.nan}

    def draw(self, results):
        rows = [
            {"name": name, "mean": np.mean(part["values"]), "nothing": part["nothing"]}
            for name, part in results.found.items()
        ] + [{"name": "other", "extra": True}]
        figure = Figure()
        figure.add_subplot(xlabel="value", ylabel="mean")
        return rows, figure

    def check(self, config, data):
        require(len(data.numbers) > 1, "two numbers", len(data.numbers))
        return data

    def experiment(self, **changes):
        return Experiment(
            name="toy",
            title=lambda config: f"A toy of {len(config.scales)}",
            paper="Nobody 2000",
            presets={"smoke": Config()},
            cells=lambda run: {f"scale-{scale:g}": scale for scale in run.config.scales},
            measure=self.measure,
            frame=lambda run, scale, found: Frame.grid({"value": found["values"]}, seed=[0, 1, 2]),
            value=Measure(value="value", label="value"),
            abstract="An abstract of {config.scales[1]:.1f}.",
            claims=[
                Claim(word, "so it is", Verdict(holds, word))
                for word, holds in (("held", True), ("broken", False), ("open", None))
            ],
            sections={
                "First": [
                    Tabulated(name="plain", caption="Own.", rows=lambda r: [{"a": 1.5}]),
                    Drawn(name="means", caption="Means & more.", draw=self.draw),
                ],
                "Second": [],
            },
            summary=lambda r: {
                "means": [np.mean(part["values"]) for part in r.found.values()],
                "worst": math.inf,
            },
            load=lambda path: Data((1.0, 2.0, 6.0) if path is None else (1.0,)),
            check=self.check,
            prepare=lambda run: run.data.numbers,
            **changes,
        )

    def run(self, out, config=Config(), **options):
        return self.experiment().run(config, out, progress=False, **options)


def test_a_run_leaves_parts_results_figures_a_report_in_order_and_a_summary(tmp_path):
    toy = Toy()
    summary = toy.run(tmp_path / "run")
    assert toy.measured == ["scale-1", "scale-2"]
    assert summary["means"] == [3.0, 6.0]
    assert summary["worst"] is None
    assert summary["plain"] == [{"a": 1.5}]
    assert [claim["holds"] for claim in summary["claims"]] == [True, False, None]
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["kind"] == "toy"
    assert config["config"] == {"data": {"numbers": 3}, "scales": [1.0, 2.0]}
    files = {str(file.relative_to(tmp_path / "run")) for file in tmp_path.rglob("*.*")}
    assert files - {"run"} >= {
        "parts/scale-1.json",
        "parts/scale-2.json",
        "figures/means.png",
        "results/plain.csv",
        "report.html",
    }
    rows = json.loads((tmp_path / "run" / "results" / "means.json").read_text())
    assert rows[0] == {"name": "scale-1", "mean": 3.0, "nothing": None, "extra": None}
    with (tmp_path / "run" / "results" / "means.csv").open(newline="") as file:
        cells = list(csv.reader(file))
    assert cells[0] == ["name", "mean", "nothing", "extra"]
    assert cells[1:] == [
        ["scale-1", "3.0", "", ""],
        ["scale-2", "6.0", "", ""],
        ["other", "", "", "True"],
    ]
    # The report shows abstract, claims, figures and tables in their order.
    page = (tmp_path / "run" / "report.html").read_text()
    places = [
        page.index(text)
        for text in (
            "<h1>A toy of 2</h1>",
            "<p>Nobody 2000</p>",
            "<p>An abstract of 2.0.</p>",
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
    assert summary["report"] == str(tmp_path / "run" / "report.html")


def test_a_resumed_run_measures_what_is_missing_and_a_finished_one_nothing(tmp_path, files_below):
    whole = Toy().run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Toy(dies_in="scale-2").run(tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    resumed = Toy()
    summary = resumed.run(tmp_path / "run")
    assert resumed.measured == ["scale-2"]
    assert {**summary, "report": ""} == {**whole, "report": ""}
    before = files_below(tmp_path / "run")
    finished = Toy(dies_in="scale-1")
    assert finished.run(tmp_path / "run") == summary
    assert finished.measured == []
    assert files_below(tmp_path / "run") == before


def test_measurements_that_are_not_kept_may_be_any_object_and_trainings_have_folders(tmp_path):
    toy, kept = Toy(), []

    def measure(run, name, cell):
        kept.append(run.training_folder(name, scale=cell))
        return {**toy.measure(run, name, cell), "object": object()}

    experiment = dataclasses.replace(toy.experiment(), keeps_parts=False, measure=measure)
    assert experiment.run(Config(), tmp_path / "run", progress=False)["means"] == [3.0, 6.0]
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

    toy = Toy().experiment(keeps_parts=keeps)
    experiment = dataclasses.replace(
        toy,
        measure=measure,
        sections={
            "Only": [],
        },
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


def test_more_jobs_than_cores_are_refused(tmp_path):
    for jobs in (0, 10_000):
        with pytest.raises(InputError, match=r"expected jobs in \[1, "):
            Toy().experiment().run(Config(), tmp_path / "run", jobs=jobs)
    assert not (tmp_path / "run").exists()


def test_what_is_refused_leaves_nothing_behind(tmp_path, files_below):
    with pytest.raises(InputError, match="expected two numbers, got 1"):
        Toy().run(tmp_path / "run", data=tmp_path)
    assert not (tmp_path / "run").exists()
    Toy().run(tmp_path / "run")
    before = files_below(tmp_path / "run")
    with pytest.raises(InputError, match=r"holds another run: expected scales=.*, got \[3.0\]"):
        Toy().run(tmp_path / "run", Config((3.0,)))
    assert files_below(tmp_path / "run") == before
