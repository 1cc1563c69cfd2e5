"""Streaming PCA by several workers, whose models are combined repeatedly (Table 2, Fig. 2).

The paper combines factors by their mean (the online-EM average, Eq. 18). For orthonormal bases,
which incremental PCA learns too, the paper knows no systematic way: it takes their mean and a QR
decomposition. The experiment adds two ways of rlreps: the subspace nearest to all bases and, for
incremental PCA, the mean of the workers' second moments. The paper does not say which singular
values incremental PCA has after bases are averaged; here they are set to one, as in the authors'
code. Table 2 prints 37.17 where Table 1 prints 35.17, so our loss is compared with both numbers.
Comparisons pair runs by their seeds.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.amid_warmuth_2020.printed import (
    IMPLICIT,
    SANGER,
    TABLE_2,
    Repeated,
    batch_claims,
    printed_claim,
)
from rlreps.stats import Sample, Verdict, all_of
from rlreps.streaming import mean_then_qr
from rlreps.study import Axis, Claim, Curve, Frame, Results, Run, TableRows, Tabulated, design_of

MODELS = ("single", "combined", "workers")
"""One model of all rows, the workers' combined model, and their models just before combining."""

LOOKS = {
    "combined": {"linewidth": 2.4},
    "workers": {"linewidth": 0.6, "alpha": 0.35, "marker": ""},
    "single": {"linestyle": ":", "linewidth": 1.2, "marker": ""},
}


PUBLISHED = tuple(
    dataclasses.replace(each, mean_qr=each.rule not in (SANGER, IMPLICIT))
    for each in pca.published(1e-4)
)
OURS = (
    dataclasses.replace(PUBLISHED[0], variant="nearest subspace", mean_qr=False),
    dataclasses.replace(PUBLISHED[1], variant="nearest subspace", mean_qr=False),
    dataclasses.replace(PUBLISHED[2], variant="mean of second moments", mean_qr=False),
    # The authors' code starts from there in this table.
    dataclasses.replace(PUBLISHED[4], variant="start of 1e-4", initial_scale=1e-4),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """Defaults: the paper's protocol, our ways to combine bases, and another start.

    Attributes:
        workers: M, the number of workers, which start from a common model.
        combine_every: Rows that each worker learns from between combinations; all of its rows if it
            has fewer.
    """

    contenders: tuple[pca.Contender, ...] = (*PUBLISHED, *OURS)
    components: tuple[int, ...] = (5, 20)
    workers: int = 10
    combine_every: int = 1000


_FEW_RATES = (0.1, 1.0, 10.0)
PRESETS = {
    "smoke": Config(
        contenders=tuple(
            dataclasses.replace(each, learning_rates=_FEW_RATES) if each.learning_rates else each
            for each in (*PUBLISHED, OURS[0])
            if each.rule != "krasulina"
        ),
        components=(3,),
        workers=3,
        combine_every=50,
        repeats=2,
    ),
    "laptop": Config(repeats=3),
    "paper": Config(),
}


def measure(run: Run[Config], name: str, cell: tuple[pca.Contender, int]) -> dict[str, Any]:
    """Choose γ and η0, then run workers, and one model alone, from the same starts."""
    config, problem, (contender, k) = run.config, run.data, cell
    tuned = pca.choose_rates(run, cell)
    interval = min(config.combine_every, len(problem.rows) // config.workers)
    rates = [tuned["learning_rate"]] * config.repeats
    runs = (problem.rows, list(config.seeds), rates, tuned["power"], k)
    options: dict[str, Any] = {"evaluate": problem.exact.loss}
    of_workers = options | ({"combine": mean_then_qr} if contender.mean_qr else {})
    spread = contender.stream(*runs, workers=config.workers, evaluate_every=interval, **of_workers)
    single = contender.stream(*runs, evaluate_every=config.workers * interval, **options)
    return {
        **tuned,
        "rows_seen": spread.rows_seen.tolist(),
        "workers": spread.workers.tolist(),
        "combined": spread.figures.tolist(),
        "single": single.figures.tolist(),
    }


def frame(run: Run[Config], cell: tuple[pca.Contender, int], found: Mapping[str, Any]) -> Frame:
    """List losses: a row for each model, repeat, worker and combination."""
    workers = {name: range(run.config.workers) if name == "workers" else 0 for name in MODELS}
    return Frame.concat(
        pca.measured(
            run,
            cell,
            found,
            np.moveaxis(np.asarray(found[name], np.float64), 0, -1),
            model=name,
            seed=run.config.seeds,
            worker=worker,
        )
        for name, worker in workers.items()
    )


def improves(results: Results[Config], rule: str, k: int) -> Verdict:
    """Judge that the combined model's loss falls from each combination to the next."""
    losses = results.frame.where(rule=rule, k=k, model="combined").groups("step").values()
    combined = [each.sample("counted", "seed") for each in losses][1:]
    falls = [new < old for old, new in itertools.pairwise(combined)]
    told = [each.holds for each in falls]
    words = f"falls in {told.count(True)} of {len(told)}, rises in {told.count(False)}"
    return all_of(falls).saying(f"{combined[0].mean:.4f} to {combined[-1].mean:.4f}; {words}")


def claims(results: Results[Config]) -> Iterator[Claim]:
    """Pair the paper's statements with the findings that judge them."""
    yield from batch_claims(results)
    ours = [
        (contender, k)
        for contender, k, _ in pca.parts_of(results)
        if contender.rule == IMPLICIT and contender.published
    ]
    (table,) = TABLE_2.get(results.run.data.data_set or "", [{}])
    for contender, k in ours:
        if k in table:
            ends = results.ends.where(rule=contender.name, k=k)
            found = [ends.where(model=name) for name in MODELS[:2]]
            about = "Table 2, single and combined (start of 1e-5)"
            yield printed_claim(about, contender, k, found, table[k])
    for contender, k in ours:
        yield Claim(
            f"Fig. 2 (caption), {contender.label}, k = {k}: the combined model",
            "consistently improves over time by combining (judged: its loss falls with every "
            "combination)",
            partial(improves, rule=contender.name, k=k),
        )

    def final(contender: pca.Contender, k: int) -> Sample:
        return results.end("counted", rule=contender.name, k=k, model="combined")

    about = "Fig. 2: final loss of the combined model, the paper's ways to combine"
    yield from pca.least_claims(results, about, final)


def first_repeat(results: Results[Config], frame: Frame) -> Frame:
    """Select the first repeat without its start, unless only one combination follows the start.

    The loss at the start is about 100 times as large as the differences between rules.
    """
    own = frame.where(seed=results.config.seed)
    return own.where(step=lambda step: step > 0) if len({*own["step"]}) > 2 else own


def curve_rows(results: Results[Config]) -> TableRows:
    """Tabulate each repeat's combined model, single model, and mean and range of workers."""
    rows = []
    for (rule, k, seed, seen), group in results.frame.groups("rule", "k", "seed", "step").items():
        single, combined, workers = (group.where(model=name)["excess"] for name in MODELS)
        rows.append(
            {
                **{"rule": rule, "k": k, "seed": seed, "rows_seen_by_worker": seen},
                "combined_excess_percent": combined[0],
                "single_excess_percent": single[0],
                "workers_excess_percent": workers.mean(),
                "workers_least": workers.min(),
                "workers_greatest": workers.max(),
            }
        )
    return rows


def loss_rows(results: Results[Config]) -> TableRows:
    """Tabulate final losses, a row for each k and rule."""
    rows = []
    keys = ("k", "label", "power", "learning_rate")
    for (k, rule, *rates), ends in results.ends.groups(*keys).items():
        found = {name: str(Repeated.of(ends.where(model=name))) for name in MODELS}
        exact = f"{results.run.data.exact.exact_loss(k):.3f}"
        about = {"k": k, "rule": rule, **dict(zip(keys[2:], rates, strict=True))}
        rows.append({**about, "exact": exact, **found})
    return rows


EXPERIMENT = pca.experiment(
    name="distributed-pca",
    title="Principal components by several workers",
    paper="Amid & Warmuth 2020, Table 2 and Figure 2",
    presets=PRESETS,
    check=lambda config, rows: pca.check(config, rows, config.workers),
    measure=measure,
    frame=frame,
    claims=claims,
    sections={
        "What the paper states": [design_of(__doc__)],
        "Final losses and learning curves": [
            pca.ABOUT_SANGER,
            Tabulated(
                name="table_2",
                rows=loss_rows,
                caption=f"{pca.ABOUT_LOSSES} Each of {{config.workers}} workers saw its own part "
                "of the rows; the single model saw all these parts.",
            ),
            Curve(
                name="workers",
                caption="Excess loss of the first run at every combination, against the number of "
                "samples that each of {config.workers} workers has seen. The lines show the "
                "combined model, each worker's model just before it was combined, and one model "
                "that has seen the rows of all workers.",
                x=Axis("step", "samples per worker"),
                line="label",
                panel="k = {k}",
                each=("worker",),
                variant="model",
                of=first_repeat,
                rows=curve_rows,
                note="the first run",
                axes={"looks": LOOKS},
            ),
        ],
    },
    deviations={
        **pca.DEVIATIONS,
        **pca.START,
        "data": f"{pca.SUBSET} Each worker has 815 of these images, and the models are combined "
        "once.",
    },
)
