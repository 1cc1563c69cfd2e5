"""Tables on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlreps.report.table import Table, format_number
from rlreps.workflows.sweep import as_text, flag_of


def print_sweep(summary: Mapping[str, Any]) -> None:
    """Print a sweep's summary: every point of its grid with intervals, and the report's path."""
    rows = [
        (
            *(as_text(point[field]) for field in summary["fields"]),
            *(point["runs"], point["diverged"]),
            *(with_interval(point, name) for name in _SWEEP_FIGURES.values()),
            *(point["group"], point["seconds"]),
        )
        for point in summary["points"]
    ]
    fields = [flag_of(field) for field in summary["fields"]]
    header = (*fields, "runs", "diverged", *_SWEEP_FIGURES, "group", "group's seconds")
    Table(header, rows, "Final distances, with 95 % intervals over runs").print()
    print(f"Report: {summary['report']}")


def print_agents(summary: Mapping[str, Any], first_seed: int) -> None:
    """Print a run of agents: what was run, every agent, and what they come to together."""
    auxiliary = summary["auxiliary"]
    print(
        f"{summary['environment']}, auxiliary task {auxiliary or 'none'}: "
        f"{summary['agents']} x {summary['steps']:,} steps in {summary['seconds']:.1f} s "
        f"({format_number(summary['steps_per_second'])} a second)"
    )
    measures = [name for name in _AGENT_MEASURES if name in summary]
    agents = zip(summary["final_returns"], *(summary[name] for name in measures), strict=True)
    header = ("seed", "return", *(name.replace("_", " ") for name in measures))
    rows = [(seed, *row) for seed, row in enumerate(agents, start=first_seed)]
    Table(header, rows, "Agents at the end of training").print()
    for name, title in (("final_return", "last evaluation"), ("mean_return", "all evaluations")):
        found = with_interval(summary[name], "interquartile_mean")
        print(f"interquartile mean of returns, {title}: {found}")


_AGENT_MEASURES = ("subspace_distance", "effective_rank", "dormant_share", "probe_error")

_SWEEP_FIGURES = {
    "mean distance": "subspace_distance_mean",
    "interquartile mean": "subspace_distance_interquartile_mean",
    "excess loss": "excess_loss_mean",
}


def with_interval(figures: Mapping[str, Any], name: str) -> str:
    """Write a figure with the interval that ``<name>_low`` and ``<name>_high`` hold, if any."""
    value, low, high = (format_number(figures[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return value if figures[f"{name}_low"] is None else f"{value} [{low}, {high}]"


_ROWS = 20


def print_error_table(error: Mapping[str, Any]) -> None:
    """Print how far the leading d components are from the truth for all d, and an entry."""
    print(f"{error['title']}: subspace distance of the leading d components from the truth")
    print_by_dimension(error["subspace_distance"])
    if error["standard_error"] is not None:
        print(
            f"standard error of an entry: {error['standard_error']:.3g} (root mean square over all)"
        )


def print_by_dimension(values: Sequence[float]) -> None:
    """Print a figure for each d = 1 … k, down columns."""
    cells = [f"{d:4d} {value:9.3g}" for d, value in enumerate(values, start=1)]
    for row in range(min(_ROWS, len(cells))):
        print("   ".join(cells[row::_ROWS]))
