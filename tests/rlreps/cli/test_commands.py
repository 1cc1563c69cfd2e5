import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from rlreps import cli
from rlreps.agents.auxiliary import TASKS
from rlreps.cumulants import CUMULANTS
from rlreps.encoders import ENCODERS, FourierMLP
from rlreps.losses import OBJECTIVES
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure import MonteCarlo
from rlreps.successor.store import open_store
from rlreps.workflows.quickstart import PRESETS


def words(text):
    return text.split()


TRAIN = words(
    "--num-features 3 --steps 60 --rows 40 --tasks 32 --hidden 16 --evaluate-every 20 "
    "--checkpoint-every 20 --learning-rate 0.01 --quiet"
)
GENERATE = words("--bins 8 --rollouts 40 --horizon 60 --discount 0.9 --block-rows 16 --quiet")


def process(*arguments, cache=None, **options):
    """The installed command in a process of its own."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    command = [sys.executable, "-c", "from rlreps.cli import main; main()", *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(running, timeout=120):
    out, err = running.communicate(timeout=timeout)
    return running.returncode, out, err


@pytest.fixture
def rlreps(capsys):
    """Runs a command that has to succeed and returns what it printed."""

    def run(*arguments):
        cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


@pytest.fixture
def refused(capsys, tmp_path, files_below):
    """Runs a command that has to fail in one line and leave every file as it was."""

    def run(*arguments, code=2):
        before = files_below(tmp_path)
        with pytest.raises(SystemExit) as ending:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert ending.value.code == code
        assert captured.out == ""
        assert captured.err.startswith("rlreps: error: ")
        assert captured.err.count("\n") == 1
        assert captured.err.endswith("\n")
        assert files_below(tmp_path) == before
        return captured.err.removeprefix("rlreps: error: ").strip()

    return run


@pytest.fixture(scope="module")
def trained(toy_store, compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    cli.main(["train", str(toy_store), "--out", str(out), *TRAIN])
    return out


@pytest.mark.integration
def test_two_stores_are_compared_beside_their_noise_floors(rlreps, tmp_path):
    sampled, exact = tmp_path / "sampled", tmp_path / "exact"
    place = GENERATE.index("--rollouts")
    exactly = GENERATE[:place] + GENERATE[place + 2 :]
    rlreps("successor", "generate", "--out", sampled, "--quiet", *GENERATE)
    made = rlreps(
        "successor", "generate", "--out", exact, "--quiet", *exactly, "--method", "transition"
    )
    assert json.loads(made)["computed_rows"] == 64
    assert "transitions" not in json.loads(made)
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
    again = tmp_path / "again"
    rlreps("successor", "generate", "--out", again, "--quiet", *GENERATE, "--block-rows", "9")
    note = rlreps("successor", "compare", sampled, again, "--quiet").splitlines()[0]
    assert note.startswith("note: both were sampled with seed 0 and share rollouts")
    assert alone["settings"]["method"] == "transition"
    assert "rollouts" not in alone["settings"]


def test_every_command_works_from_generation_to_pictures(rlreps, tmp_path):
    store, run = tmp_path / "psi", tmp_path / "run"
    made = json.loads(rlreps("successor", "generate", "--out", store, *GENERATE))
    assert made["transitions"] == made["computed_transitions"] == 64 * 40 * 60
    again = json.loads(rlreps("successor", "generate", "--out", store, *GENERATE))
    assert again["computed_transitions"] == 0
    assert again["transitions_per_second"] is None
    info = json.loads(rlreps("successor", "info", store, "--json", "--quiet"))
    assert (info["shape"], info["missing_blocks"]) == ([64, 64], 0)
    assert info["settings"]["discount"] == 0.9
    error = info["error"]["subspace_distance"]
    assert len(error) == 63  # the rank of a centred 64 x 64 matrix
    assert 0.0 < error[4] < 0.25
    said = rlreps("successor", "info", store)
    assert f"   5 {error[4]:9.3g}" in said
    assert f"standard error of an entry: {info['error']['standard_error']:.3g}" in said
    assert (store / "error.png").stat().st_size > 1000
    verified = rlreps("successor", "verify", store)
    assert "4 blocks are whole, rows sum to 9.98203" in verified
    assert info["sha256"] in verified
    spectrum = rlreps("svd", store, "--rank", "5", "--quiet").splitlines()
    assert len(spectrum) == 8
    assert spectrum.pop().startswith("peak memory ")
    assert spectrum[0].startswith("total energy")
    values = [float(line.split()[1]) for line in spectrum[2:]]
    assert values == sorted(values, reverse=True)
    summary = json.loads(rlreps("train", store, "--out", run, *TRAIN))
    assert summary == json.loads((run / "summary.json").read_text())
    evaluated = json.loads(rlreps("evaluate", run))
    assert evaluated["subspace_distance"] == pytest.approx(summary["subspace_distance"], rel=1e-4)
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


def test_training_improves_and_the_same_command_returns_at_once(rlreps, trained, toy_store):
    records = RunFolder(trained).read_metrics()
    assert records[-1]["subspace_distance"][0] < 0.9 * records[0]["subspace_distance"][0]
    start = time.perf_counter()
    printed = rlreps("train", toy_store, "--out", trained, *TRAIN)
    assert time.perf_counter() - start < 2.0
    assert json.loads(printed) == json.loads((trained / "summary.json").read_text())


SPIN = words("--method spin --steps 200 --evaluate-every 100 --checkpoint-every 100")


@pytest.mark.integration
@pytest.mark.parametrize("changes", [[], ["--averaging-rate", "0.1"]], ids=["plain", "averaged"])
def test_spectral_inference_trains_on_a_store_and_on_rollouts(rlreps, toy_store, tmp_path, changes):
    run, live = tmp_path / "run", tmp_path / "live"
    summary = json.loads(rlreps("train", toy_store, "--out", run, *TRAIN, *SPIN, *changes))
    assert summary["method"] == "spin"
    first, *_, last = RunFolder(run).read_metrics()
    assert last["subspace_distance"][0] < 0.7 * first["subspace_distance"][0]
    process = words("--horizon 60 --discount 0.9 --target-tasks 64")
    arguments = [*TRAIN, *SPIN, *changes, *process, "--store", toy_store, "--out", live]
    assert json.loads(rlreps("train-live", *arguments))["method"] == "spin"
    first, *_, last = RunFolder(live).read_metrics()
    assert last["subspace_distance"][0] < 0.9 * first["subspace_distance"][0]


def test_generated_stores_land_under_data_by_default(rlreps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = json.loads(rlreps("successor", "generate", *GENERATE, "--no-count-start"))
    expected = "data/sutton-8bins-40rollouts-60steps-discount0.9-first-successor-seed0"
    assert made["path"] == expected
    assert open_store(tmp_path / expected).missing_blocks() == []


def test_default_folders_tell_configurations_apart():
    configs = [
        MonteCarlo(),
        MonteCarlo(bins=50),
        MonteCarlo(rollouts=10),
        MonteCarlo(horizon=10),
        MonteCarlo(discount=0.95),
        MonteCarlo(count_start=False),
        MonteCarlo(seed=1),
        MonteCarlo(arena="hydrogen"),
    ]
    assert len({config.store_name for config in configs}) == len(configs)


def test_the_quickstart_command_prints_a_table_and_the_reports_path(rlreps, tmp_path, monkeypatch):
    smoke = PRESETS["smoke"]
    training = dataclasses.replace(
        smoke.recommended,
        encoder=FourierMLP(hidden=(16,)),
        steps=20,
        num_seeds=1,
        evaluate_every=20,
        checkpoint_every=20,
    )
    tiny = dataclasses.replace(
        smoke,
        successor=MonteCarlo(bins=8, rollouts=40, horizon=60, discount=0.9, block_rows=16),
        objectives=smoke.objectives[:1],
        paper=training,
        recommended=training,
        dimensions=(3,),
        headline_dimension=3,
    )
    monkeypatch.setitem(PRESETS, "smoke", tiny)
    out = tmp_path / "quick"
    printed = rlreps("quickstart", "--preset", "smoke", "--out", out, "--quiet")
    assert "large_batch" in printed
    assert printed.rstrip().endswith(f"Report: {out / 'report.html'}")
    assert (out / "report.html").stat().st_size > 10_000
    assert json.loads((out / "summary.json").read_text())["ground_truth"]["transitions"] == 153600


NON_CONVEX = """
[[puddles]]
shape = "polygon"
vertices = [[0.2, 0.2], [0.8, 0.2], [0.5, 0.4], [0.8, 0.8], [0.2, 0.8]]
multiplier = 0.5
"""
SWAMP = """
[[puddles]]
shape = "disc"
centre = [0.5, 0.5]
radius = 0.2
multiplier = 1.5
"""

BAD_GENERATE = {
    "unknown arena": (["--arena", "atlantis"], "atlantis"),
    "one bin": (["--bins", "1"], "expected bins >= 2, got 1"),
    "no bins": (["--bins", "0"], "expected bins >= 2, got 0"),
    "discount of one": (["--discount", "1"], "expected discount strictly between 0 and 1, got 1.0"),
    "discount of zero": (["--discount", "0"], "strictly between 0 and 1, got 0.0"),
    "discount of nan": (["--discount", "nan"], "strictly between 0 and 1, got nan"),
    "no rollouts": (["--rollouts", "0"], "expected rollouts >= 2, one for each half, got 0"),
    "negative horizon": (["--horizon", "-3"], r"expected horizon in \[1, 10000000\], got -3"),
    "negative seed": (["--seed", "-1"], r"expected seed in \[0, 2\*\*32\), got -1"),
    "a word for a number": (["--bins", "many"], "--bins: .*'many'"),
    "missing arena file": (["--arena", "nowhere.toml"], "nowhere.toml"),
}


@pytest.mark.parametrize("case", BAD_GENERATE)
def test_a_successor_measure_that_cannot_be_is_refused_in_one_line(refused, tmp_path, case):
    arguments, message = BAD_GENERATE[case]
    assert re.search(
        message, refused("successor", "generate", "--out", tmp_path / "psi", *arguments)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(NON_CONVEX, "convex"), (SWAMP, "1.5"), ("name = ", "arena.toml"), ("puddle = 1", "'puddle'")],
    ids=["non-convex polygon", "multiplier above one", "broken TOML", "unknown key"],
)
def test_an_arena_file_that_cannot_be_used_is_refused_in_one_line(
    refused, tmp_path, content, message
):
    file = tmp_path / "arena.toml"
    file.write_text(content)
    for command in (
        ["successor", "generate", "--bins", "8", "--out", tmp_path / "psi"],
        ["plot", "env", "--out", tmp_path / "arena.png"],
    ):
        assert message in refused(*command, "--arena", file)


LISSA = ["--method", "danskin_lissa"]

BAD_TRAIN = {
    "unknown method": (["--method", "magic"], "method to be one of .*danskin_lissa.* got 'magic'"),
    "unknown encoder": (["--encoder", "cnn"], "encoder to be one of .*fourier_mlp.* got 'cnn'"),
    "unknown optimizer": (
        ["--optimizer", "lion"],
        "expected optimizer to be one of adam, rmsprop, sgd, got 'lion'",
    ),
    "kappa0 of zero": ([*LISSA, "--kappa0", "0"], r"expected kappa0 in \(0, 2\), got 0.0"),
    "kappa0 of two": ([*LISSA, "--kappa0", "2"], r"expected kappa0 in \(0, 2\), got 2.0"),
    "kappa0 of nan": ([*LISSA, "--kappa0", "nan"], r"expected kappa0 in \(0, 2\), got nan"),
    "no steps": (["--steps", "0"], "expected steps >= 1, got 0"),
    "no features": (["--num-features", "0"], "expected num_features >= 1, got 0"),
    "as many features as states": (["--num-features", "64"], "expected d < 64, .*, got 64"),
    "no seeds": (["--num-seeds", "0"], "expected num_seeds >= 1, got 0"),
    "no learning rate": (
        ["--learning-rate", "0"],
        r"expected learning_rate in \(0, inf\), got 0.0",
    ),
    "odd checkpoints": (["--checkpoint-every", "30"], "multiple of evaluate_every .20., got 30"),
    "one role alone": (
        [*LISSA, "--gradient-rows", "5"],
        r"all None, got \(5, None, None\)",
    ),
    "too few rows": (["--method", "danskin_lissa", "--rows", "3"], "rows.* got 3"),
    "fewer rows than features": (["--method", "spin", "--rows", "2"], "rows >= 3.* got 2"),
    "averages of nothing": (
        ["--method", "spin", "--averaging-rate", "0"],
        r"averaging_rate in \(0, 1\], got 0.0",
    ),
    "unknown option": (["--stepz", "5"], "--stepz"),
    "a word for a number": (["--steps", "ten"], "--steps: .*'ten'"),
}


@pytest.mark.parametrize("case", BAD_TRAIN)
def test_training_that_cannot_be_is_refused_in_one_line(refused, toy_store, tmp_path, case):
    changes, message = BAD_TRAIN[case]
    store = shutil.copytree(toy_store, tmp_path / "psi")
    assert re.search(message, refused("train", store, "--out", tmp_path / "run", *TRAIN, *changes))


def damaged_store(toy_store, path, how):
    if how == "missing":
        return path
    shutil.copytree(toy_store, path)
    block = path / "c" / "1" / "0"
    if how == "incomplete":
        block.unlink()
    elif how == "truncated":
        block.write_bytes(block.read_bytes()[:-9])
    elif how == "corrupt":
        content = bytearray(block.read_bytes())
        content[10] ^= 1
        block.write_bytes(content)
    elif how == "metadata":
        (path / "zarr.json").write_text("{")
    return path


@pytest.mark.parametrize("how", ["missing", "incomplete", "truncated", "corrupt", "metadata"])
def test_a_store_that_cannot_be_used_is_refused_by_every_command_that_reads_it(
    refused, toy_store, tmp_path, how
):
    store = damaged_store(toy_store, tmp_path / "psi", how)
    figure = tmp_path / "figure.png"
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


def test_a_store_made_under_other_settings_is_refused_and_says_which(refused, toy_store, tmp_path):
    store = shutil.copytree(toy_store, tmp_path / "psi")
    message = refused("successor", "generate", "--out", store, *GENERATE, "--discount", "0.8")
    assert "expected discount=0.9 as stored, got discount=0.8" in message
    message = refused("successor", "generate", "--out", store, *GENERATE, "--arena", "empty")
    assert "environment" in message


def test_an_output_folder_with_something_else_in_it_is_refused(
    refused, toy_store, trained, tmp_path
):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("precious")
    shutil.copytree(trained, tmp_path / "run")
    for out, message in {
        "notes": "thesis.tex",
        "file": "the file",
        "run": "expected steps=60, got 80",
    }.items():
        changes = ["--steps", "80"] if out == "run" else []
        found = refused("train", toy_store, "--out", tmp_path / out, *TRAIN, *changes)
        assert message in found
        assert "expected" in found
    for out, message in {
        "notes": "thesis.tex",
        "file": "the file",
        "run": "expected kind='train', got 'quickstart'",
    }.items():
        assert message in refused("quickstart", "--preset", "smoke", "--out", tmp_path / out)
    for out in ("notes", "file", "run"):
        assert "expected" in refused("successor", "generate", "--out", tmp_path / out, *GENERATE)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "{store}", "--out", "/proc/none/run", *TRAIN],
        ["successor", "generate", "--out", "/proc/none/psi", *GENERATE],
        ["quickstart", "--preset", "smoke", "--out", "/proc/none/quick"],
        ["plot", "env", "--out", "/proc/none/arena.png"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write")
def test_a_place_that_cannot_be_written_is_refused(refused, toy_store, command):
    message = refused(*(part.format(store=toy_store) for part in command))
    assert "/proc" in message


def test_runs_that_are_none_are_refused(refused, toy_store, trained, tmp_path):
    (tmp_path / "empty").mkdir()
    broken = shutil.copytree(trained, tmp_path / "broken")
    (broken / "config.json").write_text('{"kind": "tra')
    figure = tmp_path / "figure.png"
    for run in ("none", "empty", "broken"):
        for arguments in (
            ["evaluate", tmp_path / run],
            ["plot", "curves", tmp_path / run, "--out", figure],
            [
                "plot",
                "components",
                toy_store,
                "--runs",
                tmp_path / run,
                "--d",
                "3",
                "--out",
                figure,
            ],
        ):
            assert "config.json" in refused(*arguments)


def test_a_run_with_a_damaged_checkpoint_is_refused(refused, toy_store, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "summary.json").unlink()
    for file in (run / "checkpoints" / "60").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:30])
    for arguments in (["evaluate", run], ["train", toy_store, "--out", run, *TRAIN]):
        message = refused(*arguments)
        assert "expected an undamaged checkpoint" in message
        assert message.endswith("delete that folder to resume from step 40")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], r"expected a command of rlreps \(.*\), got 'trian'; did you mean train\?"),
        (["plot", "curve"], r"of rlreps plot \(components, curves, env, spectrum\).* mean curves"),
        (["quickstart"], "--out"),
        (
            ["quickstart", "--preset", "huge", "--out", "x"],
            "expected preset to be one of full, laptop, smoke, got 'huge'",
        ),
        (["train"], "--out"),
        (
            ["train", "psi", "--out", "run", "--method", "explicit", "--permutations", "8"],
            "got --permutations; .*options of explicit: --weight-learning-rate$",
        ),
        (
            ["successor", "generate", "--method", "transition", "--rollouts", "9"],
            "got --rollouts; options of transition: .*--points, --refinement",
        ),
        (["experiment", "mnist", "--data-dir", "x", "--out", "y"], "which is now --data"),
        (["plot", "env", "--out", "picture.bmp"], r"\.png, \.svg, \.pdf, got 'picture\.bmp'"),
        (["plot", "env", "--out", "a.png", "--bins", "0"], "expected .*, got 0"),
    ],
)
def test_a_command_line_that_does_not_fit_is_refused_in_one_line(
    refused, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused(*arguments))


def test_a_long_message_stays_on_one_line_in_a_narrow_terminal(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = f"--{'x' * 300}"
    assert name in refused("train", "psi", "--out", "run", name, "5")
    assert os.environ["COLUMNS"] == "40"


def test_divergence_ends_with_code_1_and_one_line(capsys, toy_store, tmp_path):
    wild = [*TRAIN, "--optimizer", "sgd", "--learning-rate", "1e30", "--schedule", "constant"]
    with pytest.raises(SystemExit) as ending:
        cli.main(["train", str(toy_store), "--out", str(tmp_path / "run"), *wild])
    err = capsys.readouterr().err
    assert ending.value.code == 1
    assert re.fullmatch(
        r"rlreps: error: expected finite losses and parameters, got NaN or infinity at step \d+ of "
        r"seed 0; try a smaller learning rate or kappa0; no checkpoint was made\n",
        err,
    )
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.integration
def test_ctrl_c_ends_a_process_with_code_130_and_one_line(
    toy_store, tmp_path, compilation_cache_folder
):
    command = ["train", toy_store, "--out", tmp_path / "run", *TRAIN, "--steps", "100000"]
    running = process(*command, cache=compilation_cache_folder)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while running.poll() is None and not (
        metrics.exists() and b'"step": 40' in metrics.read_bytes()
    ):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    code, out, err = finish(running)
    assert (code, out) == (130, "")
    assert err == "rlreps: interrupted; the same command goes on from here\n"
    assert RunFolder(tmp_path / "run").read_metrics()[-1]["step"] >= 40


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("rlreps.workflows.evaluate.evaluate_run", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        cli.main(["evaluate", str(tmp_path)])


def test_help_comes_fast_and_neither_it_nor_the_package_imports_the_heavy_libraries():
    heavy = "{'jax', 'matplotlib', 'gymnasium', 'rlax', 'numpy'}"
    for statement in (
        "import rlreps",
        'import rlreps.cli; rlreps.cli.main(["--help"])',
    ):
        code = f"import sys; {statement}; print('loaded', sorted({heavy} & sys.modules.keys()))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.rstrip().endswith("loaded []"), statement
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        code, out, err = finish(process("--help"))
        seconds.append(time.perf_counter() - start)
        assert (code, err) == (0, "")
        for command in ("quickstart", "successor", "svd", "train", "evaluate", "plot"):
            assert command in out
    assert min(seconds) < 1.0


@pytest.mark.parametrize(
    "command",
    ["successor generate", "svd", "train", "sweep", "evaluate", "plot curves", "quickstart"],
)
def test_every_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as ending:
        cli.main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert ending.value.code in (0, None)
    assert f"usage: rlreps {command}" in out
    assert "dummy" not in out


@pytest.mark.parametrize(
    ("command", "flag", "names"),
    [
        ("train", "method", OBJECTIVES),
        ("train", "encoder", ENCODERS),
        ("train-live", "cumulants", CUMULANTS),
        ("train-live", "method", OBJECTIVES),
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
def test_a_reader_that_has_enough_is_no_error(toy_store):
    running = process("svd", toy_store, "--rank", "60", "--quiet")
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=60) == 1
    assert err == ""


def final_leaves(run):
    """All arrays of the newest checkpoint, whatever they are."""
    import orbax.checkpoint as ocp

    checkpoints = Checkpoints(run / "checkpoints")
    step = checkpoints.latest_step()
    checkpoints.close()
    with ocp.StandardCheckpointer() as reader:
        return step, jax.tree.leaves(reader.restore(run.absolute() / f"checkpoints/{step}/default"))


@pytest.mark.integration
def test_kills_at_any_moment_end_in_the_same_parameters_and_metrics(
    toy_store, tmp_path, compilation_cache_folder
):
    arguments = words(
        "--num-features 3 --steps 2000 --rows 100 --tasks 32 --hidden 64 64 --evaluate-every 10 "
        "--checkpoint-every 20 --quiet --method danskin_lissa --whitening --num-seeds 2"
    )

    def start(out):
        return process("train", toy_store, "--out", out, *arguments, cache=compilation_cache_folder)

    code, _, err = finish(start(tmp_path / "whole"))
    assert (code, err) == (0, "")
    out = tmp_path / "killed"
    metrics = out / "metrics.jsonl"
    rng = np.random.default_rng(0)
    reached = []
    for attempt in range(6):
        running = start(out)
        lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        while attempt > 0 and running.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") > lines:
                break  # It trains by now; the first kill comes at any moment before.
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.0))
        running.send_signal(signal.SIGKILL)
        finish(running)
        reached.append(metrics.read_bytes().count(b"\n") if metrics.exists() else 0)
    assert not (out / "summary.json").exists()
    assert max(reached) > 20
    code, printed, err = finish(start(out))
    assert (code, err) == (0, "")
    whole, killed = (RunFolder(tmp_path / name).read_metrics() for name in ("whole", "killed"))
    assert [record["step"] for record in killed] == list(range(0, 2001, 10))
    for first, second in zip(whole, killed, strict=True):
        assert {**first, "seconds": 0} == {**second, "seconds": 0}
    (step, ours), (other_step, theirs) = (
        final_leaves(tmp_path / name) for name in ("whole", "killed")
    )
    assert step == other_step == 2000
    for first, second in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    summary = json.loads(printed)
    for name, value in json.loads((tmp_path / "whole" / "summary.json").read_text()).items():
        assert name.endswith("seconds") or summary[name] == value
    names = sorted(entry.name for entry in out.iterdir() if entry.name != "tensorboard")
    assert names == ["checkpoints", "config.json", "metrics.jsonl", "summary.json"]
    assert sorted(entry.name for entry in (out / "checkpoints").iterdir()) == ["1980", "2000"]
