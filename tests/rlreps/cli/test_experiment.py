import dataclasses
import importlib
import re

import jax
import pytest

from rlreps.cli import main as cli
from rlreps.experiments.le_lan_2023.synthetic.config import PRESETS

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
    "agent-puddle-world",
    "agent-control",
    "representation-transfer",
    "online-pca",
    "learning-rate-sensitivity",
    "distributed-pca",
)
ON_ROWS = EXPERIMENTS[-3:]


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


@pytest.mark.parametrize("name", ON_ROWS)
def test_rows_that_are_not_there_are_refused_in_one_line(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("experiment", name, "--preset", "smoke", "--data", "nowhere.npy", "--out", "run")
    code, printed, error = run(capsys, *arguments)
    assert (code, printed) == (2, "")
    assert error.startswith("rlreps: error: expected a folder with train-images-idx3-ubyte")
    assert error.endswith("a .npy or .npz file; got 'nowhere.npy'\n")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ON_ROWS)
def test_the_preset_the_rows_and_the_devices_reach_the_experiment(name, tmp_path, monkeypatch):
    package = name.replace("-", "_")
    module = importlib.import_module(f"rlreps.experiments.{package}.run")
    presets = importlib.import_module(f"rlreps.experiments.{package}.config").PRESETS
    given = []

    def record(config, out, **options):
        given.append((config, out, options))
        return {"claims": [], "report": "page"}

    monkeypatch.setattr(module, f"run_{package}", record)
    arguments = ("--data", tmp_path / "rows.npy", "--out", tmp_path / "run", "--preset", "paper")
    cli.main(["experiment", name, *map(str, arguments)])
    cli.main(["experiment", name, "--out", str(tmp_path / "run"), "--quiet"])
    (config, out, options), (default, _, others) = given
    assert config is presets["paper"]
    assert default is presets["laptop"]
    assert out == tmp_path / "run"
    assert options == {
        "data": tmp_path / "rows.npy",
        "devices": jax.local_devices(),
        "progress": True,
    }
    assert others == {"data": None, "devices": jax.local_devices(), "progress": False}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_explains_every_option_of_every_experiment(name, capsys):
    code, printed, _ = run(capsys, "experiment", name, "--help")
    assert code == 0
    for text in ("Folder of the run; run again to resume", "smoke takes", "Show no progress bars"):
        assert text in " ".join(printed.replace("│", " ").split())
    assert ("--data " in printed) == (name in ON_ROWS)


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
