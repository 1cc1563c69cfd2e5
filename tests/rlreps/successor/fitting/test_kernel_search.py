"""The kernel that held-out rows choose, on systems whose right kernel is known."""

import warnings

import numpy as np
import pytest

from rlreps.errors import FitWarning
from rlreps.successor import fit
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis, standardised, whitened
from rlreps.successor.fitting.kernel_search import change_error, noise_coordinates
from rlreps.successor.fitting.least_squares import LeastSquares, Steps
from rlreps.successor.fitting.transitions import as_transitions


def record(states, actions, every=50):
    """Transitions between successive states, [N + 1, c]."""
    rows = np.arange(len(actions))
    return as_transitions([states[:-1], actions, states[1:], rows < 0, rows % every == every - 1])


@pytest.fixture
def noisy():
    """A walk, three kinds of noise, and the last action: each coordinate's name says which."""
    rng, rows = np.random.default_rng(0), 4_000
    actions = rng.integers(2, size=rows)
    noise, shock = rng.normal(size=(rows + 1, 2)), rng.normal(size=rows + 1)
    walk = np.zeros(rows + 1)
    for t in range(rows):
        walk[t + 1] = 0.9 * walk[t] + (2 * actions[t] - 1) + shock[t]
    echo = np.append(0.0, actions)
    return np.column_stack([walk, noise, shock, echo]).astype(np.float32), actions


def test_noise_coordinates_are_those_that_nothing_predicts_and_that_predict_nothing(noisy):
    states, actions = noisy
    data = record(states, actions)
    # The shock is drawn anew at each step too, but the walk follows it.
    assert noise_coordinates(data, ActionBasis(2), 0) == ()
    without = record(states[:, [0, 1, 2, 4]], actions)
    assert noise_coordinates(without, ActionBasis(2), 0) == (1, 2)
    # Beside a constant alone, noise is all that there is.
    alone = np.column_stack([states[:, 1:3], np.ones(len(states))])
    assert noise_coordinates(record(alone, actions), ActionBasis(2), 0) == ()
    assert noise_coordinates(record(states[:200, [0, 1]], actions[:199]), ActionBasis(2), 0) == ()


def test_a_fit_leaves_noise_out_and_says_so(noisy):
    states, actions = noisy
    data = record(states[:, [0, 1, 2, 4]], actions)
    with pytest.warns(FitWarning, match="2 coordinates of the observations are noise.*: 1, 2;"):
        rep = fit(data, num_features=2, discount=0.5, max_features=40)
    other = data.observation.copy()
    other[:, 1:3] = 7.0
    np.testing.assert_allclose(rep.features(other), rep.features(data.observation), atol=1e-5)


def test_principal_axes_have_one_variance_and_no_correlation():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(500, 1))
    states = np.column_stack([first, first + 1e-2 * rng.normal(size=(500, 1)), 5.0 * first])
    axes = whitened(states)
    assert axes.shape == (3, 2)  # The third coordinate is a multiple of the first.
    np.testing.assert_allclose(np.cov((states @ axes).T, bias=True), np.eye(2) / 2, atol=1e-6)
    alone = np.diag(1.0 / (states.std(axis=0) * np.sqrt(3.0)))
    np.testing.assert_allclose(standardised(states), alone)


def test_a_fit_takes_the_axes_that_it_is_told(noisy):
    states, actions = noisy
    data = record(states[:, [0, 3, 4]], actions)
    given = {"num_features": 2, "discount": 0.5, "max_features": 20, "regularisation": 1e-4}
    for axes, expected in (("coordinates", standardised), ("principal", whitened)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # Twenty features are few.
            basis = fit(data, width=0.5, axes=axes, **given).solution.basis
        np.testing.assert_allclose(basis.axes, 2.0 * expected(data.observation), rtol=1e-5)


@pytest.fixture(scope="module")
def spring():
    """Places and speeds of a mass on a spring, [N + 1, 2], and its pushes, [N]."""
    rng, rows = np.random.default_rng(0), 3_000
    actions = rng.integers(2, size=rows)
    states = np.zeros((rows + 1, 2))
    for t, action in enumerate(actions):
        place, speed = states[t]
        speed += 0.2 * (2 * action - 1) - 0.1 * place - 0.05 * speed
        states[t + 1] = place + speed, speed
    return states, actions


def test_two_frames_are_seen_along_their_difference(spring):
    states, actions = spring
    places = 20.0 * states[:, 0]
    frames = np.column_stack([places, np.append(places[0], places[:-1])])
    data = record(frames.astype(np.float32), actions)
    # A narrow kernel along the coordinates predicts sums as well, but not the change of one step.
    basis = fit(data, num_features=2, discount=0.9, max_features=120).solution.basis
    ratio = basis.axes / whitened(data.observation)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)  # All axes have one width.


def test_the_change_that_features_leave_is_that_of_a_regression(spring):
    states, actions = spring
    data, other = (
        record(part.astype(np.float32), acts)
        for part, acts in ((states[:2001], actions[:2000]), (states[2000:], actions[2000:]))
    )
    basis = FourierBasis.of(data.observation, 12, 1.0, 0)
    axes = whitened(data.observation)
    solution = LeastSquares(basis, ActionBasis(2), Steps.of(data), 0.9, 1e-12, None)

    def pairs(rows):
        taken = np.eye(2)[rows.action]
        return np.einsum("na,np->nap", taken, basis.apply(rows.observation)).reshape(len(taken), -1)

    def changes(rows):
        return (rows.next_observation.astype(np.float64) - rows.observation) @ axes

    weights = np.linalg.lstsq(pairs(data), changes(data), rcond=None)[0]
    left = np.square(changes(other) - pairs(other) @ weights).mean(axis=0)
    variance = np.maximum(changes(other).var(axis=0), changes(data).var(axis=0))
    expected = (left / variance).mean()
    assert change_error(solution, Steps.of(other), axes) == pytest.approx(expected, rel=0.02)
