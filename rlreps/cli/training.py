"""The commands that train encoders, one or a grid of them, and measure them."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, UseAppendAction, arg

from rlreps.cli.observations import OBSERVED, OBSERVED_NAMES
from rlreps.cli.options import Choice, Switch, print_json
from rlreps.cumulants import CUMULANTS, Cumulants
from rlreps.encoders import ENCODERS, Encoder
from rlreps.envs.observations import Observation
from rlreps.losses import OBJECTIVES, Objective
from rlreps.runs.processes import ProcessesConfig
from rlreps.successor.methods import FIT_ENCODERS, FIT_METHODS, FitConfig, FitMethod
from rlreps.training.devices import choose_devices
from rlreps.workflows.evaluate import evaluate_run
from rlreps.workflows.fit import Collection, print_fit, run_fit
from rlreps.workflows.live import LiveConfig, run_live_training
from rlreps.workflows.train import TrainingConfig, run_training

METHODS: dict[Any, Choice] = {
    Encoder: Choice("encoder", ENCODERS),
    Objective: Choice("method", OBJECTIVES),
}
NAMES = {
    "Optimizer.name": "optimizer",
    # Encoders have hidden layers too.
    "RandomNetwork.hidden": "cumulant_hidden",
    "RandomIndicators.hidden": "cumulant_hidden",
    **OBSERVED_NAMES,
}


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an encoder on a store; the same command resumes an interrupted run.

    Attributes:
        store: Folder of the store.
        out: Folder of the run.
        config: The run.
        devices: Devices to train on, each with seeds of its own if they share out evenly, else with
            a share of every batch; by default all accelerators or, without any, one CPU device. Of
            several processes, each gives as many.
        processes: The processes that train together, each started with the same command.
        plan: Say what it would take in sizes, memory and roughly time, and do nothing.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    out: Path
    config: TrainingConfig = dataclasses.field(default=TrainingConfig())
    processes: ProcessesConfig = dataclasses.field(default=ProcessesConfig())
    devices: int | None = None
    plan: Switch = False
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = METHODS
    names: ClassVar[dict[str, str]] = NAMES

    def run(self) -> None:
        if self.plan:
            from rlreps.workflows.plan import plan_training

            devices = choose_devices(self.devices)
            count = self.processes.num_processes or 1
            print_json(plan_training(self.config, self.store, count, devices))
            return
        summary = run_training(
            self.config,
            self.store,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )
        print_json(summary)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainLive:
    """Train an encoder on fresh rollouts, without a matrix; the same command resumes.

    Attributes:
        out: Folder of the run.
        config: The run.
        store: A successor measure of the same process, to measure the encoder against; none by
            default.
        devices: As for ``train``.
        quiet: Show no progress bar.
    """

    out: Path
    config: LiveConfig = dataclasses.field(default=LiveConfig())
    store: Path | None = None
    devices: int | None = None
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = {**METHODS, Cumulants: Choice("cumulants", CUMULANTS)}
    names: ClassVar[dict[str, str]] = NAMES

    def run(self) -> None:
        summary = run_live_training(
            self.config,
            self.out,
            store_path=self.store,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )
        print_json(summary)


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
        from rlreps.workflows.grid import SweepConfig, parse_grid
        from rlreps.workflows.sweep import print_sweep, run_sweep

        summary = run_sweep(
            SweepConfig(base=self.config, grid=parse_grid(self.grid)),
            self.store,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )
        print_sweep(summary)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fit successor features to transitions; the same command resumes an interrupted fit.

    Attributes:
        data: An .npz file with arrays as Minari, D4RL or OGBench name them (observations, actions,
            terminals, timeouts, ...), or with --collect the id of a Gymnasium environment,
            dm_env:MODULE:FUNCTION for what a function makes, or puddle-world[:ARENA], in which
            uniformly random actions are taken.
        out: Folder of the run.
        config: The fit.
        collection: Where transitions come from.
        quiet: Show no progress bar.
    """

    data: Positional[str]
    out: Path
    config: FitConfig = dataclasses.field(default=FitConfig())
    collection: Collection = dataclasses.field(default=Collection())
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = {
        **OBSERVED,
        Encoder | None: Choice("encoder", FIT_ENCODERS),
        FitMethod | None: Choice("method", FIT_METHODS),
        Objective: Choice("objective", OBJECTIVES),
        Cumulants | None: Choice("cumulants", CUMULANTS),
    }
    names: ClassVar[dict[str, str]] = NAMES

    def run(self) -> None:
        progress = not self.quiet
        summary = run_fit(self.config, self.data, self.out, self.collection, progress=progress)
        print_fit(summary, self.out)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a run's newest checkpoint against a ground truth, or read the quality of a fit.

    Attributes:
        run_folder: Folder of a run of train or fit.
        store: Ground truth to measure against; by default the one trained on. A run of fit has
            none: without a store, its quality on held-out data is shown.
        observation: What the data of a fit show of a PuddleWorld; by default what the run names, or
            the position.
    """

    run_folder: Positional[Path]
    store: Path | None = None
    observation: Observation | None = None

    choices: ClassVar[dict[Any, Choice]] = OBSERVED
    names: ClassVar[dict[str, str]] = OBSERVED_NAMES

    def run(self) -> None:
        print_json(evaluate_run(self.run_folder, self.store, self.observation))
