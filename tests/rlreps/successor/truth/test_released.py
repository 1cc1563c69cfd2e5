"""Released ground truths: whole, consistent with what they claim, and usable in one line."""

import numpy as np
import pytest

from rlreps import subspace
from rlreps.errors import InputError
from rlreps.successor import load
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.methods import Transition


@pytest.fixture(scope="module")
def truth():
    return load("sutton-100")


def test_the_canonical_truth_is_what_its_name_says(truth):
    expected = Transition(refinement=2, points=1024).store_settings()
    assert {**truth.settings, "command": ""} == {**expected, "command": ""}
    assert "scripts/release_ground_truth.py" in truth.settings["command"]
    np.testing.assert_array_equal(truth.coordinates, Grid(100).centres())
    with pytest.raises(InputError, match=r"ground truth \(sutton-100\) or a store, got 'x'"):
        load("x")


def test_its_basis_is_orthonormal_centred_and_in_float32(truth):
    basis = truth.principal.basis
    assert (basis.shape, basis.dtype) == ((10_000, 100), np.float32)
    np.testing.assert_allclose(basis.astype(np.float64).T @ basis, np.eye(100), atol=1e-5)
    np.testing.assert_allclose(basis.sum(axis=0, dtype=np.float64), 0.0, atol=1e-3)
    np.testing.assert_array_equal(subspace.fix_signs(basis), basis)
    with pytest.raises(InputError, match="1 <= d <= 100"):
        truth.distance(np.ones((10_000, 101), np.float32))


def test_its_error_is_far_below_the_noise_of_a_thousand_rollouts(truth):
    assert truth.error.shape == (100,)
    for d, noise in ((1, 0.0005), (10, 0.0022), (50, 0.0116), (99, 0.023)):
        assert 0.0 < truth.error[d - 1] < noise / 10
    assert np.all(truth.error >= truth.principal.distance_bound)
