"""The commands of the command line: one dataclass each, whose fields are the arguments.

Commands import what they need when they run, so that ``rlreps --help`` answers at once.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from tyro.conf import Positional, subcommand

from rlreps.cli.agent import Agent
from rlreps.cli.experiment import Experiment
from rlreps.cli.ground_truth import SubspaceOptions, SuccessorOptions
from rlreps.cli.parts import Switch, print_json
from rlreps.cli.plot import Plot
from rlreps.cli.sweep import Sweep
from rlreps.cli.training import Evaluate, Train, TrainLive
from rlreps.errors import InputError
from rlreps.runs.processes import ProcessesConfig

DATA = Path("data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generate:
    """Compute a successor measure; run again to resume.

    Attributes:
        config: What to compute.
        processes: The processes that compute it together, each started with the same command.
        out: Folder of the store; by default one under data/ named after the configuration.
        repair: Compute damaged blocks again instead of refusing to go on.
        quiet: Show no progress bar.
    """

    config: SuccessorOptions = dataclasses.field(default_factory=SuccessorOptions)
    processes: ProcessesConfig = dataclasses.field(default_factory=ProcessesConfig)
    out: Path | None = None
    repair: Switch = False
    quiet: Switch = False

    def run(self) -> None:
        """Generates, then says what was done."""
        from rlreps.runs.processes import join
        from rlreps.workflows.generate import generate

        measure = self.config.build()
        out = self.out if self.out is not None else DATA / measure.store_name
        figures = generate(
            measure,
            out,
            repair=self.repair,
            processes=join(self.processes),
            progress=not self.quiet,
        )
        print_json(figures)


@dataclasses.dataclass(frozen=True)
class Info:
    """Say what a store holds, how it was made and how far it is from the truth.

    Attributes:
        store: Folder of the store.
        figure: Where to draw the error (.png, .svg or .pdf); by default beside the matrix.
        json: Print everything as one JSON object and draw nothing.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    figure: Path | None = None
    json: Switch = False
    quiet: Switch = False

    def run(self) -> None:
        """Prints shape, completeness, digest, settings, provenance and the table of errors."""
        from rlreps.cli.tables import print_error_table
        from rlreps.workflows.describe import describe_store, draw_errors

        description = describe_store(self.store, progress=not self.quiet)
        if self.json:
            print_json(description)
            return
        error = description.pop("error")
        print_json(description)
        if error is not None:
            print_error_table(error)
            out = self.figure if self.figure is not None else self.store / "error.png"
            try:
                drawn = draw_errors({error["title"]: error["subspace_distance"]}, out)
            except OSError as problem:
                if self.figure is not None:
                    raise
                # Nobody named this place, and a store may lie where it can only be read.
                print(f"no figure: {problem}; choose another place for it with --figure")
            else:
                print(f"wrote {drawn}")


@dataclasses.dataclass(frozen=True)
class Verify:
    """Read a whole store back: checksums, missing blocks, finite entries and row sums.

    Attributes:
        store: Folder of the store.
    """

    store: Positional[Path]

    def run(self) -> None:
        """Prints the digest if all is well, else every problem, with exit code 2."""
        from rlreps.successor.store.estimates import open_estimates

        store = open_estimates(self.store)
        row_sum = store.matrix.settings.get("row_sum")
        reports = store.verify(row_sum)
        if problems := store.problems(reports):
            raise InputError("; ".join(problems))
        checked = "" if row_sum is None else f", rows sum to {row_sum:.6g}"
        blocks, digest = store.matrix.num_blocks, reports[-1].digest
        print(f"{store.matrix.path}: {blocks} blocks are whole{checked}; sha256 {digest}")


@dataclasses.dataclass(frozen=True)
class Compare:
    """Say how far the leading components of two stores are from each other.

    Attributes:
        store: Folder of a store.
        other: Folder of another over the same states.
        figure: Where to draw the distances beside both noise floors (.png, .svg or .pdf).
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    other: Positional[Path]
    figure: Path | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Prints the distances for every number of components."""
        from rlreps.cli.tables import print_by_dimension
        from rlreps.workflows.describe import compare_stores, draw_errors, shared_randomness

        distances = compare_stores(self.store, self.other, progress=not self.quiet)
        if shared := shared_randomness(self.store, self.other):
            print(f"note: {shared}")
        for name, values in distances.items():
            print(name)
            print_by_dimension(values)
        if self.figure is not None:
            print(f"wrote {draw_errors(distances, self.figure, y_label='subspace distance')}")


@dataclasses.dataclass(frozen=True)
class Successor:
    """Ground truth: generate, inspect, verify and compare successor measures."""

    command: (
        Annotated[Generate, subcommand("generate")]
        | Annotated[Info, subcommand("info")]
        | Annotated[Verify, subcommand("verify")]
        | Annotated[Compare, subcommand("compare")]
    )

    def run(self) -> None:
        """Runs the chosen command."""
        self.command.run()


@dataclasses.dataclass(frozen=True)
class Svd:
    """Compute the principal subspace of a store's centred matrix and keep it beside the matrix.

    Attributes:
        store: Folder of the store.
        config: How to compute it.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    config: SubspaceOptions = dataclasses.field(default_factory=SubspaceOptions)
    quiet: Switch = False

    def run(self) -> None:
        """Prints the spectrum."""
        from rlreps.runs.machine import peak_memory_mib
        from rlreps.runs.progress import progress_bar
        from rlreps.successor.ground_truth import principal_subspace
        from rlreps.successor.store import open_store

        principal = principal_subspace(
            open_store(self.store),
            self.config.build(),
            progress=functools.partial(progress_bar, show=not self.quiet),
        )
        energy = principal.energy_captured()
        print(f"total energy {principal.total_energy:.6g}")
        print("component  singular value  energy captured")
        for index, (value, share) in enumerate(
            zip(principal.singular_values, energy, strict=True), start=1
        ):
            print(f"{index:9d}  {value:14.6g}  {100 * share:14.2f} %")
        print(f"peak memory {peak_memory_mib()} MiB")


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


Command: TypeAlias = (
    Annotated[Quickstart, subcommand("quickstart")]
    | Annotated[Experiment, subcommand("experiment")]
    | Annotated[Successor, subcommand("successor")]
    | Annotated[Svd, subcommand("svd")]
    | Annotated[Train, subcommand("train")]
    | Annotated[TrainLive, subcommand("train-live")]
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Agent, subcommand("agent")]
    | Annotated[Plot, subcommand("plot")]
)
