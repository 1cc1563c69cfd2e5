"""Fixtures shared by the tests of training, runs and the command line."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache as cache

CACHE_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="session")
def compilation_cache_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compilation_cache")


@pytest.fixture(scope="module")
def compilation_cache(compilation_cache_folder):
    """Keeps compiled programs, so that tests that train the same thing again compile it once."""
    settings = {"jax_compilation_cache_dir": str(compilation_cache_folder), **CACHE_SETTINGS}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    cache.reset_cache()
