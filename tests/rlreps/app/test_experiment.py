"""The commands below ``rlreps experiment``."""

import types

import jax
import pytest

from rlreps.app import command_options
from rlreps.app.commands import COMMANDS
from rlreps.experiments import EXPERIMENTS, PAPERS, Entry


@pytest.fixture
def told(monkeypatch):
    """What experiments are told to do: presets stand for themselves, nothing is run."""
    given = []

    def record(job, out, **places):
        given.append((job.config, out, {"data": job.data, **places}))
        claim = {"statement": "It", "stated": "so", "found": "thus", "holds": None}
        return {"claims": [claim], "report": "page"}

    presets = {name: name for name in ("smoke", "laptop", "paper")}
    monkeypatch.setattr(Entry, "load", lambda self: types.SimpleNamespace(presets=presets))
    monkeypatch.setattr(command_options, "run_job", record)
    monkeypatch.setattr(command_options, "executor_named", str)
    return given


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_options_reach_every_experiment_and_its_claims_the_terminal(name, told, tmp_path, rlreps):
    entry = EXPERIMENTS[name]
    words = [name] if name in COMMANDS else ["experiment", name]
    arguments = [*words, "--out", tmp_path / "run", "--preset", "paper"]
    expected = {"data": None, "devices": None, "jobs": 1, "executor": None}
    if entry.shares_devices:
        expected["devices"] = jax.devices()
    if "data" in entry.takes:
        arguments += ["--data", tmp_path / "rows.npy"]
        expected["data"] = tmp_path / "rows.npy"
    if "devices" in entry.takes:
        arguments += ["--devices", 1]
        expected["devices"] = jax.local_devices()[:1]
    if "jobs" in entry.takes:
        arguments += ["--jobs", 3, "--executor", "module:function"]
        expected |= {"jobs": 3, "executor": "module:function"}
    printed = rlreps(*arguments, "--quiet")
    assert told == [("paper", tmp_path / "run", expected)]
    assert "\nIt: cannot be told\n" in printed
    assert "\nReport: page\n" in printed


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_presets(name):
    entry = EXPERIMENTS[name]
    assert entry.paper in PAPERS.values()
    presets = entry.load().presets
    assert list(presets) == list(entry.presets)
    assert list(presets)[:3] == ["smoke", "laptop", "paper"]
    assert len({type(preset) for preset in presets.values()}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tetris --out run", "tetris"),
        ("synthetic --preset huge --out run", "huge"),
        ("online-pca --data nowhere.npy --out run", "got 'nowhere.npy'"),
    ],
)
def test_invalid_input_is_refused_in_one_line(arguments, message, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("experiment", *arguments.split())
    assert list(tmp_path.iterdir()) == []
