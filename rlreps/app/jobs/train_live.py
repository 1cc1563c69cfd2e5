"""Train an encoder on fresh rollouts, without a stored matrix: ``rlreps train-live``."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.app.jobs.train import CHOICES as CHOICES
from rlreps.app.jobs.train import NAMES as NAMES
from rlreps.app.jobs.train import TrainingJob
from rlreps.config import as_json, checked, interval, positive
from rlreps.cumulants import CUMULANTS, Cumulants, Discs, cumulant_matrix
from rlreps.encoders import Tabular
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError, describe_differences, require, require_memory, warn_user
from rlreps.numerics import PRNG
from rlreps.runs.progress import progress_bar
from rlreps.sources.live import puddle_world_source
from rlreps.subspace.metrics import subspace_distance
from rlreps.subspace.svd import RandomizedSVD
from rlreps.successor.measure.settings import LONGEST_HORIZON
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.states import state_cells
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.successor.truth.stored_subspace import centred
from rlreps.training import Learner
from rlreps.training.config import TrainingConfig, make_learner
from rlreps.training.on_store import Problem

KIND = "train-live"

_TARGET_SEED = 0

_MOST_ERROR = 0.005
"""Largest subspace distance of the target from that of all functions without a warning."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveConfig:
    """One training run on entries from fresh rollouts of PuddleWorld.

    Attributes:
        training: How to train; its ``tasks`` are cumulants drawn anew for every update.
        arena: One of the named arenas, or the path of a TOML file that describes one.
        cumulants: The family of functions from which tasks are drawn.
        horizon: h, number of terms of the discounted sum.
        discount: γ, strictly between 0 and 1.
        rollouts: Number of rollouts from each start state, averaged.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ) or with the first
            successor (Σ_{t≥1} γᵗ⁻¹).
        target_tasks: Number of functions that define the subspace against which a run with a store
            is measured; the sampling error is inversely proportional to this number.
    """

    # Every row of a live batch is a rollout, and every task is evaluated at each of its states.
    training: TrainingConfig = dataclasses.field(
        default=TrainingConfig(steps=2000, rows=250, tasks=256)
    )
    arena: str = "sutton"
    cumulants: Cumulants = dataclasses.field(default=Discs())
    horizon: int = positive(700, most=LONGEST_HORIZON)
    discount: float = interval("(0, 1)", 0.99)
    rollouts: int = positive(1)
    count_start: bool = True
    target_tasks: int = positive(16_384)

    def __post_init__(self) -> None:
        rows = self.training.rows
        lanes = 2 * rows * self.rollouts
        width = max((self.training.tasks, *getattr(self.cumulants, "hidden", ())))
        size = 4 * lanes * width * self.training.num_seeds
        require_memory("cumulants at the rollouts of all rows", size)
        families = f"cumulants to be one of {', '.join(CUMULANTS)}"
        require(type(self.cumulants) in CUMULANTS.values(), families, self.cumulants)
        encoder, objective = self.training.encoder, self.training.objective
        require(
            not isinstance(encoder, Tabular),
            "an encoder of positions for live rollouts",
            encoder.name,
        )
        require(
            objective.live and not objective.needs_population,
            "a method and options that need no matrix, for live rollouts",
            f"{objective.name} on all states" if objective.live else objective.name,
        )
        states = self.training.states
        require(states == "centres", "no states for live rollouts, which start anywhere", states)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainLive(TrainingJob):
    """Train an encoder on fresh rollouts, without a matrix; the same command resumes.

    Attributes:
        config: The run.
        store: A successor measure of the same process against which the encoder is measured; by
            default none. Nothing is trained on it.
    """

    kind: ClassVar = KIND

    config: LiveConfig = dataclasses.field(default=LiveConfig())
    store: Path | None = None

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    def describe(self) -> Mapping[str, Any]:
        """Describe the run.

        Raises:
            InputError: For an unknown or invalid arena, or a store of another process.
        """
        config, target = self.config, None
        environment = arena_settings(load_arena(config.arena))
        if self.store is not None:
            store = open_store(self.store)
            asked: dict[str, Any] = {"environment": json.loads(json.dumps(environment))}
            asked |= {
                name: getattr(config, name) for name in ("horizon", "discount", "count_start")
            }
            found = describe_differences(asked, {name: store.settings.get(name) for name in asked})
            if found:
                raise InputError(f"{store.path} is of another process: {'; '.join(found)}")
            target = {"checksum": store.content_key()}
        return {**as_json(config), "environment": environment, "target": target}

    def locate(self, out: Path) -> Mapping[str, Any]:
        return {} if self.store is None else {"store": str(self.store.absolute())}

    @functools.cached_property
    def learner(self) -> Learner:
        return make_learner(self.training, num_inputs=2)

    @functools.cached_property
    def problem(self) -> Problem:
        config, target = self.config, None
        source = puddle_world_source(
            load_arena(config.arena),
            config.cumulants,
            horizon=config.horizon,
            discount=config.discount,
            rollouts=config.rollouts,
            count_start=config.count_start,
        )
        if self.store is not None:
            truth = live_ground_truth(config, open_store(self.store))
            target = (truth, truth.coordinates)
        return Problem(source, target)


def target_error(matrix: np.ndarray, d: int) -> float:
    """Estimate the subspace distance of a target [n, tasks] from that of infinitely many tasks.

    The error of a target is inversely proportional to its number of tasks. The distance of two
    halves is the sum of their errors, of which each is twice that of the target. The result is 1 if
    a half has fewer than d components.
    """
    try:
        halves = [RandomizedSVD(rank=d).decompose(matrix[:, half::2]).basis for half in range(2)]
    except InputError:
        return 1.0
    return float(subspace_distance(*map(jnp.asarray, halves))) / 4.0


def live_ground_truth(config: LiveConfig, store: MatrixStore) -> GroundTruth:
    """Compute the target of a live run's encoder from a complete store of the same process.

    Returns:
        Ψ times ``target_tasks`` cumulants at the centres of its cells, with the top d left singular
        vectors. Ψ is centred by columns, like live batches, whatever the store's setting. Every run
        of the same settings has the same target.

    Raises:
        InputError: If the store cannot be read, or d exceeds its size or rank.

    Warns:
        FitWarning: If two halves of the functions say that the target's own sampling error exceeds
            0.005.
    """
    d, states = config.training.num_features, store.shape[0]
    most = min(states - 1, config.target_tasks)
    require_memory("the target's columns", 3 * 4 * states * config.target_tasks)
    require(d <= most, f"d <= {most} for {states} states and target_tasks cumulants", d)
    grid, cells = state_cells(store)
    centres = grid.unit_centres()[cells]
    key = jax.random.key(_TARGET_SEED, impl=PRNG)
    columns = np.asarray(cumulant_matrix(config.cumulants, key, centres, config.target_tasks))
    matrix = np.empty((states, config.target_tasks), np.float32)
    with progress_bar("target", total=states, unit="rows", after=2.0) as advance:
        for start, rows in centred(StoreBlocks(store)).blocks():
            matrix[start : start + len(rows)] = rows @ columns
            advance(len(rows))
    error = target_error(matrix, d)
    if error > _MOST_ERROR:
        warn_user(
            f"the target of {config.target_tasks:,} functions is itself about {error:.1g} from "
            "that of all functions: take more target_tasks, or another number of features"
        )
    return GroundTruth(
        coordinates=jnp.asarray(centres),
        matrix=jnp.asarray(matrix),
        principal=RandomizedSVD(rank=d).decompose(matrix),
        settings=store.settings,
    )
