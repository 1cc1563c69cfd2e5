"""The commands below ``rlreps experiment``."""

import re
import types

import jax
import pytest

from rlreps.cli import COMMANDS, main
from rlreps.experiments import EXPERIMENTS, PAPERS, Entry


def words_of(name):
    """Spell an experiment's command."""
    return [name] if name in COMMANDS else ["experiment", name]


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
def test_options_reach_every_experiment_and_its_claims_the_terminal(name, told, tmp_path, rlreps):
    entry = EXPERIMENTS[name]
    arguments = [*words_of(name), "--out", tmp_path / "run", "--preset", "paper"]
    expected = {"data": None, "jobs": 1}
    if entry.shares_devices:
        expected["devices"] = jax.devices()
    if "data" in entry.takes:
        arguments += ["--data", tmp_path / "rows.npy"]
        expected["data"] = tmp_path / "rows.npy"
    if "devices" in entry.takes:
        arguments += ["--devices", 1]
        expected["devices"] = jax.local_devices()[:1]
    if "jobs" in entry.takes:
        arguments += ["--jobs", 3]
        expected["jobs"] = 3
    printed = rlreps(*arguments, "--quiet")
    assert told == [("paper", tmp_path / "run", expected)]
    assert printed.startswith("What is stated, and what was found\n\nIt: cannot be told\n")
    assert re.search(r"^Report: page$", printed, flags=re.MULTILINE)


def test_experiments_are_listed_by_paper_with_what_their_presets_took(rlreps):
    said = rlreps("experiment", "--help")
    _, *papers = re.split(f"^ ({'|'.join(PAPERS.values())})$", said, flags=re.MULTILINE)
    listed = dict(zip(papers[::2], papers[1::2], strict=True))
    for name, entry in EXPERIMENTS.items():
        took = ", ".join(f"{preset}: {time}" for preset, time in entry.presets.items())
        expected = rf"experiment {name} +{re.escape(entry.description)}\n +{re.escape(took)}\n"
        # An experiment that is a command of its own is listed with the commands.
        assert bool(re.search(expected, listed[entry.paper])) == (name not in COMMANDS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_presets(name):
    entry = EXPERIMENTS[name]
    assert entry.paper in PAPERS.values()
    presets = entry.load().presets
    assert list(presets) == list(entry.presets)
    assert list(presets)[:3] == ["smoke", "laptop", "paper"]
    assert len({type(preset) for preset in presets.values()}) == 1


@pytest.mark.parametrize("name", ["mnist", "synthetic"])
def test_help_has_the_options_that_an_experiment_takes(name, capsys):
    entry = EXPERIMENTS[name]
    with pytest.raises(SystemExit) as ending:
        main(["experiment", name, "--help"])
    printed = capsys.readouterr().out
    said = " ".join(printed.replace("│", " ").split())
    assert ending.value.code == 0
    sizes = [": ".join(preset) for preset in entry.presets.items()]
    for text in ("Folder of the run; run again to resume", *sizes, "(default: laptop)"):
        assert text in said
    assert ("--data " in printed) == ("data" in entry.takes)
    assert "--devices " not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tetris --out run", "tetris"),
        ("synthetic --preset huge --out run", "huge"),
        ("synthetic", "--out"),
        ("online-pca --data nowhere.npy --out run", "got 'nowhere.npy'"),
    ],
)
def test_invalid_input_is_refused_in_one_line(arguments, message, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("experiment", *arguments.split())
    assert list(tmp_path.iterdir()) == []
