"""Streaming rules against exact components: excess loss over rows and over time (Figure 1).

The loss is the mean of ||x - Px||² over all rows, with their mean removed; the excess is
100 (loss / exact loss - 1). Every run makes one pass over the rows in its own order, which all
rules share. Runs are timed one after another: seconds are those of one stream in its updates,
without compilation and evaluation. In means and curves, a run that diverged counts with the loss of
no components; in a comparison it decides nothing.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.amid_warmuth_2020.printed import IMPLICIT
from rlreps.experiments.harness import (
    Axis,
    Claim,
    Curve,
    Drawn,
    Frame,
    Measure,
    Results,
    Rows,
    Run,
    Summary,
    Wide,
    design_of,
    image_components,
)
from rlreps.plotting.lines import over_runs
from rlreps.runs.contrasts import Sample, Verdict, all_of, at_least
from rlreps.streaming import RULES, run_passes
from rlreps.streaming.passes import seconds_per_row

Times = Mapping[str, Sequence[float]]
"""Rule → seconds a row in each trial."""

ORTHONORMAL = ("oja", "krasulina", "incremental_pca")
"""Rules of the paper that implicit Krasulina is to be faster than."""

_LEAST_POINTS = 10
"""Least number of intervals of a curve, if the rows are few."""
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
    tuned = pca.choose_rates(run, cell)
    streams = [
        contender.stream(
            run_passes,
            problem.rows,
            [seed],
            [tuned["learning_rate"]],
            tuned["power"],
            k,
            evaluate=problem.exact.loss,
            evaluate_every=config.interval(contender, len(problem.rows)),
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


def frame(run: Run[Config], cell: tuple[pca.Contender, int], found: Mapping[str, Any]) -> Frame:
    """List losses: a row each repeat and point, with the time until then and its mean."""
    seconds, seen = np.asarray(found["seconds"], np.float64), found["rows_seen"]
    made = pca.measured(run, cell, found["losses"], seed=run.config.seeds, step=seen)
    exact = run.data.exact
    mean_losses = exact.counted(found["losses"]).mean(axis=0)
    return made.adding(
        several=cell[0].rows_per_update > 1,
        seconds=np.broadcast_to(seconds.mean(axis=0), seconds.shape).ravel(),
        microseconds_per_row=1e6 * float(np.median(seconds[:, -1]) / seen[-1]),
        exact_loss=exact.exact_loss(cell[1]),
        mean_loss=np.broadcast_to(mean_losses, seconds.shape).ravel(),
        all_rates_diverged=found["all_diverged"],
        **pca.rates_of(found),
    )


def seconds_at(results: Results[Config], k: int) -> dict[str, list[float]]:
    """Time a row of each of the paper's rules in float32."""
    rows = results.run.data.rows[:_TIMED_ROWS]
    rules = {}
    for contender, own, part in pca.parts_of(results):
        if own == k and contender.published:
            build = contender.build(rows.shape[1], k, part["power"] or 0.0)
            rules[contender.rule] = build(jnp.float32(part["learning_rate"] or 1.0))
    return seconds_per_row(rules, rows, trials=_TRIALS)


def times(results: Results[Config]) -> dict[int, Times]:
    """Return k → times of a row of the paper's rules, kept in ``parts``."""
    return {
        k: results.run.folder.part(f"times-k{k}", partial(seconds_at, results, k))
        for k in results.config.components
    }


def time_ratios(times: Mapping[int, Times]) -> Frame:
    """List times of a row over implicit Krasulina's of the same trial."""
    return Frame.concat(
        Frame.grid(
            {"ratio": np.divide(trials, by_rule[IMPLICIT])},
            rule=rule,
            label=RULES[rule].title,
            k=k,
            microseconds_per_row=1e6 * min(trials),
            trial=range(len(trials)),
        )
        for k, by_rule in times.items()
        if IMPLICIT in by_rule
        for rule, trials in by_rule.items()
    )


def ratio(ratios: Frame, rule: str, k: int) -> Sample:
    """Return a rule's time over implicit Krasulina's in each trial."""
    chosen = ratios.where(rule=rule, k=k) if len(ratios) else ratios
    return chosen.sample("ratio", "trial")


def is_faster(ratios: Frame, components: Sequence[int]) -> Verdict:
    """Judge that implicit Krasulina takes less time a row than other rules in most cases."""
    cases = [ratio(ratios, rule, k) > 1.0 for k in components for rule in ORTHONORMAL]
    told = [each.holds for each in cases]
    found = f"less in {told.count(True)} of {len(told)} cases, more in {told.count(False)}"
    return at_least(len(told) // 2 + 1, cases).saying(found)


def advantage_grows(ratios: Frame, least: int, most: int) -> Verdict:
    """Judge that other rules' times over implicit Krasulina's are larger for the largest k."""
    ends = {
        RULES[rule].title: (ratio(ratios, rule, least), ratio(ratios, rule, most))
        for rule in ORTHONORMAL
    }
    found = (f"{name} {few.mean:.2g} to {many.mean:.2g}" for name, (few, many) in ends.items())
    grows = all_of([few < many for few, many in ends.values()])
    return grows.saying(f"times as long as implicit Krasulina: {', '.join(found)}")


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the least excess for each k, and what Figure 1 says of times."""

    def entry(contender: pca.Contender, k: int) -> tuple[Sample, str]:
        own: dict[str, Any] = {"rule": contender.name, "k": k}
        return results.end("loss", **own), f"{results.end(**own).mean:.3g} %"

    yield from pca.least_claims(results, "Fig. 1: excess loss after one pass", entry)
    components = results.config.components
    yield Claim(
        "Fig. 1: time of a row",
        "less than Oja's, Krasulina's and incremental PCA's in most cases",
        lambda r: is_faster(time_ratios(r.once(times)), components),
    )
    least, most = min(components), max(components)
    if least < most:
        yield Claim(
            f"Fig. 1: advantage in time from k = {least} to k = {most}",
            "grows with k",
            lambda r: advantage_grows(time_ratios(r.once(times)), least, most),
        )


def draw_components(results: Results[Config]) -> tuple[Rows, Figure] | None:
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
    return image_components(problem.exact.basis[:, : results.config.shown_components], shown, shape)


def curves(results: Results[Config]) -> Iterator[Curve]:
    """Declare the figures: rules that see one row an update, as the paper's, and the others.

    Beside the others stands implicit Krasulina on single rows.
    """
    repeats = over_runs(results.config.repeats, "run")
    with_rows = f"{repeats}; in brackets: rows of an update"

    def batches(results: Results[Config], frame: Frame) -> Frame:
        single = frame.where(several=False, rule=IMPLICIT)
        return Frame.concat([single, frame.where(several=True)]).where(step=_after_start)

    groups: dict[str, Any] = {
        "excess": ("One row an update", {"several": False, "step": _after_start}, repeats)
    }
    if results.frame["several"].any():
        groups["batches"] = ("Several rows an update", batches, with_rows)
    for name, (opening, of, note) in groups.items():
        for end, x, words in (
            ("rows", Axis("step", "rows seen", log=True), "the rows that were seen"),
            ("seconds", Axis("seconds", "seconds in updates", log=True), "the time in updates"),
        ):
            yield Curve(
                name=f"{name}_by_{end}",
                caption=f"{opening}: excess loss against {words}. Lines: {note}.",
                x=x,
                line="label",
                panel="k = {k}",
                of=of,
                keys=("rule",),
                note=note,
            )


def _after_start(step: Any) -> Any:
    """Select points after the start, which no row and no time is behind."""
    return step > 0


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
            "The five rules see one row an update, as in the paper's figure, which has a dot "
            "every 5,000 rows. Its curves cannot be read as numbers: orders are compared. A "
            "row of each rule is timed apart from the curves, in float32, over the same rows "
            "and in turns, so that times are compared in pairs. Trials cannot show that the "
            "explicit rule takes the same time: its ratio stands beside the others "
            "and decides nothing. Here Oja and Krasulina take O(k · features) a row by a "
            "closed form of the QR decomposition, in the paper by updates of it; incremental "
            "PCA rotates all components, O(k² · features).",
            lambda r: r.run.data.about_data,
            Summary(
                name="times",
                caption="Times of a row over implicit Krasulina's in the same trial, and the "
                "least time of a row.",
                keys=("k", "label"),
                of=lambda r, _: time_ratios(r.once(times)),
                measure=Measure(value="ratio", label="time over implicit Krasulina's"),
                unit="trial",
                beside=("microseconds_per_row",),
            ),
        ],
        "Excess loss": [
            lambda r: (
                f"{design_of(__doc__)} η0 of η0 / t^γ was chosen by one pass over a random "
                f"{r.config.tuning_fraction:.0%} of the rows."
            ),
            curves,
        ],
        "Where every rule ends": [
            pca.ABOUT_SANGER,
            Wide(
                caption="Percent excess loss at the end of one pass, means over runs.",
                row="label",
                column="k = {k}",
            ),
            Summary(
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
                caption="The exact {config.shown_components} components above learned ones "
                "(first run), which are rotated within their span onto them; below each "
                "image, its |cosine| with the exact one. Of channels the mean is shown.",
                draw=draw_components,
            ),
        ],
    },
    summary=lambda r: {
        **pca.summary_of(r),
        "seconds_per_row": {
            str(k): {name: min(trials) for name, trials in by_name.items()}
            for k, by_name in r.once(times).items()
        },
    },
    deviations={**pca.DEVIATIONS, **pca.START},
)
