"""Tables and figures of the benchmark."""

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.stats
from matplotlib.figure import Figure

from rlreps.experiments.components import aligned_maps
from rlreps.experiments.ours.benchmark_runs import KEYS, MEASURED, Config, released_rows
from rlreps.experiments.ours.chains import is_named
from rlreps.experiments.ours.contestants import CONTROLS, OF_PLANE
from rlreps.plotting import (
    MUTED,
    plain_log_ticks,
    plot_components,
    plot_slices,
    series_style,
    styled,
)
from rlreps.stats import Interval, mean_interval, samples_to_reach
from rlreps.study import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    Curve,
    Frame,
    Metric,
    Results,
    TableRows,
    in_path,
)

NEVER = "never"

DENSITY = Metric(
    value="density_distance",
    label="subspace distance to M̃ (0 equal, 1 orthogonal)",
    within=(0.0, 1.0),
    log=True,
)

FAMILIES = ("entries", "transitions", "futures", "futures, ordered")
"""Groups of rows with a figure each (``Row.family``)."""

ADVISED: Mapping[str, str] = {
    "counted model": "1",
    "explicit": "2",
    "large batch": "2",
    "Danskin in chunks": "2",
    "graph drawing": "3",
    "NestedLoRA": "3",
    "ALLO": "3, 4",
    "NestedLoRA, sequential": "4",
    "random cumulants by TD": "5",
}
"""Method → numbers of the advice of docs/results/benchmark.md that names it."""

_RANKED = {
    "subspace_distance": "distance from\nits own truth",
    "density_distance": "distance from M̃",
    "r2": "R² of values",
}
"""Measure → label of its panel in the ranking."""

_PICTURES = 4
"""Number of functions whose pictures are shown."""


def median_interval(values: npt.ArrayLike) -> Interval:
    """Compute the median of runs, which may be infinite, with its interval.

    The interval's ends are order statistics (``scipy.stats.quantile_test``), which assume no
    distribution; they are NaN for fewer than six runs. For an even number of runs the median is the
    greater of the middle two: their mean could be infinite.

    Args:
        values: [runs], such as times to reach something; infinity for a run that never does.
    """
    table = np.asarray(values, np.float64)
    ends: Any = scipy.stats.quantile_test(table).confidence_interval()
    return Interval(np.sort(table)[len(table) // 2], ends.low, ends.high)


def lines(results: Results[Config]) -> TableRows:
    """Tabulate every row at the end of training: means with intervals, or why it has none."""
    found, named = [], (*KEYS, "sees", "truth", "options")
    for values, group in results.ends.groups(*named).items():
        row: dict[str, object] = dict(zip(named, values, strict=True))
        for name in MEASURED:
            known = group[name][np.isfinite(group[name])]
            # No distance and no cosine is below 0; R² may be.
            least = -math.inf if name == "r2" else 0.0
            ends = np.clip(mean_interval(known), least, 1.0).tolist() if len(known) else [None] * 3
            row |= zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
        failed, without = str(group["failed"][0]), int(np.isnan(group["subspace_distance"]).sum())
        row["seconds"] = float(group["seconds"][0])
        row |= {"released": True} if group["released"][0] else {}
        row["diverged"] = None if failed else int(np.sum(group["diverged"]))
        notes = [failed] if failed else []
        if row["diverged"]:
            notes.append(f"{row['diverged']} of {len(group)} seeds diverged")
        if without and not failed:
            notes.append(f"no truth of its own for {without} of {len(group)} seeds")
        row["note"] = "; ".join(notes)
        found.append(row)
    return found


def by_world(results: Results[Config], value: str) -> TableRows:
    """Tabulate means at ``tuned_at`` by method (lines) and world (columns), the best first.

    Methods that lack a value in some world come last; methods without any value are left out.
    """
    config, found = results.config, dict[str, dict[str, Any]]()
    for row in results.once(lines):
        if row["d"] == config.tuned_at and row[value] is not None:
            line = {name: row[name] for name in ("method", "sees", "truth")}
            found.setdefault(str(row["method"]), line)[str(row["world"])] = row[value]

    def rank(line: Mapping[str, Any]) -> tuple[int, float]:
        mean = float(np.mean([line[world] for world in config.worlds if world in line]))
        return -len(line), mean if value.endswith("distance") else -mean

    return sorted(found.values(), key=rank)


def times(results: Results[Config]) -> TableRows:
    """Tabulate each row's cost of coming within each threshold: medians with intervals."""
    found, known = list[dict[str, object]](), {"subspace_distance": np.isfinite}
    for values, group in results.frame.where(**known).groups(*KEYS).items():
        curves, seeds, steps = group.pivot("subspace_distance", "seed", "step")
        # The same for all seeds.
        costs = group.where(seed=seeds[0])
        for threshold in results.config.thresholds:
            reached = samples_to_reach(steps, -curves, -threshold)
            row: dict[str, object] = dict(zip(KEYS, values, strict=True))
            row |= {"threshold": threshold, "never": int(np.isinf(reached).sum())}
            for name in ("step", "seconds", "environment_steps"):
                cost = dict(zip(steps, costs[name].tolist(), strict=True))
                cost[math.inf] = math.nan if math.isnan(costs[name][0]) else math.inf
                ends = median_interval([cost[step] for step in reached])
                for end, each in zip(("", "_low", "_high"), ends, strict=True):
                    unknown = math.isnan(each)
                    row[f"{name}{end}"] = None if unknown else NEVER if math.isinf(each) else each
            found.append(row)
    return found


def named(start: str, family: str) -> str:
    """Name a figure of a family."""
    return in_path(f"{start} {family}").replace("-", "_")


def curves(start: str, x: Axis, y: Metric = SUBSPACE_DISTANCE) -> list[Curve]:
    """Draw a distance at ``tuned_at`` where the distance is known and x is above 0.

    Each family has a figure of all worlds; only the figure against updates has controls.
    """
    beside = ", and controls" if x is STEP else ""

    def known(results: Results[Any], rows: Frame, *, family: str) -> Frame:
        every = (*results.config.rows, *released_rows(results.config))
        methods = [row.method for row in every if row.family == family]
        methods += [row.method for row in CONTROLS if methods]
        above: Any = {x.column: lambda each: each > 0, y.value: np.isfinite}
        return rows.where(d=results.config.tuned_at, method=methods, **above)

    return [
        Curve(
            name=named(start, family),
            caption=f"{y.label[0].upper()}{y.label[1:]}: objectives that see {family}{beside}, d = "
            "{config.tuned_at}; each against its own truth unless M̃ is named.",
            x=x,
            y=y,
            of=partial(known, family=family),
            panel="{world}",
        )
        for family in FAMILIES
    ]


def draw_components(results: Results[Config], family: str) -> tuple[None, Figure] | None:
    """Draw what the first seed learned in the first world at ``tuned_at``, beside M̃'s functions.

    Features are rotated within their span onto the functions. The functions are orthogonal without
    weights, since states are drawn uniformly.
    """
    config, arena = results.config, results.config.worlds[0]
    world, drawn = results.run.data[arena], {}
    grid, cells = world.world.places()
    for name, each in results.cells.items():
        features = results.found[name].get("features")
        if features and len(each.where(world=arena, d=config.tuned_at, family=family)):
            drawn[str(each["method"][0])] = jnp.asarray(features)
    if not drawn:
        return None
    behind = world.truth("M̃").behind_constant().first(config.tuned_at).functions
    exact = behind / np.linalg.norm(behind, axis=0)
    maps, cosines = aligned_maps(exact, drawn)
    shown: Any = {
        "components": {name: each[:, :_PICTURES] for name, each in {"M̃": exact, **maps}.items()},
        "grid": grid,
        "cells": cells,
        "cosines": {name: each[:_PICTURES] for name, each in cosines.items()},
    }
    if len(grid.bins) < 3:
        return None, plot_components(**shown)
    # Means over the other coordinates would hide what depends on them.
    return None, plot_slices(**shown, values=world.world.about.get("values"), most=1)


def about_worlds(results: Results[Config]) -> str:
    """Describe the named worlds among a run's worlds: what networks see, and which rows are out."""
    told = []
    for name in filter(is_named, results.config.worlds):
        chain, encoder = results.run.data[name], results.config.encoder.name
        states, *sees = chain.world.observations.shape
        told.append(
            f"{name} is a game of {states:,} states, which starts again after its end. All "
            f"objectives see {' x '.join(map(str, sees))} numbers through one encoder ({encoder}). "
            "Policies and rewards of values are smooth in the states' coordinates, or numbers "
            "without any. "
        )
        if not chain.in_plane:
            out = "; ".join(row.method for row in OF_PLANE)
            told.append(f"Left out, since agents do not see their place in a plane: {out}. ")
    return "".join(told)


@styled
def draw_ranking(results: Results[Config]) -> tuple[None, Figure]:
    """Draw the means of every method, in each world and over worlds, grouped by what methods see.

    In a group, the method with the least mean distance from its own truth comes first.
    """
    tables = {value: by_world(results, value) for value in _RANKED}
    groups: dict[str, list[str]] = {}
    for line in itertools.chain(*tables.values()):  # A method may lack a truth of its own.
        groups.setdefault(str(line["sees"]), []).append(str(line["method"]))
    names = [name for sees in groups for name in (f"sees {sees}:", *dict.fromkeys(groups[sees]))]
    texts = [f"{name} ({ADVISED[name]})" if name in ADVISED else name for name in names]
    figure = Figure(figsize=(8.2, 1.2 + 0.21 * len(names)))
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for axes, (value, table) in zip(panels, tables.items(), strict=True):
        heights = [names.index(str(line["method"])) for line in table]
        for index, world in enumerate(results.config.worlds):
            look = {**series_style(index), "linestyle": "none", "markersize": 4.5, "alpha": 0.85}
            found = [line.get(world, math.nan) for line in table]
            axes.plot(found, heights, label=world.replace("_", " "), **look)
        means = [
            np.mean([line[each] for each in results.config.worlds if each in line])
            for line in table
        ]
        axes.plot(
            means, heights, "|k", markersize=11, markeredgewidth=1.8, label="mean over worlds"
        )
        axes.set(xlabel=_RANKED[value], xscale="linear" if value == "r2" else "log")
        if value != "r2":
            plain_log_ticks(axes.xaxis)
        axes.grid(visible=True)
    panels[0].set_yticks(range(len(names)), texts)
    panels[0].set_ylim(len(names) - 0.4, -0.6)  # The first on top.
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name in ADVISED else "normal")
        if name.endswith(":"):
            label.set_color(MUTED)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(handles[0]))
    return None, figure
