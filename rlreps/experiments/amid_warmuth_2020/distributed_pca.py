"""Streaming PCA by several workers, whose models are combined again and again (Table 2, Fig. 2)."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.errors import require, require_positive
from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.harness import Experiment, Findings, Found, Run, all_hold
from rlreps.plotting.lines import Line, Look, Panel, plot_panels
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.sources.datasets import load_observations
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


_FACTORS = (pca.SANGER, pca.IMPLICIT)
PUBLISHED = tuple(_combined("", rule, rule not in _FACTORS) for rule in pca.PAPER_RULES)
OURS = (
    _combined("nearest subspace", "oja", False),
    _combined("nearest subspace", "krasulina", False),
    _combined("mean of second moments", "incremental_pca", False),
    # The authors' code starts from there in this table.
    dataclasses.replace(_combined("start of 1e-4", pca.IMPLICIT, False), initial_scale=1e-4),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """The paper's protocol by default, our ways to combine bases, and another start.

    Attributes:
        workers: M, that go on from a common model.
        combine_every: Rows that each worker learns from between combinations; all of its rows,
            where it has fewer.
    """

    contenders: tuple[Contender, ...] = (*PUBLISHED, *OURS)
    components: tuple[int, ...] = (5, 20)
    workers: int = 10
    combine_every: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("combine_every", self.combine_every)
        require(self.workers >= 2, "workers >= 2", self.workers)

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
    tuned = pca.choose_rates(config, contender, k, problem, run.devices)
    interval, rates = config.interval(len(problem.rows)), [tuned["learning_rate"]] * config.repeats
    runs = (problem.rows, list(config.seeds), rates, tuned["power"], k)
    options = {"evaluate": problem.loss, "devices": run.devices}
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


def final(result: pca.Result) -> dict[str, pca.Repeated]:
    """Summarise final losses by model; of workers their mean's."""
    return {name: result.problem.repeated(result.losses(name)[-1]) for name in MODELS}


def judge(config: Config, results: Sequence[pca.Result]) -> list[Found]:
    """Set what the paper states beside what was found."""
    as_often = int(results[0].rows_seen[1]) == config.combine_every
    problem = results[0].problem
    follows = config.follows(PRESETS["paper"], problem) and as_often
    claims = pca.batch_claims(problem, config.components)
    ours = [
        each for each in results if each.contender.rule == pca.IMPLICIT and each.contender.published
    ]
    (table,) = pca.TABLE_2.get(problem.data_set or "", [{}])
    for result in ours:
        found = [final(result)[name] for name in MODELS[:2]]
        if result.k in table:
            printed = table[result.k]
            claim = pca.printed_claim(
                "Table 2, single and combined (start of 1e-5)", result, found, printed, follows
            )
            claims.append(claim)
    for result in ours:
        combined, workers = result.losses("combined")[1:], result.losses("workers")[1:].mean(axis=2)
        falls = [pca.is_less(new, old) for old, new in itertools.pairwise(combined)]
        less = [pca.is_less(*point) for point in zip(combined, workers, strict=True)]
        claims.append(
            Found(
                statement=f"Fig. 2 (caption), {result.label}, k = {result.k}: the combined model",
                stated="consistently improves over time by combining (judged: its loss falls with "
                "every combination)",
                found=f"{combined[0].mean():.4f} to {combined[-1].mean():.4f}; less than at the "
                f"combination before in {falls.count(True)} of {len(falls)}, more in "
                f"{falls.count(False)}; below the mean worker ({workers[-1].mean():.4f} at the "
                f"last) at {less.count(True)} of {len(less)}",
                holds=all_hold(falls) if follows else None,
            )
        )

    def entry(result: pca.Result) -> pca.Entry:
        text = f"{final(result)['combined'].mean:.4f}"
        return pca.Entry(result.label, result.losses("combined")[-1], text)

    about = "Fig. 2: final loss of the combined model, the paper's ways to combine"
    return claims + pca.least_claims(results, entry, about, follows)


def sawteeth(
    seen: npt.NDArray[np.int64],
    combined: npt.NDArray[np.float64],
    workers: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Lead workers' lines from each combination to the next, with gaps in between.

    Args:
        seen: Rows at each combination, [p].
        combined: Of the combined model, [p].
        workers: Of the workers just before it, [p, workers].

    Returns:
        x [3p - 3] and heights [workers, 3p - 3], NaN in every third place.
    """
    gap = np.full(len(seen) - 1, np.nan)
    x = np.stack([seen[:-1], seen[1:], seen[1:]], axis=1).astype(np.float64).ravel()
    heights = [np.stack([combined[:-1], own[1:], gap], axis=1).ravel() for own in workers.T]
    return x, np.asarray(heights)


def draw_workers(config: Config, results: Sequence[pca.Result], start: int) -> Figure:
    """Draw the first repeat's excess loss against the rows that each worker has seen."""
    panels: dict[int, list[Line]] = {k: [] for k in config.components}
    for result in results:
        combined, workers, single = (
            result.excess(result.losses(name)[start:, 0])
            for name in ("combined", "workers", "single")
        )
        seen = result.rows_seen[start:]
        curves = (sawteeth(seen, combined, workers), (seen, single), (seen, combined))
        names = ("each worker", "one model of all rows", "combined")
        panels[result.k] += [
            Line(label=result.label, variant=variant, x=x, mean=y)
            for variant, (x, y) in zip(names, curves, strict=True)
        ]
    return plot_panels(
        [Panel(title=f"k = {k}", lines=lines) for k, lines in panels.items()],
        looks=_LOOKS,
        x_label="samples per worker",
        y_label="excess over the exact loss (%)",
        note=f"run 1 of {config.repeats}; {config.workers} workers",
    )


def curve_rows(config: Config, results: Sequence[pca.Result]) -> list[dict[str, Any]]:
    """Tabulate every repeat: its combined model, its single one and its workers' mean and range."""
    rows = []
    for result in results:
        single, combined, workers = (result.excess(result.losses(name)) for name in MODELS)
        rows += [
            {
                **{"rule": result.contender.name, "k": result.k, "seed": seed},
                "rows_seen_by_worker": seen,
                "combined_excess_percent": combined[point, run],
                "single_excess_percent": single[point, run],
                "workers_excess_percent": workers[point, run].mean(),
                "workers_least": workers[point, run].min(),
                "workers_greatest": workers[point, run].max(),
            }
            for point, seen in enumerate(result.rows_seen)
            for run, seed in enumerate(config.seeds)
        ]
    return rows


def loss_rows(results: Sequence[pca.Result]) -> list[dict[str, Any]]:
    """Tabulate final losses, a row for k and rule."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"k": result.k, "rule": result.label, **result.rates}
        row["exact"] = f"{result.problem.exact_loss(result.k):.3f}"
        rows.append({**row, **{name: str(found) for name, found in final(result).items()}})
    return rows


def report(run: Run[Config], found: Mapping[str, Mapping[str, Any]]) -> Findings:
    """Make the findings of all rules and k."""
    config, problem = run.config, run.data
    results = pca.Result.of_run(run, found)
    table = loss_rows(results)
    run.write_rows("table_2", table)
    seen, interval = results[0].rows_seen, config.interval(len(problem.rows))
    # What all rules start from is two decades above what tells them apart: it is drawn only where a
    # single combination follows.
    first = 1 if len(seen) > 2 else 0
    fewer = (
        f" (all that a worker has, fewer than the {config.combine_every:,} asked for)"
        if interval < config.combine_every
        else ""
    )
    header = ("k", "", "γ", "η0", "exact", "one model of all rows", "combined", "mean worker")
    sections = [
        Section(
            title="What the paper states",
            text="The paper combines orthonormal bases, and those of incremental PCA, by their "
            "mean and a QR decomposition, for want of a systematic way; factors by their mean (the "
            "online-EM average, Eq. 18). The ways of ours beside it are the subspace nearest to "
            "all bases and, of incremental PCA, the mean of the workers' second moments. Of "
            "incremental PCA's singular values after a mean of bases the text says nothing: they "
            "are one, as in the authors' code. The 37.17 of Table 2 is 35.17 in Table 1: our value "
            "is held against both tables. A comparison is decided where the 95 % interval of the "
            "difference, of runs paired by their seeds, leaves out 0 and nothing diverged."
            + problem.about_data,
        ),
        Section(
            title="Final losses and learning curves",
            text=pca.ABOUT_SANGER,
            tables=[
                Table(
                    header,
                    [list(row.values()) for row in table],
                    "Final loss, the mean of ||x − Px||² over all "
                    f"{len(problem.rows):,} rows of {problem.name}: mean ± standard deviation over "
                    f"{config.repeats} runs. Each of {config.workers} workers saw {seen[-1]:,} "
                    f"rows, the one model {config.workers * seen[-1]:,}. What diverged counts with "
                    f"the loss of no components, {problem.no_components:.3f}.",
                )
            ],
            figures=[
                run.show(
                    "workers",
                    f"Excess loss against the samples that each of {config.workers} workers has "
                    f"seen, from the {'first combination' if first else 'start'} on; models are "
                    f"combined every {interval:,} samples{fewer}. A thin line leads from the "
                    "combined model to a worker's own just before the next combination. The one "
                    "model has seen the rows of all workers at each point.",
                    curve_rows(config, results),
                    draw_workers(config, results, first),
                )
            ],
        ),
    ]
    described = [{name: one._asdict() for name, one in final(result).items()} for result in results]
    diverged = sum(one["diverged"] for each in described for one in each.values())
    summary = pca.summary_of(run, results, described)
    return Findings(
        abstract=f"{config.workers} workers on {problem.name}: each learns from its share of the "
        "permuted rows, one at a time, and all go on from one combined model after every "
        f"{interval:,} samples{fewer}; {config.repeats} runs each. {diverged} models diverged. All "
        f"workers' updates and combinations took {summary['seconds']:,.0f} s.",
        claims=judge(config, results),
        sections=sections,
        summary={**summary, "combine_every": interval},
    )


EXPERIMENT = Experiment[Config](
    name="distributed-pca",
    title="Principal components by several workers",
    paper="Amid & Warmuth 2020, Table 2 and Figure 2",
    presets=PRESETS,
    load=load_observations,
    check=check,
    cells=pca.cells,
    measure=measure,
    report=report,
    counts_cells=True,
    deviations={
        **pca.DEVIATIONS,
        **pca.START,
        "data": f"{pca.SUBSET} A worker has 815 of its images, which are combined once.",
    },
)
