"""How much memory this process has needed."""

import sys


def peak_memory_mib() -> float | None:
    """Largest resident set of this process so far in MiB, or None where the system cannot say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
