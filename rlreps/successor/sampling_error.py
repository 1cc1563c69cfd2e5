"""How far a sampled matrix, and its principal subspaces, are from the truth."""

import dataclasses

import numpy as np

from rlreps.configs import SubspaceConfig, as_json
from rlreps.subspace import noise_floor
from rlreps.successor.estimate_store import EstimateStore
from rlreps.successor.ground_truth import CENTRING, centred, decompose, with_progress
from rlreps.successor.store import load_subspace, save_subspace
from rlreps.successor.store_blocks import HalfBlocks, StoreBlocks

_KIND = "sampling error from two halves"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SamplingError:
    """The error of a Monte-Carlo matrix, from the difference of its halves.

    Attributes:
        noise_floor: Expected subspace distance of the matrix from the truth for d = 1 … k, [k]:
            no result below it means anything.
        standard_error: Root mean square, over all entries, of an entry's standard error.
    """

    noise_floor: np.ndarray
    standard_error: float

    def floor(self, d: int) -> float | None:
        """The noise floor at d, or None where it was not computed that far."""
        return float(self.noise_floor[d - 1]) if d <= len(self.noise_floor) else None


def sampling_error(
    store: EstimateStore, config: SubspaceConfig, *, progress: bool = False
) -> SamplingError | None:
    """The error of a stored matrix, from beside it if it was computed before.

    Both halves are centred and decomposed as the matrix itself is.

    Args:
        store: Complete stores of a matrix and its half differences.
        config: How principal subspaces are computed.
        progress: Whether to show progress bars.

    Returns:
        The error; None for a matrix that was not sampled.

    Raises:
        InputError: If blocks are missing or corrupt.
    """
    if store.half_difference is None:
        return None
    settings = {
        "kind": _KIND,
        "centring": CENTRING,
        "half_difference": store.half_difference.content_key(),
        **as_json(config),
    }
    arrays = load_subspace(store.matrix, settings)
    if arrays is None:
        arrays = _compute(store, config, progress)
        save_subspace(store.matrix, arrays, settings)
    return SamplingError(
        noise_floor=arrays["noise_floor"], standard_error=float(arrays["standard_error"])
    )


def _compute(store: EstimateStore, config: SubspaceConfig, progress: bool) -> dict[str, np.ndarray]:
    assert store.half_difference is not None
    matrix, difference = StoreBlocks(store.matrix), StoreBlocks(store.half_difference)
    bases = [
        with_progress(
            centred(HalfBlocks(matrix, difference, sign)),
            config,
            f"subspace of the {name} half",
            lambda rows: decompose(rows, config),
            progress=progress,
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
