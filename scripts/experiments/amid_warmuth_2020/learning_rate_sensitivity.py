"""Learning-rate sensitivity of streaming PCA (Amid & Warmuth 2020, Table 1).

η0 is chosen on a part of the rows and scaled by 0.1, 1 and 10; then every rule makes one pass over
the rows, one at a time. A printed cell is compared with the mean over our runs. Our mean agrees if
its whole 95 % interval lies within the printed deviation and rounding, for implicit Krasulina
within 0.02. It disagrees if its whole interval lies outside; otherwise the cell is undecided.
Comparisons of rules and scales pair runs with equal seeds. A spread over scales is a function of
means, so its interval uses the jackknife's pseudo-values of the runs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.amid_warmuth_2020.printed import (
    IMPLICIT,
    PAPER_RULES,
    SANGER,
    TABLE_1,
    Printed,
    Repeated,
    batch_claims,
    printed_claim,
)
from rlreps.stats import Sample, Verdict, all_of
from rlreps.study import Axis, Claim, Curve, Frame, Results, Run, TableRows, Tabulated, design_of
from rlreps.typing import DoubleArray

SCALES = (0.1, 1.0, 10.0)
"""Factors of the chosen η0 in the paper's table."""

LOOKS = {
    "0.1 η0": {"linestyle": (0, (4, 2)), "linewidth": 1.2, "marker": ""},
    "1 η0": {},
    "10 η0": {"linestyle": ":", "linewidth": 1.2, "marker": ""},
}
WITHIN = {True: "within", False: "outside", None: "cannot be told"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """Defaults: the paper's protocol, and its explicit rule from our start.

    Attributes:
        evaluations: Points of each curve after its start. Rows that do not fill the last interval
            between them are left out.
    """

    contenders: tuple[pca.Contender, ...] = (*pca.published(1e-5), pca.OUR_SANGER)
    evaluations: int = 20


def pseudo_values(
    statistic: Callable[[DoubleArray], DoubleArray], runs: npt.ArrayLike
) -> DoubleArray:
    """Compute the jackknife's pseudo-values of a statistic of means over runs (Tukey 1958).

    Let θ be the statistic of the means of all n runs and θ₋ᵢ that without run i. The pseudo-values
    are n θ − (n − 1) θ₋ᵢ. Their ``mean_interval`` is an interval of θ; if θ is the mean itself, the
    pseudo-values are the runs. Pseudo-values are linear in θ, so that those of two methods whose
    runs share seeds can be compared in pairs.

    Args:
        statistic: Means [..., choices] → [choices], for each choice of runs.
        runs: [..., runs].

    Returns:
        [runs]; for one run, the statistic itself.
    """
    table = np.asarray(runs, np.float64)
    count = table.shape[-1]
    if count == 1:
        return statistic(table)
    weights = np.column_stack([np.ones(count) / count, (1.0 - np.eye(count)) / (count - 1)])
    found = statistic(table @ weights)
    values: DoubleArray = count * found[0] - (count - 1) * found[1:]
    return values


def scales_of(contender: pca.Contender) -> tuple[float, ...]:
    """Return the scales of a rule's η0, which share starts and orders; 1 alone without a rate."""
    return SCALES if contender.learning_rates else (1.0,)


PRESETS = {
    "smoke": Config(
        contenders=(
            pca.Contender(rule="oja", powers=(0.9,), learning_rates=(0.1, 1.0, 10.0)),
            pca.Contender(rule="incremental_pca", powers=(), learning_rates=()),
            pca.Contender(rule=SANGER, learning_rates=(0.01, 0.1), double=True),
            pca.Contender(rule=IMPLICIT, learning_rates=(0.1, 1.0, 10.0)),
        ),
        components=(4,),
        repeats=2,
        evaluations=10,
    ),
    "laptop": Config(repeats=3),
    "paper": Config(),
}


def measure(run: Run[Config], name: str, cell: tuple[pca.Contender, int]) -> dict[str, Any]:
    """Choose γ and η0, then stream all scales and repeats once over the rows."""
    config, problem, (contender, k) = run.config, run.data, cell
    tuned = pca.choose_rates(run, cell)
    rate, scales = tuned["learning_rate"], scales_of(contender)
    streamed = contender.stream(
        problem.rows,
        [seed for _ in scales for seed in config.seeds],
        [None if rate is None else rate * scale for scale in scales for _ in config.seeds],
        tuned["power"],
        k,
        evaluate=problem.exact.loss,
        evaluate_every=len(problem.rows) // config.evaluations,
    )
    return {
        **tuned,
        "rows_seen": streamed.rows_seen.tolist(),
        "losses": np.reshape(streamed.figures, (-1, len(scales), config.repeats)).tolist(),
    }


def frame(run: Run[Config], cell: tuple[pca.Contender, int], found: Mapping[str, Any]) -> Frame:
    """List losses: a row for each scale, repeat and point."""
    losses = np.moveaxis(np.asarray(found["losses"], np.float64), 0, -1)
    axes = {"scale": scales_of(cell[0]), "seed": run.config.seeds}
    made = pca.measured(run, cell, found, losses, **axes)
    return made.adding(factor=np.array([f"{scale:g} η0" for scale in made["scale"]]))


def ends_of(results: Results[Config], contender: pca.Contender, k: int) -> dict[float, Frame]:
    """Return the final losses of a rule at each scale."""
    ends = results.ends.where(rule=contender.name, k=k)
    return {scale: ends.where(scale=scale) for scale in scales_of(contender)}


def printed_of(results: Results[Config], contender: pca.Contender, k: int) -> dict[float, Printed]:
    """Return the printed loss at each scale; none for rules, k or data that the paper lacks."""
    table = TABLE_1.get(results.run.data.data_set or "")
    if not table or not contender.published:
        return {}
    printed = table[PAPER_RULES.index(contender.rule)].get(k, ())
    return dict(zip(scales_of(contender), printed, strict=False))


def spread(results: Results[Config], contender: pca.Contender, k: int) -> Sample:
    """Return the largest mean loss over scales minus the smallest."""
    losses = np.stack([each["counted"] for each in ends_of(results, contender, k).values()])
    values = pseudo_values(lambda means: np.asarray(np.ptp(means, axis=0)), losses)
    return Sample(values, results.config.seeds)


def deteriorates(results: Results[Config], contender: pca.Contender, k: int) -> Verdict:
    """Judge that a rule ends with less loss at the chosen η0 than at any other scale."""
    ends = ends_of(results, contender, k)
    samples = {scale: each.sample("counted", "seed") for scale, each in ends.items()}
    others = {f"{scale:g} η0": each for scale, each in samples.items() if scale != 1.0}
    return all_of({about: samples[1.0] < each for about, each in others.items()})


def claims(results: Results[Config]) -> Iterator[Claim]:
    """Pair the paper's statements with the findings; its numbers only if rows are its data."""
    yield from batch_claims(results)
    for contender, k, _ in pca.parts_of(results):
        printed = [*printed_of(results, contender, k).values()]
        if printed:
            found = list(ends_of(results, contender, k).values())
            yield printed_claim("Table 1", contender, k, found, printed)
    about = "Sensitivity to η0: largest less smallest mean loss over its scales"
    yield from pca.least_claims(results, about, partial(spread, results), tuned=True)
    scales = ", ".join(f"{scale:g} η0" for scale in SCALES)
    for contender, k, _ in pca.parts_of(results):
        if contender.published and contender.learning_rates and contender.rule != IMPLICIT:
            yield Claim(
                f"Sensitivity to η0, {contender.label}, k = {k}: loss at {scales}",
                "deteriorates as η0 is altered either way",
                partial(deteriorates, contender=contender, k=k),
            )


def cell_rows(results: Results[Config]) -> TableRows:
    """Tabulate final losses beside the printed ones, a row for each cell of the paper's table."""
    problem, rows = results.run.data, []
    for contender, k, part in pca.parts_of(results):
        printed = printed_of(results, contender, k)
        for scale, end in ends_of(results, contender, k).items():
            found = Repeated.of(end)
            row = {"k": k, "rule": contender.name, "scale": scale}
            row |= {name: part[name] for name in ("power", "learning_rate")}
            row |= {"exact": problem.exact.exact_loss(k), **found._asdict()}
            if scale in printed:
                mean, deviation = printed[scale]
                row |= {"printed": mean, "printed_deviation": deviation}
                verdict = WITHIN[found.within(printed[scale], contender.rule).holds]
                row["within"] = verdict if problem.is_whole else "other data"
            rows.append(row)
    return rows


def table_rows(results: Results[Config]) -> TableRows:
    """Write final losses in the paper's layout: k and scale down, rules across."""
    rows = {
        (k, scale): {"k": str(k), "factor of η0": f"{scale:g}"}
        for k in results.config.components
        for scale in SCALES
    }
    for contender, k, _ in pca.parts_of(results):
        printed = printed_of(results, contender, k)
        for scale, end in ends_of(results, contender, k).items():
            beside = f" [{printed[scale]}]" if scale in printed else ""
            rows[k, scale][contender.label] = f"{Repeated.of(end)}{beside}"
    return list(rows.values())


EXPERIMENT = pca.experiment(
    name="learning-rate-sensitivity",
    title="How much the initial learning rate matters",
    paper="Amid & Warmuth 2020, Table 1",
    presets=PRESETS,
    check=lambda config, rows: pca.check(config, rows, config.evaluations),
    measure=measure,
    frame=frame,
    claims=claims,
    sections={
        "What the paper states": [design_of(__doc__)],
        "Final losses": [
            pca.ABOUT_SANGER,
            Tabulated(
                name="table_1",
                rows=table_rows,
                caption=f"{pca.ABOUT_LOSSES} Brackets hold the paper's printed losses. The file of "
                "the figure of scales has the exact losses.",
            ),
        ],
        "Learning curves": [
            Curve(
                name="curves",
                caption="Excess loss against samples at each factor of the chosen η0.",
                x=Axis("step", "samples"),
                line="label",
                panel="k = {k}",
                variant="factor",
                of={"step": lambda step: step > 0},
                file={},
                keys=("rule", "scale"),
                axes={"looks": LOOKS},
            ),
            Curve(
                name="scales",
                caption="Excess loss at the end against the factor of the chosen η0.",
                x=Axis("scale", "factor of the chosen η0", log=True, ticks=True),
                line="label",
                panel="k = {k}",
                at_end=True,
                rows=cell_rows,
            ),
        ],
        "The choice of γ and η0": [
            "The chosen γ and η0 have the least loss after one pass over "
            "{config.tuning_fraction:.0%} of the rows; `results/tuning.csv` has all pairs that "
            "were tried.",
            Tabulated(name="tuning", rows=pca.tuning_rows, shown=False),
        ],
    },
    deviations=pca.DEVIATIONS,
)
