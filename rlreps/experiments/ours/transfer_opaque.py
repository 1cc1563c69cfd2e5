"""What learned features buy agents that see opaque codes: share of agents that learn a maze.

**Setting.** Deep Q-networks cross a maze to the goal in its corner: -1 a step, episodes of at most
300 steps, uniform starts. They see a fixed random code of their cell; what is near what they must
find out. In ``sutton`` they see their position, and nothing is expected.

**Arms** differ in what stands in front of the same trained network:

- from scratch: nothing; the codes (in ``sutton`` the position) themselves;
- trainable embedding: a table of the distinct codes, trained with the network (mazes alone);
- wider network: nothing, and a network of more than four times as many weights;
- random features: a frozen table of normal numbers, of the learned ones' shape;
- true (x, y): the position in place of the code (mazes alone);
- fixed cosines: frozen cosines of the true position, which need no data;
- learned components: frozen components of the successor measure of the random policy, fitted for
  each agent by ``rlreps.successor.fit`` (the distinct codes are counted) from
  its own steps without rewards, as large as their singular values;
- exact components: the same of the arena's exact measure, an oracle.

A table of the distinct codes is something every arm could have, and the embedding has. In
``sutton`` its rows stand for the cells of a grid, between whose centres they are interpolated.

**Budget.** Learned and exact components train for ``base.steps`` steps; all other arms for as many
more as the steps without rewards are.

**Metrics.** Whether an agent reaches the threshold (a multiple of the optimal return, which is
solved for) twice in three evaluations by the end, and its mean return over the whole budget: during
steps without rewards an agent counts as one that never arrives. Agents of all arms are paired by
seed. Several goals of one agent count as one, by their mean: they share a fit.

**Goal**: in at least two of three mazes 50 points more agents reach the threshold with learned
components than from scratch, each by a paired exact test (of signs; McNemar's where there is one
goal) at 5 %, adjusted over the mazes by Holm. The smallest difference that the run could have
detected (80 % power, 5 % over three) stands beside each. **Refuted** where fewer than two mazes
show it. If random features, cosines or the position do as well as learned components, those are
not what helps: the second claim.

**Hyper-parameters** are the same for all arms, chosen on seeds from 1000 on in ``five_corridors``
alone: three-step returns and ten-step ones with a target network copied more often, and with these
learning rates of 1e-3 and 3e-3. From scratch no agent came near the threshold with any (mean last
returns of -261 to -271 after 60,000 or 88,000 steps, six to eight agents); those were kept with
which exact components did best. With them all of six agents reached it in 60,000 steps.

**Changed in development**, before the run of the laptop preset. The threshold had been two
optimal returns and became three; why was not written down. Hyper-parameters were to be chosen for
the arm from scratch; as no choice served it, they were chosen by exact components instead, an
oracle of what is to be shown. Both may favour the goal. No arm has tuned ones of its own, and all
learn by one update of eight environment steps: that others would learn from scratch is not
excluded.
"""

import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from matplotlib.figure import Figure

from rlreps.agents import AgentConfig, DQNConfig, ReplayConfig
from rlreps.agents.dqn import agent_keys
from rlreps.agents.trainer import puddle_world_of
from rlreps.config import with_sizes
from rlreps.encoders import MLP, Encoder, Params
from rlreps.encoders.cosines import cosine_products
from rlreps.envs import Position
from rlreps.errors import InputError, require, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, in_path
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.agent_arms import (
    SIGNIFICANCE,
    Arm,
    ArmRuns,
    interquartile_curve,
    signed,
    train_arm,
)
from rlreps.files import DAMAGED, read_arrays, write_atomically
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.report.page import Section
from rlreps.report.table import Table, format_number
from rlreps.runs.intervals import (
    Interval,
    holm,
    mean_interval,
    sign_test,
    sign_test_detectable,
    smallest_detectable,
)
from rlreps.successor.fitting import fit
from rlreps.successor.grids import Grid
from rlreps.successor.kernels.actions import cell_moves
from rlreps.successor.methods import FitConfig
from rlreps.workflows.agents import OwnParts, StartingTorsos, mean_returns

FloatArray = npt.NDArray[np.float64]

SCRATCH = "from scratch"
EMBEDDING = "trainable embedding"
WIDE = "wider network"
RANDOM = "random features"
POSITION = "true (x, y)"
COSINES = "fixed cosines of (x, y)"
LEARNED = "learned components"
EXACT = "exact components"
"""Labels of the arms."""

LABELS = (SCRATCH, EMBEDDING, WIDE, RANDOM, POSITION, COSINES, LEARNED, EXACT)
DATA_FREE = (RANDOM, POSITION, COSINES)
"""Arms that the learned components have to beat if what was learned is to be what helps."""

_MAZES_ONLY = (EMBEDDING, POSITION)
_SPARED = (LEARNED, EXACT)
"""Arms whose steps without rewards count towards their budget."""

FEWEST_AGENTS = 20
"""Agents of an arm below which no verdict is given."""

GAIN = 0.5
"""Difference in the share of agents that reach the threshold, the goal."""

MAZES_NEEDED = 2

_CELLS = mazes.BINS**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agents in mazes with features of several origins in front of the same network.

    Attributes:
        base: The agents; environment, observation and goal are those of each arm.
        wide: Hidden layers of the wider network.
        arenas: Names of arenas.
        labels: Arms, that from scratch first.
        goals: How many of ``mazes.GOALS``.
        free_steps: Steps without rewards of each fit.
        num_features: Components.
        discount: γ of the successor measure.
        threshold: What to reach, in optimal returns.
    """

    base: AgentConfig
    wide: tuple[int, ...] = (160, 160)
    arenas: tuple[str, ...] = (*mazes.MAZES, mazes.NULL)
    labels: tuple[str, ...] = LABELS
    goals: int = 1
    free_steps: int = 30_000
    num_features: int = 16
    discount: float = 0.95
    threshold: float = 3.0

    def __post_init__(self) -> None:
        for name in ("num_features", "free_steps"):
            require_positive(name, getattr(self, name))
        require_interval("discount", self.discount, "(0, 1)")
        require_interval("threshold", self.threshold, "(1, inf)")
        require(1 <= self.goals <= len(mazes.GOALS), "1 to 5 goals", self.goals)
        known = (*mazes.MAZES, mazes.NULL)
        require({*self.arenas} <= {*known}, f"arenas among {', '.join(known)}", self.arenas)
        arms = {*self.labels} <= {*LABELS} and LEARNED in self.labels
        require(
            arms and self.labels[0] == SCRATCH,
            f"arms among {', '.join(LABELS)}: {SCRATCH} first, and {LEARNED}",
            self.labels,
        )
        fits = self.free_steps % self.base.evaluate_every == 0
        require(fits, "free_steps that are a multiple of base.evaluate_every", self.free_steps)
        require(isinstance(self.base.encoder, MLP), "the encoder mlp", self.base.encoder)

    @property
    def torso(self) -> MLP:
        """The network of all arms but that of the wider one, on features of cells."""
        assert isinstance(self.base.encoder, MLP)
        sizes = {"num_features": self.base.num_features, "num_inputs": self.num_features}
        return with_sizes(self.base.encoder, **sizes)

    def agents(self, arena: str, goal: int, label: str) -> AgentConfig:
        """Return the agents of an arm."""
        seen = Position() if label in (POSITION, COSINES) else mazes.observation_of(arena)
        wide = dataclasses.replace(self.torso, hidden=self.wide)
        return dataclasses.replace(
            self.base,
            environment=f"puddle-world:{arena}",
            observation=seen,
            goal=mazes.GOALS[goal],
            encoder=wide if label == WIDE else self.base.encoder,
            max_episode_steps=mazes.CAP,
            steps=self.base.steps + (0 if label in _SPARED else self.free_steps),
        )

    def fit(self, seed: int) -> FitConfig:
        """Return how an agent's components are fitted."""
        return FitConfig(
            num_features=self.num_features,
            discount=self.discount,
            seed=seed,
            behaviour="uniform",
        )


# --- Features of cells in front of a network ------------------------------------------------------

Places = Callable[[Array], tuple[Array, Array]]
"""Observations [b, ...] → rows of a table [b, k] and their weights [b, k], which sum to 1."""


def of_code(observations: Array) -> tuple[Array, Array]:
    """Find the cells of codes by their first numbers, which all differ."""
    first = mazes.observation_of(mazes.MAZES[0]).table()[:, 0]  # type: ignore[union-attr]
    order = np.argsort(first)
    ranks = jnp.sum(observations[:, :1] > jnp.asarray(first[order])[None], axis=1)
    cells = jnp.asarray(order)[jnp.minimum(ranks, _CELLS - 1)]
    return cells[:, None], jnp.ones_like(observations[:, :1])


def of_position(observations: Array) -> tuple[Array, Array]:
    """Find the four cells about whose centres a position lies, with bilinear weights."""
    places = jnp.clip(observations * mazes.BINS - 0.5, 0.0, mazes.BINS - 1.0)
    low = jnp.minimum(jnp.floor(places), mazes.BINS - 2.0)
    right, up = (places - low).T
    column, row = low.astype(jnp.int32).T
    cell = row * mazes.BINS + column
    cells = jnp.stack([cell, cell + 1, cell + mazes.BINS, cell + mazes.BINS + 1], axis=1)
    weights = [(1 - up) * (1 - right), (1 - up) * right, up * (1 - right), up * right]
    return cells, jnp.stack(weights, axis=1)


@dataclasses.dataclass(frozen=True)
class CellFeatures(Encoder):
    """A table of features of cells in front of a torso.

    Attributes:
        torso: Takes the features.
        places: Finds the table's rows.
        width: Of a row.
        frozen: Whether the table stays as it is.
    """

    torso: Encoder
    places: Places
    width: int
    frozen: bool = True

    def init(self, key: Array) -> Params:
        table_key, torso_key = jax.random.split(key)
        table = jax.random.normal(table_key, (_CELLS, self.width))
        return {"table": table, "torso": self.torso.init(torso_key)}

    def apply(self, params: Params, inputs: Array) -> Array:
        table = jax.lax.stop_gradient(params["table"]) if self.frozen else params["table"]
        cells, weights = self.places(inputs)
        features = jnp.sum(table[cells] * weights[:, :, None], axis=1)
        return self.torso.apply(params["torso"], features)


@dataclasses.dataclass(frozen=True)
class CosineFeatures(Encoder):
    """The cosines of the lowest frequencies of a position, in front of a torso.

    Attributes:
        torso: Takes them.
        width: How many, in order of k_x² + k_y², without the constant.
    """

    torso: Encoder
    width: int

    def init(self, key: Array) -> Params:
        return self.torso.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        frequencies = next(k for k in itertools.count(1) if (1 + k) ** 2 > self.width)
        squares = np.sum(np.indices((1 + frequencies,) * 2).reshape(2, -1) ** 2, axis=0)
        chosen = np.argsort(squares, kind="stable")[1 : 1 + self.width]
        return self.torso.apply(params, cosine_products(inputs, frequencies)[:, chosen])


def torso_of(config: Config, arena: str, label: str) -> Encoder | None:
    """Return an arm's encoder; None for the configured one on the observations themselves."""
    width, places = config.num_features, of_position if arena == mazes.NULL else of_code
    torso = config.torso
    if label in (SCRATCH, WIDE, POSITION):
        return None
    if label == COSINES:
        return CosineFeatures(torso, width)
    return CellFeatures(torso, places, width, frozen=label != EMBEDDING)


def scaled(features: FloatArray) -> npt.NDArray[np.float32]:
    """Multiply features [n, d] by one factor, with which their mean square is 1."""
    return np.asarray(features / math.sqrt(np.mean(np.square(features))), np.float32)


def learned_table(config: Config, arena: str, seed: int) -> npt.NDArray[np.float32]:
    """Fit the components of one agent: its table [cells, d], zero for cells that it never saw."""
    data = mazes.free_transitions(arena, config.free_steps, seed)

    def cells(observations: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        if arena == mazes.NULL:
            return np.asarray(jax.vmap(Grid(mazes.BINS).cell)(jnp.asarray(observations)), np.int32)
        return np.asarray(of_code(jnp.asarray(observations))[0][:, 0], np.int32)

    known, found = np.unique(
        np.concatenate([cells(data.observation), cells(data.next_observation)]),
        return_inverse=True,
    )
    first, then = found.astype(np.int32).reshape(2, -1)
    indexed = dataclasses.replace(
        data, observation=first, next_observation=then, num_states=len(known)
    )
    representation = fit(indexed, config.fit(seed))
    table = np.zeros((_CELLS, config.num_features), np.float32)
    table[known] = scaled(representation.features(np.arange(len(known), dtype=np.int32)))
    return table


def exact_table(config: Config, arena: str) -> npt.NDArray[np.float32]:
    """Return the exact leading components of an arena's cells, [cells, d]."""
    model = mazes.cell_model(arena)
    table = np.zeros((_CELLS, config.num_features), np.float32)
    table[model.cells] = scaled(model.components(config.num_features, config.discount))
    return table


@functools.cache
def optimal_return(agents: AgentConfig) -> float:
    """Solve for the mean undiscounted return of the best policy of an arena's cells.

    Over uniform starts outside the goal, rewards and ends as in the agents' world.
    """
    world = puddle_world_of(agents)
    assert world is not None
    assert agents.goal is not None
    grid = Grid(mazes.BINS)
    moves = cell_moves(world, grid, jax.random.key(0))
    values = np.zeros(len(moves.cells))
    while True:
        new = (moves.rewards + np.einsum("ast,t->sa", moves.on, values)).max(axis=1)
        if np.abs(new - values).max() < 1e-6:
            break
        values = new
    offsets = np.asarray(grid.centres())[moves.cells] - np.asarray(agents.goal[:2])
    starts = np.linalg.norm(offsets, axis=1) > agents.goal[2]
    return float(values[starts].mean())


# --- Arms -----------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One training: an arm in an arena, to a goal."""

    arena: str
    goal: int
    label: str


def cells(run: Run[Config]) -> dict[str, Cell]:
    """List the trainings."""
    config = run.config
    return {
        in_path(f"{arena} {goal} {label}"): Cell(arena, goal, label)
        for arena in config.arenas
        for goal in range(config.goals)
        for label in config.labels
        if not (arena == mazes.NULL and label in _MAZES_ONLY)
    }


def learned_tables(run: Run[Config], arena: str) -> npt.NDArray[np.float32]:
    """Fit the components of every agent, once: [seeds, cells, d], kept in ``features``."""
    base, path = run.config.base, run.folder.path / "features" / f"{arena}.npy"
    if not path.exists():
        seeds = range(base.seed, base.seed + base.num_seeds)
        stream = io.BytesIO()
        np.save(stream, np.stack([learned_table(run.config, arena, seed) for seed in seeds]))
        write_atomically(path, stream.getvalue())
    content = run.folder.read_file(path.relative_to(run.folder.path).as_posix())
    try:
        found: npt.NDArray[np.float32] = read_arrays(io.BytesIO(content))[""]
    except DAMAGED as error:
        raise InputError(f"expected tables of features, got {error}: {path}") from error
    return found


def arm_of(config: Config, cell: Cell, tables: npt.ArrayLike | None = None) -> Arm:
    """Return an arm.

    Args:
        config: The experiment's.
        cell: Which.
        tables: Features to start from, [seeds, cells, d] or [cells, d]; None is random ones.
    """
    torso, start = torso_of(config, cell.arena, cell.label), None
    agents = config.agents(*cell)
    if tables is not None:
        assert torso is not None
        fresh = jax.vmap(torso.init)(agent_keys(agents))
        table = jnp.broadcast_to(jnp.asarray(tables), fresh["table"].shape)
        start = StartingTorsos({**fresh, "table": table}, cell.label)
    own = None if torso is None else OwnParts(torso=torso, name=cell.label)
    return Arm(label=cell.label, config=agents, start=start, own=own)


def measure(run: Run[Config], name: str, cell: Cell) -> ArmRuns:
    """Train an arm, after fitting its components where it is that of the learned ones."""
    tables = None
    if cell.label == LEARNED:
        tables = learned_tables(run, cell.arena)
    elif cell.label == EXACT:
        tables = exact_table(run.config, cell.arena)
    return train_arm(run, name, arm_of(run.config, cell, tables))


# --- Analysis -------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What each agent of an arm achieved in an arena, means over goals, [seeds] each.

    Attributes:
        reached: Share of goals for which it reached the threshold.
        mean_return: Over the budget.
        final_return: Of the last evaluation.
    """

    reached: FloatArray
    mean_return: FloatArray
    final_return: FloatArray


def over_budget(run: ArmRuns, free_steps: int) -> FloatArray:
    """Average returns over the evaluations after the first update, free steps included, [seeds].

    In place of evaluations during free steps stands the return of an agent that never arrives.
    """
    before = np.arange(0, free_steps, run.config.evaluate_every, dtype=np.float64)
    idle = np.full((len(run.returns), len(before)), -float(mazes.CAP))
    steps = np.concatenate([before, free_steps + run.steps])
    return mean_returns(run.config, steps, np.concatenate([idle, run.returns], axis=1))


def outcome(runs: Sequence[ArmRuns], thresholds: Sequence[float], free_steps: int = 0) -> Outcome:
    """Collect what an arm achieved with each goal, after so many steps without rewards."""
    reached = [np.isfinite(run.samples(least)) for run, least in zip(runs, thresholds, strict=True)]
    return Outcome(
        np.mean(reached, axis=0, dtype=np.float64),
        np.mean([over_budget(run, free_steps) for run in runs], axis=0),
        np.mean([run.returns[:, -1] for run in runs], axis=0),
    )


class Gain(NamedTuple):
    """What an arm reaches beyond another; shares of agents.

    Attributes:
        share: Mean difference, with its 95 % interval.
        p_value: Of the sign test.
        detectable: Smallest difference that the sign test would have detected with 80 % power.
        returned: Mean difference of mean returns over the budget.
        returned_detectable: Smallest such difference that a t-test would have detected.
    """

    share: Interval
    p_value: float
    detectable: float
    returned: Interval
    returned_detectable: float


def gain(ours: Outcome, theirs: Outcome, level: float) -> Gain:
    """Compare two arms, paired by seed.

    Args:
        ours: Of one arm.
        theirs: Of the other.
        level: Of the tests whose power is computed.
    """
    reached = ours.reached - theirs.reached
    returned = ours.mean_return - theirs.mean_return
    return Gain(
        mean_interval(reached),
        sign_test(reached),
        sign_test_detectable(reached, level),
        mean_interval(returned),
        smallest_detectable(returned, level),
    )


def claims_of(found: Mapping[str, Mapping[str, Outcome]], agents: int) -> list[Found]:
    """Decide the claims from arena → label → outcome."""
    enough = agents >= FEWEST_AGENTS
    in_mazes = [arena for arena in found if arena != mazes.NULL]
    decided = enough and len(in_mazes) == len(mazes.MAZES)
    level = SIGNIFICANCE / len(mazes.MAZES)

    def claim(statement: str, others: Sequence[str], least: float, stated: str) -> Found:
        gains = {
            f"{arena}, {other}" if len(others) > 1 else arena: gain(
                found[arena][LEARNED], found[arena][other], level
            )
            for arena in in_mazes
            for other in others
            if other in found[arena]
        }
        adjusted = holm([each.p_value for each in gains.values()]).tolist()
        shown = {
            name: each.share.value >= least and p < SIGNIFICANCE
            for (name, each), p in zip(gains.items(), adjusted, strict=True)
        }
        by_maze = [all(shown[name] for name in gains if name.startswith(a)) for a in in_mazes]
        complete = all({*others} <= {*found[arena]} for arena in in_mazes)
        return Found(
            statement=statement,
            stated=stated,
            found="; ".join(
                f"{name}: {_points(each.share)}, p = {format_number(p)}, detectable "
                f"{_detectable(each)}"
                for (name, each), p in zip(gains.items(), adjusted, strict=True)
            ),
            holds=sum(by_maze) >= MAZES_NEEDED if decided and complete else None,
        )

    claims = [
        claim(
            "more agents reach the threshold with learned components than from scratch",
            (SCRATCH,),
            GAIN,
            f"{100 * GAIN:.0f} points more, and p < {SIGNIFICANCE:g} of paired exact tests, "
            f"adjusted over the mazes, in at least {MAZES_NEEDED} of {len(mazes.MAZES)}",
        ),
        claim(
            "more agents reach the threshold with learned components than with any data-free "
            "features",
            DATA_FREE,
            0.0,
            f"p < {SIGNIFICANCE:g} against each, adjusted over mazes and features, in at least "
            f"{MAZES_NEEDED} of {len(mazes.MAZES)} mazes",
        ),
    ]
    if mazes.NULL in found:
        null = gain(found[mazes.NULL][LEARNED], found[mazes.NULL][SCRATCH], level)
        claims.append(
            Found(
                statement=f"{mazes.NULL}, where positions are seen: no such difference",
                stated=f"a 95 % interval below {100 * GAIN:.0f} points",
                found=_points(null.share),
                holds=_no_gain(null) if enough else None,
            )
        )
    return claims


def _no_gain(found: Gain) -> bool | None:
    """Judge that there is no gain as large as the goal's; None where the interval holds one."""
    if found.share.value >= GAIN and found.p_value < SIGNIFICANCE:
        return False
    return True if found.share.high < GAIN else None


def _detectable(found: Gain) -> str:
    """Format the smallest detectable difference of shares in points."""
    return f"{100.0 * found.detectable:.0f}" if math.isfinite(found.detectable) else "none"


def _points(share: Interval) -> str:
    """Format a difference of shares in points with its interval."""
    value, low, high = (100.0 * part for part in share)
    return f"{value:+.0f} points [{low:+.0f}, {high:+.0f}]"


# --- Report ---------------------------------------------------------------------------------------


def report(run: Run[Config], found: dict[str, ArmRuns]) -> Findings:
    """Compare the arms in every arena."""
    config, trained = run.config, dict(zip(cells(run).values(), found.values(), strict=True))
    agents, level = config.base.num_seeds, SIGNIFICANCE / len(mazes.MAZES)
    goals = range(config.goals)
    thresholds = {
        arena: [
            config.threshold * optimal_return(config.agents(arena, goal, SCRATCH)) for goal in goals
        ]
        for arena in config.arenas
    }
    outcomes: dict[str, dict[str, Outcome]] = {
        arena: {
            label: outcome(
                [trained[Cell(arena, g, label)] for g in goals],
                thresholds[arena],
                config.free_steps if label in _SPARED else 0,
            )
            for label in config.labels
            if Cell(arena, 0, label) in trained
        }
        for arena in config.arenas
    }
    tables, rows = [], []
    for arena, arms in outcomes.items():
        others = {
            label: gain(each, arms[SCRATCH], level)
            for label, each in arms.items()
            if label != SCRATCH
        }
        adjusted = holm([each.p_value for each in others.values()]).tolist()
        p_values = dict(zip(others, adjusted, strict=True))
        for label, each in arms.items():
            against = others.get(label)
            rows.append(
                {
                    "arena": arena,
                    "arm": label,
                    "agents": agents,
                    "steps": config.agents(arena, 0, label).steps,
                    "free_steps": config.free_steps if label in _SPARED else 0,
                    "reached": float(each.reached.mean()),
                    "mean_return": float(each.mean_return.mean()),
                    "final_return": float(each.final_return.mean()),
                    **({} if against is None else _flat(against, p_values[label])),
                }
            )
        least = ", ".join(format_number(each) for each in thresholds[arena])
        tables.append(
            Table(
                (
                    "",
                    "reached",
                    "against scratch, points",
                    "detectable",
                    "p",
                    "mean return",
                    "against scratch",
                    "detectable",
                    "last return",
                ),
                [
                    _row(label, each, others.get(label), p_values.get(label))
                    for label, each in arms.items()
                ],
                f"{arena}: share of agents that reach {least}; differences are paired by seed, "
                "with 95 % intervals; beside them the smallest that would have been detected "
                "with 80 % power at 5 % / 3, two-sided: of shares (of agents that gain less those "
                "that lose) by the exact sign test, with as many losing; of returns by a t-test. "
                "p-values are of sign tests of the share, adjusted for the arms of the arena "
                "(Holm). Mean returns are over the whole budget: in place of evaluations during "
                f"free steps stands {format_number(-float(mazes.CAP))}, of an agent that never "
                "arrives.",
            )
        )
    run.write_rows("arms", rows)
    shares = {
        arena: " and ".join(
            f"{100.0 * arms[label].reached.mean():.0f} % {label}" for label in (SCRATCH, LEARNED)
        )
        for arena, arms in outcomes.items()
    }
    figures = [
        run.show(
            "returns",
            "Mean return of evaluations (interquartile mean over agents, 95 % interval), first "
            "goal. Steps without rewards count: curves of learned and exact components begin "
            "behind them. Vertical scales differ.",
            None,
            _figure(config, trained, thresholds),
        )
    ]
    base = config.base
    text = (
        f"{agents} agents an arm and {config.goals} goal{'s' if config.goals > 1 else ''} in each "
        f"arena. Learned components: {config.num_features}, of {config.free_steps:,} steps of the "
        f"random policy without rewards for each agent, then {base.steps:,} steps of training; "
        f"other arms train for {base.steps + config.free_steps:,}. The threshold is "
        f"{config.threshold:g} optimal returns, to be reached at two evaluations of any three. "
        f"Fewer than {FEWEST_AGENTS} agents give no verdict. Disclosed: in development, before "
        "the run of the laptop preset, the threshold was moved from two optimal returns to three, "
        "and hyper-parameters, which were to be chosen for the arm from scratch, were chosen by "
        "exact components, as no choice tried served the arm from scratch. Both may favour the "
        f"goal. All arms update once in {base.dqn.steps_per_update} environment steps."
    )
    return Findings(
        abstract="Share of agents that reach the threshold: "
        + "; ".join(f"{arena}: {each}" for arena, each in shares.items())
        + ".",
        claims=claims_of(outcomes, agents),
        sections=[Section(title="Arms", text=text, tables=tables, figures=figures)],
        summary={"arms": rows, "thresholds": thresholds},
    )


def _flat(found: Gain, p_value: float) -> dict[str, float]:
    """Turn a gain into columns."""
    return {
        **{f"gain_{name}": float(each) for name, each in found.share._asdict().items()},
        "gain_detectable": found.detectable,
        "p": p_value,
        **{f"return_gain_{name}": float(each) for name, each in found.returned._asdict().items()},
        "return_gain_detectable": found.returned_detectable,
    }


def _row(label: str, found: Outcome, against: Gain | None, p_value: float | None) -> list[object]:
    compared: list[object] = [None] * 3
    returned: list[object] = [None] * 2
    if against is not None:
        compared = [_points(against.share), _detectable(against), p_value]
        returned = [signed(against.returned), against.returned_detectable]
    return [
        label,
        f"{100.0 * found.reached.mean():.0f} %",
        *compared,
        float(found.mean_return.mean()),
        *returned,
        float(found.final_return.mean()),
    ]


def _figure(
    config: Config, trained: Mapping[Cell, ArmRuns], thresholds: Mapping[str, Sequence[float]]
) -> Figure:
    """Plot the returns to the first goal against all steps, free ones included."""
    panels = []
    for arena in config.arenas:
        lines = []
        for label in config.labels:
            arm = trained.get(Cell(arena, 0, label))
            if arm is not None:
                mean, low, high = interquartile_curve(arm.returns)
                steps = arm.steps + (config.free_steps if label in _SPARED else 0)
                lines.append(Line(label=label, x=steps, mean=mean, low=low, high=high))
        panels.append(
            Panel(title=f"{arena}, threshold {format_number(thresholds[arena][0])}", lines=lines)
        )
    return plot_panels(
        panels,
        x_label="environment steps, free ones included",
        y_label="return",
        log_y=False,
        share_y=False,
        note="interquartile mean over agents, 95 % bootstrap interval",
    )


# --- Presets --------------------------------------------------------------------------------------

LAPTOP = AgentConfig(
    encoder=MLP(hidden=(64, 64)),
    dqn=DQNConfig(n_step=10, target_every=100, batch_size=32, steps_per_update=8, reward_scale=0.1),
    num_envs=8,
    steps=60_000,
    evaluate_every=2_000,
    evaluation_episodes=32,
    num_seeds=20,
)

PRESETS = {
    "smoke": Config(
        base=dataclasses.replace(
            LAPTOP,
            encoder=MLP(hidden=(8,)),
            num_features=8,
            dqn=DQNConfig(batch_size=8, steps_per_update=8, reward_scale=0.1, warmup=200),
            replay=ReplayConfig(capacity=1_000),
            steps=400,
            evaluate_every=200,
            evaluation_episodes=2,
            num_seeds=2,
        ),
        wide=(16,),
        arenas=("five_corridors",),
        labels=(SCRATCH, COSINES, LEARNED),
        free_steps=2_000,
        num_features=4,
    ),
    "laptop": Config(base=LAPTOP),
    "paper": Config(
        base=dataclasses.replace(LAPTOP, steps=120_000, num_seeds=40),
        goals=5,
    ),
}

EXPERIMENT = Experiment(
    name="transfer-opaque",
    title="What learned features buy agents that see opaque codes",
    paper="Our own experiment.",
    presets=PRESETS,
    cells=cells,
    measure=measure,
    report=report,
    keeps_parts=False,
    stated="our goal",
)
