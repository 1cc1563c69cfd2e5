"""Tables on the terminal."""

from collections.abc import Mapping
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


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
