"""The commands of experiments, one for each entry of ``scripts/experiments/__init__.py``."""

from pathlib import Path
from typing import Literal

from rlreps.app.command_options import command_class
from rlreps.app.job import takes
from rlreps.experiments import EXPERIMENTS
from rlreps.study.experiment import StudyRun

_HELP = """{description}

Args:
    preset: {presets}.
    data: Folder of MNIST's IDX files (gzipped or not) or of train.npz, or a NumPy file (npy or
        npz); by default MNIST is downloaded through scikit-learn, if it is installed.
    objective: module:name of an objective of your own. The benchmark trains only this objective,
        and so does games with the preset laptop; with this preset, the report compares it with the
        released results of the others. With its other presets, games trains all arms.
    world: A world of ``rlreps worlds list``, or the path of a world's file, instead of the preset's
        worlds. An encoder that suits its observations replaces the preset's, and d is one number.
"""


def command_of(name: str) -> type:
    """Make the command of an experiment with the options that it takes."""
    entry, own = EXPERIMENTS[name], ("data", "objective", "world")

    @takes(
        *(option for option in entry.takes if option not in own),
        shares_devices=entry.shares_devices,
    )
    def experiment(
        preset: str = "laptop",
        data: Path | None = None,
        objective: str | None = None,
        world: str | None = None,
    ) -> StudyRun:
        found = entry.load()
        config = found.presets[preset]
        for option, value in (("objective", objective), ("world", world)):
            if value is not None:
                config = found.options[option](config, value)
        return StudyRun(experiment=found, config=config, data=data)

    experiment.__annotations__["preset"] = Literal[tuple(entry.presets)]
    presets = "; ".join(": ".join(preset) for preset in entry.presets.items())
    experiment.__doc__ = _HELP.format(description=entry.description, presets=presets)
    return command_class(experiment, without=[name for name in own if name not in entry.takes])
