"""Reports of runs of agents: learning curves, tables, a page."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps.agents.config import AgentConfig
from rlreps.app.job import Printed
from rlreps.errors import printable
from rlreps.formatting import format_number
from rlreps.plotting import Line, Panel, plot_panels, save_figure
from rlreps.plotting.lines import have_intervals
from rlreps.report.page import Page, Section
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.stats import FEWEST_BANDED, format_interval, interval_of
from rlreps.typing import DoubleArray

CURVES = "learning-curves.png"
MEASURES = {
    "returns": "return of an evaluation episode",
    "leading_distance": "distance to the ground truth's ten leading components",
    "subspace_distance": "subspace distance to as many as there are features",
    "effective_rank": "effective rank of the features",
    "dormant_share": "share of dormant units",
}
"""Measures in a run's metrics → descriptions for readers."""

OF_TORSOS = tuple(name for name in MEASURES if name != "returns")


def history(folder: RunFolder, name: str) -> tuple[DoubleArray, DoubleArray]:
    """Read steps [p] and a measure of every evaluation [seeds, p]; NaN if it was not measured."""
    records = folder.read_metrics()
    steps = np.asarray([record["step"] for record in records], np.float64)
    missing = [np.nan] * len(records[0]["returns"])
    return steps, np.asarray([record.get(name, missing) for record in records], np.float64).T


def learning_curves(folder: RunFolder) -> Figure:
    """Draw every agent and the interquartile mean, in a panel for each measure of evaluations."""
    known = folder.read_metrics()[-1]
    panels = []
    for name in (each for each in MEASURES if each in known):
        steps, values = history(folder, name)
        # A point without a value of some agent has no mean of all agents.
        whole = np.where(np.isfinite(values).all(axis=0), values, np.nan)
        line = Line.of_runs("one agent", steps, whole, middle=True)
        if len(values) > 1:
            label = f"interquartile mean ({len(values)} seeds)"
            line = dataclasses.replace(line, label=label, runs=values)
        panels.append(Panel(title=MEASURES[name], lines=[line]))
    return plot_panels(
        panels,
        x_label="environment steps of an agent",
        y_label="value",
        log_y=False,
        share_y=False,
        note="95 % interval" if have_intervals(panel.lines[0] for panel in panels) else None,
    )


def page_of_agents(folder: RunFolder, config: AgentConfig, summary: Mapping[str, Any]) -> Page:
    """Draw the learning curves of a finished run, and make its page."""
    curves = save_figure(learning_curves(folder), folder.figures / CURVES)
    text = f"{_described(summary)}; {'; '.join(_interquartile_means(summary))}."
    if summary["auxiliary"] is not None:
        text += f" The weight of the auxiliary task is {config.auxiliary.weight:g}."
    return Page(
        title=f"Agents in {config.environment}",
        summary=text,
        sections=[
            Section(
                title="Learning",
                text="Returns are undiscounted means over greedy episodes outside training.",
                tables=[_agents_table(summary, config.seed)],
                figures=[(curves, "Every figure of the run's evaluations, over training.")],
            )
        ],
    )


def lines_of_agents(summary: Mapping[str, Any], first_seed: int) -> Iterator[Printed]:
    """Yield what is printed of a run of agents: every agent, and their aggregates."""
    yield printable(_described(summary))
    yield _agents_table(summary, first_seed)
    yield from _interquartile_means(summary)


def _described(summary: Mapping[str, Any]) -> str:
    auxiliary, speed = summary["auxiliary"], summary["steps_per_second"]
    rate = "" if speed is None else f" ({format_number(speed)} a second between evaluations)"
    return (
        f"{summary['environment']}, auxiliary task {auxiliary or 'none'}: "
        f"{summary['agents']} x {summary['steps']:,} steps in {summary['seconds']:.1f} s with "
        f"compilation{rate}"
    )


def _agents_table(summary: Mapping[str, Any], first_seed: int) -> Table:
    measures = [name for name in OF_TORSOS if name in summary]
    columns = ("final_returns", *measures)
    agents = zip(*(summary[name] for name in columns), strict=True)
    header = ("seed", "return", *(name.replace("_", " ") for name in measures))
    rows = [(seed, *row) for seed, row in enumerate(agents, start=first_seed)]
    return Table(header, rows, "Agents at the end of training")


def _interquartile_means(summary: Mapping[str, Any]) -> Iterator[str]:
    parts = (
        ("final_return", "last evaluation"),
        ("mean_return", "evaluations after the first update"),
    )
    for name, title in parts:
        found = interval_of(summary[name], "interquartile_mean")
        few = summary[name]["runs"] < FEWEST_BANDED
        said = format_number(found.value) if few else format_interval(found)
        yield f"interquartile mean of returns, {title}: {said}"
