"""The campaign of faults: it tells results apart, flips bits, and says what became of a trial."""

import shutil

import pytest


@pytest.fixture
def run(tmp_path):
    """A run, as far as the campaign looks at it."""
    folder = tmp_path / "undisturbed" / "svd"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "40").write_text("arrays")
    (folder / "config.json").write_text('{"config": {"seed": 1}, "provenance": {"device": "cpu"}}')
    (folder / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.5, "loss": [0.25]}\n')
    (folder / "features").write_bytes(b"\x00\x01")
    return folder


@pytest.fixture(scope="module")
def script(load):
    return load("faults_campaign")


def test_runs_that_differ_in_times_and_provenance_alone_hold_the_same(script, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    (other / "config.json").write_text('{"config": {"seed": 1}, "provenance": {"device": "gpu"}}')
    (other / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.7, "loss": [0.25]}\n')
    (other / ".lock").touch()
    assert script.results(other) == script.results(run)
    (other / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.7, "loss": [0.5]}\n')
    assert script.results(other)["metrics.jsonl"] != script.results(run)["metrics.jsonl"]


@pytest.mark.parametrize(
    ("program", "column"),
    [
        ("pass", "left as it was"),
        ("print('rlreps: error: damaged', file=sys.stderr); sys.exit(2)", "refused"),
        ("sys.exit('rlreps: error: expected an undamaged file')", "unclear ends"),
        ("[path.write_text('x') for path in pathlib.Path().glob('*')]", "wrong results used"),
    ],
)
def test_what_became_of_a_flip_in_a_finished_run(script, run, monkeypatch, program, column):
    shutil.rmtree(run / "checkpoints")
    monkeypatch.setattr(
        script,
        "start",
        lambda job, folder: script.subprocess.Popen(
            [script.sys.executable, "-c", f"import sys, pathlib; {program}"],
            cwd=folder,
            stderr=script.subprocess.PIPE,
            text=True,
        ),
    )
    assert script.trial("flip, finished", "svd", 0, run.parents[1], 1.0) == column
