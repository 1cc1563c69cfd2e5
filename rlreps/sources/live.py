"""Batches whose entries come from fresh rollouts: no matrix, and no limit to the columns.

Every batch draws start states s and cumulant functions r_j, and estimates

    ψ_j(s) = Σ_{t≥0} γᵗ E[r_j(S_t) | S_0 = s],    t < horizon,

by the discounted sum along rollouts from s (with ``count_start=False``, Σ_{t≥1} γᵗ⁻¹, as for a
stored successor measure). Given s and r_j the estimate is unbiased, and independent from one row to
another; the columns of one row share its rollouts.

**Centring.** Principal subspaces belong to the centred matrix, so E ψ_j over start states must be
subtracted. This mean is estimated without bias for the same cumulants, by rollouts from a separate
start for each row: rows stay independent, so that every estimate that is unbiased on a stored
centred matrix is unbiased here, including products of two rows' targets (which ``danskin_lissa``
needs). The variance of a target grows by the variance of one more rollout and by the variance of
ψ_j over states.

``large_batch``, whose weights also fit noise, stays biased by its finite batch, as on a stored
matrix.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import checked, interval, positive
from rlreps.cumulants import Cumulants
from rlreps.envs import PuddleWorld
from rlreps.numerics import PRNG
from rlreps.successor.measure.chains import MarkovChain, puddle_world_chain
from rlreps.successor.measure.grids import Grid


@jax.tree_util.register_static
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveSource:
    """Discounted sums of random cumulants along fresh rollouts.

    A start state is drawn from a cell that is uniform over the chain's cells; for PuddleWorld, that
    is uniform over the square outside the walls.

    Attributes:
        chain: The Markov chain: an environment under a policy.
        observe: state → observation [c] (float32), the input of the encoder and the cumulants.
        cumulants: The family from which tasks are drawn.
        horizon: h, number of terms of the sum.
        discount: γ, strictly between 0 and 1.
        rollouts: Number of rollouts from each start state, averaged.
        count_start: Whether the sum starts with the start state or with the first successor.

    Raises:
        InputError: If a number is outside its range.
    """

    chain: MarkovChain[Any, Any]
    observe: Callable[[Any], Array]
    cumulants: Cumulants
    horizon: int = positive()
    discount: float = interval("(0, 1)")
    rollouts: int = positive(1)
    count_start: bool = True

    @property
    def num_tasks(self) -> None:
        """None: every batch brings new tasks."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw start states and cumulants, and estimate the entries where they meet.

        The batch has inputs [b, c] and targets [b, t], but no ``tasks``, since no task repeats.
        """
        start_key, rollout_key, cumulant_key = jax.random.split(key, 3)
        states = self._starts(start_key, 2 * num_rows)
        params = self.cumulants.init(cumulant_key, num_tasks)
        sums = self._discounted_sums(rollout_key, states, params)
        targets = sums[:num_rows] - sums[num_rows:]
        return Batch(self._observe(states)[:num_rows], targets)

    def _starts(self, key: Array, count: int) -> Any:
        """Draw independent start states; the last axis of every leaf is over the states."""
        cell_key, start_key = jax.random.split(key)
        cells = jax.random.randint(cell_key, (count,), 0, self.chain.num_cells, jnp.int32)
        start_keys = jax.random.split(_pinned(start_key), count)
        return jax.vmap(self.chain.start, out_axes=-1)(start_keys, cells)

    def _observe(self, states: Any) -> Array:
        """Return observations [count, c] of states, given with the states on the last axis."""
        observations: Array = jax.vmap(self.observe, in_axes=-1)(states)
        return observations

    def _discounted_sums(self, key: Array, states: Any, params: Any) -> Array:
        """Estimate ψ [starts, t], summing along the rollouts."""
        repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, self.rollouts, axis=-1), states)
        lanes = jax.tree.leaves(repeated)[0].shape[-1]
        counters = jnp.arange(lanes, dtype=jnp.uint32)
        words = tuple(jax.random.key_data(_pinned(key)))
        draw = jax.vmap(self.chain.draw, in_axes=(None, 0, None), out_axes=-1)
        advance = jax.vmap(self.chain.advance, in_axes=-1, out_axes=-1)

        def at(states: Any) -> Array:
            """Return cumulants [starts, t], averaged over the rollouts of each start."""
            values = self.cumulants.apply(params, self._observe(states))
            return values.reshape(lanes // self.rollouts, self.rollouts, -1).mean(axis=1)

        def step(
            carry: tuple[Any, Any, Array], inputs: tuple[Array, Array]
        ) -> tuple[tuple[Any, Any, Array], None]:
            states, draws, sums = carry
            time, weight = inputs
            moved = advance(states, draws)
            counted = states if self.count_start else moved
            # Draw one step ahead and carry the draws. Within one step, XLA would compute each
            # random number again for every use.
            return (moved, draw(words, counters, time + 1), sums + weight * at(counted)), None

        times = jnp.arange(self.horizon, dtype=jnp.uint32)
        weights = np.power(self.discount, np.arange(self.horizon)).astype(np.float32)
        carry = (repeated, draw(words, counters, times[0]), jnp.zeros_like(at(repeated)))
        (_, _, sums), _ = lax.scan(step, carry, (times, jnp.asarray(weights)))
        return sums


def puddle_world_source(
    environment: PuddleWorld,
    cumulants: Cumulants,
    *,
    horizon: int,
    discount: float,
    rollouts: int = 1,
    count_start: bool = True,
) -> LiveSource:
    """Return a ``LiveSource`` over PuddleWorld under the uniformly random policy.

    Inputs are positions [b, 2]. Each source is compiled separately.
    """
    return LiveSource(
        # One cell, the square itself: starts are uniform inside it, outside the walls.
        chain=puddle_world_chain(environment, Grid(1)),
        observe=_position,
        cumulants=cumulants,
        horizon=horizon,
        discount=discount,
        rollouts=rollouts,
        count_start=count_start,
    )


def _position(position: Array) -> Array:
    """Return a state of ``puddle_world_chain``, which is a position."""
    return position


def _pinned(key: Array) -> Array:
    """Return a key of the type that chains expect, whatever the caller's type."""
    words = jax.random.bits(key, (2,), jnp.uint32)
    pinned: Array = jax.random.wrap_key_data(words, impl=PRNG)
    return pinned
