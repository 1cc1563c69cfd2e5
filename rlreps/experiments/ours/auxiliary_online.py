"""Do auxiliary tasks of representation learning help a deep Q-network that learns online?

Registered before the run, in this file:

- **Arms.** No auxiliary task, the baseline. Auxiliary tasks: ``explicit`` per action, of the
  policies that filled replay; the same of the warm-up's random policy alone; large batch and
  Danskin-LISSA per state. Controls: ``explicit`` per action with targets that know nothing of the
  dynamics, random functions of the observation itself (discount 0); no task with twice the units,
  whose updates cost about as much; where positions are seen, fixed cosines. All share seeds.
- **Settings.** Three mazes whose cells are seen as random codes, with the goal in the middle; the
  arena ``sutton``, seen as positions, where nothing is expected; Acrobot and MountainCar, whose
  environments run on the host. Settings beside the mazes have fewer arms in the laptop preset.
- **Agents.** Chosen without an auxiliary task, by six of seeds from 1000 in ``five_corridors``: an
  update every two steps rather than four (a mean return over 60,000 steps of -233 against -262),
  and the goal in the middle rather than in a corner (-263).
- **Weights.** One for each objective and one for the control, of a grid, by the mean return over
  training in the first maze, of agents of other seeds (from 1000 on). Weights are relative to the
  norm of the values' gradient, so one means the same in every setting.
- **Metric.** The mean return over training: of all greedy evaluations after the first update. A
  baseline's *gap* is that of an optimal policy minus its own. In mazes the optimum is exact in the
  model of cells; elsewhere it is the return at which the task counts as solved.
- **Goal.** In at least two of three mazes, one and the same objective raises the mean over agents
  by at least 25 % of the gap over both no task and the data-free control, both differences with
  p < 0.05 of sign flips of pairs, adjusted for all comparisons of the run (Holm).
- **What would refute us.** No such objective: of each, in at least two mazes one of its two 95 %
  intervals excludes 25 % of the gap; where that is so in fewer, it cannot be told. (The first run
  was judged by another rule, by which a true effect of 25 % failed half of the time; its verdict is
  the same by both.) Beside it, whether a difference of 25 % would have been significant: the
  smallest that a paired t-test finds with a power of 80 %, at 0.05 divided by the number of
  comparisons. That there is no gain in ``sutton`` holds if, of every objective, one of the two
  intervals excludes 25 % of the gap.

Changed since the first run: its agents trained for 40,000 steps; 32,000 fit into half an hour on
two cores.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.environments import describe
from rlreps.agents.trainer import arena_of
from rlreps.cumulants import RandomFourier
from rlreps.encoders import MLP, Cosine, FourierMLP
from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, in_path
from rlreps.experiments.ours.agent_arms import (
    NO_TASK,
    SIGNIFICANCE,
    Arm,
    ArmRuns,
    Comparison,
    comparison_sections,
    signed,
    train_arm,
)
from rlreps.experiments.ours.mazes import (
    CAP,
    GOALS,
    MAZES,
    NULL,
    cell_model,
    in_two_mazes,
    observation_of,
)
from rlreps.losses import DanskinLissa, Explicit, LargeBatch
from rlreps.report.page import Section
from rlreps.report.table import Table, format_number
from rlreps.runs.intervals import (
    Interval,
    holm,
    mean_interval,
    sign_flip_p_value,
    smallest_detectable,
)
from rlreps.workflows.agents import StartingTorsos

FloatArray = npt.NDArray[np.float64]

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
"""Of the baseline's gap: the effect that counts."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Agents in one environment.

    Attributes:
        base: What they have in common, without an auxiliary task.
        length_scale: Of the random waves behind task columns, in units of observations.
        solved: Return of what counts as a solution; None in mazes, where the optimum is known.
        tasks: Labels of the auxiliary tasks, of ``TASKS``.
        wider: Whether there is an arm without a task of twice the units.
    """

    base: AgentConfig
    length_scale: float
    solved: float | None = None
    tasks: tuple[str, ...] = tuple(TASKS)
    wider: bool = True

    def __post_init__(self) -> None:
        require(self.base.auxiliary.weight == 0.0, "agents without an auxiliary task", self.base)
        require(CONTROL in self.tasks, f"the task {CONTROL}", self.tasks)
        for label in self.tasks:
            require_choice("task", label, tuple(TASKS))
        require((self.solved is None) == self.is_maze, "a solved return but in mazes", self.solved)

    @property
    def name(self) -> str:
        """The arena or environment."""
        return str(arena_of(self.base) or self.base.environment)

    @property
    def is_maze(self) -> bool:
        """Tell whether it is one of the mazes."""
        return self.name in MAZES

    def best(self) -> float:
        """Return the mean return of an optimal policy, or what counts as a solution."""
        if self.solved is not None:
            return self.solved
        assert self.base.goal is not None
        model = cell_model(self.name)
        goal = model.discs([self.base.goal])[:, 0] > 0.0
        return best_return(np.asarray(model.to), goal, self.base.max_episode_steps)

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
            agents = self.with_task(label, weights[label])
            found[label] = Arm(label=label, config=agents)
        encoder = self.base.encoder
        if self.wider and isinstance(encoder, (MLP, FourierMLP)):
            hidden = tuple(2 * units for units in encoder.hidden)
            wider = dataclasses.replace(
                self.base,
                encoder=dataclasses.replace(encoder, hidden=hidden),
                num_features=2 * self.base.num_features,
            )
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
        weights: The grid of weights.
        tuning_seed: Seed of the first of the agents that choose.
        tuning_agents: How many there are for each task and weight.
        tuning_steps: Their environment steps.
    """

    settings: tuple[Setting, ...]
    weights: tuple[float, ...] = (0.1, 0.3, 1.0)
    tuning_seed: int = 1000
    tuning_agents: int = 6
    tuning_steps: int = 32_000

    def __post_init__(self) -> None:
        names = [setting.name for setting in self.settings]
        require(len(names) >= 1 and len(set(names)) == len(names), "different settings", names)
        require(len(self.weights) >= 1, "at least one weight", self.weights)
        for weight in self.weights:
            require_interval("weight", weight, "(0, inf)")
        require_positive("tuning_agents", self.tuning_agents)
        for setting in self.settings:
            base = setting.base
            held_out = base.seed + base.num_seeds <= self.tuning_seed
            require(held_out, "seeds of agents below the tuning seed", base.seed)
        unknown = {label for each in self.settings for label in each.tasks}
        unknown = {_AS.get(label, label) for label in unknown} - {*self.settings[0].tasks}
        require(not unknown, "every task in the first setting, where weights are chosen", unknown)


def cosines(base: AgentConfig) -> tuple[AgentConfig, StartingTorsos]:
    """Make agents with fixed features that need no data: cosines of the lowest frequencies.

    The d products of cosines of x and y, without the constant, in order of k_x² + k_y².
    """
    size = base.num_features
    frequencies = next(k for k in itertools.count(1) if (1 + k) ** 2 > size)
    multiples = np.indices((1 + frequencies,) * 2).reshape(2, -1)
    chosen = np.argsort(np.sum(multiples**2, axis=0), kind="stable")[1 : 1 + size]
    weights = np.zeros((base.num_seeds, multiples.shape[1], size), np.float32)
    weights[:, chosen, np.arange(size)] = 1.0
    config = dataclasses.replace(
        base,
        encoder=Cosine(frequencies=frequencies),
        dqn=dataclasses.replace(base.dqn, freeze_torso=True),
        auxiliary=dataclasses.replace(base.auxiliary, weight=0.0),
    )
    return config, StartingTorsos(weights, f"the {size} cosines of the lowest frequencies")


def best_return(moves: npt.ArrayLike, goal: npt.ArrayLike, cap: int) -> float:
    """Compute the optimal mean return of −1 a step until a goal or a cap, from any other cell.

    Backwards over the steps that remain: exact.

    Args:
        moves: P(s' | s, a), [A, n, n].
        goal: Which cells end an episode, [n].
        cap: Steps of an episode, at most.
    """
    chances, ends = np.asarray(moves, np.float64), np.asarray(goal, bool)
    values = np.zeros(len(ends))
    for _ in range(cap):
        values = (chances @ np.where(ends, 0.0, values)).max(axis=0) - 1.0
    return float(values[~ends].mean())


class Effect(NamedTuple):
    """What an arm has over another in one setting.

    Attributes:
        setting: Its name.
        arm: Label.
        against: The other's.
        difference: Mean over agents of differences of the mean return over training.
        p: Of the difference, adjusted for all of a run's comparisons (Holm).
        detectable: The smallest mean difference that the design detects.
        gap: The baseline's, to the best return; what is not positive is none.
    """

    setting: str
    arm: str
    against: str
    difference: Interval
    p: float
    detectable: float
    gap: float

    @property
    def share(self) -> float:
        """The difference as a share of the gap; NaN where there is none."""
        return self.difference.value / self.gap if self.gap > 0.0 else math.nan

    @property
    def significant(self) -> bool:
        """Tell whether the arm is better and the p-value small."""
        return bool(self.difference.value > 0.0 and self.p < SIGNIFICANCE)

    @property
    def large(self) -> bool:
        """Tell whether it is an effect that counts."""
        return bool(self.significant and self.share >= SHARE)

    @property
    def excluded(self) -> bool:
        """Tell whether the interval excludes an effect that counts."""
        return bool(self.gap > 0.0 and self.difference.high < SHARE * self.gap)

    @property
    def seen(self) -> bool:
        """Tell whether a difference that counts would be significant, with a power of 80 %."""
        return bool(self.detectable <= SHARE * self.gap)


def effects_of(
    returns: Mapping[str, Mapping[str, npt.ArrayLike]], best: Mapping[str, float]
) -> list[Effect]:
    """Compare every arm with the baseline and every objective with the control as well.

    Args:
        returns: Setting → label → mean returns over training, [agents], of the same seeds.
        best: Setting → return of an optimal policy.
    """
    pairs: list[tuple[str, str, str, FloatArray, FloatArray]] = []
    for setting, arms in returns.items():
        tables = {label: np.asarray(values, np.float64) for label, values in arms.items()}
        pairs += [
            (setting, label, other, tables[label], tables[other])
            for label in tables
            for other in (NO_TASK, CONTROL)
            if label in OBJECTIVES or (label != NO_TASK and other == NO_TASK)
        ]
    adjusted = holm([sign_flip_p_value(ours, theirs) for *_, ours, theirs in pairs]).tolist()
    return [
        Effect(
            setting,
            label,
            other,
            mean_interval(ours - theirs),
            p,
            smallest_detectable(ours - theirs, SIGNIFICANCE / len(pairs)),
            best[setting] - float(np.mean(np.asarray(returns[setting][NO_TASK], np.float64))),
        )
        for (setting, label, other, ours, theirs), p in zip(pairs, adjusted, strict=True)
    ]


def met_in(effects: Sequence[Effect], label: str, quality: str = "large") -> list[str]:
    """List the settings in which an objective's effects over both others have a quality."""
    verdicts: dict[str, list[bool]] = {}
    for each in effects:
        if each.arm == label:
            verdicts.setdefault(each.setting, []).append(getattr(each, quality))
    return [setting for setting, found in verdicts.items() if len(found) == 2 and all(found)]


def met(effects: Sequence[Effect], label: str, setting: str) -> bool | None:
    """Judge whether an objective has an effect that counts over both others in a setting.

    False where an interval excludes an effect that counts, None where neither does.
    """
    if setting in met_in(effects, label):
        return True
    ours = [each for each in effects if (each.arm, each.setting) == (label, setting)]
    return False if any(each.excluded for each in ours) else None


def _any_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Combine verdicts: True if one is, else None if one is or there is none, else False."""
    known = set(verdicts)
    return True if True in known else None if None in known or not known else False


def claims_of(effects: Sequence[Effect], agents: int) -> list[Found]:
    """Decide the goal, whether such an effect would be significant, and what stands beside."""
    enough = agents >= FEWEST_AGENTS
    settings = list(dict.fromkeys(each.setting for each in effects))
    mazes = [name for name in settings if name in MAZES]
    others = [name for name in settings if name not in (*MAZES, NULL)]
    large = {label: met_in(effects, label) for label in OBJECTIVES}

    def places(found: Mapping[str, list[str]], among: Sequence[str]) -> str:
        said = [
            f"{label}: {', '.join(name for name in names if name in among)}"
            for label, names in found.items()
            if set(names) & {*among}
        ]
        return "; ".join(said) or "none"

    claims = []
    over_both = f"over both {NO_TASK} and the {CONTROL}"
    stated = (
        f"at least {SHARE:.0%} of the baseline's gap {over_both}, p < {SIGNIFICANCE:g} adjusted "
        f"for {len(effects)} comparisons (Holm)"
    )
    if mazes:
        tried = dict.fromkeys(e.arm for e in effects if e.setting in mazes and e.arm in OBJECTIVES)
        in_mazes = [in_two_mazes([met(effects, label, name) for name in mazes]) for label in tried]
        claims.append(
            Found(
                statement="one objective raises the mean return over training in at least two of "
                "three mazes",
                stated=stated,
                found=places(large, mazes),
                holds=_any_hold(in_mazes) if enough and len(mazes) == len(MAZES) else None,
            )
        )
        judged = [e for e in effects if e.setting in mazes and e.arm in OBJECTIVES]
        blind = [e for e in judged if not e.seen]
        shares = [e.detectable / e.gap if e.gap > 0.0 else math.inf for e in judged]
        claims.append(
            Found(
                statement="a difference that counts would be significant in every maze",
                stated=f"{SHARE:.0%} of the gap, with a power of 80 %",
                found=f"detectable: {min(shares):.0%} to {max(shares):.0%} of the gap; "
                f"{len(blind)} of {len(judged)} comparisons fall short",
                holds=not blind if enough else None,
            )
        )
    claims += [
        Found(
            statement=f"{name}: one objective raises the mean return over training",
            stated=stated,
            found=places(large, [name]),
            holds=_any_hold(
                met(effects, label, name)
                for label in dict.fromkeys(e.arm for e in effects if e.setting == name)
                if label in OBJECTIVES
            )
            if enough
            else None,
        )
        for name in others
    ]
    if NULL in settings:
        better = {label: met_in(effects, label, "significant") for label in OBJECTIVES}
        null = [each for each in effects if each.setting == NULL and each.arm in OBJECTIVES]
        excluded = {each.arm for each in null if each.excluded} == {each.arm for each in null}
        gained = any(NULL in names for names in better.values())
        claims.append(
            Found(
                statement=f"{NULL}, whose agents see positions: no objective is better",
                stated=f"the expected null: none with p < {SIGNIFICANCE:g} {over_both}, and 95 % "
                f"intervals that exclude {SHARE:.0%} of the gap over one of them",
                found=places(better, [NULL]),
                holds=(False if gained else True if excluded else None) if enough else None,
            )
        )
    return claims


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


def _mazes(base: AgentConfig) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            base=dataclasses.replace(base, environment=f"puddle-world:{name}"),
            length_scale=_CODE_SCALE,
        )
        for name in MAZES
    )


def _null(base: AgentConfig, tasks: tuple[str, ...]) -> Setting:
    """Make agents of Sutton's PuddleWorld, whose own goal and penalties are on."""
    positions = dataclasses.replace(
        base,
        environment="puddle-world",
        observation=observation_of(NULL),
        goal=None,
        encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    )
    return Setting(base=positions, length_scale=0.2, solved=-40.0, tasks=tasks)


_SOLVED = {"Acrobot-v1": -100.0, "MountainCar-v0": -110.0}
"""Environment on the host → return at which Gymnasium's registry calls it solved."""

_HOST_DQN = DQNConfig(
    learning_rate=1e-3,
    schedule="constant",
    adam_epsilon=1e-3,
    reward_scale=0.02,
    n_step=5,
    target_every=100,
    steps_per_update=8,
)

_ACROBOT = AgentConfig(
    environment="Acrobot-v1",
    # All of its coordinates are bounded, so that cosines of them make sense.
    encoder=FourierMLP(hidden=(64, 64), frequencies=2),
    num_features=64,
    dqn=_HOST_DQN,
    num_envs=8,
)

_MOUNTAIN_CAR = dataclasses.replace(
    _ACROBOT,
    environment="MountainCar-v0",
    encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    dqn=dataclasses.replace(_HOST_DQN, epsilon_end=0.1),
)


def _on_host(base: AgentConfig, agents: AgentConfig, tasks: tuple[str, ...]) -> Setting:
    """Train agents on the host as long and as many as others are."""
    copied = ("steps", "evaluate_every", "num_seeds", "seed", "normalise_features")
    warmup = base.dqn.warmup
    agents = dataclasses.replace(
        agents,
        dqn=dataclasses.replace(agents.dqn, warmup=warmup, epsilon_steps=base.dqn.epsilon_steps),
        evaluation_episodes=4,
        replay=base.replay,
        **{name: getattr(base, name) for name in copied},
    )
    solved = _SOLVED[agents.environment]
    wider = len(tasks) == len(TASKS)
    return Setting(base=agents, length_scale=0.5, solved=solved, tasks=tasks, wider=wider)


def _preset(
    base: AgentConfig,
    beside: tuple[str, ...] = tuple(TASKS),
    on_host: tuple[str, ...] = tuple(TASKS),
    **tuning: Any,
) -> Config:
    hosted = [_on_host(base, agents, on_host) for agents in (_ACROBOT, _MOUNTAIN_CAR)]
    return Config(settings=(*_mazes(base), _null(base, beside), *hosted), **tuning)


_SMOKE = dataclasses.replace(
    _LAPTOP,
    encoder=MLP(hidden=(8,)),
    num_features=4,
    dqn=dataclasses.replace(_LAPTOP.dqn, warmup=640, batch_size=8, epsilon_steps=320),
    replay=ReplayConfig(capacity=2_000),
    max_episode_steps=20,
    steps=768,
    evaluate_every=384,
    evaluation_episodes=2,
    num_seeds=2,
)

_PAPER = dataclasses.replace(
    _LAPTOP,
    encoder=MLP(hidden=(128, 128)),
    num_features=32,
    replay=ReplayConfig(capacity=200_000),
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


class Tuned(NamedTuple):
    """What tuning found.

    Attributes:
        weights: Task → the best weight.
        rows: Of every task and weight, for a result file.
    """

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
    trials = {
        f"tuning/{in_path(label)}/{in_path(f'{weight:g}')}": Arm(
            label=label,
            config=dataclasses.replace(
                first.with_task(label, weight),
                seed=config.tuning_seed,
                num_seeds=config.tuning_agents,
                steps=config.tuning_steps,
            ),
        )
        for label in labels
        for weight in config.weights
    }
    found = run.measured(train_arm, trials, keep=False, title="weights", show=False)
    rows = [
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
    shared = {label: weights[other] for label, other in _AS.items() if other in weights}
    return Tuned({**weights, **shared}, rows)


def cells(run: Run[Config]) -> dict[str, Arm]:
    """List the arms of every setting."""
    return {
        f"{in_path(setting.name)}/{in_path(label)}": arm
        for setting in run.config.settings
        for label, arm in setting.arms(run.shared.weights).items()
    }


def report(run: Run[Config], found: dict[str, ArmRuns]) -> Findings:
    """Compare the arms of every setting."""
    config, tuned = run.config, run.shared
    best = {setting.name: setting.best() for setting in config.settings}
    comparisons = [
        Comparison(
            environment=setting.name,
            threshold=setting.solved
            if setting.solved is not None
            else round(2.0 * best[setting.name], 1),
            runs=[
                arm for name, arm in found.items() if name.startswith(f"{in_path(setting.name)}/")
            ],
        )
        for setting in config.settings
    ]
    returns = {
        each.environment: {arm.label: arm.mean_returns for arm in each.runs} for each in comparisons
    }
    effects = effects_of(returns, best)
    agents = min(len(arm.returns) for arm in found.values())
    rows = [
        {
            **{name: getattr(each, name) for name in ("setting", "arm", "against")},
            "difference": each.difference.value,
            "low": each.difference.low,
            "high": each.difference.high,
            "share_of_gap": each.share,
            "p": each.p,
            "detectable": each.detectable,
            "detectable_share": each.detectable / each.gap if each.gap > 0.0 else math.nan,
            "best": best[each.setting],
        }
        for each in effects
    ]
    run.write_rows("effects", rows)
    run.write_rows("tuning", tuned.rows)
    header = [
        "",
        "against",
        "difference",
        "of the gap",
        "p",
        "detectable",
        f"{SHARE:.0%} detectable",
    ]
    tables = [
        Table(
            header,
            [
                (
                    each.arm,
                    each.against,
                    signed(each.difference),
                    f"{each.share:.0%}" if each.gap > 0.0 else None,
                    each.p,
                    each.detectable,
                    each.seen if each.gap > 0.0 else None,
                )
                for each in effects
                if each.setting == name
            ],
            f"{name}: mean over agents of differences of the mean return over training, with 95 % "
            f"intervals. {'Best return' if name in MAZES else 'Return that counts as solved'}: "
            f"{format_number(best[name])}. p-values are adjusted for all "
            f"{len(effects)} comparisons of the run (Holm). Detectable: the smallest difference "
            f"found with a power of 80 % at {SIGNIFICANCE:g} / {len(effects)}; one of {SHARE:.0%} "
            "of the gap would be significant where it is not more.",
        )
        for name in returns
    ]
    choice = Table(
        ("", "weight", "mean return over training", "chosen"),
        [
            (
                row["arm"],
                row["weight"],
                row["mean_return"],
                row["weight"] == tuned.weights[row["arm"]],
            )
            for row in tuned.rows
        ],
        f"{config.settings[0].name}: {config.tuning_agents} agents of seeds from "
        f"{config.tuning_seed} on, {config.tuning_steps:,} steps.",
    )
    base = config.settings[0].base
    goals = Section(
        title="Goals",
        text="Deep Q-networks that share a torso with an auxiliary task, or do not. All act at "
        f"random for the first {base.dqn.warmup:,} steps, and read values from features of mean "
        "square 1. Tasks have a head of their own; their targets are sums along replayed "
        "sequences so long that at most 5 % of the discounted sum is missing. Explicit weights "
        "are per action, of the policies in replay or of the random policy of the warm-up alone; "
        "the others are per state. The data-free control has explicit weights per action for "
        "random functions of the observation. A gap is the best mean return minus the "
        f"baseline's. Fewer than {FEWEST_AGENTS} agents an arm give no verdict; here there are "
        f"{agents}.",
        tables=[*tables, choice],
    )
    means = "; ".join(
        f"{each.environment} {format_number(float(each.baseline.mean_returns.mean()))}"
        for each in comparisons
    )
    return Findings(
        abstract=f"{agents} agents an arm, {base.steps:,} environment steps each. Mean return over "
        f"training with {NO_TASK}: {means}.",
        claims=claims_of(effects, agents),
        sections=[goals, *comparison_sections(run, comparisons)],
        summary={
            "weights": tuned.weights,
            "effects": rows,
            "comparisons": [each.summary() for each in comparisons],
        },
    )


EXPERIMENT = Experiment(
    name="auxiliary-online",
    title="Auxiliary tasks for agents that learn online",
    paper="Our own experiment.",
    presets=PRESETS,
    cells=cells,
    measure=train_arm,
    report=report,
    check=check,
    prepare=tune,
    keeps_parts=False,
    stated="our goal",
)
