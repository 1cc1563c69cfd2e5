"""Commands from jobs and functions: their options, and what is run and printed."""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

from rlreps.app.job import Job, print_found, run_job
from rlreps.app.options import POSITIONAL
from rlreps.config import import_object, options
from rlreps.errors import own_code, require
from rlreps.runs.processes import ProcessesConfig
from rlreps.training.devices import choose_devices, devices_for_small_runs

_POSITIONAL = {"data", "features", "other", "paths", "run_folder", "runs", "store", "world"}
"""Parameters of commands that become positional arguments if they have no default."""


class JobOptions:
    """Options that commands share; a command has those that it ``takes``, and a job's has ``out``.

    Attributes:
        out: Folder of the run; run again to resume.
        processes: The processes that compute together, each started with the same command.
        devices: Number of devices of each process to train on; by default all accelerators or,
            without any, one CPU device. Seeds are distributed over all devices if they divide
            evenly; otherwise the devices share every batch.
        jobs: Parts to compute at a time, each in its own process with its share of the CPU's cores.
        executor: Where to compute parts: MODULE:FUNCTION of a function without required arguments
            that returns a concurrent.futures.Executor, such as rlreps.runs.engines:dask.
    """

    out: Path
    processes: ProcessesConfig
    devices: int | None = None
    jobs: int = 1
    executor: str | None = None


def command_class(make: Callable[..., Any], without: Collection[str] = ()) -> type:
    """Make a dataclass of the parameters of a command; its ``run`` runs the command.

    If ``make`` is a job or returns one, ``run`` runs the job and prints what the job shows.
    Otherwise it prints what the function returns: one of ``Printed``, or several.

    Args:
        make: A job, or a function; its docstring describes the parameters.
        without: Parameters that keep their defaults; the command has no options for them.
    """
    hints = get_type_hints(make, include_extras=True)
    job = make if isinstance(make, type) else hints.get("return")
    is_job = isinstance(job, type) and issubclass(job, Job)
    # What a function takes precedes what the job that it returns takes.
    taken = getattr(make, "takes", getattr(job, "takes", ()))
    shares = getattr(make, "shares_devices", getattr(job, "shares_devices", False))
    shown = {f.name for f in options(make)} if dataclasses.is_dataclass(make) else {*hints}
    own = [
        _field(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(make).parameters.items()
        if name in shown and name not in without and name not in taken
    ]
    shared = [
        _field(name, hint, getattr(JobOptions, name, inspect.Parameter.empty))
        for name, hint in get_type_hints(JobOptions).items()
        if name in taken or (is_job and name == "out") or (name == "executor" and "jobs" in taken)
    ]

    def run(self: Any) -> None:
        executor = None if self.executor is None else executor_named(self.executor)
        places: dict[str, Any] = {"devices": None, "jobs": self.jobs, "executor": executor}
        given = {} if is_job else {name: place for name, place in places.items() if name in taken}
        found = make(**{name: getattr(self, name) for name, *_ in own}, **given)
        if isinstance(found, Job):
            if "devices" in taken:
                places["devices"] = choose_devices(self.devices)
            elif shares:
                places["devices"] = devices_for_small_runs()
            found = found.show(run_job(found, self.out, **places))
        print_found(found)

    return dataclasses.make_dataclass(
        make.__name__,
        [*shared, *own],
        bases=(JobOptions,),  # For their descriptions.
        namespace={"__doc__": make.__doc__, "run": run},
        frozen=True,
        kw_only=True,
    )


def executor_named(place: str) -> Executor:
    """Call the function MODULE:FUNCTION, which makes an executor.

    Raises:
        InputError: If the function does not exist or returns something else.
    """
    make = import_object(place, "a function that makes an executor")
    with own_code(f"{place} to make an executor"):
        made = make()
    require(isinstance(made, Executor), f"{place} to make a concurrent.futures.Executor", made)
    return cast(Executor, made)


def _field(name: str, hint: Any, default: Any) -> tuple[str, Any, Any]:
    """Make the field of a parameter."""
    if default is not inspect.Parameter.empty:
        return name, hint, dataclasses.field(default=default)
    return name, Annotated[hint, POSITIONAL] if name in _POSITIONAL else hint, dataclasses.field()
