"""Streaming PCA by several workers, whose models are combined repeatedly (Table 2, Fig. 2).

The paper combines orthonormal bases, and those of incremental PCA, by their mean and a QR
decomposition, for want of a systematic way; and factors by their mean (the online-EM average,
Eq. 18). Ways of rlreps stand beside it: the subspace nearest to all bases and, for incremental PCA,
the mean of the workers' second moments. The text does not say what becomes of incremental PCA's
singular values after a mean of bases: they are set to one, as in the authors' code. The 37.17 of
Table 2 is 35.17 in Table 1, so ours is compared with both. Compared runs are paired by their seeds.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.amid_warmuth_2020.printed import (
    IMPLICIT,
    PAPER_RULES,
    SANGER,
    TABLE_2,
    Repeated,
    batch_claims,
    printed_claim,
)
from rlreps.experiments.harness import (
    Claim,
    Drawn,
    Frame,
    Results,
    Rows,
    Run,
    Tabulated,
    design_of,
)
from rlreps.plotting.lines import Line, Look, Panel, plot_panels
from rlreps.runs.contrasts import Sample, Verdict, all_of
from rlreps.streaming import MeanThenQR, run_passes, run_workers
from rlreps.streaming.passes import MakeRule

MODELS = ("single", "combined", "workers")
"""One model of all rows, the workers' combined one, and theirs just before."""

_LOOKS = {
    "combined": Look(linewidth=2.4),
    "each worker": Look(linewidth=0.6, alpha=0.35, marked=False),
    "one model of all rows": Look(linestyle=":", linewidth=1.2, marked=False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender(pca.Contender):
    """A streaming rule and how its workers' models are combined.

    Attributes:
        mean_qr: Whether by their mean and a QR decomposition, as the paper combines orthonormal
            bases; otherwise as the rule's ``combine`` does.
    """

    mean_qr: bool = False

    def build(self, features: int, k: int, power: float) -> MakeRule:
        made = super().build(features, k, power)
        return (lambda initial: MeanThenQR(made(initial))) if self.mean_qr else made


def _combined(variant: str, rule: str, mean_qr: bool) -> Contender:
    (one,) = (each for each in pca.published(1e-4) if each.rule == rule)
    return Contender(**{**vars(one), "variant": variant, "mean_qr": mean_qr})


_FACTORS = (SANGER, IMPLICIT)
PUBLISHED = tuple(_combined("", rule, rule not in _FACTORS) for rule in PAPER_RULES)
OURS = (
    _combined("nearest subspace", "oja", False),
    _combined("nearest subspace", "krasulina", False),
    _combined("mean of second moments", "incremental_pca", False),
    # The authors' code starts from there in this table.
    dataclasses.replace(_combined("start of 1e-4", IMPLICIT, False), initial_scale=1e-4),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """The paper's protocol by default, our ways to combine bases, and another start.

    Attributes:
        workers: M, the number of workers, which start from a common model.
        combine_every: Rows that each worker learns from between combinations; all of its rows,
            where it has fewer.
    """

    contenders: tuple[Contender, ...] = (*PUBLISHED, *OURS)
    components: tuple[int, ...] = (5, 20)
    workers: int = 10
    combine_every: int = 1000

    def interval(self, count: int) -> int:
        """Return the rows of each worker between combinations, of ``count`` rows in all."""
        return min(self.combine_every, count // self.workers)


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
    "laptop": Config(contenders=pca.choosing_power(Config().contenders, 0.7, 0.8, 0.9), repeats=3),
    "paper": Config(),
}


def check(config: Config, observations: Any) -> pca.PcaProblem:
    """Refuse rows that are too few, then find the exact components."""
    return pca.check(config, observations, config.workers, "workers")


def measure(run: Run[Config], name: str, cell: tuple[Contender, int]) -> dict[str, Any]:
    """Choose γ and η0, then run workers, and one model alone, from the same starts."""
    config, problem, (contender, k) = run.config, run.data, cell
    tuned = pca.choose_rates(run, cell)
    interval, rates = config.interval(len(problem.rows)), [tuned["learning_rate"]] * config.repeats
    runs = (problem.rows, list(config.seeds), rates, tuned["power"], k)
    options = {"evaluate": problem.exact.loss}
    spread = contender.stream(
        run_workers, *runs, workers=config.workers, combine_every=interval, **options
    )
    single = contender.stream(
        run_passes, *runs, evaluate_every=config.workers * interval, **options
    )
    return {
        **tuned,
        "rows_seen": spread.rows_seen.tolist(),
        "seconds": spread.seconds.tolist(),
        "workers": spread.workers.tolist(),
        "combined": spread.combined.tolist(),
        "single": single.figures.tolist(),
    }


def frame(run: Run[Config], cell: tuple[Contender, int], found: Mapping[str, Any]) -> Frame:
    """List losses: a row each model, repeat, worker and combination."""
    workers = {name: range(run.config.workers) if name == "workers" else 0 for name in MODELS}
    return Frame.concat(
        pca.measured(
            run,
            cell,
            np.moveaxis(np.asarray(found[name], np.float64), 0, -1),
            model=name,
            seed=run.config.seeds,
            worker=worker,
            step=found["rows_seen"],
        )
        for name, worker in workers.items()
    )


def improves(results: Results[Config], rule: str, k: int) -> Verdict:
    """Judge that a rule's combined model has less loss after every combination but the first."""

    def after(model: str) -> list[Sample]:
        losses = results.frame.where(rule=rule, k=k, model=model).groups("step").values()
        return [each.sample("loss", "seed") for each in losses][1:]

    combined, workers = after("combined"), after("workers")
    falls = [new < old for old, new in itertools.pairwise(combined)]
    told = [each.holds for each in falls]
    below = [(one < other).holds for one, other in zip(combined, workers, strict=True)]
    return all_of(falls).saying(
        f"{combined[0].mean:.4f} to {combined[-1].mean:.4f}; falls in {told.count(True)} of "
        f"{len(told)}, rises in {told.count(False)}; below workers in {below.count(True)} of "
        f"{len(below)}"
    )


def claims(results: Results[Config]) -> Iterator[Claim]:
    """Set what the paper states beside what was found."""
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

    def entry(contender: pca.Contender, k: int) -> tuple[Sample, str]:
        own = {"rule": contender.name, "k": k, "model": "combined"}
        return results.end("loss", **own), f"{results.end('counted', **own).mean:.4f}"

    about = "Fig. 2: final loss of the combined model, the paper's ways to combine"
    yield from pca.least_claims(results, about, entry)


def sawteeth(
    seen: npt.NDArray[np.int64],
    combined: npt.NDArray[np.float64],
    workers: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Lead workers' lines from each combination to the next, with gaps in between.

    Args:
        seen: Rows at each combination, [p].
        combined: Losses of the combined model, [p].
        workers: Losses of the workers just before the combination, [p, workers].

    Returns:
        x [3p - 3] and heights [workers, 3p - 3], NaN in every third place.
    """
    gap = np.full(len(seen) - 1, np.nan)
    x = np.stack([seen[:-1], seen[1:], seen[1:]], axis=1).astype(np.float64).ravel()
    heights = [np.stack([combined[:-1], own[1:], gap], axis=1).ravel() for own in workers.T]
    return x, np.asarray(heights)


def first_drawn(results: Results[Config]) -> int:
    """Return the first point of the figure: the start where a single combination follows.

    What all rules start from is two decades above what tells them apart.
    """
    return 1 if len({*results.frame["step"]}) > 2 else 0


def draw_workers(results: Results[Config]) -> tuple[Rows, Figure]:
    """Draw the first repeat's excess loss against the rows that each worker has seen."""
    config, first, panels = results.config, first_drawn(results), []
    own = results.frame.where(seed=config.seed)
    for title, of_k in own.labelled("k = {k}").items():
        lines = []
        for label, part in of_k.labelled("label").items():
            single, combined, workers = (
                part.where(model=name).pivot("excess", "worker", "step") for name in MODELS
            )
            seen = np.asarray(combined[2][first:])
            one, bold, thin = (table[:, first:] for table, *_ in (single, combined, workers))
            curves = (sawteeth(seen, bold[0], thin.T), (seen, one[0]), (seen, bold[0]))
            names = ("each worker", "one model of all rows", "combined")
            lines += [
                Line(label=label, variant=variant, x=x, mean=y)
                for variant, (x, y) in zip(names, curves, strict=True)
            ]
        panels.append(Panel(title=title, lines=lines))
    return curve_rows(results), plot_panels(
        panels,
        looks=_LOOKS,
        x_label="samples per worker",
        y_label=results.measure.label,
        note=f"run 1 of {config.repeats}; {config.workers} workers",
    )


def curve_rows(results: Results[Config]) -> Rows:
    """Tabulate every repeat: its combined model, its single one and its workers' mean and range."""
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


def loss_rows(results: Results[Config]) -> Rows:
    """Tabulate final losses, a row for k and rule."""
    rows = []
    for contender, k, part in pca.parts_of(results):
        ends = results.ends.where(rule=contender.name, k=k)
        found = {name: str(Repeated.of(ends.where(model=name))) for name in MODELS}
        exact = f"{results.run.data.exact.exact_loss(k):.3f}"
        about = {"k": k, "rule": contender.label, **pca.rates_of(part)}
        rows.append({**about, "exact": exact, **found})
    return rows


def about_losses(results: Results[Config]) -> str:
    """Say what the table of final losses shows."""
    workers, seen = results.config.workers, int(results.ends["step"][0])
    return (
        f"{pca.about_losses(results)} Each of {workers} workers saw {seen:,} rows, the one model "
        f"{workers * seen:,}."
    )


def about_curves(results: Results[Config]) -> str:
    """Say what the figure shows."""
    config = results.config
    interval = config.interval(len(results.run.data.rows))
    return (
        f"Excess loss against the samples that each of {config.workers} workers has seen, from the "
        f"{'first combination' if first_drawn(results) else 'start'} on; models are combined every "
        f"{interval:,} samples. A thin line leads from the combined model to a worker's own just "
        "before the next combination. The one model has seen the rows of all workers at each point."
    )


EXPERIMENT = pca.experiment(
    name="distributed-pca",
    title="Principal components by several workers",
    paper="Amid & Warmuth 2020, Table 2 and Figure 2",
    presets=PRESETS,
    check=check,
    measure=measure,
    frame=frame,
    claims=claims,
    sections={
        "What the paper states": [design_of(__doc__), lambda r: r.run.data.about_data],
        "Final losses and learning curves": [
            pca.ABOUT_SANGER,
            Tabulated(
                name="table_2",
                rows=loss_rows,
                columns={
                    "k": "k",
                    "": "rule",
                    "γ": "power",
                    "η0": "learning_rate",
                    "exact": "exact",
                    "one model of all rows": "single",
                    "combined": "combined",
                    "mean worker": "workers",
                },
                caption=about_losses,
            ),
            Drawn(name="workers", caption=about_curves, draw=draw_workers),
        ],
    },
    summary=lambda r: {
        **pca.summary_of(r, "model"),
        "combine_every": r.config.interval(len(r.run.data.rows)),
    },
    deviations={
        **pca.DEVIATIONS,
        **pca.START,
        "data": f"{pca.SUBSET} A worker has 815 of its images, which are combined once.",
    },
)
