"""Table, claims and report of the experiment on workers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.amid_warmuth_2020.distributed_pca.figures import draw_workers, first_shown
from rlreps.experiments.amid_warmuth_2020.distributed_pca.findings import RuleResult, judge
from rlreps.experiments.amid_warmuth_2020.pca_findings import IMPLICIT
from rlreps.experiments.amid_warmuth_2020.pca_losses import counted, excess_percent
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_report import by_rule, write_pca_report
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.page import Section, Table
from rlreps.runs.folder import RunFolder


def write_distributed_report(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    results: Sequence[RuleResult],
) -> dict[str, Any]:
    """Writes figure, results and report of a finished run; returns its summary."""
    figure = draw_workers(config, problem, results)
    write_results(folder, "workers", _curve_rows(config, problem, results), figure)
    write_results(folder, "table_2", _table_rows(problem, results))
    claims = judge(problem, results)
    return write_pca_report(
        config,
        problem,
        folder,
        title="Principal components by several workers",
        abstract=_abstract(config, problem, results),
        sections=_sections(config, problem, folder, results, claims),
        claims=claims,
        found={
            "combine_every": config.interval(len(problem.rows)),
            **by_rule(
                results,
                [
                    {name: found._asdict() for name, found in result.final(problem).items()}
                    for result in results
                ],
            ),
        },
    )


def _table_rows(problem: PcaProblem, results: Sequence[RuleResult]) -> list[dict[str, Any]]:
    return [
        {
            "k": result.k,
            "rule": result.rule,
            "learning_rate": result.learning_rate,
            "exact": problem.exact_loss(result.k),
            **{
                f"{model}_{name}": value
                for model, found in result.final(problem).items()
                for name, value in found._asdict().items()
            },
        }
        for result in _by_components(results)
    ]


def _by_components(results: Sequence[RuleResult]) -> list[RuleResult]:
    """Results with those of one k together."""
    order = list(dict.fromkeys(result.k for result in results))
    return sorted(results, key=lambda result: order.index(result.k))


def _curve_rows(
    config: DistributedPcaConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> list[dict[str, Any]]:
    """Every repeat: its combined model, its single one and the mean and range of its workers."""
    rows = []
    for result in results:
        combined, single, workers = (
            excess_percent(losses, problem, result.k)
            for losses in (result.combined, result.single, result.workers)
        )
        for point, seen in enumerate(result.rows_seen):
            rows += [
                {
                    "rule": result.rule,
                    "k": result.k,
                    "seed": seed,
                    "rows_seen_by_worker": seen,
                    "combined_excess_percent": combined[point, run],
                    "single_excess_percent": single[point, run],
                    "workers_excess_percent": workers[point, run].mean(),
                    **{
                        f"worker_{index + 1}_excess_percent": excess
                        for index, excess in enumerate(workers[point, run])
                    },
                }
                for run, seed in enumerate(config.seeds)
            ]
    return rows


def loss_table(
    config: DistributedPcaConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> Table:
    """Final losses, a row for k and rule."""
    header = (
        "k",
        "",
        "chosen η0",
        "exact",
        "combined",
        "mean worker, before",
        "one model of all rows",
    )
    rows = [
        (
            result.k,
            result.title,
            None if np.isnan(result.learning_rate) else f"{result.learning_rate:g}",
            f"{problem.exact_loss(result.k):.3f}",
            *(str(found) for found in result.final(problem).values()),
        )
        for result in _by_components(results)
    ]
    seen = int(results[0].rows_seen[-1])
    return Table(
        header,
        rows,
        f"Final loss, the mean of ||x − Px||² over all {len(problem.rows):,} rows of "
        f"{problem.name}: mean ± standard deviation over {config.repeats} runs. Each of "
        f"{config.workers} workers saw {seen:,} rows, the one model {config.workers * seen:,}. "
        "What diverged counts with the loss of no components, "
        f"{float(counted(np.nan, problem)):.3f}.",
    )


def _sections(
    config: DistributedPcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    results: Sequence[RuleResult],
    claims: Sequence[Claim],
) -> list[Section]:
    interval = config.interval(len(problem.rows))
    start = "first combination" if first_shown(results[0]) else "start"
    return [
        Section(
            title="What we expected",
            text="The values printed in the paper's Table 2 were not at hand, so that nothing here "
            "is judged by them. An expectation of ours is told where the 95 % interval of the "
            "difference, of runs paired by their seeds, leaves out 0 and nothing diverged. Factors "
            "of implicit Krasulina are combined by their mean (the online-EM average, Eq. 18), "
            "orthonormal bases by the subspace nearest to all of them, and incremental PCA by the "
            f"mean of the workers' second moments.{_first_combinations(results)}",
            tables=[claims_table(claims, stated="our expectation")],
        ),
        Section(
            title="Final losses and learning curves",
            tables=[loss_table(config, problem, results)],
            figures=[
                (
                    folder.figures / "workers.png",
                    f"Excess loss against the samples that each of {config.workers} workers has "
                    f"seen, from the {start} on; models are combined every "
                    f"{interval:,} samples{_fewer(config, interval)}. A thin line leads "
                    "from the combined model to a worker's own just before the next combination. "
                    "The one model has seen the rows of all workers at each point.",
                )
            ],
        ),
    ]


def _first_combinations(results: Sequence[RuleResult]) -> str:
    """Why implicit Krasulina's first combined model was worse than its workers, where it was."""
    poor = [
        str(result.k)
        for result in results
        if result.rule == IMPLICIT and result.first_combination_helped is False
    ]
    if not poor:
        return ""
    return (
        " From a start close to zero each worker's factor grows in hidden coordinates of its own, "
        "which a mean does not bring together: implicit Krasulina's first combined model was worse "
        f"than its workers here, for k = {', '.join(poor)}."
    )


def _fewer(config: DistributedPcaConfig, interval: int) -> str:
    """That workers have fewer rows than they were to learn from between combinations."""
    if interval == config.combine_every:
        return ""
    return f" (all that a worker has, fewer than the {config.combine_every:,} asked for)"


def _abstract(
    config: DistributedPcaConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> str:
    seconds, interval = (
        sum(result.seconds for result in results),
        config.interval(len(problem.rows)),
    )
    diverged = sum(found.diverged for result in results for found in result.final(problem).values())
    return (
        f"{config.workers} workers on {problem.name}: each learns from its share of the permuted "
        "rows, one at a time, and all go on from one combined model after every "
        f"{interval:,} samples{_fewer(config, interval)}; {config.repeats} runs each. "
        f"{diverged} models diverged. All workers' updates and combinations took {seconds:,.0f} s."
    )
