"""Streaming rules against exact components: excess loss over rows and over time (Figure 1).

The loss is the mean of ||x - Px||² over all rows, with their mean removed; the excess is
100 (loss / exact loss - 1). Every run makes one pass over the rows. The run's seed sets their
order, the same for all rules. Runs are timed one after another: seconds count the updates of one
stream, without compilation and evaluation. In means and curves, the loss of a run that diverged is
replaced by the loss without any component (P = 0). A comparison with such a run is undecided.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.amid_warmuth_2020.printed import IMPLICIT
from rlreps.experiments.components import draw_image_components
from rlreps.stats import Sample, Verdict, all_of, at_least
from rlreps.streaming import RULES
from rlreps.study import (
    Axis,
    Claim,
    Curve,
    Drawn,
    Frame,
    Metric,
    Results,
    Run,
    TableRows,
    design_of,
    tabulate_summary,
    tabulate_wide,
)

ORTHONORMAL = ("oja", "krasulina", "incremental_pca")
"""Rules of the paper that implicit Krasulina is to be faster than."""

SHOWN = (IMPLICIT, "oja")
"""Contenders whose components are drawn beside the exact ones."""

_LEAST_POINTS = 10
"""Least number of intervals of a curve, if the rows are few."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """Defaults: the paper's protocol, with five rules, one pass, one row at a time.

    Attributes:
        evaluate_every: Rows between points of a curve, at most a tenth of all rows, rounded down to
            whole updates. Rows that do not fill the last interval are left out.
        shown_components: k of the figure of components, one of ``components``.
    """

    contenders: tuple[pca.Contender, ...] = pca.published(1e-4)
    components: tuple[int, ...] = (5, 10, 20, 50)
    evaluate_every: int = 5000
    shown_components: int = 10


# For rules that the paper lacks, γ is chosen together with η0. The generalised Hebbian algorithm
# diverges at every rate of the authors' grid.
_POWERS = (0.2, 0.5, 0.8)
_OTHERS = (
    pca.Contender(
        rule="sanger", powers=_POWERS, learning_rates=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    ),
    pca.Contender(rule="implicit_krasulina", rows_per_update=100),
    pca.Contender(rule="incremental_pca", rows_per_update=100, powers=(), learning_rates=()),
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
        components=(4,),
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
    tuned, rows = pca.choose_rates(run, cell), contender.rows_per_update
    asked = min(config.evaluate_every, len(problem.rows) // _LEAST_POINTS)
    streams = [
        contender.stream(
            problem.rows,
            [seed],
            [tuned["learning_rate"]],
            tuned["power"],
            k,
            evaluate=problem.exact.loss,
            evaluate_every=max(asked - asked % rows, rows),
        )
        for seed in config.seeds
    ]
    part = {
        **tuned,
        "rows_seen": streams[0].rows_seen.tolist(),
        "seconds": [stream.seconds.tolist() for stream in streams],
        "losses": [stream.figures[:, 0].tolist() for stream in streams],
    }
    if contender.name in SHOWN and k == config.shown_components:
        part["components"] = streams[0].components[0].tolist()
    return part


def frame(run: Run[Config], cell: tuple[pca.Contender, int], found: Mapping[str, Any]) -> Frame:
    """List losses: a row for each repeat and point, with times averaged over repeats."""
    seconds, seen = np.asarray(found["seconds"], np.float64), found["rows_seen"]
    made = pca.measured(run, cell, found, found["losses"], seed=run.config.seeds)
    exact = run.data.exact
    mean_losses = exact.counted(found["losses"]).mean(axis=0)
    return made.adding(
        several=cell[0].rows_per_update > 1,
        seconds=np.broadcast_to(seconds.mean(axis=0), seconds.shape).ravel(),
        row_seconds=np.broadcast_to(seconds[:, -1:] / seen[-1], seconds.shape).ravel(),
        microseconds_per_row=1e6 * float(np.median(seconds[:, -1]) / seen[-1]),
        exact_loss=exact.exact_loss(cell[1]),
        mean_loss=np.broadcast_to(mean_losses, seconds.shape).ravel(),
        all_rates_diverged=found["all_diverged"],
    )


def time_ratios(results: Results[Config], ends: Frame) -> Frame:
    """List the time per row of each rule of the paper over that of implicit Krasulina, by seed."""
    return Frame.concat(
        each.adding(ratio=each["row_seconds"] / ours)
        for group in ends.where(published=True).groups("k").values()
        for ours in [group.where(rule=IMPLICIT)["row_seconds"]]
        for each in group.groups("rule").values()
        if len(ours)
    )


def ratio(results: Results[Config], rule: str, k: int) -> Sample:
    """Return a rule's time divided by implicit Krasulina's, for each seed."""
    times, ours = (results.end("row_seconds", rule=each, k=k) for each in (rule, IMPLICIT))
    return dataclasses.replace(times, values=times.values / ours.values)


def is_faster(results: Results[Config]) -> Verdict:
    """Judge that implicit Krasulina takes less time a row than other rules in most cases."""
    components = results.config.components
    cases = [ratio(results, rule, k) > 1.0 for k in components for rule in ORTHONORMAL]
    told = [each.holds for each in cases]
    found = f"less in {told.count(True)} of {len(told)} cases, more in {told.count(False)}"
    return at_least(len(told) // 2 + 1, cases).saying(found)


def advantage_grows(results: Results[Config], least: int, most: int) -> Verdict:
    """Judge that implicit Krasulina's advantage in time is larger at the largest k."""
    return all_of(
        {
            RULES[rule].title: ratio(results, rule, least) < ratio(results, rule, most)
            for rule in ORTHONORMAL
        }
    )


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the claims of Figure 1, on the loss and on the time of implicit Krasulina."""

    def final(contender: pca.Contender, k: int) -> Sample:
        return results.end("counted", rule=contender.name, k=k)

    yield from pca.least_claims(results, "Fig. 1: excess loss after one pass", final)
    yield Claim(
        "Fig. 1: time of a row",
        "less than Oja's, Krasulina's and incremental PCA's in most cases",
        is_faster,
    )
    least, most = min(results.config.components), max(results.config.components)
    if least < most:
        yield Claim(
            f"Fig. 1: advantage in time from k = {least} to k = {most}",
            "grows with k",
            lambda r: advantage_grows(r, least, most),
        )


def draw_components(results: Results[Config]) -> tuple[TableRows, Figure] | None:
    """Draw exact components above learned ones, if rows are images."""
    shown = {
        contender.label: np.nan_to_num(np.asarray(part["components"], np.float64))
        for contender, _, part in pca.parts_of(results)
        if "components" in part
    }
    problem = results.run.data
    shape = problem.image_shape
    if shape is None or len(shape) not in (2, 3) or not shown:
        return None
    return draw_image_components(
        problem.exact.basis[:, : results.config.shown_components], shown, shape
    )


def after_start(results: Results[Config], frame: Frame, *, several: bool) -> Frame:
    """Select the points after step 0 of the rules with one row per update, or with several.

    With several, also select implicit Krasulina with one row per update, for comparison.
    """
    chosen = frame.where(several=several, step=lambda step: step > 0)
    single = frame.where(several=False, rule=IMPLICIT, step=lambda step: step > 0)
    return Frame.concat([single, chosen]) if several and len(chosen) else chosen


def curves(name: str, several: bool, opening: str) -> list[Curve]:
    """Declare the figures of excess loss against rows and against time."""
    return [
        Curve(
            name=f"{name}_by_{end}",
            caption=f"{opening} an update: excess loss against {words}.",
            x=x,
            line="label",
            panel="k = {k}",
            of=partial(after_start, several=several),
            keys=("rule",),
        )
        for end, x, words in (
            ("rows", Axis("step", "rows seen", log=True), "the rows that were seen"),
            ("seconds", Axis("seconds", "seconds in updates", log=True), "the time in updates"),
        )
    ]


EXPERIMENT = pca.experiment(
    name="online-pca",
    title="Online principal components",
    paper="Amid & Warmuth 2020, Figure 1",
    presets=PRESETS,
    check=pca.check,
    measure=measure,
    frame=frame,
    claims=claims,
    sections={
        "What the paper states": [
            "The five rules see one row per update, as in the paper's figure, which has a dot "
            "every 5,000 rows. Numbers cannot be read off its curves, so the order of the rules is "
            "compared, and the times of runs with the same seed. The explicit rule runs in "
            "float64, so its time is not judged.",
            tabulate_summary(
                name="times",
                caption="Time per row divided by implicit Krasulina's with the same seed, and the "
                "median time per row.",
                keys=("k", "label"),
                of=time_ratios,
                measure=Metric(value="ratio", label="time over implicit Krasulina's"),
                beside=("microseconds_per_row",),
            ),
        ],
        "Excess loss": [
            f"{design_of(__doc__)} η0 of η0 / t^γ was chosen by one pass over a random "
            "{config.tuning_fraction:.0%} of the rows.",
            *curves("excess", several=False, opening="One row"),
            *curves("batches", several=True, opening="Several rows (in brackets)"),
        ],
        "Where every rule ends": [
            pca.ABOUT_SANGER,
            tabulate_wide(
                caption="Percent excess loss at the end of one pass, means over runs.",
                row="label",
                column="k = {k}",
            ),
            tabulate_summary(
                name="final_excess",
                caption="The learning rate η0 / t^γ that was chosen, the percent excess loss "
                "at the end, and the median time a row of the curves.",
                keys=("rule", "k"),
                beside=(
                    *("power", "learning_rate", "exact_loss", "mean_loss", "step", "seconds"),
                    *("microseconds_per_row", "diverged", "all_rates_diverged"),
                ),
            ),
            Drawn(
                name="components",
                caption="The {config.shown_components} exact components above the learned ones of "
                "the first run, which are rotated within their span onto the exact ones. The "
                "number below an image is its |cosine| with the exact component. Images with "
                "channels show the mean over channels.",
                draw=draw_components,
            ),
        ],
    },
    deviations={**pca.DEVIATIONS, **pca.START},
)
