"""The noise floor of a Monte-Carlo matrix: its distance from the truth, from its two halves.

``noise_floor`` in ``subspace/metrics.py`` has the formula.
"""

import dataclasses
from typing import Any

import numpy as np

from rlreps.subspace import noise_floor
from rlreps.subspace.svd import Decomposition
from rlreps.successor.truth.store.blocks import HalfBlocks, StoreBlocks
from rlreps.successor.truth.store.estimates import EstimateStore
from rlreps.successor.truth.stored_subspace import (
    DEFAULT_DECOMPOSITION,
    Progress,
    cache_settings,
    centred,
    centring_of,
    decompose_with_progress,
    load_subspace,
    no_progress,
    save_subspace,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SamplingError:
    """The error of a Monte-Carlo matrix, from the difference of its halves.

    Attributes:
        noise_floor: Expected subspace distance of the matrix from the truth for d = 1 … k, [k]:
            results below it are meaningless.
        standard_error: Root mean square, over all entries, of an entry's standard error.
    """

    noise_floor: np.ndarray
    standard_error: float

    def floor(self, d: int) -> float | None:
        """Return the noise floor at d; None if it is zero or was not computed up to d."""
        return float(self.noise_floor[d - 1]) or None if d <= len(self.noise_floor) else None

    def as_json(self) -> dict[str, Any]:
        """Return the error as JSON values."""
        distances = self.noise_floor.tolist()
        return {"subspace_distance": distances, "standard_error": self.standard_error}


def sampling_error(
    store: EstimateStore,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    progress: Progress = no_progress,
) -> SamplingError | None:
    """Return the sampling error of a stored matrix; compute it once and cache it in the store.

    Both halves are centred and decomposed like the matrix itself.

    Returns:
        The error; None for a matrix that was not sampled.

    Raises:
        InputError: If blocks are missing or corrupt.
    """
    if store.half_difference is None:
        return None
    settings = {
        "kind": "sampling error from two halves",
        "half_difference": store.half_difference.content_key(),
        **cache_settings(store.matrix, decomposition),
    }
    arrays = load_subspace(store.matrix, settings)
    if arrays is None:
        arrays = _compute_error(store, decomposition, progress)
        save_subspace(store.matrix, arrays, settings)
    return SamplingError(
        noise_floor=arrays["noise_floor"], standard_error=float(arrays["standard_error"])
    )


def _compute_error(
    store: EstimateStore, decomposition: Decomposition, progress: Progress
) -> dict[str, np.ndarray]:
    assert store.half_difference is not None
    matrix, difference = StoreBlocks(store.matrix), StoreBlocks(store.half_difference)
    bases = [
        decompose_with_progress(
            centred(HalfBlocks(matrix, difference, sign), centring_of(store.matrix.settings)),
            decomposition,
            f"subspace of the {name} half",
            progress,
        ).basis
        for name, sign in (("first", 1), ("second", -1))
    ]
    shared = min(basis.shape[1] for basis in bases)
    squares = sum(
        float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) for _, rows in difference.blocks()
    )
    states, tasks = store.matrix.shape
    return {
        "noise_floor": noise_floor(*(basis[:, :shared] for basis in bases)),
        "standard_error": np.asarray(np.sqrt(squares / (states * tasks))),
    }
