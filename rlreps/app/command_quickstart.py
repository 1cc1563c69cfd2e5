"""The command that runs the whole pipeline."""

from pathlib import Path
from typing import Literal


def quickstart(out: Path, preset: Literal["smoke", "laptop"] = "laptop") -> None:
    """Run everything at once: ground truth, training, evaluation, pictures and a report.

    Args:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds on a small grid; laptop takes two minutes on 100 x 100 cells.
    """
    from rlreps.study.quickstart import PRESETS, print_quickstart, run_quickstart

    print_quickstart(run_quickstart(PRESETS[preset], out))
