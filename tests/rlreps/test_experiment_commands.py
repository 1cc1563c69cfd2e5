import dataclasses
import importlib
import re

import pytest

from rlreps import cli
from rlreps.experiments.synthetic.config import PRESETS

pytestmark = pytest.mark.usefixtures("compilation_cache")

TINY = dataclasses.replace(
    PRESETS["smoke"],
    num_states=12,
    dimension=3,
    dimensions=(2,),
    rows_by_total=(1,),
    totals=(15,),
    kappa_dimensions=(3,),
    steps=4,
    evaluate_every=2,
    checkpoint_every=4,
    num_seeds=2,
)
EXPERIMENTS = (
    "synthetic",
    "mnist",
    "puddle-world",
    "puddle-world-fast",
    "hydrogen",
    "bouncing-balls",
    "slow-puddle",
    "atari",
)


def run(capsys, *arguments):
    """(exit code, standard output, standard error) of the command."""
    code = 0
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as ending:
        code = ending.code
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(PRESETS, "smoke", TINY)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_three_presets(name):
    package = name.replace("-", "_")
    presets = importlib.import_module(f"rlreps.experiments.{package}.config").PRESETS
    assert list(presets) == ["smoke", "laptop", "paper"]
    assert len({type(preset) for preset in presets.values()}) == 1


def test_an_experiment_prints_what_was_stated_and_found(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ("experiment", "synthetic", "--preset", "smoke", "--out", out, "--quiet")
    code, printed, _ = run(capsys, *arguments)
    assert code == 0
    assert printed.startswith("What is stated, and what was found\n")
    assert re.search(r"^Report: .*report\.html$", printed, flags=re.MULTILINE)
    assert (out / "report.html").stat().st_size > 10_000
    assert run(capsys, *arguments) == (0, printed, "")


def test_a_folder_of_another_preset_is_left_alone(tiny, tmp_path, capsys, files_below, monkeypatch):
    out = tmp_path / "run"
    arguments = ("experiment", "synthetic", "--preset", "smoke", "--out", out, "--quiet")
    assert run(capsys, *arguments)[0] == 0
    before = files_below(out)
    monkeypatch.setitem(PRESETS, "smoke", dataclasses.replace(TINY, kappa0=1.0))
    code, printed, error = run(capsys, *arguments)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert "expected kappa0=1.9, got 1.0" in error
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("experiment", "tetris", "--out", "run"), "tetris"),
        (("experiment", "synthetic", "--preset", "huge", "--out", "run"), "huge"),
        (("experiment", "synthetic"), "--out"),
        (("experiment", "mnist", "--data-dir", "nowhere", "--out", "run"), "nowhere"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    arguments, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, printed, error = run(capsys, *arguments)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []
