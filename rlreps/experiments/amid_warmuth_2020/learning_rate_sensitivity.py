"""Learning-rate sensitivity of streaming PCA (Amid & Warmuth 2020, Table 1).

η0 is chosen on a part of the rows and scaled by 0.1, 1 and 10; then every rule makes one pass over
the rows, one at a time.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.errors import require, require_interval, require_positive
from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.harness import Experiment, Findings, Found, Run, all_hold, table_of
from rlreps.plotting.lines import Line, Look, Panel, plot_panels
from rlreps.report.page import Section
from rlreps.sources.datasets import load_observations
from rlreps.streaming import run_passes

SCALES = (0.1, 1.0, 10.0)
"""Factors of the chosen η0 in the paper's table."""

EXCESS = "excess over the exact loss (%)"
CHOSEN, WORSE = "the chosen η0", "the worse of the other scales"
VERDICTS = {True: "within", False: "outside", None: "cannot be told"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """The paper's protocol by default, and its explicit rule from our start.

    Attributes:
        scales: Factors of the chosen η0, 1 among them; they share starts and orders of the rows.
        evaluations: Points of each curve after its start. Rows that do not fill the last interval
            between them are left out.
    """

    contenders: tuple[pca.Contender, ...] = (*pca.published(1e-5), pca.OUR_SANGER)
    scales: tuple[float, ...] = SCALES
    evaluations: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        pca.require_different("scales", self.scales)
        for scale in self.scales:
            require_interval("scales", scale, "(0, inf)")
        require(1.0 in self.scales, "1 among the scales", self.scales)
        require_positive("evaluations", self.evaluations)

    def scales_of(self, contender: pca.Contender) -> tuple[float, ...]:
        """Return the scales of a rule: 1 alone without a learning rate."""
        return self.scales if contender.learning_rates else (1.0,)


PRESETS = {
    "smoke": Config(
        contenders=(
            pca.Contender(rule="oja", powers=(0.9,), learning_rates=(0.1, 1.0, 10.0)),
            pca.Contender(rule="incremental_pca", powers=(), learning_rates=()),
            pca.Contender(rule=pca.SANGER, learning_rates=(0.01, 0.1), double=True),
            pca.Contender(rule=pca.IMPLICIT, learning_rates=(0.1, 1.0, 10.0)),
        ),
        components=(2, 4),
        repeats=2,
        evaluations=10,
    ),
    "laptop": Config(contenders=pca.choosing_power(Config().contenders, 0.7, 0.8, 0.9), repeats=3),
    "paper": Config(),
}


def check(config: Config, observations: Any) -> pca.PcaProblem:
    """Refuse rows that are too few, then find the exact components."""
    return pca.check(config, observations, config.evaluations, "evaluations")


def measure(run: Run[Config], name: str, cell: tuple[pca.Contender, int]) -> dict[str, Any]:
    """Choose γ and η0, then stream all scales and repeats once over the rows."""
    config, problem, (contender, k) = run.config, run.data, cell
    tuned = pca.choose_rates(config, contender, k, problem, run.devices)
    rate, scales = tuned["learning_rate"], config.scales_of(contender)
    streamed = contender.stream(
        run_passes,
        problem.rows,
        [seed for _ in scales for seed in config.seeds],
        [None if rate is None else rate * scale for scale in scales for _ in config.seeds],
        tuned["power"],
        k,
        evaluate=problem.loss,
        evaluate_every=len(problem.rows) // config.evaluations,
        devices=run.devices,
    )
    return {
        **tuned,
        "rows_seen": streamed.rows_seen.tolist(),
        "seconds": streamed.seconds.tolist(),
        "losses": np.reshape(streamed.figures, (-1, len(scales), config.repeats)).tolist(),
    }


def final(result: pca.Result) -> list[pca.Repeated]:
    """Summarise the final losses at each scale."""
    return [result.problem.repeated(losses) for losses in result.losses()[-1]]


def cells_of(
    config: Config, result: pca.Result
) -> list[tuple[float, pca.Repeated, pca.Printed | None]]:
    """List scales, what was found there and what the paper prints, if it does."""
    table = pca.TABLE_1.get(result.problem.data_set or "")
    known: Sequence[pca.Printed] = ()
    if table and result.contender.published:
        known = table[pca.PAPER_RULES.index(result.contender.rule)].get(result.k, ())
    scales, found = config.scales_of(result.contender), final(result)
    there = known and config.scales == SCALES
    return list(zip(scales, found, known if there else [None] * len(scales), strict=True))


def compare_with_paper(config: Config, results: Sequence[pca.Result]) -> list[Found]:
    """Set what the paper states beside what was found; its numbers only for rows of its data."""
    follows = config.follows(PRESETS["paper"], results[0].problem)
    claims = pca.batch_claims(results[0].problem, config.components)
    claims += [
        pca.printed_claim("Table 1", result, final(result), printed, follows and result.one_pass)
        for result in results
        if (printed := [cell for *_, cell in cells_of(config, result) if cell])
    ]
    scaled = [each for each in results if len(config.scales_of(each.contender)) > 1]

    def spread(result: pca.Result) -> pca.Entry:
        text = f"{np.ptp([found.mean for found in final(result)]):.3f}"
        return pca.Entry(result.label, result.losses()[-1], text)

    claims += pca.least_claims(
        scaled,
        spread,
        "Sensitivity to η0: largest less smallest mean loss over its scales",
        follows,
        measure=lambda means: np.asarray(np.ptp(means, axis=0)),
    )
    others = [each for each in scaled if each.contender.published]
    for result in (each for each in others if each.contender.rule != pca.IMPLICIT):
        losses, chosen = result.losses()[-1], config.scales.index(1.0)
        rest = [index for index in range(len(losses)) if index != chosen]
        worse = all_hold(pca.is_less(losses[chosen], losses[index]) for index in rest)
        claims.append(
            Found(
                statement=f"Sensitivity to η0, {result.label}, k = {result.k}: loss at "
                + ", ".join(f"{scale:g} η0" for scale in config.scales),
                stated="deteriorates as η0 is altered either way",
                found=", ".join(map(str, final(result))),
                holds=worse if follows else None,
            )
        )
    return claims


def range_line(label: str, x: npt.ArrayLike, runs: pca.DoubleArray, **others: Any) -> Line:
    """Make a line of the means of runs [p, repeats] with their ranges."""
    ends = {"low": runs.min(axis=1), "high": runs.max(axis=1)}
    return Line(label=label, x=x, mean=runs.mean(axis=1), **ends, **others)


def draw(config: Config, results: Sequence[pca.Result]) -> tuple[Figure, Figure]:
    """Draw excess loss against rows, and at the end against the factor of the chosen η0."""
    order = np.argsort(config.scales)
    scales = [config.scales[index] for index in order]
    looks = {CHOSEN: Look()}
    worse_look = Look(linestyle=(0, (4, 2)), linewidth=1.2, marked=False)
    curves: dict[int, list[Line]] = {k: [] for k in config.components}
    ends: dict[int, list[Line]] = {k: [] for k in config.components}
    for result in results:
        excess, own = result.excess(result.losses()[1:]), config.scales_of(result.contender)
        seen, chosen = result.rows_seen[1:], excess[:, own.index(1.0)]
        curves[result.k].append(range_line(result.label, seen, chosen, variant=CHOSEN))
        if len(own) > 1:
            mean = excess.mean(axis=2)
            others = [index for index, scale in enumerate(own) if scale != 1.0]
            worse = max(others, key=lambda index: mean[-1, index])
            looks[WORSE] = worse_look
            line = Line(label=result.label, variant=WORSE, x=seen, mean=mean[:, worse])
            curves[result.k].append(line)
        at_end = np.broadcast_to(excess[-1], (len(scales), config.repeats))
        values = at_end[order] if len(own) > 1 else at_end
        ends[result.k].append(range_line(result.label, scales, values))
    drawn = []
    for lines, options in (
        (curves, {"x_label": "samples", "looks": looks}),
        (ends, {"x_label": "factor of the chosen η0", "log_x": len(scales) > 1, "x_ticks": scales}),
    ):
        panels = [Panel(title=f"k = {k}", lines=of_k) for k, of_k in lines.items()]
        note = f"mean over {config.repeats} runs; from the least to the greatest run"
        drawn.append(plot_panels(panels, y_label=EXCESS, note=note, **options))
    return drawn[0], drawn[1]


def curve_rows(config: Config, results: Sequence[pca.Result]) -> list[dict[str, Any]]:
    """Tabulate means and ranges over repeats at every point."""
    return [
        {
            **{"rule": result.contender.name, "k": result.k, "scale": scale, "rows_seen": seen},
            "excess_percent": values.mean(),
            "excess_percent_least": values.min(),
            "excess_percent_greatest": values.max(),
        }
        for result in results
        for seen, point in zip(result.rows_seen, result.excess(result.losses()), strict=True)
        for scale, values in zip(config.scales_of(result.contender), point, strict=True)
    ]


def cell_rows(config: Config, results: Sequence[pca.Result]) -> list[dict[str, Any]]:
    """Tabulate final losses beside the printed ones, a row for each cell of the paper's table."""
    rows = []
    for result in results:
        rates, exact = result.rates, result.problem.exact_loss(result.k)
        for scale, found, printed in cells_of(config, result):
            row = {"k": result.k, "rule": result.contender.name, "scale": scale, **rates}
            row |= {"exact": exact, **found._asdict()}
            if printed is not None:
                row |= {"printed": printed.mean, "printed_deviation": printed.deviation}
                verdict = VERDICTS[result.within(found, printed)]
                row["within"] = verdict if result.problem.is_whole else "other data"
            rows.append(row)
    return rows


def table_rows(config: Config, results: Sequence[pca.Result]) -> list[dict[str, str]]:
    """Write final losses in the paper's layout: k and scale down, rules across."""
    rows = {
        (k, scale): {"k": str(k), "factor of η0": f"{scale:g}"}
        for k in config.components
        for scale in config.scales
    }
    for result in results:
        for scale, found, printed in cells_of(config, result):
            beside = f" [{printed}]" if printed is not None else ""
            rows[result.k, scale][result.label] = f"{found}{beside}"
    return list(rows.values())


def report(run: Run[Config], found: Mapping[str, Mapping[str, Any]]) -> Findings:
    """Make the findings of all rules and k."""
    config, problem = run.config, run.data
    results = pca.Result.of_run(run, found)
    table = table_rows(config, results)
    tuning = pca.tuning_rows(results)
    run.write_rows("table_1", table)
    run.write_rows("tuning", tuning)
    curves, scales = draw(config, results)
    dashed = f", dashed with {WORSE}" if len(config.scales) > 1 else ""
    sections = [
        Section(
            title="What the paper states",
            text="A printed cell is held against the mean over our runs: within the printed "
            "deviation and rounding, outside it with the whole 95 % interval of our mean, or "
            "neither; implicit Krasulina's within 0.02. The comparison of rules is decided where "
            "the 95 % interval of the difference, of runs paired by their seeds, leaves out 0 and "
            "no run diverged." + problem.about_data,
        ),
        Section(
            title="Final losses",
            text=pca.ABOUT_SANGER,
            tables=[
                table_of(
                    table,
                    {name: name for name in dict.fromkeys(key for row in table for key in row)},
                    "Final loss, the mean of ||x − Px||² over all "
                    f"{len(problem.rows):,} rows of {problem.name}: mean ± standard deviation over "
                    f"{config.repeats} runs, in brackets as printed. A run that diverged counts "
                    f"with the loss of no components, {problem.no_components:.3f}. Exact losses: "
                    + ", ".join(
                        f"{problem.exact_loss(k):.3f} (k = {k})" for k in config.components
                    ),
                )
            ],
        ),
        Section(
            title="Learning curves",
            figures=[
                run.show(
                    "curves",
                    f"Excess loss against samples with the chosen η0{dashed}; the start is not "
                    "shown.",
                    curve_rows(config, results),
                    curves,
                ),
                run.show(
                    "scales",
                    "Excess loss at the end against the factor of the chosen η0.",
                    cell_rows(config, results),
                    scales,
                ),
            ],
        ),
        Section(
            title="The choice of γ and η0",
            tables=[
                table_of(
                    [row for row in tuning if row["chosen"]],
                    {"": "rule", "k": "k", "γ": "power", "η0": "learning_rate", "loss": "loss"},
                    f"Pair of least loss on {config.tuning_fraction:.0%} of the rows after one "
                    "pass over them; `results/tuning.csv` has all that were tried.",
                )
            ],
        ),
    ]
    described = [
        {
            "scales": config.scales_of(each.contender),
            **{key: [cell[key] for cell in cells] for key in cells[0]},
        }
        for each in results
        if (cells := [one._asdict() for one in final(each)])
    ]
    summary = pca.summary_of(run, results, described)
    diverged = sum(one.diverged for each in results for one in final(each))
    return Findings(
        abstract=f"{len(config.contenders)} streaming rules on {problem.name}, one row at a time, "
        f"one pass over {int(results[0].rows_seen[-1]):,} rows: η0 chosen on a part of them, then "
        f"scaled by {', '.join(f'{scale:g}' for scale in config.scales)}; {config.repeats} runs "
        f"each. {diverged} runs diverged. All updates took {summary['seconds']:,.0f} s.",
        claims=compare_with_paper(config, results),
        sections=sections,
        summary=summary,
    )


EXPERIMENT = Experiment[Config](
    name="learning-rate-sensitivity",
    title="How much the initial learning rate matters",
    paper="Amid & Warmuth 2020, Table 1",
    presets=PRESETS,
    load=load_observations,
    check=check,
    cells=pca.cells,
    measure=measure,
    report=report,
    counts_cells=True,
    deviations=pca.DEVIATIONS,
)
