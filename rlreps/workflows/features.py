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

FEATURES = "features"

_RECORDED_STEPS = 25

_RECORDED_BYTES = 2**25
"""Most evaluations at which a run keeps its features, and most that they take."""


class FeatureRecord:
    """Keeps the first seed's features at all states, at some evaluations: ``features/STEP.npy``.

    ``rlreps explore`` shows from them how components emerge. A resumed run writes those after its
    checkpoint again, to the same bits.
    """

    def __init__(self, path: Path, steps: frozenset[int], encoder: Encoder, inputs: Array) -> None:
        """Keep the features at the given steps in a folder, which the first creates."""
        self._path, self._steps, self._inputs = path, steps, inputs
        self._apply = jit(encoder.apply)

    @classmethod
    def of_run(
        cls,
        folder: RunFolder,
        encoder: Encoder,
        inputs: Array,
        *,
        num_features: int,
        steps: int,
        evaluate_every: int,
    ) -> "FeatureRecord":
        """Choose steps that leave no more than ``_RECORDED_BYTES``, the early ones closer."""
        room = _RECORDED_BYTES // (4 * len(inputs) * num_features)
        last, most = -(-steps // evaluate_every), min(room, _RECORDED_STEPS)
        places = np.rint(last * np.linspace(0.0, 1.0, most) ** 2) if most >= 2 else np.zeros(0)
        chosen = (min(int(place) * evaluate_every, steps) for place in places)
        return cls(folder.path / FEATURES, frozenset(chosen), encoder, inputs)

    def __call__(self, step: int, params: Callable[[], Any]) -> None:
        """Write the features [n, d] (float32) if the step is one of those to keep."""
        if step in self._steps:
            content = io.BytesIO()
            np.save(content, np.asarray(self._apply(params(), self._inputs), np.float32))
            if processes.process_index() == 0:
                write_atomically(self._path / f"{step:09d}.npy", content.getvalue())


def recorded_features(folder: RunFolder) -> dict[int, Path]:
    """Find the files of the features that a run recorded, by step."""
    return {int(file.stem): file for file in sorted((folder.path / FEATURES).glob("*[0-9].npy"))}
