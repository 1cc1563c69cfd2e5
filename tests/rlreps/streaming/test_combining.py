import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.streaming.combining import nearest_basis, online_em_average, projection_average

FEATURES, K, WORKERS = 9, 3, 4


def bases(seed=0):
    generator = np.random.default_rng(seed)
    return np.stack(
        [np.linalg.qr(generator.normal(size=(FEATURES, K)))[0].T for _ in range(WORKERS)]
    )


def test_the_online_em_average_minimises_the_weighted_divergence_of_the_models():
    """Σ w_m KL(p_m(x, y) ‖ p(x, y)) of Gaussians with unit noise, from SciPy's log-determinants."""
    generator = np.random.default_rng(0)
    factors = generator.normal(size=(WORKERS, K, FEATURES))
    weights = np.asarray([1.0, 2.0, 3.0, 0.5])

    def joint(rows):
        """Covariance of (x, y) for x = Cy + noise."""
        factor = rows.T
        return np.block([[factor @ factor.T + np.eye(FEATURES), factor], [factor.T, np.eye(K)]])

    def divergence(rows):
        inverse = np.linalg.inv(joint(rows))
        return sum(
            weight * 0.5 * np.trace(inverse @ joint(each))
            for weight, each in zip(weights, factors, strict=True)
        )

    with jax.enable_x64(True):
        mean = np.asarray(online_em_average(jnp.asarray(factors), jnp.asarray(weights)))
    least = divergence(mean)
    for _ in range(20):
        assert divergence(mean + 0.01 * generator.normal(size=mean.shape)) > least


def test_the_projection_average_is_the_span_of_the_mean_projectors_top_eigenvectors():
    weights = np.asarray([1.0, 2.0, 3.0, 0.5])
    found = bases()
    mean = np.einsum("m,mkf,mkg->fg", weights / weights.sum(), found, found)
    _, vectors = scipy.linalg.eigh(mean)
    top = vectors[:, -K:]
    with jax.enable_x64(True):
        average = np.asarray(projection_average(jnp.asarray(found), jnp.asarray(weights)))
    np.testing.assert_allclose(average.T @ average, top @ top.T, atol=1e-12)
    np.testing.assert_allclose(average @ average.T, np.eye(K), atol=1e-12)


def test_models_that_agree_are_left_as_they_are():
    same = np.repeat(bases()[:1], WORKERS, axis=0)
    with jax.enable_x64(True):
        average = projection_average(jnp.asarray(same), jnp.ones(WORKERS))
        np.testing.assert_allclose(average, same[0], atol=1e-12)


def test_models_that_differ_a_little_keep_their_components_places():
    generator = np.random.default_rng(2)
    start = bases()[0]
    near = np.stack(
        [
            np.linalg.qr((start + 0.01 * generator.normal(size=start.shape)).T)[0].T
            for _ in range(WORKERS)
        ]
    )
    near *= np.sign(np.sum(near * start, axis=2, keepdims=True))
    with jax.enable_x64(True):
        average = np.asarray(projection_average(jnp.asarray(near), jnp.ones(WORKERS)))
    np.testing.assert_allclose(average, start, atol=0.03)


def test_the_span_does_not_depend_on_the_bases_that_the_workers_chose():
    generator = np.random.default_rng(3)
    found = bases()
    turned = np.stack([np.linalg.qr(generator.normal(size=(K, K)))[0] @ each for each in found])
    with jax.enable_x64(True):
        first, second = (
            np.asarray(projection_average(jnp.asarray(each), jnp.ones(WORKERS)))
            for each in (found, turned)
        )
    np.testing.assert_allclose(first.T @ first, second.T @ second, atol=1e-12)


def test_the_nearest_basis_is_scipys_procrustes_solution():
    basis, target = bases()[0], np.random.default_rng(4).normal(size=(K, FEATURES))
    rotation, _ = scipy.linalg.orthogonal_procrustes(basis.T, target.T)
    with jax.enable_x64(True):
        found = nearest_basis(jnp.asarray(basis), jnp.asarray(target))
        np.testing.assert_allclose(found.T, basis.T @ rotation, atol=1e-12)


@pytest.mark.parametrize("weights", [(1, 0, 0, 0), (10, 0, 0, 0)])
def test_a_worker_that_has_all_the_weight_is_the_result(weights):
    with jax.enable_x64(True):
        found = jnp.asarray(bases())
        average = projection_average(found, jnp.asarray(weights, jnp.float64))
        np.testing.assert_allclose(average, found[0], atol=1e-10)
