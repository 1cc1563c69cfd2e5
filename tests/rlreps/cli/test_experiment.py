"""The commands below ``rlreps experiment``."""

import dataclasses
import re
import types

import jax
import pytest

from rlreps.cli import COMMANDS, main
from rlreps.experiments import EXPERIMENTS, PAPERS, Entry
from rlreps.experiments.le_lan_2023 import synthetic


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
    if entry.takes_jobs:
        arguments += ["--jobs", 3]
        expected["jobs"] = 3
    printed = rlreps(*arguments, "--quiet")
    assert told == [("paper", tmp_path / "run", expected)]
    assert printed.startswith("What is stated, and what was found\n\nIt: cannot be told\n")
    assert re.search(r"^Report: page$", printed, flags=re.MULTILINE)
    rlreps(*words_of(name), "--out", tmp_path)
    assert told[1][0] == "laptop"
    assert told[1][2]["progress"] is True


def test_experiments_are_listed_by_paper_with_what_their_presets_took(rlreps):
    said = rlreps("experiment", "--help")
    _, *papers = re.split(f"^ ({'|'.join(PAPERS.values())})$", said, flags=re.MULTILINE)
    listed = dict(zip(papers[::2], papers[1::2], strict=True))
    for name, entry in EXPERIMENTS.items():
        assert {*entry.durations} <= {*entry.presets}
        took = ", ".join(f"{preset} {time}" for preset, time in entry.durations.items())
        line = rf"\n +{re.escape(took)}" if took else ""
        expected = rf"experiment {name} +{re.escape(entry.description)}{line}\n"
        # An experiment that is a command of its own is listed with the commands.
        assert bool(re.search(expected, listed[entry.paper])) == (name not in COMMANDS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_presets_and_help_for_its_options(name, capsys):
    entry = EXPERIMENTS[name]
    assert entry.paper in PAPERS.values()
    presets = entry.load().presets
    assert list(presets) == list(entry.presets)
    assert list(presets)[:3] == ["smoke", "laptop", "paper"]
    assert len({type(preset) for preset in presets.values()}) == 1
    with pytest.raises(SystemExit) as ending:
        main([*words_of(name), "--help"])
    printed = capsys.readouterr().out
    said = " ".join(printed.replace("│", " ").split())
    assert ending.value.code == 0
    sizes = [" ".join(preset) for preset in entry.presets.items()]
    for text in ("Folder of the run; run again to resume", *sizes, "Show no progress bars"):
        assert text in said
    assert ("--data " in printed) == entry.takes_data
    assert ("--devices " in printed) == (entry.devices == "chosen")


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


@pytest.mark.integration
def test_a_folder_of_another_preset_is_left_alone(tmp_path, rlreps, refused, monkeypatch):
    tiny = dataclasses.replace(
        synthetic.PRESETS["smoke"],
        **{"num_states": 12, "dimension": 2, "dimensions": (2,), "kappa_dimensions": (2,)},
        **{"more_dimensions": (2,), "permuted_rows": (1,), "pseudo_totals": (15,)},
        **{"feature_norms": ("batch",)},
        **{"steps": 2, "evaluate_every": 1, "checkpoint_every": 2, "num_seeds": 2},
        **{"rows_by_total": (1,), "totals": (15,)},
    )
    monkeypatch.setitem(synthetic.PRESETS, "smoke", tiny)
    arguments = [
        *["experiment", "synthetic", "--preset", "smoke", "--quiet", "--out"],
        tmp_path / "run",
    ]
    assert rlreps(*arguments) == rlreps(*arguments)
    monkeypatch.setitem(synthetic.PRESETS, "smoke", dataclasses.replace(tiny, step_size=1.0))
    assert "expected step_size=0.001, got 1.0" in refused(*arguments)
