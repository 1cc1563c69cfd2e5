"""Sampled stores, read back."""

from typing import NamedTuple

import numpy as np
import pytest

import rlreps
from rlreps.successor import GroundTruth
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.worlds import sample_to_store


class Sampled(NamedTuple):
    """What a store holds: estimates [n, t], observations [n, ...] and the truth made of them."""

    estimates: RowEstimates
    observations: np.ndarray
    truth: GroundTruth


@pytest.fixture
def sample(tmp_path_factory):
    """Return a function that samples into a store of its own and reads it."""

    def into_store(*given, **options):
        path = tmp_path_factory.mktemp("sampled")
        sample_to_store(path, *given, **options)
        estimates = RowEstimates(*(store.read() for store in open_estimates(path).stores()[::-1]))
        truth = rlreps.successor.load(path)
        return Sampled(estimates, np.asarray(truth.observations), truth)

    return into_store
