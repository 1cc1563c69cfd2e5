"""Test whether closeness to the successor measure's components helps agents, in 20 worlds.

**Question.** Auxiliary losses bring an agent's features close to the leading components of the
successor measure. Do such features help the agent to learn?

**Worlds.** Twenty games whose states are enumerated, one layout each, without chance: 16 of ten
families, and four of other families, which are kept aside for confirmation. Agents see a board of
bits; success pays 1. Options were chosen for agents from scratch in DoorKey-5x5, SimpleCrossingS9N1
and LavaCrossingS9N1, which are not reported, but other worlds of their families are. The weight of
joint losses was chosen in mazes, for the experiment ``agents``: a tenth of the norm of the values'
gradient, also before the first success. No arm has options tuned for it alone.

**Arms**, each a double DQN with a convolution:

- from scratch, and a wider network of 2.5 times as many channels and units;
- joint losses on the torso's features: explicit weights and large batch on Monte-Carlo targets of
  64 random Fourier cumulants (the table of worlds has the closeness that these could reach), random
  indicators by temporal differences (proto-value networks), TD low rank with equal factors,
  self-prediction (BYOL) and ALLO;
- random targets: large batch at discount 0, whose targets are random functions of the board. This
  control has a loss of the same form without any dynamics;
- fitted to replay: the network also reads 16 components that least squares fit to its replay, which
  join its features in front of a further layer;
- exact components: the exact leading components in their place, from the start;
- random features: random numbers of each board in their place, which are the control of both;
- counted model: no network; the agent plans with the transitions that it has counted.

**Measured.** Success is whether the greedy episode succeeds. At checkpoints we audit the torso's
features of all states: closeness is the share of the leading ten components of the random
policy's successor measure in their span, with an intercept; then the same at held-out states, for
the measure of the agent's own policy (ε = 0.1), the effective rank, the share of nearly constant
features, and the R² of the optimal values, linear in the features.

**Claims**, stated before the run. Families of worlds are the units. Each can come out false:

- prediction: within a world, over agents of all arms with features of their own, the partial rank
  correlation of closeness at half of the run with later success is above 0.1 in the mean, given the
  success up to then, the last success, and the R² of the optimal values. Worlds where fewer than
  one agent in 20 succeeds later, or fails, are left out;
- gain: across families, the gain of a joint loss in closeness at the first checkpoint is
  correlated with its gain in steps to the threshold, given the effective horizon and the number of
  states; the mean of the six losses' rank correlations is above 0.1. Other agents measure
  closeness than measure steps;
- arms: some joint loss raises the mean success over the run by 0.05 above scratch and above the
  wider network; and so do features fitted to replay, also above random features;
- bound: exact components raise it by 0.05 above scratch and above random features; and no joint
  loss raises it by more than they do;
- kept aside: the prediction holds there, and the joint loss with the greatest gain over scratch
  gains in each of the four worlds; and so do fitted features.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlreps.agents import AgentConfig, DQNConfig
from rlreps.encoders import Convolutional
from rlreps.experiments.ours import games_report as report
from rlreps.experiments.ours.games_runs import (
    COUNTED,
    EXACT,
    FITTED,
    JOINT,
    LOW_RANK,
    MEASURES,
    SCRATCH,
    Config,
    arm_of,
    family_of,
    labels_of,
    load_board,
    measure_arm,
    steps_to,
    with_objective,
)
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Drawn,
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

WORLDS = (
    "minigrid-empty-8x8",
    "minigrid-empty-16x16",
    "minigrid-fourrooms",
    "gymnax-fourrooms",
    "minigrid-doorkey-6x6",
    "minigrid-multiroom-n2-s4",
    "minigrid-multiroom-n4-s5",
    "minigrid-unlock",
    "minigrid-lavacrossings9n3",
    "minigrid-simplecrossings9n3",
    "minigrid-distshift1",
    "minigrid-distshift2",
    "minigrid-redbluedoors-6x6",
    "minigrid-redbluedoors-8x8",
    "minigrid-memorys7",
    "minigrid-memorys13",
)
KEPT_ASIDE = (
    "minigrid-keycorridors3r1",
    "minigrid-lavagaps7",
    "minigrid-fetch-5x5-n2",
    "frozenlake-8x8-sure",
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
            huber_delta=1.0,
        ),
        # Fewer than half of the states of the smallest world.
        num_features=16,
        num_envs=8,
        max_episode_steps=400,
        steps=64_000,
        evaluate_every=2_000,
        evaluation_episodes=1,  # Worlds and greedy agents are without chance.
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
        weight=10.0,
        steps=800,
        evaluate_every=400,
        warmup=280,  # An objective of the user's own needs whole sequences of 31 steps.
        discount=0.9,
        epsilon_steps=400,
        num_seeds=2,
        plan_every=400,
        max_episode_steps=50,
        encoder=Convolutional(channels=(2,), hidden=8),
    ),
    "laptop": LAPTOP,
    "paper": replace_nested(LAPTOP, num_seeds=30),
    "released": replace_nested(LAPTOP, labels=()),
}


def check(config: Config, _: Any) -> None:
    """Raise an ``InputError`` for a world that cannot be loaded."""
    for name in (*config.worlds, *config.aside):
        load_board(name)


def cells(run: Run[Config]) -> dict[str, dict[str, str]]:
    """List the arms in every world, worlds kept aside last."""
    worlds = (*run.config.worlds, *run.config.aside)
    return product_cells("{world} {arm}", world=worlds, arm=labels_of(run.config))


def frame(run: Run[Config], cell: Mapping[str, str], found: Mapping[str, Any]) -> Frame:
    """List success by step, and at checkpoints what was measured."""
    config = run.config
    success = np.asarray(found["success"], np.float64)
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
    group = report.ASIDE if cell["world"] in config.aside else report.MAIN
    kind = arm_of(config, cell["arm"]).kind
    kinds = {"family": family_of(cell["world"]), "group": group, "kind": kind}
    return Frame.grid(values, **cell, **kinds, seed=config.base.seeds, step=steps)


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State what was stated before the run."""
    above = f"a 95 % interval of the mean over families above {report.LEAST_CORRELATION}"
    gains = f"intervals above {report.LEAST_GAIN} over {{}}, p < 0.05 adjusted for all comparisons"
    yield Claim(
        "prediction: closeness at half of the run predicts later success",
        above,
        partial(report.judge_prediction, group=report.MAIN),
    )
    yield Claim(
        "gain: a joint loss's gain in closeness predicts its gain in steps, across families",
        f"a bootstrap interval of the mean rank correlation above {report.LEAST_CORRELATION}",
        report.judge_gain,
    )
    yield Claim(
        "arms: some joint loss raises mean success",
        gains.format("scratch and wider"),
        partial(report.judge_any, arms=JOINT),
    )
    yield Claim(
        "arms: features fitted to replay raise mean success",
        gains.format("scratch, wider and random features"),
        partial(report.judge_any, arms=(FITTED,)),
    )
    yield Claim(
        "bound: exact components raise mean success",
        f"intervals above {report.LEAST_GAIN} over scratch and random features",
        report.judge_exact,
    )
    yield Claim(
        "bound: no joint loss raises mean success by more than exact components",
        "intervals below 0",
        report.judge_bound,
    )
    if results.config.aside:
        yield Claim(
            "kept aside: closeness at half of the run predicts later success",
            above,
            partial(report.judge_prediction, group=report.ASIDE),
        )
        for name, arms in (
            ("the best joint loss raises", JOINT),
            ("fitted features raise", [FITTED]),
        ):
            yield Claim(
                f"kept aside: {name} mean success",
                "a gain over scratch in each world",
                partial(report.confirm, arms=arms),
            )


EXPERIMENT = Experiment(
    name="games",
    title="Does closeness to the successor measure's components help agents?",
    presets=PRESETS,
    check=check,
    options={"objective": with_objective},
    cells=cells,
    measure=measure_arm,
    frame=frame,
    value=Metric(value="success", label="share of episodes that succeed", within=(0.0, 1.0)),
    unit="family",
    claims=claims,
    sections={
        "Worlds": [
            design_of(__doc__),
            Tabulated(
                name="worlds",
                rows=report.tabulate_worlds,
                caption="Number of states and actions, bound of the effective horizon (Laidlaw et "
                "al. 2023), the closeness that Monte-Carlo targets could reach (ceiling), and the "
                "mean success of each arm over the run.",
            ),
            Drawn(
                name="success_by_world",
                caption="Mean success over the run. Colours show the difference from agents that "
                "learn from scratch in the same world. A line separates the worlds kept aside.",
                draw=report.draw_success,
            ),
            Curve(
                name="success",
                caption="Share of greedy episodes that succeed, in the mean over families; without "
                "the worlds kept aside.",
                x=Axis("step", "environment steps"),
                line="arm",
                panel="{kind}",
                of={"group": report.MAIN},
            ),
        ],
        "Arms": [
            report.about_diverged,
            Tabulated(
                name="arms",
                rows=report.tabulate_arms,
                caption="Differences of the mean success over the run, paired by family. p-values "
                "for a difference of 0 are by sign flips, adjusted for the comparisons that "
                "claims name (Holm); those of an objective of your own for its own comparisons. "
                f"{DETECTABLE}",
            ),
            Tabulated(
                name="gains",
                rows=report.tabulate_gains,
                caption="Each joint loss and the control against scratch, in the mean over "
                "families: the gain in closeness at the first checkpoint (agents with even seeds), "
                "the environment steps saved until the threshold (odd seeds), and their rank "
                "correlation, given the effective horizon and the number of states. The mean has "
                "neither the control nor an objective of your own.",
            ),
        ],
        "Predictors": [
            Tabulated(
                name="predictors",
                rows=report.tabulate_predictors,
                caption="Partial rank correlation of a measure at half of the run with the success "
                "after it: within a world, over agents of all arms with features of their own; "
                "then with each arm's means subtracted. Means over families with intervals.",
            ),
        ],
    },
    stated="stated before the run",
)
