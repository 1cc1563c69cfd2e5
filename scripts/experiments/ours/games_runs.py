"""Agents in enumerated worlds, with audits of their torsos against exact successor measures."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.agents import (
    AgentConfig,
    AuxiliaryConfig,
    CompiledProgram,
    FeatureConfig,
    make_agent,
    number_observations,
)
from rlreps.auditing import audit
from rlreps.config import with_sizes
from rlreps.cumulants import RandomFourier
from rlreps.encoders import MLP, Convolutional, Encoder, FunctionEncoder
from rlreps.envs import observation_struct
from rlreps.errors import InputError, TrainingDivergedError, require
from rlreps.experiments.ours.contestants import digest_of_code, import_instance
from rlreps.experiments.ours.counted_agents import train_counted
from rlreps.experiments.ours.released import read_released, released_rest
from rlreps.losses import (
    AugmentedLagrangian,
    CumulantDifferences,
    Explicit,
    LargeBatch,
    Objective,
    SelfPrediction,
    TDLowRank,
)
from rlreps.stats import samples_to_reach
from rlreps.study import Run
from rlreps.subspace import RandomizedSVD, spans_of, standardise
from rlreps.successor import GroundTruth
from rlreps.typing import DoubleArray
from rlreps.worlds import World, epsilon_greedy, load

SCRATCH, WIDER, CONTROL = "from scratch", "wider network", "random targets"
EXPLICIT, LARGE_BATCH, CUMULANTS = "explicit", "large batch", "random cumulants"
LOW_RANK, PREDICTION, ALLO = "TD low rank", "self-prediction", "ALLO"
FITTED, EXACT, RANDOM = "fitted to replay", "exact components", "random features"
COUNTED = "counted model"

JOINT = (EXPLICIT, LARGE_BATCH, CUMULANTS, LOW_RANK, PREDICTION, ALLO)
"""Arms with a joint loss that is meant to learn the successor measure."""

FAMILIES = (
    *("empty", "fourrooms", "doorkey", "keycorridor", "multiroom", "unlock", "lavagap"),
    *("lavacrossing", "simplecrossing", "distshift", "redbluedoors", "memory", "fetch"),
    "frozenlake",
)
"""Families of games. Worlds of a family are alike, and count as one."""

LEADING = 10
"""Number of leading components whose captured share is the closeness of features."""

MEASURES = ("closeness", "held_out", "own_closeness", "effective_rank", "constant", "value_r2")
"""Columns of what is measured at checkpoints alone."""

_MONTE_CARLO = AuxiliaryConfig(
    objective=LargeBatch(precondition=1e-2, leave_one_out=True),
    tasks=RandomFourier(length_scale=1.0),  # Boards of neighbouring states are about 2 apart.
    num_tasks=64,
    discount_low=0.95,
    discount_high=0.95,
    horizon=32,
    sequences=64,
)


class Arm(NamedTuple):
    """Settings in which an arm differs from agents that learn from scratch.

    Attributes:
        task: Its joint loss, without a weight.
        features: Features that its network reads beside the board.
        wide: Whether the network is wider.
        counted: Whether a counted model takes the network's place.
    """

    task: AuxiliaryConfig | None = None
    features: Literal["none", "fitted", "random", "exact"] = "none"
    wide: bool = False
    counted: bool = False

    @property
    def kind(self) -> str:
        """What distinguishes it, as the title of a panel."""
        if self.task is not None:
            return "joint losses"
        return "no auxiliary loss" if self.features == "none" else "features beside the board"


def _joint(objective: Any) -> Arm:
    return Arm(dataclasses.replace(_MONTE_CARLO, objective=objective))


ARMS: Mapping[str, Arm] = {
    SCRATCH: Arm(),
    WIDER: Arm(wide=True),
    # At discount 0 a target is a random function of the board.
    CONTROL: Arm(dataclasses.replace(_MONTE_CARLO, discount_low=0.0, discount_high=0.0)),
    EXPLICIT: _joint(Explicit(weight_learning_rate=3e-3)),
    LARGE_BATCH: Arm(_MONTE_CARLO),
    CUMULANTS: _joint(CumulantDifferences()),
    LOW_RANK: _joint(TDLowRank()),
    PREDICTION: _joint(SelfPrediction()),
    ALLO: _joint(AugmentedLagrangian()),
    FITTED: Arm(features="fitted"),
    EXACT: Arm(features="exact"),
    RANDOM: Arm(features="random"),
    COUNTED: Arm(counted=True),
}
"""Label → arm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arms of agents in worlds.

    Attributes:
        base: The agents.
        worlds: Worlds, by name.
        aside: Worlds that are kept aside for confirmation.
        labels: Arms to train: labels of ``ARMS``, or objectives of the user's own.
        wide: The wider network.
        weight: Weight of joint losses, relative to the norm of the values' gradient.
        checkpoints: Environment steps at which torsos are audited, multiples of ``evaluate_every``.
        num_components: Number of fitted and of exact components that networks read.
        threshold: Success to be reached, in two of three consecutive evaluations.
        plan_every: Environment steps from one plan to the next, of agents with a counted model.
        epsilon: Share of random actions in an agent's own policy, for its successor measure.
        objective_digest: Digest of the place and the file of the objective that the user names;
            None for the preset's arms.
    """

    base: AgentConfig
    worlds: tuple[str, ...]
    aside: tuple[str, ...]
    labels: tuple[str | Objective, ...] = tuple(ARMS)
    wide: Convolutional = Convolutional(channels=(40,), hidden=160)
    weight: float = 0.1
    checkpoints: tuple[int, ...] = (0, 16_000, 32_000, 64_000)
    num_components: int = 16
    threshold: float = 0.9
    plan_every: int = 1_000
    epsilon: float = 0.1
    objective_digest: str | None = None


def own_objectives(config: Config) -> dict[str, Objective]:
    """Return the user's own objectives by title."""
    return {each.title: each for each in config.labels if isinstance(each, Objective)}


def arm_of(config: Config, label: str) -> Arm:
    """Return the arm of a label: one of ``ARMS``, or a joint loss with the user's objective."""
    objective = own_objectives(config).get(label)
    return ARMS[label] if objective is None else Arm(task_of(config, objective))


def task_of(config: Config, objective: Objective) -> AuxiliaryConfig:
    """Return the auxiliary task with an objective of the user's own.

    An objective on pairs of states sees later states at the agents' discount, unless it has a
    discount of its own.
    """
    futures = objective.needs_clips and getattr(objective, "discount", None) is None
    task = dataclasses.replace(_MONTE_CARLO, objective=objective)
    if futures:
        discount = config.base.dqn.discount
        task = dataclasses.replace(task, pair_discount=discount, horizon=None)
    return task


def with_objective(config: Config, place: str) -> Config:
    """Add an arm of the user's own; with the released settings, the other arms are not trained.

    Args:
        config: The preset.
        place: ``module:name`` of an objective, or of a class whose options all have defaults.

    Raises:
        InputError: If the place holds no objective, if an arm has the objective's title, or if
            agents cannot learn the objective.
    """
    found = import_instance(place, "an objective")
    if not isinstance(found, Objective):
        raise InputError(f"expected an Objective at {place}, got {type(found).__name__}")
    require(found.title not in ARMS, "a title that no arm has, in a class of its own", found.title)
    config = dataclasses.replace(config, objective_digest=digest_of_code(place, found))
    alone = dataclasses.replace(config, labels=(found,))
    task_of(alone, found).require_objective()
    if released_labels(alone):
        return alone
    return dataclasses.replace(config, labels=(*config.labels, found))


def released_labels(config: Config) -> tuple[str, ...]:
    """List the released arms that a run lacks, if it has the settings of the release."""
    return released_rest("games", config, "labels", tuple(ARMS))


def labels_of(config: Config) -> tuple[str, ...]:
    """List the arms of a run's report: those that it trains, and released ones."""
    own = (label if isinstance(label, str) else label.title for label in config.labels)
    return (*own, *released_labels(config))


def family_of(name: str) -> str:
    """Return the family of a world."""
    return next(family for family in FAMILIES if family in name)


@functools.lru_cache(maxsize=2)
def load_board(name: str) -> World:
    """Load a world whose observations are boards of bits, [n, height, width, planes], as bytes.

    A plane shows where one code of one channel is; the least code is where no other is. Planes,
    rows and columns that are equal in all states are left out. A world without pictures shows the
    place of its first two coordinates.

    Raises:
        InputError: For a world that cannot be loaded.
    """
    world = load(name, view="grid" if name.startswith("minigrid-") else None)
    codes = world.observations
    if codes.ndim != 4:
        assert world.coordinates is not None
        column, row = world.coordinates[:, :2].astype(int).T
        column, row = column - column.min(), row.max() - row
        codes = np.zeros((world.num_states, row.max() + 1, column.max() + 1, 1), np.uint8)
        codes[np.arange(world.num_states), row, column] = 1
    moving = np.any(codes != codes[:1], axis=(0, 3))
    rows, columns = (np.flatnonzero(moving.any(axis=axis)) for axis in (1, 0))
    codes = codes[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    planes = [
        codes[..., channel] == code
        for channel in range(codes.shape[-1])
        for code in np.unique(codes[..., channel])[1:]
    ]
    planes = [plane for plane in planes if np.any(plane != plane[:1])]
    bits = np.stack(planes, axis=-1).astype(np.uint8) * np.uint8(255)
    return dataclasses.replace(world, observations=bits)


def task_cumulants(boards: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Draw the cumulants of ``large batch`` once, and evaluate them at boards [n, ...]: [n, t]."""
    flat = boards.reshape(len(boards), -1).astype(np.float32) / 255.0
    family = with_sizes(_MONTE_CARLO.tasks, num_inputs=flat.shape[1])
    drawn = family.init(jax.random.key(0), _MONTE_CARLO.num_tasks or 1)
    return np.asarray(family.apply(drawn, jnp.asarray(flat)))


@functools.lru_cache(maxsize=2)
def exact_truth(name: str, discount: float) -> GroundTruth:
    """Return the exact successor measure of the random policy in a world."""
    return load_board(name).truth(discount=discount)


def agents_of(config: Config, name: str, label: str) -> AgentConfig:
    """Return the agents of an arm in a world."""
    arm, base = arm_of(config, label), config.base
    features = FeatureConfig(
        kind="none" if arm.features == "exact" else arm.features,
        basis="counted",
        # Hashes of boards may coincide; counted agents also meet the board of a reset.
        basis_size=load_board(name).num_states + 1,
        num_components=config.num_components,
        feature_discount=base.dqn.discount,
    )
    task = base.auxiliary
    if arm.task is not None:
        task = dataclasses.replace(arm.task, weight=config.weight)
    return dataclasses.replace(
        base,
        environment=f"world:{name}",
        encoder=config.wide if arm.wide else base.encoder,
        features=features,
        auxiliary=task,
    )


def torso_of(config: Config, name: str) -> Encoder:
    """Make the torso of agents that are given the exact components of every board they see.

    It has the form of the torso with fitted features: the components join the features of the
    board in front of a layer of 64 units.
    """
    world, base, width = load_board(name), config.base, config.num_components
    boards = world.observations
    size = base.num_features
    network = with_sizes(base.encoder, frame_shape=boards.shape[1:], num_features=size)
    joint = MLP(size, num_inputs=size + width, hidden=(64,))
    basis = exact_truth(name, base.dqn.discount).principal.basis[:, :width]
    numbers, first = np.unique(number_observations(boards), return_index=True)
    table = jnp.asarray(basis[first] * np.sqrt(len(basis)), np.float32)

    def init(key: Array) -> Any:
        return {"network": network.init(key), "joint": joint.init(jax.random.fold_in(key, 1))}

    def apply(params: Any, seen: Array) -> Array:
        given = table[jnp.searchsorted(numbers, number_observations(seen))]
        found = jax.nn.relu(network.apply(params["network"], seen))
        return joint.apply(params["joint"], jnp.concatenate([found, given], axis=1))

    return FunctionEncoder(init, apply)


def measure_arm(run: Run[Config], name: str, cell: Mapping[str, str]) -> dict[str, Any]:
    """Train the agents of an arm in a world; audit their torsos at checkpoints.

    Returns:
        Success at every evaluation, [seeds, p], and each of ``MEASURES``, [seeds, checkpoints]; of
        a released arm, the release's. If an objective of the user's own diverges, no agent
        succeeds, and ``diverged`` says why instead of the measures.
    """
    config, (world, label) = run.config, (cell["world"], cell["arm"])
    arm = arm_of(config, label)
    if label in released_labels(config):
        released: dict[str, Any] = read_released("games")["cells"][name]
        return released
    agents, board = agents_of(config, world, label), load_board(world)
    environment = board.environment(agents.max_episode_steps)
    if arm.counted:
        returns = train_counted(agents, 1.0, config.plan_every, run.devices, game=board)
        return {"success": returns.tolist()}
    sight = observation_struct(environment)
    agent = make_agent(
        agents,
        sight.shape,
        environment.num_actions,
        observation_dtype=sight.dtype,
        torso=torso_of(config, world) if arm.features == "exact" else None,
    )
    program = CompiledProgram(agents, environment, agent, devices=run.devices)
    state, every = program.init(), agents.evaluate_every
    found, audits = list[DoubleArray](), list[dict[str, DoubleArray]]()

    @jax.jit
    def at_all_states(params: Any) -> tuple[Array, Array]:
        def one(params: Any) -> tuple[Array, Array]:
            network, seen = agent.network, jnp.asarray(board.observations)
            return network.features(params["torso"], seen), network.values(params, seen)

        found: tuple[Array, Array] = jax.lax.map(one, params)
        return found

    try:
        for step in range(0, agents.steps + 1, every):
            if step:
                state, _ = program.advance(state, step - every, every)
            found.append(program.evaluate(state, step)[1]["returns"])
            if step in config.checkpoints:
                features, values = map(np.asarray, at_all_states(state.learner.params))
                audits.append(audit_torsos(config, world, features, values))
    except TrainingDivergedError as error:
        if label not in own_objectives(config):
            raise
        never = np.zeros((agents.num_seeds, agents.steps // every + 1))
        return {"success": never.tolist(), "diverged": str(error)}
    measures = {key: np.stack([each[key] for each in audits], axis=1) for key in MEASURES}
    measures["success"] = np.stack(found, axis=1)
    return {key: each.tolist() for key, each in measures.items()}


def audit_torsos(
    config: Config, name: str, features: npt.NDArray[Any], values: npt.NDArray[Any]
) -> dict[str, DoubleArray]:
    """Audit features [seeds, n, d] of all states and action values [seeds, n, A] of agents.

    Returns:
        Each of ``MEASURES``, [seeds]: the share of the leading components of the random policy's
        successor measure in the span, with an intercept; their R² at held-out states; the share
        of the leading components of the agent's own policy's measure; the effective rank; the share
        of nearly constant features; and the R² of the optimal values, linear in the features.
    """
    world, discount = load_board(name), config.base.dqn.discount
    found = audit(dict(enumerate(features)), exact_truth(name, discount)).findings.values()
    optimal = world.optimal_action_values(discount).max(axis=1)
    leading = RandomizedSVD(rank=LEADING)
    policies = [epsilon_greedy(each, config.epsilon) for each in values]
    own = [world.truth(each, discount=discount, decomposition=leading) for each in policies]
    return {
        "closeness": np.array([each.leading(LEADING) for each in found]),
        "held_out": np.array([each.held_out[:LEADING].mean() for each in found]),
        "own_closeness": np.array(
            [
                1.0 - truth.distance(each, LEADING, intercept=True)
                for each, truth in zip(features, own, strict=True)
            ]
        ),
        "effective_rank": np.array([each.health.effective_rank for each in found]),
        "constant": np.array([each.health.dormant for each in found]),
        "value_r2": np.array([explained_share(each, optimal) for each in features]),
    }


def explained_share(features: npt.NDArray[Any], values: npt.NDArray[Any]) -> float:
    """Compute the R² of values [n] that are linear in features [n, d] and a constant."""
    centred = values - values.mean()
    direction = centred[:, None] / np.linalg.norm(centred)
    return 1.0 - float(spans_of(standardise(features), direction).missed_with_intercept[0])


def steps_to(config: Config, success: DoubleArray) -> DoubleArray:
    """Return the steps after which agents [seeds, p] reach the threshold; the budget at most."""
    every, budget = config.base.evaluate_every, config.base.steps
    steps = np.arange(success.shape[1], dtype=np.float64) * every
    return np.minimum(samples_to_reach(steps, success, config.threshold), budget)
