"""The host loop around a program of plain arithmetic: what is evaluated, kept and resumed."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError, TrainingDivergedError
from rlreps.runs import metrics_log
from rlreps.runs.checkpoints import Checkpoints
from rlreps.training import loop
from rlreps.training.loop import Program, run


class Sums(Program):
    """Adds step² to two numbers; knows which calls were made."""

    def __init__(self, diverges_at=None):
        self.calls, self.prepared, self.diverges_at = [], [], diverges_at

    def init(self):
        return {"sum": jnp.asarray([0.0, 1.0])}

    def prepare(self, state, count):
        self.prepared.append(count)

    def advance(self, state, step, count):
        self.calls.append((step, count))
        if self.diverges_at is not None and step <= self.diverges_at < step + count:
            raise TrainingDivergedError(f"expected small sums, got a large one at {step}")
        total = state["sum"]
        for index in range(step, step + count):
            total = total + index**2
        return {"sum": total}, {"last": np.float32(step + count - 1)}

    def evaluate(self, state, step):
        return state, {"sum": state["sum"], "ratio": np.asarray([np.nan, 1.0])}

    def note(self, record):
        return f"sum {record['sum'][0]:.0f}"

    def collect(self, state):
        return (state["sum"],)

    def put(self, kept):
        return {"sum": kept[0]}


OPTIONS = {"steps": 24, "evaluate_every": 4, "checkpoint_every": 8}


def finish(folder=None, program=None, **changes):
    return run(program or Sums(), folder=folder, **(OPTIONS | changes))


def without_times(records):
    return json.dumps([{**record, "seconds": 0} for record in records])


def test_a_run_is_evaluated_before_the_first_step_after_the_last_and_between(
    tmp_path, run_folder, monkeypatch
):
    monkeypatch.setattr(loop, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(loop, "_REST", 0.0)
    program = Sums()
    result = finish(run_folder(), program, steps=22)
    assert program.calls == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 2)]
    assert program.prepared == [4, 2]
    assert [record["step"] for record in result.history] == [0, 4, 8, 12, 16, 20, 22]
    assert "last" not in result.history[0]
    assert result.history[-1]["last"] == 21.0
    assert result.history[-1]["sum"] == [sum(k**2 for k in range(22)) + part for part in (0, 1)]
    assert Checkpoints(tmp_path / "checkpoints").steps() == [16, 22]
    # The first and the last are written, whatever they cost.
    for rule in ("_LEAST_SECONDS", "_REST"):
        with monkeypatch.context() as patch:
            patch.setattr(loop, rule, 1e9)
            finish(run_folder(tmp_path / rule), steps=22)
        assert Checkpoints(tmp_path / rule / "checkpoints").steps() == [8, 22]
    # A longer run goes on to the next multiple of the interval.
    longer = Sums()
    finish(run_folder(tmp_path / "_REST"), longer, steps=28)
    assert longer.calls == [(22, 2), (24, 4)]
    # NaN is null on disk and NaN in memory.
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1], parse_constant=pytest.fail)["ratio"] == [None, 1.0]
    assert np.isnan(result.history[-1]["ratio"][0])


def test_an_interrupted_run_ends_as_one_that_never_was(tmp_path, run_folder, die_at):
    whole = finish()
    for step in (4, 12, 20):  # Before the first checkpoint, after it, and after the second.
        die_at(step, finish)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes() + b'{"step": 20, "secon')  # Cut short by the kill.
    before = run_folder().read_metrics()
    program = Sums()
    resumed = finish(run_folder(), program)
    assert program.calls == [(16, 4), (20, 4)]
    np.testing.assert_array_equal(resumed.state["sum"], whole.state["sum"])
    assert without_times(resumed.history) == without_times(whole.history)
    assert without_times(run_folder().read_metrics()) == without_times(whole.history)
    assert resumed.seconds >= before[-1]["seconds"]
    again = finish(run_folder(), program)
    assert len(program.calls) == 2
    assert without_times(again.history) == without_times(whole.history)
    assert (again.compile_seconds, again.seconds) == (0.0, resumed.history[-1]["seconds"])


def test_what_a_diverged_run_leaves_behind_is_named_and_untouched(tmp_path, run_folder):
    with pytest.raises(TrainingDivergedError, match=r"large one at 0; no checkpoint was made$"):
        finish(run_folder(tmp_path / "early"), Sums(diverges_at=1))
    folder = run_folder(tmp_path / "late")
    with pytest.raises(TrainingDivergedError, match="at 12; the checkpoint of step 8 is unt"):
        finish(folder, Sums(diverges_at=13))
    assert [record["step"] for record in folder.read_metrics()] == [0, 4, 8, 12]
    assert Checkpoints(tmp_path / "late" / "checkpoints").steps() == [8]


def test_metrics_that_do_not_reach_the_checkpoint_are_missed(tmp_path, run_folder, die_at):
    die_at(12, finish)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(InputError, match=r"up to the checkpoint's step 8, got step 4 as the last"):
        finish(run_folder())


def test_tensorboard_gets_the_same_figures_where_it_is_installed(tmp_path, run_folder, monkeypatch):
    pytest.importorskip("tensorboardX")
    finish(run_folder(tmp_path / "with"))
    (events,) = (tmp_path / "with" / "tensorboard").iterdir()
    for name, count in ((b"sum", 7), (b"last", 6), (b"ratio", 0)):  # Of NaN there is no place.
        assert events.read_bytes().count(name) == count
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: None)
    finish(run_folder(tmp_path / "without"))
    assert not (tmp_path / "without" / "tensorboard").exists()


class Recorded:
    """A logger that keeps what it is told."""

    def __init__(self):
        self.logged, self.finished = [], False

    def log(self, metrics, *, step):
        self.logged.append((step, metrics))

    def finish(self):
        self.finished = True


def test_loggers_get_finite_means():
    given = Recorded()
    result = finish(loggers=[given])
    assert [step for step, _ in given.logged] == [record["step"] for record in result.history]
    assert given.logged[-1][1].keys() == {"seconds", "sum", "last"}
    assert given.logged[-1][1]["sum"] == np.mean(result.history[-1]["sum"])
    assert given.finished


def test_a_run_shows_its_rate_and_note_and_says_where_it_goes_on(
    run_folder, die_at, capsys, progress_bars
):
    die_at(12, finish)
    finish(run_folder(), description="adding")
    captured = capsys.readouterr()
    words = " ".join(captured.err.split())
    assert captured.out == ""
    for said in ("adding continues at step 8 of 24", "24/24", "steps/s", "sum 4324"):
        assert said in words


def test_counts_out_of_range_are_refused_before_anything_is_written(run_folder, files_below):
    folder = run_folder()
    before = files_below(folder.path)
    with pytest.raises(InputError, match="expected steps >= 1, got 0"):
        finish(folder, steps=0)
    with pytest.raises(InputError, match=r"multiple of evaluate_every \(4\), got 6"):
        finish(folder, checkpoint_every=6)
    assert files_below(folder.path) == before
