"""The Atari experiment: frames, three kinds of features of them, and what tells them apart."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.config import as_json
from rlreps.encoders import Convolutional, Encoder, Params, WithConstant
from rlreps.experiments.pfau_2019.atari.config import AtariConfig
from rlreps.experiments.pfau_2019.atari.features import (
    MethodFeatures,
    in_order,
    principal_components,
    successor_features,
)
from rlreps.experiments.pfau_2019.atari.frames import IndexArray, recorded_frames, require_game
from rlreps.experiments.pfau_2019.atari.predictor import next_frame_predictor, squared_error
from rlreps.experiments.pfau_2019.atari.problem import (
    Problem,
    encoded,
    make_problem,
    principal_pixels,
)
from rlreps.experiments.pfau_2019.atari.report import Outcome, write_atari_report
from rlreps.losses.base import Objective
from rlreps.losses.spectral import Spin
from rlreps.operators import Slowness, act
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training import TrainingResult, train

KIND = "atari"
RUN_KIND = "atari-run"
RUNS, FRAMES = "runs", "frames"

_MEASURED_PAIRS = 512
"""Pairs behind a point of a learning curve."""

_WARM_UP_SHARE = 10
"""One update in so many raises the learning rate."""


def run_atari(
    config: AtariConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The run's folder: the frames, a folder a network, figures, results, report and
            summary.
        devices: Where to train (see ``placement``); None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``methods`` with each one's slowness eigenvalues, ``comparisons`` of their
        spans, the ``predictor``'s errors, ``claims`` (the goals) and the ``report``'s path.

    Raises:
        InputError: Without the package ``ale-py``, for a game that it does not know, if the folder
            holds something else, or if the predictor's code collapsed to fewer dimensions than
            there are features.
    """
    finished = finished_summary(out, KIND, as_json(config))
    if finished is not None:
        return finished
    # Before the folder is made.
    require_game(config.game)
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: AtariConfig,
    folder: RunFolder,
    devices: Sequence[jax.Device] | None,
    progress: bool,
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    frames = recorded_frames(
        folder.path / FRAMES,
        config.game,
        config.num_frames,
        config.size,
        config.seed,
        progress=progress,
    )
    place = _Place(config, folder, make_problem(frames), devices, progress)
    return write_atari_report(config, folder, place.problem, _outcome(place))


class _Place(NamedTuple):
    """Where the experiment stands, and what it learns from."""

    config: AtariConfig
    folder: RunFolder
    problem: Problem
    devices: Sequence[jax.Device] | None
    progress: bool


def _outcome(place: _Place) -> Outcome:
    config, problem = place.config, place.problem
    slow, slow_run = _slow_features(place)
    pixels, share = principal_pixels(problem, config.num_features)
    successor, errors, predictor_run = _successor_features(place)
    return Outcome(
        methods=[
            slow,
            in_order("PCA of pixels", pixels, problem, learned=False),
            in_order("successor features", successor, problem, learned=False),
        ],
        history=slow_run.history,
        variance_of_pixels=share,
        prediction_errors=errors,
        seconds={
            "slow_features": round(slow_run.seconds, 1),
            "predictor": round(predictor_run.seconds, 1),
        },
    )


def _slow_features(place: _Place) -> tuple[MethodFeatures, TrainingResult]:
    """Spectral inference with the slowness operator, behind a constant first feature."""
    config, problem = place.config, place.problem
    network = Convolutional(
        config.num_features,
        frame_shape=problem.frame_shape,
        channels=config.channels,
        hidden=config.hidden,
    )
    encoder = problem.on_frames(WithConstant(network))
    result = _train(
        place,
        "slow-features",
        encoder,
        Spin(config.num_features + 1, operator=Slowness()),
        config.steps,
        _slowness_of(encoder, problem),
    )
    values = encoded(encoder, result.params(), problem)[:, 1:]
    return in_order("slow features", values, problem, learned=True), result


def _slowness_of(encoder: Encoder, problem: Problem) -> Callable[[Params], Mapping[str, Array]]:
    """Eigenvalues in the features' order, on fixed training pairs and fixed held-out pairs."""
    measured = {
        "training": _inputs_of(problem, problem.training),
        "held_out": _inputs_of(problem, problem.held_out),
    }

    def evaluate(params: Params) -> Mapping[str, Array]:
        figures = {}
        for name, constants in measured.items():
            # Or XLA would work out, and slowly, what it can of these frames while it compiles.
            inputs = lax.optimization_barrier(constants)
            action = act(Slowness(), lambda frames: encoder.apply(params, frames), inputs)
            spectrum = ordered_spectrum(action.covariance, action.operator_matrix)
            for index in range(1, len(spectrum.eigenvalues)):
                figures[f"{name}_eigenvalue_{index}"] = spectrum.eigenvalues[index]
        return figures

    return evaluate


def _inputs_of(problem: Problem, starts: IndexArray) -> Array:
    """Evenly spread pairs as a batch [2m, height, width, 1], m at most ``_MEASURED_PAIRS``."""
    count = min(len(starts), _MEASURED_PAIRS)
    first = starts[np.linspace(0, len(starts) - 1, count).astype(np.int64)]
    images = problem.frames.images[np.concatenate([first, first + 1])]
    return jnp.asarray(images)[..., None]


def _successor_features(
    place: _Place,
) -> tuple[np.ndarray, dict[str, float], TrainingResult]:
    """Principal successor features of a next-frame predictor's code, at all frames [n, d]."""
    config, problem = place.config, place.problem
    predictor = next_frame_predictor(config, problem)
    inputs = _inputs_of(problem, problem.held_out)

    def evaluate(params: Params) -> Mapping[str, Array]:
        first, second = jnp.split(lax.optimization_barrier(inputs), 2)
        predictions = predictor.predict(params, predictor.encoder.apply(params, first))
        return {"held_out_error": squared_error(predictions, problem, second)}

    result = _train(
        place, "predictor", predictor.encoder, predictor.objective, config.predictor_steps, evaluate
    )
    codes = encoded(predictor.encoder, result.params(), problem)
    successor = successor_features(codes, problem.training, config.discount)
    first, second = jnp.split(inputs, 2)
    unchanged = problem.standardised(first).reshape(len(first), -1)
    mean_frame = jnp.zeros_like(unchanged)
    errors = {
        "predictor": float(result.history[-1]["held_out_error"][0]),
        "mean_frame": float(squared_error(mean_frame, problem, second)),
        "frame_before": float(squared_error(unchanged, problem, second)),
    }
    return principal_components(successor, problem, config.num_features), errors, result


def _train(
    place: _Place,
    name: str,
    encoder: Encoder,
    objective: Objective,
    steps: int,
    evaluate: Callable[[Params], Mapping[str, Array]],
) -> TrainingResult:
    """One network in a folder of its own, on pairs of training frames."""
    config = place.config
    folder = RunFolder.create_or_resume(
        place.folder.path / RUNS / name,
        kind=RUN_KIND,
        config={"network": name, "experiment": place.folder.config},
        provenance=place.folder.provenance,
    )
    every = steps // config.evaluations
    # Without the slow start, hidden units die in the first updates, and codes collapse.
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, steps // _WARM_UP_SHARE, steps
    )
    return train(
        encoder,
        objective,
        place.problem.source(),
        optimizer=optax.adam(schedule),
        steps=steps,
        rows=2 * config.pairs,
        seeds=[config.seed],
        evaluate=evaluate,
        evaluate_every=every,
        folder=folder,
        checkpoint_every=every,
        devices=place.devices,
        description=name.replace("-", " "),
        progress=place.progress,
    )
