"""The fit with its defaults on problems that a new user may try first.

**Ways**, each from the same steps: uniformly random ones or, for a log, those of a controller with
some random actions or noise:

- fit: ``fit`` with its defaults and the problem's discount. The reward is given afterwards: by the
  recorded rewards of the states reached, or by a function of these states. The policy is
  ``rep.policy(task)``. A problem that the fit refuses has a random policy;
- extra-trees: fitted Q iteration with extremely randomised trees (Ernst, Geurts & Wehenkel 2005) on
  the same rows and rewards. Dictionaries are flattened as by Gymnasium's ``FlattenObservation``.
  Continuous actions are chosen among 17 levels of one number, 3 x 3 of two, or 32 of the data;
- log: the policy that took the recorded steps, for logs alone;
- random: uniformly random actions.

**Metric.** The gain (score - random) / (solved - random). A score is the mean undiscounted return
of greedy episodes, or the share of them that terminate; random is its mean over seeds; the scores
that count as solved are published or follow from the problem. A policy is bad if its gain is below
0.5. A fit is told to be bad if it was refused, or if collecting, fitting or improving warned.

**Goals**, for all problems and for those that were kept aside before any default was tuned on the
others: at most one bad policy in 20 without a warning; at most one good policy in 20 with a
warning; a mean gain of the fit that is at most 0.05 below the trees' gain, or above it, in at least
three quarters of the problems. Exact 95 % intervals of these shares decide. They treat policies as
independent, although seeds of one problem are alike: 72 policies without an exception are the
fewest for which a share of one in 20 holds.
"""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.errors import InputError, TrainingDivergedError, recorded_warnings
from rlreps.experiments.ours.problems import PROBLEMS, Choose, Problem, numbers, play
from rlreps.plotting import MUTED, series_style, styled
from rlreps.stats import Verdict, judge_share
from rlreps.study import (
    Claim,
    Drawn,
    Experiment,
    Frame,
    Metric,
    Results,
    Run,
    TableRows,
    Tabulated,
    design_of,
    product_cells,
)
from rlreps.successor import Transitions, fit
from rlreps.typing import DoubleArray

FIT, TREES, LOG, RANDOM = WAYS = ("fit", "extra-trees", "log", "random")
GOOD = 0.5
"""Least gain of a good policy."""
MOST_MISJUDGED = 0.05
"""Largest share of problems whose bad policies come without a warning, or good ones with one."""
LEVEL = 0.05
"""Largest gain by which the fit may be below the trees and still count as level."""
LEAST_LEVEL = 0.75
"""Least share of problems in which the fit is level with the trees, or above."""
FEWEST = 10
"""Least number of problems for a verdict."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Problems, and the ways to find their policies.

    Attributes:
        most_steps: Largest number of steps; None takes each problem's own.
        rounds: Rounds of fitted Q iteration with trees.
        trees: Number of trees.
    """

    problems: tuple[str, ...] = tuple(PROBLEMS)
    ways: tuple[str, ...] = WAYS
    most_steps: int | None = None
    rounds: int = 50
    trees: int = 50
    seed: int = 0
    num_seeds: int = 2


PRESETS = {
    "smoke": Config(
        problems=("CartPole", "FrozenLake 4x4, no slip"),
        ways=(FIT, RANDOM),
        most_steps=2_000,
        num_seeds=1,
    ),
    "laptop": Config(ways=(FIT, LOG, RANDOM), num_seeds=1),
    "paper": Config(num_seeds=5),
}


def check(config: Config, _: Any) -> None:
    """Raise an ``InputError`` unless the packages of all problems and ways are installed."""
    try:
        if TREES in config.ways:
            import sklearn.ensemble  # noqa: F401
        for name in config.problems:
            PROBLEMS[name].judge().close()
    except (ImportError, gymnasium.error.Error) as error:
        raise InputError(
            f"expected the packages of the extras sklearn and problems, got: {error}"
        ) from error


# --- Ways -----------------------------------------------------------------------------------------


def fitted(problem: Problem, steps: int, seed: int) -> Choose:
    """Fit the steps of a problem as it comes; return the policy of its reward."""
    with contextlib.closing(problem.record()) as environment:
        policy = problem.policy
        data = Transitions.collect(environment, steps=steps, policy=policy, seed=seed)
        rep = fit(data, discount=problem.discount)
        if problem.reward is not None:
            task = rep.task(reward=problem.reward)
        else:
            task = rep.task(data.next_observation, environment.rewards)
    return rep.policy(task)


def candidates(data: Transitions) -> npt.NDArray[Any]:
    """Return the actions that trees choose among, [c, k]."""
    if data.action_low is None or data.action_high is None:
        return np.arange(data.num_actions or 0)[:, None]
    ends = [*zip(data.action_low, data.action_high, strict=True)]
    if len(ends) > 2:
        return data.action[np.random.default_rng(0).choice(len(data), 32)]
    levels = [np.linspace(*each, 17 if len(ends) == 1 else 3, dtype=np.float32) for each in ends]
    return np.array([*itertools.product(*levels)])


def trees_policy(
    data: Transitions, rewards: DoubleArray, discount: float, rounds: int, trees: int
) -> Choose:
    """Return the greedy policy of fitted Q iteration with extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesRegressor

    def inputs(states: npt.NDArray[Any], actions: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        flat = [np.reshape(each, (len(each), -1)) for each in (states, actions)]
        return np.concatenate(flat, axis=1, dtype=np.float32)

    def values(model: Any, states: npt.NDArray[Any]) -> DoubleArray:
        tiled = (np.broadcast_to(action, (len(states), len(action))) for action in choices)
        return np.stack([model.predict(inputs(states, each)) for each in tiled], axis=1)

    choices, pairs = candidates(data), inputs(data.observation, data.action)
    reached, place = np.unique(data.next_observation, axis=0, return_inverse=True)
    targets = rewards
    for index in range(rounds):
        model = ExtraTreesRegressor(trees, min_samples_leaf=5, random_state=index)
        model.fit(pairs, targets)
        if index + 1 < rounds:
            best = values(model, reached).max(axis=1)[place.ravel()]
            targets = rewards + discount * np.where(data.terminated, 0.0, best)

    def choose(states: npt.NDArray[Any]) -> npt.NDArray[Any]:
        best = choices[values(model, states).argmax(axis=1)]
        return np.asarray(best if data.continuous else best[:, 0])

    return choose


def by_trees(config: Config, problem: Problem, steps: int, seed: int) -> Choose:
    """Run fitted Q iteration with trees on the steps that the fit sees."""
    with contextlib.closing(problem.record()) as environment:
        flat, policy = numbers(environment), problem.policy
        data = Transitions.collect(flat, steps=steps, policy=policy, seed=seed)
        rewards = np.array(environment.rewards)
    return trees_policy(data, rewards, problem.discount, config.rounds, config.trees)


def cells(run: Run[Config]) -> dict[str, dict[str, Any]]:
    """List problems, ways and seeds."""
    config = run.config
    found = product_cells(
        "{problem}-{way}-{seed}",
        problem=config.problems,
        way=config.ways,
        seed=range(config.seed, config.seed + config.num_seeds),
    )
    logs = {name for name, problem in PROBLEMS.items() if problem.policy is not None}
    return {
        name: cell for name, cell in found.items() if cell["way"] != LOG or cell["problem"] in logs
    }


def measure(run: Run[Config], name: str, cell: dict[str, Any]) -> dict[str, Any]:
    """Make a policy; measure its score, and note what was said."""
    config, (named, way, seed) = run.config, cell.values()
    problem, refused, begun = PROBLEMS[named], "", time.perf_counter()
    steps = min(problem.steps, config.most_steps or problem.steps)
    choose: Choose | None = None
    with recorded_warnings() as said:
        try:
            if way == FIT:
                choose = fitted(problem, steps, seed)
            elif way == TREES:
                choose = by_trees(config, problem, steps, seed)
            elif way == LOG:
                choose = problem.log_policy(seed)
        except (InputError, TrainingDivergedError) as error:
            refused = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - begun
    first = 10_000 * (seed + 1)
    returns = play(problem.judge, choose, range(first, first + problem.episodes))
    score = {"score": float(returns.mean()), "worst": float(returns.min()), "seconds": seconds}
    return {"values": {**score, "refused": refused, "warnings": " | ".join(said)}}


# --- What is reported -----------------------------------------------------------------------------


def judged(results: Results[Config]) -> Frame:
    """Add to the measurements: the gain, whether the fit was told to be bad, and kept aside."""
    frame, problems = results.frame, [PROBLEMS[name] for name in results.frame["problem"]]
    random = {name: results.sample(problem=name, way=RANDOM).mean for name in {*frame["problem"]}}
    low = np.array([random[name] for name in frame["problem"]])
    gain = (frame["score"] - low) / (np.array([each.solved for each in problems]) - low)
    told = (frame["refused"] != "") | (frame["warnings"] != "")
    aside = np.array([each.kept_aside for each in problems])
    return frame.adding(gain=gain, bad=gain < GOOD, told=told, kept_aside=aside)


def misjudged(found: Frame, *, bad: bool) -> Verdict:
    """Judge that few problems have a bad policy without a warning, or a good policy with one.

    Each problem counts once, since its seeds are not independent of each other. With fewer than 72
    problems the statement can fail, but not hold.

    Args:
        found: Rows of ``judged``.
        bad: Whether to judge the warnings of bad policies, or those of good policies.
    """
    parts = found.where(way=FIT, bad=bad).groups("problem")
    wrong = {name: bool((part["told"] != bad).any()) for (name,), part in parts.items()}
    names = [name for name, happened in wrong.items() if happened]
    words = f"{len(names)} of {len(wrong)} problems with {'bad' if bad else 'good'} policies"
    return ~judge_share(MOST_MISJUDGED, wrong.values(), "; ".join([words, *names]))


def level(found: Frame) -> Verdict:
    """Judge that the fit is level with the trees, or above, in most problems."""
    pairs = [
        [part.where(way=way).sample("gain", "seed").mean for way in (FIT, TREES)]
        for part in found.groups("problem").values()
    ]
    levels = [ours >= theirs - LEVEL for ours, theirs in pairs]
    return judge_share(LEAST_LEVEL, levels, f"{sum(levels)} of {len(levels)} problems")


GOALS: dict[str, tuple[str, Callable[[Frame], Verdict]]] = {
    "problems in which a bad policy comes without a warning": (
        f"at most {MOST_MISJUDGED:.0%}",
        partial(misjudged, bad=True),
    ),
    "problems in which a good policy comes with a warning": (
        f"at most {MOST_MISJUDGED:.0%}",
        partial(misjudged, bad=False),
    ),
    "problems in which the fit is level with extra-trees, or above": (
        f"at least {LEAST_LEVEL:.0%}",
        level,
    ),
}


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goals, for all problems and for those kept aside."""

    def judge(results: Results[Config], goal: str, wanted: dict[str, bool]) -> Verdict:
        found = results.once(judged).where(**wanted)
        verdict = GOALS[goal][1](found)
        return verdict if len({*found["problem"]}) >= FEWEST else verdict.open()

    for where, wanted in {"all problems": {}, "kept aside": {"kept_aside": True}}.items():
        for goal, (stated, _) in GOALS.items():
            yield Claim(f"{where}: {goal}", stated, partial(judge, goal=goal, wanted=wanted))


def table(results: Results[Config]) -> TableRows:
    """Tabulate mean scores; bad and told fits; fits that were right to warn or to be silent."""
    rows = []
    for (name, aside), part in results.once(judged).groups("problem", "kept_aside").items():
        scores = part.labelled("way").items()
        fits, about = part.where(way=FIT), {"problem": name, "kept_aside": aside}
        rows.append(
            about
            | {"solved": PROBLEMS[name].solved}
            | {way: each.sample("score", "seed").mean for way, each in scores}
            | {"bad": int(fits["bad"].sum()), "told": int(fits["told"].sum())}
            | {"right": int((fits["bad"] == fits["told"]).sum()), "fits": len(fits)}
        )
    return rows


@styled
def draw(results: Results[Config]) -> tuple[TableRows, Figure]:
    """Draw the gain of every policy, a line for each problem; fits that were told are hollow."""
    found, names = results.once(judged), results.config.problems
    figure = Figure(figsize=(6.5, 1.2 + 0.22 * len(names)))
    axes, ways = figure.subplots(), [way for way in results.config.ways if way not in (LOG, RANDOM)]
    for index, (way, hollow) in enumerate(itertools.product(ways, (False, True))):
        part = found.where(way=way, told=hollow)
        style = {**series_style(index // 2), "linestyle": "", "markersize": 4.0}
        style |= {"markerfacecolor": "none"} if hollow else {"label": way}
        places = [names.index(name) + 0.3 * (index // 2) for name in part["problem"]]
        axes.plot(np.clip(part["gain"], -1.0, 1.25), places, **style)
    for gain, line in ((0.0, ":"), (GOOD, "--"), (1.0, ":")):
        axes.axvline(gain, linestyle=line, color=MUTED, linewidth=0.7)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("gain (0 random, 1 solved; cut at -1 and 1.25)")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(ways))
    return found.rows(*found.columns), figure


EXPERIMENT = Experiment(
    name="defaults",
    title="Defaults of the fit on problems of new users",
    presets=PRESETS,
    check=check,
    cells=cells,
    measure=measure,
    value=Metric(value="score", label="score"),
    claims=claims,
    sections={
        "Problems": [
            design_of(__doc__),
            Tabulated(
                name="problems",
                rows=table,
                caption="Mean scores over {config.num_seeds} seeds. Of the fits: how many policies "
                "are bad, how many were told to be (warned or refused), and how many times both or "
                "neither.",
            ),
            Drawn(
                name="gains",
                caption="Gain of every policy. Fits that warned or were refused are hollow.",
                draw=draw,
            ),
            Tabulated(
                caption="Every policy, and what the fit said.",
                rows=lambda r: r.rows["gains"],
            ),
        ],
    },
)
