"""Representations in run folders: their arrays, and everything needed to rebuild them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.config import from_json, registry
from rlreps.encoders import EVERY_ENCODER, Encoder
from rlreps.errors import InputError, require
from rlreps.files import read_archive, write_archive
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.basis import Basis, FourierBasis, UnitVectors
from rlreps.successor.fitting.behaviour import EstimatedBehaviour, GivenBehaviour, basis_of_policy
from rlreps.successor.fitting.config import (
    FIT_METHODS,
    FitConfig,
    resolve,
)
from rlreps.successor.fitting.factors import Factors
from rlreps.successor.fitting.least_squares import Behaviour, LeastSquares, Steps
from rlreps.successor.fitting.network_basis import NetworkBasis, networks_of
from rlreps.successor.fitting.observed import Observed
from rlreps.successor.fitting.quality import Quality

_ARRAYS = "representation.npz"


def write(
    folder: RunFolder, solution: LeastSquares, factors: Factors, quality: Quality | None
) -> dict[str, Any]:
    """Write the numbers of a representation to a run's folder; return the summary of the run."""
    arrays: dict[str, np.ndarray] = {**solution.recorded._asdict(), **factors._asdict()}
    if solution.chosen is not None:
        arrays["chosen"] = solution.chosen
    if isinstance(solution.behaviour, EstimatedBehaviour):
        arrays["behaviour"] = solution.behaviour.weights
    basis = solution.basis
    if isinstance(basis, NetworkBasis):
        arrays |= basis.arrays()
    elif isinstance(basis, FourierBasis):
        arrays |= {f.name: getattr(basis, f.name) for f in dataclasses.fields(basis)}
    write_archive(folder.path / _ARRAYS, arrays, {"run": folder.identity})
    return {
        "num_features": len(factors.singular_values),
        "discount": solution.discount,
        "rows": len(solution.recorded.action),
        "regularisation": solution.regularisation,
        "singular_values": factors.singular_values.tolist(),
        "quality": None if quality is None else dataclasses.asdict(quality),
    }


def read(
    folder: RunFolder, encoder: Encoder | None, behaviour: Callable[[Any], Any] | None
) -> dict[str, Any]:
    """Read the fields of a representation from a run's folder; see its ``load``."""
    stored, summary, path = dict(folder.config), folder.read_summary(), folder.path
    if summary is None:
        raise InputError(f"expected a finished fit in {path}, got none: fit again to resume")
    own_encoder = bool(stored["encoder"]) and stored["encoder"].get("own", False)
    own_policy = stored["behaviour"] == "own"
    _require_own(own_encoder, encoder, "encoder=", path)
    _require_own(own_policy, behaviour, "behaviour=", path)
    observed = from_json(Observed, stored.pop("observed"))
    del stored["data"]
    stored |= {"behaviour": "uniform"} if own_policy else {}
    stored |= {"encoder": None} if own_encoder else {}
    given = from_json(FitConfig, stored, {**registry(*FIT_METHODS.values()), **EVERY_ENCODER})
    config = resolve(dataclasses.replace(given, encoder=encoder or given.encoder), observed)
    arrays, record = read_archive(path / _ARRAYS, f"{path / _ARRAYS}; fit again")
    require(record["run"] == folder.identity, f"arrays of the fit in {path}", "those of another")
    basis: Basis
    if config.encoder is not None:
        networks = networks_of(observed, config.encoder, config.num_features)
        basis = NetworkBasis.stored(networks, observed, arrays)
    elif observed.num_states is not None:
        basis = UnitVectors(observed.num_states)
    else:
        basis = FourierBasis(*(arrays[f.name] for f in dataclasses.fields(FourierBasis)))
    policy: Behaviour
    if behaviour is None:
        policy = EstimatedBehaviour(
            basis_of_policy(basis), arrays["behaviour"], observed.num_actions
        )
    else:
        assert observed.num_actions is not None  # ``Fit.check`` refuses a function for a box.
        policy = GivenBehaviour(behaviour, observed.num_actions)
    solution = LeastSquares(
        basis,
        observed.actions,
        Steps(*(arrays[name] for name in Steps._fields)),
        config.discount,
        summary["regularisation"],
        policy,
        arrays.get("chosen"),
    )
    quality = summary["quality"]
    return {
        "config": config,
        "observed": observed,
        "solution": solution,
        "factors": Factors(*(arrays[name] for name in Factors._fields)),
        "description": folder.config,
        "quality": None if quality is None else from_json(Quality, quality),
    }


def _require_own(needed: bool, given: object, name: str, path: Path) -> None:
    """Raise if a user's own part is missing, or is given although the fit used none."""
    place = f"for the representation of {path}"
    require(not needed or given is not None, f"{name} {place}", "none")
    require(needed or given is None, f"no {name} {place}, which was not fitted with one", given)
