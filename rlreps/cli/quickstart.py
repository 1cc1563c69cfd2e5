"""The command that runs the whole pipeline."""

import dataclasses
from pathlib import Path
from typing import Literal

from rlreps.cli.options import Switch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Everything at once: ground truth, training, evaluation, pictures and a report.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds on a small grid; laptop takes two minutes on the full 100 x 100
            one; full compares more dimensions and seeds.
        quiet: Show no progress bars.
    """

    out: Path
    preset: Literal["smoke", "laptop", "full"] = "laptop"
    quiet: Switch = False

    def run(self) -> None:
        from rlreps.workflows.quickstart import print_quickstart, run_quickstart
        from rlreps.workflows.quickstart_config import PRESETS

        print_quickstart(run_quickstart(PRESETS[self.preset], self.out, progress=not self.quiet))
