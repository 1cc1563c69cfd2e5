"""Kills at random moments, full disks and folders that may only be read: nothing is lost."""

import functools
import os
import re
import shutil
import signal
import subprocess
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
            assert not any(fault.kind != "missing" for fault in store.verify(None))
            assert block_bytes(path).items() <= whole.items()
            missing = len(store.missing_blocks())
            partial.append(0 < missing < store.matrix.num_blocks)
            if missing == 0:
                shutil.rmtree(path)
        return killed

    until(1, lambda: check(kill(rng.uniform(0.2, 1.0), command)))
    until(2, lambda: check(kill(rng.uniform(0.0, 0.2), command, written, first=ONE_CORE)))
    assert sum(partial) >= 1
    run(*command)
    assert block_bytes(path) == whole


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
        until(1, functools.partial(kill_at_work, what))
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
    names = {entry.name for entry in out.iterdir() if entry.name[0] != "."} - {"tensorboard"}
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
    assert not any(fault.kind != "missing" for fault in store.verify(None))
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
