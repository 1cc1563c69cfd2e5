"""Do auxiliary tasks of representation learning help a deep Q-network that learns online?

Registered before the run, in this file:

- **Arms.** No auxiliary task, the baseline. Auxiliary tasks: ``explicit`` per action, for the
  policies that filled replay; the same for the warm-up's random policy alone; large batch and
  Danskin-LISSA per state. Controls: ``explicit`` per action with targets independent of the
  dynamics, random functions of the observation itself (discount 0); no task with twice the units,
  whose updates cost about as much; if agents see positions, fixed cosines. All arms share seeds.
- **Settings.** Three mazes whose cells are seen as random codes, with the goal in the middle; the
  arena ``sutton``, seen as positions, where nothing is expected; Acrobot and MountainCar, whose
  environments run on the host. Settings other than mazes have fewer arms in the laptop preset.
- **Agents.** Chosen without an auxiliary task, by six agents of seeds from 1000 in
  ``five_corridors``: an update every two steps rather than four (a mean return over 60,000 steps of
  -233 against -262), and the goal in the middle rather than in a corner (-263).
- **Weights.** One for each objective and one for the control, from a grid, by the mean return over
  training in the first maze, of agents of other seeds (from 1000 on). Weights are relative to the
  norm of the values' gradient, so one weight means the same in every setting.
- **Metric.** The mean return over training: of all greedy evaluations after the first update. A
  baseline's *gap* is the return of an optimal policy minus its own. In mazes the optimum is exact
  in the model of cells; elsewhere it is the return at which the task counts as solved.
- **Goal.** In at least two of three mazes, one and the same objective raises the mean over agents
  by at least 25 % of the gap over both no task and the data-free control, both differences with
  p < 0.05 by sign flips of pairs, adjusted for all comparisons of the run (Holm).
- **What would refute us.** No such objective: for every objective, in at least two mazes one of its
  two 95 % intervals excludes 25 % of the gap. If this happens in fewer mazes, it cannot be told.
  (The first run was judged by another rule, by which a true effect of 25 % failed half of the time;
  both rules give it the same verdict.) The report also states whether a difference of 25 % would
  have been significant: the smallest that a paired t-test finds with a power of 80 %, at 0.05
  divided by the number of comparisons. That there is no gain in ``sutton`` holds if, for every
  objective, one of the two intervals excludes 25 % of the gap.

**Changed since the first run**: its agents trained for 40,000 steps; 32,000 fit into half an hour
on two cores. An objective has the effect if the 95 % interval lies beyond 25 % of the gap and the
adjusted p-value is below 0.05; before, the mean alone had to lie beyond.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig
from rlreps.agents.config import arena_of
from rlreps.agents.environments import describe
from rlreps.cumulants import RandomFourier
from rlreps.encoders import MLP, Cosine, FourierMLP, lowest_frequencies
from rlreps.experiments.harness import (
    DETECTABLE,
    Claim,
    Experiment,
    Measure,
    Results,
    Rows,
    Run,
    Tabulated,
    design_of,
    in_path,
    varied,
)
from rlreps.experiments.ours.agent_arms import (
    NO_TASK,
    SECTIONS,
    SIGNIFICANCE,
    Arm,
    frame_of,
    train_arm,
)
from rlreps.experiments.ours.mazes import CAP, GOALS, MAZES, NULL, cell_model, observation_of
from rlreps.losses import DanskinLissa, Explicit, LargeBatch
from rlreps.runs.contrasts import (
    Contrast,
    Verdict,
    all_of,
    any_of,
    at_least,
    contrast_rows,
    corrected,
)
from rlreps.workflows.agents import StartingTorsos

WIDER = "no auxiliary task, twice the units"
CONTROL = "data-free control"
FOLLOWING = "explicit per action"
FIXED = "explicit per action, random policy"
LARGE_BATCH = "large batch"
DANSKIN = "Danskin-LISSA"
COSINES = "fixed cosines"
"""Label of agents whose features need no data, where positions are seen."""

_AS = {FIXED: FOLLOWING}
"""Task → another of the same objective, whose weight it takes."""

OBJECTIVES = (FOLLOWING, FIXED, LARGE_BATCH, DANSKIN)
"""Labels of the arms that can meet the goal."""

SHARE = 0.25
"""Share of the baseline's gap: the effect that counts."""

FEWEST_AGENTS = 20
"""Agents of each arm below which no verdict is given."""

_PER_ACTION = AuxiliaryConfig(
    objective=Explicit(weight_learning_rate=3e-3),
    weight=1.0,
    head=(32,),
    num_tasks=32,
    discount_low=0.95,
    discount_high=0.95,
    horizon=None,
    sequences=64,
    per_action=True,
)

_PER_STATE = dataclasses.replace(
    _PER_ACTION, objective=LargeBatch(precondition=1e-2, leave_one_out=True), per_action=False
)

TASKS: Mapping[str, AuxiliaryConfig] = {
    FOLLOWING: _PER_ACTION,
    FIXED: dataclasses.replace(_PER_ACTION, remembered="warmup"),
    LARGE_BATCH: _PER_STATE,
    # Features of an agent are far from white.
    DANSKIN: dataclasses.replace(
        _PER_STATE, objective=DanskinLissa(whitening=True, permutations=4)
    ),
    CONTROL: dataclasses.replace(_PER_ACTION, discount_low=0.0, discount_high=0.0),
}
"""Label → task; its weight and its cumulants' length scale are set elsewhere.

At discount 0 a target is a random function of the observation, and a sequence is one row.
"""


@functools.cache
def best_return(arena: str, goal: tuple[float, float, float], cap: int) -> float:
    """Solve for the optimal mean return of -1 a step to a disc or a cap, from any other cell."""
    model = cell_model(arena)
    inside = model.discs([goal])[:, 0] > 0.0
    return -float(model.steps_within(inside, cap)[~inside].mean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Agents in one environment.

    Attributes:
        base: What they have in common, without an auxiliary task.
        length_scale: Length scale of the random waves behind task columns, in observations' units.
        solved: Return of what counts as a solution; None in mazes, where the optimum is known.
        tasks: Labels of the auxiliary tasks, of ``TASKS``.
        wider: Whether there is an arm without a task of twice the units.
    """

    base: AgentConfig
    length_scale: float
    solved: float | None = None
    tasks: tuple[str, ...] = tuple(TASKS)
    wider: bool = True

    @property
    def name(self) -> str:
        """The arena or environment."""
        return str(arena_of(self.base) or self.base.environment)

    def best(self) -> float:
        """Return the mean return of an optimal policy, or what counts as a solution."""
        if self.solved is not None:
            return self.solved
        assert self.base.goal is not None
        return best_return(self.name, self.base.goal, self.base.max_episode_steps)

    def threshold(self) -> float:
        """Return the return whose samples are counted."""
        return round(2.0 * self.best(), 1) if self.solved is None else self.solved

    def with_task(self, label: str, weight: float) -> AgentConfig:
        """Return the agents with an auxiliary task."""
        task = dataclasses.replace(
            TASKS[label], weight=weight, tasks=RandomFourier(length_scale=self.length_scale)
        )
        return dataclasses.replace(self.base, auxiliary=task)

    def arms(self, weights: Mapping[str, float]) -> dict[str, Arm]:
        """Return label → arm, the baseline first, for task → weight."""
        found = {NO_TASK: Arm(label=NO_TASK, config=self.base)}
        for label in self.tasks:
            found[label] = Arm(label=label, config=self.with_task(label, weights[label]))
        encoder = self.base.encoder
        if self.wider and isinstance(encoder, (MLP, FourierMLP)):
            hidden = tuple(2 * units for units in encoder.hidden)
            features = 2 * self.base.num_features
            wider = varied(self.base, hidden=hidden, num_features=features)
            found[WIDER] = Arm(label=WIDER, config=wider)
        if self.name == NULL:
            config, start = cosines(self.base)
            found[COSINES] = Arm(label=COSINES, config=config, start=start)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agents in several settings, and how weights are chosen.

    Attributes:
        settings: The settings; weights are chosen in the first.
        tuning_seed: Seed of the first of the agents that choose.
        tuning_agents: How many there are for each task and weight.
        tuning_steps: Their environment steps.
    """

    settings: tuple[Setting, ...]
    weights: tuple[float, ...] = (0.1, 0.3, 1.0)
    tuning_seed: int = 1000
    tuning_agents: int = 6
    tuning_steps: int = 32_000


def cosines(base: AgentConfig) -> tuple[AgentConfig, StartingTorsos]:
    """Make agents with fixed features that need no data: cosines of the lowest frequencies.

    The d products of cosines of x and y, without the constant, in order of k_x² + k_y².
    """
    size = base.num_features
    highest, chosen = lowest_frequencies(size)
    weights = np.zeros((base.num_seeds, (1 + highest) ** 2, size), np.float32)
    weights[:, chosen, np.arange(size)] = 1.0
    config = varied(base, encoder=Cosine(frequencies=highest), freeze_torso=True, weight=0.0)
    return config, StartingTorsos(weights, f"the {size} cosines of the lowest frequencies")


# --- Presets --------------------------------------------------------------------------------------

# Code of 16 numbers a cell: their distances are about 1.6, so such waves differ at every cell.
_CODE_SCALE = 0.5

_LAPTOP = AgentConfig(
    environment=f"puddle-world:{MAZES[0]}",
    observation=observation_of(MAZES[0]),
    goal=GOALS[-1],
    encoder=MLP(hidden=(64, 64)),
    num_features=16,
    normalise_features=True,
    dqn=DQNConfig(
        reward_scale=0.1,
        n_step=10,
        target_every=100,
        warmup=8_000,
        steps_per_update=2,
        epsilon_steps=16_000,
        epsilon_end=0.1,
    ),
    num_envs=2,
    max_episode_steps=CAP,
    steps=32_000,
    evaluate_every=4_000,
    evaluation_episodes=16,
    num_seeds=20,
)

_BESIDE = (FOLLOWING, LARGE_BATCH, CONTROL)
_HOST_TASKS = (FOLLOWING, CONTROL)
"""Tasks in ``sutton``, and where environments run on the host, in a preset of minutes."""


def _on_host(base: AgentConfig, environment: str, frequencies: int, **dqn: Any) -> AgentConfig:
    """Make agents on the host, which train as long and are as many as others."""
    return AgentConfig(
        environment=environment,
        encoder=FourierMLP(hidden=(64, 64), frequencies=frequencies),
        num_features=64,
        normalise_features=base.normalise_features,
        dqn=DQNConfig(
            learning_rate=1e-3,
            schedule="constant",
            adam_epsilon=1e-3,
            reward_scale=0.02,
            n_step=5,
            target_every=100,
            steps_per_update=8,
            warmup=base.dqn.warmup,
            epsilon_steps=base.dqn.epsilon_steps,
            **dqn,
        ),
        replay=base.replay,
        num_envs=8,
        steps=base.steps,
        evaluate_every=base.evaluate_every,
        evaluation_episodes=4,
        num_seeds=base.num_seeds,
    )


def _preset(
    base: AgentConfig,
    beside: tuple[str, ...] = tuple(TASKS),
    on_host: tuple[str, ...] = tuple(TASKS),
    **tuning: Any,
) -> Config:
    """Make settings in mazes, in ``sutton`` with its own goal and penalties, and on the host."""
    mazes = [varied(base, environment=f"puddle-world:{name}") for name in MAZES]
    positions = varied(
        base,
        environment="puddle-world",
        observation=observation_of(NULL),
        goal=None,
        encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    )
    # Gymnasium's registry calls these returns solved. All coordinates of Acrobot are bounded, so
    # that cosines of them make sense.
    solved = {-100.0: _on_host(base, "Acrobot-v1", 2)}
    solved[-110.0] = _on_host(base, "MountainCar-v0", 4, epsilon_end=0.1)
    wider = len(on_host) == len(TASKS)
    return Config(
        settings=(
            *(Setting(base=agents, length_scale=_CODE_SCALE) for agents in mazes),
            Setting(base=positions, length_scale=0.2, solved=-40.0, tasks=beside),
            *(
                Setting(base=agents, length_scale=0.5, solved=least, tasks=on_host, wider=wider)
                for least, agents in solved.items()
            ),
        ),
        **tuning,
    )


_SMOKE = varied(
    _LAPTOP,
    encoder=MLP(hidden=(8,)),
    num_features=4,
    dqn=varied(_LAPTOP.dqn, warmup=640, batch_size=8, epsilon_steps=320),
    capacity=2_000,
    max_episode_steps=20,
    steps=768,
    evaluate_every=384,
    evaluation_episodes=2,
    num_seeds=2,
)

_PAPER = varied(
    _LAPTOP,
    encoder=MLP(hidden=(128, 128)),
    num_features=32,
    capacity=200_000,
    steps=200_000,
    evaluate_every=8_000,
    num_seeds=50,
)

PRESETS = {
    "smoke": Config(
        settings=(
            Setting(base=_SMOKE, length_scale=_CODE_SCALE, tasks=(FOLLOWING, CONTROL), wider=False),
        ),
        weights=(1.0,),
        tuning_agents=2,
        tuning_steps=768,
    ),
    "laptop": _preset(_LAPTOP, _BESIDE, _HOST_TASKS),
    "paper": _preset(
        _PAPER, weights=(0.03, 0.1, 0.3, 1.0, 3.0), tuning_agents=20, tuning_steps=200_000
    ),
}


# --- What is measured -----------------------------------------------------------------------------


class Tuned(NamedTuple):
    """Task → the best weight, and rows of every task and weight."""

    weights: dict[str, float]
    rows: list[dict[str, Any]]


def check(config: Config, _: None) -> None:
    """Refuse environments that cannot be made before the first agents are trained."""
    for setting in config.settings:
        if arena_of(setting.base) is None:
            describe(setting.base.environment)


def tune(run: Run[Config]) -> Tuned:
    """Choose every task's weight, by agents in the first setting that are not compared."""
    config, first = run.config, run.config.settings[0]
    labels = [label for label in first.tasks if label not in _AS]
    chosen: dict[str, Any] = {
        "seed": config.tuning_seed,
        "num_seeds": config.tuning_agents,
        "steps": config.tuning_steps,
    }
    trials = {
        f"tuning/{in_path(label)}/{in_path(f'{weight:g}')}": Arm(
            label=label, config=dataclasses.replace(first.with_task(label, weight), **chosen)
        )
        for label in labels
        for weight in config.weights
    }
    found = run.measured(train_arm, trials, keep=False, title="weights", show=False)
    rows: list[dict[str, Any]] = [
        {
            "arm": arm.label,
            "weight": arm.config.auxiliary.weight,
            "mean_return": float(arm.mean_returns.mean()),
            "agents": arm.mean_returns.tolist(),
        }
        for arm in found.values()
    ]
    weights = {}
    for label in labels:
        tried = [row for row in rows if row["arm"] == label]
        weights[label] = max(tried, key=lambda row: row["mean_return"])["weight"]
    for row in rows:
        row["chosen"] = row["weight"] == weights[row["arm"]]
    shared = {label: weights[other] for label, other in _AS.items() if other in weights}
    return Tuned({**weights, **shared}, rows)


def cells(run: Run[Config]) -> dict[str, tuple[Setting, Arm]]:
    """List the arms of every setting."""
    return {
        f"{in_path(setting.name)}/{in_path(label)}": (setting, arm)
        for setting in run.config.settings
        for label, arm in setting.arms(run.shared.weights).items()
    }


# --- What is reported -----------------------------------------------------------------------------


def gap(results: Results[Config], setting: Setting) -> float:
    """Return the best return less the baseline's."""
    return setting.best() - results.end(environment=setting.name, arm=NO_TASK).mean


Pair = tuple[str, str, str]
"""Setting, arm, and what the arm is compared with."""


def effects(results: Results[Config]) -> dict[Pair, Contrast]:
    """Contrast every arm with the baseline, and every objective with the control as well.

    The effect that counts is a share of the gap; there is none where the baseline has no gap.
    """
    found = {}
    for setting in results.config.settings:
        end, missing = partial(results.end, environment=setting.name), gap(results, setting)
        effect = SHARE * missing if missing > 0.0 else float("nan")
        for arm in _arms(results, setting.name):
            others = (NO_TASK, CONTROL) if arm in OBJECTIVES else (NO_TASK,)
            for other in others if arm != NO_TASK else ():
                found[setting.name, arm, other] = end(arm=arm).against(end(arm=other), effect)
    return found


def _arms(results: Results[Config], setting: str) -> list[str]:
    return list(results.ends.where(environment=setting).labelled("arm"))


def judged(results: Results[Config]) -> dict[Pair, Verdict]:
    """Judge every effect, adjusted for all of the run."""
    return corrected(results.once(effects), SIGNIFICANCE)


def met(results: Results[Config], setting: str) -> dict[str, Verdict]:
    """Judge which objectives have an effect that counts over both others in a setting."""
    found = results.once(judged)

    def over_both(arm: str) -> Verdict:
        return all_of({other: found[setting, arm, other] for other in (NO_TASK, CONTROL)})

    return {arm: over_both(arm) for arm in _arms(results, setting) if arm in OBJECTIVES}


def meets_goal(results: Results[Config], mazes: list[str]) -> Verdict:
    """Judge that one and the same objective has the effect in two mazes."""
    found = {maze: met(results, maze) for maze in mazes}
    labels = dict.fromkeys(label for each in found.values() for label in each)
    return any_of(
        {
            label: at_least(
                2, {maze: each[label] for maze, each in found.items() if label in each}, of=3
            )
            for label in labels
        }
    )


def is_seen(results: Results[Config], mazes: list[str]) -> Verdict:
    """Judge that an effect that counts would be significant in every comparison in mazes."""
    found = [row for row in results.once(rows) if row["setting"] in mazes]
    given: list[Any] = [row["detectable_share"] for row in found if row["arm"] in OBJECTIVES]
    # No effect is large enough where too few pairs have a p-value.
    shares = np.nan_to_num(np.asarray(given, np.float64), nan=np.inf)
    blind = int(np.sum(shares > SHARE))
    enough = min((int(str(row["pairs"])) for row in found), default=0) >= FEWEST_AGENTS
    least, most = (f"{share:.0%}".replace("inf", "∞ ") for share in (shares.min(), shares.max()))
    words = f"detectable: {least} to {most} of the gap; {blind} of {len(shares)} fall short"
    return Verdict(not blind if enough else None, words)


def is_null(results: Results[Config]) -> Verdict:
    """Judge that no objective is better in ``sutton``: not even by less than what counts."""
    found = ~any_of(met(results, NULL))
    plain = {
        pair: dataclasses.replace(each, effect=0.0) for pair, each in results.once(effects).items()
    }
    better = corrected(plain, SIGNIFICANCE)
    for arm in met(results, NULL):
        gained = all_of([better[NULL, arm, other] for other in (NO_TASK, CONTROL)])
        if gained.holds:
            return Verdict(False, f"{arm}: {gained.words}")
    return found


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goal, whether such an effect would be significant, and what stands beside."""
    names = [setting.name for setting in results.config.settings]
    mazes = [name for name in names if name in MAZES]
    over_both = f"over both {NO_TASK} and the {CONTROL}"
    stated = (
        f"beyond {SHARE:.0%} of the baseline's gap {over_both}, by 95 % intervals, and p < "
        f"{SIGNIFICANCE:g} adjusted for {len(results.once(effects))} comparisons (Holm)"
    )
    raises = "one objective raises the mean return over training"
    if mazes:
        yield Claim(f"{raises} in at least two of three mazes", stated, meets_goal(results, mazes))
        yield Claim(
            "a difference that counts would be significant in every maze",
            f"{SHARE:.0%} of the gap, with a power of 80 %",
            is_seen(results, mazes),
        )
    for name in names:
        if name not in (*MAZES, NULL):
            yield Claim(f"{name}: {raises}", stated, any_of(met(results, name)))
    if NULL in names:
        yield Claim(
            f"{NULL}, whose agents see positions: no objective is better",
            f"the expected null: none with p < {SIGNIFICANCE:g} {over_both}, and 95 % intervals "
            f"that exclude {SHARE:.0%} of the gap over one of them",
            is_null,
        )


def rows(results: Results[Config]) -> Rows:
    """Tabulate all effects."""
    settings = {setting.name: setting for setting in results.config.settings}
    found = results.once(effects)
    about = [dict(zip(("setting", "arm", "against"), pair, strict=True)) for pair in found]
    made = contrast_rows(list(zip(about, found.values(), strict=True)), SIGNIFICANCE)
    for row in made:
        setting = settings[row["setting"]]
        missing = gap(results, setting)
        for name, column in (("share_of_gap", "difference"), ("detectable_share", "detectable")):
            known = missing > 0.0 and row[column] is not None
            row[name] = row[column] / missing if known else float("nan")
        row["best"] = setting.best()
    return made


EXPERIMENT = Experiment(
    name="auxiliary-online",
    title="Auxiliary tasks for agents that learn online",
    paper="Our own experiment.",
    presets=PRESETS,
    check=check,
    prepare=tune,
    cells=cells,
    measure=lambda run, name, cell: train_arm(run, name, cell[1]),
    frame=lambda _, cell, found: frame_of(found, cell[0].name, cell[0].threshold()),
    value=Measure(value="mean_return", label="mean return over training"),
    fewest=FEWEST_AGENTS,
    claims=claims,
    summary=lambda r: {"weights": r.run.shared.weights},
    sections={
        "Goals": [
            design_of(__doc__),
            Tabulated(
                name="effects",
                rows=rows,
                caption="Differences of the mean return over training, and the share of the gap "
                "from the baseline to the best return (in mazes exact, elsewhere what counts as "
                f"solved). An effect of {SHARE:.0%} would be significant if the detectable "
                f"share is no larger. p-values are by sign flips (Holm). {DETECTABLE}",
            ),
            Tabulated(
                name="tuning",
                rows=lambda r: r.run.shared.rows,
                columns=("arm", "weight", "mean_return", "chosen"),
                caption="{config.settings[0].name}: {config.tuning_agents} agents of seeds "
                "from {config.tuning_seed} on, {config.tuning_steps:,} steps.",
            ),
        ],
        **SECTIONS,
    },
    keeps_parts=False,
    stated="our goal",
)
