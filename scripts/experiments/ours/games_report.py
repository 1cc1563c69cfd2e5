"""Analyses of agents in worlds: what predicts success, and which gains go together."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from scipy.stats import bootstrap, rankdata

from rlreps.experiments.ours.games_runs import (
    ARMS,
    CONTROL,
    COUNTED,
    EXACT,
    FITTED,
    JOINT,
    LEADING,
    MEASURES,
    RANDOM,
    SCRATCH,
    WIDER,
    Config,
    exact_truth,
    family_of,
    labels_of,
    load_board,
    own_objectives,
    task_cumulants,
)
from rlreps.plotting import signed_colormap, styled
from rlreps.stats import (
    Interval,
    Sample,
    Verdict,
    all_of,
    any_of,
    contrast_rows,
    format_interval,
    interval_columns,
    judge_family,
    judge_interval,
    mean_interval,
)
from rlreps.study import Results, TableRows
from rlreps.typing import DoubleArray

MAIN, ASIDE = "main", "kept aside"
"""Groups of worlds."""

OWN = tuple(label for label in ARMS if label not in (EXACT, COUNTED))
"""Arms whose features are their own."""

RESAMPLES = 1_000
"""Number of bootstrap samples of an interval."""

FEWEST = {MAIN: 8, ASIDE: 3}
"""Least number of families of a group for a verdict."""

LEAST_CORRELATION = 0.1
"""Rank correlation that counts as an effect."""

LEAST_GAIN = 0.05
"""Difference in mean success that counts as an effect."""

_RARE = 0.05
"""Least share of agents that succeed later, and of agents that fail."""


def correlate_ranks(first: DoubleArray, second: DoubleArray, given: Sequence[DoubleArray]) -> float:
    """Compute the partial rank correlation of two samples [n], given others; NaN if one is flat."""
    ranks = rankdata(np.stack([first, second, *given]), axis=1).T
    rest = np.concatenate([np.ones((len(first), 1)), ranks[:, 2:]], axis=1)
    left, right = (ranks[:, :2] - rest @ np.linalg.lstsq(rest, ranks[:, :2])[0]).T
    sizes = np.linalg.norm(left) * np.linalg.norm(right)
    flat = 1e-9 * len(first) ** 3
    return float(left @ right / sizes) if sizes > flat else np.nan


def prediction(
    results: Results[Config], measure: str, group: str, *, within: bool = False
) -> Sample:
    """Correlate a measure at half of the run with later success, in each family of worlds.

    The correlation is that of ranks over agents of a world, given the success up to then, the last
    success and the R² of the optimal values at that time. A family counts with the mean of its
    worlds; worlds in which fewer than one agent in 20 succeeds later, or fails, are left out.

    Args:
        results: The results.
        measure: One of ``MEASURES``.
        group: ``MAIN`` or ``ASIDE``.
        within: Whether to compare agents within arms alone: each arm's means are subtracted.
    """
    half, found = results.config.base.steps // 2, dict[str, list[float]]()
    chosen = results.frame.where(group=group, arm=OWN)
    for (family, _), rows in chosen.groups("family", "world").items():
        parts: list[DoubleArray] = []
        for arm in rows.groups("arm").values():
            then = arm.where(step=half)
            after, before = (
                arm.where(step=which).pivot("success", "seed")[0][:, 0]
                for which in (lambda step: step > half, lambda step: step <= half)
            )
            parts.append(
                np.stack([then[measure], after, before, then["success"], then["value_r2"]])
            )
        share = np.mean(np.concatenate(parts, axis=1)[1] > 0.5)
        if within:
            parts = [part - part.mean(axis=1, keepdims=True) for part in parts]
        at, after, before, last, values = np.concatenate(parts, axis=1)
        given = [before, last] if measure == "value_r2" else [before, last, values]
        correlation = correlate_ranks(at, after, given)
        if np.isfinite(correlation) and _RARE <= share <= 1.0 - _RARE:
            found.setdefault(family, []).append(correlation)
    means = np.array([np.mean(each) for each in found.values()])
    return Sample(means, [*found], fewest=FEWEST[group])


def judge_prediction(results: Results[Config], group: str) -> Verdict:
    """Judge that closeness at half of the run predicts later success in a group of worlds."""
    found = prediction(results, "closeness", group)
    count = len(found.values)
    if count < FEWEST[group]:
        return Verdict(None, f"families: {count}, at least {FEWEST[group]} needed")
    return found > LEAST_CORRELATION


def list_gains(results: Results[Config], arms: Iterable[str] = JOINT) -> dict[str, DoubleArray]:
    """List each arm's gains over scratch in closeness and steps, by family.

    Closeness is that of agents with even seeds at the first checkpoint after the start, and steps
    are those of agents with odd seeds, so that chance does not join the two.

    Returns:
        Arm → [4, families]: closeness, steps saved, effective horizon, number of states.
    """
    config, known = results.config, results.once(describe_worlds)
    early = min(step for step in config.checkpoints if step)
    halves = [[seed for seed in config.base.seeds if seed % 2 == odd] for odd in (0, 1)]
    closeness = partial(results.sample, "closeness", group=MAIN, step=early, seed=halves[0])
    steps = partial(results.end, "steps_to", group=MAIN, seed=halves[1])
    found = {}
    for arm in (label for label in arms if label in labels_of(config)):
        closer = closeness(arm=arm) - closeness(arm=SCRATCH)
        saved = steps(arm=SCRATCH) - steps(arm=arm)
        about = [
            [
                np.mean([known[name][key] for name in config.worlds if family_of(name) == family])
                for family in closer.units
            ]
            for key in ("horizon", "states")
        ]
        found[arm] = np.stack([closer.values, saved.values, *np.array(about)])
    return found


def gain_interval(gains: Mapping[str, DoubleArray]) -> Interval:
    """Return the mean of the arms' partial rank correlations, with a bootstrap interval.

    Families are drawn with replacement. An arm without a correlation in a draw counts as 0. The
    mean does not exist if an arm has no correlation over all families.
    """

    def correlations(chosen: Any) -> list[float]:
        drawn = (columns[:, chosen] for columns in gains.values())
        return [correlate_ranks(closer, saved, given) for closer, saved, *given in drawn]

    every = np.arange(next(iter(gains.values())).shape[1])
    mean = float(np.mean(correlations(every)))
    if len(every) < 2 or np.isnan(mean):
        return Interval(mean, np.nan, np.nan)
    found = bootstrap(
        (every,),
        lambda chosen: float(np.mean(np.nan_to_num(correlations(chosen)))),
        vectorized=False,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=0,
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def judge_gain(results: Results[Config]) -> Verdict:
    """Judge that gains in closeness and in steps to the threshold go together over families."""
    gains = list_gains(results)
    count = next(iter(gains.values())).shape[1]
    if count < FEWEST[MAIN]:
        return Verdict(None, f"families: {count}, at least {FEWEST[MAIN]} needed")
    found, least = gain_interval(gains), LEAST_CORRELATION
    holds = judge_interval(found.low, found.high, least)
    return Verdict(holds, f"{format_interval(found, signed=True)} in {count} families")


def _rivals(arm: str) -> tuple[str, ...]:
    """List the arms that an arm must beat: fitted features also beat random ones."""
    return (SCRATCH, WIDER, RANDOM) if arm == FITTED else (SCRATCH, WIDER)


def judge_any(results: Results[Config], arms: Sequence[str]) -> Verdict:
    """Judge that some of these arms raises mean success over scratch and the wider network.

    p-values are adjusted for the comparisons of all joint losses and fitted features.
    """
    end = partial(results.end, "mean_success", group=MAIN)
    found = judge_family(
        {
            (arm, other): end(arm=arm).needing(FEWEST[MAIN]).against(end(arm=other), LEAST_GAIN)
            for arm in (*JOINT, FITTED)
            for other in _rivals(arm)
        }
    )
    return any_of(
        {arm: all_of({other: found[arm, other] for other in _rivals(arm)}) for arm in arms}
    )


def judge_exact(results: Results[Config]) -> Verdict:
    """Judge that exact components raise mean success over scratch and over random features."""
    end = partial(results.end, "mean_success", group=MAIN)
    exact = end(arm=EXACT).needing(FEWEST[MAIN])
    rivals = (SCRATCH, RANDOM)
    return all_of({arm: exact.against(end(arm=arm), LEAST_GAIN).above for arm in rivals})


def judge_bound(results: Results[Config]) -> Verdict:
    """Judge that no joint loss gains more in mean success than exact components do."""
    end = partial(results.end, "mean_success", group=MAIN)
    exact = end(arm=EXACT).needing(FEWEST[MAIN])
    return all_of({arm: end(arm=arm) < exact for arm in JOINT})


def confirm(results: Results[Config], arms: Sequence[str]) -> Verdict:
    """Judge that the arm with the greatest gain over scratch gains in every world kept aside.

    A world without a gain refutes it. Gains in all worlds do not decide: by chance, an arm without
    an effect gains in four worlds one time in 16.
    """

    def gain(arm: str, group: str) -> DoubleArray:
        end = partial(results.end, "mean_success", group=group)
        return (end(arm=arm) - end(arm=SCRATCH)).values

    best = max(arms, key=lambda arm: float(gain(arm, MAIN).mean()))
    found = gain(best, ASIDE)
    words = f"{best}: {', '.join(f'{each:+.3f}' for each in found)}"
    return Verdict(None if (found > 0.0).all() else False, words)


def describe_worlds(results: Results[Config]) -> dict[str, dict[str, float]]:
    """Return the states, actions, effective horizon and ceiling of each world.

    The ceiling is the closeness of as many features as agents have, if they learned the targets of
    ``large batch`` perfectly: the number of cumulants limits it.
    """
    base, found = results.config.base, {}
    for name in (*results.config.worlds, *results.config.aside):
        world, discount = load_board(name), base.dqn.discount
        horizon = world.effective_horizon(discount, steps=base.max_episode_steps)
        targets = world.successor(discount=discount).multiply(task_cumulants(world.observations))
        learned = np.linalg.svd(targets - targets.mean(axis=0), full_matrices=False)[0]
        features = learned[:, : base.num_features]
        found[name] = {
            "states": world.num_states,
            "actions": world.num_actions,
            "horizon": np.nan if horizon is None else horizon,
            "ceiling": 1.0
            - exact_truth(name, discount).distance(features, LEADING, intercept=True),
        }
    return found


def tabulate_worlds(results: Results[Config]) -> TableRows:
    """List each world with its size and the mean success of every arm."""
    config, ends = results.config, results.ends
    means = {
        key: float(each["mean_success"].mean()) for key, each in ends.groups("world", "arm").items()
    }
    return [
        {
            "world": name,
            "group": ASIDE if name in config.aside else MAIN,
            **about,
            **{arm: means[name, arm] for arm in labels_of(config)},
        }
        for name, about in results.once(describe_worlds).items()
    ]


@styled
def draw_success(results: Results[Config]) -> tuple[None, Figure]:
    """Draw the mean success of every arm in every world, coloured by its difference from scratch.

    The table of worlds has the numbers.
    """
    config, worlds = results.config, results.once(tabulate_worlds)
    labels = labels_of(config)
    means = np.array([[row[label] for label in labels] for row in worlds])
    above = means - means[:, [labels.index(SCRATCH)]]
    figure = Figure(figsize=(1.9 + 0.47 * len(labels), 1.7 + 0.25 * len(worlds)))
    axes = figure.subplots()
    colors = signed_colormap()
    steps = BoundaryNorm(np.linspace(-0.55, 0.55, 12), colors.N, extend="both")
    image = axes.imshow(above, cmap=colors, norm=steps, aspect="auto")
    axes.invert_yaxis()
    for (row, column), mean in np.ndenumerate(means):
        color = "white" if abs(above[row, column]) > 0.35 else "black"
        axes.text(column, row, f"{mean:.2f}", color=color, ha="center", va="center", fontsize=7.5)
    if config.aside:
        axes.axhline(len(config.worlds) - 0.5, color="black", linewidth=1.2)
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="left")
    axes.set_yticks(range(len(worlds)), [str(row["world"]) for row in worlds])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.grid(visible=False)
    ticks = np.linspace(-0.45, 0.45, 4)
    figure.colorbar(image, label="difference from scratch", ticks=ticks, fraction=0.03, pad=0.02)
    return None, figure


def about_diverged(results: Results[Config]) -> str:
    """Name the worlds in which an objective of the user's own diverged, and say why."""
    told = [
        f"{name}: {found['diverged']}"
        for name, found in results.found.items()
        if "diverged" in found
    ]
    return f"Diverged, and counted as without success: {'; '.join(told)}." if told else ""


def tabulate_arms(results: Results[Config]) -> TableRows:
    """Contrast the mean success of every arm with scratch, wider and random features.

    p-values of arms of the user's own are adjusted for their own comparisons alone.
    """
    labels, end = labels_of(results.config), partial(results.end, "mean_success", group=MAIN)
    own = own_objectives(results.config)

    def rows(arms: Sequence[str], tested: Collection[str]) -> TableRows:
        made = [
            ({"arm": arm, "against": other}, end(arm=arm).against(end(arm=other)))
            for arm in arms
            for other in (SCRATCH, WIDER, RANDOM)
            if arm not in (SCRATCH, other) and other in labels
        ]
        return contrast_rows(
            made,
            tested=lambda about: (
                about["arm"] in tested and about["against"] in _rivals(about["arm"])
            ),
        )

    published = [label for label in labels if label not in own]
    return [*rows([*own], own), *rows(published, (*JOINT, FITTED))]


def tabulate_predictors(results: Results[Config]) -> TableRows:
    """List how each measure at half of the run correlates with later success, over worlds."""
    rows = []
    for group in dict.fromkeys(results.frame["group"]):
        for measure in MEASURES:
            row: dict[str, Any] = {"group": group, "measure": measure}
            for name, within in (("correlation", False), ("within_arms", True)):
                found = prediction(results, measure, group, within=within)
                row |= {"families": len(found.values)}
                if len(found.values):
                    row |= interval_columns(name, found.interval)
            rows.append(row)
    return rows


def tabulate_gains(results: Results[Config]) -> TableRows:
    """List each joint loss's mean gains and their correlation over families, then the mean.

    Objectives of the user's own and the control come first; the mean is that of ``JOINT``.
    """
    gains, rows = list_gains(results), list[dict[str, Any]]()
    others = list_gains(results, [*own_objectives(results.config), CONTROL])
    for arm, columns in (others | gains).items():
        # Agents that diverged have no closeness.
        closer, saved, *given = columns[:, np.isfinite(columns[0])]
        if not len(closer):
            continue
        means = interval_columns("closeness", mean_interval(closer))
        means |= {"steps_saved": float(saved.mean())}
        correlation = {"correlation": correlate_ranks(closer, saved, given)}
        rows.append({"arm": arm, "families": len(closer), **means, **correlation})
    mean = interval_columns("correlation", gain_interval(gains))
    return [*rows, {"arm": "mean", "families": rows[0]["families"], **mean}]
