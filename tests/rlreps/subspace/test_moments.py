import numpy as np

from rlreps.subspace.centring import second_moments


def test_second_moments_of_float32_rows_are_summed_in_float64():
    rows = (1e3 + np.random.default_rng(0).normal(size=(10_001, 3))).astype(np.float32)
    double = rows.astype(np.float64)
    np.testing.assert_allclose(second_moments(rows), double.T @ double / len(rows), rtol=1e-13)
