"""Full float32 products: networks run at the device's default precision, which oracles do not."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def _full_precision():
    with jax.default_matmul_precision("highest"):
        yield
