"""Provenance of a result: package versions, source revision and device."""

import datetime
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("rlreps", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "tensorstore")


def provenance() -> dict[str, Any]:
    """Versions, git revision (None outside a checkout), device and time, as JSON values."""
    import jax  # Deferred: quick commands read stored provenance without starting JAX.

    devices = jax.devices()
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git_revision": _git_revision(),
        "device": f"{len(devices)} x {devices[0].device_kind}",
        "platform": platform.platform(),
    }


def _git_revision() -> str | None:
    """Find the commit this package runs from, marked if the working tree differs from it."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            return None  # Installed inside another project's repository.
        dirty = "-dirty" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + dirty
    except (OSError, subprocess.SubprocessError):
        return None
