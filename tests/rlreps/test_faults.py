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

from rlreps.runs.checkpoints import Checkpoints
from rlreps.successor.store.estimates import open_estimates

pytestmark = pytest.mark.integration

SMALL = ["successor", "generate", "--bins", "10", "--block-rows", "7", "--discount", "0.95"]
SMALL += ["--rollouts", "20", "--horizon", "50", "--quiet"]
# A few dozen start cells are simulated at a time: eight times a tenth of a second on one core.
GENERATE = ["successor", "generate", "--bins", "16", "--block-rows", "7", "--discount", "0.95"]
GENERATE += ["--rollouts", "400", "--horizon", "600", "--quiet"]
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
SUBSPACE = [
    ["svd", "--rank", "60", "--power-iterations", "40", "--quiet"],
    ["successor", "info", "--json", "--quiet"],
]
TRAIN = [
    *["--num-features", "3", "--steps", "600", "--rows", "100", "--tasks", "32", "--hidden", "32"],
    *["--evaluate-every", "20", "--checkpoint-every", "40", "--quiet", "--num-seeds", "2"],
]

# A process of root's that may write only where the permissions say so, like anybody else's.
AS_ANYBODY = """
import ctypes, os, sys
if os.getuid() == 0 and "RLREPS_TEST_DROPPED" not in os.environ:
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        sys.exit("cannot drop the capability")
    os.environ["RLREPS_TEST_DROPPED"] = "1"
    command = "from rlreps.cli import main; main()"
    os.execv(sys.executable, [sys.executable, "-c", command, *sys.argv[1:]])
"""


def finish(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def caches(path):
    return {file.name: file.read_bytes() for file in path.glob("subspace/*.npz")}


def everything(path):
    return {
        file.relative_to(path): (file.stat().st_mtime_ns, file.is_file() and file.read_bytes())
        for file in path.rglob("*")
    }


def parameters(run):
    """Step and all arrays of a run's newest checkpoint."""
    checkpoints = Checkpoints(run / "checkpoints")
    step = checkpoints.latest_step()
    checkpoints.close()
    with ocp.StandardCheckpointer() as reader:
        return step, jax.tree.leaves(reader.restore(run.absolute() / f"checkpoints/{step}/default"))


@pytest.fixture(scope="module")
def succeed(start_rlreps):
    """Runs a command that has to succeed; returns what it printed."""

    def run(*arguments, **options):
        code, out, err = finish(start_rlreps(*arguments, **options))
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture(scope="module")
def whole(succeed, tmp_path_factory):
    """A small store that nothing happened to; not to be changed."""
    path = tmp_path_factory.mktemp("whole") / "psi"
    succeed(*SMALL, "--out", path)
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
def refuse(start_rlreps):
    """Runs a command that has to fail in one line with exit code 2; returns that line."""

    def run(*arguments, **options):
        code, out, err = finish(start_rlreps(*arguments, **options))
        assert (code, out) == (2, ""), err
        assert err.startswith("rlreps: error: ")
        assert err.count("\n") == 1
        return err

    return run


@pytest.fixture
def kill(start_rlreps):
    """Kills a command some seconds after ``look`` finds something new; whether it still ran."""

    def run(delay, look, *arguments, **options):
        before = look()
        process = start_rlreps(*arguments, **options)
        deadline = time.monotonic() + 100
        while look() == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        return code != 0

    return run


@pytest.fixture
def kill_starting(start_rlreps):
    """Kills a command some seconds after its start; whether it still ran."""

    def run(delay, *arguments, **options):
        process = start_rlreps(*arguments, **options)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        return finish(process)[0] == -signal.SIGKILL

    return run


def until(count, attempt):
    """Repeats an attempt until it has succeeded so often."""
    for _ in range(4 * count):
        count -= bool(attempt())
        if count == 0:
            return
    pytest.fail("the process ended before it was killed, again and again")


def test_generation_killed_at_random_moments_ends_in_the_same_bytes(
    succeed, kill, kill_starting, block_bytes, tmp_path
):
    succeed(*GENERATE, "--out", tmp_path / "whole")
    whole = block_bytes(tmp_path / "whole")
    path = tmp_path / "psi"
    command = [*GENERATE, "--out", path]
    rng = np.random.default_rng(0)
    partial = []

    def written():
        return len(list(path.glob("c/*/0")))

    def check():
        if not (path / "zarr.json").exists():
            return
        store = open_estimates(path)
        assert not any(report.damaged_blocks for report in store.verify(None))
        assert block_bytes(path).items() <= whole.items()
        missing = len(store.missing_blocks())
        partial.append(0 < missing < store.matrix.num_blocks)
        if missing == 0:
            shutil.rmtree(path)

    def kill_at_work():
        killed = kill(rng.uniform(0.0, 0.2), written, *command, first=ONE_CORE)
        check()
        return killed

    def kill_starting_up():
        killed = kill_starting(rng.uniform(0.2, 1.0), *command)
        check()
        return killed

    until(2, kill_starting_up)
    until(8, kill_at_work)
    assert sum(partial) >= 3
    succeed(*command)
    assert block_bytes(path) == whole


def test_decompositions_killed_at_random_moments_end_in_the_same_bytes(
    succeed, kill_starting, block_bytes, tmp_path
):
    path = tmp_path / "psi"
    succeed(*SMALL, "--bins", 24, "--out", path)
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
        killed = kill_starting(rng.uniform(0.3, 1.0) * most, *command)
        assert caches(path).items() <= whole.items()
        return killed

    for command, most in zip(commands, seconds, strict=True):
        until(3, functools.partial(kill_anywhere, command, most))
    for command in commands:
        succeed(*command)
    assert caches(path) == whole
    assert block_bytes(path) == matrix


def test_training_killed_at_random_moments_ends_in_the_same_parameters(
    succeed, kill, kill_starting, psi, trained, tmp_path
):
    whole = caches(trained / "psi")
    rng = np.random.default_rng(2)

    def kill_at_work(out, what):
        def saved():
            return sorted(file.stat().st_size for file in out.glob(what))

        delay = rng.uniform(0.0, 0.25)
        killed = kill(delay, saved, "train", psi, "--out", out, *TRAIN)
        assert caches(psi).items() <= whole.items()
        if (out / "summary.json").exists():
            shutil.rmtree(out)
            return False
        assert list(out.glob(what))
        return killed

    train = ["train", psi, "--out", tmp_path / "killed-0", *TRAIN]
    until(2, lambda: kill_starting(rng.uniform(0.3, 1.2), *train))
    for index, what in enumerate(["checkpoints/*/seal.json", "metrics.jsonl"]):
        out = tmp_path / f"killed-{index}"
        until(2, functools.partial(kill_at_work, out, what))
        summary = json.loads(succeed("train", psi, "--out", out, *TRAIN))
        expected = json.loads((trained / "run" / "summary.json").read_text())
        for name, value in expected.items():
            assert name.endswith("seconds") or summary[name] == value
        (step, ours), (other_step, theirs) = map(parameters, (trained / "run", out))
        assert step == other_step == 600
        assert len(ours) == len(theirs) > 4
        for first, second in zip(ours, theirs, strict=True):
            assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
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


def test_a_full_disk_is_a_clear_error_and_generation_goes_on_once_there_is_room(
    succeed, refuse, block_bytes, small_disk, whole
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
    succeed(*SMALL, "--out", path)
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
    succeed, refuse, block_bytes, whole, tmp_path
):
    path = tmp_path / "psi"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))"
    # Compiled programs would not fit either.
    said = refuse(*SMALL, "--out", path, first=limit, JAX_ENABLE_COMPILATION_CACHE="0")
    assert "expected to write block 0 (rows 0-6, file c/0/0), got" in said
    assert "File too large" in said
    store = open_estimates(path)
    assert store.missing_blocks() == list(range(store.matrix.num_blocks))
    said = refuse("successor", "verify", path)
    assert "corrupt" not in said
    succeed(*SMALL, "--out", path)
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


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of Linux")
def test_a_read_only_folder_is_a_clear_error_and_nothing_changes(
    succeed, refuse, read_only, psi, tmp_path
):
    path = psi
    open_estimates(path).remove_block(3)
    read_only(path)
    before = everything(tmp_path)
    said = refuse(*SMALL, "--out", path, first=AS_ANYBODY)
    assert re.search(r"expected a folder that can be written, got Permission denied: .*psi", said)
    said = refuse(*SMALL, "--out", path / "below", first=AS_ANYBODY)
    assert re.search(r"expected a folder that can be written, got Permission denied: .*below", said)
    said = refuse("successor", "verify", path, first=AS_ANYBODY)
    assert "block 3 (rows 21-27, file c/3/0): missing" in said
    assert everything(tmp_path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of Linux")
def test_a_complete_store_serves_every_purpose_where_it_can_only_be_read(
    start_rlreps, succeed, read_only, psi, tmp_path
):
    path = read_only(psi)
    before = everything(path)
    out = succeed(*SMALL, "--out", path, first=AS_ANYBODY)
    assert json.loads(out)["computed_rows"] == 0
    out = succeed("successor", "verify", path, first=AS_ANYBODY)
    assert "15 blocks are whole" in out
    out = succeed("svd", path, "--rank", 5, "--quiet", first=AS_ANYBODY)
    assert len(re.findall(r"^ +\d+ +\d", out, re.MULTILINE)) == 5  # a line for each component
    out = succeed("successor", "info", path, "--json", "--quiet", first=AS_ANYBODY)
    assert len(json.loads(out)["error"]["subspace_distance"]) == 99
    out = succeed("successor", "info", path, "--quiet", first=AS_ANYBODY)
    assert "standard error of an entry" in out
    assert re.search(r"no figure: .*Permission denied.*--figure", out)
    figure = tmp_path / "error.png"
    out = succeed("successor", "info", path, "--figure", figure, "--quiet", first=AS_ANYBODY)
    assert out.endswith(f"wrote {figure}\n")
    asked = ["--figure", path / "asked.png", "--quiet"]
    code, _, said = finish(start_rlreps("successor", "info", path, *asked, first=AS_ANYBODY))
    assert code == 2
    assert re.search("^rlreps: error: .*Permission denied", said)
    short = [*TRAIN, "--steps", "40"]
    succeed("train", path, "--out", tmp_path / "run", *short, first=AS_ANYBODY)
    out = succeed("evaluate", tmp_path / "run", first=AS_ANYBODY)
    assert json.loads(out)["step"] == 40
    assert everything(path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of Linux")
def test_training_into_a_read_only_folder_is_a_clear_error(refuse, read_only, psi, tmp_path):
    (tmp_path / "runs").mkdir()
    read_only(tmp_path / "runs")
    run = tmp_path / "runs" / "run"
    said = refuse("train", psi, "--out", run, *TRAIN, first=AS_ANYBODY)
    assert re.search(r"expected a folder that can be written, got Permission denied: .*run", said)
    assert list((tmp_path / "runs").iterdir()) == []


def test_training_on_a_full_disk_is_a_clear_error_and_goes_on_to_the_same_parameters(
    start_rlreps, succeed, psi, trained, tmp_path
):
    arguments = ["train", psi, *TRAIN]
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    try:
        code, out, said = finish(start_rlreps(*arguments, "--out", place / "run"))
        assert (code, out) == (2, ""), said
        # Threads of Orbax and TensorBoard may have complained before; the last line is ours.
        assert re.search(
            r"^rlreps: error: expected room for a checkpoint in .*run/checkpoints, got .*"
            r"No space left on device",
            said.splitlines()[-1],
        )
        assert not (place / "run" / "summary.json").exists()
        room = ["mount", "-o", "remount,size=20m", str(place)]
        subprocess.run(room, check=True)
        succeed(*arguments, "--out", place / "run")
        (_, ours), (_, theirs) = map(parameters, (trained / "run", place / "run"))
        for first, second in zip(ours, theirs, strict=True):
            assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
