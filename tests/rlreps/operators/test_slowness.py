"""Slowness of clips against NumPy's differences and SciPy's eigenvalues."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.errors import InputError
from rlreps.operators import Clip, Diagonal, Slowness, act


@pytest.mark.parametrize("length", [2, 3, 10])
def test_clips_count_every_step_and_every_state_once(length):
    clips = np.random.default_rng(0).normal(size=(length, 7, 3))
    action = act(Slowness(), lambda x: x, Clip(tuple(jnp.asarray(clips))))
    steps, states = np.diff(clips, axis=0).reshape(-1, 3), clips.reshape(-1, 3)
    found = np.asarray(action.operator_matrix), np.asarray(action.covariance)
    np.testing.assert_allclose(found[0], steps.T @ steps / len(steps), rtol=1e-10)
    np.testing.assert_allclose(found[1], states.T @ states / len(states), rtol=1e-10)
    # One clip, a function for each of its states: the greatest eigenvalue of any sample.
    whole = act(Slowness(), lambda x: x, Clip(tuple(jnp.eye(length)[:, None])))
    values = scipy.linalg.eigh(whole.operator_matrix, whole.covariance, eigvals_only=True)
    most = 2.0 * (1.0 + np.cos(np.pi / length)) * length / (length - 1)
    np.testing.assert_allclose(values[[0, -1]], [0.0, most], atol=1e-10)
    # A state's own image depends on its neighbours in the clip alone.
    moved = jnp.asarray(clips).at[:, 3].set(0.0)
    others = act(Slowness(), lambda x: x, Clip(tuple(moved))).images
    changed = np.any(np.asarray(others != action.images), axis=1).reshape(length, 7)
    np.testing.assert_array_equal(changed, np.broadcast_to(np.arange(7) == 3, (length, 7)))


@pytest.mark.parametrize("operator", [Slowness(), 0.5 * Slowness() + Diagonal(lambda x: x[:, 0])])
def test_single_states_have_no_slowness(operator):
    assert operator.needs_clips
    assert not Diagonal(lambda x: x[:, 0]).needs_clips
    expected = "rows that are pairs or clips of states .*pair_source.*, got 'single states'"
    for inputs in (jnp.ones((6, 2)), Clip((jnp.ones((6, 2)),))):
        with pytest.raises(InputError, match=expected):
            act(operator, lambda x: x, inputs)


def test_operators_at_a_point_take_every_state_of_a_clip_for_a_point():
    first, second = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 3)))
    pair = {"place": first, "level": first[:, 0]}, {"place": second, "level": second[:, 0]}
    potential = Diagonal(lambda inputs: inputs["level"])
    found = act(2.0 * Slowness() + potential, lambda x: x["place"], Clip(pair))
    change, places = np.asarray(first - second), np.concatenate([first, second])
    expected = 4.0 * np.concatenate([change, -change]) + places[:, :1] * places
    np.testing.assert_allclose(found.images, expected, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, places.T @ places / 8, rtol=1e-10)
