"""Streaming rules against exact components: excess loss over rows and over time (Figure 1)."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from rlreps.errors import require, require_positive
from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.harness import Experiment, Findings, Found, Run, aligned, all_hold, table_of
from rlreps.plotting.lines import Line, Panel, over_runs, plot_panels
from rlreps.plotting.maps import plot_signed_images
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import Interval, mean_interval
from rlreps.sources.datasets import load_observations
from rlreps.streaming import RULES, run_passes

Against = Literal["rows_seen", "seconds"]
Times = Mapping[str, Sequence[float]]
"""Rule → seconds a row in each trial."""

ORTHONORMAL = ("oja", "krasulina", "incremental_pca")
"""Rules of the paper that implicit Krasulina is to be faster than."""

_LEAST_POINTS = 10
"""Of a curve, where the rows are fewer than so many intervals."""
_TIMED_ROWS = 1000
_TRIALS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """The paper's protocol by default: five rules, one pass, one row at a time.

    Attributes:
        evaluate_every: Rows between points of a curve, or a tenth of all rows where that is less;
            whole updates. Rows that do not fill the last interval are left out.
        shown: Contenders whose components are drawn beside the exact ones.
        shown_components: k of that figure, one of ``components``.
    """

    contenders: tuple[pca.Contender, ...] = pca.published(1e-4)
    components: tuple[int, ...] = (5, 10, 20, 50)
    evaluate_every: int = 5000
    shown: tuple[str, ...] = ("implicit_krasulina", "oja")
    shown_components: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("evaluate_every", self.evaluate_every)
        require(
            self.shown_components in self.components,
            f"shown_components among components {self.components}",
            self.shown_components,
        )

    def interval(self, contender: pca.Contender, count: int) -> int:
        """Return the rows between evaluations, whole updates, of ``count`` rows in all."""
        asked, rows = min(self.evaluate_every, count // _LEAST_POINTS), contender.rows_per_update
        return max(asked - asked % rows, rows)


# γ of what the paper has not is chosen with η0. The generalised Hebbian algorithm diverges at every
# rate of the authors' grid.
_POWERS = (0.2, 0.5, 0.8)
_OTHERS = (
    pca.Contender(
        rule="sanger", powers=_POWERS, learning_rates=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    ),
    pca.Contender(rule="implicit_krasulina", rows_per_update=100),
    pca.Contender(rule="incremental_pca", rows_per_update=100, powers=(), learning_rates=()),
    pca.Contender(rule="capped_msg", rows_per_update=100, powers=_POWERS),
    pca.Contender(rule="eigengame", rows_per_update=256, powers=_POWERS),
    pca.Contender(rule="mu_eigengame", rows_per_update=256, powers=_POWERS),
)

PRESETS = {
    "smoke": Config(
        contenders=(
            pca.Contender(rule="implicit_krasulina", learning_rates=(1.0, 10.0)),
            pca.Contender(rule="oja", powers=(0.9,), learning_rates=(0.1, 1.0)),
            pca.Contender(rule="incremental_pca", rows_per_update=20, powers=(), learning_rates=()),
        ),
        components=(2, 4),
        repeats=2,
        shown_components=4,
    ),
    # Incremental PCA takes O(k² · features) a row.
    "laptop": Config(
        contenders=(
            *(each for each in Config().contenders if each.rule != "incremental_pca"),
            pca.OUR_SANGER,
            *_OTHERS,
        ),
        repeats=3,
    ),
    "paper": Config(),
}


def measure(run: Run[Config], name: str, cell: tuple[pca.Contender, int]) -> dict[str, Any]:
    """Choose γ and η0 and stream every repeat, one after another: each has the device to itself."""
    config, problem, (contender, k) = run.config, run.data, cell
    tuned = pca.choose_rates(config, contender, k, problem, run.devices)
    streams = [
        contender.stream(
            run_passes,
            problem.rows,
            [seed],
            [tuned["learning_rate"]],
            tuned["power"],
            k,
            evaluate=problem.loss,
            evaluate_every=config.interval(contender, len(problem.rows)),
            devices=run.devices and run.devices[:1],
        )
        for seed in config.seeds
    ]
    part = {
        **tuned,
        "rows_seen": streams[0].rows_seen.tolist(),
        "seconds": [stream.seconds.tolist() for stream in streams],
        "losses": [stream.figures[:, 0].tolist() for stream in streams],
    }
    if contender.name in config.shown and k == config.shown_components:
        part["components"] = streams[0].components[0].tolist()
    return part


def diverged(result: pca.Result) -> int:
    """Count repeats that ended with numbers that are not finite."""
    return int(np.count_nonzero(~np.isfinite(result.losses()[:, -1])))


def excess_of(result: pca.Result) -> pca.DoubleArray:
    """Return the percent excess loss of each repeat at each point, [repeats, points]."""
    return result.excess(result.losses())


def seconds_per_row(
    problem: pca.PcaProblem,
    k: int,
    results: Sequence[pca.Result],
    devices: Sequence[jax.Device] | None,
) -> dict[str, list[float]]:
    """Time a row of each of the paper's rules in float32, in turns.

    All go over the same rows, one an update, in a single dispatch.

    Returns:
        Rule → seconds a row, one number for each trial.
    """
    timed = {}
    with jax.default_device(None if devices is None else devices[0]):
        rows, key = jnp.asarray(problem.rows[:_TIMED_ROWS]), jax.random.key(0)
        for each in (one for one in results if one.k == k and one.contender.published):
            rates = each.rates
            build = each.contender.build(rows.shape[1], k, rates["power"] or 0.0)
            rule = build(jnp.asarray(rates["learning_rate"] or 1.0, jnp.float32))
            update_each = jax.jit(rule.update_each)
            # A factor's first updates are anchored one by one, which later ones are not.
            state = jax.block_until_ready(update_each(rule.init(key), rows))
            timed[each.contender.rule] = (update_each, state)
        trials: dict[str, list[float]] = {name: [] for name in timed}
        # In turns, so that what slows the machine meets them all.
        for _ in range(_TRIALS):
            for name, (update_each, state) in timed.items():
                began = time.perf_counter()
                jax.block_until_ready(update_each(state, rows))
                trials[name].append((time.perf_counter() - began) / len(rows))
    return trials


def ratio(times: Times, rule: str) -> Interval:
    """Compute a rule's time over implicit Krasulina's, of least times; its ends over all trials."""
    mine, other = times[pca.IMPLICIT], times[rule]
    return Interval(min(other) / min(mine), min(other) / max(mine), max(other) / min(mine))


def most_hold(verdicts: Sequence[bool | None]) -> bool | None:
    """Combine verdicts: True if more than half are, False if that is ruled out, else None."""
    if 2 * verdicts.count(True) > len(verdicts):
        return True
    return False if 2 * verdicts.count(False) >= len(verdicts) else None


def compare_with_paper(
    config: Config, results: Sequence[pca.Result], times: Mapping[int, Times]
) -> list[Found]:
    """Found for each k implicit Krasulina's excess after one pass; then its times and their trend.

    A claim that a preset has not all rules for cannot be told.
    """
    follows = config.follows(PRESETS["paper"], results[0].problem)

    def entry(result: pca.Result) -> pca.Entry:
        text = f"{excess_of(result)[:, -1].mean():.3g} %"
        return pca.Entry(result.label, result.losses()[:, -1], text)

    about = "Fig. 1: excess loss after one pass"
    claims = pca.least_claims(results, entry, about, follows)
    timed = {k: times[k] for k in config.components if {pca.IMPLICIT, *ORTHONORMAL} <= {*times[k]}}
    ratios = {
        k: {rule: ratio(trials, rule) for rule in (*ORTHONORMAL, pca.SANGER) if rule in trials}
        for k, trials in timed.items()
    }
    one = Interval(1.0, 1.0, 1.0)
    if ratios:
        faster = [one.below(found[rule]) for found in ratios.values() for rule in ORTHONORMAL]
        texts = []
        for k, found in ratios.items():
            parts = (f"{RULES[rule].title} {each.value:.2g} times" for rule, each in found.items())
            mine = 1e6 * min(timed[k][pca.IMPLICIT])
            texts.append(f"k = {k}: {mine:.3g} µs; {', '.join(parts)}")
        claims.append(
            Found(
                statement="Fig. 1: time of a row",
                stated="less than Oja's, Krasulina's and incremental PCA's in most cases",
                found=f"less in {faster.count(True)} of {len(faster)} cases, more in "
                f"{faster.count(False)}. {'. '.join(texts)}",
                holds=most_hold(faster) if follows else None,
            )
        )
    if len(ratios) > 1:
        least, most = min(ratios), max(ratios)
        grows = {rule: ratios[least][rule].below(ratios[most][rule]) for rule in ORTHONORMAL}
        claims.append(
            Found(
                statement=f"Fig. 1: advantage in time from k = {least} to k = {most}",
                stated="grows with k",
                found=", ".join(
                    f"{RULES[rule].title} {ratios[least][rule].value:.2g} to "
                    f"{ratios[most][rule].value:.2g} times"
                    for rule in ORTHONORMAL
                ),
                holds=all_hold(grows.values()) if follows else None,
            )
        )
    return claims


def figure_groups(curves: Sequence[pca.Result]) -> dict[str, list[pca.Result]]:
    """Group the curves of each figure by the beginning of its name.

    ``excess`` has the rules that see one row an update, as the paper's figures have; ``batches``
    the others, beside implicit Krasulina on single rows.
    """
    singles = [each for each in curves if each.contender.rows_per_update == 1]
    batches = [each for each in curves if each.contender.rows_per_update > 1]
    reference = [each for each in singles if each.contender.rule == pca.IMPLICIT]
    groups = {"excess": singles, "batches": [*reference, *batches] if batches else []}
    return {name: group for name, group in groups.items() if group}


def describe_lines(curves: Sequence[pca.Result]) -> str:
    """Say what lines and bands are, and what stands in brackets."""
    repeats = len(curves[0].losses())
    text = over_runs(repeats, "run")
    if any(curve.contender.rows_per_update > 1 for curve in curves):
        text += "; in brackets: rows of an update, where more than one"
    return text


def draw_excess(
    config: Config, curves: Sequence[pca.Result], against: Against
) -> tuple[list[dict[str, object]], Figure]:
    """Draw percent excess loss, a panel for each k, on logarithmic axes, with its numbers."""
    rows: list[dict[str, object]] = []
    panels = []
    for k in config.components:
        lines: list[Line] = []
        for curve in (each for each in curves if each.k == k):
            # The start is left out: no row and no time is behind it.
            seconds = np.mean(curve.part["seconds"], axis=0)
            x = curve.rows_seen if against == "rows_seen" else seconds
            line = Line.of_runs(curve.label, x[1:], excess_of(curve)[:, 1:])
            lines.append(line)
            points = {
                against: line.x,
                "excess_percent": line.mean,
                "excess_percent_low": line.low,
                "excess_percent_high": line.high,
            }
            rows += [
                {"rule": curve.contender.name, "k": k, **dict(zip(points, values, strict=True))}
                for values in zip(*map(np.asarray, points.values()), strict=True)
            ]
        panels.append(Panel(title=f"k = {k}", lines=lines))
    return rows, plot_panels(
        panels,
        x_label="rows seen" if against == "rows_seen" else "seconds in updates",
        y_label="excess loss over the exact components (%)",
        log_x=True,
        note=describe_lines(curves),
    )


def draw_components(
    config: Config, problem: pca.PcaProblem, curves: Sequence[pca.Result]
) -> tuple[list[dict[str, object]], Figure] | None:
    """Draw exact components above learned ones, which are rotated in their span onto them.

    Returns:
        |cosines| and the figure; None where rows are not images or nothing is to be shown. Of
        images with channels, the mean over channels is drawn.
    """
    shown = {
        curve.contender: np.nan_to_num(np.asarray(curve.part["components"], np.float64))
        for curve in curves
        if "components" in curve.part
    }
    shape = problem.image_shape
    if shape is None or len(shape) not in (2, 3) or not shown:
        return None
    exact = problem.basis[:, : config.shown_components]
    maps, cosines = aligned(exact, {each.label: learned for each, learned in shown.items()})
    rows: list[dict[str, object]] = [
        {"rule": contender.name, "component": component, "cosine": cosine}
        for contender in shown
        for component, cosine in enumerate(cosines[contender.label].tolist(), start=1)
    ]
    images = {}
    for label, basis in {"exact": exact, **maps}.items():
        each = basis.T.reshape(-1, *shape)
        images[label] = each if len(shape) == 2 else each.mean(axis=-1)
    titles = [str(number) for number in range(1, config.shown_components + 1)]
    return rows, plot_signed_images(images, titles=titles, cosines=cosines)


def final_row(curve: pca.Result, problem: pca.PcaProblem) -> dict[str, object]:
    """Tabulate where a curve ends."""
    found = mean_interval(excess_of(curve)[:, -1])
    exact, seconds = problem.exact_loss(curve.k), np.asarray(curve.part["seconds"])[:, -1]
    return {
        "rule": curve.contender.name,
        "k": curve.k,
        **curve.rates,
        "exact_loss": exact,
        "loss": exact * (1.0 + found.value / 100.0),
        "excess_percent": found.value,
        "excess_percent_low": found.low,
        "excess_percent_high": found.high,
        "rows_seen": int(curve.rows_seen[-1]),
        "seconds": float(seconds.mean()),
        "microseconds_per_row": 1e6 * float(np.median(seconds) / curve.rows_seen[-1]),
        "diverged": diverged(curve),
        "all_rates_diverged": bool(curve.part["all_diverged"]),
    }


def excess_cell(row: Mapping[str, Any]) -> str:
    """Write where a curve ends, for the report's table."""
    text = f"{row['excess_percent']:.3g}"
    if math.isfinite(row["excess_percent_low"]):  # NaN of a single run.
        text += f" [{row['excess_percent_low']:.3g}, {row['excess_percent_high']:.3g}]"
    return f"{text}, {row['diverged']} diverged" if row["diverged"] else text


def end_tables(config: Config, final: Sequence[Mapping[str, Any]], lines: str) -> list[Table]:
    """Tabulate final excess, a line for each contender, and settings and times."""
    found = {(row["rule"], row["k"]): row for row in final}
    ends = [
        (each.label, *(excess_cell(found[each.name, k]) for k in config.components))
        for each in config.contenders
    ]
    return [
        Table(
            ("rule", *(f"k = {k}" for k in config.components)),
            ends,
            f"Percent excess loss at the end of one pass: {lines}.",
        ),
        table_of(
            final,
            {
                **{"rule": "rule", "k": "k", "exact loss": "exact_loss", "γ": "power"},
                **{"η0": "learning_rate", "µs a row": "microseconds_per_row"},
            },
            "The learning rate η0 / t^γ that was chosen, and the median time a row.",
        ),
    ]


def report(run: Run[Config], found: Mapping[str, Mapping[str, Any]]) -> Findings:
    """Make the findings of all contenders and k."""
    config, problem = run.config, run.data
    curves = pca.Result.of_run(run, found)
    times = {
        k: run.folder.part(f"times-k{k}", partial(seconds_per_row, problem, k, curves, run.devices))
        for k in config.components
    }
    final = [final_row(curve, problem) for curve in curves]
    run.write_rows("final_excess", final)
    rules = {contender.rule for contender in config.contenders}
    opening = {"excess": "One row an update", "batches": "Several rows an update"}
    axes: dict[Against, tuple[str, str]] = {
        "rows_seen": ("rows", "the rows that were seen"),
        "seconds": ("seconds", "the time spent in updates"),
    }
    figures = [
        run.show(
            f"{name}_by_{end}",
            f"{opening[name]}: excess loss against {words}. Lines: {describe_lines(group)}.",
            *draw_excess(config, group, against),
        )
        for name, group in figure_groups(curves).items()
        for against, (end, words) in axes.items()
    ]
    lost = "; ".join(
        f"{each.label}, k = {each.k}: {diverged(each)}" for each in curves if diverged(each)
    )
    endings = [
        "A run that diverged counts with the loss of no components at all, in means and curves "
        f"alike. Diverged runs: {lost}."
        if lost
        else "No run diverged."
    ]
    if pca.SANGER in rules:
        endings.append(pca.ABOUT_SANGER)
    sections = [
        Section(
            title="What the paper states",
            text="The five rules see one row an update, as in the paper's figure, which has a dot "
            "every 5,000 rows. Its curves cannot be read to a number: orders are compared, "
            "decided where the 95 % interval of the difference, of runs paired by their seeds, "
            "leaves out 0 and no run diverged. A row of each rule is timed apart from the curves, "
            "in float32, in turns and over the same rows; a case counts where trials do not "
            "overlap. That the explicit rule takes the same time is nothing that trials can show: "
            "its ratio stands beside the others and decides nothing. Oja and Krasulina take "
            "O(k · features) a row here by a closed form of the QR decomposition, in the paper by "
            "updates of it; incremental PCA rotates all components, "
            "O(k² · features)." + problem.about_data,
        ),
        Section(
            title="Excess loss",
            text="The loss is the mean of ||x - Px||² over all rows, with their mean removed; the "
            "excess is 100 (loss / exact loss - 1). Every run goes over the rows in an order of "
            "its own, which all rules share. η0 of η0 / t^γ was chosen by one pass over a random "
            f"{config.tuning_fraction:.0%} of the rows. Runs are timed one after another: seconds "
            "are those of one stream in its updates, without compilation and evaluation.",
            figures=figures,
        ),
        Section(
            title="Where every rule ends",
            text="\n\n".join(endings),
            tables=end_tables(config, final, describe_lines(curves)),
        ),
    ]
    components = draw_components(config, problem, curves)
    if components is not None:
        channels = problem.image_shape is not None and len(problem.image_shape) == 3
        caption = (
            f"The exact {config.shown_components} components above learned ones (first run), which "
            "are rotated within their span onto them; below each image, its |cosine| with the "
            "exact one." + (" Images have channels: the mean over them is shown." * channels)
        )
        figure = run.show("components", caption, *components)
        sections.append(Section(title="Components", figures=[figure]))
    ends = [
        min((excess_of(each)[:, -1].mean(), each.label) for each in curves if each.k == k)
        for k in config.components
    ]
    least = "; ".join(
        f"k = {k}: {label}, {excess:.3g} %"
        for k, (excess, label) in zip(config.components, ends, strict=True)
    )
    return Findings(
        abstract=f"{len(config.contenders)} streaming rules on {problem.name}, one pass, "
        f"{config.repeats} runs each, against the exact components. Least "
        f"excess loss at the end: {least}.",
        claims=compare_with_paper(config, curves, times),
        sections=sections,
        summary={
            **pca.summary_of(run, curves, final),
            "seconds_per_row": {
                str(k): {name: min(trials) for name, trials in by_name.items()}
                for k, by_name in times.items()
            },
        },
    )


EXPERIMENT = Experiment[Config](
    name="online-pca",
    title="Online principal components",
    paper="Amid & Warmuth 2020, Figure 1",
    presets=PRESETS,
    load=load_observations,
    check=pca.check,
    cells=pca.cells,
    measure=measure,
    report=report,
    counts_cells=True,
    deviations={**pca.DEVIATIONS, **pca.START},
)
