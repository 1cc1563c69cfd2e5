"""Runs of a streaming rule on a data set, for several seeds at once."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.numerics import seed_key
from rlreps.streaming import StreamingRule
from rlreps.training.loop import Finished
from rlreps.training.population import train_population
from rlreps.training.update import ChunkReport, TrainState, all_finite, zero_unless

Draw = Callable[[Any, Array], Array]
"""(data, key) → a batch of observations [b, features]."""


@dataclasses.dataclass(frozen=True)
class _RuleUpdates:
    """Updates of a rule. The rule's state takes the place of an encoder's parameters."""

    rule: StreamingRule
    draw: Draw
    resets_diverged: ClassVar[bool] = True

    def init(self, seed: Array) -> TrainState:
        return TrainState(jnp.zeros((), jnp.int32), self.rule.init(seed_key(seed, 0)), (), ())

    def chunk(
        self, num_steps: int, state: TrainState, source: Any, seed: Array
    ) -> tuple[TrainState, ChunkReport]:
        """Make ``num_steps`` updates; draws are keyed by (seed, step)."""

        def update(model: Any, step: Array) -> tuple[Any, None]:
            key = jax.random.fold_in(seed_key(seed, 1), step)
            return self.rule.update(model, self.draw(source, key)), None

        steps = state.step + jnp.arange(num_steps, dtype=jnp.int32)
        model, _ = jax.lax.scan(update, state.params, steps)
        model = zero_unless(all_finite(model), model)
        ended = state._replace(step=state.step + num_steps, params=model)
        return ended, ChunkReport({}, jnp.int32(-1))


def fit_stream(
    rule: StreamingRule,
    data: Any,
    draw: Draw,
    *,
    seeds: Sequence[int],
    evaluate: Callable[[Array], Mapping[str, Array]],
    **options: Any,
) -> Finished[Array]:
    """Run a rule for several seeds at once.

    A seed whose state becomes non-finite is set to zero and counts as diverged.

    Args:
        rule: The rule.
        data: A pytree of arrays that batches are drawn from.
        draw: Draws a batch.
        seeds: One seed per run, in [0, 2³²); the runs are vmapped.
        evaluate: One seed's components [features, k] → named scalars.
        **options: ``steps``, ``evaluate_every``, ``folder`` and others of ``train_population``.

    Returns:
        The run. Its state is the estimated components of every seed, [seeds, features, k]. Records
        hold lists over seeds, including ``diverged``.

    Raises:
        InputError: As ``train_population``.
    """
    finished = train_population(
        _RuleUpdates(rule, draw),
        data,
        seeds=seeds,
        own_numbers=False,
        evaluate=lambda model, _: evaluate(rule.components(model)),
        **options,
    )
    components = jax.vmap(rule.components)(finished.state.params)
    return Finished(components, finished.history, finished.seconds, finished.compile_seconds)
