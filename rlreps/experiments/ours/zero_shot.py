"""Policies for rewards that were not known when the representation was learned.

**Question.** From some steps of the random policy without rewards: how good are the policies
``rep.policy(task, improvements)`` for rewards that are named afterwards? And how many steps does an
agent need that learns each reward by itself?

**Arms**, all for the same rewards:

- learned: ``rlreps.successor.fit`` with its defaults and the known policy, from some free steps;
  one step of improvement on the random policy, and five steps of policy iteration in the features
  of the fit (improvements vary at the main number of steps, the steps at the main number of
  improvements). In mazes the distinct codes are counted; in ``sutton`` random Fourier features
  see (x, y);
- tabular: the cells' model counted from the same transitions, with value iteration to the optimum
  (an action that was not tried is taken to stay). In ``sutton`` it is given the grid;
- reference: greedy on the random policy's exact values, so one improvement. It is no bound:
  greedy on approximate values may do better by chance, and five improvements do;
- DQN: this toolkit's agent with the reward at hand, snapshots of one run (constant learning rate);
  of ten rewards, five of each kind. Nothing ends its episodes but their cap. In mazes it sees codes
  through a network, where the fit counts the distinct codes. It was not tuned.

**Metric.** Gain (V - V of random) / (V of optimal - V of random), means over all cells as starts,
solved for in the cells' model; 1 is optimal, 0 random. All rewards count on arrival.

**Design.** 50 smooth rewards (random networks of (x, y) that vary over half the square's side) and
50 discs (reward 1 in each) an arena. Rewards are the units of intervals and tests: statements are
of rewards to come, given the data and the fit of this run; with several replicates of data and fit,
gains are their means.

**Goals**: with five improvements and 30,000 steps, gain of smooth rewards at least 0.95 and of
discs at least 0.9, each in all three mazes (the lower end of the 95 % interval). **Refuted** where
an upper end lies below. In ``sutton``, whose agents see (x, y), we expect DQN to need no more steps
than the free ones: met where the interval of learned less DQN ends at or below 0, refuted where it
begins above.

DQN is judged at its last snapshot that is not beyond the free steps. As there is none at 30,000
steps, that is 20,000: fewer than the free steps, which favours the fit. Claims say what
its last snapshot shows beside it. Of five rewards, differences have intervals but no tests: five
pairs' sign flips have no p-value below 1/16.

**Chosen beforehand on seed 1000**: that smooth rewards vary over 0.5 of the side, after 12 rewards
each of 0.2, 0.4 and 0.6, for which the reference gained 0.89, 0.93 and 0.96 in ``five_corridors``
and 0.86, 0.90 and 0.90 in ``four_rooms``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents import AgentConfig, DQNConfig
from rlreps.agents.compiled import CompiledTrainer
from rlreps.agents.dqn import make_agent
from rlreps.cumulants import RandomNetwork
from rlreps.encoders import MLP, FourierMLP
from rlreps.envs import PuddleWorld, PuddleWorldState
from rlreps.envs.core import TimeStep, observation_struct, pytree_dataclass
from rlreps.errors import require, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, in_path, table_of
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import (
    BINS,
    CAP,
    FIT,
    MAZES,
    NULL,
    CellModel,
    in_two_mazes,
)
from rlreps.numerics import jit_briefly, seed_key
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.report.page import Section
from rlreps.report.table import format_number
from rlreps.runs.intervals import Interval, holm, mean_interval, sign_flip_p_value
from rlreps.runs.intervals import smallest_detectable as detectable
from rlreps.successor.data import Transitions
from rlreps.successor.grids import Grid

FloatArray = npt.NDArray[np.float64]

SMOOTH, DISCS = "smooth rewards", "discs"
KINDS = (SMOOTH, DISCS)

LEARNED, TABULAR, REFERENCE, DQN = "learned", "tabular model", "exact values", "DQN"
"""Labels of the arms."""

_OF_REFERENCE = "ceiling"
"""What measurements call the reference, as runs of old did: it bounds nothing."""

GOALS = {SMOOTH: 0.95, DISCS: 0.9}
LEVEL = 0.05
FEWEST = 20
"""Rewards of a kind below which no verdict is given."""
FEWEST_DQN = 5
"""The same of rewards that agents learn, and of agents for each."""


def _agents(arena: str) -> AgentConfig:
    """Return agents that see codes, or positions in ``sutton``."""
    positions = arena == NULL
    return AgentConfig(
        encoder=FourierMLP(hidden=(64, 64), frequencies=4) if positions else MLP(hidden=(64, 64)),
        num_features=32,
        # Rewards vary by about 1, and values by ten times as much.
        dqn=DQNConfig(discount=0.95, schedule="constant", reward_scale=0.1, batch_size=32),
        max_episode_steps=CAP,
        steps=60_000,
        num_seeds=5,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Policies for rewards named afterwards, in some arenas.

    Attributes:
        arenas: Their names.
        improvements: Steps of policy improvement.
        steps: Numbers of free steps.
        main: (improvements, steps) that the goals are judged at; improvements vary at these steps,
            steps at these improvements.
        replicates: Sets of transitions and fits.
        num_rewards: Of each kind.
        length_scale: Over which smooth rewards vary, in sides of the square.
        radius: Of discs.
        dqn_rewards: Of each kind, that agents learn.
        dqn_steps: Environment steps of agents at their snapshots, increasing.
        codes: Agents that see codes; their discount is everyone's γ.
        positions: Agents that see positions.
        seed: Of the first replicate, and of rewards.
    """

    arenas: tuple[str, ...] = (*MAZES, NULL)
    improvements: tuple[int, ...] = (1, 5)
    steps: tuple[int, ...] = (3_000, 10_000, 30_000, 100_000)
    main: tuple[int, int] = (5, 30_000)
    replicates: int = 1
    num_rewards: int = 50
    length_scale: float = 0.5
    radius: float = 0.08
    dqn_rewards: int = 5
    dqn_steps: tuple[int, ...] = (0, 5_000, 20_000, 60_000)
    codes: AgentConfig = dataclasses.field(default=_agents(MAZES[0]))
    positions: AgentConfig = dataclasses.field(default=_agents(NULL))
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("replicates", "num_rewards", "dqn_rewards"):
            require_positive(name, getattr(self, name))
        for name in ("improvements", "steps", "dqn_steps"):
            given = getattr(self, name)
            rises = bool(np.all(np.diff(given) > 0)) and len(given) >= 1
            require(rises, f"increasing {name}", given)
        improvements, steps = self.main
        known = improvements in self.improvements and steps in self.steps
        require(known, "main to be of improvements and steps", self.main)
        require(
            self.dqn_rewards <= self.num_rewards, "dqn_rewards <= num_rewards", self.dqn_rewards
        )
        for name in ("length_scale", "radius"):
            require_interval(name, getattr(self, name), "(0, inf)")
        for agents in (self.codes, self.positions):
            last = self.dqn_steps[-1]
            require(agents.steps == last, f"agents of {last} steps", agents.steps)
            same = agents.dqn.discount == self.discount
            require(same, "agents of one discount", agents.dqn.discount)

    @property
    def discount(self) -> float:
        """γ."""
        return self.codes.dqn.discount

    @property
    def fits(self) -> list[tuple[int, int]]:
        """Improvements and steps of the learned policies."""
        improvements, steps = self.main
        return [(each, steps) for each in self.improvements] + [
            (improvements, each) for each in self.steps if each != steps
        ]


_BRIEF: dict[str, Any] = {"steps": 1_200, "evaluate_every": 600, "num_seeds": 2}
_SMOKE = Config(
    arenas=("five_corridors",),
    improvements=(2,),
    steps=(3_000,),
    main=(2, 3_000),
    num_rewards=3,
    dqn_rewards=1,
    dqn_steps=(0, 1_200),
    codes=dataclasses.replace(_agents(MAZES[0]), **_BRIEF),
    positions=dataclasses.replace(_agents(NULL), **_BRIEF),
)

PRESETS = {
    "smoke": _SMOKE,
    "laptop": Config(),
    "paper": Config(replicates=5, dqn_rewards=25),
}


# --- What is measured -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """An arena with rewards, those of each kind together.

    Attributes:
        model: The cells.
        rewards: Of arriving in each cell, [n, kinds · m].
        discount: γ.
    """

    model: CellModel
    rewards: FloatArray
    discount: float

    @cached_property
    def random(self) -> FloatArray:
        """Values of the random policy, [n, kinds · m]."""
        return self.model.policy_values(self.model.uniform, self.rewards, self.discount)

    @cached_property
    def optimal(self) -> FloatArray:
        """Optimal values, [n, kinds · m]."""
        found = self.model.optimal_action_values(self.rewards, self.discount)
        return np.asarray(found.max(axis=1))

    def gains(self, policies: Sequence[FloatArray]) -> FloatArray:
        """Compute the gain of a policy (actions [n] or probabilities) for each reward, [kinds · m].

        Args:
            policies: One for each reward, from the first on.
        """
        values = [
            self.model.policy_values(policy, self.rewards[:, [index]], self.discount).mean()
            for index, policy in enumerate(policies)
        ]
        count = len(policies)
        least = self.random[:, :count].mean(axis=0)
        found: FloatArray = (values - least) / (self.optimal[:, :count].mean(axis=0) - least)
        return found

    def chosen(self, indices: Sequence[int]) -> "Problem":
        """Return the problem with some of its rewards."""
        return Problem(self.model, self.rewards[:, list(indices)], self.discount)


def problem_of(config: Config, arena: str) -> Problem:
    """Draw an arena's rewards, smooth ones first."""
    model, count = mazes.cell_model(arena), config.num_rewards
    family = RandomNetwork(input_scale=1.0 / config.length_scale)
    params = family.init(seed_key(config.seed, 10), count)
    smooth = np.asarray(family.apply(params, jnp.asarray(model.centres)), np.float64)
    smooth = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
    rng = np.random.default_rng((config.seed, 11))
    places = model.centres[rng.choice(model.num_cells, count, replace=count > model.num_cells)]
    discs = model.discs(np.column_stack([places, np.full(count, config.radius)]))
    return Problem(model, np.concatenate([smooth, discs], axis=1), config.discount)


def greedy(values: npt.ArrayLike) -> list[FloatArray]:
    """Return the actions [n] of greatest values [n, A, m], for each reward."""
    return list(np.argmax(values, axis=1).T)


def learned_policies(
    learned: mazes.AtCells,
    reached: npt.NDArray[np.int64],
    problem: Problem,
    improvements: int | None,
) -> list[FloatArray]:
    """Return the policies [n, A] of a representation for each reward.

    Args:
        learned: The representation.
        reached: Cells of the states that its data reached, [N].
        problem: The rewards.
        improvements: As of ``SuccessorRepresentation.policy``.
    """
    tasks = [
        learned.representation.task(learned.data.next_observation, rewards)
        for rewards in problem.rewards[reached].T
    ]
    return [learned.policy(task, improvements) for task in tasks]


def counted(model: CellModel, data: Transitions) -> CellModel:
    """Estimate a model of the cells by counting; what was not tried is taken to stay.

    Args:
        model: The cells, of whose probabilities nothing is used.
        data: Transitions as agents see them.
    """
    before, after = (model.cells_of(each) for each in (data.observation, data.next_observation))
    known = (before >= 0) & (after >= 0)
    counts = np.zeros_like(model.moves.to)
    np.add.at(counts, (data.action[known], before[known], after[known]), 1.0)
    total = counts.sum(axis=2, keepdims=True)
    stay = np.eye(model.num_cells)[None]
    to = np.where(total > 0.0, counts / np.maximum(total, 1.0), stay)
    return dataclasses.replace(model, moves=model.moves._replace(to=to))


def tabular_policies(model: CellModel, data: Transitions, problem: Problem) -> list[FloatArray]:
    """Return the optimal policies of the counted model, uniform where no action was tried."""
    estimate = counted(model, data)
    tried = np.isin(np.arange(model.num_cells), model.cells_of(data.observation))
    values = estimate.optimal_action_values(problem.rewards, problem.discount)
    return [
        np.where(tried[:, None], model.probabilities(policy), model.uniform)
        for policy in greedy(values)
    ]


@pytree_dataclass()
@dataclasses.dataclass(frozen=True)
class Rewarded:
    """An arena whose only reward is that of the cell reached, and whose episodes only its cap ends.

    Attributes:
        world: The arena.
        rewards: Of all cells of the grid, [bins²].
    """

    world: PuddleWorld
    rewards: Array

    @property
    def num_actions(self) -> int:
        """As of the arena."""
        return self.world.num_actions

    def reset(self, key: Array) -> PuddleWorldState:
        """Start as in the arena."""
        return self.world.reset(key)

    def observe(self, state: PuddleWorldState) -> Array:
        """Return what is seen in the arena."""
        return self.world.observe(state)

    def step(self, key: Array, state: PuddleWorldState, action: Array) -> TimeStep:
        """Move as in the arena, for the reward of the cell reached."""
        taken = self.world.step(key, state, action)
        # As ``cell_moves``: a place on a wall's edge belongs to the side that it was reached from.
        end = taken.state.position
        cell = Grid(BINS).cell(end + 1e-3 * (state.position - end))
        return taken._replace(reward=self.rewards[cell])


def dqn_gains(
    config: Config, problem: Problem, devices: Sequence[jax.Device] | None = None
) -> FloatArray:
    """Train agents for each reward, by one program, and measure [snapshots, rewards, seeds].

    Args:
        config: The agents.
        problem: The rewards.
        devices: That rewards are shared out to; None is JAX's default device.
    """
    model = problem.model
    agents = config.positions if model.arena == NULL else config.codes
    world = mazes.world_of(model.arena)
    seen = observation_struct(world)
    agent = make_agent(agents, seen.shape, world.num_actions, observation_dtype=seen.dtype)
    observations = jnp.asarray(model.observations)

    def train(rewards: Array) -> Array:
        trainer = CompiledTrainer(agents, Rewarded(world, rewards), agent)
        state, step, values = trainer.init(), 0, []
        for until in config.dqn_steps:
            if until > step:
                state, _ = trainer.advance(state, step, until - step)
                step = until
            params = state.memory.learner.params
            values.append(jax.vmap(agent.network.values, in_axes=(0, None))(params, observations))
        return jnp.stack(values)

    table = np.zeros((problem.rewards.shape[1], BINS**2), np.float32)
    table[:, model.moves.cells] = problem.rewards.T
    # One reward at a time: together, the agents of all would draw a reset at every step.
    compiled, places = jit_briefly(train), devices or jax.devices()[:1]
    started = [
        compiled(jax.device_put(rewards, places[index % len(places)]))
        for index, rewards in enumerate(table)
    ]
    # [rewards, snapshots, seeds, n, A]
    values = np.stack([np.asarray(each) for each in started])
    gains = [
        [problem.gains(list(of_seed)) for of_seed in snapshot.swapaxes(0, 1)]
        for snapshot in values.argmax(axis=-1).swapaxes(0, 1)
    ]
    return np.swapaxes(np.asarray(gains), 1, 2)


class Cell(NamedTuple):
    """One measurement.

    Attributes:
        arm: Its label.
        arena: Its name.
        improvements: Of learned policies.
        steps: Free steps, where there are any.
        seed: Of a replicate.
    """

    arm: str
    arena: str
    improvements: int | None = None
    steps: int | None = None
    seed: int | None = None


def cells(run: Run[Config]) -> dict[str, Cell]:
    """List what is measured."""
    config = run.config
    listed = []
    for arena in config.arenas:
        listed.append(Cell(_OF_REFERENCE, arena))
        for seed in range(config.seed, config.seed + config.replicates):
            listed += [Cell(LEARNED, arena, *fit, seed) for fit in config.fits]
            listed += [Cell(TABULAR, arena, None, steps, seed) for steps in config.steps]
    listed += [Cell(DQN, arena) for arena in config.arenas]
    return {
        in_path("-".join(str(part) for part in cell if part is not None)): cell for cell in listed
    }


def prepare(run: Run[Config]) -> dict[str, Problem]:
    """Draw the rewards of every arena."""
    return {arena: problem_of(run.config, arena) for arena in run.config.arenas}


def measure(run: Run[Config], name: str, cell: Cell) -> dict[str, Any]:
    """Measure gains: [rewards], or of DQN [snapshots][rewards][seeds]."""
    config, problem = run.config, run.shared[cell.arena]
    model = problem.model
    if cell.arm == _OF_REFERENCE:
        values = np.einsum(
            "ast,tm->sam",
            model.moves.to,
            problem.rewards + problem.discount * problem.random,
            optimize=True,
        )
        found = problem.gains(greedy(values))
    elif cell.arm == DQN:
        found = dqn_gains(config, problem.chosen(_of_agents(config)), run.devices)
    else:
        assert cell.steps is not None
        assert cell.seed is not None
        data = mazes.free_transitions(cell.arena, cell.steps, cell.seed)
        if cell.improvements is None:
            policies = tabular_policies(model, data, problem)
        else:
            how = dataclasses.replace(FIT, discount=config.discount, seed=cell.seed)
            fitted = mazes.fitted(cell.arena, data, how)
            reached = model.cells_of(data.next_observation)
            policies = learned_policies(fitted, reached, problem, cell.improvements)
        found = problem.gains(policies)
    return {**cell._asdict(), "gains": found.tolist()}


def _of_agents(config: Config) -> list[int]:
    """Return the indices of rewards that agents learn."""
    return [
        kind * config.num_rewards + index
        for kind in range(len(KINDS))
        for index in range(config.dqn_rewards)
    ]


# --- What is reported -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gains:
    """Gains of an arena for rewards of one kind.

    Attributes:
        arena: Its name.
        kind: Of the rewards.
        fits: (improvements, steps) → gains of learned policies, means over replicates, [m].
        tabular: Steps → gains of the counted model, likewise.
        reference: Gains of greedy on exact values, [m].
        agents: Gains of DQN, means over seeds, [snapshots, rewards that agents learn].
    """

    arena: str
    kind: str
    fits: Mapping[tuple[int, int], FloatArray]
    tabular: Mapping[int, FloatArray]
    reference: FloatArray
    agents: FloatArray


class Contrast(NamedTuple):
    """The learned policies, at the main setting, against another arm, reward by reward."""

    arena: str
    kind: str
    other: str
    ours: FloatArray
    theirs: FloatArray

    @property
    def interval(self) -> Interval:
        """Mean difference, ours less theirs, with its 95 % interval."""
        return mean_interval(self.ours - self.theirs)

    @property
    def tested(self) -> bool:
        """Tell whether it is of the tests: not against agents, which learn few of the rewards."""
        return not self.other.startswith(DQN)


def collect(config: Config, found: Sequence[Mapping[str, Any]]) -> list[Gains]:
    """Sort measurements by arena and kind."""
    kept = []
    for arena in config.arenas:
        here = [each for each in found if each["arena"] == arena]

        def mean(
            rows: slice, here: Sequence[Mapping[str, Any]] = here, **wanted: Any
        ) -> FloatArray:
            chosen = [
                each["gains"][rows]
                for each in here
                if all(each[name] == value for name, value in wanted.items())
            ]
            return np.asarray(np.mean(chosen, axis=0))

        (agents,) = [np.mean(each["gains"], axis=2) for each in here if each["arm"] == DQN]
        for index, kind in enumerate(KINDS):
            rows = slice(index * config.num_rewards, (index + 1) * config.num_rewards)
            learned = slice(index * config.dqn_rewards, (index + 1) * config.dqn_rewards)
            kept.append(
                Gains(
                    arena=arena,
                    kind=kind,
                    fits={
                        fit: mean(rows, arm=LEARNED, improvements=fit[0], steps=fit[1])
                        for fit in config.fits
                    },
                    tabular={steps: mean(rows, arm=TABULAR, steps=steps) for steps in config.steps},
                    reference=mean(rows, arm=_OF_REFERENCE),
                    agents=agents[:, learned],
                )
            )
    return kept


def contrasts(config: Config, gains: Sequence[Gains]) -> list[Contrast]:
    """Pair the representation with the tabular model, the reference and agents' snapshots."""
    listed = []
    for each in gains:
        ours = each.fits[config.main]
        pairs = {f"{TABULAR}, {config.main[1]:,} steps": each.tabular[config.main[1]]}
        pairs[REFERENCE] = each.reference
        for steps, theirs in zip(config.dqn_steps, each.agents, strict=True):
            pairs[f"{DQN}, {steps:,} steps"] = theirs
        for other, theirs in pairs.items():
            listed.append(Contrast(each.arena, each.kind, other, ours[: len(theirs)], theirs))
    return listed


def break_even(config: Config, gains: Gains) -> int | None:
    """Return the first snapshot from which on agents gain as much as the representation; or None.

    Means over the rewards that agents learn.
    """
    ours = gains.fits[config.main][: gains.agents.shape[1]].mean()
    enough = gains.agents.mean(axis=1) >= ours
    first = len(enough) - int(np.argmin(enough[::-1])) if not enough.all() else 0
    return config.dqn_steps[first] if first < len(enough) else None


def repaid(config: Config, even: int | None) -> str:
    """Say how many rewards it takes until DQN's steps together are as many as the free steps.

    Args:
        config: Of the free steps and the last snapshot.
        even: DQN's steps to break even, as of ``break_even``.

    Returns:
        A number; "never" where DQN breaks even without a step; "at most" a number where it does
        not within its steps, or 1 where these are as many as the free steps.
    """
    if even == 0:
        return "never"
    count = -(-config.main[1] // (even or config.dqn_steps[-1] + 1))
    return f"at most {count:,}" if even is None and count > 1 else f"{count:,}"


def compared(pairs: Sequence[Contrast]) -> list[dict[str, Any]]:
    """List differences with intervals, and of those that are tested what the tests say."""
    tested = [each for each in pairs if each.tested]
    adjusted = holm([sign_flip_p_value(each.ours, each.theirs) for each in tested])
    p_values = iter(adjusted.tolist())
    return [
        {
            "arena": each.arena,
            "rewards": each.kind,
            "against": each.other,
            "number": len(each.ours),
            "higher": int(np.sum(each.ours > each.theirs)),
            "difference": each.interval.value,
            "low": each.interval.low,
            "high": each.interval.high,
            "p_value": next(p_values) if each.tested else None,
            "detectable": (
                detectable(each.ours - each.theirs, LEVEL / len(tested)) if each.tested else None
            ),
        }
        for each in pairs
    ]


def reaches(gains: FloatArray, goal: float) -> bool | None:
    """Return whether the interval of mean gain [m] lies above the goal, or below; else None."""
    if len(gains) < FEWEST:
        return None
    found = mean_interval(gains)
    return True if found.low >= goal else False if found.high < goal else None


def _said(values: FloatArray) -> str:
    found = mean_interval(values)
    low, high = format_number(found.low), format_number(found.high)
    return f"{format_number(found.value)} [{low}, {high}]"


def judge(config: Config, gains: Sequence[Gains]) -> list[Found]:
    """Judge the goal, the reference, and agents that learn each reward for as long or less."""
    improvements, steps = config.main
    smooth = [each for each in gains if each.kind == SMOOTH]
    in_mazes = [each for each in smooth if each.arena != NULL]
    # As many steps as features took, or the next snapshot below.
    snapshot = max(i for i, each in enumerate(config.dqn_steps) if each <= steps or i == 0)
    budget, last = config.dqn_steps[snapshot], config.dqn_steps[-1]
    few = min(config.dqn_rewards, config.codes.num_seeds, config.positions.num_seeds) < FEWEST_DQN

    def lead(each: Gains, index: int = snapshot) -> FloatArray:
        """Gains of the representation less those of agents at a snapshot."""
        theirs = each.agents[index]
        ahead: FloatArray = each.fits[config.main][: len(theirs)] - theirs
        return ahead

    def behind(each: Gains) -> bool | None:
        """Tell whether agents gain less than the representation."""
        if few:
            return None
        difference = mean_interval(lead(each))
        return True if difference.low > 0.0 else False if difference.high < 0.0 else None

    def no_better(each: Gains) -> bool | None:
        """Tell whether the representation gains no more than agents."""
        if few:
            return None
        difference = mean_interval(lead(each))
        return True if difference.high <= 0.0 else False if difference.low > 0.0 else None

    def paired(each: Gains) -> str:
        later = f" (after {last:,} steps {_said(lead(each, -1))})" if last > budget else ""
        return f"{each.arena}: {_said(lead(each))}{later}"

    spent = f"{budget:,} steps"
    if budget < steps:
        spent += f", fewer than the {steps:,} free steps"
    uncorrected = f"{config.dqn_rewards} rewards, each by itself"
    claims = []
    for kind, goal in GOALS.items():
        mine = [each for each in gains if each.kind == kind and each.arena != NULL]
        claims.append(
            Found(
                statement=f"mazes: {improvements} improvements from {steps:,} free steps gain at "
                f"least {goal:g} of the optimum for {kind}",
                stated="in all three mazes, by 95 % intervals over rewards",
                found="; ".join(f"{each.arena}: {_said(each.fits[config.main])}" for each in mine),
                holds=mazes.in_all([reaches(each.fits[config.main], goal) for each in mine]),
            )
        )
    claims += [
        Found(
            statement="mazes: DQN, not tuned, that learns a smooth reward by itself gains less "
            f"after {spent}",
            stated="learned less DQN above 0 in at least two mazes, by 95 % intervals over "
            f"{uncorrected}",
            found="; ".join(map(paired, in_mazes)),
            holds=in_two_mazes([behind(each) for each in in_mazes]),
        ),
    ]
    claims += [
        Found(
            statement=f"{NULL}: it gains no less after {spent}",
            stated=f"learned less DQN at or below 0, by the 95 % interval over {uncorrected}",
            found=paired(each),
            holds=no_better(each),
        )
        for each in smooth
        if each.arena == NULL
    ]
    return claims


def _table_rows(config: Config, gains: Sequence[Gains]) -> list[dict[str, Any]]:
    """List every arm's gains with intervals over rewards."""
    rows = []
    for each in gains:
        arms: list[tuple[str, int | None, int | None, FloatArray]] = [
            (LEARNED, number, steps, values) for (number, steps), values in each.fits.items()
        ]
        arms += [(TABULAR, None, steps, values) for steps, values in each.tabular.items()]
        arms.append((REFERENCE, None, None, each.reference))
        arms += [
            (DQN, None, steps, values)
            for steps, values in zip(config.dqn_steps, each.agents, strict=True)
        ]
        for arm, improvements, steps, values in arms:
            found = mean_interval(values)
            rows.append(
                {
                    "arena": each.arena,
                    "rewards": each.kind,
                    "arm": arm,
                    "improvements": improvements,
                    "steps": steps,
                    "number": len(values),
                    "gain": found.value,
                    "low": found.low,
                    "high": found.high,
                }
            )
    return rows


def _panels(config: Config, gains: Sequence[Gains]) -> list[Panel]:
    panels = []
    for each in gains:
        later = [index for index, steps in enumerate(config.dqn_steps) if steps > 0]
        lines = []
        for improvements in reversed(config.improvements):
            taken = [steps for steps in config.steps if (improvements, steps) in each.fits]
            curve = np.transpose([each.fits[improvements, steps] for steps in taken])
            lines.append(Line.of_runs(f"{LEARNED}, {_counted(improvements)}", taken, curve))
        lines += [
            Line.of_runs(
                TABULAR, config.steps, np.transpose([each.tabular[s] for s in config.steps])
            ),
            Line.of_runs(
                REFERENCE,
                config.steps,
                np.repeat(each.reference[:, None], len(config.steps), axis=1),
            ),
            Line.of_runs(DQN, [config.dqn_steps[i] for i in later], each.agents[later].T),
        ]
        panels.append(Panel(title=f"{each.arena}, {each.kind}", lines=lines))
    return panels


def _counted(improvements: int) -> str:
    return f"{improvements} improvement{'s' if improvements > 1 else ''}"


def report(run: Run[Config], found: dict[str, Any]) -> Findings:
    """Tabulate and draw gains, state the break-even, and judge the goal."""
    config = run.config
    gains = collect(config, list(found.values()))
    pairs = contrasts(config, gains)
    level = LEVEL / sum(each.tested for each in pairs)
    rows_against = compared(pairs)
    run.write_rows("contrasts", rows_against)
    improvements, steps = config.main
    evens = []
    for each in gains:
        even = break_even(config, each)
        most = f"more than {config.dqn_steps[-1]:,}"
        evens.append(
            {
                "arena": each.arena,
                "rewards": each.kind,
                "steps": most if even is None else f"{even:,}",
                "repaid": repaid(config, even),
            }
        )
    run.write_rows("break_even", evens)
    rows = _table_rows(config, gains)
    figure = run.show(
        "gains",
        "Gain against environment steps: free steps of the random policy for the fit and the "
        "tabular model, steps with the reward at hand for DQN. Means over "
        "rewards with 95 % intervals; 1 is optimal, 0 the random policy.",
        rows,
        plot_panels(
            _panels(config, gains),
            note="mean over rewards, 95 % interval",
            x_label="environment steps",
            y_label="gain (0 random, 1 optimal)",
            log_x=True,
            log_y=False,
            x_ticks={steps: f"{steps / 1_000:g}k" for steps in config.steps},
        ),
    )
    every = table_of(
        rows,
        {
            "arena": "arena",
            "rewards": "rewards",
            "arm": "arm",
            "improvements": "improvements",
            "steps": "steps",
            "number": "number",
            "gain": "gain",
            "low": "low",
            "high": "high",
        },
        "Gains of every arm, means over rewards with 95 % intervals.",
    )
    against = table_of(
        rows_against,
        {
            "arena": "arena",
            "rewards": "rewards",
            "against": "against",
            "number": "number",
            "higher for": "higher",
            "difference": "difference",
            "low": "low",
            "high": "high",
            "p, adjusted": "p_value",
            "detectable": "detectable",
        },
        f"Learned policies ({_counted(improvements)}, {steps:,} steps) less each other arm, reward "
        "by reward, with 95 % intervals (above 0: learned policies gain more), and for how many of "
        "them learned policies gain more. p-values are of sign flips, adjusted for their number "
        "(Holm 1979); DQN's rewards are too few for tests and not of this number. Detectable: the "
        "smallest difference that a paired t-test would find with 80 % power at level "
        f"{format_number(level)}, from the spread of these rewards.",
    )
    even_table = table_of(
        evens,
        {
            "arena": "arena",
            "rewards": "rewards",
            "DQN steps to break even": "steps",
            "rewards that repay the free steps": "repaid",
        },
        "The first snapshot from which on DQN's mean gain is at least that of learned policies, "
        "and how many rewards it takes until DQN's steps together are as many as the free steps. "
        "By means alone; and DQN may have broken even at any step since the snapshot before, so "
        "that it takes more rewards.",
    )
    goals = Section(
        title="Goals",
        text=f"A representation is fitted to {steps:,} steps of the random policy without rewards; "
        "then rewards are named, and policies after one step of improvement on the random policy "
        f"and after {improvements} are measured in the exact model of the cells. Greedy on the "
        "exact values is a reference, one step of improvement, too; it is no bound. The tabular "
        "model counts transitions between cells and iterates to the optimum, which it can as long "
        "as cells are few. DQN, which was not tuned, learns each reward by itself: "
        f"{config.dqn_rewards} of each kind, {config.codes.num_seeds} agents for each. Fewer than "
        f"{FEWEST} rewards of a kind, or {FEWEST_DQN} that agents learn, give no verdict. In mazes "
        "DQN sees the codes of cells through a network, where the fit counts the distinct codes. "
        "Claims compare it at its last snapshot that is not beyond the "
        f"{steps:,} free steps, and show what the last one says.",
        tables=[even_table, against],
        figures=[figure],
    )
    said = "; ".join(
        f"{each.arena}, {each.kind}: {format_number(each.fits[config.main].mean())} (exact "
        f"values {format_number(each.reference.mean())}, tabular model "
        f"{format_number(each.tabular[steps].mean())})"
        for each in gains
    )
    return Findings(
        abstract=f"Gain after {_counted(improvements)} from {steps:,} free steps: {said}.",
        claims=judge(config, gains),
        sections=[goals, Section(title="Every arm", tables=[every])],
        summary={"contrasts": rows_against, "break_even": evens},
    )


EXPERIMENT = Experiment(
    name="zero-shot",
    title="Policies for rewards named afterwards",
    paper="Our own experiment.",
    presets=PRESETS,
    prepare=prepare,
    cells=cells,
    measure=measure,
    report=report,
    counts_cells=True,
    stated="our goal",
)
