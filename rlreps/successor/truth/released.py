"""Ground truths that come with the package, for measuring encoders."""

import dataclasses
import importlib.resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlreps.errors import InputError
from rlreps.files import read_archive

if TYPE_CHECKING:
    from rlreps.successor.truth.ground_truth import GroundTruth

_SUFFIX = ".npz"


def released_names() -> list[str]:
    """Return the names that ``load`` knows."""
    files = importlib.resources.files("rlreps.data").iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


def load(name: str | Path) -> "GroundTruth":
    """Load a released ground truth by name, or the ground truth of a store by its folder.

    A released ground truth holds the leading subspace, spectrum, error and conventions. A store
    also holds its matrix (``load_ground_truth``). The error of a sampled matrix comes from its two
    halves (``sampling_error``). The first call decomposes both halves and keeps the result beside
    the store.

    ``load("sutton-100").distance(features)`` measures features [10,000, d] of the states at its
    ``coordinates``, d ≤ 100. ``sutton-100`` is PuddleWorld's ``sutton`` arena on 100 x 100 cells,
    discount 0.99, horizon 700, the sum from t = 0 (Le Lan et al. 2023, App. C.3). ``settings`` hold
    the method and the command that made a truth.
    """
    # Deferred: these imports need JAX, and ``released_names`` must work without JAX.
    import jax.numpy as jnp

    from rlreps.subspace import PrincipalSubspace
    from rlreps.successor.measure.grids import BoxGrid
    from rlreps.successor.truth.ground_truth import GroundTruth, load_ground_truth
    from rlreps.successor.truth.noise_floor import sampling_error
    from rlreps.successor.truth.store import open_estimates

    if name not in released_names():
        if Path(name).is_dir():
            truth, sampled = load_ground_truth(name), sampling_error(open_estimates(name))
            return dataclasses.replace(
                truth, error=None if sampled is None else sampled.noise_floor
            )
        names = ", ".join(released_names())
        hint = f"; rlreps worlds truth {name} --out STORE makes a store of a world's file"
        raise InputError(
            f"expected a released ground truth ({names}) or a store, got {str(name)!r}"
            + hint * Path(name).is_file()
        )
    place = importlib.resources.files("rlreps.data") / f"{name}{_SUFFIX}"
    with importlib.resources.as_file(place) as file:
        arrays, record = read_archive(file, f"{file}; install the package again")
    settings = record["settings"]
    principal = PrincipalSubspace(
        basis=arrays["basis"],
        singular_values=arrays["singular_values"],
        total_energy=float(arrays["total_energy"]),
        method=record["decomposition"]["method"],
        settings=record["decomposition"],
        distance_bound=arrays["distance_bound"],
    )
    if not np.isfinite(principal.basis).all():
        raise InputError(f"expected a finite basis in {file}, got NaN or infinity")
    grid = BoxGrid.unit_square(int(settings["bins"]))
    return GroundTruth(
        coordinates=jnp.asarray(grid.unit_centres()),
        matrix=None,
        principal=principal,
        settings={**settings, "command": record["command"]},
        error=arrays["error"],
        grid=grid,
        cells=np.arange(grid.num_cells),
    )
