"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def print_quickstart(summary: Mapping[str, Any]) -> None:
    """Prints a quickstart's summary: ground truth, every training run, the report's path."""
    truth = summary["ground_truth"]
    console = Console()
    console.print(
        f"Ground truth: {truth['transitions']:,} transitions in {truth['seconds']:.1f} s "
        f"({truth['transitions_per_second']:.3g} a second)"
    )
    table = Table(title="Learned subspaces against the ground truth", box=box.SIMPLE)
    for name in ("method", "recipe"):
        table.add_column(name, no_wrap=True)
    for name in ("d", "updates", "seconds", "subspace distance", "excess loss"):
        table.add_column(name, justify="right")
    for method, figures in summary["methods"].items():
        for run in figures["runs"]:
            table.add_row(
                method,
                run["recipe"],
                str(run["d"]),
                f"{run['steps']:,}",
                f"{run['seconds']:.1f}",
                *(_decimals(run[name]) for name in ("subspace_distance", "relative_excess_loss")),
            )
    console.print(table)
    # Plain print: a console would break a long path over lines.
    print(f"Report: {summary['report']}")


_ROWS = 20


def print_error_table(error: Mapping[str, Any]) -> None:
    """Prints how far the leading d components are from the truth for all d, and an entry."""
    print(f"{error['title']}: subspace distance of the leading d components from the truth")
    print_by_dimension(error["subspace_distance"])
    if error["standard_error"] is not None:
        print(
            f"standard error of an entry: {error['standard_error']:.3g} (root mean square over all)"
        )


def print_by_dimension(values: Sequence[float]) -> None:
    """Prints a figure for each d = 1 … k, down columns."""
    cells = [f"{d:4d} {value:9.3g}" for d, value in enumerate(values, start=1)]
    for row in range(min(_ROWS, len(cells))):
        print("   ".join(cells[row::_ROWS]))


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
