"""The training loop: scanned updates on the device, a host loop around them.

A ``Learner`` says how one update is made; ``train`` runs it for any number of seeds at once, with
evaluations, checkpoints and exact resumption. Every random draw is keyed by (seed, step), so a run
that was killed and resumed ends with the parameters of one that was not.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from rlreps.checkpoints import Checkpoints
from rlreps.encoders import Encoder
from rlreps.errors import TrainingDivergedError
from rlreps.learner import Learner, TrainState
from rlreps.losses.base import Objective, Params
from rlreps.metrics_log import MetricsLog
from rlreps.placement import Placement, make_placement
from rlreps.progress import progress_bar
from rlreps.run_folder import RunFolder
from rlreps.sources import Source
from rlreps.streamed_source import raise_read_failure
from rlreps.validation import require, require_positive

Evaluate = Callable[[Params], Mapping[str, Array]]
"""One seed's parameters → named scalars; jitted and mapped over seeds by ``train``."""


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes:
        state: Final state; every leaf has a leading seed axis.
        seeds: The seeds, in the order of that axis.
        history: One record per evaluation: ``step``, ``seconds``, ``loss`` and every evaluated
            figure, the last two as lists over seeds.
        seconds: Time spent in updates, without compilation and evaluation.
        compile_seconds: Time spent compiling, in this process.
    """

    state: TrainState
    seeds: tuple[int, ...]
    history: list[dict[str, Any]]
    seconds: float
    compile_seconds: float

    def params(self, index: int = 0) -> Params:
        """Encoder parameters of one seed, by position."""
        return jax.tree.map(lambda leaf: leaf[index], self.state.params)


def train(
    encoder: Encoder,
    objective: Objective,
    source: Source,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    rows: int = 250,
    tasks: int = 1,
    seeds: Sequence[int] = (0,),
    evaluate: Evaluate | None = None,
    evaluate_every: int = 100,
    folder: RunFolder | None = None,
    checkpoint_every: int = 500,
    devices: Sequence[jax.Device] | None = None,
    description: str = "training",
    progress: bool = True,
) -> TrainingResult:
    """Trains an encoder for several seeds at once.

    Args:
        encoder: The encoder.
        objective: The objective.
        source: Where batches come from.
        optimizer: The encoder's optimizer.
        steps: Updates.
        rows: b, states drawn per update.
        tasks: t, columns drawn per update.
        seeds: One run each, vmapped; in [0, 2³²).
        evaluate: One seed's parameters → named scalars, called every ``evaluate_every`` updates,
            before the first and after the last.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``.
        devices: Where to train (see ``placement``); None is JAX's default device. They change
            results by rounding at most, and an interrupted run may resume on others.
        description: Title of the progress bar.
        progress: Whether to show one.

    Returns:
        The final state, on the first of the devices, and the history.

    Raises:
        InputError: For counts below 1, devices that are not this process's, a folder whose
            checkpoint or metrics cannot be read or are of a longer run, or entries that a streamed
            source could not read.
        TrainingDivergedError: When a loss or any number of the state becomes NaN or infinite.
    """
    for name, value in (("steps", steps), ("rows", rows), ("tasks", tasks)):
        require_positive(name, value)
    require_positive("evaluate_every", evaluate_every)
    require(
        checkpoint_every >= 1 and checkpoint_every % evaluate_every == 0,
        f"checkpoint_every to be a multiple of evaluate_every ({evaluate_every})",
        checkpoint_every,
    )
    require(
        len(seeds) >= 1 and all(0 <= seed < 2**32 for seed in seeds),
        "at least one seed, each in [0, 2**32)",
        tuple(seeds),
    )
    placement = make_placement(devices, len(seeds))
    learner = Learner(
        encoder=encoder, objective=objective, optimizer=optimizer, rows=rows, tasks=tasks
    )
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(
            contextlib.closing(_Loop(learner, source, tuple(seeds), placement, evaluate, folder))
        )
        loop.start_or_resume(steps)
        bar = stack.enter_context(
            progress_bar(description, total=steps, done=loop.step, unit="steps", show=progress)
        )
        while loop.step < steps:
            count = min(evaluate_every - loop.step % evaluate_every, steps - loop.step)
            loop.advance(count)
            record = loop.log()
            if loop.step % checkpoint_every == 0 or loop.step == steps:
                loop.save()
            bar(count, _note(record))
    return TrainingResult(
        placement.collect(loop.state),
        tuple(seeds),
        loop.history,
        loop.seconds,
        loop.compile_seconds,
    )


def _note(record: Mapping[str, Any]) -> str:
    """What the progress bar says of a record: the distance, if there is one, or the loss."""
    names = {"distance": "subspace_distance", "loss": "loss"}
    label = "distance" if names["distance"] in record else "loss"
    return f"{label} {np.mean(record[names[label]]):.3g}"


class _Loop:
    """The host's side of a run: where it stands, what it has logged, where it is kept."""

    def __init__(
        self,
        learner: Learner,
        source: Source,
        seeds: tuple[int, ...],
        placement: Placement,
        evaluate: Evaluate | None,
        folder: RunFolder | None,
    ) -> None:
        self._placement = placement
        self._learner, self._source = placement.spread_rows(learner), placement.put(source)
        self._seeds = placement.put_seeds(jnp.asarray(seeds, jnp.uint32))
        self._evaluate = jax.jit(jax.vmap(evaluate)) if evaluate is not None else None
        self._compiled: dict[int, Any] = {}
        self._loss = np.full(len(seeds), np.nan)
        self._log = MetricsLog(folder)
        self._checkpoints = Checkpoints(folder.path / "checkpoints") if folder else None
        self.history: list[dict[str, Any]] = []
        self.step, self.seconds, self.compile_seconds = 0, 0.0, 0.0
        start: TrainState = jax.vmap(learner.init)(jnp.asarray(seeds, jnp.uint32))
        self.state = placement.put_seeds(start)

    def start_or_resume(self, steps: int) -> None:
        """Goes to the newest checkpoint of a run of ``steps`` updates, or logs the start of one."""
        latest = self._checkpoints.latest_step() if self._checkpoints else None
        if self._checkpoints is None or latest is None:
            self._log.resume(-1)
            self.log()
            return
        require(latest <= steps, f"a run of at least its checkpoint's {latest} steps", steps)
        state = self._checkpoints.restore(latest, self._placement.collect(self.state))
        self.state = self._placement.put_seeds(state)
        self.step = latest
        self.history = self._log.resume(latest)
        self.seconds = float(self.history[-1]["seconds"])

    def advance(self, count: int) -> None:
        """Makes ``count`` updates, and stops the run if they went wrong."""
        if count not in self._compiled:
            self._compiled[count] = self._compile(count)
        start = time.perf_counter()
        state, report = self._compiled[count](self.state, self._source, self._seeds)
        bad_steps = np.asarray(report.bad_step)  # Waits for the whole chunk.
        self.seconds += time.perf_counter() - start
        if np.any(bad_steps >= 0):
            # Entries that could not be read are NaN too, and no fault of the training.
            raise_read_failure(self._source)
            self._stop(bad_steps)
        self.state, self._loss = state, np.asarray(report.loss)
        self.step += count

    def log(self) -> dict[str, Any]:
        """Evaluates the current parameters and adds a record to the history."""
        record: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 3)}
        if self.step > 0:
            record["loss"] = self._loss.tolist()
        if self._evaluate is not None:
            figures = self._evaluate(self._placement.collect(self.state.params))
            record |= {name: np.asarray(value).tolist() for name, value in figures.items()}
        self.history.append(record)
        self._log.append(record)
        return record

    def save(self) -> None:
        """Keeps the current state."""
        if self._checkpoints:
            self._checkpoints.save(self.step, self._placement.collect(self.state))

    def close(self) -> None:
        """Releases the log and the checkpoints."""
        self._log.close()
        if self._checkpoints:
            self._checkpoints.close()

    def _compile(self, count: int) -> Any:
        start = time.perf_counter()
        chunk = functools.partial(self._learner.chunk_over_seeds, count)
        compiled = (
            jax.jit(self._placement.spread_seeds(chunk))
            .lower(self.state, self._source, self._seeds)
            .compile()
        )
        self.compile_seconds += time.perf_counter() - start
        return compiled

    def _stop(self, bad_steps: np.ndarray) -> None:
        index = int(np.argmax(bad_steps >= 0))
        kept = self._checkpoints.latest_step() if self._checkpoints else None
        where = (
            "no checkpoint was made"
            if kept is None
            else f"the checkpoint of step {kept} is untouched"
        )
        raise TrainingDivergedError(
            f"expected finite losses and parameters, got NaN or infinity at step "
            f"{int(bad_steps[index])} of seed {int(self._seeds[index])}; {where}; "
            "try a smaller learning rate or kappa0"
        )
