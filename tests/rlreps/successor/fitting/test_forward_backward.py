"""The mathematics of FᵀB against dense linear algebra on small chains."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.losses.low_rank import orthonormality_loss, td_loss
from rlreps.successor.fitting.forward_backward import (
    Step,
    TransitionSource,
)
from rlreps.successor.fitting.observed import Inputs, Observed


def expected_loss(chain):
    """The expectation of ``td_loss`` over a chain's data: (F [n, A, d], B [n, d]) → scalar."""
    data = chain.transitions()
    alive = jnp.asarray(~data.terminated, jnp.float32)[:, None]

    def loss(factors, held):
        (forward, backward), (next_forward, next_backward) = factors, held
        reached = data.next_observation
        return td_loss(
            forward[data.observation, data.action],
            backward[reached],
            backward[reached],
            alive * next_forward[reached].mean(axis=1),
            next_backward[reached],
            chain.discount,
        )

    return loss


def test_the_expected_td_gradient_vanishes_at_the_measure_and_nowhere_near(chain):
    density = chain.measure() / chain.reached()
    gauge = np.random.default_rng(0).normal(size=(chain.size, chain.size)) + 2 * np.eye(chain.size)
    exact = (
        jnp.asarray(density @ gauge, jnp.float32),
        jnp.asarray(np.linalg.inv(gauge).T, jnp.float32),
    )
    gradient = jax.jit(jax.grad(expected_loss(chain)))
    scale = float(jnp.abs(exact[0]).max())
    for found in gradient(exact, exact):
        np.testing.assert_allclose(found, 0.0, atol=2e-4 * scale)
    shorter = (0.9 * exact[0], exact[1])
    assert float(jnp.abs(gradient(shorter, shorter)[1]).max()) > 2e-2 * scale


def test_pairs_that_do_not_count_change_no_mean():
    generator = np.random.default_rng(0)
    forward, backward, reached, next_forward, next_backward = (
        generator.normal(size=(4, 2)).astype(np.float32) for _ in range(5)
    )
    squares = [
        (forward[row] @ backward[state] - 0.9 * next_forward[row] @ next_backward[state]) ** 2
        for row in range(4)
        for state in range(4)
        if row != state
    ]
    expected = np.mean(squares) - 2.0 * np.mean(
        [f @ r for f, r in zip(forward, reached, strict=True)]
    )
    pairs = 1.0 - jnp.eye(4)
    found = td_loss(forward, backward, reached, next_forward, next_backward, 0.9, pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_orthonormality_is_estimated_without_bias():
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    # Every ordered pair of different rows is a pair of independent draws of this sample space.
    every = [
        float(orthonormality_loss(jnp.asarray(rows[list(pair)])))
        for pair in itertools.product(range(5), repeat=2)
    ]
    moment = rows.T @ rows / 5
    expected = np.sum((moment - np.eye(2)) ** 2) - 2
    np.testing.assert_allclose(np.mean(every), expected, rtol=1e-5)


def test_batches_of_transitions_keep_the_types_and_shapes_of_their_parts():
    # Indices that single precision would round, and the weights of both ends.
    states = jnp.asarray([2**24 + 1, 2**24 + 3, 2**30 + 1])
    weights, zero = jnp.eye(3), jnp.zeros(())
    indices = Inputs(Observed((), 3, 2**30 + 2), zero, zero)
    steps = Step(states, weights, states[::-1], -weights)
    source = TransitionSource(indices, steps)
    batch = source.sample(jax.random.key(0), 50, 1)
    row = np.argmax(batch.inputs.weights, axis=1)
    assert set(row.tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(batch.inputs.state, states[row])
    np.testing.assert_array_equal(batch.inputs.reached, states[::-1][row])
    np.testing.assert_array_equal(batch.inputs.following, -weights[row])
