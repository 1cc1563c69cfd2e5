"""StreamingPCA as scikit-learn knows estimators, against exact principal component analysis."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from rlreps.streaming import StreamingPCA


@parametrize_with_checks(
    [StreamingPCA(), StreamingPCA(2, rule="incremental_pca", batch_size=4, missing=True)]
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)
