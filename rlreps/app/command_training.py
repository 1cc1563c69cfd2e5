"""The commands that train encoders, one or a grid of them, and measure them."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from rlreps.app.evaluate import evaluate_run
from rlreps.app.export import export_run
from rlreps.app.jobs.train import TrainingConfig, run_training
from rlreps.app.jobs.train_live import LiveConfig, run_live_training
from rlreps.app.options import Choice
from rlreps.cumulants import CUMULANTS, Cumulants
from rlreps.encoders import ENCODERS, Encoder
from rlreps.losses import OBJECTIVES, Objective
from rlreps.runs.processes import ProcessesConfig
from rlreps.training.devices import choose_devices

__all__ = ["evaluate_run", "export_run"]

CHOICES: dict[Any, Choice] = {
    Encoder: Choice("encoder", ENCODERS),
    Objective: Choice("method", OBJECTIVES),
    Cumulants: Choice("cumulants", CUMULANTS),
}
NAMES = {
    "Optimizer.name": "optimizer",
    # ``--hidden`` is the option of encoders.
    "RandomNetwork.hidden": "cumulant_hidden",
    "RandomIndicators.hidden": "cumulant_hidden",
    **{f"Code.{name}": f"code_{name}" for name in ("size", "bins", "seed")},
    **{f"Image.{name}": f"image_{name}" for name in ("size", "bins")},
}


def train(
    store: Path,
    out: Path,
    config: TrainingConfig,
    processes: ProcessesConfig,
    devices: int | None = None,
) -> dict[str, Any]:
    """Train an encoder on a store; the same command resumes an interrupted run.

    Args:
        store: Folder of the store.
        out: Folder of the run.
        config: The run.
        processes: The processes that train together, each started with the same command.
        devices: Number of devices of each process to train on; by default all accelerators or,
            without any, one CPU device. Seeds are distributed over all devices if they divide
            evenly; otherwise the devices share every batch.
    """
    return run_training(config, store, out, devices=choose_devices(devices))


def train_live(
    out: Path,
    config: LiveConfig,
    store: Path | None = None,
    devices: int | None = None,
) -> dict[str, Any]:
    """Train an encoder on fresh rollouts, without a matrix; the same command resumes.

    Args:
        out: Folder of the run.
        config: The run.
        store: A successor measure of the same process against which the encoder is measured; by
            default none.
        devices: As for ``train``.
    """
    return run_live_training(config, out, store_path=store, devices=choose_devices(devices))


def sweep(
    store: Path,
    out: Path,
    grid: UseAppendAction[tuple[Annotated[str, arg(metavar="FIELD=VALUE,...")], ...]],
    config: TrainingConfig,
    devices: int | None = None,
) -> None:
    """Train at every point of a grid and gather one table; the same command resumes.

    Args:
        store: Folder of the store.
        out: Folder of the sweep.
        grid: A field and its values, such as num-features=5,10 or optimizer.learning-rate=1e-3,3e-4
            (numbers within a value are separated by spaces, as in "hidden=64 64,512"); repeat the
            option for each field.
        config: The configuration that all points share.
        devices: As for ``train``; the runs of a program are distributed over them.
    """
    from rlreps.study.grid import SweepConfig, parse_grid
    from rlreps.study.sweep import print_sweep, run_sweep

    points = SweepConfig(base=config, grid=parse_grid(grid))
    print_sweep(points, run_sweep(points, store, out, devices=choose_devices(devices)))


def compare(runs: tuple[Path, ...], out: Path | None = None) -> None:
    """Compare finished runs with the first run: one table, with intervals over seeds.

    Args:
        runs: Folders of train, train-live, sweep and fit; every point of a sweep counts as a run.
        out: Folder for the table (comparison.csv), every seed's figures (seeds.csv) and the
            learning curves (curves.png); none by default.
    """
    from rlreps.study.compare import compare_runs

    compare_runs(runs, out).print()
