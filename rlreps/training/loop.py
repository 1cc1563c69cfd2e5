"""The one host loop: chunks of updates, evaluations, records, checkpoints and exact resumption.

A ``Program`` defines an update and an evaluation; ``run`` does the rest, for training and agents
alike. A run that was killed continues from its newest checkpoint and ends
bit-identical to a run without interruption, provided that a program's results depend on its state
and the step alone.
"""

import abc
import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from rlreps.errors import TrainingDivergedError, require, require_positive
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.metrics_log import Logger, MetricsLog
from rlreps.runs.processes import first_does
from rlreps.runs.progress import is_visible, progress_bar

OWN_FIGURES = {"step", "seconds", "loss"}
"""Names that every record of a run contains."""

State = TypeVar("State")

_LEAST_SECONDS, _REST = 1.0, 19.0
"""After a checkpoint no other is written for a second, and for 19 times as long as writing it took:
on a GPU, they took a quarter of a training's time. The last one is always written."""

Numbers = Mapping[str, Any]
"""Name → a number, or one for each run, [runs]."""


class Program(abc.ABC, Generic[State]):
    """A program that a host loop runs."""

    @abc.abstractmethod
    def init(self) -> State:
        """Return the state before the first step."""

    @abc.abstractmethod
    def advance(self, state: State, step: int, count: int) -> tuple[State, Numbers]:
        """Make the steps ``step`` … ``step + count - 1``, and return their report.

        The loop times this call, so return only when the steps are done.

        Raises:
            TrainingDivergedError: If the state diverged; the loop adds the last checkpoint to the
                message.
        """

    @abc.abstractmethod
    def evaluate(self, state: State, step: int) -> tuple[State, Numbers]:
        """Measure a state, and return it, unchanged or without the members that diverged."""

    def prepare(self, state: State, count: int) -> None:
        """Compile what ``advance`` needs for ``count`` steps; called once for each count."""

    def note(self, record: Mapping[str, Any]) -> str:
        """Describe the latest record in a few words beside the progress bar."""
        return ""

    def collect(self, state: State) -> Any:
        """Return the part of a state that a checkpoint keeps: arrays on one device."""
        return state

    def put(self, kept: Any) -> State:
        """Return the state that ``collect`` kept."""
        state: State = kept
        return state


@dataclasses.dataclass(frozen=True)
class Finished(Generic[State]):
    """A finished run.

    Attributes:
        state: Its last state.
        history: One record per evaluation: ``step``, ``seconds`` and every measure; measures of
            several runs are lists.
        seconds: Time spent in steps, without evaluation, over all resumptions.
        compile_seconds: Time spent compiling before the steps, in this process. What a program
            compiles later counts as steps.
    """

    state: State
    history: list[dict[str, Any]]
    seconds: float
    compile_seconds: float


def run(
    program: Program[State],
    *,
    steps: int,
    evaluate_every: int,
    checkpoint_every: int | None = None,
    folder: RunFolder | None = None,
    loggers: Sequence[Logger] = (),
    description: str = "training",
) -> Finished[State]:
    """Run a program to its end, or continue it from the newest checkpoint in its folder.

    Args:
        program: The program.
        steps: Total number of steps.
        evaluate_every: Steps between evaluations, and in one call of ``advance``. One evaluation
            precedes the first step and one follows the last.
        checkpoint_every: Steps between checkpoints, a multiple of ``evaluate_every``. After one,
            those due within a second, or within 19 times as long as it took to write, are left out.
            None keeps only the last state.
        folder: Where to log metrics and keep checkpoints.
        loggers: Receive every record, in addition to TensorBoard's files in a folder.
        description: Title of the progress bar.

    Returns:
        The last state and the history.

    Raises:
        InputError: For counts out of range, or a folder whose checkpoint or metrics cannot be read
            or belong to a longer run.
        TrainingDivergedError: If the program raises it; checkpoints are untouched.
    """
    require_positive("steps", steps)
    require_positive("evaluate_every", evaluate_every)
    every = evaluate_every if checkpoint_every is None else checkpoint_every
    require_positive("checkpoint_every", every)
    require(
        every % evaluate_every == 0,
        f"checkpoint_every to be a multiple of evaluate_every ({evaluate_every})",
        every,
    )
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(contextlib.closing(MetricsLog(folder, loggers)))
        checkpoints = latest = None
        if folder is not None:
            checkpoints = Checkpoints(folder.path / "checkpoints", run=folder.identity)
            latest = checkpoints.latest_step()
        state, step, seconds, compile_seconds = program.init(), 0, 0.0, 0.0
        said, history, next_save = "", list[dict[str, Any]](), -math.inf
        prepared: set[int] = set()

        def record(metrics: Numbers) -> State:
            measured, figures = program.evaluate(state, step)
            taken = (OWN_FIGURES | {*metrics}) & {*figures}
            require(not taken, "an evaluation with names of its own", sorted(taken))
            found = {"step": step, "seconds": round(seconds, 3)}
            for name, value in {**metrics, **figures}.items():
                found[name] = np.asarray(jax.device_get(value)).tolist()
            history.append(found)
            log.append(found)
            return measured

        def rested() -> bool:
            return time.monotonic() >= next_save

        if checkpoints is not None and latest is not None:
            require(latest <= steps, f"a run of at least its checkpoint's {latest} steps", steps)
            state = program.put(checkpoints.restore(latest, program.collect(state)))
            history = log.resume(latest)
            step, seconds = latest, float(history[-1]["seconds"])
            said = f"continues at step {step:,} of {steps:,}"
        else:
            if folder is not None and first_does(lambda: bool(folder.read_metrics())):
                said = "starts over: it was interrupted before its first checkpoint"
            log.resume(-1)
            state = record({})
        if said and is_visible():
            print(f"{description} {said}", file=sys.stderr)
        bar = stack.enter_context(progress_bar(description, total=steps, done=step, unit="steps"))
        while step < steps:
            count = min(evaluate_every - step % evaluate_every, steps - step)
            if count not in prepared:
                start = time.perf_counter()
                program.prepare(state, count)
                # One process may find a program cached that another must compile.
                multihost_utils.sync_global_devices("compiled")
                compile_seconds += time.perf_counter() - start
                prepared.add(count)
            start = time.perf_counter()
            try:
                state, metrics = program.advance(state, step, count)
            except TrainingDivergedError as error:
                kept = "no checkpoint was made"
                if checkpoints is not None and checkpoints.latest_step() is not None:
                    kept = f"the checkpoint of step {checkpoints.latest_step()} is untouched"
                raise TrainingDivergedError(f"{error}; {kept}") from None
            seconds += time.perf_counter() - start
            step += count
            state = record(metrics)
            due = checkpoint_every is not None and step % checkpoint_every == 0
            if due and folder is not None:
                due = first_does(rested)
            if checkpoints is not None and (due or step == steps):
                start = time.monotonic()
                checkpoints.save(step, program.collect(state))
                took = time.monotonic() - start
                next_save = start + took + max(_LEAST_SECONDS, _REST * took)
            bar(count, program.note(history[-1]))
    return Finished(state, history, seconds, compile_seconds)
