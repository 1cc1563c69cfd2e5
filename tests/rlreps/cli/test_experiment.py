"""The commands below ``rlreps experiment``."""

import dataclasses
import re
import types

import jax
import pytest

from rlreps.cli import main
from rlreps.experiments import EXPERIMENTS, PAPERS, Entry
from rlreps.experiments.le_lan_2023 import synthetic


def run(capsys, *arguments):
    """(exit code, standard output, standard error) of the command."""
    code = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as ending:
        code = ending.code
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def told(monkeypatch):
    """What experiments are told to do: presets stand for themselves, nothing is run."""
    given = []

    def record(config, out, **options):
        given.append((config, out, options))
        claim = {"statement": "It", "stated": "so", "found": "thus", "holds": None}
        return {"claims": [claim], "report": "page"}

    presets = {name: name for name in ("smoke", "laptop", "paper")}
    monkeypatch.setattr(
        Entry, "load", lambda self: types.SimpleNamespace(presets=presets, run=record)
    )
    return given


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_options_reach_every_experiment_and_its_claims_the_terminal(name, told, tmp_path, capsys):
    entry = EXPERIMENTS[name]
    arguments = ["experiment", name, "--out", tmp_path / "run", "--preset", "paper"]
    expected = {"progress": False}
    if entry.takes_data:
        arguments += ["--data", tmp_path / "rows.npy"]
        expected["data"] = tmp_path / "rows.npy"
    if entry.devices is not None:
        expected["devices"] = (
            jax.local_devices()[:1] if entry.devices == "chosen" else jax.devices()
        )
    if entry.devices == "chosen":
        arguments += ["--devices", 1]
    code, printed, _ = run(capsys, *arguments, "--quiet")
    assert code == 0
    assert told == [("paper", tmp_path / "run", expected)]
    assert printed.startswith("What is stated, and what was found\n\nIt: cannot be told\n")
    assert re.search(r"^Report: page$", printed, flags=re.MULTILINE)
    assert run(capsys, "experiment", name, "--out", tmp_path)[0] == 0
    assert told[1][0] == "laptop"
    assert told[1][2]["progress"] is True


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_presets_and_help_for_its_options(name, capsys):
    entry = EXPERIMENTS[name]
    assert entry.paper in PAPERS.values()
    presets = entry.load().presets
    assert list(presets) == ["smoke", "laptop", "paper"]
    assert len({type(preset) for preset in presets.values()}) == 1
    code, printed, _ = run(capsys, "experiment", name, "--help")
    said = " ".join(printed.replace("│", " ").split())
    assert code == 0
    for text in ("Folder of the run; run again to resume", "smoke takes", "Show no progress bars"):
        assert text in said
    assert ("--data " in printed) == entry.takes_data
    assert ("--devices " in printed) == (entry.devices == "chosen")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tetris", "--out", "run"), "tetris"),
        (("synthetic", "--preset", "huge", "--out", "run"), "huge"),
        (("synthetic",), "--out"),
        (("synthetic", "--data", "x", "--out", "run"), "--data"),
        (("mnist", "--data", "nowhere", "--out", "run"), "nowhere"),
        (("online-pca", "--data", "nowhere.npy", "--out", "run"), "got 'nowhere.npy'"),
        (("distributed-pca", "--data", "nowhere.npy", "--out", "run"), "got 'nowhere.npy'"),
    ],
)
def test_invalid_input_is_refused_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, error = run(capsys, "experiment", *arguments)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_a_folder_of_another_preset_is_left_alone(tmp_path, capsys, files_below, monkeypatch):
    tiny = dataclasses.replace(
        synthetic.PRESETS["smoke"],
        **{"num_states": 12, "dimension": 2, "dimensions": (2,), "kappa_dimensions": (2,)},
        **{"steps": 2, "evaluate_every": 1, "checkpoint_every": 2, "num_seeds": 2},
        **{"rows_by_total": (1,), "totals": (15,)},
    )
    monkeypatch.setitem(synthetic.PRESETS, "smoke", tiny)
    out = tmp_path / "run"
    arguments = ("experiment", "synthetic", "--preset", "smoke", "--out", out, "--quiet")
    first = run(capsys, *arguments)
    assert first[0] == 0
    assert run(capsys, *arguments) == first
    before = files_below(out)
    monkeypatch.setitem(synthetic.PRESETS, "smoke", dataclasses.replace(tiny, kappa0=1.0))
    code, printed, error = run(capsys, *arguments)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert "expected kappa0=1.9, got 1.0" in error
    assert files_below(out) == before
