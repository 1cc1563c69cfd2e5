"""Policies for rewards that were not known when the representation was learned.

**Question.** A representation is fitted to steps of the random policy without rewards. How good are
its policies ``rep.policy(task, improvements)`` for rewards given afterwards? And how many steps
does an agent need to learn each reward from scratch?

**Arms**, all for the same rewards:

- learned: ``rlreps.successor.fit`` with its defaults and the known policy, from some number of free
  steps, with one step of policy improvement on the random policy or with five. In mazes the
  distinct codes are counted; in ``sutton`` random Fourier features see (x, y), and five
  improvements are fitted Q iteration;
- tabular: the optimal policy of the cells' model, counted from the same transitions (an action that
  was not tried is assumed to stay). In ``sutton`` this arm is given the grid;
- reference: the greedy policy on the random policy's exact values, which is one exact improvement
  and no upper bound;
- DQN: this toolkit's agent, not tuned, which learns with a known reward and is measured at several
  snapshots of one run. It learns some of the rewards of each kind. In mazes it sees codes through a
  network.

**Metric.** The gain (V - V of random) / (V of optimal - V of random), where each V is a mean over
all cells as starts and exact in the cells' model. A gain of 1 is optimal, 0 is random. All rewards
are paid on arrival, and episodes end only at the cap on their steps.

**Design.** Each arena has 50 smooth rewards (random networks of (x, y)) and 50 discs (reward 1
inside). Intervals and tests are over rewards, given the data and the fit of this run. With several
replicates, gains are means over replicates.

**Goals**: with five improvements and 30,000 steps, gain of smooth rewards at least 0.95 and of
discs at least 0.9, each in all three mazes (the lower end of the 95 % interval). **Refuted** if an
upper end lies below. In ``sutton`` we expect DQN to need at most as many steps as the free steps.
This holds if the interval of learned minus DQN ends at or below 0, and is refuted if the interval
begins above 0. DQN is judged at its last snapshot within the free steps, after 20,000 steps, which
favours the fit. With only five rewards, differences have intervals but no tests.

**Chosen beforehand on seed 1000**: the smooth rewards' length scale of 0.5 sides. Before, 12
rewards were tried at each of 0.2, 0.4 and 0.6 sides; the reference gained 0.86 to 0.96 in two
mazes.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents import AgentConfig, CompiledProgram, DQNConfig, make_agent
from rlreps.cumulants import RandomNetwork
from rlreps.encoders import MLP, FourierMLP
from rlreps.envs import (
    PuddleWorld,
    PuddleWorldState,
    TimeStep,
    observation_struct,
    pytree_dataclass,
)
from rlreps.errors import TrainingDivergedError
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import BINS, CAP, CONTROL_ARENA, FIT, MAZES
from rlreps.experiments.ours.tabular import count_world, expected_next, with_rewards
from rlreps.numerics import jit_briefly, seed_key
from rlreps.stats import Sample, Verdict, contrast_rows, format_interval
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Metric,
    Results,
    Run,
    TableRows,
    Tabulated,
    design_of,
    product_cells,
    replace_nested,
    tabulate_summary,
)
from rlreps.successor import Grid, Transitions
from rlreps.typing import DoubleArray
from rlreps.worlds import World

SMOOTH, DISCS = "smooth rewards", "discs"
KINDS = (SMOOTH, DISCS)

LEARNED, TABULAR, REFERENCE, DQN = "learned", "tabular model", "exact values", "DQN"
"""Labels of the arms."""

GOALS = {SMOOTH: 0.95, DISCS: 0.9}
FEWEST = 20
"""Least number of rewards of a kind for a verdict."""
FEWEST_DQN = 5
"""Least number of rewards that agents learn, and of agents for each, for a verdict."""

_RADIUS = 0.08
"""Radius of discs."""

_AGENTS = AgentConfig(
    encoder=MLP(hidden=(64, 64)),
    num_features=32,
    # Rewards vary by about 1, values by about 10.
    dqn=DQNConfig(
        discount=0.95, schedule="constant", reward_scale=0.1, huber_delta=1.0, batch_size=32
    ),
    max_episode_steps=CAP,
    steps=60_000,
    num_seeds=5,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Policies for rewards given after the fit, in some arenas.

    Attributes:
        improvements: Steps of policy improvement.
        steps: Numbers of free steps.
        main: (improvements, steps) at which the goals are judged.
        replicates: Sets of transitions and fits.
        num_rewards: Number of rewards of each kind.
        dqn_rewards: Number of rewards of each kind that agents learn.
        dqn_steps: Environment steps of agents at their snapshots, increasing.
        agents: DQN; all arms share its discount γ.
    """

    arenas: tuple[str, ...] = (*MAZES, CONTROL_ARENA)
    improvements: tuple[int, ...] = (1, 5)
    steps: tuple[int, ...] = (3_000, 10_000, 30_000, 100_000)
    main: tuple[int, int] = (5, 30_000)
    replicates: int = 1
    num_rewards: int = 50
    dqn_rewards: int = 5
    dqn_steps: tuple[int, ...] = (0, 5_000, 20_000, 60_000)
    agents: AgentConfig = _AGENTS

    @property
    def discount(self) -> float:
        """γ."""
        return self.agents.dqn.discount

    @property
    def budget(self) -> int:
        """The last snapshot at which agents had taken at most the free steps."""
        return max(each for each in self.dqn_steps if each <= self.main[1])


LAPTOP = Config()

PRESETS = {
    "smoke": replace_nested(
        LAPTOP,
        arenas=("five_corridors",),
        improvements=(2,),
        steps=(3_000,),
        main=(2, 3_000),
        num_rewards=3,
        dqn_rewards=1,
        dqn_steps=(0, 1_200),
        agents=replace_nested(_AGENTS, steps=1_200, evaluate_every=600, num_seeds=2),
    ),
    "laptop": LAPTOP,
    "paper": replace_nested(LAPTOP, replicates=5, dqn_rewards=25),
}


# --- What is measured -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A world with several rewards.

    Attributes:
        world: The world, whose own rewards do not count.
        rewards: Reward of arriving in each state, [n, m].
        discount: γ.
    """

    world: World
    rewards: DoubleArray
    discount: float

    @cached_property
    def games(self) -> list[World]:
        """The world with each of the rewards."""
        return [with_rewards(self.world, reward) for reward in self.rewards.T]

    @cached_property
    def random(self) -> DoubleArray:
        """Values of the random policy, [n, m]."""
        values = [game.policy_values(discount=self.discount) for game in self.games]
        return np.stack(values, axis=1)

    @cached_property
    def optimal(self) -> DoubleArray:
        """Optimal action values, [n, A, m]."""
        values = [game.optimal_action_values(self.discount) for game in self.games]
        return np.stack(values, axis=2)

    def gains(self, policies: Iterable[DoubleArray]) -> DoubleArray:
        """Compute policies' gains over the random policy, as shares of the optimal gains, [m].

        Args:
            policies: One for each reward, probabilities [n, A].
        """
        values = [
            game.policy_values(policy, self.discount).mean()
            for game, policy in zip(self.games, policies, strict=True)
        ]
        least = self.random.mean(axis=0)
        best = self.optimal.max(axis=1).mean(axis=0)
        gains: DoubleArray = (values - least) / (best - least)
        return gains


def greedy(values: npt.NDArray[Any]) -> DoubleArray:
    """Return greedy policies of action values [n, A, m], [m, n, A]; of equals, the first action."""
    best: DoubleArray = np.eye(values.shape[1])[values.argmax(axis=1).T]
    return best


def problem_of(config: Config, arena: str) -> Problem:
    """Draw an arena's rewards, smooth ones first."""
    world, count = mazes.cell_world(arena), config.num_rewards
    centres = np.asarray(world.coordinates)
    family = RandomNetwork(input_scale=2.0)  # A length scale of half the square's side.
    params = family.init(seed_key(0, 10), count)
    smooth = np.asarray(family.apply(params, jnp.asarray(centres)), np.float64)
    smooth = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
    rng = np.random.default_rng((0, 11))
    places = centres[rng.choice(world.num_states, count, replace=count > world.num_states)]
    discs = mazes.discs(world, np.column_stack([places, np.full(count, _RADIUS)]))
    return Problem(world, np.concatenate([smooth, discs], axis=1), config.discount)


def learned_policies(
    learned: mazes.AtCells,
    reached: npt.NDArray[np.int64],
    problem: Problem,
    improvements: int | None,
) -> list[DoubleArray]:
    """Return a representation's policies [n, A] for each reward, given the cells reached [N]."""
    seen, task = learned.data.next_observation, learned.representation.task
    tasks = [task(seen, rewards) for rewards in problem.rewards[reached].T]
    return [learned.policy(each, improvements) for each in tasks]


def tabular_policies(data: Transitions, problem: Problem) -> list[DoubleArray]:
    """Return the counted world's optimal policies; uniform in cells where no action was tried."""
    states, actions = problem.world.rewards.shape
    seen = data.observation, data.next_observation
    before, after = (mazes.cells_of(problem.world, each) for each in seen)
    counted = count_world(before, data.action, after, (states, actions))
    tried = np.isin(np.arange(states), before)[:, None]
    policies = greedy(dataclasses.replace(problem, world=counted).optimal)
    return [np.where(tried, policy, 1.0 / actions) for policy in policies]


@pytree_dataclass(static=("max_steps", "observation"))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewarded(PuddleWorld):
    """An arena that rewards only the cell reached, and whose episodes end only at the cap.

    Attributes:
        rewards: Rewards of all cells of the grid, [bins²].
    """

    rewards: Array

    @classmethod
    def of(cls, world: PuddleWorld, rewards: Array) -> "Rewarded":
        """Reward the cells of an arena."""
        given = {each.name for each in dataclasses.fields(world) if each.init}
        return cls(**{name: getattr(world, name) for name in given}, rewards=rewards)

    def step(self, key: Array, state: PuddleWorldState, action: Array) -> TimeStep:
        """Move as in the arena; the reward is the reached cell's."""
        taken = super().step(key, state, action)
        # As in ``cell_moves``, a point on a wall's edge belongs to the side from which it was
        # reached.
        end = taken.state.position
        cell = Grid(BINS).cell(end + 1e-3 * (state.position - end))
        return taken._replace(reward=self.rewards[cell])


def dqn_gains(run: Run[Config], arena: str) -> DoubleArray:
    """Train agents for the first rewards of each kind; return gains [rewards, snapshots, seeds].

    Raises:
        TrainingDivergedError: If an agent's values become NaN or infinite.
    """
    config, problem, agents = run.config, run.shared[arena], run.config.agents
    if arena == CONTROL_ARENA:
        agents = replace_nested(agents, encoder=FourierMLP(hidden=(64, 64), frequencies=4))
    environment = mazes.world_of(arena)
    seen = observation_struct(environment)
    agent = make_agent(agents, seen.shape, environment.num_actions, observation_dtype=seen.dtype)
    observations = jnp.asarray(problem.world.observations)

    def train(rewards: Array) -> Array:
        program = CompiledProgram(agents, Rewarded.of(environment, rewards), agent)
        state, step, values = program.init(), 0, []
        for until in config.dqn_steps:
            if until > step:
                state, _ = program.train(state, step, until - step)
                step = until
            params = state.learner.params
            values.append(jax.vmap(agent.network.values, in_axes=(0, None))(params, observations))
        return jnp.stack(values)

    first = np.arange(len(KINDS) * config.num_rewards) % config.num_rewards < config.dqn_rewards
    problem = dataclasses.replace(problem, rewards=problem.rewards[:, first])
    table = np.zeros((problem.rewards.shape[1], BINS**2), np.float32)
    table[:, mazes.places_of(problem.world)] = problem.rewards.T
    # Train one reward at a time: if all trained together, some agent would reset at every step.
    compiled, places = jit_briefly(train), run.devices or jax.devices()[:1]
    started = [
        compiled(jax.device_put(rewards, places[index % len(places)]))
        for index, rewards in enumerate(table)
    ]
    # Values [rewards, snapshots, seeds, n, A].
    values = np.stack([np.asarray(each) for each in started])
    finite = np.isfinite(values).all(axis=(1, 2, 3, 4))
    if not finite.all():
        kind, number = divmod(int(np.argmin(finite)), config.dqn_rewards)
        raise TrainingDivergedError(
            f"expected finite values of agents, got NaN or infinity in {arena} for reward {number} "
            f"of the {KINDS[kind]}; try a smaller learning rate"
        )
    gains = [
        [problem.gains(greedy(of_seed)) for of_seed in snapshot]
        for snapshot in np.moveaxis(values, 0, 4)
    ]
    return np.moveaxis(np.asarray(gains), 2, 0)


def cells(run: Run[Config]) -> dict[str, dict[str, Any]]:
    """List the cells to measure: arms with their options."""
    config = run.config
    free = product_cells(
        "{arm}-{arena}-{steps}-{seed}",
        arm=(LEARNED, TABULAR),
        arena=config.arenas,
        steps=config.steps,
        seed=range(config.replicates),
    )
    return free | product_cells("{arm}-{arena}", arm=(REFERENCE, DQN), arena=config.arenas)


def measure(run: Run[Config], name: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Measure an arm's gains for every reward; DQN's at each snapshot with each seed.

    The reference takes no steps; its gains are repeated at every number of steps.
    """
    config, arm, arena = run.config, cell["arm"], cell["arena"]
    problem: Problem = run.shared[arena]
    axes, lines = dict[str, Any](), [arm]
    if arm == DQN:
        gains = dqn_gains(run, arena)
        axes = {"steps": config.dqn_steps, "seed": [*range(gains.shape[2])]}
    elif arm == REFERENCE:
        values = expected_next(problem.world, problem.rewards + problem.discount * problem.random)
        gains = problem.gains(greedy(values))[:, None].repeat(len(config.steps), axis=1)
        axes = {"steps": config.steps}
    else:
        data = mazes.free_transitions(arena, cell["steps"], cell["seed"])
        if arm == TABULAR:
            gains = problem.gains(tabular_policies(data, problem))
        else:
            how = dataclasses.replace(FIT, discount=config.discount, seed=cell["seed"])
            fitted = mazes.fit_at_cells(arena, data, how)
            reached = mazes.cells_of(problem.world, data.next_observation)
            policies = [
                learned_policies(fitted, reached, problem, count) for count in config.improvements
            ]
            gains = np.stack([problem.gains(each) for each in policies], axis=1)
            axes = {"improvements": config.improvements}
            lines = [f"{arm}, improvements: {count}" for count in config.improvements]
    each = len(gains) // len(KINDS)
    table = gains.reshape(len(KINDS), each, *gains.shape[1:]).tolist()
    axes = {"rewards": KINDS, "reward": [*range(each)], **axes}
    return {"values": {"gain": table, "line": lines}, "axes": axes}


# --- What is reported -----------------------------------------------------------------------------


def ours(results: Results[Config], arena: str, kind: str) -> Sample:
    """Return the gains of learned policies that the goals are judged by."""
    improvements, steps = results.config.main
    at: dict[str, Any] = {"improvements": improvements, "steps": steps}
    return results.sample(arena=arena, rewards=kind, arm=LEARNED, **at)


def lead(results: Results[Config], arena: str, steps: int, kind: str = SMOOTH) -> Sample:
    """Return the gains of learned policies minus the gains of agents at a snapshot."""
    theirs = results.sample(arena=arena, rewards=kind, arm=DQN, steps=steps)
    fewest = FEWEST_DQN if results.config.agents.num_seeds >= FEWEST_DQN else FEWEST
    return ours(results, arena, kind).needing(fewest) - theirs.needing(fewest)


def ahead(results: Results[Config], arena: str) -> Verdict:
    """Judge that learned policies gain more than agents after as many steps or less."""
    found = lead(results, arena, results.config.budget)
    return (found > 0.0).saying(format_interval(found.interval))


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goals, and compare with agents that learn each reward in at most as many steps."""
    config = results.config
    improvements, steps = config.main
    fewer = f", fewer than the {steps:,} free steps" if config.budget < steps else ""
    spent = f"{config.budget:,} steps{fewer}"
    uncorrected = f"{config.dqn_rewards} rewards, each by itself"

    def gains_enough(maze: str, kind: str) -> Verdict:
        return ours(results, maze, kind) > GOALS[kind]

    for kind, goal in GOALS.items():
        yield Claim(
            f"mazes: {improvements} improvements from {steps:,} free steps gain at least {goal:g} "
            f"of the optimum for {kind}",
            "in all three mazes, by 95 % intervals over rewards",
            mazes.in_mazes(results, partial(gains_enough, kind=kind), len(MAZES)),
        )
    yield Claim(
        f"mazes: DQN, not tuned, that learns a smooth reward by itself gains less after {spent}",
        f"learned less DQN above 0 in at least two mazes, by 95 % intervals over {uncorrected}",
        lambda r: mazes.in_mazes(r, partial(ahead, r)),
    )
    if CONTROL_ARENA in config.arenas:
        yield Claim(
            f"{CONTROL_ARENA}: it gains no less after {spent}",
            f"learned less DQN at or below 0, by the 95 % interval over {uncorrected}",
            lambda r: ~ahead(r, CONTROL_ARENA),
        )


def contrasts(results: Results[Config]) -> TableRows:
    """Compare the representation with the tabular model, the reference and agents' snapshots.

    Comparisons with snapshots have few rewards and are not tested.
    """
    config, steps = results.config, results.config.main[1]
    others: dict[str, dict[str, Any]] = {
        f"{TABULAR}, {steps:,} steps": {"arm": TABULAR, "steps": steps},
        REFERENCE: {"arm": REFERENCE},
        **{f"{DQN}, {each:,} steps": {"arm": DQN, "steps": each} for each in config.dqn_steps},
    }
    pairs = []
    for arena, kind, (name, other) in itertools.product(config.arenas, KINDS, others.items()):
        contrast = ours(results, arena, kind).against(
            results.sample(arena=arena, rewards=kind, **other)
        )
        about = {"arena": arena, "rewards": kind, "against": name}
        higher = int(np.sum(contrast.differences > 0.0))
        pairs.append(({**about, "higher": higher}, contrast))
    return contrast_rows(pairs, tested=lambda about: not about["against"].startswith(DQN))


def break_even(results: Results[Config], arena: str, kind: str) -> int | None:
    """Return the snapshot from which on agents gain as much as the representation, or None.

    Gains are means over the rewards that agents learn.
    """
    steps = results.config.dqn_steps
    enough = np.array([lead(results, arena, each, kind).mean <= 0.0 for each in steps])
    first = len(enough) - int(np.argmin(enough[::-1])) if not enough.all() else 0
    return steps[first] if first < len(enough) else None


def repaid(config: Config, even: int | None) -> str:
    """Say for how many rewards DQN's steps add up to the free steps.

    The text is "never" if DQN breaks even (see ``break_even``) before its first step, and "at most"
    a number if DQN does not break even within its steps.
    """
    if even == 0:
        return "never"
    count = -(-config.main[1] // (even or config.dqn_steps[-1] + 1))
    return f"at most {count:,}" if even is None and count > 1 else f"{count:,}"


def break_evens(results: Results[Config]) -> TableRows:
    """Tabulate the snapshots at which agents break even."""
    config, rows = results.config, []
    for arena, kind in itertools.product(config.arenas, KINDS):
        even = break_even(results, arena, kind)
        steps = f"more than {config.dqn_steps[-1]:,}" if even is None else f"{even:,}"
        rows.append(
            {"arena": arena, "rewards": kind, "steps": steps, "repaid": repaid(config, even)}
        )
    return rows


KEYS = ("arena", "rewards", "arm", "improvements", "steps")

EXPERIMENT = Experiment(
    name="zero-shot",
    title="Policies for rewards named afterwards",
    presets=PRESETS,
    prepare=lambda run: {arena: problem_of(run.config, arena) for arena in run.config.arenas},
    cells=cells,
    measure=measure,
    value=Metric(value="gain", label="gain (0 random, 1 optimal)"),
    unit="reward",
    fewest=FEWEST,
    claims=claims,
    sections={
        "Goals": [
            design_of(__doc__),
            Tabulated(
                name="break_even",
                rows=break_evens,
                caption="The first snapshot at which DQN's mean gain is at least the learned "
                "policies' mean gain, and the number of rewards for which DQN's steps add up to "
                "the free steps. DQN may have broken even at any step since the previous snapshot; "
                "the number of rewards is then larger.",
            ),
            Tabulated(
                name="contrasts",
                rows=contrasts,
                caption="Gains of learned policies minus gains of each other arm, with 95 % "
                "intervals over rewards, and the number of rewards for which they gain more. "
                "p-values are by sign flips, adjusted for their number (Holm 1979); there are too "
                f"few rewards to test comparisons with DQN. {DETECTABLE}",
            ),
            Curve(
                name="gains",
                caption="Gain against environment steps, of the random policy or of DQN with a "
                "known reward. Means over rewards with 95 % intervals; 1 is optimal, 0 random.",
                x=Axis("steps", "environment steps", log=True),
                line="line",
                panel="{arena}, {rewards}",
                of={"steps": lambda steps: steps > 0},
                file={},
                keys=KEYS,
                axes=lambda r: {
                    "x_ticks": {steps: f"{steps / 1_000:g}k" for steps in r.config.steps}
                },
            ),
        ],
        "Every arm": [
            tabulate_summary(
                caption="Gains of every arm, means over rewards with 95 % intervals.", keys=KEYS
            ),
        ],
    },
)
