import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.pca_problem import make_pca_problem
from rlreps.sources.datasets import Observations

ROWS = (load_digits().images[:600].reshape(600, 64) / 16).astype(np.float32)


@pytest.fixture(scope="module")
def problem():
    return make_pca_problem(Observations("digits", ROWS, (8, 8)), 10)


@pytest.mark.parametrize("k", [1, 5, 10, 40])
def test_the_exact_loss_is_that_of_scikit_learns_components(problem, k):
    rows = ROWS.astype(np.float64)
    exact = PCA(k, svd_solver="full").fit(rows)
    residuals = rows - exact.inverse_transform(exact.transform(rows))
    expected = np.mean(np.sum(residuals**2, axis=1))
    assert problem.exact_loss(k) == pytest.approx(expected, rel=1e-5)
    assert problem.loss(exact.components_.T) == pytest.approx(expected, rel=1e-5)


def test_the_basis_is_scikit_learns_in_order_of_variance(problem):
    exact = PCA(6, svd_solver="full").fit(ROWS.astype(np.float64))
    cosines = np.abs(np.sum(exact.components_.T * problem.basis[:, :6], axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-8)
    np.testing.assert_allclose(
        problem.variances[:6], exact.explained_variance_ * 599 / 600, rtol=1e-5
    )
    assert np.all(np.diff(problem.variances) <= 0.0)
    assert np.all(problem.variances >= 0.0)
    np.testing.assert_allclose(problem.basis.T @ problem.basis, np.eye(64), atol=1e-12)


def test_rows_have_lost_their_mean_and_nothing_else(problem):
    np.testing.assert_allclose(problem.mean, ROWS.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(problem.rows + problem.mean, ROWS, atol=1e-6)
    assert problem.rows.dtype == np.float32


def test_the_loss_of_any_span_is_the_mean_squared_residual(problem):
    components = np.random.default_rng(0).normal(size=(64, 4))
    span, _ = np.linalg.qr(components)
    residuals = problem.rows - problem.rows @ span @ span.T
    expected = np.mean(np.sum(residuals**2, axis=1))
    assert problem.loss(components) == pytest.approx(expected, rel=1e-5)
    assert problem.loss(components) > problem.exact_loss(4)


def test_the_loss_knows_the_span_alone(problem):
    generator = np.random.default_rng(1)
    components = generator.normal(size=(64, 4))
    mixing = generator.normal(size=(4, 4)) + 3.0 * np.eye(4)
    same = problem.loss(components)
    assert problem.loss(components @ mixing) == pytest.approx(same, rel=1e-12)
    assert problem.loss(1e-20 * components) == pytest.approx(same, rel=1e-12)
    assert problem.loss(components[:, ::-1]) == pytest.approx(same, rel=1e-12)
    assert problem.loss(components[:, :3]) > same


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_components_that_are_not_finite_have_no_loss(problem, bad):
    components = problem.basis[:, :3].copy()
    components[5, 1] = bad
    assert np.isnan(problem.loss(components))


@pytest.mark.parametrize(("shape", "k"), [((600, 64), 65), ((600, 64), 0), ((5, 64), 6)])
def test_more_components_than_there_can_be_are_refused(shape, k):
    rows = Observations("some", ROWS[: shape[0]], None)
    with pytest.raises(InputError, match=rf"k in \[1, {min(shape)}\] for the {shape[0]} rows"):
        make_pca_problem(rows, k)


def test_wide_data_have_no_loss_once_every_row_is_explained():
    problem = make_pca_problem(Observations("wide", ROWS[:5], None), 5)
    assert problem.exact_loss(4) == pytest.approx(0.0, abs=1e-5)
    assert problem.exact_loss(3) > 0.1


def test_components_that_depend_on_others_span_nothing_more(problem):
    leading = problem.basis[:, :2].astype(np.float32)
    twice = np.concatenate([leading, leading @ np.asarray([[0.6], [0.8]], np.float32)], axis=1)
    assert problem.loss(twice) == pytest.approx(problem.exact_loss(2), rel=1e-4)
    nothing = np.zeros((64, 3), np.float32)
    assert problem.loss(nothing) == pytest.approx(problem.variances.sum(), rel=1e-6)
