"""When the goal of an agent changes, does it help to begin with values from its own replay?

**Setting.** Deep Q-networks of ``agents`` with features fitted to replay see codes of their cell
and learn to reach a goal in the corner of a maze: -1 a step, episodes of at most 300 steps, uniform
starts. Then the goal moves to one of five other places, the same for all arms. Every change starts
from the agent after its first goal, not from the agent after the change before. So all arms begin
with the same replay and the same features, and differ in their values alone.

**Arms** after a change. All keep the replay and the features that were fitted last. All are told
the cells that lie wholly within the new goal: in the replay, arriving there ends episodes, and
arriving at the first goal no longer does.

- zero-shot start: ``rlreps.successor.fit`` fits a representation to the replay, where codes are
  counted. Its action values for the new goal after five policy improvements are the prior of a
  fresh network (``rlreps.agents.prior_of``), which learns on;
- zero-shot policy: the same without learning, a control, evaluated from the same starts;
- fine-tuning: the network learns on;
- starting over: a fresh network learns.

The optimizer and the schedule of the learning rate start again, and 5 % of actions are random.

**Metrics.** Environment steps after the change until an agent reaches the threshold, three times
the optimal return, in two of three consecutive evaluations; agents that do not reach it count the
whole budget. The least possible number is the step of the second evaluation. Beside it, the mean
return over the evaluations after the change. Both are averaged over the five goals: pairs are
agents.

**Goals**, each in at least two of three mazes, by 95 % intervals of paired differences and p < 0.05
adjusted for all comparisons of the goal (Holm, sign flips):

- the zero-shot start needs at most half of the steps of fine-tuning, and of starting over. A
  separate claim judges ``spiral`` alone: it and its seeds were not used to develop the arms;
- the zero-shot start has a higher mean return over the budget than fine-tuning and starting over;
- learning on improves the zero-shot policy: the last evaluation is above the control.

**Chosen beforehand** on eight agents in ``five_corridors``, seeds from 1000 on: one-step targets
and a learning rate of 1e-4 for the zero-shot start. With the ten-step targets and the rate of 1e-3
of the other arms, its mean return fell from -75 to -188 within 1,000 steps: targets of several
steps follow the policy that filled the replay. Fine-tuning had a lower mean return with one-step
targets than with ten. More random actions changed neither fine-tuning nor starting over.
"""

import itertools
from collections.abc import Iterator
from functools import partial

from rlreps.agents import FeatureConfig, ReplayConfig
from rlreps.experiments.ours import agents, mazes
from rlreps.experiments.ours.goal_change_runs import (
    ARMS,
    FIXED,
    OTHERS,
    ZERO_SHOT,
    Config,
    frame,
    measure,
)
from rlreps.experiments.ours.mazes import CAP, GOALS, MAZES
from rlreps.stats import Contrast, contrast_rows
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Metric,
    Results,
    TableRows,
    Tabulated,
    design_of,
    product_cells,
    replace_nested,
)

_IN_MAZES = {"observation": mazes.observation_of(MAZES[0]), "goal": GOALS[0]}

LAPTOP = Config(
    base=replace_nested(
        agents.LAPTOP,
        **_IN_MAZES,
        features=FeatureConfig(kind="fitted"),
        replay=ReplayConfig(capacity=60_000),
        max_episode_steps=CAP,
        evaluate_every=4_000,
        evaluation_episodes=16,
    )
)

PRESETS = {
    "smoke": replace_nested(
        LAPTOP,
        base=replace_nested(
            agents.PRESETS["smoke"].base,
            **_IN_MAZES,
            features=FeatureConfig(kind="fitted", num_components=4),
            max_episode_steps=CAP,
        ),
        arenas=("five_corridors",),
        goals=GOALS[1:3],
        budget=400,
        every=200,
    ),
    "laptop": LAPTOP,
    "paper": replace_nested(LAPTOP, budget=60_000, num_seeds=40),
}


def halved_steps(results: Results[Config], arena: str, other: str) -> Contrast:
    """Contrast half of the steps of another arm with the steps of the zero-shot start."""
    end = partial(results.end, arena=arena)
    return (0.5 * end(arm=other)).against(end(arm=ZERO_SHOT))


def gained(results: Results[Config], arena: str, other: str, value: str) -> Contrast:
    """Contrast a return of the zero-shot start with another arm's."""
    end = partial(results.end, value, arena=arena)
    return end(arm=ZERO_SHOT).against(end(arm=other))


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goals."""
    aside = results.config.aside
    tested = "intervals above 0 and p < 0.05 adjusted for all comparisons"
    yield Claim(
        "the zero-shot start needs at most half of the steps of fine-tuning and of starting over",
        f"half of their steps less its steps: {tested}, in at least 2 of 3 mazes",
        lambda r: mazes.beats(r, partial(halved_steps, r), OTHERS),
    )
    yield Claim(
        f"it does in {aside}, which was kept aside",
        f"{tested} there",
        lambda r: mazes.beaten([aside], partial(halved_steps, r), OTHERS)[aside],
    )
    yield Claim(
        "its mean return over the budget is higher than of fine-tuning and of starting over",
        f"{tested}, in at least 2 of 3 mazes",
        lambda r: mazes.beats(r, partial(gained, r, value="mean_return"), OTHERS),
    )
    yield Claim(
        "learning on improves the zero-shot policy",
        f"last evaluation less the control: {tested}, in at least 2 of 3 mazes",
        lambda r: mazes.beats(r, partial(gained, r, value="return"), (FIXED,)),
    )


def arms(results: Results[Config]) -> TableRows:
    """Tabulate the means of every arm and goal over agents."""
    rows = []
    for (arena, goal, arm), ends in results.ends.groups("arena", "goal", "arm").items():
        names = {"needed": "steps", "reached": "reached", "mean_return": "mean_return"}
        names["return"] = "final_return"
        means = {name: float(ends[column].mean()) for column, name in names.items()}
        rows.append({"arena": arena, "goal": goal, "arm": arm, "agents": len(ends), **means})
    return rows


def compared(results: Results[Config]) -> TableRows:
    """Compare the zero-shot start with every other arm."""
    pairs = []
    for arena, value in itertools.product(results.config.arenas, ("needed", "mean_return")):
        for other in ARMS[1:]:
            about = {"arena": arena, "value": value, "against": other}
            pairs.append((about, gained(results, arena, other, value)))
    return contrast_rows(pairs)


EXPERIMENT = Experiment(
    name="goal-changes",
    title="Agents whose goal changes",
    presets=PRESETS,
    cells=lambda run: product_cells("{arena}", arena=run.config.arenas),
    measure=measure,
    frame=frame,
    value=Metric(value="needed", label="steps after the change to the threshold"),
    fewest=agents.FEWEST_AGENTS,
    claims=claims,
    sections={
        "Arms": [
            design_of(__doc__),
            Tabulated(
                name="arms",
                rows=arms,
                caption="Steps after the change to the threshold, share of agents that reach it, "
                "mean and final return: means over agents.",
            ),
            Tabulated(
                name="effects",
                rows=compared,
                caption="The zero-shot start less each other arm, means over goals: steps to the "
                f"threshold, and mean return. p-values by sign flips (Holm). {DETECTABLE}",
            ),
            Curve(
                name="returns",
                caption="Mean return of evaluations after the change, mean over the five goals. "
                "Vertical scales differ.",
                x=Axis("step", "environment steps after the change"),
                y=Metric(value="return", label="return"),
                line="arm",
                panel="{arena}",
                axes={"share_y": False},
            ),
        ],
    },
)
