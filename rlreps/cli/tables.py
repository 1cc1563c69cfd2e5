"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from rlreps.report.table import format_number
from rlreps.workflows.sweep import as_text, flag_of


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


def print_sweep(summary: Mapping[str, Any]) -> None:
    """Prints a sweep's summary: every point of its grid with intervals, and the report's path."""
    table = Table(title="Final distances, with 95 % intervals over runs", box=box.SIMPLE)
    for field in summary["fields"]:
        table.add_column(flag_of(field), justify="right")
    for name in ("runs", "diverged", *_SWEEP_FIGURES, "group", "group's seconds"):
        table.add_column(name, justify="right")
    for point in summary["points"]:
        table.add_row(
            *(as_text(point[field]) for field in summary["fields"]),
            str(point["runs"]),
            str(point["diverged"]),
            *(_with_interval(point, name) for name in _SWEEP_FIGURES.values()),
            str(point["group"]),
            f"{point['seconds']:.1f}",
        )
    console = Console()
    if not console.is_terminal:
        # A file has no edge to break lines at.
        everything = console.options.update(max_width=10_000)
        console.width = max(console.width, Measurement.get(console, everything, table).maximum)
    console.print(table)
    print(f"Report: {summary['report']}")


def print_agents(summary: Mapping[str, Any], first_seed: int) -> None:
    """Prints a run of agents: what was run, every agent, and what they come to together."""
    auxiliary = summary["auxiliary"]
    print(
        f"{summary['environment']}, auxiliary task {auxiliary or 'none'}: "
        f"{summary['agents']} x {summary['steps']:,} steps in {summary['seconds']:.1f} s "
        f"({format_number(summary['steps_per_second'])} a second)"
    )
    measures = [name for name in _AGENT_MEASURES if name in summary]
    table = Table(title="Agents at the end of training", box=box.SIMPLE)
    for name in ("seed", "return", *(name.replace("_", " ") for name in measures)):
        table.add_column(name, justify="right")
    rows = zip(summary["final_returns"], *(summary[name] for name in measures), strict=True)
    for seed, row in enumerate(rows, start=first_seed):
        table.add_row(str(seed), *map(format_number, row))
    Console().print(table)
    for name, title in (("final_return", "last evaluation"), ("mean_return", "all evaluations")):
        found = summary[name]
        low, high = (found[f"interquartile_mean_{end}"] for end in ("low", "high"))
        ends = "" if low is None else f" [{format_number(low)}, {format_number(high)}]"
        centre = format_number(found["interquartile_mean"])
        print(f"interquartile mean of returns, {title}: {centre}{ends}")


_AGENT_MEASURES = ("subspace_distance", "effective_rank", "dormant_share", "probe_error")

_SWEEP_FIGURES = {
    "mean distance": "subspace_distance_mean",
    "interquartile mean": "subspace_distance_interquartile_mean",
    "excess loss": "excess_loss_mean",
}


def _with_interval(point: Mapping[str, Any], name: str) -> str:
    low, high = point[f"{name}_low"], point[f"{name}_high"]
    interval = "" if low is None else f" [{low:.4f}, {high:.4f}]"
    return f"{_decimals(point[name])}{interval}"


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
