"""Ground truths: a stored matrix, centred, with its principal subspace computed once and kept."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.configs import SubspaceConfig, as_json, require
from rlreps.errors import InputError
from rlreps.subspace import (
    PrincipalSubspace,
    centre_columns_in_place,
    exact_svd,
    randomized_svd,
)
from rlreps.successor.grid import Grid
from rlreps.successor.store import MatrixStore, load_subspace, open_store, save_subspace

CENTRING = "column means over states removed"

DEFAULT_RANK = 100
"""Components computed where none are asked for, if the matrix has as many."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GroundTruth:
    """What a representation is measured against.

    Attributes:
        coordinates: Position of every state in [0, 1]², [n, 2].
        matrix: Ψ with its column means over states removed, [n, tasks].
        principal: Its leading left singular vectors and values, and its total energy.
        settings: The settings of the store it came from.
    """

    coordinates: Array
    matrix: Array
    principal: PrincipalSubspace
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return self.matrix.shape[0]

    def require_dimension(self, d: int) -> None:
        """Raises an ``InputError`` unless the subspace holds d components."""
        available = self.principal.basis.shape[1]
        require(1 <= d <= available, f"1 <= d <= {available} components of the ground truth", d)


def decompose(matrix: np.ndarray | Array, config: SubspaceConfig) -> PrincipalSubspace:
    """The principal subspace of a centred matrix [n, tasks], by the configured method.

    Raises:
        InputError: If the rank exceeds the matrix's.
    """
    at_most = config.rank is None
    rank = min(DEFAULT_RANK, *matrix.shape) if config.rank is None else config.rank
    if config.method == "exact":
        return exact_svd(matrix, rank, at_most=at_most)
    return randomized_svd(
        matrix,
        rank,
        oversampling=config.oversampling,
        power_iterations=config.power_iterations,
        seed=config.seed,
        at_most=at_most,
    )


def principal_subspace(store: MatrixStore, config: SubspaceConfig) -> PrincipalSubspace:
    """The principal subspace of a stored matrix, from beside it if it was computed before.

    Args:
        store: A complete store.
        config: How to compute it.

    Returns:
        The subspace of the centred matrix.

    Raises:
        InputError: If blocks are missing or corrupt, or the rank exceeds the matrix's.
    """
    kept = _load(store, config)
    return kept if kept is not None else _compute(store, _read_centred(store), config)


def load_ground_truth(path: Path, config: SubspaceConfig) -> GroundTruth:
    """Reads a store of PuddleWorld's successor measure as a ground truth.

    Args:
        path: The store's folder.
        config: How to compute the principal subspace, unless it is beside the matrix already.

    Returns:
        The ground truth, its matrix on the default device.

    Raises:
        InputError: If there is no such store, blocks are missing or corrupt, or the rank exceeds
            the matrix's.
    """
    store = open_store(path)
    bins = store.settings.get("bins")
    if not isinstance(bins, int) or bins**2 != store.shape[0]:
        raise InputError(f"expected a store over a grid of bins x bins states, got bins={bins!r}")
    matrix = _read_centred(store)
    principal = _load(store, config) or _compute(store, matrix, config)
    return GroundTruth(
        coordinates=jnp.asarray(Grid(bins).centres()),
        matrix=jnp.asarray(matrix),
        principal=principal,
        settings=store.settings,
    )


def _cache_settings(config: SubspaceConfig) -> dict[str, Any]:
    return {"centring": CENTRING, **as_json(config)}


def _read_centred(store: MatrixStore) -> np.ndarray:
    matrix = store.read()
    centre_columns_in_place(matrix)
    return matrix


def _load(store: MatrixStore, config: SubspaceConfig) -> PrincipalSubspace | None:
    arrays = load_subspace(store, _cache_settings(config))
    if arrays is None:
        return None
    return PrincipalSubspace(
        basis=arrays["basis"],
        singular_values=arrays["singular_values"],
        total_energy=float(arrays["total_energy"]),
        method=config.method,
        settings=_method_settings(config, arrays["basis"].shape[1]),
    )


def _compute(store: MatrixStore, matrix: np.ndarray, config: SubspaceConfig) -> PrincipalSubspace:
    principal = decompose(matrix, config)
    arrays = {
        "basis": principal.basis,
        "singular_values": principal.singular_values,
        "total_energy": np.asarray(principal.total_energy),
    }
    save_subspace(store, arrays, _cache_settings(config))
    return principal


def _method_settings(config: SubspaceConfig, rank: int) -> dict[str, int]:
    if config.method == "exact":
        return {"rank": rank}
    names = ("oversampling", "power_iterations", "seed")
    return {"rank": rank, **{name: getattr(config, name) for name in names}}
