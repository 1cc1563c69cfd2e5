"""Clusters as executors, where they are installed: Dask with a killed worker, MPI, Slurm."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from rlreps.runs import engines
from rlreps.runs.workers import map_names

ROOT = Path(__file__).parents[3]
HAS_SLURM = os.geteuid() == 0 and all(map(shutil.which, ("munged", "slurmctld", "slurmd")))
RUNS = """
import sys
from rlreps.app.command_options import executor_named
from rlreps.runs.workers import map_names
if __name__ == "__main__":
    found = dict(map_names(lambda name: name**2, range(3), executor_named(sys.argv[1])))
    print(found == {0: 0, 1: 1, 2: 4})
"""


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


class Job:
    """A job of submitit that ends with an error, or has been cancelled."""

    def __init__(self, error):
        self.error, self.cancelled = error, False

    def exception(self):
        return self.error

    def result(self):
        return 3

    def cancel(self):
        self.cancelled = True


@pytest.mark.parametrize("error", [None, OSError("out of memory")])
def test_a_job_of_slurm_ends_a_future(error):
    jobs = type("Jobs", (), {"submit": lambda self, *given: Job(error)})()
    future = engines._SlurmJobs(jobs).submit(max, 1, 3)
    assert isinstance(future, Future)
    assert future.exception(timeout=20) is error
    assert error is not None or future.result() == 3


@pytest.mark.integration
@needs("distributed")
def test_a_killed_worker_of_dask_loses_nothing(tmp_path):
    from distributed import Client, LocalCluster

    def work(name, folder=str(tmp_path)):
        if name == 1:
            try:
                open(f"{folder}/killed", "x").close()
            except FileExistsError:
                return name
            os.kill(os.getpid(), signal.SIGKILL)
        return name

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        found = dict(map_names(work, range(4), client.get_executor()))
        assert found == {name: name for name in range(4)}
    assert (tmp_path / "killed").exists()


@pytest.mark.integration
@needs("mpi4py")
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
def test_other_processes_of_mpi_compute(tmp_path):
    (tmp_path / "runs.py").write_text(RUNS)
    command = ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "runs.py"]
    command += ["rlreps.runs.engines:mpi"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.stdout.strip(), ended.returncode) == ("True", 0)


ARRAY = """#!/bin/bash
#SBATCH --array=0-39 --requeue
if [ "$SLURM_ARRAY_TASK_ID$SLURM_RESTART_COUNT" = 3 ]; then
  scontrol requeue "$SLURM_JOB_ID"; sleep 60
fi
echo "$SLURM_ARRAY_TASK_ID $SLURM_RESTART_COUNT" > "$SLURM_ARRAY_TASK_ID.txt"
"""


def on_slurm(script, folder):
    """Run a script of Bash with a Slurm of one node; return its last line and standard error."""
    (folder / "runs.py").write_text(RUNS)
    command = [sys.executable, ROOT / "scripts/one_node_slurm.py", "bash", "-c", script]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return ended.stdout.splitlines()[-1:], ended.stderr


@pytest.mark.integration
@needs("submitit")
@pytest.mark.skipif(not HAS_SLURM, reason="needs root, slurm-wlm and munge")
def test_slurm_runs_calls_an_array_and_a_requeued_job(tmp_path):
    (tmp_path / "array.sh").write_text(ARRAY)
    calls = f"{sys.executable} runs.py rlreps.runs.engines:slurm"
    last, said = on_slurm(f"sbatch --wait --output=/dev/null array.sh && {calls}", tmp_path)
    assert last == ["True"], said
    found = [(tmp_path / f"{index}.txt").read_text().split() for index in range(40)]
    assert found == [[str(index), *(["1"] if index == 3 else [])] for index in range(40)]


@pytest.mark.integration
@needs("executorlib")
@pytest.mark.skipif(not HAS_SLURM, reason="needs root, slurm-wlm and munge")
def test_the_executor_of_the_handbook_runs_calls_in_steps_of_an_allocation(tmp_path):
    page = (ROOT / "docs/how-to/several-machines.md").read_text()
    (code,) = re.findall(r"```py\n(from executorlib.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    last, said = on_slurm(f"salloc --ntasks=2 {sys.executable} runs.py mine:steps", tmp_path)
    assert last == ["True"], said
