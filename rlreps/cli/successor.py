"""The commands on ground truth: generate, inspect, verify, compare and decompose stores."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar

from tyro.conf import Positional

from rlreps.cli.options import Choice, Switch, print_json
from rlreps.errors import InputError
from rlreps.runs.processes import ProcessesConfig
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition, RandomizedSVD
from rlreps.successor.measure import METHODS, MonteCarlo, SuccessorMeasure

DATA = Path("data")

DECOMPOSITION_CHOICE: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generate:
    """Compute a successor measure; run again to resume.

    Attributes:
        measure: What to compute.
        processes: The processes that compute it together, each started with the same command.
        out: Folder of the store; by default one under data/ named after the configuration.
        repair: Compute damaged blocks again instead of refusing to go on.
        plan: Say what it would take in sizes, memory and roughly time, and do nothing.
        quiet: Show no progress bar.
    """

    measure: SuccessorMeasure = dataclasses.field(default_factory=MonteCarlo)
    processes: ProcessesConfig = dataclasses.field(default_factory=ProcessesConfig)
    out: Path | None = None
    repair: Switch = False
    plan: Switch = False
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = {SuccessorMeasure: Choice("method", METHODS)}

    def run(self) -> None:
        from rlreps.workflows.generate import generate

        out = self.out if self.out is not None else DATA / self.measure.store_name
        if self.plan:
            from rlreps.workflows.plan import plan_generation

            print_json(plan_generation(self.measure, out, self.processes.num_processes or 1))
            return
        figures = generate(
            self.measure,
            out,
            repair=self.repair,
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
        from rlreps.workflows.describe import describe_store, draw_errors, print_error_table

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
        from rlreps.successor.store.estimates import open_estimates

        store = open_estimates(self.store)
        row_sum = store.matrix.settings.get("row_sum")
        if problems := store.problems(store.verify(row_sum)):
            raise InputError("; ".join(problems))
        checked = "" if row_sum is None else f", rows sum to {row_sum:.6g}"
        blocks, key = store.matrix.num_blocks, store.matrix.content_key()
        print(f"{store.matrix.path}: {blocks} blocks are whole{checked}; checksum {key}")


@dataclasses.dataclass(frozen=True)
class Compare:
    """Say how far the leading components of two stores are from each other.

    Attributes:
        store: Folder of a store.
        other: Folder of another over the same states.
        figure: Where to draw the distances beside both noise floors (.png, .svg or .pdf); nowhere
            by default.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    other: Positional[Path]
    figure: Path | None = None
    quiet: Switch = False

    def run(self) -> None:
        from rlreps.workflows.describe import (
            compare_stores,
            draw_errors,
            print_by_dimension,
            shared_randomness,
        )

        distances = compare_stores(self.store, self.other, progress=not self.quiet)
        if shared := shared_randomness(self.store, self.other):
            print(f"note: {shared}")
        for name, values in distances.items():
            print(name)
            print_by_dimension(values)
        if self.figure is not None:
            print(f"wrote {draw_errors(distances, self.figure, y_label='subspace distance')}")


@dataclasses.dataclass(frozen=True)
class Svd:
    """Compute the principal subspace of a store's centred matrix and keep it beside the matrix.

    Attributes:
        store: Folder of the store.
        config: How to compute it.
        processes: The processes that compute it together if the matrix is larger than memory, each
            started with the same command.
        quiet: Show no progress bar.
    """

    store: Positional[Path]
    config: Decomposition = dataclasses.field(default_factory=RandomizedSVD)
    processes: ProcessesConfig = dataclasses.field(default_factory=ProcessesConfig)
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = DECOMPOSITION_CHOICE

    def run(self) -> None:
        from rlreps.runs import processes
        from rlreps.runs.machine import peak_memory_mib
        from rlreps.runs.progress import progress_bar
        from rlreps.successor.store import open_store
        from rlreps.successor.stored_subspace import principal_subspace

        principal = principal_subspace(
            open_store(self.store),
            self.config,
            progress=functools.partial(progress_bar, show=not self.quiet),
            share=processes,
        )
        energy = principal.energy_captured()
        print(f"total energy {principal.total_energy:.6g}")
        print("component  singular value  energy captured")
        for index, (value, share) in enumerate(
            zip(principal.singular_values, energy, strict=True), start=1
        ):
            print(f"{index:9d}  {value:14.6g}  {100 * share:14.2f} %")
        print(f"peak memory {peak_memory_mib()} MiB")
