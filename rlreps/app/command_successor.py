"""The commands on ground truth: generate, inspect, verify, compare and decompose stores."""

from pathlib import Path
from typing import Any

from rlreps.app.options import Choice, Switch, print_json
from rlreps.errors import InputError
from rlreps.runs.processes import ProcessesConfig
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition, RandomizedSVD
from rlreps.successor.measure.methods import METHODS, MonteCarlo, SuccessorMeasure

DATA = Path("data")
RANDOMIZED, MONTE_CARLO = RandomizedSVD(), MonteCarlo()

CHOICES: dict[Any, Choice] = {
    Decomposition: Choice("method", DECOMPOSITIONS),
    SuccessorMeasure: Choice("method", METHODS),
}


def generate(
    processes: ProcessesConfig,
    measure: SuccessorMeasure = MONTE_CARLO,
    out: Path | None = None,
    repair: Switch = False,
) -> None:
    """Compute a successor measure; run again to resume.

    Args:
        measure: The successor measure.
        processes: The processes that compute it together, each started with the same command.
        out: Folder of the store; by default one under data/ named after the configuration.
        repair: Recompute damaged blocks instead of raising an error.
    """
    from rlreps.app.generate import generate

    path = out if out is not None else DATA / measure.store_name
    print_json(generate(measure, path, repair=repair))


def info(
    store: Path,
    figure: Path | None = None,
    json: Switch = False,
) -> None:
    """Describe what a store holds, how it was made and how far it is from the truth.

    Args:
        store: Folder of the store.
        figure: Where to draw the error (.png, .svg or .pdf); not drawn by default.
        json: Print everything as one JSON object and draw nothing.
    """
    from rlreps.app.stores import describe_store, print_error_table
    from rlreps.plotting import plot_subspace_error, require_figure, save_figure

    if figure is not None:
        require_figure(figure)
    description = describe_store(store)
    if json:
        print_json(description)
        return
    error = description.pop("error")
    print_json(description)
    if error is not None:
        print_error_table(error)
        if figure is not None:
            drawn = plot_subspace_error({error["title"]: error["subspace_distance"]})
            print(f"wrote {save_figure(drawn, figure)}")


def verify(store: Path) -> None:
    """Read a whole store back: checksums, missing blocks, finite entries and row sums.

    Args:
        store: Folder of the store.
    """
    from rlreps.successor.truth.store.estimates import open_estimates

    found = open_estimates(store)
    row_sum = found.matrix.settings.get("row_sum")
    if problems := found.verify(row_sum):
        raise InputError("; ".join(problem.text for problem in problems))
    checked = "" if row_sum is None else f", rows sum to {row_sum:.6g}"
    blocks, key = found.matrix.num_blocks, found.matrix.content_key()
    print(f"{found.matrix.path}: {blocks} blocks are whole{checked}; checksum {key}")


def compare(
    store: Path,
    other: Path,
    figure: Path | None = None,
) -> None:
    """Print the distances between the leading components of two stores.

    Args:
        store: Folder of a store.
        other: Folder of another over the same states.
        figure: Where to draw the distances beside both noise floors (.png, .svg or .pdf); not drawn
            by default.
    """
    from rlreps.app import stores as describe
    from rlreps.plotting import plot_subspace_error, require_figure, save_figure

    if figure is not None:
        require_figure(figure)
    distances = describe.compare_stores(store, other)
    if shared := describe.shared_randomness(store, other):
        print(f"note: {shared}")
    for name, values in distances.items():
        print(name)
        describe.print_by_dimension(values)
    if figure is not None:
        drawn = plot_subspace_error(distances, y_label="subspace distance")
        print(f"wrote {save_figure(drawn, figure)}")


def svd(
    store: Path,
    processes: ProcessesConfig,
    config: Decomposition = RANDOMIZED,
) -> None:
    """Compute the principal subspace of a store's centred matrix and keep it beside the matrix.

    Args:
        store: Folder of the store.
        config: How to compute it.
        processes: The processes that compute it together if the matrix is larger than memory, each
            started with the same command.
    """
    from rlreps.runs import processes as share
    from rlreps.runs.machine import peak_memory_mib
    from rlreps.runs.progress import progress_bar
    from rlreps.successor.truth.store import open_store
    from rlreps.successor.truth.stored_subspace import principal_subspace

    principal = principal_subspace(open_store(store), config, progress=progress_bar, share=share)
    print(f"total energy {principal.total_energy:.6g}")
    print("component  singular value  energy captured")
    pairs = zip(principal.singular_values, principal.energy_captured(), strict=True)
    for index, (value, part) in enumerate(pairs, start=1):
        print(f"{index:9d}  {value:14.6g}  {100 * part:14.2f} %")
    print(f"peak memory {peak_memory_mib()} MiB")
