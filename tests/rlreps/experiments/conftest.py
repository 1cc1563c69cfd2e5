"""Paper presets against the papers' protocols, smoke presets against what they always left."""

import csv
import json
from pathlib import Path

import pytest

from rlreps.config import as_json
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.harness import Experiment, Frame, Results, Run

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
"""Experiment → what its smoke preset leaves, as ``left_by`` lists it."""


def left_by(run, summary):
    """List a run's figures, its result files with their columns, its statements and verdicts."""
    columns = {}
    for path in sorted((run / "results").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            columns[path.stem] = next(csv.reader(lines))
    return {
        "figures": sorted(path.stem for path in (run / "figures").iterdir()),
        "results": columns,
        # Verdicts on times may differ from run to run.
        "claims": [
            [each["statement"], "of times" if "time" in each["statement"] else each["holds"]]
            for each in summary["claims"]
        ],
    }


@pytest.fixture(autouse=True)
def _smoke_presets_leave_what_they_always_left(monkeypatch):
    """Look at every run of a smoke preset that any test makes."""
    run = Experiment.run

    def checked(self, config, out, **options):
        summary = run(self, config, out, **options)
        if config is self.presets.get("smoke") and self.name in GOLDEN:
            assert left_by(out, summary) == GOLDEN[self.name]
        return summary

    monkeypatch.setattr(Experiment, "run", checked)


def flat(value, prefix=""):
    """Return dotted path → value for every leaf; lists are leaves unless they hold mappings."""
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = {str(index): each for index, each in enumerate(value)}
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        path: leaf
        for name, each in value.items()
        for path, leaf in flat(each, f"{prefix}.{name}" if prefix else name).items()
    }


@pytest.fixture
def check_protocol():
    """Compare an experiment's paper preset with a protocol.

    Every field is either the paper's (with its value) or one that the paper is silent on. Those
    that differ from the paper are its deviations, no more and no less.
    """

    def check(name, paper, silent):
        experiment = EXPERIMENTS[name].load()
        found = flat(as_json(experiment.presets["paper"]))
        assert set(found) == set(paper) | set(silent)
        assert not set(paper) & set(silent)
        differing = {path for path, value in paper.items() if found[path] != value}
        assert differing == set(experiment.deviations) & set(found)
        assert all(len(reason) > 20 for reason in experiment.deviations.values())

    return check


@pytest.fixture
def results_of():
    """Make results of an experiment of rows that no run measured."""

    def made(experiment, config, rows):
        frame = rows if isinstance(rows, Frame) else Frame.of(rows)
        how = experiment.value, experiment.unit, experiment.fewest
        return Results(Run(config, None), {}, {"": frame}, *how)

    return made


@pytest.fixture
def judge(results_of):
    """Judge the claims of an experiment by rows that no run measured."""
    return lambda experiment, *given: experiment.judged(results_of(experiment, *given))
