"""Kills at random moments and full disks: nothing is lost."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from rlreps.app.main import main
from rlreps.successor.truth.store.estimates import open_estimates

pytestmark = pytest.mark.integration

SMALL = ["successor", "generate", "--bins", "10", "--block-rows", "7", "--discount", "0.95"]
SMALL += ["--rollouts", "20", "--horizon", "50", "--quiet"]
# A few dozen start cells are simulated at a time: eight times a tenth of a second on one core.
GENERATE = ["successor", "generate", "--bins", "16", "--block-rows", "7", "--discount", "0.95"]
GENERATE += ["--rollouts", "40", "--horizon", "600", "--quiet"]
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"


def run(*arguments):
    """Run a command in this process, which has to succeed."""
    main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small store that nothing happened to; not to be changed."""
    path = tmp_path_factory.mktemp("whole") / "psi"
    run(*SMALL, "--out", path)
    return path


def test_generation_killed_at_random_moments_ends_in_the_same_bytes(
    start_rlreps, block_bytes, tmp_path
):
    run(*GENERATE, "--out", tmp_path / "whole")
    whole, path, partial = block_bytes(tmp_path / "whole"), tmp_path / "psi", 0

    def written():
        return len(list(path.glob("c/*/0")))

    for delay in np.random.default_rng(0).uniform(0.0, 0.2, 2):
        before, process = written(), start_rlreps(*GENERATE, "--out", path, first=ONE_CORE)
        while written() == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = open_estimates(path)
        assert not any(fault.kind != "missing" for fault in store.verify(None))
        assert block_bytes(path).items() <= whole.items()
        partial += bool(store.missing_blocks())
    assert partial >= 1
    run(*GENERATE, "--out", path)
    assert block_bytes(path) == whole


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
        out, err = capsys.readouterr()
        assert (ending.value.code, out, err.count("\n")) == (2, "", 1)
        return err

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
    # What is there counts as room, and is not enough: refused before anything is written.
    said = refuse(*SMALL, "--out", path)
    assert re.search(rf"expected a matrix that fits the .* GB free at {path}, got 100 x 100", said)
    assert block_bytes(path).items() <= whole.items()
    ballast.unlink()
    run(*SMALL, "--out", path)
    assert block_bytes(path) == whole
    # Now the disk is full for the subspace that is kept beside the matrix.
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
    said = refuse("successor", "info", "--json", "--quiet", path)
    assert re.search(r"expected room for a subspace in .*psi, got No space left on device", said)
    assert not list(path.glob("subspace/*.npz"))
    assert block_bytes(path) == whole
