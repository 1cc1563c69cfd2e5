"""Tables and report of the experiment on online principal components."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlreps.experiments.amid_warmuth_2020.online_pca.claims import Times, compare_with_paper
from rlreps.experiments.amid_warmuth_2020.online_pca.config import OnlinePcaConfig
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve
from rlreps.experiments.amid_warmuth_2020.online_pca.figures import (
    Against,
    draw_components,
    draw_excess,
    figure_groups,
    note,
)
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_report import EXPLICIT_START, write_pca_report
from rlreps.experiments.results import Claim, claims_table, mean_distance, write_results
from rlreps.report.page import Section, Table
from rlreps.runs.folder import RunFolder

_AGAINST: dict[Against, str] = {"rows_seen": "rows", "seconds": "seconds"}
"""What figures are drawn against, with the end of their names."""

_CAPTIONS: dict[tuple[str, Against], str] = {
    ("excess", "rows_seen"): "One row an update: excess loss against the rows that were seen",
    ("excess", "seconds"): "One row an update: excess loss against the time spent in updates",
    ("batches", "rows_seen"): "Several rows an update: excess loss against the rows that were seen",
    ("batches", "seconds"): "Several rows an update: excess loss against the time in updates",
}


def write_online_pca_report(
    config: OnlinePcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    curves: Sequence[ExcessCurve],
    times: Mapping[int, Times],
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary.

    Args:
        config: The experiment.
        problem: The rows.
        folder: The run.
        curves: For every contender and k.
        times: Of single updates, by k.
    """
    for name, group in figure_groups(curves).items():
        for against, end in _AGAINST.items():
            write_results(folder, f"{name}_by_{end}", *draw_excess(config, group, against))
    final = [_final(curve, problem) for curve in curves]
    write_results(folder, "final_excess", final)
    components = draw_components(config, problem, curves)
    if components is not None:
        write_results(folder, "components", *components)
    claims = compare_with_paper(config, curves, times)
    return write_pca_report(
        config,
        problem,
        folder,
        title="Online principal components",
        abstract=_abstract(config, problem, curves),
        sections=_sections(config, problem, folder, curves, claims, components is not None),
        claims=claims,
        found={
            "curves": final,
            "seconds_per_row": {
                str(k): {name: min(trials) for name, trials in found.items()}
                for k, found in times.items()
            },
        },
    )


def _final(curve: ExcessCurve, problem: PcaProblem) -> dict[str, object]:
    """Where a curve ends."""
    excess = mean_distance(curve.excess[:, -1])
    exact = problem.exact_loss(curve.k)
    return {
        "rule": curve.contender.name,
        "k": curve.k,
        "rows_per_update": curve.contender.rows_per_update,
        "power": curve.contender.power if curve.learning_rate is not None else None,
        "learning_rate": curve.learning_rate,
        "exact_loss": exact,
        "loss": exact * (1.0 + excess.mean / 100.0),
        "excess_percent": excess.mean,
        "excess_percent_low": excess.low,
        "excess_percent_high": excess.high,
        "rows_seen": int(curve.rows_seen[-1]),
        "seconds": float(curve.seconds[:, -1].mean()),
        "microseconds_per_row": 1e6 * curve.seconds_per_row,
        "repeats": len(curve.losses),
        "diverged": curve.diverged,
        "all_rates_diverged": curve.all_rates_diverged,
    }


def _sections(
    config: OnlinePcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    curves: Sequence[ExcessCurve],
    claims: Sequence[Claim],
    has_components: bool,
) -> list[Section]:
    rules = {contender.rule for contender in config.contenders}
    sections = [
        Section(
            title="What the paper states",
            text="Amid & Warmuth 2020, \"An Implicit Form of Krasulina's k-PCA Update without the "
            'Orthonormality Constraint". Their "Sanger" is the explicit Krasulina of this page; '
            "Sanger's own algorithm (1989) is called GHA. The four rules see one row an update "
            "here, as there. The library's Oja and Krasulina replace the QR decomposition by a "
            "closed form of the same result. Updates of one row by implicit Krasulina, by the "
            "closed forms of this run and by Oja with a QR decomposition are timed apart from the "
            "curves, in turns and over the same rows: the least of several trials is given, and "
            "what is told of them needs trials that do not overlap.\n\n"
            "The paper's curves were not at hand: the order of the rules is compared, no value of "
            "theirs is. It is told where the 95 % interval of the difference, of runs paired by "
            "their seeds, leaves out 0 and no run diverged.",
            tables=[claims_table(claims)],
        ),
        _curves_section(config, folder, curves),
        Section(
            title="Where every rule ends",
            text=_divergence(curves)
            + (f"\n\n{EXPLICIT_START}" if "explicit_krasulina" in rules else ""),
            tables=[_excess_table(config, problem, curves), _settings_table(config, curves)],
        ),
    ]
    if has_components:
        sections.append(_components_section(config, problem, folder))
    return sections


def _curves_section(
    config: OnlinePcaConfig, folder: RunFolder, curves: Sequence[ExcessCurve]
) -> Section:
    text = (
        "The loss is the mean of ||x - Px||² over all rows, with their mean removed; the excess "
        "is 100 (loss / exact loss - 1). Every run goes over the rows in an order of its own, "
        "which all rules share. η0 of η0 / t^γ was chosen by one pass over a random "
        f"{config.tuning_fraction:.0%} of the rows. Runs are timed one after another: seconds are "
        "those of one stream in its updates, without compilation and evaluation."
    )
    rules = {contender.rule for contender in config.contenders}
    if "capped_msg" in rules and "incremental_msg" not in rules:
        text += (
            "\n\nIncremental MSG without a cap takes an eigendecomposition of size features x "
            "features an update: the capped form stands for it here."
        )
    figures = [
        (
            folder.figures / f"{name}_by_{end}.png",
            f"{_CAPTIONS[name, against]}. Lines: {note(group)}.",
        )
        for name, group in figure_groups(curves).items()
        for against, end in _AGAINST.items()
    ]
    return Section(title="Excess loss", text=text, figures=figures)


def _divergence(curves: Sequence[ExcessCurve]) -> str:
    lost = [curve for curve in curves if curve.diverged]
    if not lost:
        return "No run diverged."
    found = "; ".join(f"{each.label}, k = {each.k}: {each.diverged}" for each in lost)
    return (
        "A run that diverged counts with the loss of no components at all, in means and curves "
        f"alike. Diverged runs: {found}."
    )


def _excess_table(
    config: OnlinePcaConfig, problem: PcaProblem, curves: Sequence[ExcessCurve]
) -> Table:
    exact = ("exact components: loss", *(f"{problem.exact_loss(k):.3f}" for k in config.components))
    rows: list[tuple[object, ...]] = [exact]
    for contender in config.contenders:
        own = {each.k: each for each in curves if each.contender == contender}
        cells = [_excess_cell(own[k]) for k in config.components]
        rows.append((own[config.components[0]].label, *cells))
    return Table(
        ("rule", *(f"k = {k}" for k in config.components)),
        rows,
        f"Percent excess loss at the end of {_passes(config)}: {note(curves)}.",
    )


def _excess_cell(curve: ExcessCurve) -> str:
    excess = mean_distance(curve.excess[:, -1])
    text = f"{excess.mean:.3g}"
    if excess.low == excess.low:  # NaN of a single run.
        text += f" [{excess.low:.3g}, {excess.high:.3g}]"
    return f"{text}, {curve.diverged} diverged" if curve.diverged else text


def _settings_table(config: OnlinePcaConfig, curves: Sequence[ExcessCurve]) -> Table:
    rows = []
    for contender in config.contenders:
        own = {each.k: each for each in curves if each.contender == contender}
        rates = [own[k].learning_rate for k in config.components]
        rows.append(
            (
                own[config.components[0]].label,
                contender.power if contender.learning_rates else None,
                *rates,
                *(f"{1e6 * own[k].seconds_per_row:.3g}" for k in config.components),
            )
        )
    return Table(
        (
            "rule",
            "γ",
            *(f"η0, k = {k}" for k in config.components),
            *(f"µs a row, k = {k}" for k in config.components),
        ),
        rows,
        "Power and chosen initial value of the learning rate η0 / t^γ, and the median time a row.",
    )


def _components_section(config: OnlinePcaConfig, problem: PcaProblem, folder: RunFolder) -> Section:
    channels = problem.image_shape is not None and len(problem.image_shape) == 3
    return Section(
        title="Components",
        figures=[
            (
                folder.figures / "components.png",
                f"The exact {config.shown_components} components above learned ones (first run), "
                "which are rotated within their span onto them; below each image, its |cosine| "
                "with the exact one."
                + (" Images have channels: the mean over them is shown." if channels else ""),
            )
        ],
    )


def _passes(config: OnlinePcaConfig) -> str:
    return "one pass" if config.passes == 1 else f"{config.passes} passes"


def _abstract(config: OnlinePcaConfig, problem: PcaProblem, curves: Sequence[ExcessCurve]) -> str:
    best = {
        k: min((each for each in curves if each.k == k), key=lambda each: each.excess[:, -1].mean())
        for k in config.components
    }
    found = "; ".join(
        f"k = {k}: {each.label}, {each.excess[:, -1].mean():.3g} %" for k, each in best.items()
    )
    return (
        f"{len(config.contenders)} streaming rules on {problem.name}, {_passes(config)}, "
        f"{config.repeats} runs each, against the exact components. Least excess loss at the end: "
        f"{found}."
    )
