"""Paper presets against the papers' protocols, smoke presets against what they always left."""

import csv
import json
from pathlib import Path

import pytest

from rlreps.config import as_json
from rlreps.experiments import EXPERIMENTS
from rlreps.stats import LONGEST
from rlreps.study import Frame, Run, figures, flat, follows
from rlreps.training.population import Members

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
        assert left_by(out, summary) == GOLDEN[name]
        assert all(len(str(claim["found"])) <= LONGEST for claim in summary["claims"])
        if experiment.decided_on is not None:
            goals = [claim["holds"] for claim in summary["claims"] if claim["holds"] is not None]
            assert not follows(preset, experiment.decided_on, experiment.free)
            assert len(goals) <= 1
        page = (out / "report.html").read_text(encoding="utf-8")
        assert page.count("<img") == len(GOLDEN[name]["figures"])
        results = {path: path.read_bytes() for path in (out / "results").iterdir()}
        (out / "summary.json").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(Members, "advance", None)  # Nothing is trained again.
            patch.setattr(figures, "save_figure", lambda figure, path: path)  # Nor drawn.
            again = experiment.run(preset, out, **given)
        assert json.dumps(again, sort_keys=True) == json.dumps(summary, sort_keys=True)
        assert {path: path.read_bytes() for path in (out / "results").iterdir()} == results
        return summary, out

    return run


@pytest.fixture
def check_protocol():
    """Compare an experiment's paper preset with the values that the paper states.

    Fields that differ are the experiment's deviations, no more and no less.
    """

    def check(name, paper):
        experiment = EXPERIMENTS[name].load()
        found = flat(as_json(experiment.presets["paper"]))
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
