import errno
import json
import math
import os
import re

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.files import write_atomically
from rlreps.runs.folder import RunFolder

CONFIG = {"steps": 10, "encoder": {"name": "mlp", "hidden": [16, 16]}, "rate": 0.1}
PROVENANCE = {"device": "cpu"}


def start(path, config=CONFIG, kind="train"):
    return RunFolder.create_or_resume(path, kind=kind, config=config, provenance=PROVENANCE)


def test_a_run_starts_in_a_new_folder(tmp_path):
    folder = start(tmp_path / "deep/er/new")
    stored = json.loads((folder.path / "config.json").read_text())
    expected = {"format": 2, "kind": "train", "config": CONFIG, "provenance": PROVENANCE}
    assert stored == expected
    assert (folder.kind, folder.config, folder.provenance) == ("train", CONFIG, PROVENANCE)


def test_the_same_run_is_resumed_and_keeps_its_provenance(tmp_path, files_below):
    start(tmp_path)
    before = files_below(tmp_path)
    again = RunFolder.create_or_resume(
        tmp_path,
        kind="train",
        config={**CONFIG, "encoder": {"name": "mlp", "hidden": (16, 16)}},
        provenance={"device": "gpu"},
    )
    assert again.provenance == PROVENANCE
    assert files_below(tmp_path) == before


def test_a_configuration_with_nan_is_resumed_and_is_the_one_with_none(tmp_path):
    # NaN is stored as null, which a part of a study that is read again may hold as either.
    given = [{**CONFIG, "value": value} for value in (math.nan, None)]
    assert start(tmp_path, given[0]).config == given[1]
    for config in given:
        assert start(tmp_path, config).describe_differences(config) == []


def test_another_run_is_refused_and_every_field_that_differs_is_named(tmp_path, files_below):
    start(tmp_path)
    before = files_below(tmp_path)
    other = {"steps": 20, "encoder": {"name": "tabular", "hidden": [16, 16]}, "extra": True}
    with pytest.raises(InputError) as caught:
        start(tmp_path, other)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path} holds another run: ")
    for part in ("encoder.name='mlp', got 'tabular'", "extra=None, got True", "rate=0.1, got None"):
        assert f"expected {part}" in message
    assert "hidden" not in message
    with pytest.raises(InputError, match=r"expected a run of atari, got .* holds a run of train"):
        start(tmp_path, kind="atari")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    # The last is one of version 0.1, which wrote no format.
    [b"\xff\xfe\x00", b"[]", b'{"kind": "train", "config": {}, "provenance": {}}'],
)
def test_a_configuration_that_cannot_be_read_is_an_input_error(tmp_path, files_below, content):
    (tmp_path / "config.json").write_bytes(content)
    for open_it in (start, RunFolder):
        with pytest.raises(InputError, match=r"^expected .*(config\.json|format 2)"):
            open_it(tmp_path)
    assert files_below(tmp_path) == {"config.json": content}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, files_below, monkeypatch):
    write_atomically(tmp_path / "file", b"old")

    def fail(source, target):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=f"disk full: '{re.escape(str(tmp_path / 'file'))}'"):
        write_atomically(tmp_path / "file", b"new")
    assert files_below(tmp_path) == {"file": b"old"}


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
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(InputError, match=r"line 2 of .*metrics.jsonl, got"):
        folder.read_metrics()


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
