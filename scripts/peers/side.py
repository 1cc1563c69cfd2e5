"""Run one side of a comparison in a process of its own: ``compare.py`` starts it.

It imports neither rlreps nor a peer before the clock starts, so that the time of the first call
("cold") holds imports and compilation. Prints one line of JSON.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import time
from typing import Any


def version(package: str) -> str | None:
    """Return a package's version, or None without it."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def run(driver: str, side: str, sizes: dict[str, Any], calls: int, cores: int) -> dict[str, Any]:
    """Make the data, time some calls of one side's work, and measure the last call's result."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    module = importlib.import_module(driver)
    sizes = {**module.SIZES, **sizes, "calls": calls}
    data = module.prepare(**sizes)
    wall, processor, work, result = list[float](), list[float](), None, None
    for _ in range(calls):
        began = time.perf_counter(), time.process_time()
        if work is None:
            work = module.SIDES[side](data, **sizes)
        result = work()
        wall.append(round(time.perf_counter() - began[0], 6))
        processor.append(round(time.process_time() - began[1], 6))
    quality = {name: float(value) for name, value in module.quality(data, result, **sizes).items()}
    versions = {name: version(name) for name in module.PACKAGES}
    return {"wall": wall, "processor": processor, "quality": quality, "versions": versions}


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
