"""Arms of agents, each different from the baseline in one thing, and their training.

A *setting* is an environment with what agents see of it: ``spiral`` and ``spiral, images``, for
example.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents import AgentConfig, AuxiliaryConfig, FeatureConfig
from rlreps.app import CustomParts, TrainAgents, history, mean_returns, run_job
from rlreps.config import with_sizes
from rlreps.cumulants import RandomFourier
from rlreps.encoders import Convolutional, Encoder
from rlreps.envs import Image, Position
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.counted_agents import train_counted
from rlreps.experiments.ours.fixed_features import (
    cells_around,
    cosine_features,
    table_features,
)
from rlreps.experiments.ours.mazes import BINS, CAP, CONTROL_ARENA, FIT, GOALS, MAZES
from rlreps.experiments.ours.tabular import exact_components, least_steps
from rlreps.losses import Explicit, LargeBatch
from rlreps.numerics import make_keys
from rlreps.runs import RunFolder
from rlreps.study import Run, replace_nested
from rlreps.typing import DoubleArray

SCRATCH, WIDER, EMBEDDING = "from scratch", "wider network", "trainable embedding"
EXPLICIT, LARGE_BATCH, CONTROL = "explicit per action", "large batch", "data-free control"
RANDOM, POSITION, COSINES = "random features", "true (x, y)", "fixed cosines of (x, y)"
LEARNED, EXACT = "learned components", "exact components"
FITTED, FITTED_ONCE = "fitted to replay", "fitted once to replay"
BESIDE, COUNTED = "random features beside the observation", "counted model"

Input: TypeAlias = Literal[
    "observation", "embedding", "random", "cosines", "learned", "exact", "counted"
]
"""Input of the network: observations, a trainable table of cells, or fixed features. Fixed features
are random, cosines of the position, components fitted to steps without rewards, or exact
components. Agents with a counted model have no network."""

IMAGES = ", images"
"""End of the name of a setting in which agents see images."""

_CELLS = BINS**2

_EXPLICIT = AuxiliaryConfig(
    objective=Explicit(weight_learning_rate=3e-3),
    head=(32,),
    num_tasks=32,
    discount_low=0.95,
    discount_high=0.95,
    horizon=None,
    sequences=64,
    per_action=True,
)


class Arm(NamedTuple):
    """What distinguishes an arm.

    Attributes:
        input: Input of its network.
        task: Its joint loss; ``Config`` sets the weight and the cumulants' length scale.
        wide: Whether the network is wider.
        position: Whether agents see their position.
        in_sutton: Whether ``sutton`` has the arm.
        features: Features that the network reads in addition to the observation; the agent may fit
            them to its replay.
    """

    input: Input = "observation"
    task: AuxiliaryConfig | None = None
    wide: bool = False
    position: bool = False
    in_sutton: bool = True
    features: Literal["none", "fitted", "fitted_once", "random"] = "none"

    @property
    def is_spared(self) -> bool:
        """Whether the arm's budget includes its steps without rewards."""
        return self.input in ("learned", "exact")


WAYS: Mapping[str, Arm] = {
    SCRATCH: Arm(),
    WIDER: Arm(wide=True),
    EMBEDDING: Arm("embedding", in_sutton=False),
    EXPLICIT: Arm(task=_EXPLICIT, in_sutton=False),
    LARGE_BATCH: Arm(
        task=dataclasses.replace(
            _EXPLICIT,
            objective=LargeBatch(precondition=1e-2, leave_one_out=True),
            per_action=False,
        ),
        in_sutton=False,
    ),
    # At discount 0 a target is a random function of the observation, and a sequence is one row.
    CONTROL: Arm(
        task=dataclasses.replace(_EXPLICIT, discount_low=0.0, discount_high=0.0), in_sutton=False
    ),
    RANDOM: Arm("random"),
    POSITION: Arm(position=True, in_sutton=False),
    COSINES: Arm("cosines", position=True),
    LEARNED: Arm("learned"),
    EXACT: Arm("exact"),
    FITTED: Arm(features="fitted"),
    FITTED_ONCE: Arm(features="fitted_once"),
    BESIDE: Arm(features="random", in_sutton=False),
    COUNTED: Arm("counted", in_sutton=False),
}
"""Label → arm."""


class Game(NamedTuple):
    """An environment of gymnax in which agents see images.

    Attributes:
        environment: Its name in a configuration.
        repeats: Whether its observations repeat, so that states can be counted.
        best: The best return of an episode, if known; it also bounds the values of actions.
        threshold: Return to reach, if any.
    """

    environment: str
    repeats: bool = False
    best: float | None = None
    threshold: float | None = None


FOUR_ROOMS = "FourRooms"

_ROOMS = "use_visual_obs=true,resample_init_pos=true,max_steps_in_episode=100"

GAMES: Mapping[str, Game] = {
    FOUR_ROOMS: Game(f"gymnax:FourRooms-misc:{_ROOMS}", repeats=True, best=1.0, threshold=0.9),
    "Breakout": Game("gymnax:Breakout-MinAtar"),
    "Asterix": Game("gymnax:Asterix-MinAtar"),
}
"""Name → game. The return of ``FourRooms`` is the share of episodes that reach the goal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arms of agents in mazes and games.

    Attributes:
        base: The agents; each arm sets the environment, the observation and the goal.
        wide: Hidden layers of the wider network.
        labels: Arms, of ``WAYS``.
        free_steps: Steps without rewards of each fit.
        num_features: Components.
        discount: γ of the successor measure.
        threshold: Return to reach, as a multiple of the optimal return.
        weight: Weight of joint losses, relative to the norm of the values' gradient.
        aside: A maze that was not used during development.
        aside_seed: Seed of the first agent in this maze, which shares no seeds with other arenas.
        pictured: Mazes in which agents also see images.
        picture_labels: Arms of agents that see images, of ``WAYS``.
        picture_size: Side of images, in pixels. The default is the smallest size that ``Image``
            takes; the images of all cells differ.
        picture_torso: Their network, one convolution.
        picture_wide: The wider network of images.
        picture_every: Environment steps between evaluations of agents that see images. Their
            evaluations take as long as a third of their training.
        games: Games, of ``GAMES``.
        game_labels: Arms in games: those of ``WAYS`` whose networks see plain observations. Games
            whose observations repeat have a counted model too.
        game_steps: Environment steps of each agent in a game.
        fourier_size: Random Fourier features of fits to observations that hardly repeat.
        plan_every: Environment steps from one plan to the next, of agents with a counted model.
    """

    base: AgentConfig
    wide: tuple[int, ...] = (160, 160)
    arenas: tuple[str, ...] = (*MAZES, CONTROL_ARENA)
    labels: tuple[str, ...] = tuple(WAYS)
    free_steps: int = 30_000
    num_features: int = 16
    discount: float = 0.95
    threshold: float = 3.0
    weight: float = 0.1
    aside: str = "spiral"
    aside_seed: int = 10_000
    pictured: tuple[str, ...] = MAZES
    picture_labels: tuple[str, ...] = (SCRATCH, WIDER, FITTED, BESIDE)
    picture_size: int = 8
    picture_torso: Convolutional = Convolutional(channels=(16,), hidden=64)
    picture_wide: Convolutional = Convolutional(channels=(40,), hidden=160)
    picture_every: int = 3_000
    games: tuple[str, ...] = tuple(GAMES)
    game_labels: tuple[str, ...] = (SCRATCH, WIDER, FITTED, BESIDE)
    game_steps: int = 36_000
    fourier_size: int = 256
    plan_every: int = 200

    @property
    def settings(self) -> dict[str, tuple[str, ...]]:
        """Setting → its arms."""
        seen = {
            arena: tuple(
                each for each in self.labels if arena != CONTROL_ARENA or WAYS[each].in_sutton
            )
            for arena in self.arenas
        }
        seen |= {f"{maze}{IMAGES}": self.picture_labels for maze in self.pictured}
        for game in self.games:
            counted = (COUNTED,) if GAMES[game].repeats else ()
            seen[game] = (*self.game_labels, *counted)
        return seen

    def agents(self, setting: str, label: str) -> AgentConfig:
        """Return the agents of an arm."""
        way, base, arena = WAYS[label], self.base, arena_of(setting)
        images = setting != arena or setting in GAMES
        torso, wide = base.encoder, replace_nested(base.encoder, hidden=self.wide)
        if images:
            torso, wide = self.picture_torso, self.picture_wide
            base = dataclasses.replace(base, evaluate_every=self.picture_every)
        features = FeatureConfig(
            kind=way.features,
            basis="counted",
            num_components=self.num_features,
            feature_discount=self.discount,
        )
        if not (GAMES[setting].repeats if setting in GAMES else arena != CONTROL_ARENA):
            size = self.fourier_size
            features = dataclasses.replace(features, basis="fourier", basis_size=size)
        agents = dataclasses.replace(base, encoder=wide if way.wide else torso, features=features)
        if setting in GAMES:
            return replace_nested(
                agents,
                environment=GAMES[setting].environment,
                reward_scale=1.0,
                steps=self.game_steps,
            )
        observation = Position() if way.position else mazes.observation_of(arena)
        if images:
            observation = Image(size=self.picture_size, bins=BINS)
        agents = dataclasses.replace(
            agents,
            environment=f"puddle-world:{arena}",
            observation=observation,
            goal=GOALS[0],
            max_episode_steps=CAP,
            seed=self.aside_seed if arena == self.aside else base.seed,
            steps=base.steps + (0 if way.is_spared else self.free_steps),
        )
        if way.task is None:
            return agents
        # Codes are about 1.6 apart, so waves of this length take different values at every cell.
        waves = RandomFourier(length_scale=0.5)
        task = dataclasses.replace(way.task, weight=self.weight, tasks=waves)
        return dataclasses.replace(agents, auxiliary=task)


def arena_of(setting: str) -> str:
    """Return the arena or the game of a setting."""
    return setting.removesuffix(IMAGES)


def threshold_of(config: Config, setting: str) -> float | None:
    """Return the return to reach in a setting, if any."""
    if setting in GAMES:
        return GAMES[setting].threshold
    return config.threshold * best_return(setting)


def best_return(setting: str) -> float:
    """Return the optimal return of a setting; NaN for a game whose best return is not known."""
    if setting not in GAMES:
        return optimal_return(arena_of(setting))
    best = GAMES[setting].best
    return np.nan if best is None else best


Curves: TypeAlias = tuple[DoubleArray, DoubleArray]
"""Environment steps of each agent at evaluations [p], from 0, and mean returns [seeds, p]."""


def mean_of_budget(config: AgentConfig, curves: Curves, free_steps: int) -> DoubleArray:
    """Average returns over the evaluations after the first update, [seeds].

    Steps without rewards before training count as evaluations of an agent that never arrives, whose
    return is ``-CAP``.
    """
    steps, returns = curves
    before = np.arange(0, free_steps, config.evaluate_every, dtype=np.float64)
    idle = np.full((len(returns), len(before)), -float(CAP))
    steps = np.concatenate([before, free_steps + steps])
    return mean_returns(config, steps, np.concatenate([idle, returns], axis=1))


def train_arm(
    run: Run[Any],
    name: str,
    config: AgentConfig,
    torso: Encoder | None = None,
    tables: npt.ArrayLike | None = None,
) -> Curves:
    """Train agents in ``runs/<name>``, from their newest checkpoint if they were interrupted.

    Args:
        run: The experiment's run.
        name: Name of the folder.
        config: The agents.
        torso: A torso in place of the configured one.
        tables: Initial values of the torso's table, [seeds, cells, d] or [cells, d].

    Raises:
        InputError: For an environment or a folder that does not fit.
        TrainingDivergedError: If a loss became NaN or infinite.
    """
    start = None
    if torso is not None and tables is not None:
        fresh = jax.vmap(torso.init)(make_keys(config.seeds))
        table = jnp.broadcast_to(jnp.asarray(tables), fresh["table"].shape)
        start = {**fresh, "table": table}
    home = run.folder.path / "runs" / name
    own = CustomParts() if torso is None else CustomParts(torso=torso, name=name, start=start)
    run_job(TrainAgents(config=config, own=own, page=False), home, devices=run.devices)
    return history(RunFolder(home), "returns")


def count_arm(run: Run[Any], config: AgentConfig, setting: str) -> Curves:
    """Let agents plan with a counted model.

    Raises:
        InputError: If an agent sees too many observations to count.
    """
    # In mazes rewards are costs, so that no value exceeds 0.
    bound = best_return(setting) if setting in GAMES else 0.0
    returns = train_counted(config, bound, run.config.plan_every, run.devices)
    return np.arange(returns.shape[1], dtype=np.float64) * config.evaluate_every, returns


# --- Features in front of a network ---------------------------------------------------------------


def of_code(observations: Array) -> tuple[Array, Array]:
    """Find the cells of codes by their first numbers, which all differ."""
    first = mazes.observation_of(MAZES[0]).table()[:, 0]  # type: ignore[union-attr]
    order = np.argsort(first)
    ranks = jnp.sum(observations[:, :1] > jnp.asarray(first[order])[None], axis=1)
    cells = jnp.asarray(order)[jnp.minimum(ranks, _CELLS - 1)]
    return cells[:, None], jnp.ones_like(observations[:, :1])


def torso_of(base: AgentConfig, arena: str, kind: Input, width: int) -> Encoder | None:
    """Put features in front of the configured encoder; return None for observations.

    In ``sutton`` a table has a row for each cell of a grid and is interpolated between the cells'
    centres.
    """
    if kind == "observation":
        return None
    network = with_sizes(base.encoder, num_features=base.num_features, num_inputs=width)
    if kind == "cosines":
        return cosine_features(network, width)
    places = functools.partial(cells_around, BINS) if arena == CONTROL_ARENA else of_code
    return table_features(network, places, _CELLS, width, frozen=kind != "embedding")


def on_grid(arena: str, features: DoubleArray) -> npt.NDArray[np.float32]:
    """Put features [n, d] of an arena's cells, with mean square 1, into a table of the grid."""
    table = np.zeros((_CELLS, features.shape[1]), np.float32)
    places = mazes.places_of(mazes.cell_world(arena))
    table[places] = features / np.sqrt(np.mean(np.square(features)))
    return table


def learned_table(
    arena: str, free_steps: int, width: int, discount: float, seed: int
) -> npt.NDArray[np.float32]:
    """Fit one agent's components to its steps without rewards; they are 0 in cells never seen."""
    data = mazes.free_transitions(arena, free_steps, seed)
    how = dataclasses.replace(FIT, num_features=width, discount=discount, seed=seed)
    return on_grid(arena, mazes.fit_at_cells(arena, data, how).features("singular"))


def exact_table(arena: str, width: int, discount: float) -> npt.NDArray[np.float32]:
    """Return the exact leading components of an arena's cells, [cells, d]."""
    return on_grid(arena, exact_components(mazes.cell_world(arena), width, discount))


@functools.cache
def optimal_return(arena: str, goal: tuple[float, float, float] = GOALS[0]) -> float:
    """Return minus the least expected number of steps to a goal, over starts outside it."""
    world = mazes.cell_world(arena)
    inside = mazes.discs(world, [goal])[:, 0] > 0.0
    return -float(least_steps(world, inside, CAP)[~inside].mean())
