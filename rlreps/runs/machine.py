"""The machine this process runs on: its threads and the memory it has needed."""

import os
import sys


def keep_lapack_to_one_thread() -> None:
    """Has OpenBLAS, which JAX calls for small factorisations on a CPU, work in one thread.

    Its threads and XLA's wait for each other: an eigendecomposition of order 100 within a compiled
    loop took a hundred times longer with two. Only before NumPy, SciPy and JAX are loaded; what the
    user has set stands.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def peak_memory_mib() -> float | None:
    """Largest resident set of this process so far in MiB, or None where the system cannot say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
