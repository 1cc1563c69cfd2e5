"""Representations in run folders: their arrays, and everything needed to rebuild them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlreps.config import from_json
from rlreps.encoders import Encoder
from rlreps.errors import InputError
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.basis import Basis, FourierBasis, UnitVectors
from rlreps.successor.behaviour import behaviour_of
from rlreps.successor.least_squares import Factors, LeastSquares, Rows
from rlreps.successor.methods import FitConfig, require_own
from rlreps.successor.networks import NetworkBasis
from rlreps.successor.quality import Quality

_ARRAYS = "representation"


def write(
    folder: RunFolder,
    *,
    solution: LeastSquares,
    factors: Factors,
    behaviour_weights: np.ndarray | None,
    quality: Quality | None,
    rows: int,
) -> dict[str, Any]:
    """Write the numbers of a representation to a run's folder; return the summary of the run."""
    arrays: dict[str, Any] = {**solution.rows._asdict(), **factors._asdict()}
    if behaviour_weights is not None:
        arrays["behaviour"] = np.asarray(behaviour_weights, np.float32)
    basis = solution.basis
    if isinstance(basis, NetworkBasis):
        arrays |= basis.arrays()
    elif isinstance(basis, FourierBasis):
        arrays |= {f.name: getattr(basis, f.name) for f in dataclasses.fields(basis)}
    checkpoints = Checkpoints(folder.path / _ARRAYS, keep=1, run=folder.identity)
    latest = checkpoints.latest_step()
    checkpoints.save(0 if latest is None else latest + 1, arrays)
    return {
        "num_features": len(factors.singular_values),
        "discount": solution.discount,
        "rows": rows,
        "regularisation": solution.regularisation,
        "singular_values": factors.singular_values.tolist(),
        "quality": None if quality is None else dataclasses.asdict(quality),
        "arrays": {
            name: [list(array.shape), array.dtype.name]
            for name, array in arrays.items()
            if isinstance(array, np.ndarray)
        },
    }


def read(
    folder: RunFolder,
    path: Path | str,
    encoder: Encoder | None,
    backward_encoder: Encoder | None,
    behaviour: Callable[[Any], Any] | None,
) -> dict[str, Any]:
    """Read the fields of a representation from a run's folder; see its ``load``."""
    stored, summary = dict(folder.config), folder.read_summary()
    given = {"encoder": encoder, "backward_encoder": backward_encoder}
    config, observed, encoders = FitConfig.stored(stored, given, path)
    require_own(stored["behaviour"] == "own", behaviour, "behaviour=", path)
    if summary is None:
        raise InputError(f"expected a finished fit in {path}, got none: fit again to resume")
    template: dict[str, Any] = {
        name: jax.ShapeDtypeStruct(shape, np.dtype(kind))
        for name, (shape, kind) in summary["arrays"].items()
    }
    network = NetworkBasis.template(observed, config, encoders) if config.uses_network else {}
    checkpoints = Checkpoints(folder.path / _ARRAYS, run=folder.identity)
    if checkpoints.latest_step() is None:
        raise InputError(f"expected the arrays of a finished fit in {path}, got none")
    _, arrays = checkpoints.restore_latest({**template, **network})
    arrays = {
        name: np.asarray(array) if name in template else array for name, array in arrays.items()
    }
    basis: Basis
    if config.uses_network:
        basis = NetworkBasis.stored(observed, config, encoders, arrays)
    elif observed.num_states is not None:
        basis = UnitVectors(observed.num_states)
    else:
        fields = [f.name for f in dataclasses.fields(FourierBasis)]
        basis = FourierBasis(*(arrays[name] for name in fields))
    weights = arrays.get("behaviour")
    solution = LeastSquares(
        basis,
        observed.actions,
        Rows(*(arrays[name] for name in Rows._fields)),
        config.discount,
        summary["regularisation"],
        behaviour_of(basis, observed, weights, behaviour),
    )
    quality = summary["quality"]
    return {
        "config": config,
        "observed": observed,
        "solution": solution,
        "factors": Factors(*(arrays[name] for name in Factors._fields)),
        "behaviour_weights": weights,
        "description": folder.config,
        "quality": None if quality is None else from_json(Quality, quality),
    }
