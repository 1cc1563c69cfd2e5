"""Training on fresh rollouts, without a stored matrix: what ``rlreps train-live`` runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.configs import as_json
from rlreps.configs.live import LiveTrainingConfig
from rlreps.cumulants import Cumulants, Discs, RandomFourier, RandomNetwork, cumulant_matrix
from rlreps.encoders.registry import make_encoder
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError, require
from rlreps.numerics import PRNG
from rlreps.runs.complete import finished_summary
from rlreps.runs.folder import differences
from rlreps.sources.live import LiveSource, puddle_world_source
from rlreps.subspace.svd import RandomizedSVD
from rlreps.successor.grids import Grid
from rlreps.successor.ground_truth import GroundTruth, centred
from rlreps.successor.store import MatrixStore, open_store
from rlreps.successor.store.blocks import StoreBlocks
from rlreps.workflows.train import EncoderRun, Target, make_learner, train_in_folder

KIND = "train-live"

CUMULANTS: dict[str, Cumulants] = {
    "discs": Discs(),
    "random_fourier": RandomFourier(),
    "random_network": RandomNetwork(),
}
"""Name → family of cumulants."""

_TARGET_SEED = 0


def run_live_training(
    config: LiveTrainingConfig,
    out: Path,
    *,
    store_path: Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains on live rollouts in a folder of its own, resuming what was interrupted.

    Args:
        config: The run.
        out: The run's folder.
        store_path: A complete store of the same process, to measure the encoder against (see
            ``live_ground_truth``); nothing is trained on it.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show a progress bar.

    Returns:
        The run's summary, as written to ``summary.json``: that of ``run_training``; without a
        store, its only figure is the last ``loss`` of each seed.

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: For anything about the store, the folder or the configuration that does not fit.
        TrainingDivergedError: If training became non-finite.
    """
    source = live_source(config)
    store = None if store_path is None else open_store(store_path)
    if store is not None:
        _require_same_process(config, store)
    described = {
        **as_json(config),
        "environment": arena_settings(load_arena(config.arena)),
        "target": None if store is None else {"checksum": store.content_key()},
    }
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    target = None
    if store is not None:
        truth = live_ground_truth(config, store)
        target = Target(truth, truth.coordinates)
    encoder = make_encoder(
        config.training.encoder,
        num_inputs=2,
        num_states=1,  # Of tabular encoders alone.
        num_features=config.training.num_features,
    )
    learner = make_learner(config.training, encoder, source.num_tasks)
    origin = {} if store_path is None else {"store": str(store_path.absolute())}
    run = EncoderRun(KIND, described, origin, config.training, learner, source, target)
    return train_in_folder(run, out, devices=devices, progress=progress)


def live_source(config: LiveTrainingConfig) -> LiveSource:
    """The configured source of fresh rollouts."""
    return puddle_world_source(
        load_arena(config.arena),
        CUMULANTS[config.cumulants],
        horizon=config.horizon,
        discount=config.discount,
        rollouts=config.rollouts,
        count_start=config.count_start,
        centring_starts=config.centring_starts,
    )


def live_ground_truth(config: LiveTrainingConfig, store: MatrixStore) -> GroundTruth:
    """What a live run's encoder should learn, from a stored successor measure of the same process.

    Args:
        config: The run; its family of cumulants and its ``target_tasks`` matter here.
        store: A complete store.

    Returns:
        The centred Ψ times ``target_tasks`` cumulants at the centres of its cells, with its top d
        left singular vectors. Every run of the same settings has the same target.

    Raises:
        InputError: If the store cannot be read, or d exceeds what its size or rank allow.
    """
    d, states = config.training.num_features, store.shape[0]
    most = min(states - 1, config.target_tasks)
    require(d <= most, f"d <= {most} for {states} states and target_tasks cumulants", d)
    centres = Grid(int(store.settings["bins"])).centres()
    key = jax.random.key(_TARGET_SEED, impl=PRNG)
    functions = cumulant_matrix(CUMULANTS[config.cumulants], key, centres, config.target_tasks)
    columns = np.asarray(functions)
    matrix = np.concatenate([rows @ columns for _, rows in centred(StoreBlocks(store)).blocks()])
    return GroundTruth(
        coordinates=jnp.asarray(centres),
        matrix=jnp.asarray(matrix),
        principal=RandomizedSVD(rank=d).decompose(matrix),
        settings=store.settings,
    )


def _require_same_process(config: LiveTrainingConfig, store: MatrixStore) -> None:
    """Raises an ``InputError`` unless a store is of the process that a run rolls out."""
    asked = {
        "environment": arena_settings(load_arena(config.arena)),
        "horizon": config.horizon,
        "discount": config.discount,
        "count_start": config.count_start,
    }
    found = differences(
        json.loads(json.dumps(asked)), {name: store.settings.get(name) for name in asked}
    )
    if found:
        raise InputError(f"{store.path} is of another process: {'; '.join(found)}")
