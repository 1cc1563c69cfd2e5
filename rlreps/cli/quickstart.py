"""The command that runs the whole pipeline."""

import dataclasses
from pathlib import Path
from typing import Literal

from rlreps.cli.parts import Switch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Everything at once: ground truth, training, evaluation, pictures and a report.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds on a small grid, laptop minutes on the full 100 x 100 one.
        quiet: Show no progress bars.
    """

    out: Path
    preset: Literal["smoke", "laptop"] = "laptop"
    quiet: Switch = False

    def run(self) -> None:
        """Runs the pipeline, then prints the table and the report's path."""
        from rlreps.cli.tables import print_quickstart
        from rlreps.workflows.quickstart.config import PRESETS
        from rlreps.workflows.quickstart.run import run_quickstart

        print_quickstart(run_quickstart(PRESETS[self.preset], self.out, progress=not self.quiet))
