"""One compilation cache for all workers and subprocesses; strict promotion for every test."""

import collections
import gc
import os
import sys
import tempfile

import jaxlib.version

# Before JAX is imported. Workers and the processes that tests start inherit it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="rlreps-tests-")
if "RLREPS_CACHE_DIR" not in os.environ:  # Worlds that tests build.
    os.environ["RLREPS_CACHE_DIR"] = tempfile.mkdtemp(prefix="rlreps-tests-")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Tests compile more than they compute: with optimisations a cold run takes three times as long.
# A later flag wins. XLA stops at a flag that it does not know: the last two may go with 0.11.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    # XLA's checks of its own passes take a tenth of a compilation.
    "--xla_disable_hlo_passes=hlo-verifier "
    + "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
    * (jaxlib.version.__version_info__[:2] == (0, 10))
    + os.environ.get("XLA_FLAGS", "")
)
# Without the lines of source of every operation agents take 5 to 8 % less processor time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# LAPACK's threads and XLA's wait for each other, and every worker has a core to itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NPROC", "1")  # Threads of XLA's pools.

import jax
import pytest

# Tracing makes many objects that stay: looking through them as often as usual takes a twentieth.
gc.set_threshold(50_000, 20, 20)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def forbid_transfers():
    """Makes implicit transfers errors, in every thread, from its call to the end of the test.

    On a CPU, JAX notices those from the host alone: NumPy arrays and Python numbers.
    """
    yield lambda: jax.config.update("jax_transfer_guard", "disallow")
    jax.config.update("jax_transfer_guard", "allow")


@pytest.fixture(scope="module", autouse=True)
def _programs_of_a_module():
    """Forget compiled programs after each module: a worker would keep 2 GiB of them."""
    yield
    jax.clear_caches()
    if "rlreps.numerics" in sys.modules:
        sys.modules["rlreps.numerics"]._programs.clear()


LONG = {"test_agent.py", "test_agents.py", "test_data_parallel.py", "test_example_pages.py"}
LONG |= {"test_export.py", "test_faults.py", "test_population.py", "test_processes.py"}
LONG |= {"test_store.py", "test_loop.py"}
"""Files whose tests take longer than others of their tier."""


@pytest.hookimpl(trylast=True)  # After what is not asked for has gone.
def pytest_collection_modifyitems(items):
    """Hand out the longest files first: no worker waits for a long one at the end."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    seconds = collections.Counter()
    for item in items:
        slow = 25 * ("experiments" in item.keywords) or 2.5 * ("integration" in item.keywords)
        seconds[item.path] += (slow or 0.1) * (10 if item.path.name in LONG else 1)
    items.sort(key=lambda item: -seconds[item.path])
