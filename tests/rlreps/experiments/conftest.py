"""Paper presets against the papers' protocols, smoke presets against the numbers they left."""

import csv
import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from rlreps.config import as_json
from rlreps.experiments import EXPERIMENTS
from rlreps.stats import LONGEST
from rlreps.study import Frame, Run, figures, flatten_json, follows

FROZEN = json.loads(Path(__file__).with_name("frozen.json").read_text(encoding="utf-8"))
"""Experiment → results file → number of rows, and column → mean of its ``weighted_numbers``.

The mean of a column of text is 0, that of a column of times null.
"""

TOLERANCE = 0.03
"""Largest change of a mean by another CPU's rounding, relative to the mean size of the numbers.

With other vector instructions and optimisations, means moved by at most 0.008, by 0.07 in
experiments whose largest learning rates nearly diverge, and by 0.036 in extremes of Atari's frames
after few updates (``UNSTABLE``).
"""

UNSTABLE = {"atari apart": 0.1, "distributed-pca": 0.2, "synthetic": 0.2}
"""Experiment, or experiment and column → its own tolerance."""


def weighted_numbers(cells):
    """Return the numbers in a column, 0 for other cells; the last row counts twice the first."""
    numbers = np.zeros(len(cells))
    for row, cell in enumerate(cells):
        try:
            number = {"True": 1.0, "False": 0.0}.get(cell) or float(cell)
        except ValueError:
            continue
        numbers[row] = number if math.isfinite(number) else 0.0
    return numbers * np.linspace(1.0, 2.0, len(cells))


def check_results(name, run):
    """Compare an experiment's results with the frozen ones: rows, columns and numbers.

    To compare two revisions exactly, run ``RLREPS_HASHES=FILE pytest -m experiments`` with both on
    one machine: it appends a hash of every results file, leaving out times.
    """
    found = {}
    for path in sorted((run / "results").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        means = dict.fromkeys(header)
        columns = {column: cells for column, *cells in zip(header, *rows, strict=True)}
        untimed = [] if path.stem == "times" else [c for c in header if "seconds" not in c]
        kept = {column: columns[column] for column in untimed}
        for column, cells in kept.items():
            numbers = weighted_numbers(cells)
            mean, size = numbers.mean(), np.abs(numbers).mean()
            frozen = FROZEN.get(name, {}).get(path.stem, [0, {}])[1].get(column)
            own = UNSTABLE.get(f"{name} {column}", UNSTABLE.get(name, TOLERANCE))
            slack = own * size
            near = frozen is not None and abs(mean - frozen) <= slack
            means[column] = frozen if near else float(f"{mean:.6g}")
        found[path.stem] = [len(rows), means]
        if place := os.environ.get("RLREPS_HASHES"):
            digest = hashlib.sha256(json.dumps(kept).encode()).hexdigest()
            with Path(place).open("a", encoding="utf-8") as hashes:
                print(name, path.stem, digest, file=hashes)
    assert found == FROZEN.get(name), json.dumps({name: found})


def measured_in(run):
    """Return results, logs of training, which hold times, and when parts were written."""
    kept = [*run.glob("results/*"), *run.glob("runs/**/metrics.jsonl")]
    dates = {path: path.stat().st_mtime_ns for path in run.glob("parts/*")}
    return {path: path.read_bytes() for path in kept} | dates


@pytest.fixture
def smoke(tmp_path, monkeypatch):
    """Run a smoke preset, once a session; check what all of them promise, a resume among it.

    Returns (summary, folder).
    """

    def run(name, *, data=None, **options):
        experiment, out = EXPERIMENTS[name].load(), tmp_path / "run"
        preset = experiment.presets["smoke"]
        given = {} if data is None else {"data": data}
        summary = experiment.run(preset, out, **given, **options)
        check_results(name, out)
        assert all(len(str(claim["found"])) <= LONGEST for claim in summary["claims"])
        if experiment.decided_on is not None:
            goals = [claim["holds"] for claim in summary["claims"] if claim["holds"] is not None]
            assert not follows(preset, experiment.decided_on, experiment.free)
            assert len(goals) <= 1
        page = (out / "report.html").read_text(encoding="utf-8")
        assert page.count("<img") == len([*(out / "figures").iterdir()])
        measured = measured_in(out)
        (out / "summary.json").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(figures, "save_figure", lambda figure, path: path)  # Not drawn again.
            again = experiment.run(preset, out, **given)
        assert json.dumps(again, sort_keys=True) == json.dumps(summary, sort_keys=True)
        assert measured_in(out) == measured
        return summary, out

    return run


@pytest.fixture
def check_protocol():
    """Compare an experiment's paper preset with the values that the paper states.

    Fields that differ are the experiment's deviations, no more and no less.
    """

    def check(name, paper):
        experiment = EXPERIMENTS[name].load()
        found = flatten_json(as_json(experiment.presets["paper"]))
        differing = {path for path, value in paper.items() if found[path] != value}
        assert differing == set(experiment.deviations) & set(found)
        assert all(len(reason) > 20 for reason in experiment.deviations.values())

    return check


@pytest.fixture
def results_of():
    """Make results of an experiment of rows that no run measured."""

    def made(experiment, config, rows):
        frame = rows if isinstance(rows, Frame) else Frame.of(rows)
        return experiment.results(Run(config, None), {}, {"": frame})

    return made


@pytest.fixture
def judge(results_of):
    """Judge the claims of an experiment by rows that no run measured."""
    return lambda experiment, *given: experiment.judged(results_of(experiment, *given))
