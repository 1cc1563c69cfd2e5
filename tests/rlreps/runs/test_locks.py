"""A folder's lock: who is kept out, what is said, and what is left when the holder ends."""

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


def test_another_process_is_refused_again_and_again(holder, tmp_path):
    for _ in range(2):  # The refused attempt takes nothing away.
        with (
            pytest.raises(InputError, match=f"{tmp_path} to be free, got it in use by another"),
            exclusive(tmp_path),
        ):
            pytest.fail("two processes hold one folder")


def test_a_killed_holder_leaves_a_file_that_keeps_nobody_out(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=10)
    assert (tmp_path / LOCK).exists()
    for _ in range(2):
        with exclusive(tmp_path):
            _, said = run(HOLD, tmp_path).communicate(timeout=60)
            assert "to be free, got it in use by another process" in said
