"""Feature maps of least-squares fits."""

import numpy as np

from rlreps.successor.basis import FourierBasis


def test_no_observations_have_no_features_and_project_to_no_rows():
    """Rows held out of episodes that all terminate: nothing was cut."""
    some = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    basis = FourierBasis.of(some, 20, 1.0, 0)
    nothing = some[:0]
    assert basis.apply(nothing).shape == (0, basis.num_features)
    weights = np.ones((basis.num_features, 2, 3), np.float32)
    assert basis.project(nothing, weights).shape == (0, 2, 3)
