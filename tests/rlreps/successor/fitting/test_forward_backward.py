"""The mathematics of FᵀB against dense linear algebra on small chains."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.losses.low_rank import orthonormality_loss, td_loss
from rlreps.successor.fitting.forward_backward import (
    STRENGTHS,
    Inputs,
    StateActions,
    Step,
    TransitionSource,
    discounted_sums,
    ridge_by_leave_one_out,
)


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


def test_sums_along_episodes_end_with_them():
    cumulants = np.random.default_rng(0).normal(size=(7, 2))
    found = discounted_sums(cumulants, np.array([0, 0, 1, 1, 0, 0, 1], bool), 0.7)
    for row, last in enumerate([2, 2, 2, 3, 6, 6, 6]):
        powers = 0.7 ** np.arange(last + 1 - row)
        np.testing.assert_allclose(found[row], powers @ cumulants[row : last + 1], atol=1e-12)


def test_the_strength_and_error_of_ridge_are_those_of_leaving_every_row_out():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 5)) * [4.0, 2.0, 1.0, 0.5, 0.1]
    targets = features @ rng.normal(size=5) + 3.0 + rng.normal(size=12)
    found = ridge_by_leave_one_out(features, targets)
    largest = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)[0] ** 2

    def fitted(rows, strength):
        design = np.column_stack([features[rows], np.ones(len(rows))])
        penalty = strength * np.diag([1.0] * 5 + [0.0])
        return np.linalg.solve(design.T @ design + penalty, design.T @ targets[rows])

    errors = []
    for strength in STRENGTHS * largest:
        residuals = []
        for row in range(12):
            weights = fitted(np.delete(np.arange(12), row), strength)
            residuals.append(targets[row] - features[row] @ weights[:5] - weights[5])
        errors.append(np.mean(np.square(residuals)))
    best = int(np.argmin(errors))
    assert 0 < best < len(STRENGTHS) - 1
    np.testing.assert_allclose(found.strength, STRENGTHS[best] * largest)
    np.testing.assert_allclose(found.error, errors[best], rtol=1e-9)
    weights = fitted(np.arange(12), found.strength)
    np.testing.assert_allclose([*found.weights, found.intercept], weights, rtol=1e-9)


def test_batches_of_transitions_keep_the_types_and_shapes_of_their_parts():
    # Indices that single precision would round, and the weights of both ends.
    states = jnp.asarray([2**24 + 1, 2**24 + 3, 2**30 + 1])
    weights, zero = jnp.eye(3), jnp.zeros(())
    indices = Inputs(zero, zero, indices=True)
    steps = Step(StateActions(states, weights), StateActions(states[::-1], -weights))
    source = TransitionSource(indices, steps)
    batch = source.sample(jax.random.key(0), 50, 1)
    row = np.argmax(batch.inputs.first.weights, axis=1)
    assert set(row.tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(batch.inputs.first.state, states[row])
    np.testing.assert_array_equal(batch.inputs.following.state, states[::-1][row])
    np.testing.assert_array_equal(batch.inputs.following.weights, -weights[row])
