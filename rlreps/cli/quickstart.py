"""The command that runs the whole pipeline."""

from pathlib import Path
from typing import Literal

from rlreps.cli.options import Switch


def quickstart(
    out: Path, preset: Literal["smoke", "laptop", "full"] = "laptop", quiet: Switch = False
) -> None:
    """Run everything at once: ground truth, training, evaluation, pictures and a report.

    Args:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds on a small grid; laptop takes two minutes on the full grid of
            100 x 100 cells; full compares more dimensions and seeds.
        quiet: Show no progress bars.
    """
    from rlreps.workflows.quickstart import print_quickstart, run_quickstart
    from rlreps.workflows.quickstart_config import PRESETS

    print_quickstart(run_quickstart(PRESETS[preset], out, progress=not quiet))
