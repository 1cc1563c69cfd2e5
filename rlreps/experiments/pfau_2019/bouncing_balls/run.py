"""Deep slow feature analysis of bouncing balls, beside linear analyses of the same video."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import as_json
from rlreps.encoders import Convolutional, Encoder, Params, WithConstant
from rlreps.envs import BouncingBalls
from rlreps.experiments.pfau_2019.bouncing_balls.config import BouncingBallsConfig
from rlreps.experiments.pfau_2019.bouncing_balls.linear import (
    Basis,
    linear_slow_features,
    pixels,
    positions,
)
from rlreps.experiments.pfau_2019.bouncing_balls.measuring import (
    Spectra,
    extreme_frames,
    measure_explained,
    measure_responses,
    measure_spectra,
)
from rlreps.experiments.pfau_2019.bouncing_balls.report import Network, Results, write_balls_report
from rlreps.experiments.pfau_2019.bouncing_balls.video import FramePairs
from rlreps.losses.spectral import Spin
from rlreps.operators import Slowness
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training import TrainingResult, train
from rlreps.training.evaluation import sampled_moments

KIND = "bouncing-balls"
RUN_KIND = "bouncing-balls-network"
RUNS = "runs"

_CHECKPOINT_EVALUATIONS = 5
"""Evaluations between checkpoints."""

_DRAWS = {name: 10 + index for index, name in enumerate(("held out", "linear", "test", "frames"))}
"""What is folded into the first seed's key for draws that are not training's own."""


def run_bouncing_balls(
    config: BouncingBallsConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The folder: a folder a network under ``runs``, ``results``, ``figures``,
            ``report.html`` and ``summary.json``.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``eigenvalues`` of every analysis, ``claims`` and the ``report``'s path.

    Raises:
        InputError: If the folder holds something else.
        TrainingDivergedError: If a network's numbers become NaN or infinite.
    """
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: BouncingBallsConfig,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    video = BouncingBalls()
    shape = (video.frame_size, video.frame_size, 1)
    encoder = WithConstant(
        Convolutional(
            config.num_features, frame_shape=shape, channels=config.channels, hidden=config.hidden
        )
    )
    trained = [
        _train(config, encoder, video, seed, folder, devices, progress) for seed in config.seeds
    ]
    networks = [
        _measure(config, encoder, video, seed, result)
        for seed, result in zip(config.seeds, trained, strict=True)
    ]
    (linear,) = _exact(config, pixels(video, config.pooling), FramePairs(video), ["test"])
    best, best_held_out = _exact(
        config, positions(video, config.degree), FramePairs(video, True), ["test", "held out"]
    )
    results = Results(
        networks=networks, pixels=linear, positions=best, positions_held_out=best_held_out
    )
    return write_balls_report(config, folder, results)


def _key(config: BouncingBallsConfig, name: str) -> Array:
    return jax.random.fold_in(jax.random.key(config.seed), _DRAWS[name])


def _train(
    config: BouncingBallsConfig,
    encoder: Encoder,
    video: BouncingBalls,
    seed: int,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> TrainingResult:
    """One network; its eigenvalues on the same held-out frames at every evaluation."""
    run = RunFolder.create_or_resume(
        folder.path / RUNS / f"seed-{seed}",
        kind=RUN_KIND,
        config={"seed": seed, "experiment": folder.config},
        provenance=folder.provenance,
    )
    source, held_out = FramePairs(video), _key(config, "held out")
    objective = Spin(
        1 + config.num_features,
        operator=Slowness(),
        averaging_rate=config.averaging_rate,
        encoder=encoder,
        jacobian_rows_at_once=config.jacobian_rows_at_once,
    )

    def evaluate(params: Params) -> Mapping[str, Array]:
        moments = sampled_moments(
            encoder,
            params,
            Slowness(),
            source,
            held_out,
            rows=config.rows,
            batches=config.evaluation_batches,
        )
        found = ordered_spectrum(*moments).eigenvalues
        return {f"eigenvalue_{k}": found[k] for k in range(1, len(found))}

    every = config.steps // config.evaluations
    return train(
        encoder,
        objective,
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        seeds=[seed],
        evaluate=evaluate,
        evaluate_every=every,
        folder=run,
        checkpoint_every=every * _CHECKPOINT_EVALUATIONS,
        devices=devices,
        description=f"slow features, seed {seed}",
        progress=progress,
    )


def _measure(
    config: BouncingBallsConfig,
    encoder: Encoder,
    video: BouncingBalls,
    seed: int,
    result: TrainingResult,
) -> Network:
    """A trained network's eigenvalues and what its eigenfunctions respond to."""
    params = result.params()
    spectra = _spectra(config, encoder, params, FramePairs(video), "test")
    transform = jnp.asarray(spectra.transform)
    responses = measure_responses(
        lambda frames: encoder.apply(params, frames) @ transform,
        video,
        _key(config, "frames"),
        config,
    )
    return Network(
        seed=seed,
        seconds=result.seconds,
        history=result.history,
        spectra=spectra,
        explained=measure_explained(responses, video, config),
        maps=responses.maps,
        frames=extreme_frames(responses, video, config.shown),
    )


def _exact(
    config: BouncingBallsConfig, basis: Basis, source: FramePairs, draws: Sequence[str]
) -> list[Spectra]:
    """An exact analysis, measured on draws of frames that networks are measured on."""
    components = len(basis.bodies) if source.as_positions else config.components
    features = linear_slow_features(
        basis,
        source,
        _key(config, "linear"),
        config.num_features,
        rows=config.rows,
        batches=config.linear_batches,
        components=components,
    )
    params = features.init(jax.random.key(0))
    return [_spectra(config, WithConstant(features), params, source, draw) for draw in draws]


def _spectra(
    config: BouncingBallsConfig, encoder: Encoder, params: Params, source: FramePairs, draw: str
) -> Spectra:
    """Eigenvalues on one of the draws of fresh frames."""
    batches = {"test": config.test_batches, "held out": config.evaluation_batches}[draw]
    return measure_spectra(
        encoder, params, source, _key(config, draw), rows=config.rows, batches=batches
    )
