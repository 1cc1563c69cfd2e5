"""Worker processes on one machine: results, cores, failures, ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlreps.errors import InputError
from rlreps.runs.workers import map_in_workers


def test_every_name_is_worked_on_once_and_cores_are_shared_out():
    factor = 3

    def work(name):
        return factor * int(name), os.getpid(), sorted(os.sched_getaffinity(0))

    names = [str(number) for number in range(8)]
    found = dict(map_in_workers(work, names, 2))
    assert {name: each[0] for name, each in found.items()} == {n: 3 * int(n) for n in names}
    cores = {process: tuple(own) for _, process, own in found.values()}
    assert os.getpid() not in cores
    everything = sorted(os.sched_getaffinity(0))
    if len(everything) > 1 and len(cores) == 2:
        assert sorted(core for own in cores.values() for core in own) == everything


def _gone(process, seconds=20.0):
    """Wait until a process has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with open(f"/proc/{process}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_failure_comes_back_at_once_and_ends_the_others(tmp_path):
    def work(name):
        if name == "fails":
            while not (tmp_path / "waits").exists():
                time.sleep(0.01)
            raise InputError("expected a number, got a word")
        (tmp_path / "waits").write_text(str(os.getpid()))
        time.sleep(600)

    with pytest.raises(InputError, match="expected a number, got a word"):
        list(map_in_workers(work, ["waits", "fails"], 2))
    assert _gone(int((tmp_path / "waits").read_text()))


def test_a_worker_that_is_killed_is_an_error_with_advice():
    def work(name):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(InputError, match=r"one that was killed.*fewer jobs"):
        list(map_in_workers(work, ["a", "b"], 2))


PARENT = """
import os, pathlib, sys, time
from rlreps.runs.workers import map_in_workers

def work(name):
    pathlib.Path(sys.argv[1], name).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    list(map_in_workers(work, ["a", "b"], 2))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, number):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script, tmp_path]) as parent:
        until = time.monotonic() + 60
        while not all((tmp_path / name).exists() for name in "ab"):
            assert parent.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        parent.send_signal(number)
    assert all(_gone(int((tmp_path / name).read_text())) for name in "ab")
