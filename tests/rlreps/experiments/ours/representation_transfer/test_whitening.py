import jax
import numpy as np

from rlreps.encoders import FourierMLP
from rlreps.experiments.ours.representation_transfer.whitening import whitened
from rlreps.subspace import subspace_distance


def networks():
    """Two networks with their features at 300 states."""
    encoder = FourierMLP(4, num_inputs=2, hidden=(16,), frequencies=2)
    states = jax.random.uniform(jax.random.key(0), (300, 2))
    params = jax.vmap(encoder.init)(jax.random.split(jax.random.key(1), 2))
    apply = jax.vmap(encoder.apply, in_axes=(0, None))
    return params, lambda of: np.asarray(apply(of, states), np.float64)


def test_features_are_white_and_span_with_the_constant_what_they_did():
    params, features = networks()
    before = features(params)
    after = features(whitened(params, before))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new.mean(axis=0), 0.0, atol=1e-4)
        np.testing.assert_allclose(new.T @ new / len(new), np.eye(4), atol=1e-3)
        basis = np.linalg.svd(old - old.mean(axis=0), full_matrices=False)[0]
        assert subspace_distance(new.astype(np.float32), basis.astype(np.float32)) < 1e-4


def test_the_layers_below_and_what_was_handed_in_stay_as_they_are():
    params, features = networks()
    copies = jax.tree.map(np.array, params)
    found = whitened(params, features(params))
    jax.tree.map(np.testing.assert_array_equal, params, copies)
    jax.tree.map(np.testing.assert_array_equal, found[0], copies[0])
    assert jax.tree.structure(found) == jax.tree.structure(jax.tree.map(np.asarray, params))


def test_a_direction_that_features_do_not_have_stays_without():
    params, features = networks()
    kernel = np.array(params[-1]["kernel"])
    kernel[:, :, 3] = kernel[:, :, 0]
    params = [*params[:-1], {**params[-1], "kernel": kernel}]
    (new, _) = features(whitened(params, features(params)))
    values = np.linalg.svd(new, compute_uv=False) / np.sqrt(len(new))
    np.testing.assert_allclose(values[:3], 1.0, atol=1e-3)
    assert values[3] < 1e-3
