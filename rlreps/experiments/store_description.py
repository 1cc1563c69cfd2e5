"""What ``rlreps successor info`` says and draws of a store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlreps import plotting
from rlreps.configs import SubspaceConfig
from rlreps.sampling_error import sampling_error
from rlreps.successor.estimate_store import EstimateStore, open_estimates


def describe_store(path: Path, *, progress: bool = True) -> dict[str, Any]:
    """A store as JSON values.

    Args:
        path: The store's folder.
        progress: Whether to show progress bars while its error is computed, which is kept.

    Returns:
        ``path``, ``shape``, ``block_rows``, ``blocks``, ``missing_blocks``, ``sha256`` (None if
        blocks are missing), ``settings``, ``provenance`` and ``error``: None if blocks are missing
        or nothing is known, else its ``title``, ``subspace_distance`` for d = 1 … k and
        ``standard_error`` of an entry (or None).

    Raises:
        InputError: If there is no store, or it is corrupt.
    """
    store = open_estimates(path)
    matrix, missing = store.matrix, store.missing_blocks()
    return {
        "path": str(matrix.path),
        "shape": list(matrix.shape),
        "block_rows": matrix.block_rows,
        "blocks": matrix.num_blocks,
        "missing_blocks": len(missing),
        "sha256": None if missing else matrix.digest(),
        "settings": dict(matrix.settings),
        "provenance": dict(matrix.provenance),
        "error": None if missing else _error(store, progress),
    }


def draw_store_error(error: Mapping[str, Any], out: Path) -> Path:
    """Draws the ``error`` of a store's description; returns the figure's path."""
    figure = plotting.plot_subspace_error({error["title"]: error["subspace_distance"]})
    return plotting.save_figure(figure, out)


def _error(store: EstimateStore, progress: bool) -> dict[str, Any] | None:
    sampled = sampling_error(store, SubspaceConfig(), progress=progress)
    if sampled is None:
        return None
    return {
        "title": "noise floor",
        "subspace_distance": sampled.noise_floor.tolist(),
        "standard_error": sampled.standard_error,
    }
