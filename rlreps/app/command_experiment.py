"""The commands of experiments, one for each entry of ``rlreps.experiments``."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from rlreps.app.options import command_class
from rlreps.experiments import EXPERIMENTS

_HELP = """{description}

Args:
    out: Folder of the run; run again to resume.
    preset: {presets}.
    data: Folder of MNIST's IDX files (gzipped or not) or of train.npz, or a NumPy file (npy or
        npz); by default MNIST is downloaded through scikit-learn, if it is installed.
    objective: module:name of an objective of your own. Only this objective is tuned and trained;
        with the preset laptop, the report compares it with the released rows of the others.
    devices: As for train.
    jobs: Parts to compute at a time, each in its own process with its share of the CPU's cores.
"""


def command_of(name: str) -> type:
    """Make the command of an experiment with the options that it takes."""
    entry = EXPERIMENTS[name]

    def experiment(
        out: Path,
        preset: str = "laptop",
        data: Path | None = None,
        objective: str | None = None,
        devices: int | None = None,
        jobs: int = 1,
    ) -> None:
        from rlreps.study import print_claims
        from rlreps.training.devices import choose_devices, devices_for_small_runs

        options: dict[str, Any] = {"data": data, "jobs": jobs}
        if "devices" in entry.takes:
            options["devices"] = choose_devices(devices)
        elif entry.shares_devices:
            options["devices"] = devices_for_small_runs()
        found = entry.load()
        config = found.presets[preset]
        if objective is not None:
            from rlreps.experiments.ours.contestants import row_of

            config = dataclasses.replace(config, rows=(row_of(objective),))
        print_claims(found.run(config, out, **options))

    experiment.__annotations__["preset"] = Literal[tuple(entry.presets)]
    presets = "; ".join(": ".join(preset) for preset in entry.presets.items())
    experiment.__doc__ = _HELP.format(description=entry.description, presets=presets)
    without = {"data", "objective", "devices", "jobs"} - {*entry.takes}
    return command_class(experiment, without=sorted(without))
