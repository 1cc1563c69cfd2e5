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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.checkpoints import Checkpoints
from rlreps.configs import require, require_positive
from rlreps.encoders import Encoder
from rlreps.errors import TrainingDivergedError
from rlreps.losses.base import Objective, Params
from rlreps.metrics_log import MetricsLog
from rlreps.optimizers import optimizer_step
from rlreps.progress import progress_bar
from rlreps.run_folder import RunFolder
from rlreps.sources import Source

Evaluate = Callable[[Params], Mapping[str, Array]]
"""One seed's parameters → named scalars; jitted and mapped over seeds by ``train``."""


class TrainState(NamedTuple):
    """All that an update changes.

    Attributes:
        step: Updates made, [] (int32).
        params: Encoder parameters.
        optimizer: Optimizer state.
        objective: Objective state.
    """

    step: Array
    params: Params
    optimizer: Any
    objective: Any


class ChunkReport(NamedTuple):
    """What a chunk of updates says of itself.

    Attributes:
        loss: Mean loss over the chunk, [].
        bad_step: First step with a non-finite loss or, failing that, the last step if a parameter
            ended non-finite; -1 if all is well, [] (int32).
    """

    loss: Array
    bad_step: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """How one update is made.

    Attributes:
        encoder: The encoder being trained.
        objective: What it is trained on.
        optimizer: How its parameters move.
        rows: b, states drawn per update.
        tasks: t, columns drawn per update.
    """

    encoder: Encoder
    objective: Objective
    optimizer: optax.GradientTransformation
    rows: int
    tasks: int

    def init(self, seed: Array) -> TrainState:
        """The state before the first update, for a seed [] (uint32)."""
        encoder_key, objective_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0))
        params = self.encoder.init(encoder_key)
        return TrainState(
            jnp.zeros((), jnp.int32),
            params,
            self.optimizer.init(params),
            self.objective.init(objective_key),
        )

    def update(self, state: TrainState, source: Source, seed: Array) -> tuple[TrainState, Array]:
        """One update: (next state, loss [])."""
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), state.step)
        sample_key, loss_key = jax.random.split(key)
        batch = source.sample(sample_key, self.rows, self.tasks)
        (loss, (objective, _)), gradients = jax.value_and_grad(self.objective.loss, has_aux=True)(
            state.params, self.encoder.apply, batch, state.objective, loss_key
        )
        params, optimizer = optimizer_step(self.optimizer, gradients, state.optimizer, state.params)
        return TrainState(state.step + 1, params, optimizer, objective), loss

    def chunk(
        self, num_steps: int, state: TrainState, source: Source, seed: Array
    ) -> tuple[TrainState, ChunkReport]:
        """``num_steps`` updates in one scan."""

        def body(carry: TrainState, _: None) -> tuple[TrainState, Array]:
            return self.update(carry, source, seed)

        new_state, losses = lax.scan(body, state, None, length=num_steps)
        bad = ~jnp.isfinite(losses)
        first_bad = state.step + jnp.argmax(bad).astype(jnp.int32)
        finite = jax.tree.reduce(
            jnp.logical_and,
            jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), new_state.params),
        )
        after = jnp.where(finite, -1, new_state.step - 1)
        return new_state, ChunkReport(losses.mean(), jnp.where(bad.any(), first_bad, after))


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
        seeds: One run each, vmapped.
        evaluate: One seed's parameters → named scalars, called every ``evaluate_every`` updates,
            before the first and after the last.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``.
        description: Title of the progress bar.
        progress: Whether to show one.

    Returns:
        The final state and the history.

    Raises:
        InputError: For counts below 1 or a checkpoint that cannot be read.
        TrainingDivergedError: When a loss or a parameter becomes NaN or infinite.
    """
    for name, value in (("steps", steps), ("rows", rows), ("tasks", tasks)):
        require_positive(name, value)
    require_positive("evaluate_every", evaluate_every)
    require(
        checkpoint_every >= 1 and checkpoint_every % evaluate_every == 0,
        f"checkpoint_every to be a multiple of evaluate_every ({evaluate_every})",
        checkpoint_every,
    )
    require(len(seeds) >= 1, "at least one seed", tuple(seeds))
    learner = Learner(
        encoder=encoder, objective=objective, optimizer=optimizer, rows=rows, tasks=tasks
    )
    loop = _Loop(learner, source, tuple(seeds), evaluate, folder)
    with (
        progress_bar(description, total=steps, done=loop.step, unit="steps", show=progress) as bar,
        contextlib.closing(loop),
    ):
        while loop.step < steps:
            count = min(evaluate_every - loop.step % evaluate_every, steps - loop.step)
            loop.advance(count)
            record = loop.log()
            if loop.step % checkpoint_every == 0 or loop.step == steps:
                loop.save()
            bar(count, _note(record))
    return TrainingResult(
        loop.state, tuple(seeds), loop.history, loop.seconds, loop.compile_seconds
    )


def _note(record: Mapping[str, Any]) -> str:
    name = "subspace_distance" if "subspace_distance" in record else "loss"
    return f"{name.replace('_', ' ')} {np.mean(record[name]):.4g}"


class _Loop:
    """The host's side of a run: where it stands, what it has logged, where it is kept."""

    def __init__(
        self,
        learner: Learner,
        source: Source,
        seeds: tuple[int, ...],
        evaluate: Evaluate | None,
        folder: RunFolder | None,
    ) -> None:
        self._learner, self._source = learner, source
        self._seeds = jnp.asarray(seeds, jnp.uint32)
        self._evaluate = jax.jit(jax.vmap(evaluate)) if evaluate is not None else None
        self._compiled: dict[int, Any] = {}
        self._loss = np.full(len(seeds), np.nan)
        self._log = MetricsLog(folder)
        self._checkpoints = Checkpoints(folder.path / "checkpoints") if folder else None
        self.history: list[dict[str, Any]] = []
        self.step, self.seconds, self.compile_seconds = 0, 0.0, 0.0
        self.state: TrainState = jax.jit(jax.vmap(learner.init))(self._seeds)
        latest = self._checkpoints.latest_step() if self._checkpoints else None
        if self._checkpoints and latest is not None:
            self.state = self._checkpoints.restore(latest, self.state)
            self.step = latest
            self.history = self._log.resume(latest)
            self.seconds = float(self.history[-1]["seconds"])
        else:
            self._log.resume(-1)
            self.log()

    def advance(self, count: int) -> None:
        """Makes ``count`` updates, and stops the run if they went wrong."""
        if count not in self._compiled:
            self._compiled[count] = self._compile(count)
        start = time.perf_counter()
        state, report = jax.block_until_ready(
            self._compiled[count](self.state, self._source, self._seeds)
        )
        self.seconds += time.perf_counter() - start
        bad_steps = np.asarray(report.bad_step)
        if np.any(bad_steps >= 0):
            self._stop(bad_steps)
        self.state, self._loss = state, np.asarray(report.loss)
        self.step += count

    def log(self) -> dict[str, Any]:
        """Evaluates the current parameters and adds a record to the history."""
        record: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 3)}
        if self.step > 0:
            record["loss"] = self._loss.tolist()
        if self._evaluate is not None:
            figures = self._evaluate(self.state.params)
            record |= {name: np.asarray(value).tolist() for name, value in figures.items()}
        self.history.append(record)
        self._log.append(record)
        return record

    def save(self) -> None:
        """Keeps the current state."""
        if self._checkpoints:
            self._checkpoints.save(self.step, self.state)

    def close(self) -> None:
        """Releases the log."""
        self._log.close()

    def _compile(self, count: int) -> Any:
        start = time.perf_counter()
        chunk = jax.vmap(functools.partial(self._learner.chunk, count), in_axes=(0, None, 0))
        compiled = jax.jit(chunk).lower(self.state, self._source, self._seeds).compile()
        self.compile_seconds += time.perf_counter() - start
        return compiled

    def _stop(self, bad_steps: np.ndarray) -> None:
        index = int(np.argmax(bad_steps >= 0))
        kept = self._checkpoints.latest_step() if self._checkpoints else None
        where = f"the checkpoint of step {kept} is untouched" if kept else "no checkpoint was made"
        raise TrainingDivergedError(
            f"expected finite losses and parameters, got NaN or infinity at step "
            f"{int(bad_steps[index])} of seed {int(self._seeds[index])}; {where}; "
            "try a smaller learning rate or kappa0"
        )
