"""Forks of a process that has used JAX: its threads are lost, and the child would wait for them.

Importing ``rlreps.envs`` watches for such forks; ``require_threads`` raises in their children.
"""

import os
import sys

_in_use = False
_stranded = False


def require_threads() -> None:
    """Raise a ``RuntimeError`` in a process forked from one that had used JAX."""
    if _stranded:
        raise RuntimeError(
            "expected a process of its own for JAX, got one forked after JAX was used, where it "
            'would hang; start it with context="spawn", as in '
            'gymnasium.vector.AsyncVectorEnv(env_fns, context="spawn")'
        )


def _before_fork() -> None:
    """Check, before the fork, whether JAX has started its threads: the check takes a lock."""
    global _in_use
    bridge = sys.modules.get("jax._src.xla_bridge")  # Importing rlreps.envs does not load JAX.
    started = getattr(bridge, "backends_are_initialized", None)
    _in_use = started is not None and started()


def _after_fork() -> None:
    global _stranded
    _stranded = _stranded or _in_use


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
