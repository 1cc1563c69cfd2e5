"""The host's side of a training run: chunks on the device, records, checkpoints, resumption."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.errors import TrainingDivergedError, require
from rlreps.losses.base import Objective, Params
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.metrics_log import MetricsLog
from rlreps.sources.matrix import Source
from rlreps.sources.store import raise_read_failure
from rlreps.training.devices import Placement
from rlreps.training.population import Members
from rlreps.training.update import TrainState, zero_unless

EvaluateMember = Callable[[Params, Any], Mapping[str, Array]]
"""One member's parameters and settings → named scalars; mapped by ``train_members``."""

_EVALUATED_TOGETHER = 16


class Run(NamedTuple):
    """What is to be trained, wherever it is placed."""

    members: Members
    source: Source
    settings: Any
    seeds: tuple[int, ...]


class Loop:
    """The host's side of a run: where it stands, what it has logged, where it is kept."""

    def __init__(
        self,
        run: Run,
        placement: Placement,
        evaluate: EvaluateMember | None,
        folder: RunFolder | None,
    ) -> None:
        self._placement = placement
        members, seeds = run.members, jnp.asarray(run.seeds, jnp.uint32)
        self._members = dataclasses.replace(members, build=placement.spread_rows(members.build))
        put_source = placement.put_seeds if members.own_sources else placement.put
        self._source = put_source(run.source)
        self._seeds, self._settings = placement.put_seeds((seeds, run.settings))
        self._evaluate = None if evaluate is None else jax.jit(_over_members(evaluate))
        self._compiled: dict[int, Any] = {}
        self._findings: list[str | None] = [None] * len(run.seeds)
        self._loss = np.full(len(run.seeds), np.nan)
        learner = members.build(jax.tree.map(lambda leaf: leaf[0], run.settings))
        self._resets, objective = learner.resets_diverged, learner.objective
        # States are collected only for objectives that have something to say about them.
        silent = type(objective).diagnose is Objective.diagnose
        self._diagnose = None if silent else objective.diagnose
        self._log = MetricsLog(folder)
        self._checkpoints = Checkpoints(folder.path / "checkpoints") if folder else None
        self.history: list[dict[str, Any]] = []
        self.step, self.seconds, self.compile_seconds = 0, 0.0, 0.0
        self.state: TrainState = placement.put_seeds(members.init(seeds, run.settings))

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
        state, report = self._compiled[count](self.state, self._source, self._seeds, self._settings)
        bad_steps = np.asarray(report.bad_step)  # Waits for the whole chunk.
        self.seconds += time.perf_counter() - start
        if np.any(bad_steps >= 0):
            # Entries that could not be read are NaN too, and no fault of the training.
            raise_read_failure(self._source)
            if not self._resets:
                self._stop(bad_steps)
        if self._diagnose is not None and not self._resets:
            self._stop_if_ill(self._diagnose, state)
        self.state, self._loss = state, np.asarray(report.loss)
        self.step += count

    def log(self) -> dict[str, Any]:
        """Evaluates the current parameters and adds a record to the history."""
        record: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 3)}
        if self.step > 0:
            record["loss"] = self._loss.tolist()
        figures = self._figures()
        measured = np.asarray([np.isfinite(value) for value in figures.values()])
        if self._resets and not measured.all():
            # Finite parameters can give features too large for numbers.
            kept = self._placement.put_seeds(jnp.asarray(measured.all(axis=0)))
            self.state = jax.vmap(zero_unless)(kept, self.state)
            figures = self._figures()
        record |= {name: value.tolist() for name, value in figures.items()}
        if self._resets:
            record["diverged"] = np.asarray(_all_zero(self.state.params)).tolist()
        self.history.append(record)
        self._log.append(record)
        return record

    def _figures(self) -> dict[str, np.ndarray]:
        """Every evaluated figure of every member, each [members]."""
        if self._evaluate is None:
            return {}
        figures = self._evaluate(*self._placement.collect((self.state.params, self._settings)))
        return {name: np.asarray(value) for name, value in figures.items()}

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
        chunk = functools.partial(self._members.chunk, count)
        spread = self._placement.spread_seeds(chunk, own_sources=self._members.own_sources)
        lowered = jax.jit(spread).lower(self.state, self._source, self._seeds, self._settings)
        compiled = lowered.compile()
        self.compile_seconds += time.perf_counter() - start
        return compiled

    def _stop(self, bad_steps: np.ndarray) -> None:
        index = int(np.argmax(bad_steps >= 0))
        raise TrainingDivergedError(
            f"expected finite losses and parameters, got NaN or infinity at step "
            f"{int(bad_steps[index])} of seed {int(self._seeds[index])}; {self._kept()}; "
            "try a smaller learning rate or kappa0"
        )

    def _stop_if_ill(self, diagnose: Callable[[Any, int], str | None], state: TrainState) -> None:
        """Raises what an objective says of a member's state after two chunks in a row, if anything.

        What one batch alone shows can pass: a young network's features often nearly depend.
        """
        objective = self._placement.collect(state.objective)
        for index, seed in enumerate(self._seeds):
            finding, before = diagnose(objective, index), self._findings[index]
            self._findings[index] = finding
            if finding is not None and finding == before:
                raise TrainingDivergedError(
                    f"{finding}, at step {int(state.step[index]) - 1} of seed {int(seed)}; "
                    f"{self._kept()}; try a smaller learning rate, fewer features or a larger "
                    "encoder"
                )

    def _kept(self) -> str:
        """What is left of the run on disk."""
        kept = self._checkpoints.latest_step() if self._checkpoints else None
        if kept is None:
            return "no checkpoint was made"
        return f"the checkpoint of step {kept} is untouched"


def _over_members(evaluate: EvaluateMember) -> EvaluateMember:
    """An evaluation of all members at once, some at a time.

    Every member's activations at all states can be many times as large as its parameters.
    """

    def evaluate_all(params: Params, settings: Any) -> Mapping[str, Array]:
        count = len(jax.tree.leaves(params)[0])
        if count <= _EVALUATED_TOGETHER:
            return jax.vmap(evaluate)(params, settings)
        figures: Mapping[str, Array] = jax.lax.map(
            lambda member: evaluate(*member),
            (params, settings),
            batch_size=_EVALUATED_TOGETHER,
        )
        return figures

    return evaluate_all


@jax.jit
def _all_zero(params: Params) -> Array:
    """Which members have no parameter but zeros: those that were reset, [members] (bool)."""
    leaves = [jnp.all(leaf.reshape(len(leaf), -1) == 0, axis=1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(leaves), axis=0)
