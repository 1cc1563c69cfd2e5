"""Executors of clusters, for ``--executor rlreps.runs.engines:NAME`` and as recipes of your own."""

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, cast

from rlreps.config import import_extra


def dask() -> Executor:
    """Return the workers of a Dask cluster, whose scheduler ``DASK_SCHEDULER_ADDRESS`` names."""
    distributed = import_extra("distributed", "dask", "an executor of Dask")
    return cast(Executor, distributed.Client(set_as_default=False).get_executor())


def mpi() -> Executor:
    """Return the other processes of ``mpiexec -n N python -m mpi4py.futures -m rlreps``."""
    futures = import_extra("mpi4py.futures", "mpi", "an executor of MPI")
    return cast(Executor, futures.MPIPoolExecutor())


def slurm(folder: Path = Path("slurm-jobs"), **parameters: Any) -> Executor:
    """Return an executor that starts a job of Slurm for each call, by submitit.

    Args:
        folder: Folder of scripts, calls and logs, on a disk that all machines share.
        **parameters: As for ``submitit.SlurmExecutor.update_parameters``, such as ``partition``,
            ``time`` (minutes), ``cpus_per_task`` and ``array_parallelism``. ``SBATCH_PARTITION``
            and the like in the environment take precedence.
    """
    submitit = import_extra("submitit", "slurm", "an executor of Slurm")
    folder.mkdir(parents=True, exist_ok=True)
    # A new folder: submitit takes a result of an earlier job with the same number for its own.
    jobs = submitit.SlurmExecutor(Path(tempfile.mkdtemp(dir=folder.absolute())))
    jobs.update_parameters(**parameters)
    return _SlurmJobs(jobs)


class _SlurmJobs(Executor):
    """An executor of submitit as one of ``concurrent.futures``."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job, future = self._jobs.submit(function, *args, **kwargs), Future[Any]()

        def wait() -> None:
            error = job.exception()
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(job.result())
            else:
                future.set_exception(error)

        future.add_done_callback(lambda ended: job.cancel() if ended.cancelled() else None)
        threading.Thread(target=wait, daemon=True).start()
        return future
