"""Runs of a streaming rule: scanned updates on the device, a host loop around them.

The counterpart of ``rlreps.training`` for rules without an encoder. Every random draw is keyed by
(seed, step), so a run that was killed and resumed ends with the components of one that was not.
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
from jax import Array

from rlreps.errors import require, require_positive
from rlreps.numerics import PRNG
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.metrics_log import MetricsLog
from rlreps.runs.progress import progress_bar
from rlreps.streaming import StreamingRule

Draw = Callable[[Any, Array], Array]
"""(data, key) → a batch of observations [b, features]."""


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """A finished run.

    Attributes:
        components: Estimated components of every seed, [seeds, features, k].
        history: One record per evaluation: ``step``, ``seconds``, and lists over seeds of every
            evaluated figure and of ``diverged``.
        seconds: Time spent in updates, without compilation and evaluation.
    """

    components: Array
    history: list[dict[str, Any]]
    seconds: float


def fit_stream(
    rule: StreamingRule,
    data: Any,
    draw: Draw,
    *,
    steps: int,
    seeds: Sequence[int],
    evaluate: Callable[[Array], Mapping[str, Array]],
    evaluate_every: int,
    folder: RunFolder | None = None,
    checkpoint_every: int | None = None,
    description: str = "streaming",
    progress: bool = True,
) -> StreamResult:
    """Runs a rule for several seeds at once.

    A seed whose state becomes non-finite is set to zero, where it counts as diverged.

    Args:
        rule: The rule.
        data: A pytree of arrays that batches are drawn from.
        draw: How.
        steps: Updates, a multiple of ``evaluate_every``.
        seeds: One run each, vmapped; in [0, 2³²).
        evaluate: One seed's components [features, k] → named scalars; before the first update and
            every ``evaluate_every`` of them.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``; None keeps
            the last state alone.
        description: Title of the progress bar.
        progress: Whether to show one.

    Returns:
        The components and the history.

    Raises:
        InputError: For counts below 1 or that do not divide, or a folder whose checkpoint or
            metrics cannot be read.
    """
    require_positive("evaluate_every", evaluate_every)
    require(
        steps >= 1 and steps % evaluate_every == 0,
        f"steps to be a multiple of evaluate_every ({evaluate_every})",
        steps,
    )
    every = steps if checkpoint_every is None else checkpoint_every
    require(
        every >= 1 and every % evaluate_every == 0,
        f"checkpoint_every to be a multiple of evaluate_every ({evaluate_every})",
        every,
    )
    with contextlib.closing(_Loop(rule, data, draw, tuple(seeds), evaluate, folder)) as loop:
        loop.start_or_resume(steps)
        with progress_bar(
            description, total=steps, done=loop.step, unit="steps", show=progress
        ) as bar:
            while loop.step < steps:
                loop.advance(evaluate_every)
                loop.log()
                if loop.step % every == 0 or loop.step == steps:
                    loop.save()
                bar(evaluate_every)
    return StreamResult(jax.vmap(rule.components)(loop.state), loop.history, loop.seconds)


class _Loop:
    """Where a run stands, what it has logged, where it is kept."""

    def __init__(
        self,
        rule: StreamingRule,
        data: Any,
        draw: Draw,
        seeds: tuple[int, ...],
        evaluate: Callable[[Array], Mapping[str, Array]],
        folder: RunFolder | None,
    ) -> None:
        self._data, self._seeds = data, jnp.asarray(seeds, jnp.uint32)
        self._chunk = jax.jit(functools.partial(_chunk, rule, draw), static_argnames="count")
        self._evaluate = jax.jit(jax.vmap(lambda state: evaluate(rule.components(state))))
        self._compiled: dict[int, Any] = {}
        self._log = MetricsLog(folder)
        self._checkpoints = Checkpoints(folder.path / "checkpoints") if folder else None
        self.history: list[dict[str, Any]] = []
        self.step, self.seconds = 0, 0.0
        self.state = jax.jit(jax.vmap(lambda seed: rule.init(_key(seed, 0))))(self._seeds)

    def start_or_resume(self, steps: int) -> None:
        """Goes to the newest checkpoint, or logs the start."""
        latest = self._checkpoints.latest_step() if self._checkpoints else None
        if self._checkpoints is None or latest is None:
            self._log.resume(-1)
            self.log()
            return
        require(latest <= steps, f"a run of at least its checkpoint's {latest} steps", steps)
        self.state = self._checkpoints.restore(latest, self.state)
        self.step = latest
        self.history = self._log.resume(latest)
        self.seconds = float(self.history[-1]["seconds"])

    def advance(self, count: int) -> None:
        """Makes ``count`` updates."""
        arguments = (self.state, self._data, self._seeds, jnp.int32(self.step))
        if count not in self._compiled:
            self._compiled[count] = self._chunk.lower(*arguments, count=count).compile()
        start = time.perf_counter()
        self.state = jax.block_until_ready(self._compiled[count](*arguments))
        self.seconds += time.perf_counter() - start
        self.step += count

    def log(self) -> None:
        """Evaluates the current components and adds a record to the history."""
        figures = {name: np.asarray(value) for name, value in self._evaluate(self.state).items()}
        record: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 3)}
        record |= {name: value.tolist() for name, value in figures.items()}
        record["diverged"] = np.asarray(_all_zero(self.state)).tolist()
        self.history.append(record)
        self._log.append(record)

    def save(self) -> None:
        """Keeps the current state."""
        if self._checkpoints:
            self._checkpoints.save(self.step, self.state)

    def close(self) -> None:
        """Releases the log and the checkpoints."""
        self._log.close()
        if self._checkpoints:
            self._checkpoints.close()


def _chunk(
    rule: StreamingRule,
    draw: Draw,
    states: Any,
    data: Any,
    seeds: Array,
    first: Array,
    *,
    count: int,
) -> Any:
    """``count`` updates of every seed, from update number ``first`` on."""

    def one(state: Any, seed: Array) -> Any:
        def body(state: Any, step: Array) -> tuple[Any, None]:
            key = jax.random.fold_in(_key(seed, 1), step)
            return rule.update(state, draw(data, key)), None

        steps = first + jnp.arange(count, dtype=jnp.int32)
        ended, _ = jax.lax.scan(body, state, steps)
        good = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in _floats(ended)]))
        return jax.tree.map(lambda leaf: jnp.where(good, leaf, jnp.zeros_like(leaf)), ended)

    return jax.vmap(one)(states, seeds)


def _key(seed: Array, purpose: int) -> Array:
    """The key of a seed's start (0) or of its batches (1)."""
    return jax.random.fold_in(jax.random.key(seed, impl=PRNG), purpose)


def _floats(tree: Any) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


@jax.jit
def _all_zero(states: Any) -> Array:
    """Which seeds' numbers are all zero: those that were reset, [seeds] (bool)."""
    leaves = [jnp.all(leaf.reshape(len(leaf), -1) == 0, axis=1) for leaf in _floats(states)]
    return jnp.all(jnp.stack(leaves), axis=0)
