"""Double precision where a test asks for it."""

import jax
import pytest


@pytest.fixture
def double_precision():
    """Let arrays be of 64 bits."""
    with jax.enable_x64(True):
        yield
