"""Analyses of agents in worlds: what predicts success, and which gains go together."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import bootstrap, rankdata

from rlreps.experiments.ours.games_runs import (
    ARMS,
    COUNTED,
    EXACT,
    FITTED,
    JOINT,
    MEASURES,
    SCRATCH,
    WIDER,
    Config,
    load_board,
)
from rlreps.stats import (
    DoubleArray,
    Interval,
    Sample,
    Verdict,
    all_of,
    any_of,
    contrast_rows,
    format_interval,
    interval_columns,
    judge_family,
)
from rlreps.study import Results, TableRows

MAIN, ASIDE = "main", "kept aside"
"""Groups of worlds."""

OWN = tuple(label for label in ARMS if label not in (EXACT, COUNTED))
"""Arms whose features are their own."""

RESAMPLES = 1_000
"""Number of bootstrap samples of an interval."""

FEWEST = {MAIN: 10, ASIDE: 4}
"""Least number of worlds of a group for a verdict."""


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
    """Correlate a measure at half of the run with later success, in each world of a group.

    Args:
        results: The results.
        measure: One of ``MEASURES``.
        group: ``MAIN`` or ``ASIDE``.
        within: Whether to compare agents within arms alone: each arm's means are subtracted.
    """
    half, found = results.config.base.steps // 2, {}
    for (world,), rows in results.frame.where(group=group, arm=OWN).groups("world").items():
        parts: list[DoubleArray] = []
        for each in rows.groups("arm").values():
            seeds = len(np.unique(each["seed"]))
            success = each["success"].reshape(seeds, -1)
            steps = each["step"].reshape(seeds, -1)[0]
            at = each[measure].reshape(seeds, -1)[:, steps == half][:, 0]
            before, after = (
                success[:, which].mean(axis=1) for which in (steps <= half, steps > half)
            )
            columns = np.stack([at, after, before])
            parts.append(columns - within * columns.mean(axis=1, keepdims=True))
        at, after, before = np.concatenate(parts, axis=1)
        correlation = correlate_ranks(at, after, [before])
        if np.isfinite(correlation):
            found[world] = correlation
    return Sample(np.array([*found.values()]), [*found], fewest=FEWEST[group])


def judge_prediction(results: Results[Config], group: str, least: float) -> Verdict:
    """Judge that closeness at half of the run predicts later success in a group of worlds."""
    found = prediction(results, "closeness", group)
    count = len(found.values)
    if count < FEWEST[group]:
        words = f"{count} worlds with such a correlation, of which {FEWEST[group]} are the fewest"
        return Verdict(None, words)
    return found > least


def gains_by_world(results: Results[Config], group: str) -> dict[str, DoubleArray]:
    """List each joint loss's gains over scratch in closeness and steps, and controls, by world.

    Returns:
        Arm → [4, worlds]: closeness, steps saved, effective horizon, number of states. Worlds
        without an effective horizon are left out.
    """
    end = partial(results.end, group=group)
    found = {}
    for arm in (each for each in JOINT if each in results.config.labels):
        closer = end("closeness", arm=arm) - end("closeness", arm=SCRATCH)
        saved = end("steps_to", arm=SCRATCH) - end("steps_to", arm=arm)
        about = [results.once(describe_worlds)[str(name)] for name in closer.units]
        horizons = np.array([each["horizon"] for each in about], np.float64)
        states = np.array([each["states"] for each in about], np.float64)
        columns = np.stack([closer.values, saved.values, horizons, states])
        found[arm] = columns[:, np.isfinite(horizons)]
    return found


def gain_interval(gains: Mapping[str, DoubleArray]) -> Interval:
    """Return the mean of the arms' partial rank correlations, with a bootstrap interval."""

    def mean_correlation(chosen: Any) -> float:
        each = [correlate_ranks(a, b, c) for a, b, *c in (g[:, chosen] for g in gains.values())]
        return float(np.mean(np.nan_to_num(each)))

    count = next(iter(gains.values())).shape[1]
    every = np.arange(count)
    found = bootstrap(
        (every,),
        mean_correlation,
        vectorized=False,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=0,
    ).confidence_interval
    return Interval(mean_correlation(every), float(found.low), float(found.high))


def judge_gain(results: Results[Config]) -> Verdict:
    """Judge that gains in closeness and in steps to the threshold go together over worlds."""
    gains = gains_by_world(results, MAIN)
    worlds = next(iter(gains.values())).shape[1]
    if worlds < FEWEST[MAIN]:
        return Verdict(None, f"{worlds} worlds, of which ten are the fewest")
    found = gain_interval(gains)
    holds = True if found.low > 0.0 else False if found.high < 0.0 else None
    return Verdict(holds, f"{format_interval(found, signed=True)} in {worlds} worlds")


def judge_any(results: Results[Config], group: str, arms: Sequence[str]) -> Verdict:
    """Judge that some of these arms raises mean success over scratch and the wider network.

    p-values are adjusted for the comparisons of all joint losses and fitted features.
    """
    end = partial(results.end, "mean_success", group=group)
    contrasts = {
        (arm, other): end(arm=arm).needing(FEWEST[group]).against(end(arm=other))
        for arm in (*JOINT, FITTED)
        for other in (SCRATCH, WIDER)
    }
    found = judge_family(contrasts)
    return any_of(
        {arm: all_of({other: found[arm, other] for other in (SCRATCH, WIDER)}) for arm in arms}
    )


def judge_bound(results: Results[Config]) -> Verdict:
    """Judge that no joint loss gains more in mean success than exact components do."""
    end = partial(results.end, "mean_success", group=MAIN)
    return all_of({arm: end(arm=arm) < end(arm=EXACT) for arm in JOINT})


def describe_worlds(results: Results[Config]) -> dict[str, dict[str, float]]:
    """Return the states, actions and effective horizon of each world; NaN if it has none."""
    base, found = results.config.base, {}
    for name in (*results.config.worlds, *results.config.aside):
        world = load_board(name)
        horizon = world.effective_horizon(base.dqn.discount, steps=base.max_episode_steps)
        about = {"states": world.num_states, "actions": world.num_actions}
        found[name] = {**about, "horizon": np.nan if horizon is None else horizon}
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
            **{arm: means[name, arm] for arm in config.labels},
        }
        for name, about in results.once(describe_worlds).items()
    ]


def tabulate_arms(results: Results[Config]) -> TableRows:
    """Contrast the mean success of every arm with scratch and with the wider network."""
    end = partial(results.end, "mean_success", group=MAIN)
    made = [
        ({"arm": arm, "against": other}, end(arm=arm).against(end(arm=other)))
        for arm in results.config.labels
        for other in (SCRATCH, WIDER)
        if arm != SCRATCH and arm != other and other in results.config.labels
    ]
    return contrast_rows(made)


def tabulate_predictors(results: Results[Config]) -> TableRows:
    """List how each measure at half of the run correlates with later success, over worlds."""
    rows = []
    for group in dict.fromkeys(results.frame["group"]):
        for measure in MEASURES:
            row: dict[str, Any] = {"group": group, "measure": measure}
            for name, within in (("correlation", False), ("within_arms", True)):
                found = prediction(results, measure, group, within=within)
                row |= {"worlds": len(found.values)}
                if len(found.values):
                    row |= interval_columns(name, found.interval)
            rows.append(row)
    return rows


def tabulate_gains(results: Results[Config]) -> TableRows:
    """List each joint loss's mean gains and their correlation over worlds."""
    rows = []
    for arm, (closer, saved, *given) in gains_by_world(results, MAIN).items():
        correlation = correlate_ranks(closer, saved, given)
        means = {"closeness": float(closer.mean()), "steps_saved": float(saved.mean())}
        rows.append({"arm": arm, "worlds": len(closer), **means, "correlation": correlation})
    return rows
