"""Sampled stores, read back."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

import rlreps
from rlreps.successor import GroundTruth
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.worlds import sample_to_store

PROMOTION = {"jax_numpy_dtype_promotion": "standard", "jax_numpy_rank_promotion": "allow"}


@pytest.fixture
def users_promotion():
    """Set what users have, for rollouts' threads too: gymnax relies on implicit promotion."""
    before = {name: getattr(jax.config, name) for name in PROMOTION}
    for name, value in PROMOTION.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


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
