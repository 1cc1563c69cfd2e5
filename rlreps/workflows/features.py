"""Features that a run records while it trains, for ``rlreps explore``."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

from rlreps.encoders import Encoder
from rlreps.files import write_atomically
from rlreps.numerics import jit
from rlreps.runs import processes
from rlreps.runs.folder import RunFolder
from rlreps.training.population import Observe

FEATURES = "features"

_RECORDED_STEPS = 25

_RECORDED_BYTES = 2**25
"""Largest number of evaluations at which a run keeps its features, and their largest size."""


def feature_record(
    folder: RunFolder,
    encoder: Encoder,
    inputs: Array,
    *,
    num_features: int,
    steps: int,
    evaluate_every: int,
) -> Observe:
    """Keep the first seed's features at all states, at some evaluations: ``features/STEP.npy``.

    ``rlreps explore`` shows from them how components emerge. A resumed run writes those after its
    checkpoint again, with the same bits.

    Args:
        folder: The run.
        encoder: The encoder being trained.
        inputs: Its inputs for all states, [n, ...].
        num_features: d.
        steps: Number of updates of the run.
        evaluate_every: Updates between evaluations. Features are kept at some of them, more often
            early on, in at most ``_RECORDED_BYTES``.
    """
    room = _RECORDED_BYTES // (4 * len(inputs) * num_features)
    last, most = -(-steps // evaluate_every), min(room, _RECORDED_STEPS)
    places = np.rint(last * np.linspace(0.0, 1.0, most) ** 2) if most >= 2 else np.zeros(0)
    chosen = {min(int(place) * evaluate_every, steps) for place in places}
    apply = jit(encoder.apply)

    def observe(step: int, params: Callable[[], Any]) -> None:
        if step in chosen:
            content = io.BytesIO()
            np.save(content, np.asarray(apply(params(), inputs), np.float32))
            if processes.process_index() == 0:
                path = folder.path / FEATURES / f"{step:09d}.npy"
                write_atomically(path, content.getvalue())

    return observe


def recorded_features(folder: RunFolder) -> dict[int, Path]:
    """Find the files of the features that a run recorded, by step."""
    return {int(file.stem): file for file in sorted((folder.path / FEATURES).glob("*[0-9].npy"))}
