"""Training on fresh rollouts, without a stored matrix: what ``rlreps train-live`` runs."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.app.jobs.train import Problem, TrainingConfig, make_learner, train_in_folder
from rlreps.config import as_json, checked, interval, positive
from rlreps.cumulants import CUMULANTS, Cumulants, Discs, cumulant_matrix
from rlreps.encoders import Tabular
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError, differences, require, require_memory
from rlreps.numerics import PRNG
from rlreps.runs.folder import finished_summary
from rlreps.sources.live import puddle_world_source
from rlreps.subspace.svd import RandomizedSVD
from rlreps.successor.measure.settings import LONGEST_HORIZON
from rlreps.successor.truth.ground_truth import GroundTruth, state_cells
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.successor.truth.stored_subspace import centred

KIND = "train-live"

_TARGET_SEED = 0


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
        centring_starts: Number of further start states whose mean is subtracted from every row;
            None is one for each row, which keeps rows independent.
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
    centring_starts: int | None = positive(None)
    target_tasks: int = positive(4096)

    def __post_init__(self) -> None:
        rows = self.training.rows
        centring = rows if self.centring_starts is None else self.centring_starts
        lanes = (rows + centring) * self.rollouts
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


def run_live_training(
    config: LiveConfig,
    out: Path,
    *,
    store_path: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """Train on live rollouts in a folder, resuming an interrupted run.

    Args:
        config: The run.
        out: The run's folder.
        store_path: A complete store of the same process against which the encoder is measured
            (see ``live_ground_truth``); nothing is trained on it.
        devices: Where to train (see ``training.devices``); None is JAX's default device.

    Returns:
        The run's summary, as written to ``summary.json``, as for ``run_training``; without a
        store, its only measure is the last ``loss`` of each seed.

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If the store, the folder or the configuration is invalid.
        TrainingDivergedError: If training became non-finite.
    """
    source = puddle_world_source(
        load_arena(config.arena),
        config.cumulants,
        horizon=config.horizon,
        discount=config.discount,
        rollouts=config.rollouts,
        count_start=config.count_start,
        centring_starts=config.centring_starts,
    )
    store, environment = None, arena_settings(load_arena(config.arena))
    if store_path is not None:
        store = open_store(store_path)
        asked: dict[str, Any] = {"environment": json.loads(json.dumps(environment))}
        asked |= {name: getattr(config, name) for name in ("horizon", "discount", "count_start")}
        found = differences(asked, {name: store.settings.get(name) for name in asked})
        if found:
            raise InputError(f"{store.path} is of another process: {'; '.join(found)}")
    described = {
        **as_json(config),
        "environment": environment,
        "target": None if store is None else {"checksum": store.content_key()},
    }
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    truth = None if store is None else live_ground_truth(config, store)
    return train_in_folder(
        config.training,
        make_learner(config.training, num_inputs=2),
        Problem(source, None if truth is None else (truth, truth.coordinates)),
        out,
        kind=KIND,
        described=described,
        origin={} if store_path is None else {"store": str(store_path.absolute())},
        devices=devices,
    )


def live_ground_truth(config: LiveConfig, store: MatrixStore) -> GroundTruth:
    """Compute the target of a live run's encoder from a complete store of the same process.

    Returns:
        Ψ times ``target_tasks`` cumulants at the centres of its cells, with the top d left singular
        vectors. Ψ is centred by columns, like live batches, whatever the store's setting. Every run
        of the same settings has the same target.

    Raises:
        InputError: If the store cannot be read, or d exceeds its size or rank.
    """
    d, states = config.training.num_features, store.shape[0]
    most = min(states - 1, config.target_tasks)
    require_memory("the target's columns", 4 * states * config.target_tasks)
    require(d <= most, f"d <= {most} for {states} states and target_tasks cumulants", d)
    grid, cells = state_cells(store)
    centres = grid.unit_centres()[cells]
    key = jax.random.key(_TARGET_SEED, impl=PRNG)
    columns = np.asarray(cumulant_matrix(config.cumulants, key, centres, config.target_tasks))
    matrix = np.concatenate([rows @ columns for _, rows in centred(StoreBlocks(store)).blocks()])
    return GroundTruth(
        coordinates=jnp.asarray(centres),
        matrix=jnp.asarray(matrix),
        principal=RandomizedSVD(rank=d).decompose(matrix),
        settings=store.settings,
    )
