"""Matrices with set singular values, and one update against the paper's algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.experiments.le_lan_2023.synthetic.config import ROLES, Setting
from rlreps.experiments.le_lan_2023.synthetic.problem import (
    member_distance,
    member_learner,
    member_sources,
    planted_matrix,
    stack_settings,
)
from rlreps.training.population import Members

pytestmark = pytest.mark.usefixtures("compilation_cache")

VALUES = {
    "linear": [1000.0 - index * 999.0 / 9 for index in range(10)],
    "exponential": [1000.0 ** (1.0 - index / 9) for index in range(10)],
}


@pytest.mark.parametrize("spectrum", VALUES)
def test_a_planted_matrix_has_the_singular_values_and_left_vectors_it_says(spectrum):
    planted = planted_matrix(spectrum, 10, 3)
    left, values, _ = np.linalg.svd(planted.matrix.astype(np.float64))
    np.testing.assert_allclose(values, VALUES[spectrum], rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(left * planted.left, axis=0)), 1.0, atol=1e-4)
    np.testing.assert_allclose(planted.left.T @ planted.left, np.eye(10), atol=1e-5)
    assert planted.matrix.dtype == planted.left.dtype == np.float32


def test_a_seed_is_a_matrix_and_the_spectrum_changes_no_vector():
    linear, exponential = (planted_matrix(spectrum, 10, 3) for spectrum in VALUES)
    np.testing.assert_array_equal(linear.left, exponential.left)
    np.testing.assert_array_equal(planted_matrix("linear", 10, 3).matrix, linear.matrix)
    assert np.abs(planted_matrix("linear", 10, 4).left - linear.left).max() > 0.1


STATES, FEATURES, ROWS, STEP_SIZE, KAPPA0, SEED = 6, 2, 4, 0.001, 1.5, 5


class Watched:
    """A source that keeps the batch it drew last, so that a traced update can return it."""

    def __init__(self, source):
        self.source = source

    def sample(self, key, num_rows, num_tasks):
        self.drawn = self.source.sample(key, num_rows, num_tasks)
        return self.drawn


def first_update(method):
    """(Φ before, Φ after, states drawn, their entries, the task, the matrix) of one update."""
    setting = Setting(method, FEATURES, ROWS, "exponential", KAPPA0)
    planted = [planted_matrix("exponential", STATES, SEED)]
    build = member_learner(setting, STATES, STEP_SIZE)
    settings, source = jax.tree.map(
        lambda leaf: leaf[0],
        (stack_settings([setting], planted), member_sources(setting, planted)),
    )

    @jax.jit
    def update(source, settings):
        learner, watched = build(settings), Watched(source)
        state = learner.init(jnp.uint32(SEED))
        after, _ = learner.update(state, watched, jnp.uint32(SEED))
        return state.params, after.params, watched.drawn

    before, after, batch = jax.tree.map(np.asarray, update(source, settings))
    assert batch.targets.shape[1] == 1
    return before.astype(np.float64), after, batch, planted[0].matrix.astype(np.float64)


def lissa_by_hand(features, right_hand_side):
    """Algorithm 1's inner loop, as a matrix recursion."""
    kappa = KAPPA0 / max(np.sum(features**2, axis=1))
    estimate = kappa * np.eye(FEATURES)
    for phi in features:
        estimate = (
            kappa * np.eye(FEATURES) + (np.eye(FEATURES) - kappa * np.outer(phi, phi)) @ estimate
        )
    return estimate @ right_hand_side


def pseudo_inverse_by_hand(features, right_hand_side):
    return np.linalg.pinv(features.T @ features / len(features)) @ right_hand_side


def weights_by_hand(method, table, matrix, batch):
    """ŵ and ŵ' from the rows after the gradient's, or from all states."""
    if method == "oracle":
        (task,) = batch.tasks
        exact = np.linalg.lstsq(table, matrix[:, task], rcond=None)[0]
        return exact, exact
    solve = lissa_by_hand if method == "danskin_lissa" else pseudo_inverse_by_hand
    weights = []
    for first in range(ROWS, len(batch.inputs), 2 * ROWS):
        averaged, inverted = (batch.inputs[start:][:ROWS] for start in (first, first + ROWS))
        entries = batch.targets[first:, 0][:ROWS]
        weights.append(solve(table[inverted], table[averaged].T @ entries / ROWS))
    return weights[0], weights[-1]


@pytest.mark.parametrize("method", ROLES)
def test_an_update_is_the_papers_with_the_gradient_summed_over_its_rows(method):
    before, after, batch, matrix = first_update(method)
    assert len(batch.inputs) == ROWS * (1 if method == "oracle" else ROLES[method])
    (task,) = batch.tasks
    np.testing.assert_allclose(batch.targets[:, 0], matrix[batch.inputs, task], rtol=1e-6)
    weights, other = weights_by_hand(method, before, matrix, batch)
    gradient = np.zeros_like(before)
    for state in batch.inputs[:ROWS]:
        gradient[state] += other * (before[state] @ weights - matrix[state, task])
    assert np.linalg.norm(STEP_SIZE * gradient) > 1e-2
    np.testing.assert_allclose(after, before - STEP_SIZE * gradient, rtol=1e-3, atol=1e-4)


def test_members_start_from_the_table_of_their_seed_at_the_distance_of_random_features():
    setting = Setting("oracle", 3, 1, "linear", KAPPA0)
    planted = [planted_matrix("linear", 40, seed) for seed in (0, 0, 1)]
    settings = stack_settings([setting] * 3, planted)
    states = Members(member_learner(setting, 40, STEP_SIZE), own_sources=True).init(
        jnp.asarray([0, 0, 1], jnp.uint32), settings
    )
    tables = np.asarray(states.params)
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 0.1
    found = jax.vmap(member_distance)(states.params, settings)["subspace_distance"]
    for table, truth, distance in zip(tables, planted, found, strict=True):
        orthonormal = np.linalg.qr(table.astype(np.float64))[0]
        overlap = np.linalg.norm(orthonormal.T @ truth.left[:, :3]) ** 2
        np.testing.assert_allclose(distance, 1.0 - overlap / 3, atol=1e-5)
