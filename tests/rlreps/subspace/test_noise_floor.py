import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import nested_distances, noise_floor, subspace_distance


def _basis(rows: int, columns: int, seed: int) -> np.ndarray:
    panel = np.random.default_rng(seed).standard_normal((rows, columns))
    return np.linalg.qr(panel)[0]


def test_nested_distances_are_the_subspace_distance_of_every_leading_part():
    first, second = _basis(60, 8, 0), _basis(60, 8, 1)
    second = np.linalg.qr(first + 0.3 * second)[0]
    found = nested_distances(first, second)
    assert found.shape == (8,)
    assert found.dtype == np.float64
    with jax.enable_x64(True):
        for d in range(1, 9):
            expected = subspace_distance(jnp.asarray(second[:, :d]), jnp.asarray(first[:, :d]))
            assert found[d - 1] == pytest.approx(float(expected), rel=1e-12)


def test_small_distances_of_float32_bases_keep_their_digits():
    first, second = _basis(500, 6, 2), _basis(500, 6, 3)
    second = np.linalg.qr(first + 1e-4 * second)[0]
    exact = nested_distances(first, second)
    assert 1e-10 < exact[0] < 1e-7
    single = nested_distances(first.astype(np.float32), second.astype(np.float32))
    # Rounding a basis to float32 turns it by about 6e-8 against 1e-4.
    np.testing.assert_allclose(single, exact, rtol=5e-3)


def test_a_basis_is_at_distance_zero_from_itself_and_one_from_its_complement():
    basis = _basis(20, 20, 4)
    assert np.max(nested_distances(basis[:, :7], -basis[:, :7])) < 1e-14
    np.testing.assert_allclose(nested_distances(basis[:, :7], basis[:, 7:14]), 1.0)


def test_swapping_two_components_shows_between_them_only():
    basis = _basis(20, 4, 5)
    found = nested_distances(basis, basis[:, [0, 2, 1, 3]])
    np.testing.assert_allclose(found, [0.0, 0.5, 0.0, 0.0], atol=1e-14)


def test_nested_distances_are_symmetric():
    first, second = _basis(30, 5, 6), _basis(30, 5, 7)
    np.testing.assert_allclose(
        nested_distances(first, second), nested_distances(second, first), rtol=1e-12
    )


@pytest.mark.parametrize("shapes", [((5, 2), (5, 3)), ((5, 0),) * 2, ((2, 3),) * 2, ((5,),) * 2])
def test_bases_that_do_not_fit_together_are_refused(shapes):
    with pytest.raises(InputError, match="expected two bases of one shape"):
        nested_distances(np.ones(shapes[0]), np.ones(shapes[1]))


def test_the_floor_is_on_average_the_distance_of_the_mean_from_the_truth():
    rank, seeds = 5, 300
    rng = np.random.default_rng(8)
    left, right = _basis(40, 20, 9), _basis(30, 20, 10)
    truth = (left * (10.0 * 0.8 ** np.arange(20.0))) @ right.T
    differences, actual = [], []
    for _ in range(seeds):
        # Noise whose size differs from column to column, as in a sampled successor measure.
        noise = 0.05 * rng.standard_normal((2, 40, 30)) * np.linspace(0.2, 2.0, 30)
        halves = [np.linalg.svd(truth + part)[0][:, :rank] for part in noise]
        mean = np.linalg.svd(truth + noise.mean(axis=0))[0][:, :rank]
        actual.append(nested_distances(mean, left[:, :rank]))
        differences.append(noise_floor(*halves) - actual[-1])
    average, expected = np.mean(differences, axis=0), np.mean(actual, axis=0)
    standard_error = np.std(differences, axis=0) / np.sqrt(seeds)
    # The comparison can tell the quarter from a half or an eighth, for every d.
    assert np.all(standard_error < 0.05 * expected)
    assert np.all(expected < 0.02)
    # Second-order terms are of the distance's own relative size.
    assert np.all(np.abs(average) < 4.0 * standard_error + 4.0 * expected**2)


def test_halves_with_nothing_in_common_have_a_floor_near_a_quarter():
    floor = noise_floor(_basis(2000, 5, 11), _basis(2000, 5, 12))
    np.testing.assert_allclose(floor, 0.25, atol=1e-3)
