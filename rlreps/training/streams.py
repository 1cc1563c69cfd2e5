"""Runs of a streaming rule on a data set, for several seeds at once.

Every random draw is keyed by (seed, step), so a run that was killed and resumed ends with the same
components as one without interruption.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.numerics import require_seeds, seed_key
from rlreps.runs.folder import RunFolder
from rlreps.streaming import StreamingRule
from rlreps.training.loop import Figures, Finished, Program, run
from rlreps.training.update import all_finite, all_zero, zero_unless

Draw = Callable[[Any, Array], Array]
"""(data, key) → a batch of observations [b, features]."""


class _Stream(Program[Any]):
    def __init__(
        self,
        rule: StreamingRule,
        data: Any,
        draw: Draw,
        seeds: Sequence[int],
        evaluate: Callable[[Array], Mapping[str, Array]],
    ) -> None:
        self._data, self._seeds = data, jnp.asarray(seeds, jnp.uint32)
        self._init = jax.jit(jax.vmap(lambda seed: rule.init(seed_key(seed, 0))))
        self._chunk = jax.jit(functools.partial(_chunk, rule, draw), static_argnums=0)
        # One seed at a time, as in ``population``: batched decompositions can block each other.
        self._evaluate = jax.jit(
            lambda states: jax.lax.map(lambda state: evaluate(rule.components(state)), states)
        )
        self._compiled: dict[int, Any] = {}

    def init(self) -> Any:
        return self._init(self._seeds)

    def prepare(self, state: Any, count: int) -> None:
        lowered = self._chunk.lower(count, state, self._data, self._seeds, jnp.int32(0))
        self._compiled[count] = lowered.compile()

    def advance(self, state: Any, step: int, count: int) -> tuple[Any, Figures]:
        state = self._compiled[count](state, self._data, self._seeds, jnp.int32(step))
        return jax.block_until_ready(state), {}

    def evaluate(self, state: Any, step: int) -> tuple[Any, Figures]:
        return state, {**self._evaluate(state), "diverged": all_zero(state)}


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
) -> Finished[Array]:
    """Run a rule for several seeds at once.

    A seed whose state becomes non-finite is set to zero and counts as diverged.

    Args:
        rule: The rule.
        data: A pytree of arrays that batches are drawn from.
        draw: Draws a batch.
        steps: Number of updates.
        seeds: One seed per run, in [0, 2³²); the runs are vmapped.
        evaluate: One seed's components [features, k] → named scalars, called before the first
            update and every ``evaluate_every`` updates.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        checkpoint_every: As for ``loop.run``.
        description: Title of the progress bar.
        progress: Whether to show the bar.

    Returns:
        The run. Its state is the estimated components of every seed, [seeds, features, k]. Records
        hold lists over seeds, ``diverged`` among them.

    Raises:
        InputError: For seeds out of range, and as ``loop.run``.
    """
    require_seeds(seeds)
    finished = run(
        _Stream(rule, data, draw, seeds, evaluate),
        steps=steps,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        folder=folder,
        description=description,
        progress=progress,
    )
    return dataclasses.replace(finished, state=jax.vmap(rule.components)(finished.state))


def _chunk(
    rule: StreamingRule, draw: Draw, count: int, states: Any, data: Any, seeds: Array, first: Array
) -> Any:
    """Make ``count`` updates of every seed, from update number ``first`` on."""

    def one(state: Any, seed: Array) -> Any:
        def body(state: Any, step: Array) -> tuple[Any, None]:
            key = jax.random.fold_in(seed_key(seed, 1), step)
            return rule.update(state, draw(data, key)), None

        steps = first + jnp.arange(count, dtype=jnp.int32)
        ended, _ = jax.lax.scan(body, state, steps)
        return zero_unless(all_finite(ended), ended)

    return jax.vmap(one)(states, seeds)
