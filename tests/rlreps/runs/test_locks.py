"""A folder's lock: who is kept out, what is said, and what is left when the holder ends."""

import os
import signal
import subprocess
import sys

import pytest

from rlreps.errors import InputError
from rlreps.runs.locks import LOCK, exclusive

HOLD = """
import sys
from pathlib import Path
from rlreps.runs.locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

RACE = """
import sys
from pathlib import Path
from rlreps.errors import InputError
from rlreps.runs.locks import exclusive
folder, marker, entered = Path(sys.argv[1]), Path(sys.argv[2]), 0
while entered < 200:
    try:
        with exclusive(folder):
            marker.touch(exist_ok=False)  # fails if somebody else is inside
            marker.unlink()
            entered += 1
    except InputError as error:
        assert "to be free" in str(error), error
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder until its input ends."""
    with run(HOLD, tmp_path) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_refused_and_told_who_holds_the_folder(holder, tmp_path):
    with (
        pytest.raises(
            InputError, match=rf"{tmp_path} to be free, got it in use by process {holder.pid} on "
        ),
        exclusive(tmp_path),
    ):
        pytest.fail("two processes hold one folder")
    assert (tmp_path / LOCK).exists()  # the refused attempt took nothing away


def test_a_killed_holder_leaves_a_file_that_keeps_nobody_out(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=10)
    assert (tmp_path / LOCK).exists()
    with exclusive(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    assert list(tmp_path.iterdir()) == []


def test_processes_that_race_for_the_lock_are_never_inside_together(tmp_path):
    """The holder deletes the file: who opened it before must not take the deleted one for it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / LOCK).write_text("process 1 on elsewhere\n")
    racers = [run(RACE, folder, tmp_path / "inside") for _ in range(3)]
    for racer in racers:
        _, said = racer.communicate(timeout=60)
        assert (racer.returncode, said) == (0, "")
    assert list(folder.iterdir()) == []
