"""The command line: parsing only; ``workflows`` and ``experiments`` hold what commands run."""

from rlreps.cli.main import main

__all__ = ["main"]
