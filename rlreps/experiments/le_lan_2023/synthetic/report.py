"""Figures, tables and report of the synthetic experiment."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlreps.experiments.le_lan_2023.synthetic.claims import compare_with_paper
from rlreps.experiments.le_lan_2023.synthetic.config import (
    PRESETS,
    ROLES,
    Setting,
    SyntheticConfig,
)
from rlreps.experiments.le_lan_2023.synthetic.figures import Results, draw_figures, interval_note
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.method_names import method_name
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate


def write_synthetic_report(
    config: SyntheticConfig, folder: RunFolder, results: Results, seconds: float
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary."""
    figures = draw_figures(config, results)
    settings = {
        "distance_by_dimension": _panel_settings(config, "panel_dimensions"),
        "distance_by_total": _panel_settings(config, "panel_rows"),
        "final_distance_by_method": _panel_settings(config, "panel_methods"),
        "final_distance_by_kappa": _panel_settings(config, "panel_kappa"),
    }
    for name, figure in figures.items():
        rows = [row for each in settings[name] for row in _rows(each, results, name)]
        write_results(folder, name, rows, figure)
    claims = compare_with_paper(config, results)
    updates = len(results) * config.num_seeds * config.steps
    summary = {
        "settings": [_final(setting, results) for setting in results],
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "diverged": int(sum(result.diverged.sum() for result in results.values())),
        "runs": len(results) * config.num_seeds,
        "member_updates": updates,
        "seconds": round(seconds, 3),
        "member_updates_per_second": round(updates / max(seconds, 1e-9)),
        "report": str(folder.path / "report.html"),
    }
    _write_page(config, folder, results, claims, summary)
    return summary


def _panel_settings(config: SyntheticConfig, panel: str) -> list[Setting]:
    """Settings of a panel under every spectrum, in order."""
    found: list[Setting] = []
    for spectrum in config.spectra:
        found += _leaves(getattr(config, panel)(spectrum))
    return found


def _leaves(panel: Any) -> Iterator[Setting]:
    if isinstance(panel, Setting):
        yield panel
    else:
        for part in panel.values():
            yield from _leaves(part)


def _describe(setting: Setting) -> dict[str, Any]:
    total = ROLES[setting.method] * setting.rows
    return {**setting._asdict(), "total_rows": total}


def _final(setting: Setting, results: Results) -> dict[str, Any]:
    """A setting's last distances in aggregate."""
    result = results[setting]
    return {
        **_describe(setting),
        "step": int(result.steps[-1]),
        "diverged": int(result.diverged.sum()),
        **aggregate(result.distances[:, -1]),
    }


def _rows(setting: Setting, results: Results, figure: str) -> list[dict[str, Any]]:
    """The numbers that a figure shows of a setting: its curve, or its end."""
    if figure.startswith("final"):
        return [_final(setting, results)]
    result = results[setting]
    curve = aggregate(result.distances)
    return [
        {
            **_describe(setting),
            "step": int(step),
            "runs": curve["runs"],
            **{name: float(part[index]) for name, part in curve.items() if name != "runs"},
        }
        for index, step in enumerate(result.steps)
    ]


def _write_page(
    config: SyntheticConfig,
    folder: RunFolder,
    results: Results,
    claims: list[Claim],
    summary: Mapping[str, Any],
) -> None:
    captions: dict[str, tuple[str, str]] = {
        "distance_by_dimension": (
            "(a) Distance during training, by d",
            f"Danskin-LISSA with J = M = N = {config.rows}.",
        ),
        "distance_by_total": (
            "(b) Distance during training, by rows an update",
            f"Danskin-LISSA at d = {config.dimension}; J = M = N is a fifth of the total. "
            "Gradients are summed over the N rows, so that more rows are longer steps too.",
        ),
        "final_distance_by_method": (
            "(c) Final distance by method",
            f"d = {config.dimension}, after {config.steps:,} updates, against the rows of an "
            "update over all roles. The oracle takes its gradient at as many rows as Danskin-LISSA "
            "and is given the exact weights. Gradients are summed over the N rows: naive, with "
            "three roles, takes steps 5/3 as long at equal L.",
        ),
        "final_distance_by_kappa": (
            "(d) Final distance by κ0",
            f"Danskin-LISSA with J = M = N = {config.rows} after {config.steps:,} updates.",
        ),
    }
    sections = [Section(title="Against the paper", tables=[claims_table(claims)])]
    for name, (title, caption) in captions.items():
        sections.append(
            Section(
                title=title,
                figures=[(folder.figures / f"{name}.png", f"{caption} {interval_note(config)}.")],
                tables=[_diverged_table(config, name, results)] if name[:5] == "final" else [],
            )
        )
    write_report(
        Path(summary["report"]),
        title="Synthetic matrices with known spectra",
        summary=_abstract(config, summary),
        sections=sections,
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )


def _diverged_table(config: SyntheticConfig, name: str, results: Results) -> Table:
    panel = "panel_methods" if name == "final_distance_by_method" else "panel_kappa"
    header = (
        "spectrum",
        "method",
        "d",
        "rows",
        "κ0",
        "distance",
        "low",
        "high",
        "middle half",
        "diverged",
    )
    rows = []
    for setting in _panel_settings(config, panel):
        end = _final(setting, results)
        rows.append(
            (
                setting.spectrum,
                method_name(setting.method),
                setting.num_features,
                end["total_rows"],
                setting.kappa0,
                end["mean"],
                end["mean_low"],
                end["mean_high"],
                end["interquartile_mean"],
                f"{end['diverged']} of {end['runs']}",
            )
        )
    return Table(
        header,
        rows,
        "Mean final distance with its 95 % bootstrap interval, and the interquartile mean.",
    )


def _abstract(config: SyntheticConfig, summary: Mapping[str, Any]) -> str:
    published = PRESETS["paper"]
    fewer = (
        f" The paper takes {published.steps:,} updates of {published.num_seeds} runs."
        if (config.steps, config.num_seeds) < (published.steps, published.num_seeds)
        else ""
    )
    return (
        f"{config.num_states} x {config.num_states} Gaussian matrices with their singular values "
        f"replaced; tabular features from a standard normal; stochastic gradient descent with step "
        f"size {config.step_size:g} on summed gradients, one task an update, {config.steps:,} "
        f"updates of {config.num_seeds} runs of each setting.{fewer} {summary['runs']:,} runs in "
        f"{summary['seconds']:,.0f} s of training, {summary['member_updates_per_second']:,} "
        f"updates a second; {summary['diverged']} runs became infinite, count as distance 1 and "
        "are listed."
    )
