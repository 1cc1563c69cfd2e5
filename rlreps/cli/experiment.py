"""The commands of experiments, one for each entry of ``rlreps.experiments``."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import arg

from rlreps.cli.options import Switch
from rlreps.experiments import EXPERIMENTS, Entry

DATA = (
    "Folder of MNIST's IDX files (gzipped or not) or of train.npz, or a NumPy file (npy or "
    "npz); by default MNIST is downloaded through scikit-learn, if it is installed."
)

OBJECTIVE = (
    "module:name of an objective of your own. It is tuned and trained alone; with the preset "
    "laptop, the released rows of the others stand beside it."
)

JOBS = "Parts to compute at a time, each in its own process with its share of the CPU's cores."


@dataclasses.dataclass(frozen=True)
class ExperimentCommand:
    """Run one experiment; subclasses, made from the registry, have the options."""

    entry: ClassVar[Entry]

    def run(self) -> None:
        from rlreps.experiments.harness import print_claims
        from rlreps.training.devices import choose_devices, devices_for_small_runs

        given = vars(self)
        experiment = self.entry.load()
        config = experiment.presets[given["preset"]]
        if given.get("objective") is not None:
            from rlreps.experiments.ours.contestants import row_of

            config = dataclasses.replace(config, rows=(row_of(given["objective"]),))
        options: dict[str, Any] = {"progress": not given["quiet"]}
        if self.entry.takes_data:
            options["data"] = given["data"]
        if self.entry.devices == "chosen":
            options["devices"] = choose_devices(given["devices"])
        elif self.entry.devices == "shared":
            options["devices"] = devices_for_small_runs()
        if self.entry.takes_jobs:
            options["jobs"] = given["jobs"]
        print_claims(experiment.run(config, given["out"], **options))


def command_of(name: str) -> type[ExperimentCommand]:
    """Build the command of an experiment with the options that it takes."""
    entry = EXPERIMENTS[name]
    presets: Any = Literal[tuple(entry.presets)]
    sizes = "; ".join(" ".join(preset) for preset in entry.presets.items()) + "."
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("out", Annotated[Path, arg(help="Folder of the run; run again to resume.")]),
        ("preset", Annotated[presets, arg(help=sizes)], "laptop"),
        ("quiet", Annotated[Switch, arg(help="Show no progress bars.")], False),
    ]
    if entry.takes_data:
        fields.append(("data", Annotated[Path | None, arg(help=DATA)], None))
    if entry.takes_objective:
        fields.append(("objective", Annotated[str | None, arg(help=OBJECTIVE)], None))
    if entry.devices == "chosen":
        fields.append(("devices", Annotated[int | None, arg(help="As for train.")], None))
    if entry.takes_jobs:
        fields.append(("jobs", Annotated[int, arg(help=JOBS)], 1))
    return dataclasses.make_dataclass(
        name.title().replace("-", ""),
        fields,
        bases=(ExperimentCommand,),
        namespace={"__doc__": entry.description, "entry": entry},
        frozen=True,
        kw_only=True,
    )
