"""Default training update: its time over the time of matrix products with as many operations."""

from typing import Any

import numpy as np

TITLE = "Training update"
WORK = (
    "{updates} default training updates (1,000 states, 1,000 tasks, d = 10) on a matrix of "
    "{states:,} x {states:,}, against products of 1,000 x 1,000 matrices with as many operations "
    "as XLA counts in the updates. One over the ratio is the share of the machine's speed that an "
    "update reaches."
)
PACKAGES = ("rlreps", "jax", "jaxlib")
SIZES = {"states": 10_000, "updates": 100}


def prepare(**_: Any) -> None:
    """Make nothing: both sides draw their own numbers."""


def compiled(states: int, updates: int) -> Any:
    """Return the compiled chunk of updates with its arguments, and operations of one update."""
    import jax
    import jax.numpy as jnp

    from rlreps.sources import matrix_source
    from rlreps.training import TrainingConfig, make_learner

    key = jax.random.key(0)
    inputs = jax.random.uniform(key, (states, 2))
    source = matrix_source(jax.random.normal(key, (states, states)), inputs)
    learner = make_learner(TrainingConfig(), num_inputs=2, num_states=states, num_tasks=states)
    state, seed = learner.init(jnp.uint32(0)), jnp.uint32(0)
    counted = jax.jit(learner.update).lower(state, source, seed).compile().cost_analysis()
    chunk = jax.jit(lambda *given: learner.chunk(updates, *given))
    return chunk, (state, source, seed), counted["flops"]


def ours(_data: None, states: int, updates: int, **_: Any) -> Any:
    """Make updates, always from the first state."""
    import jax

    chunk, given, operations = compiled(states, updates)
    jax.block_until_ready(chunk(*given))

    def work() -> float:
        jax.block_until_ready(chunk(*given))
        return operations * updates

    return work


def products(_data: None, states: int, updates: int, **_: Any) -> Any:
    """Multiply matrices."""
    import jax
    import jax.numpy as jnp

    size = 1_000
    operations = compiled(states, updates)[2] * updates
    count = round(operations / (2.0 * size**3))
    left, right = jax.random.normal(jax.random.key(1), (2, size, size)) / np.sqrt(size)
    run = jax.jit(lambda a, b: jax.lax.fori_loop(0, count, lambda _, x: jnp.dot(x, b), a))
    jax.block_until_ready(run(left, right))

    def work() -> float:
        jax.block_until_ready(run(left, right))
        return count * 2.0 * size**3

    return work


SIDES = {"rlreps update": ours, "matrix products": products}


def quality(_data: None, result: float, **_: Any) -> dict[str, float]:
    """Return the number of operations, in 10⁹."""
    return {"GFLOP": result / 1e9}
