"""The command that trains a grid of configurations."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, UseAppendAction, arg

from rlreps.cli.options import Choice
from rlreps.cli.parts import Switch
from rlreps.cli.training import METHODS, NAMES
from rlreps.workflows.train import TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train at every point of a grid and gather one table; the same command resumes.

    Attributes:
        store: Folder of the store.
        out: Folder of the sweep.
        grid: A field and its values, such as num-features=5,10 or optimizer.learning-rate=1e-3,3e-4
            (numbers within a value are separated by spaces, as in "hidden=64 64,512"); give it once
            for each field.
        config: What all points share.
        devices: As for ``train``; they share out the runs of a program.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    out: Path
    grid: UseAppendAction[tuple[Annotated[str, arg(metavar="FIELD=VALUE,...")], ...]]
    config: TrainingConfig = dataclasses.field(default=TrainingConfig())
    devices: int | None = None
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = METHODS
    names: ClassVar[dict[str, str]] = NAMES

    def run(self) -> None:
        """Trains, then prints the table."""
        from rlreps.workflows.sweep import SweepConfig, parse_grid

        config = SweepConfig(base=self.config, grid=parse_grid(self.grid))

        from rlreps.training.devices import choose_devices
        from rlreps.workflows.sweep import print_sweep, run_sweep

        summary = run_sweep(
            config,
            self.store,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )
        print_sweep(summary)
