import errno
import json
import math
import os
import re

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.files import write_atomically
from rlreps.runs.folder import RunFolder, finished_summary

CONFIG = {"steps": 10, "encoder": {"name": "mlp", "hidden": [16, 16]}, "rate": 0.1}
PROVENANCE = {"device": "cpu"}


def start(path, config=CONFIG, kind="train"):
    return RunFolder.create_or_resume(path, kind=kind, config=config, provenance=PROVENANCE)


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("place", ["deep/er/new", "."])
def test_a_run_starts_in_a_new_or_empty_folder(tmp_path, place):
    folder = start(tmp_path / place)
    stored = json.loads((tmp_path / place / "config.json").read_text())
    expected = {"format": 2, "kind": "train", "config": CONFIG, "provenance": PROVENANCE}
    assert stored == expected
    assert (folder.kind, folder.config, folder.provenance) == ("train", CONFIG, PROVENANCE)
    assert sorted(contents(tmp_path / place)) == ["README.txt", "config.json"]


def test_the_same_run_is_resumed_and_keeps_its_provenance(tmp_path):
    start(tmp_path)
    before = contents(tmp_path)
    again = RunFolder.create_or_resume(
        tmp_path,
        kind="train",
        config={**CONFIG, "encoder": {"name": "mlp", "hidden": (16, 16)}},
        provenance={"device": "gpu"},
    )
    assert again.provenance == PROVENANCE
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["train", "train-live", "successor representation", "agent"])
def test_a_run_of_a_constant_learning_rate_continues_for_more_steps_alone(tmp_path, kind):
    def config(steps, **others):
        training = {"steps": steps, "optimizer": {"schedule": "constant"}, **others}
        return {"training": training} if kind == "train-live" else training

    first = start(tmp_path, config(10), kind)
    first.write_summary({"steps": 10})
    before = contents(tmp_path)
    for other in (config(5), config(20, rows=3), config(None)):
        with pytest.raises(InputError, match="holds another run"):
            start(tmp_path, other, kind)
    assert contents(tmp_path) == before
    if kind == "agent":
        with pytest.raises(InputError, match="holds another run: expected steps=10, got 20"):
            start(tmp_path, config(20), kind)
        return
    assert finished_summary(tmp_path, kind, config(20)) is None
    assert first.read_summary() == {"steps": 10}
    for steps in (20, 30, 30):
        longer = start(tmp_path, config(steps), kind)
        assert (longer.config, longer.provenance) == (config(steps), PROVENANCE)
        assert (longer.identity, longer.read_summary()) == (first.identity, None)


def test_another_run_is_refused_and_every_field_that_differs_is_named(tmp_path):
    start(tmp_path)
    before = contents(tmp_path)
    other = {"steps": 20, "encoder": {"name": "tabular", "hidden": [16, 16]}, "extra": True}
    with pytest.raises(InputError) as caught:
        start(tmp_path, other)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path} holds another run: ")
    for part in (
        "expected steps=10, got 20",
        "expected encoder.name='mlp', got 'tabular'",
        "expected extra=None, got True",
        "expected rate=0.1, got None",
    ):
        assert part in message
    assert "hidden" not in message
    with pytest.raises(InputError, match="holds a training run, not a quickstart"):
        start(tmp_path, kind="quickstart")
    assert contents(tmp_path) == before
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "zarr.json").write_text("{}")
    with pytest.raises(InputError, match="store holds a matrix store, not a run"):
        RunFolder(tmp_path / "store")


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"new or empty folder .* other files \(thesis.tex\)"):
        start(tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"[]", b'{"kind": "train", "config": [], "provenance": {}}'],
)
def test_a_configuration_that_cannot_be_read_is_an_input_error(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    for open_it in (start, RunFolder):
        with pytest.raises(InputError, match=r"expected .*config.json"):
            open_it(tmp_path)
    assert contents(tmp_path) == {"config.json": content}
    with pytest.raises(InputError, match=r"expected a run's config.json, got No such file"):
        RunFolder(tmp_path / "nothing")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    write_atomically(tmp_path / "file", b"old")

    def fail(source, target):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=f"disk full: '{re.escape(str(tmp_path / 'file'))}'"):
        write_atomically(tmp_path / "file", b"new")
    assert contents(tmp_path) == {"file": b"old"}


def test_metrics_come_back_and_no_file_holds_a_number_that_json_has_not(tmp_path):
    folder = start(tmp_path)
    assert folder.read_metrics() == []
    folder.append_metrics({"step": 0, "loss": [math.nan, math.inf, 1.0], "ratio": -math.inf})
    assert folder.read_summary() is None
    folder.write_summary({"loss": math.nan, "per_seed": [{"loss": math.inf}, {"loss": 1.0}]})
    for file in ("metrics.jsonl", "summary.json"):
        json.loads((tmp_path / file).read_text(), parse_constant=pytest.fail)
    (record,) = folder.read_metrics()
    assert [math.isnan(value) for value in record["loss"]] == [True, True, False]
    assert math.isnan(record["ratio"])
    assert folder.read_summary() == {"loss": None, "per_seed": [{"loss": None}, {"loss": 1.0}]}
    folder.append_metrics({"step": 1})
    assert folder.keep_metrics_until(0)[0]["loss"][2] == 1.0
    json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert len(folder.read_metrics()) == 1
    folder.append_metrics({"stage": "successor"})
    with pytest.raises(InputError, match="expected a step in every line"):
        folder.keep_metrics_until(0)


def test_a_last_line_cut_short_is_left_out_and_does_not_spoil_the_next(tmp_path):
    folder = start(tmp_path)
    folder.append_metrics({"step": 0})
    metrics = tmp_path / "metrics.jsonl"
    for rest in (b'{"step": 1, "loss"', '{"note": "ü'.encode()[:-1]):
        metrics.write_bytes(b'{"step": 0}\n' + rest)
        assert RunFolder(tmp_path).read_metrics() == [{"step": 0}]
        resumed = start(tmp_path)
        resumed.append_metrics({"step": 1})
        assert resumed.read_metrics() == [{"step": 0}, {"step": 1}]
    metrics.write_bytes(b'{"step": 0')
    assert start(tmp_path).read_metrics() == []
    assert metrics.read_bytes() == b""


@pytest.mark.parametrize("line", [b"3\n", b"\xff\n"])
def test_a_damaged_line_of_metrics_is_named(tmp_path, line):
    folder = start(tmp_path)
    folder.append_metrics({"step": 0})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(InputError, match=r"line 2 of .*metrics.jsonl, got"):
        folder.read_metrics()


def test_a_part_is_computed_once_unless_that_fails_and_read_afterwards(tmp_path):
    folder = start(tmp_path / "run")
    calls = []

    def compute():
        calls.append(1)
        if len(calls) == 1:
            raise InterruptedError
        return {"losses": [1.0, math.nan], "nested": [{"last": math.nan, "name": "one"}]}

    with pytest.raises(InterruptedError):
        folder.part("first", compute)
    for _ in range(2):
        found = folder.part("first", compute)
        (nested,) = found["nested"]
        assert (found["losses"][0], nested["name"]) == (1.0, "one")
        assert np.isnan([found["losses"][1], nested["last"]]).all()
    assert len(calls) == 2
    (folder.path / "parts" / "first.json").write_text("[1]")
    with pytest.raises(InputError, match=r"expected a JSON object in .*first\.json, got list"):
        folder.part("first", compute)


def test_a_folder_of_an_older_version_is_refused_and_stays_as_it_was(tmp_path):
    start(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["format"]  # 0.1 wrote none.
    (tmp_path / "config.json").write_text(json.dumps(content))
    for again in (lambda: start(tmp_path), lambda: RunFolder(tmp_path)):
        with pytest.raises(InputError, match=r"format 2, got .* of an older version"):
            again()
    assert json.loads((tmp_path / "config.json").read_text()) == content
