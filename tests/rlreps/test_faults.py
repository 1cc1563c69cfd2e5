"""Kills at random moments, full disks and folders that may only be read: nothing is lost."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from rlreps.cli import main
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.store.estimates import open_estimates

pytestmark = pytest.mark.integration

SMALL = ["successor", "generate", "--bins", "10", "--block-rows", "7", "--discount", "0.95"]
SMALL += ["--rollouts", "20", "--horizon", "50", "--quiet"]
# A few dozen start cells are simulated at a time: eight times a tenth of a second on one core.
GENERATE = ["successor", "generate", "--bins", "16", "--block-rows", "7", "--discount", "0.95"]
GENERATE += ["--rollouts", "40", "--horizon", "600", "--quiet"]
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
SUBSPACE = [
    ["svd", "--rank", "60", "--power-iterations", "40", "--quiet"],
    ["successor", "info", "--json", "--quiet"],
]
TRAIN = [
    *["--num-features", "3", "--steps", "600", "--rows", "100", "--tasks", "32", "--hidden", "32"],
    *["--evaluate-every", "20", "--checkpoint-every", "40", "--quiet", "--num-seeds", "2"],
]

# A process of root's that may write only where the permissions say so, like anybody else's. It runs
# several commands and prints the exit code, standard output and standard error of each as JSON.
AS_ANYBODY = """
import contextlib, ctypes, io, json, os, sys
if os.getuid() == 0 and "RLREPS_TEST_DROPPED" not in os.environ:
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        sys.exit("cannot drop the capability")
    os.environ["RLREPS_TEST_DROPPED"] = "1"
    os.execv(sys.executable, sys.orig_argv)
from rlreps.cli import main
found = []
for words in json.loads(sys.argv[1]):
    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ending:
            code = ending.code
    found.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""


def run(*arguments):
    """Run a command in this process, which has to succeed."""
    main([str(argument) for argument in arguments])


def finish(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def assert_refused(code, out, err):
    """Assert that a command failed in one line with exit code 2; return that line."""
    assert (code, out) == (2, ""), err
    assert err.startswith("rlreps: error: ")
    assert err.count("\n") == 1
    return err


def caches(path):
    return {file.name: file.read_bytes() for file in path.glob("subspace/*.npz")}


def everything(path):
    return {
        file.relative_to(path): (file.stat().st_mtime_ns, file.is_file() and file.read_bytes())
        for file in path.rglob("*")
    }


def parameters(run):
    """Step and all arrays, as bytes, of a run's newest checkpoint."""
    step = Checkpoints(run / "checkpoints").latest_step()
    with ocp.StandardCheckpointer() as reader:
        tree = reader.restore(run.absolute() / f"checkpoints/{step}/default")
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]
    assert len(leaves) > 4
    return step, leaves


@pytest.fixture(scope="module")
def succeed(start_rlreps):
    """Runs a command that has to succeed in a process of its own, as bits of LAPACK's ask for."""

    def attempt(*arguments):
        code, _, err = finish(start_rlreps(*arguments))
        assert (code, err) == (0, "")

    return attempt


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small store that nothing happened to; not to be changed."""
    path = tmp_path_factory.mktemp("whole") / "psi"
    run(*SMALL, "--out", path)
    return path


@pytest.fixture
def psi(whole, tmp_path):
    """A small store of a test's own."""
    return shutil.copytree(whole, tmp_path / "psi")


@pytest.fixture(scope="module")
def trained(succeed, whole, tmp_path_factory):
    """A store and a run on it that nothing happened to; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(whole, folder / "psi")
    succeed("train", folder / "psi", "--out", folder / "run", *TRAIN)
    return folder


@pytest.fixture
def kill(start_rlreps):
    """Kills a command some seconds after its start, or after ``look`` finds something new.

    Returns whether it still ran.
    """

    def end(delay, command, look=None, **options):
        before = look and look()
        process = start_rlreps(*command, **options)
        deadline = time.monotonic() + 100
        while look is not None and look() == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        return code != 0

    return end


def until(count, attempt):
    """Repeat an attempt until it has succeeded so often."""
    for _ in range(4 * count):
        count -= bool(attempt())
        if count == 0:
            return
    pytest.fail("the process ended before it was killed, again and again")


def test_generation_killed_at_random_moments_ends_in_the_same_bytes(kill, block_bytes, tmp_path):
    run(*GENERATE, "--out", tmp_path / "whole")
    whole = block_bytes(tmp_path / "whole")
    path = tmp_path / "psi"
    command = [*GENERATE, "--out", path]
    rng = np.random.default_rng(0)
    partial = []

    def written():
        return len(list(path.glob("c/*/0")))

    def check(killed):
        if (path / "zarr.json").exists():
            store = open_estimates(path)
            assert not any(report.damaged_blocks for report in store.verify(None))
            assert block_bytes(path).items() <= whole.items()
            missing = len(store.missing_blocks())
            partial.append(0 < missing < store.matrix.num_blocks)
            if missing == 0:
                shutil.rmtree(path)
        return killed

    until(1, lambda: check(kill(rng.uniform(0.2, 1.0), command)))
    until(4, lambda: check(kill(rng.uniform(0.0, 0.2), command, written, first=ONE_CORE)))
    assert sum(partial) >= 3
    run(*command)
    assert block_bytes(path) == whole


def test_decompositions_killed_at_random_moments_end_in_the_same_bytes(
    succeed, kill, block_bytes, tmp_path
):
    path = tmp_path / "psi"
    run(*SMALL, "--bins", 24, "--out", path)
    commands = [[*command, path] for command in SUBSPACE]
    seconds = []
    for command in commands:
        start = time.monotonic()
        succeed(*command)
        seconds.append(time.monotonic() - start)
    whole, matrix = caches(path), block_bytes(path)
    assert len(whole) == 2
    rng = np.random.default_rng(1)

    def kill_anywhere(command, most):
        # What a kill leaves behind beside whole caches stays for the next one to find.
        for file in path.glob("subspace/*.npz"):
            file.unlink()
        killed = kill(rng.uniform(0.0, 1.0) * most[0], command)
        assert caches(path).items() <= whole.items()
        if not killed:
            most[0] *= 0.7  # It was measured while it compiled, or on a busier machine.
        return killed

    for command, most in zip(commands, seconds, strict=True):
        until(2, functools.partial(kill_anywhere, command, [most]))
    for command in commands:
        succeed(*command)
    assert caches(path) == whole
    assert block_bytes(path) == matrix


def test_training_killed_at_random_moments_ends_in_the_same_parameters_and_metrics(
    succeed, kill, psi, trained, tmp_path
):
    whole = caches(trained / "psi")
    rng = np.random.default_rng(2)
    out = tmp_path / "killed"
    train = ["train", psi, "--out", out, *TRAIN]

    def kill_at_work(what):
        def saved():
            return sorted(file.stat().st_size for file in out.glob(what))

        killed = kill(rng.uniform(0.0, 0.25), train, saved)
        assert caches(psi).items() <= whole.items()
        if (out / "summary.json").exists():
            shutil.rmtree(out)
            return False
        assert list(out.glob(what))
        return killed

    until(1, lambda: kill(rng.uniform(0.3, 1.2), train))
    for what in ("checkpoints/*/seal.json", "metrics.jsonl"):
        until(2, functools.partial(kill_at_work, what))
    succeed(*train)
    ours, theirs = RunFolder(trained / "run"), RunFolder(out)
    expected, summary = ours.read_summary(), theirs.read_summary()
    for name, value in expected.items():
        assert name.endswith("seconds") or summary[name] == value
    assert [record["step"] for record in theirs.read_metrics()] == list(range(0, 601, 20))
    for first, second in zip(ours.read_metrics(), theirs.read_metrics(), strict=True):
        assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert parameters(ours.path) == parameters(out)
    assert parameters(out)[0] == 600
    assert sorted(entry.name for entry in (out / "checkpoints").iterdir()) == ["560", "600"]
    names = {entry.name for entry in out.iterdir()} - {"tensorboard"}
    files = {"config.json", "metrics.jsonl", "summary.json", "README.txt"}
    assert names == {*files, "checkpoints", "features"}
    recorded = [
        {file.name: file.read_bytes() for file in (run / "features").iterdir()}
        for run in (trained / "run", out)
    ]
    assert recorded[0] == recorded[1]
    assert caches(psi) == whole


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB; a store of the small size takes half of it."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]
    done = subprocess.run(options, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def refuse(capsys):
    """Runs a command in this process that has to fail in one line; returns it."""

    def attempt(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            run(*arguments)
        return assert_refused(ending.value.code, *capsys.readouterr())

    return attempt


def test_a_full_disk_is_a_clear_error_and_generation_goes_on_once_there_is_room(
    refuse, block_bytes, small_disk, whole
):
    whole = block_bytes(whole)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(160 * 1024))
    path = small_disk / "psi"
    said = refuse(*SMALL, "--out", path)
    assert re.search(
        rf"{path}.*: expected to write block \d+ \(rows .*No space left on device", said
    )
    store = open_estimates(path)
    assert 0 < len(store.missing_blocks()) < store.matrix.num_blocks
    assert not any(report.damaged_blocks for report in store.verify(None))
    assert block_bytes(path).items() <= whole.items()
    said = refuse("successor", "verify", path)
    assert ": missing" in said
    assert "corrupt" not in said
    # What is there counts as room, and is not enough: refused before anything is written.
    said = refuse(*SMALL, "--out", path)
    assert re.search(rf"expected a matrix that fits the .* GB free at {path}, got 100 x 100", said)
    assert block_bytes(path).items() <= whole.items()
    assert not (path / ".lock").exists()
    ballast.unlink()
    run(*SMALL, "--out", path)
    assert block_bytes(path) == whole
    # Now the disk is full for everything that is kept beside the matrix.
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
    for command in SUBSPACE:
        said = refuse(*command, path)
        assert re.search(
            r"expected room for a subspace in .*psi, got No space left on device", said
        )
    assert caches(path) == {}
    assert block_bytes(path) == whole


def test_a_limit_on_the_size_of_files_is_a_clear_error_and_leaves_a_store_to_go_on_from(
    start_rlreps, refuse, block_bytes, whole, tmp_path
):
    path = tmp_path / "psi"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))"
    # Compiled programs would not fit either.
    process = start_rlreps(*SMALL, "--out", path, first=limit, JAX_ENABLE_COMPILATION_CACHE="0")
    said = assert_refused(*finish(process))
    assert "expected to write block 0 (rows 0-6, file c/0/0), got" in said
    assert "File too large" in said
    store = open_estimates(path)
    assert store.missing_blocks() == list(range(store.matrix.num_blocks))
    assert "corrupt" not in refuse("successor", "verify", path)
    run(*SMALL, "--out", path)
    assert block_bytes(path) == block_bytes(whole)


@pytest.fixture
def read_only():
    """Takes the right to write away from a folder and all below it, until the test ends."""
    changed = []

    def take(path):
        for folder in [path, *(entry for entry in path.rglob("*") if entry.is_dir())]:
            folder.chmod(0o555)
            changed.append(folder)
        return path

    yield take
    for folder in changed:
        folder.chmod(0o755)


def as_anybody(*commands):
    """Run commands one after the other in a process that permissions bind; how each ended."""
    texts = [[str(argument) for argument in command] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", AS_ANYBODY, json.dumps(texts)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of Linux")
def test_a_read_only_folder_is_a_clear_error_and_nothing_changes(read_only, psi, whole, tmp_path):
    open_estimates(psi).remove_block(3)
    complete, runs = shutil.copytree(whole, tmp_path / "complete"), tmp_path / "runs"
    runs.mkdir()
    for folder in (psi, complete, runs):
        read_only(folder)
    before = everything(tmp_path)
    ends = as_anybody(
        [*SMALL, "--out", psi],
        [*SMALL, "--out", psi / "below"],
        ["successor", "verify", psi],
        ["train", complete, "--out", runs / "run", *TRAIN],
    )
    denied = "expected a folder that can be written, got Permission denied: .*"
    for end, message in zip(
        ends,
        (
            f"{denied}psi",
            f"{denied}below",
            r"block 3 \(rows 21-27, file c/3/0\): missing",
            f"{denied}run",
        ),
        strict=True,
    ):
        assert re.search(message, assert_refused(*end))
    assert everything(tmp_path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of Linux")
def test_a_complete_store_serves_every_purpose_where_it_can_only_be_read(read_only, psi, tmp_path):
    path, trained = read_only(psi), tmp_path / "run"
    before = everything(path)
    info, figure = ["successor", "info", path, "--quiet"], tmp_path / "error.png"
    *ends, denied = as_anybody(
        [*SMALL, "--out", path],
        ["successor", "verify", path],
        ["svd", path, "--rank", 5, "--quiet"],
        [*info, "--json"],
        info,
        [*info, "--figure", figure],
        ["train", path, "--out", trained, *TRAIN, "--steps", "40"],
        ["evaluate", trained],
        [*info, "--figure", path / "asked.png"],
    )
    assert [(code, err) for code, _, err in ends] == [(0, "")] * len(ends)
    generated, verified, spectrum, as_json, described, drawn, _, evaluated = (
        out for _, out, _ in ends
    )
    assert json.loads(generated)["computed_rows"] == 0
    assert "15 blocks are whole" in verified
    assert len(re.findall(r"^ +\d+ +\d", spectrum, re.MULTILINE)) == 5  # a line for each component
    assert len(json.loads(as_json)["error"]["subspace_distance"]) == 99
    assert "standard error of an entry" in described
    assert re.search(r"no figure: .*Permission denied.*--figure", described)
    assert drawn.endswith(f"wrote {figure}\n")
    assert json.loads(evaluated)["step"] == 40
    code, _, said = denied
    assert code == 2
    assert re.search("^rlreps: error: .*Permission denied", said)
    assert everything(path) == before


def test_training_on_a_full_disk_is_a_clear_error_and_goes_on_to_the_same_parameters(
    start_rlreps, succeed, small_disk, psi, trained
):
    (small_disk / "ballast").write_bytes(bytes(56 * 1024))
    out = small_disk / "run"
    arguments = ["train", psi, *TRAIN, "--out", out]
    code, printed, said = finish(start_rlreps(*arguments))
    assert (code, printed) == (2, ""), said
    # Threads of Orbax and TensorBoard may have complained before; the last line is ours. Which of
    # the run's files meets the full disk depends on the size of its pages.
    assert re.search(
        r"^rlreps: error: (expected room for a checkpoint in .*/run/checkpoints, got .*No space "
        r"left on device|.*No space left on device: '.*/run/(features|README|metrics).*'$)",
        said.splitlines()[-1],
    )
    assert not (out / "summary.json").exists()
    room = ["mount", "-o", "remount,size=20m", str(small_disk)]
    subprocess.run(room, check=True)
    succeed(*arguments)
    assert parameters(out) == parameters(trained / "run")


def test_output_that_cannot_be_written_is_one_line_and_code_2():
    command = [sys.executable, "-c", "from rlreps.cli import main; main()", "--version"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr == "rlreps: error: [Errno 28] No space left on device\n"
    assert ended.returncode == 2
