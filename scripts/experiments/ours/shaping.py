"""Shaping by distances in features that were learned without rewards, and other potentials.

Agents see their true position, so that arms differ only in the potential Φ. Agents learn from the
reward r + γ Φ(s') - Φ(s), with Φ = 0 at terminal states (``ShapedEnvironment``). Returns are
measured in the unshaped task: -1 for each step on the way to a disc, at most 300 steps. Potentials
are tables over 20 x 20 cells: minus a distance to the goal's cell, and 0 at this cell. All are
scaled to the same standard deviation over the cells, so that they do not differ in size.

**Arms.** none; Euclidean: distance between true positions; learned: distance in σ-scaled successor
features (``SuccessorRepresentation.potential``) from reward-free steps of the random policy;
learned and whitened: the same features without the scaling; random features: outputs of an
untrained network on codes, which hide nearness and which no agent sees, or in ``sutton`` on
positions, which show nearness; oracle: the exact expected number of steps.

**Design.** Three mazes and ``sutton`` (no penalty in its puddles), each with five goals and four
agents for each goal and arm. Arms share seeds, which makes 20 pairs of agents. Each of ten
representations is fitted to its own reward-free data and serves two pairs with the same goal.
Differences are averaged over these two pairs, so that the ten tested differences are independent.
Representations are tables over cells, as fits to codes would be.

**Claims**, by 95 % intervals over representations. Learned beats none and Euclidean in mean return
over training in at least two of three mazes: intervals of paired differences above 0, and p < 0.05
by sign flips (Holm over the six tests). In ``sutton`` Euclidean distance is nearly exact: we expect
that learned does not beat it. (Added after the first run: this holds if the interval's upper end is
below 10 points of return; an interval above 0 refutes it.) The claim on how σ-scaled and whitened
features order cells was in the code from the start, but not in the design.

Learning curves do not include the reward-free steps. A table shows the number of goals after which
these steps are repaid: the free steps divided by the steps per goal that are saved until the
threshold, which is twice the optimal number of steps. No claim depends on it.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from rlreps.agents import AgentConfig, CompiledProgram, DQNConfig, ReplayConfig, make_agent
from rlreps.app import mean_returns
from rlreps.encoders import MLP, FourierMLP
from rlreps.envs import Position, ShapedEnvironment, load_arena
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.mazes import BINS, CAP, CONTROL_ARENA, GOALS, MAZES, cell_world
from rlreps.experiments.ours.tabular import least_steps
from rlreps.numerics import seed_key
from rlreps.plotting import plot_components
from rlreps.stats import (
    Contrast,
    Interval,
    Verdict,
    contrast_rows,
    interval_columns,
    samples_to_reach,
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
    TableRows,
    Tabulated,
    design_of,
    replace_nested,
    tabulate_wide,
)
from rlreps.successor import FitConfig, Grid, fit
from rlreps.training import stack
from rlreps.typing import DoubleArray

NONE = "none"
EUCLIDEAN = "Euclidean"
LEARNED = "learned, σ-scaled"
WHITENED = "learned, whitened"
RANDOM = "random features"
ORACLE = "oracle"

ARMS = (NONE, EUCLIDEAN, LEARNED, WHITENED, RANDOM, ORACLE)

TESTED = (NONE, EUCLIDEAN)
"""Arms with which the learned potential is compared in every maze."""

MARGIN = 10.0
"""Points of mean return over training; in ``sutton`` a smaller difference is no gain."""

FEWEST_PAIRS = 20
"""Least number of pairs of agents for a verdict on the goal."""

_RANDOM = 7
"""Number of the random stream for untrained networks."""

_SPREAD = 16.0
"""Standard deviation of every potential over the cells, in units of reward."""

_SLACK = 2.0
"""The threshold is this many times the optimal expected number of steps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agents with shaped rewards.

    Attributes:
        base: The agents; its environment, goal and number of agents are ignored.
        fit: Options of the representations' fit; its seed is ignored.
        agents: Number of agents for each goal and arm.
        fits: Number of representations of an arena; pairs use them in turn.
        goals: Discs (x, y, radius).
        free_steps: Reward-free steps of each representation.
    """

    base: AgentConfig
    fit: FitConfig
    agents: int = 4
    fits: int = 10
    goals: tuple[tuple[float, float, float], ...] = GOALS
    arenas: tuple[str, ...] = (*MAZES, CONTROL_ARENA)
    free_steps: int = 30_000

    @property
    def num_pairs(self) -> int:
        """Number of agents of each arm in an arena."""
        return self.agents * len(self.goals)

    @property
    def goals_of_pairs(self) -> list[tuple[float, float, float]]:
        """The goal of each pair; pairs take the goals in turn, [pairs]."""
        return [*self.goals] * self.agents


# Chosen in five_corridors on seeds from 1000 on: the discount by the rank correlation of exact
# components with distances (0.60 at 0.95, 0.91 at 0.99), the spread with networks trained by
# temporal differences, one agent a goal: 8, 16 and 32 had a mean return over training of -192, -182
# and -191, averaged over Euclidean, learned, random and oracle potentials. No shaping had -194.
_FIT = FitConfig(num_features=64, discount=0.99, behaviour="uniform")
_AGENTS = AgentConfig(
    encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    num_features=32,
    dqn=DQNConfig(reward_scale=0.1, huber_delta=1.0, n_step=5, batch_size=32, epsilon_steps=10_000),
    replay=ReplayConfig(capacity=40_000),
    num_envs=4,
    max_episode_steps=CAP,
    steps=40_000,
    evaluate_every=2_000,
    evaluation_episodes=16,
)

LAPTOP = Config(base=_AGENTS, fit=_FIT)
PRESETS = {
    "smoke": Config(
        base=replace_nested(
            _AGENTS,
            encoder=MLP(hidden=(8,)),
            dqn=replace_nested(_AGENTS.dqn, batch_size=8, warmup=400, epsilon_steps=400),
            capacity=800,
            steps=800,
            evaluate_every=400,
            evaluation_episodes=4,
        ),
        fit=replace_nested(_FIT, num_features=8),
        agents=1,
        fits=1,
        goals=GOALS[:2],
        # Compilation takes most of the time, and each arena is a program of its own.
        arenas=("four_rooms",),
        free_steps=2_000,
    ),
    "laptop": LAPTOP,
    "paper": replace_nested(
        LAPTOP, base=replace_nested(_AGENTS, steps=100_000), agents=20, fits=50
    ),
}


# --- What is measured -----------------------------------------------------------------------------


def scaled(distances: npt.ArrayLike, at: int) -> DoubleArray:
    """Turn distances [n] into a potential that is 0 at one cell and has a fixed spread."""
    given = np.asarray(distances, np.float64)
    potential: DoubleArray = given[at] - given
    return potential * (_SPREAD / float(potential.std()))


def distances_of(config: Config, arena: str, seed: int) -> DoubleArray:
    """Compute the distances [arms - 1, n, m] to the m goals for each arm but the first.

    The seed sets the reward-free data, the fit and the untrained network.
    """
    world = cell_world(arena)
    at = mazes.nearest(world, np.asarray(config.goals)[:, :2])
    data = mazes.free_transitions(arena, config.free_steps, seed, observation=Position())
    # A cell that the model lacks lies in a wall; an agent can be there only by rounding.
    before, after = (
        np.maximum(mazes.around(world, each), 0)
        for each in (data.observation, data.next_observation)
    )
    data = dataclasses.replace(
        data, observation=before, next_observation=after, num_states=world.num_states
    )
    represented = fit(data, dataclasses.replace(config.fit, seed=seed))
    known = np.arange(world.num_states)
    network = MLP(config.fit.num_features, num_inputs=world.observations.shape[1])
    params = network.init(seed_key(seed, _RANDOM))
    tables = [
        np.asarray(world.coordinates, np.float32),
        represented.features(known, scaling="singular"),
        represented.features(known, scaling="white"),
        np.asarray(network.apply(params, jnp.asarray(world.observations))),
    ]
    found = [np.linalg.norm(table[:, None] - table[None, at], axis=2) for table in tables]
    steps = least_steps(world, mazes.discs(world, config.goals))
    return np.stack([*found, steps]).astype(np.float64)


def train(run: Run[Config], arena: str, potentials: DoubleArray) -> tuple[list[int], DoubleArray]:
    """Train agents with potentials over the cells, [arms, pairs, n], in one program.

    Arms share a pair's seed. Agents are distributed over the devices.

    Returns:
        Environment steps of the evaluations [p], and mean unshaped returns [arms, pairs, p].

    Raises:
        TrainingDivergedError: If a parameter became NaN or infinite.
    """
    config = run.config
    tables = np.asarray(potentials, np.float32)
    arms, pairs, _ = tables.shape
    over_cells = np.repeat(tables.min(axis=2, keepdims=True), BINS**2, axis=2)
    over_cells[:, :, mazes.places_of(cell_world(arena))] = tables
    base = dataclasses.replace(config.base, num_seeds=arms * pairs)
    worlds = [
        mazes.world_of(arena, observation=Position(), goal=goal, step_penalty=True)
        for goal in config.goals_of_pairs * arms
    ]
    world = stack(worlds)
    potential = jax.tree_util.Partial(
        lambda table, state: table[Grid(BINS).cell(state.position)],
        jnp.asarray(over_cells.reshape(len(worlds), -1)),
    )
    discounts: Any = jnp.full(len(worlds), base.dqn.discount)
    program = CompiledProgram(
        base,
        ShapedEnvironment(world, potential, discounts),
        make_agent(base, (2,), worlds[0].num_actions),
        evaluation=world,
        own_environments=True,
        seeds=[*range(pairs)] * arms,
        devices=run.devices,
    )
    state, returns = program.init(), []
    steps = list(range(0, base.steps + 1, base.evaluate_every))
    for step in steps:
        if step:
            state, _ = program.advance(state, step - base.evaluate_every, base.evaluate_every)
        returns.append(program.evaluate(state, step)[1]["returns"])
    return steps, np.stack(returns, axis=1).reshape(arms, pairs, -1)


def outcomes(
    config: Config, steps: Sequence[int], returns: DoubleArray, best: npt.ArrayLike
) -> dict[str, npt.NDArray[Any]]:
    """Measure whole trainings; each measure is [arms, pairs, 1].

    An agent that never reaches the threshold counts with the length of training.

    Args:
        config: The agents.
        steps: Environment steps of the evaluations, [p].
        returns: Unshaped returns, [arms, pairs, p].
        best: Optimal expected number of steps of each pair's goal, [pairs].
    """
    at, flat = np.asarray(steps, np.float64), returns.reshape(-1, len(steps))
    relative = (returns / np.asarray(best)[:, None]).reshape(flat.shape)
    samples = samples_to_reach(at, relative, -_SLACK).reshape(*returns.shape[:2], 1)
    return {
        "mean_return": mean_returns(config.base, at, flat).reshape(samples.shape),
        "samples": np.minimum(samples, config.base.steps),
        "reached": np.isfinite(samples),
    }


def measure(run: Run[Config], name: str, arena: str) -> dict[str, Any]:
    """Fit, train and evaluate all arms in an arena.

    Rows have the number of their representation, over which pairs are averaged: ``fit``.
    """
    del name
    config, world = run.config, cell_world(arena)
    pairs, goals = np.arange(config.num_pairs), config.goals_of_pairs
    exact = least_steps(world, mazes.discs(world, goals))
    best = [float(column[column > 0.0].mean()) for column in exact.T]
    at = mazes.nearest(world, np.asarray(goals)[:, :2]).tolist()
    fitted = np.stack([distances_of(config, arena, seed) for seed in range(config.fits)])
    # Distances of pairs, [pairs, arms - 1, n].
    distances = fitted[pairs % config.fits, :, :, pairs % len(config.goals)]
    potentials = np.zeros((len(ARMS), *exact.T.shape))
    order = np.full((len(ARMS), len(pairs), 1), math.nan)
    for pair, arm in np.ndindex(*distances.shape[:2]):
        potentials[arm + 1, pair] = scaled(distances[pair, arm], at[pair])
        order[arm + 1, pair] = spearmanr(distances[pair, arm], exact[:, pair]).statistic
    steps, returns = train(run, arena, potentials)
    fits: npt.NDArray[Any] = pairs[:, None] % config.fits
    values = {"fit": fits, "return": returns, "order": order}
    values |= outcomes(config, steps, returns, best)
    return {
        "values": {name: each.tolist() for name, each in values.items()},
        "axes": {"arena": arena, "arm": ARMS, "pair": pairs.tolist(), "step": steps},
        "potentials": dict(zip(ARMS, potentials[:, 0].tolist(), strict=True)),
    }


# --- What is reported -----------------------------------------------------------------------------


def against(results: Results[Config], arena: str, other: str, effect: float = 0.0) -> Contrast:
    """Contrast the mean returns over training of the learned potential and another."""
    theirs = results.end(arena=arena, arm=other)
    return results.end(arena=arena, arm=LEARNED).against(theirs, effect)


def no_gain(results: Results[Config]) -> Verdict:
    """Judge that there is no gain in ``sutton``; a gain above 0 refutes it, however small."""
    small = against(results, CONTROL_ARENA, EUCLIDEAN, MARGIN).below
    gained = against(results, CONTROL_ARENA, EUCLIDEAN).above
    return dataclasses.replace(small, holds=False) if gained.holds else small


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goal and the further claims."""
    beaten = mazes.beats(results, partial(against, results), TESTED)
    enough = results.config.num_pairs >= FEWEST_PAIRS

    def orders(maze: str) -> Verdict:
        order = partial(results.end, "order", arena=maze)
        return order(arm=LEARNED) > order(arm=WHITENED)

    yield Claim(
        "Shaping by distance in σ-scaled learned features beats none and Euclidean shaping in mean "
        "return over training",
        "in at least two of three mazes, intervals of paired differences above 0 and p < 0.05, "
        f"adjusted for {len(mazes.mazes_of(results)) * len(TESTED)} comparisons (Holm)",
        beaten if enough else beaten.open(),
    )
    yield Claim(
        "σ-scaled features order cells by distance better than whitened ones",
        "not of the design, and the fit was chosen by the former's correlation: paired differences "
        "of rank correlations above 0 in all three mazes",
        mazes.in_mazes(results, orders, len(MAZES)),
    )
    if CONTROL_ARENA in results.config.arenas:
        yield Claim(
            f"{CONTROL_ARENA}: learned distances do not beat Euclidean ones",
            f"no gain above 0; added after a run: and a 95 % interval below {MARGIN:g} points",
            no_gain,
        )


def goals_to_repay(free_steps: int, saved: Interval) -> Interval:
    """Divide free steps by the steps saved per goal; infinite where nothing is saved."""

    def goals(steps: float) -> float:
        return free_steps / steps if steps > 0.0 else math.inf

    return Interval(goals(saved.value), goals(saved.high), goals(saved.low))


def arms(results: Results[Config]) -> TableRows:
    """Tabulate every arm in every arena."""
    config, rows = results.config, []
    for arena, arm in itertools.product(config.arenas, ARMS):
        end = partial(results.end, arena=arena)
        row: dict[str, Any] = {
            "arena": arena,
            "arm": arm,
            "pairs": config.num_pairs,
            **interval_columns("mean_return", end(arm=arm).interval),
            "last_return": end("return", arm=arm).mean,
            "reached": end("reached", arm=arm).mean,
            **interval_columns("against_none", (end(arm=arm) - end(arm=NONE)).interval),
        }
        for other, on in ((NONE, ""), (EUCLIDEAN, "_on_euclidean")):
            saved = (end("samples", arm=other) - end("samples", arm=arm)).interval
            row |= interval_columns(f"steps_saved{on}", saved)
            row |= interval_columns(f"goals_to_repay{on}", goals_to_repay(config.free_steps, saved))
        order = None if arm == NONE else end("order", arm=arm).mean
        rows.append({**row, "rank_correlation": order})
    return rows


def tests(results: Results[Config]) -> TableRows:
    """Compare the learned potential with every other; test the comparisons of the goal."""
    others = (*TESTED, WHITENED, RANDOM, ORACLE)
    return contrast_rows(
        [
            ({"arena": arena, "against": other}, against(results, arena, other))
            for arena, other in itertools.product(results.config.arenas, others)
        ],
        tested=lambda about: about["arena"] != CONTROL_ARENA and about["against"] in TESTED,
    )


def draw_potentials(results: Results[Config], arena: str) -> tuple[TableRows, Figure] | None:
    """Draw the potentials of the first pair minus their means."""
    if arena not in results.found:
        return None
    places, found = mazes.places_of(cell_world(arena)), results.found[arena]["potentials"]
    values = np.stack([np.asarray(found[arm]) for arm in ARMS[1:]], axis=1)
    table = np.full((BINS**2, values.shape[1]), np.nan)
    table[places] = values - values.mean(axis=0)
    labels = ARMS[1:]
    figure = plot_components(
        {arena: table}, bins=BINS, labels=labels, environment=load_arena(arena)
    )
    return Frame.grid(found, cell=places).rows("cell", *ARMS[1:]), figure


_RETURNS = ("arena", "arm", "mean_return", "last_return", "reached", "against_none")
_SAVED = ("steps_saved", "goals_to_repay")
_REPAID = ("arena", "arm", *_SAVED, *(f"{name}_on_euclidean" for name in _SAVED))
"""Columns of both tables of ``arms``."""

EXPERIMENT = Experiment(
    name="shaping",
    title="Shaping rewards by distance in learned features",
    paper="Our own experiment; shaping follows Ng, Harada & Russell 1999.",
    presets=PRESETS,
    cells=lambda run: {arena: arena for arena in run.config.arenas},
    measure=measure,
    value=Metric(value="mean_return", label="mean return over training"),
    unit="fit",
    fewest=10,
    claims=claims,
    sections={
        "Returns": [
            design_of(__doc__),
            Tabulated(
                name="arms",
                rows=arms,
                columns=_RETURNS,
                caption="Returns of greedy episodes in the unshaped task, as means over training "
                "and at the last evaluation, and the share of agents that reached the threshold; "
                "95 % intervals over representations.",
            ),
            Tabulated(
                name="tests",
                rows=tests,
                caption="Mean return over training with the learned, σ-scaled potential minus the "
                "mean return with each other potential. The goal's comparisons have p-values by "
                f"sign flips, adjusted for their number (Holm). {DETECTABLE}",
            ),
            Curve(
                name="returns",
                caption="Returns of greedy episodes while agents learn, with intervals over "
                f"representations. Random features take codes, in {CONTROL_ARENA} positions.",
                x=Axis("step", "environment steps of an agent"),
                y=Metric(value="return", label="return of the unshaped task"),
                line="arm",
                panel="arena",
            ),
        ],
        "Do the potentials order cells by distance?": [
            tabulate_wide(
                caption="Spearman's correlation of each potential's distances with the exact "
                "expected number of steps to the goal, over cells; mean over pairs.",
                row="arena",
                column="arm",
                of={"arm": ARMS[1:]},
                measure=Metric(value="order", label="rank correlation"),
            ),
            *(
                Drawn(
                    name=f"potentials_{arena}",
                    caption=f"{arena}: potentials of the first pair, with its goal at "
                    "({config.goals[0][0]:g}, {config.goals[0][1]:g}), less their means.",
                    draw=partial(draw_potentials, arena=arena),
                )
                for arena in (*MAZES, CONTROL_ARENA)
            ),
        ],
        "When are the free steps repaid?": [
            Tabulated(
                rows=lambda r: [row for row in r.once(arms) if row["arm"] in (LEARNED, WHITENED)],
                columns=_REPAID,
                caption="Steps to the threshold saved per goal, compared with no shaping and with "
                "Euclidean shaping, and the number of goals after which the free steps are repaid. "
                "An agent that never reaches the threshold counts with the length of training, so "
                "the true savings may be larger.",
            ),
        ],
    },
    stated="our goal",
)
