"""Live entries, against a chain whose transition matrix, and so whose sums, are known exactly."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.sources.live import LiveSource
from rlreps.successor.measure.chains import MarkovChain

NUM_STATES, DISCOUNT, HORIZON = 5, 0.8, 6
TRANSITIONS = np.random.default_rng(0).dirichlet([0.4] * NUM_STATES, NUM_STATES)
POSITIONS = np.random.default_rng(1).random((NUM_STATES, 2), np.float32)


def known_chain():
    """A walk by a transition matrix that favours some states; every state is its own cell."""
    cumulative = jnp.asarray(np.cumsum(TRANSITIONS, axis=1), jnp.float32)

    def draw(words, rollout, time):
        counter = jax.random.fold_in(jax.random.fold_in(jax.random.key(words[0]), rollout), time)
        return jax.random.uniform(jax.random.fold_in(counter, words[1]))

    def advance(state, uniform):
        following = jnp.sum(uniform > cumulative[state], dtype=jnp.int32)
        return jnp.minimum(following, NUM_STATES - 1)

    return MarkovChain(
        num_cells=NUM_STATES,
        start=lambda key, cell: cell,
        draw=draw,
        advance=advance,
        cell=lambda state: state,
    )


def observe(state):
    return jnp.asarray(POSITIONS)[state]


@dataclasses.dataclass(frozen=True)
class FixedCumulants:
    """Two functions, always the same."""

    def init(self, key, num_tasks):
        assert num_tasks == 2
        return ()

    def apply(self, params, positions):
        x, y = positions[..., 0], positions[..., 1]
        return jnp.stack([3.0 * x * y, jnp.cos(7.0 * x)], axis=-1)


def exact_sums(count_start=True):
    """Σ γᵗ Pᵗ r for each state and function, [states, 2]."""
    values = np.asarray(FixedCumulants().apply((), jnp.asarray(POSITIONS)), np.float64)
    first = values if count_start else TRANSITIONS @ values
    return sum(DISCOUNT**t * np.linalg.matrix_power(TRANSITIONS, t) @ first for t in range(HORIZON))


sample = jax.jit(lambda source, keys: jax.vmap(lambda key: source.sample(key, 2, 2))(keys))
"""Batches of two rows and two tasks, one for each key."""


def deviation(samples, expected):
    """Standard errors between the mean of independent samples [m, ...] and what is expected."""
    error = samples.std(axis=0) / math.sqrt(len(samples))
    return np.max(np.abs(samples.mean(axis=0) - expected) / error)


@pytest.mark.parametrize("changes", [{}, {"count_start": False, "rollouts": 3}])
def test_targets_are_unbiased_for_every_start_state_and_function(changes):
    source = LiveSource(
        chain=known_chain(),
        observe=observe,
        cumulants=FixedCumulants(),
        horizon=HORIZON,
        discount=DISCOUNT,
        **changes,
    )
    batches = sample(source, jax.random.split(jax.random.key(0), 10_000))
    offsets = np.abs(np.asarray(batches.inputs)[:, :, None, 0] - POSITIONS[None, None, :, 0])
    states, targets = offsets.argmin(axis=-1), np.asarray(batches.targets, np.float64)
    sums = exact_sums(source.count_start)
    expected = sums - sums.mean(axis=0)
    for state in range(NUM_STATES):
        samples = targets[:, 0][states[:, 0] == state]
        assert deviation(samples, expected[state]) < 4.5
    counts = np.bincount(np.ravel_multi_index(states.T, (NUM_STATES,) * 2), minlength=25)
    assert scipy.stats.chisquare(counts).pvalue > 0.001
    # Rows that share neither draws nor starts leave products of two rows unbiased.
    products = targets[:, 0] * targets[:, 1]
    errors = products - expected[states[:, 0]] * expected[states[:, 1]]
    assert deviation(errors, 0.0) < 4.5
    # Errors of shared draws cancel over all pairs of states, but not over pairs of equal states.
    assert deviation(errors[states[:, 0] == states[:, 1]], 0.0) < 4.5
