"""The command line: parsing only; ``workflows`` and ``experiments`` hold what commands run."""

from rlreps.cli.main import main

__all__ = ["main"]

import sys

from rlreps.runs.machine import keep_lapack_to_one_thread

_RULES = {"online-pca", "learning-rate-sensitivity", "distributed-pca"}

# Commands whose programs factorise small matrices all the time; options of the others load JAX.
if sys.argv[1:2] == ["agent"] or any(n in _RULES or n.startswith("agent-") for n in sys.argv[2:3]):
    keep_lapack_to_one_thread()
