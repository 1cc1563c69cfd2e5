"""Released ground truths: whole, consistent with what they claim, and usable in one line."""

import numpy as np
import pytest

from rlreps import subspace
from rlreps.errors import InputError
from rlreps.successor import load, released_names
from rlreps.successor.grids import Grid
from rlreps.successor.measure import Transition


@pytest.fixture(scope="module")
def truth():
    return load("sutton-100")


def test_the_canonical_truth_is_what_its_name_says(truth):
    config = Transition(refinement=2, points=1024)
    expected = config.store_settings()
    stored = {name: value for name, value in truth.settings.items() if name != "command"}
    assert stored == expected
    assert (truth.settings["discount"], truth.settings["bins"]) == (0.99, 100)
    assert truth.settings["count_start"] is True
    assert "scripts/release_ground_truth.py" in truth.settings["command"]
    np.testing.assert_array_equal(truth.coordinates, Grid(100).centres())


def test_its_basis_is_orthonormal_centred_and_in_float32(truth):
    basis = truth.principal.basis
    assert (basis.shape, basis.dtype) == ((10_000, 100), np.float32)
    gram = basis.astype(np.float64).T @ basis
    np.testing.assert_allclose(gram, np.eye(100), atol=1e-5)
    assert released_names() == ["sutton-100"]
    np.testing.assert_array_equal(subspace.fix_signs(basis), basis)
    values = truth.principal.singular_values
    assert np.all(np.diff(values) <= 0)
    assert 0.7 < truth.principal.energy_captured()[-1] < 0.8


def test_its_error_is_far_below_the_noise_of_a_thousand_rollouts(truth):
    assert truth.error.shape == (100,)
    for d, noise in ((1, 0.0005), (10, 0.0022), (50, 0.0116), (99, 0.023)):
        assert 0.0 < truth.error[d - 1] < noise / 10
    # Less is certain only where two singular values are nearly equal, as those of 100 and 101.
    bounds = truth.principal.distance_bound
    assert np.count_nonzero(bounds > 1e-3) <= 3
    assert np.max(bounds) < np.max(truth.error) < 0.01
    assert np.all(truth.error >= bounds)


def test_an_unknown_name_and_misfitting_features_are_refused(truth):
    with pytest.raises(InputError, match=r"ground truth \(sutton-100\) or a store, got 'x'"):
        load("x")
    with pytest.raises(InputError, match="1 <= d <= 100"):
        truth.distance(np.ones((10_000, 101), np.float32))
    with pytest.raises(InputError, match=r"features of shape \[states, d\], got \(10000,\)"):
        truth.distance(np.ones(10_000, np.float32))
