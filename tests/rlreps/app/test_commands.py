"""Every command in process on one small store, and everything that the command line refuses."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from rlreps.app.main import main
from rlreps.runs.folder import RunFolder

words = str.split
TRAIN = words(
    "--num-features 3 --steps 60 --rows 40 --tasks 32 --hidden 16 --evaluate-every 20 "
    "--checkpoint-every 20 --learning-rate 0.01 --quiet"
)
GENERATE = words("--bins 8 --rollouts 40 --horizon 60 --discount 0.9 --block-rows 16 --quiet")
"""The settings of the toy store."""


@pytest.mark.integration
def test_every_command_works_from_generation_to_pictures(rlreps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = json.loads(rlreps("successor", "generate", *GENERATE))
    store, run = Path(made["path"]), tmp_path / "run"
    assert str(store) == "data/sutton-8bins-40rollouts-60steps-discount0.9-seed0"
    fresh = shutil.copytree(store, tmp_path / "fresh")
    info = json.loads(rlreps("successor", "info", store, "--json", "--quiet"))
    assert (info["shape"], info["missing_blocks"]) == ([64, 64], 0)
    assert info["settings"]["discount"] == 0.9
    error = info["error"]["subspace_distance"]
    assert len(error) == 63  # the rank of a centred 64 x 64 matrix
    assert 0.0 < error[4] < 0.25
    said = rlreps("successor", "info", store, "--figure", tmp_path / "error.png")
    assert f"   5 {error[4]:9.3g}" in said
    assert (tmp_path / "error.png").stat().st_size > 1000
    verified = rlreps("successor", "verify", store)
    assert "4 blocks are whole, rows sum to 9.98203" in verified
    assert info["checksum"] in verified
    spectrum = rlreps("svd", store, "--rank", "5", "--quiet").splitlines()
    assert spectrum[0].startswith("total energy")
    values = [float(line.split()[1]) for line in spectrum[2:7]]
    assert values == sorted(values, reverse=True)
    summary = json.loads(rlreps("train", store, "--out", run, *TRAIN))
    assert json.loads((run / "summary.json").read_text()) == summary
    evaluated = json.loads(rlreps("evaluate", run))
    assert evaluated["subspace_distance"] == pytest.approx(summary["subspace_distance"], rel=1e-4)
    compared = tmp_path / "compared"
    assert "excess loss" in rlreps("compare", run, run, "--out", compared, "--quiet")
    for name, arguments in {
        "env": ["--arena", "hydrogen", "--bins", "8"],
        "components": [store, "--runs", run, "--d", "3"],
        "spectrum": [store, "--rank", "5"],
        "curves": [run],
    }.items():
        figure = tmp_path / "figures" / f"{name}.png"
        assert rlreps("plot", name, *arguments, "--out", figure) == f"wrote {figure}\n"
        with Image.open(figure) as picture:
            picture.load()
            assert picture.format == "PNG"
            assert len(picture.convert("L").getcolors()) > 10
    page = tmp_path / "page.html"
    said = rlreps("explore", store, run, "--out", page, "--components", "5", "--quiet")
    assert said == f"wrote {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # Quiet where nothing is kept beside the store, too.
    rlreps("explore", fresh, "--out", page, "--components", "5", "--quiet")


@pytest.mark.integration
def test_two_stores_are_compared(rlreps, toy_store, tmp_path):
    sampled, exact = shutil.copytree(toy_store, tmp_path / "sampled"), tmp_path / "exact"
    exactly = "--method transition --bins 8 --horizon 60 --discount 0.9 --points 64 --quiet"
    rlreps("successor", "generate", "--out", exact, *words(exactly))
    out = tmp_path / "compared.png"
    said = rlreps("successor", "compare", sampled, exact, "--figure", out, "--quiet").splitlines()
    assert said[0] == f"distance between {sampled} and {exact}"
    assert 0.0 < float(said[1].split()[1]) < 0.5
    assert out.stat().st_size > 1000
    assert json.loads(rlreps("successor", "info", exact, "--json"))["error"] is None


@pytest.mark.parametrize("how", ["missing", "incomplete", "corrupt", "metadata"])
def test_a_store_that_cannot_be_used_is_refused_by_every_command_that_reads_it(
    refused, toy_store, tmp_path, how
):
    store = tmp_path / "psi"
    if how != "missing":
        shutil.copytree(toy_store, store)
    block = store / "c" / "1" / "0"
    if how == "incomplete":
        block.unlink()
    elif how == "corrupt":
        content = bytearray(block.read_bytes())
        content[10] ^= 1
        block.write_bytes(content)
    elif how == "metadata":
        (store / "zarr.json").write_text("{")
    for arguments in (
        ["train", store, "--out", tmp_path / "run", *TRAIN],
        ["svd", store, "--rank", "5"],
        ["successor", "verify", store],
        ["plot", "components", store, "--d", "2", "--out", tmp_path / "figure.png"],
    ):
        message = refused(*arguments)
        assert str(store) in message
        assert how in ("missing", "metadata") or "block 1" in message or "missing: 1" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", r"expected a command of rlreps \(.*\), got 'trian'; did you mean train\?"),
        (
            "successor generate --method transition --rollouts 9",
            "got --rollouts; options of transition: .*--points, --refinement",
        ),
        ("train psi --out run --method danskin_lissa --kappa0 0", r"kappa0 in \(0, 2\), got 0.0"),
        ("successor generate --executor dask", "executor as MODULE:NAME, got 'dask'"),
        ("successor generate --executor nowhere:f", "at nowhere:f, got ModuleNotFoundError"),
        ("successor generate --executor builtins:list", r"concurrent.futures.Executor, got \[\]"),
    ],
)
def test_a_command_line_that_does_not_fit_is_refused_in_one_line(
    refused, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused(*words(arguments)))


def test_a_message_holds_no_character_that_a_terminal_obeys(refused, tmp_path):
    RunFolder.create_or_resume(tmp_path / "run", kind="\x1b]0;own\a", config={}, provenance={})
    message = refused("evaluate", tmp_path / "run")
    assert r"\x1b]0;own\x07" in message
    assert message.isprintable()


def test_divergence_ends_with_code_1_and_one_line(capsys, toy_store, tmp_path):
    wild = [*TRAIN, "--optimizer", "sgd", "--learning-rate", "1e30", "--schedule", "constant"]
    with pytest.raises(SystemExit) as ending:
        main(["train", str(toy_store), "--out", str(tmp_path / "run"), *wild])
    assert ending.value.code == 1
    assert re.fullmatch(
        r"rlreps: error: expected finite losses and parameters, got NaN or infinity at step \d+ of "
        r"seed 0; try a smaller learning rate or kappa0; no checkpoint was made\n",
        capsys.readouterr().err,
    )
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "asked to end")]
)
def test_a_signal_ends_a_process_with_its_code_and_one_line(
    start_rlreps, toy_store, tmp_path, number, said
):
    out = tmp_path / "run"
    running = start_rlreps("train", toy_store, "--out", out, *TRAIN, "--steps", "100000")
    metrics = out / "metrics.jsonl"
    while running.poll() is None and not (
        metrics.exists() and b'"step": 40' in metrics.read_bytes()
    ):
        time.sleep(0.02)
    running.send_signal(number)
    line = f"rlreps: {said}; run the same command again to continue\n"
    assert running.communicate(timeout=120) == ("", line)
    assert running.returncode == 128 + number
    assert RunFolder(out).read_metrics()[-1]["step"] >= 40


def test_an_error_of_the_system_is_said_without_its_number(refused, monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise FileExistsError(17, "File exists", "f")

    monkeypatch.setattr("rlreps.app.trained_runs.RunFolder", fail)
    said = refused("evaluate", tmp_path)
    assert said == "expected files that can be read and written, got File exists: f"


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("rlreps.app.trained_runs.RunFolder", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        main(["evaluate", str(tmp_path)])


def test_neither_help_nor_the_package_imports_the_heavy_libraries():
    code = (
        "import sys, rlreps; from rlreps.app.main import main; main(['--help']); "
        "print('loaded', {'jax', 'matplotlib', 'gymnasium', 'rlax', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.rstrip().endswith("loaded set()")
