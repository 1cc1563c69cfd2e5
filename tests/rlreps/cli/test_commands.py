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

from rlreps import cli
from rlreps.agents.auxiliary import TASKS
from rlreps.cumulants import CUMULANTS
from rlreps.encoders import ENCODERS
from rlreps.losses import OBJECTIVES
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure import MonteCarlo

words = str.split
TRAIN = words(
    "--num-features 3 --steps 60 --rows 40 --tasks 32 --hidden 16 --evaluate-every 20 "
    "--checkpoint-every 20 --learning-rate 0.01 --quiet"
)
GENERATE = words("--bins 8 --rollouts 40 --horizon 60 --discount 0.9 --block-rows 16 --quiet")
"""The settings of the toy store."""


@pytest.fixture(scope="module")
def trained(toy_store, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    cli.main(["train", str(toy_store), "--out", str(out), *TRAIN])
    return out


@pytest.mark.integration
def test_every_command_works_from_generation_to_pictures(rlreps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = json.loads(rlreps("successor", "generate", *GENERATE))
    assert made["transitions"] == made["computed_transitions"] == 64 * 40 * 60
    store, run = Path(made["path"]), tmp_path / "run"
    assert str(store) == "data/sutton-8bins-40rollouts-60steps-discount0.9-seed0"
    again = json.loads(rlreps("successor", "generate", "--out", store, *GENERATE))
    assert again["computed_transitions"] == 0
    assert again["transitions_per_second"] is None
    fresh = shutil.copytree(store, tmp_path / "fresh")
    info = json.loads(rlreps("successor", "info", store, "--json", "--quiet"))
    assert (info["shape"], info["missing_blocks"]) == ([64, 64], 0)
    assert info["settings"]["discount"] == 0.9
    error = info["error"]["subspace_distance"]
    assert len(error) == 63  # the rank of a centred 64 x 64 matrix
    assert 0.0 < error[4] < 0.25
    said = rlreps("successor", "info", store, "--figure", tmp_path / "error.png")
    assert f"   5 {error[4]:9.3g}" in said
    assert f"standard error of an entry: {info['error']['standard_error']:.3g}" in said
    assert (tmp_path / "error.png").stat().st_size > 1000
    verified = rlreps("successor", "verify", store)
    assert "4 blocks are whole, rows sum to 9.98203" in verified
    assert info["checksum"] in verified
    spectrum = rlreps("svd", store, "--rank", "5", "--quiet").splitlines()
    assert len(spectrum) == 8
    assert spectrum.pop().startswith("peak memory ")
    assert spectrum[0].startswith("total energy")
    values = [float(line.split()[1]) for line in spectrum[2:]]
    assert values == sorted(values, reverse=True)
    summary = json.loads(rlreps("train", store, "--out", run, *TRAIN))
    assert json.loads((run / "summary.json").read_text()) == summary
    start = time.perf_counter()
    assert json.loads(rlreps("train", store, "--out", run, *TRAIN)) == summary
    assert time.perf_counter() - start < 2.0
    evaluated = json.loads(rlreps("evaluate", run))
    assert evaluated["subspace_distance"] == pytest.approx(summary["subspace_distance"], rel=1e-4)
    compared = tmp_path / "compared"
    assert "excess loss" in rlreps("compare", run, run, "--out", compared, "--quiet")
    written = sorted(path.name for path in compared.iterdir())
    assert written == ["comparison.csv", "curves.png", "seeds.csv"]
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
            assert min(picture.size) > 100
            assert len(picture.convert("L").getcolors()) > 10
    page = tmp_path / "page.html"
    said = rlreps("explore", store, run, "--out", page, "--components", "5", "--quiet")
    assert said == f"wrote {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # Quiet where nothing is kept beside the store, too.
    rlreps("explore", fresh, "--out", page, "--components", "5", "--quiet")


@pytest.mark.integration
def test_two_stores_are_compared_beside_their_noise_floors(rlreps, toy_store, tmp_path):
    sampled, again = (shutil.copytree(toy_store, tmp_path / name) for name in ("sampled", "again"))
    exact = tmp_path / "exact"
    exactly = "--method transition --bins 8 --horizon 60 --discount 0.9 --points 64 --quiet"
    made = json.loads(rlreps("successor", "generate", "--out", exact, *words(exactly)))
    assert made["computed_rows"] == 64
    assert "transitions" not in made
    out = tmp_path / "compared.png"
    said = rlreps("successor", "compare", sampled, exact, "--figure", out, "--quiet").splitlines()
    assert said[0] == f"distance between {sampled} and {exact}"
    assert said[21] == f"noise floor of {sampled}"
    assert said[42] == f"aggregation error, from refinements 1 and 2 of {exact}"
    assert len(said) == 64
    assert 0.0 < float(said[1].split()[1]) < 0.5
    assert out.stat().st_size > 1000
    alone = json.loads(rlreps("successor", "info", exact, "--json"))
    assert alone["error"]["standard_error"] is None
    assert 0.0 < alone["error"]["subspace_distance"][4] < 0.5
    assert alone["settings"]["method"] == "transition"
    assert "rollouts" not in alone["settings"]
    note = rlreps("successor", "compare", sampled, again, "--quiet").splitlines()[0]
    assert note.startswith("note: both were sampled with seed 0 and share rollouts")


def test_default_folders_tell_configurations_apart():
    changes = [
        *({}, {"bins": 50}, {"rollouts": 10}, {"horizon": 10}, {"discount": 0.95}),
        *({"count_start": False}, {"seed": 1}, {"arena": "hydrogen"}, {"centring": "rows"}),
    ]
    names = [MonteCarlo(**change).store_name for change in changes]
    assert len({*names}) == len(names)
    assert "-first-successor-" in names[5]


BAD_TRAIN = {
    "--method magic": "method to be one of .*danskin_lissa.* got 'magic'",
    "--encoder cnn": "encoder to be one of .*fourier_mlp.* got 'cnn'",
    "--method danskin_lissa --kappa0 0": r"expected kappa0 in \(0, 2\), got 0.0",
    "--method spin --rows 2": "rows >= 3.* got 2",
    "--steps ten": "--steps: .*'ten'",
    "--stepz 5": "--stepz",
    "--num-features 64": "expected d < 64, .*, got 64",
    "--checkpoint-every 30": "multiple of evaluate_every .20., got 30",
}


@pytest.mark.parametrize("arguments", BAD_TRAIN)
def test_training_that_cannot_be_is_refused_in_one_line(refused, toy_store, tmp_path, arguments):
    said = refused("train", toy_store, "--out", tmp_path / "run", *TRAIN, *words(arguments))
    assert re.search(BAD_TRAIN[arguments], said)


@pytest.mark.parametrize("how", ["missing", "incomplete", "corrupt", "metadata"])
def test_a_store_that_cannot_be_used_is_refused_by_every_command_that_reads_it(
    refused, toy_store, tmp_path, how
):
    store, figure = tmp_path / "psi", tmp_path / "figure.png"
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
        ["plot", "spectrum", store, "--rank", "5", "--out", figure],
        ["plot", "components", store, "--d", "2", "--out", figure],
    ):
        message = refused(*arguments)
        assert str(store) in message
        assert how in ("missing", "metadata") or "block 1" in message or "missing: 1" in message


def test_an_output_folder_with_something_else_in_it_is_refused(
    refused, toy_store, trained, tmp_path
):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("precious")
    shutil.copytree(trained, tmp_path / "run")
    for command, other_run in (
        (["train", toy_store, *TRAIN, "--steps", "40"], "expected steps=60, got 40"),
        (["quickstart", "--preset", "smoke"], "holds a training run, not a quickstart"),
        (["successor", "generate", *GENERATE], "other entries"),
    ):
        found = {
            name: refused(*command, "--out", tmp_path / name) for name in ("notes", "file", "run")
        }
        assert "thesis.tex" in found["notes"]
        assert "file" in found["file"]
        assert other_run in found["run"]
        assert all("expected" in message for message in found.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", r"expected a command of rlreps \(.*\), got 'trian'; did you mean train\?"),
        ("quickstart", "--out"),
        (
            "successor generate --method transition --rollouts 9",
            "got --rollouts; options of transition: .*--points, --refinement",
        ),
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
        cli.main(["train", str(toy_store), "--out", str(tmp_path / "run"), *wild])
    assert ending.value.code == 1
    assert re.fullmatch(
        r"rlreps: error: expected finite losses and parameters, got NaN or infinity at step \d+ of "
        r"seed 0; try a smaller learning rate or kappa0; no checkpoint was made\n",
        capsys.readouterr().err,
    )
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, "rlreps: interrupted; run the same command again to continue\n"),
        (signal.SIGTERM, "rlreps: asked to end; run the same command again to continue\n"),
        (signal.SIGHUP, "rlreps: asked to end; run the same command again to continue\n"),
    ],
)
def test_a_signal_ends_a_process_with_its_code_and_one_line(
    start_rlreps, toy_store, tmp_path, number, line
):
    out = tmp_path / "run"
    # The tests themselves may run under nohup.
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    long = (*TRAIN, "--steps", "100000")
    running = start_rlreps("train", toy_store, "--out", out, *long, first=heard)
    metrics = out / "metrics.jsonl"
    while running.poll() is None and not (
        metrics.exists() and b'"step": 40' in metrics.read_bytes()
    ):
        time.sleep(0.02)
    running.send_signal(number)
    said, error = running.communicate(timeout=120)
    assert (running.returncode, said, error) == (128 + number, "", line)
    assert RunFolder(out).read_metrics()[-1]["step"] >= 40


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("rlreps.workflows.evaluate.RunFolder", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        cli.main(["evaluate", str(tmp_path)])


def test_help_comes_fast_and_neither_it_nor_the_package_imports_the_heavy_libraries():
    code = (
        "import sys, rlreps; from rlreps.cli import main; main(['--help']); "
        "print('loaded', {'jax', 'matplotlib', 'gymnasium', 'rlax', 'numpy'} & {*sys.modules})"
    )
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        seconds = time.perf_counter() - start
        assert done.stderr == ""
        assert done.stdout.rstrip().endswith("loaded set()")
        for command in ("quickstart", "successor", "svd", "train", "evaluate", "plot"):
            assert command in done.stdout
        if seconds < 1.0:
            break
    assert seconds < 1.0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "flag", "names"),
    [
        ("train", "method", OBJECTIVES),
        ("train", "encoder", ENCODERS),
        ("train-live", "cumulants", CUMULANTS),
        ("agent train", "auxiliary-tasks", TASKS),
    ],
)
def test_every_choice_of_a_command_can_be_parsed(capsys, command, flag, names):
    for name in names:
        with pytest.raises(SystemExit) as ending:
            cli.main([*command.split(), f"--{flag}", name.replace("_", "-"), "--help"])
        assert ending.value.code in (0, None)
        assert f"--{flag}" in capsys.readouterr().out


@pytest.mark.integration
def test_a_reader_that_has_enough_is_no_error(start_rlreps, toy_store):
    running = start_rlreps("svd", toy_store, "--rank", "60", "--quiet", fork=False)
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 1
