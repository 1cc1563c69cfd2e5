"""Whether closeness to the successor measure's components buys anything for agents, in 20 worlds.

**Question.** Auxiliary losses bring an agent's features close to the leading components of the
successor measure. Do such features help the agent to learn?

**Worlds.** Twenty games whose states are enumerated, one layout each. Agents see a board of bits;
success pays 1. Four of them are kept aside for confirmation. Options were chosen for agents from
scratch in three further worlds (DoorKey-5x5, SimpleCrossingS9N1, LavaCrossingS9N1). The weight of
joint losses was chosen in mazes, for the experiment ``agents``; no arm has options tuned for it
alone.

**Arms**, each a double DQN with a convolution, different in one thing:

- from scratch, and a wider network of 2.5 times as many channels and units;
- joint losses on the torso's features: explicit weights and large batch on Monte-Carlo targets of
  random Fourier cumulants, random indicators by temporal differences (proto-value networks), TD low
  rank (one-step forward-backward), self-prediction (BYOL) and ALLO;
- random targets: large batch at discount 0, whose targets are random functions of the board. This
  control has a loss of the same form without any dynamics;
- fitted to replay: the network also reads components that least squares fit to its replay;
- exact components: the network reads the exact leading components instead, from the start. No
  auxiliary loss can make features that hold them better;
- counted model: no network; the agent plans with the transitions that it has counted.

**Measured.** Success is the share of greedy episodes that succeed. At checkpoints we audit the
torso's features of all states: *closeness* is the share of the leading ten components of the
random policy's successor measure in their span, with an intercept; then the same at held-out
states, for the measure of the agent's own policy (ε = 0.1), the effective rank, the share of
dormant units, and the R² of the optimal values, linear in the features.

**Claims**, stated before the run; worlds are the units, so that an effect counts if it holds over
worlds. Each can come out false:

- *prediction*: within a world, over agents and arms with features of their own, the rank
  correlation of closeness at half of the run with later success is above 0.1 in the mean over
  worlds, given the success up to then. Worlds where all agents succeed, or none, have no such
  correlation;
- *gain*: across worlds, the gain of a joint loss in closeness at the end is correlated with its
  gain in steps to the threshold, given the effective horizon and the number of states. The mean of
  the six losses' rank correlations has a bootstrap interval over worlds above 0;
- *arms*: some joint loss raises the mean success over the run above scratch and above the wider
  network; and so do features fitted to replay. Sign flips over worlds, Holm over all comparisons;
- *bound*: exact components raise the mean success by at least 0.1 over scratch, and no joint loss
  raises it by more than they do.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlreps.agents import AgentConfig, DQNConfig
from rlreps.encoders import Convolutional
from rlreps.experiments.ours.games_report import (
    ASIDE,
    MAIN,
    judge_any,
    judge_bound,
    judge_gain,
    judge_prediction,
    tabulate_arms,
    tabulate_gains,
    tabulate_predictors,
    tabulate_worlds,
)
from rlreps.experiments.ours.games_runs import (
    COUNTED,
    EXACT,
    FITTED,
    JOINT,
    LOW_RANK,
    MEASURES,
    SCRATCH,
    Config,
    load_board,
    measure_arm,
    steps_to,
)
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Frame,
    Metric,
    Results,
    Run,
    Tabulated,
    design_of,
    product_cells,
    replace_nested,
)

LEAST_CORRELATION = 0.1
"""Rank correlation that closeness must exceed to predict success."""

LEAST_GAIN = 0.1
"""Gain in mean success that exact components must exceed."""

WORLDS = (
    "minigrid-empty-8x8",
    "minigrid-empty-16x16",
    "minigrid-fourrooms",
    "minigrid-doorkey-6x6",
    "minigrid-keycorridors3r1",
    "minigrid-multiroom-n2-s4",
    "minigrid-unlock",
    "minigrid-lavacrossings9n3",
    "minigrid-simplecrossings9n3",
    "minigrid-distshift1",
    "minigrid-distshift2",
    "minigrid-redbluedoors-6x6",
    "minigrid-memorys7",
    "minigrid-memorys13",
    "minigrid-fetch-5x5-n2",
    "frozenlake-8x8-sure",
)
KEPT_ASIDE = (
    "minigrid-lavagaps7",
    "minigrid-multiroom-n4-s5",
    "minigrid-redbluedoors-8x8",
    "gymnax-fourrooms",
)

LAPTOP = Config(
    base=AgentConfig(
        encoder=Convolutional(channels=(16,), hidden=64),
        dqn=DQNConfig(
            n_step=5,
            discount=0.95,
            learning_rate=2e-3,
            target_every=100,
            steps_per_update=8,
            warmup=4_000,
            epsilon_end=0.1,
            epsilon_steps=40_000,
        ),
        # Far fewer than there are states: the span of 32 features of 34 states holds everything.
        num_features=16,
        num_envs=8,
        max_episode_steps=400,
        steps=64_000,
        evaluate_every=4_000,
        evaluation_episodes=4,
        num_seeds=10,
    ),
    worlds=WORLDS,
    aside=KEPT_ASIDE,
)

PRESETS = {
    "smoke": replace_nested(
        LAPTOP,
        worlds=("minigrid-lavagaps5",),
        aside=(),
        labels=(SCRATCH, LOW_RANK, EXACT, COUNTED),
        checkpoints=(0, 400, 800),
        steps=800,
        evaluate_every=400,
        warmup=200,
        epsilon_steps=400,
        num_seeds=2,
        plan_every=400,
        max_episode_steps=50,
        encoder=Convolutional(channels=(2,), hidden=8),
    ),
    "laptop": LAPTOP,
    "paper": replace_nested(LAPTOP, num_seeds=30),
}


def check(config: Config, _: Any) -> None:
    """Raise an ``InputError`` for a world that cannot be loaded."""
    for name in (*config.worlds, *config.aside):
        load_board(name)


def cells(run: Run[Config]) -> dict[str, dict[str, str]]:
    """List the arms in every world, worlds kept aside last."""
    worlds = (*run.config.worlds, *run.config.aside)
    return product_cells("{world} {arm}", world=worlds, arm=run.config.labels)


def frame(run: Run[Config], cell: Mapping[str, str], found: Mapping[str, Any]) -> Frame:
    """List success by step, and at checkpoints what was measured."""
    config, success = run.config, np.asarray(found["success"], np.float64)
    steps = np.arange(success.shape[1]) * config.base.evaluate_every
    at = np.isin(steps, config.checkpoints)
    measures = {name: np.full(success.shape, np.nan) for name in MEASURES}
    for name in found.keys() & measures.keys():
        measures[name][:, at] = found[name]
    values = {
        "success": success,
        "mean_success": success[:, 1:].mean(axis=1, keepdims=True),
        "steps_to": steps_to(config, success)[:, None],
        **measures,
    }
    group = ASIDE if cell["world"] in config.aside else MAIN
    return Frame.grid(values, **cell, group=group, seed=config.base.seeds, step=steps)


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State what was stated before the run."""
    groups = (MAIN, ASIDE) if results.config.aside else (MAIN,)
    above = f"a 95 % interval of the mean over worlds above {LEAST_CORRELATION}"
    for group in groups:
        where = "" if group == MAIN else f" ({group})"
        yield Claim(
            f"prediction: closeness at half of the run predicts later success{where}",
            above,
            partial(judge_prediction, group=group, least=LEAST_CORRELATION),
        )
    yield Claim(
        "gain: a joint loss's gain in closeness predicts its gain in steps, across worlds",
        "a bootstrap interval of the mean rank correlation above 0",
        judge_gain,
    )
    tested = "intervals above 0 over scratch and wider, p < 0.05 adjusted for all comparisons"
    for group in groups:
        where = "" if group == MAIN else f" ({group})"
        yield Claim(
            f"arms: some joint loss raises mean success{where}",
            tested,
            partial(judge_any, group=group, arms=JOINT),
        )
        yield Claim(
            f"arms: features fitted to replay raise mean success{where}",
            tested,
            partial(judge_any, group=group, arms=(FITTED,)),
        )
    yield Claim(
        "bound: exact components raise mean success over scratch",
        f"an interval above {LEAST_GAIN}",
        lambda r: (
            r.end("mean_success", group=MAIN, arm=EXACT)
            .against(r.end("mean_success", group=MAIN, arm=SCRATCH), LEAST_GAIN)
            .above
        ),
    )
    yield Claim(
        "bound: no joint loss raises mean success by more than exact components",
        "intervals below 0",
        judge_bound,
    )


EXPERIMENT = Experiment(
    name="games",
    title="Does closeness to the successor measure's components help agents?",
    paper="Our own experiment.",
    presets=PRESETS,
    check=check,
    cells=cells,
    measure=measure_arm,
    frame=frame,
    value=Metric(value="success", label="share of episodes that succeed", within=(0.0, 1.0)),
    unit="world",
    claims=claims,
    sections={
        "Worlds": [
            design_of(__doc__),
            Tabulated(
                name="worlds",
                rows=tabulate_worlds,
                caption="Number of states and actions, bound of the effective horizon (Laidlaw et "
                "al. 2023), and the mean success of each arm over the run.",
            ),
            Curve(
                name="success",
                caption="Share of greedy episodes that succeed, in the mean over worlds.",
                x=Axis("step", "environment steps"),
                line="arm",
                panel="{group}",
            ),
        ],
        "Arms": [
            Tabulated(
                name="arms",
                rows=tabulate_arms,
                caption="Differences of the mean success over the run, paired by world. p-values "
                f"are by sign flips, adjusted for the table (Holm). {DETECTABLE}",
            ),
            Tabulated(
                name="gains",
                rows=tabulate_gains,
                caption="Each joint loss against scratch, in the mean over worlds that have an "
                "effective horizon: the gain in closeness at the end, the environment steps saved "
                "until the threshold, and their rank correlation over worlds, given the effective "
                "horizon and the number of states.",
            ),
        ],
        "Predictors": [
            Tabulated(
                name="predictors",
                rows=tabulate_predictors,
                caption="Rank correlation of a measure at half of the run with the success after "
                "it, given the success before: within a world, over agents of all arms with "
                "features of their own; then with each arm's means subtracted. Means over worlds "
                "with intervals.",
            ),
        ],
    },
    stated="stated before the run",
)
