import math

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.pca_losses import (
    counted,
    excess_percent,
    is_mnist,
    repeated,
    require_excess,
)
from rlreps.experiments.amid_warmuth_2020.pca_problem import make_pca_problem
from rlreps.sources.datasets import Observations


@pytest.fixture(scope="module")
def problem():
    """Rows of variances 9, 4 and 1 exactly."""
    signs = np.asarray([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], np.float32)
    return make_pca_problem(Observations("corners", signs * np.float32([3, 2, 1]), None), 3)


def test_a_diverged_run_counts_with_the_whole_variance_and_is_counted(problem):
    found = repeated([2.0, math.nan, 1.0], problem)
    assert found.mean == pytest.approx((2.0 + 14.0 + 1.0) / 3)
    assert found.diverged == 1
    assert str(found).endswith("(1 diverged)")
    np.testing.assert_allclose(counted([math.nan, math.inf, 3.0], problem), [14.0, 14.0, 3.0])


def test_the_spread_is_the_sample_standard_deviation_over_runs(problem):
    found = repeated([1.0, 2.0, 6.0], problem)
    assert found.mean == pytest.approx(3.0)
    assert found.deviation == pytest.approx(math.sqrt(7.0))
    assert str(found) == "3.000 ± 2.646"
    assert repeated([5.0], problem).deviation == 0.0


def test_workers_are_averaged_before_runs_are_compared(problem):
    found = repeated([[1.0, 3.0], [2.0, 8.0]], problem)
    assert (found.mean, found.deviation) == pytest.approx((3.5, 1.5 * math.sqrt(2.0)))
    diverged = repeated([[1.0, math.nan], [math.nan, math.nan]], problem)
    assert (diverged.mean, diverged.diverged) == (pytest.approx((7.5 + 14.0) / 2), 3)


def test_excess_is_in_percent_of_the_exact_loss_of_as_many_components(problem):
    np.testing.assert_allclose(
        excess_percent([5.0, 10.0, math.nan], problem, 1), [0.0, 100.0, 180.0], atol=1e-9
    )
    np.testing.assert_allclose(excess_percent([2.0], problem, 2), [100.0])


def test_excess_needs_variance_that_the_components_leave(problem):
    require_excess(problem, 2)
    with pytest.raises(InputError, match="beyond their top 3"):
        require_excess(problem, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("MNIST (70,000 images)", True), ("MNIST (7,000 images)", False), ("cifar (70,000)", False)],
)
def test_only_all_images_of_mnist_are_the_papers(problem, name, expected):
    assert is_mnist(problem._replace(name=name)) is expected
