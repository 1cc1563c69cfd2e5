"""How many cores there are to work with."""

import os


def usable_cores() -> int:
    """Cores this process may run on, or all where the system (macOS, Windows) cannot say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
