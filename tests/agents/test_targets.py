"""Targets from sequences, against loops by hand and the resolvent of a known chain."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.auxiliary import (
    bootstrapped_targets,
    fit_predictor,
    monte_carlo_targets,
    predict,
)
from rlreps.agents.replay import episode_window, observed_rows


def random_sequences(rng, count, length):
    """Sequences [count, length] with episodes' ends of both kinds; (terminated, last)."""
    terminated = np.zeros((count, length), bool)
    last = np.zeros((count, length), bool)
    for b in range(count):
        for j in range(1, length):
            ends = rng.random() < 0.2 and not last[b, j - 1]
            last[b, j] = ends
            terminated[b, j - 1] = ends and rng.random() < 0.5
        # What ends after the sequence is not seen in it, and flags of last rows mean nothing.
        terminated[b, -1] = rng.random() < 0.5
        terminated[b][last[b]] = rng.random() < 0.5
    return terminated, last


def by_hand(cumulants, discounts, terminated, last, predictions=None):
    """Targets [b, t] by a loop over sequences, rows and columns in float64."""
    count, length, tasks = cumulants.shape
    targets = np.zeros((count, tasks))
    for b in range(count):
        for k in range(tasks):
            weight = 1.0
            for j in range(length):
                ended = last[b, j] and terminated[b, j - 1]
                cut = last[b, j] or j == length - 1
                if cut and not ended and predictions is not None:
                    targets[b, k] += weight * predictions[b, k]
                else:
                    targets[b, k] += weight * cumulants[b, j, k]
                if cut:
                    break
                weight *= discounts[k]
    return targets


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("bootstrapped", [False, True])
def test_targets_are_those_of_a_loop_over_rows_with_ends_of_both_kinds(length, bootstrapped):
    rng = np.random.default_rng(0)
    count, tasks = 200, 3
    terminated, last = random_sequences(rng, count, length)
    if length > 2:
        kinds = {(bool(last[b, 1:].any()), bool(terminated[b].any())) for b in range(count)}
        assert len(kinds) == 4
    cumulants = rng.normal(size=(count, length, tasks))
    predictions = rng.normal(size=(count, tasks))
    discounts = np.array([0.0, 0.5, 0.97])
    rows = observed_rows(jnp.zeros((count, length, 1)), jnp.asarray(terminated), jnp.asarray(last))
    arrays = [jnp.asarray(each, jnp.float32) for each in (cumulants, discounts, predictions)]
    window = episode_window(rows)
    if bootstrapped:
        targets = bootstrapped_targets(arrays[0], arrays[1], window, arrays[2], jnp.array(True))
        expected = by_hand(cumulants, discounts, terminated, last, predictions)
    else:
        targets = monte_carlo_targets(arrays[0], arrays[1], window)
        expected = by_hand(cumulants, discounts, terminated, last)
    np.testing.assert_allclose(targets, expected, atol=2e-6)


def test_without_predictions_yet_bootstrapped_targets_are_the_sums_seen():
    rng = np.random.default_rng(1)
    terminated, last = random_sequences(rng, 50, 6)
    rows = observed_rows(jnp.zeros((50, 6, 1)), jnp.asarray(terminated), jnp.asarray(last))
    cumulants = jnp.asarray(rng.normal(size=(50, 6, 4)), jnp.float32)
    discounts = jnp.asarray([0.1, 0.5, 0.9, 0.99])
    window = episode_window(rows)
    nothing = jnp.full((50, 4), jnp.nan)
    np.testing.assert_array_equal(
        bootstrapped_targets(cumulants, discounts, window, nothing, jnp.array(False)),
        monte_carlo_targets(cumulants, discounts, window),
    )


def test_what_lies_beyond_the_episode_is_not_looked_at():
    last = jnp.asarray([[False, False, True, False, False]])
    rows = observed_rows(jnp.zeros((1, 5, 1)), jnp.zeros((1, 5), bool), last)
    cumulants = jnp.asarray([[1.0, 1.0, 1.0, jnp.nan, jnp.inf]])[:, :, None]
    window = episode_window(rows)
    discounts = jnp.asarray([0.5])
    assert float(monte_carlo_targets(cumulants, discounts, window)[0, 0]) == 1.75
    continued = bootstrapped_targets(
        cumulants, discounts, window, jnp.asarray([[8.0]]), jnp.array(True)
    )
    assert float(continued[0, 0]) == 1.5 + 0.25 * 8.0


def test_the_mean_of_cell_targets_is_the_successor_measure_of_a_random_walk():
    """Entry by entry within 4.5 standard errors of Σ_{j<l} γ^j P^j, of which γ^l is left out."""
    states, length, count, discount = 5, 12, 40_000, 0.8
    walk = 0.5 * (np.eye(states, k=1) + np.eye(states, k=-1))
    walk[0, 0] = walk[-1, -1] = 0.5
    rng = np.random.default_rng(0)
    path = rng.integers(0, states, (count, 1))
    for _ in range(length - 1):
        step = rng.choice([-1, 1], (count, 1))
        path = np.concatenate([path, np.clip(path[:, -1:] + step, 0, states - 1)], axis=1)
    nothing = jnp.zeros((count, length), bool)
    rows = observed_rows(jnp.asarray(path), nothing, nothing)
    cumulants = jax.nn.one_hot(rows.observation, states)
    discounts = jnp.full((states,), discount)
    targets = np.asarray(
        monte_carlo_targets(cumulants, discounts, episode_window(rows)), np.float64
    )
    powers = [discount**j * np.linalg.matrix_power(walk, j) for j in range(length)]
    truncated = np.sum(powers, axis=0)
    for state in range(states):
        own = targets[path[:, 0] == state]
        error = own.std(axis=0) / math.sqrt(len(own))
        assert np.all(np.abs(own.mean(axis=0) - truncated[state]) <= 4.5 * error + 1e-6)
    # The bias that the docstring states: (γP)^l ψ, at most γ^l of the largest possible sum.
    full = np.linalg.inv(np.eye(states) - discount * walk)
    gap = full - truncated
    left_out = np.linalg.matrix_power(discount * walk, length) @ full
    np.testing.assert_allclose(gap, left_out, atol=1e-12)
    assert gap.max() <= discount**length / (1 - discount)


def quarter_chain(ends):
    """Transitions of five states in quarters; with ``ends``, state 4 ends the task on arrival."""
    walk = np.array(
        [
            [0.25, 0.50, 0.00, 0.25, 0.00],
            [0.00, 0.25, 0.75, 0.00, 0.00],
            [0.50, 0.00, 0.00, 0.25, 0.25],
            [0.00, 0.25, 0.25, 0.00, 0.50],
            [0.75, 0.00, 0.00, 0.25, 0.00],
        ]
    )
    if ends:
        walk[4] = 0.0
    return walk


@pytest.mark.parametrize("ends", [False, True])
def test_targets_continued_by_a_tabular_fit_converge_to_the_resolvent_exactly(ends):
    """Every transition in its share of the batch: fitted iteration is value iteration."""
    walk = quarter_chain(ends)
    pairs = [
        (s, after) for s in range(5) for after in range(5) for _ in range(round(4 * walk[s, after]))
    ]
    discounts = np.array([0.0, 0.5, 0.9, 0.95])
    values = np.random.default_rng(0).normal(size=(5, 4))
    with jax.enable_x64(True):
        states = jnp.asarray(pairs)
        over = (states[:, 1] == 4) & ends
        never = jnp.zeros_like(over)
        rows = observed_rows(
            states, jnp.stack([over, never], axis=1), jnp.stack([never, over], axis=1)
        )
        window = episode_window(rows)
        features = jax.nn.one_hot(states, 5, dtype=jnp.float64)
        cumulants, gammas = jnp.asarray(values)[states], jnp.asarray(discounts)

        def update(targets, _):
            predictor = fit_predictor(features[:, 0], targets, ridge=0.0)
            predictions = predict(predictor, features[:, 1])
            return bootstrapped_targets(
                cumulants, gammas, window, predictions, jnp.array(True)
            ), None

        start = jnp.zeros((len(pairs), 4))
        targets = jax.jit(lambda: jax.lax.scan(update, start, length=600)[0])()
        fitted = np.asarray(predict(fit_predictor(features[:, 0], targets, 0.0), features[:, 0]))
    exact = np.stack(
        [np.linalg.solve(np.eye(5) - g * walk, values[:, k]) for k, g in enumerate(discounts)],
        axis=1,
    )
    np.testing.assert_allclose(fitted, exact[[s for s, _ in pairs]], atol=1e-10)


def test_an_affine_map_is_fitted_with_its_intercept_which_no_ridge_shrinks():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6)) + 5.0
    targets = features @ rng.normal(size=(6, 3)) + np.array([100.0, -7.0, 0.0])
    arrays = [jnp.asarray(each, jnp.float32) for each in (features, targets)]
    predictions = predict(fit_predictor(*arrays), arrays[0])
    np.testing.assert_allclose(predictions, targets, atol=0.02 * targets.std())
    heavy = predict(fit_predictor(*arrays, ridge=1e9), arrays[0])
    np.testing.assert_allclose(heavy - targets.mean(axis=0)[None], 0.0, atol=1e-3)


def test_features_that_never_vary_predict_the_mean():
    targets = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.float32)
    predictor = fit_predictor(jnp.full((20, 4), 0.3), targets)
    expected = np.broadcast_to(np.asarray(targets).mean(axis=0), (20, 3))
    np.testing.assert_allclose(predict(predictor, jnp.full((20, 4), 0.3)), expected, atol=1e-5)


def test_no_second_array_of_all_cumulants_is_made():
    shape = (64, 32, 64)
    never = jnp.zeros(shape[:2], bool)
    rows = observed_rows(jnp.zeros((*shape[:2], 1)), never, never)
    window, discounts = episode_window(rows), jnp.full(shape[2:], 0.9)
    predictions = jnp.zeros((shape[0], shape[2]))
    for targets in (
        lambda cumulants: monte_carlo_targets(cumulants, discounts, window),
        lambda cumulants: bootstrapped_targets(
            cumulants, discounts, window, predictions, jnp.array(True)
        ),
    ):
        compiled = jax.jit(targets).lower(jnp.zeros(shape)).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 4 * math.prod(shape) / 4
