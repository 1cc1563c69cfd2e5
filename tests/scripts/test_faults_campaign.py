"""The campaign of faults: it finds a difference, sums trials up, and kills what it starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorstore as ts

SCRIPT = Path(__file__).parents[2] / "scripts" / "faults_campaign.py"
PROVENANCE = {"created": "2026-01-02", "device": "1 x cpu"}


@pytest.fixture(scope="module")
def script(load):
    return load("faults_campaign")


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint, as it is on disk."""
    folder = tmp_path / "one"
    database = folder / "run/checkpoints/40/default"
    database.mkdir(parents=True)
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{database}/"}).result()
    store["0/0"] = b"weights"
    (database / "_METADATA").write_text("{}")
    seal = {"files": {"d/1": [3, 4]}, "layout": "float32[3]", "step": 40, "run": "ours"}
    (database.parent / "seal.json").write_text(json.dumps(seal))
    config = {"config": {"seed": 1}, "provenance": PROVENANCE, "checksum": "1"}
    (folder / "run/config.json").write_text(json.dumps(config))
    (folder / "run/metrics.jsonl").write_text('{"step": 1, "seconds": 0.5, "loss": [0.25]}\n')
    (folder / "run/features").write_bytes(b"\x00\x01")
    return folder


def put(file, old, new):
    """Replace bytes of a file."""
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new))


def test_runs_that_differ_in_times_provenance_and_file_names_alone_hold_the_same(
    script, run, tmp_path
):
    other = shutil.copytree(run, tmp_path / "other")
    put(other / "run/config.json", b"2026-01-02", b"2027-01-02")
    put(other / "run/config.json", b'"checksum": "1"', b'"checksum": "2"')
    put(other / "run/metrics.jsonl", b"0.5", b"0.75")
    put(other / "run/checkpoints/40/seal.json", b"[3, 4]", b"[3, 5]")
    # The database anew: its files have random names.
    database = other / "run/checkpoints/40/default"
    for entry in (database / "d").iterdir():
        entry.unlink()
    (database / "manifest.ocdbt").unlink()
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{database}/"}).result()
    store["0/0"] = b"weights"
    (other / "run/.features.1234").write_bytes(b"\x00")
    (other / "run/.lock").write_text("")
    expected = script.contents(run)
    assert expected["run/checkpoints/40/default/0/0"][0] == len(b"weights")
    assert script.contents(other) == expected


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("run/config.json", b'"seed": 1', b'"seed": 2'),
        ("run/metrics.jsonl", b"0.25", b"0.125"),
        ("run/metrics.jsonl", b'"loss"', b'"loss'),
        ("run/features", b"\x01", b"\x03"),
        ("run/checkpoints/40/seal.json", b"40", b"41"),
    ],
)
def test_a_value_that_differs_is_found_and_counts_as_lost(script, run, name, old, new):
    expected = script.contents(run)
    put(run / name, old, new)
    found = script.differences(expected, script.contents(run))
    assert found == [name]
    assert script.bytes_of(expected, found) == expected[name][0] > 0


def test_an_array_of_a_checkpoint_that_differs_or_cannot_be_read_is_found(script, run):
    expected = script.contents(run)
    database = run / "run/checkpoints/40/default"
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{database}/"}).result()
    store["0/0"] = b"Weights"
    array = "run/checkpoints/40/default/0/0"
    assert script.differences(expected, script.contents(run)) == [array]
    (database / "manifest.ocdbt").write_bytes(b"nothing")
    assert script.differences(expected, script.contents(run)) == [array]
    shutil.rmtree(run / "run/checkpoints")
    assert array in script.differences(expected, script.contents(run))


def test_the_table_sums_up_the_trials_of_each_row(script, tmp_path):
    def line(row, trial, **found):
        known = dict.fromkeys(("identical", "named", "repaired", "refused", "wrong", "hang"), False)
        other = {"unclear": "", "did": "killed", "said": "", "seconds": 1.0, "revision": "abc"}
        return {
            "row": row,
            "trial": trial,
            "signals": 2,
            "lost": 0,
            "again": 0,
            **known,
            **other,
            **found,
        }

    lines = [
        line("kill/train", 0, identical=True),
        line("kill/train", 1, wrong=True, lost=1200, differs=["run/features"]),
        line("flip/x", 0, named=True, refused=True, repaired=True),
        line("flip/x", 1, hang=True, unclear="code 3"),
    ]
    titles = {"kill/train": "killed", "kill/train x 2": "killed, 2 processes"}
    titles |= {"kill/svd": "svd killed", "flip/x": "flipped"}
    table = script.tabulate(lines, titles, {"kill/train x 2": "no such option"})
    assert table[1:] == [
        ["killed", "2", "4", "0", "1", "0", "0", "0", "1,200", "1", "0", "0"],
        ["killed, 2 processes", "not supported: no such option", *[""] * 10],
        ["svd killed", "0", *[""] * 10],
        ["flipped", "2", "4", "0", "0", "1", "1", "1", "0", "0", "1", "1"],
        ["all", "4", "8", "0", "1", "1", "1", "1", "1,200", "1", "1", "1"],
    ]
    assert [script.is_bad(each) for each in lines] == [False, True, False, True]
    text = script.markdown(table)
    assert text.splitlines()[1] == "|---" * 12 + "|"
    assert "| flipped | 2 | 4 | 0 | 0 | 1 | 1 | 1 | 0 | 0 | 1 | 1 |" in text
    script.write_page(tmp_path / "page.md", lines, text, ["--only", "kill/train x 2"])
    page = (tmp_path / "page.md").read_text()
    assert text in page
    assert "--page docs/results/page.md --only 'kill/train x 2'\n" in page
    assert "- kill/train, trial 1, killed: wrong, 1,200 bytes lost in run/features; no word" in page


@pytest.mark.skipif(sys.platform != "linux", reason="clocks of other processes on Linux")
def test_a_moment_of_a_process_is_one_of_its_work_however_long_it_waits(script):
    work = "import time\ntime.sleep(0.3)\nwhile time.process_time() < 0.2: pass\ntime.sleep(60)"
    running = script.Running.__new__(script.Running)
    child = subprocess.Popen([sys.executable, "-c", work])
    running.pids, running._fds, running._codes = [child.pid], [os.pidfd_open(child.pid)], {}
    running.worked = [0.0]
    assert not running.ended_before(0.1, 50.0)
    child.kill()
    assert running.ended_before(10.0, 50.0)
    child.returncode = -9  # It has been waited for.
    assert 0.09 < running.worked[0] < 0.25


def test_trials_that_were_cut_off_while_written_are_made_again(script, tmp_path):
    (tmp_path / "lines").write_text('{"row": "a"}\n{"row": "b", "tri')
    assert script.read_lines(tmp_path / "lines") == [{"row": "a"}]
    assert script.read_lines(tmp_path / "none") == []


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="forks, pidfds and mounts of Linux")
def test_generation_that_is_killed_resumes_and_trials_with_a_line_are_not_made_again(tmp_path):
    found = dict.fromkeys(("identical", "named", "repaired", "refused", "wrong", "hang"), False)
    counts = {"signals": 2, "lost": 0, "again": 0}
    known = {"row": "kill/generate", "trial": 0, **found, **counts, "unclear": "", "seconds": 1.0}
    (tmp_path / "trials.jsonl").write_text(json.dumps(known))
    words = ["--out", tmp_path, "--only", "kill/generate", "--trials", 3]
    command = [sys.executable, SCRIPT, *words]
    # The suite's flags compile fast and run slowly.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert lines[0] == known
    assert sorted(line["trial"] for line in lines) == [0, 1, 2]
    for line in lines[1:]:
        assert line["identical"]
        assert line["did"].startswith("SIGKILL after ")
    sums = f"| 3 | {sum(line['signals'] for line in lines)} | 0 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |"
    assert sums in (tmp_path / "table.md").read_text()
