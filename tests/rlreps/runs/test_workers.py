"""Worker processes on one machine: results, cores, failures, ends."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from rlreps.errors import TrainingDivergedError, WorkerDiedError
from rlreps.runs.workers import local_pool, map_names


@pytest.fixture(scope="module", autouse=True)
def _by_value():
    """Workers cannot import this module, where tests start without the checkout in their path."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def say(folder, name):
    """Leave this process's number in a file, whole or not at all."""
    Path(folder, f"{name}.part").write_text(str(os.getpid()))
    Path(folder, f"{name}.part").rename(Path(folder, name))


def await_files(*paths, alive=lambda: True):
    until = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert alive()
        assert time.monotonic() < until
        time.sleep(0.01)


def gone(process):
    """Wait until a process has ended."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_every_name_is_worked_on_once_and_cores_are_shared_out(tmp_path):
    large = bytes(1_000_000)

    def work(name):
        say(tmp_path, name)
        await_files(tmp_path / "0", tmp_path / "1")  # Both workers have one of the first two.
        return int(name), len(large), large, os.getpid(), sorted(os.sched_getaffinity(0))

    names = [str(number) for number in range(6)]
    with local_pool(2) as pool:
        found = dict(map_names(work, names, pool))
    assert {name: each[0] for name, each in found.items()} == {name: int(name) for name in names}
    assert all(each[1:3] == (1_000_000, large) for each in found.values())
    cores = {process: tuple(own) for *_, process, own in found.values()}
    assert len(cores) == 2
    assert os.getpid() not in cores
    everything = sorted(os.sched_getaffinity(0))
    shared_out = sorted(core for own in cores.values() for core in own)
    assert shared_out == (everything if len(everything) > 1 else 2 * everything)


def test_a_failure_comes_back_at_once_and_ends_the_others(tmp_path):
    def work(name):
        if name == "fails":
            await_files(tmp_path / "waits")
            raise TrainingDivergedError("at step 3")
        say(tmp_path, "waits")
        time.sleep(600)

    began = time.monotonic()
    with pytest.raises(TrainingDivergedError, match="at step 3"), local_pool(2) as pool:
        list(map_names(work, ["waits", "fails"], pool))
    assert time.monotonic() - began < 60
    assert gone(int((tmp_path / "waits").read_text()))


def test_a_worker_that_is_killed_is_an_error():
    def work(name):
        os.kill(os.getpid(), signal.SIGKILL)

    died = "live until their work is done, got BrokenProcessPool: A process in the "
    with pytest.raises(WorkerDiedError, match=died), local_pool(2) as pool:
        list(map_names(work, ["a", "b"], pool))


def test_what_the_executor_loses_is_an_error_after_all_results_and_it_stays_open():
    class Forgetful(ThreadPoolExecutor):
        def submit(self, function, pickled, name):
            future = Future()
            future.set_exception(OSError("no such node"))
            return future if name == 1 else super().submit(function, pickled, name)

    found = []
    with Forgetful(1) as pool:
        message = "got OSError: no such node .* run the same command again to continue"
        with pytest.raises(WorkerDiedError, match=message):
            found += map_names(str, (0, 1, 2), pool)
        assert sorted(found) == [(0, "0"), (2, "2")]
        assert [*map_names(str, (3,), pool)] == [(3, "3")]


PARENT = """
import os, pathlib, signal, sys, time
from rlreps.app.main import _leave
from rlreps.runs.machine import quieten_resource_tracker
from rlreps.runs.workers import local_pool, map_names

ballast = bytes(1_000_000)

def work(name, ballast=ballast):
    pathlib.Path(sys.argv[1], name + ".part").write_text(str(os.getpid()))
    pathlib.Path(sys.argv[1], name + ".part").rename(pathlib.Path(sys.argv[1], name))
    time.sleep(600)

{guard}
    quieten_resource_tracker()
    signal.signal(signal.SIGINT, _leave)
    with local_pool(2) as pool:
        list(map_names(work, ["a", "b"], pool))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, number):
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(guard='if __name__ == "__main__":'))
    command = [sys.executable, script, tmp_path]
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **options) as parent:
        await_files(tmp_path / "a", tmp_path / "b", alive=lambda: parent.poll() is None)
        # A terminal interrupts the workers, too.
        (parent.send_signal if number == signal.SIGKILL else partial(os.killpg, parent.pid))(number)
        said = parent.communicate(timeout=60)[1].splitlines()
    assert said == ["rlreps: interrupted; run the same command again to continue"] * (
        number == signal.SIGINT
    )
    assert all(gone(int((tmp_path / name).read_text())) for name in "ab")
