"""Make a released ground truth: what ``rlreps.successor.load`` reads.

    python scripts/release_ground_truth.py --out data/sutton-100.npz

The script uses the transition method at two refinements. It releases the finer result and estimates
its error from the distance between the two subspaces. It takes some minutes and 4 GiB on two cores
at the default refinement.
"""

from pathlib import Path

import numpy as np
import tyro

from rlreps.app import generate
from rlreps.files import write_archive
from rlreps.runs.progress import progress_bar
from rlreps.subspace import PrincipalSubspace, RandomizedSVD, nested_distances
from rlreps.successor.measure.methods import SuccessorMeasure, Transition
from rlreps.successor.truth.store import open_store
from rlreps.successor.truth.stored_subspace import principal_subspace

_POINTS = 1024
"""Quadrature points a sub-cell, 4,096 a cell at refinement 2."""

# Twice the usual effort keeps the decomposition's error out of the release.
_DECOMPOSITION = RandomizedSVD(rank=100, oversampling=100, power_iterations=40)


def subspace_of(config: SuccessorMeasure, folder: Path) -> tuple[PrincipalSubspace, dict]:
    """Return a matrix's principal subspace and settings; generate the matrix if it is missing."""
    path = folder / f"refinement{config.refinement}"
    generate(config, path)
    store = open_store(path)
    return principal_subspace(store, _DECOMPOSITION, progress=progress_bar), dict(store.settings)


def error_of_finer(
    coarse: np.ndarray, fine: np.ndarray, refinements: tuple[int, int]
) -> np.ndarray:
    """Estimated subspace distance of the finer basis from the truth for every d, [k].

    An entry's error falls with the square of the sub-cells' width, c / r²; a subspace distance is
    quadratic in the entries' errors. If D is the distance between the two subspaces, the finer
    one's distance from the truth is D (1 / r_fine²)² / (1 / r_coarse² - 1 / r_fine²)².
    """
    first, second = (1.0 / refinement**2 for refinement in refinements)
    return nested_distances(coarse, fine) * (second / (first - second)) ** 2


def main(
    out: Path, work: Path = Path("runs/release"), refinements: tuple[int, int] = (1, 2)
) -> None:
    """Generate both matrices in the folder ``work`` and write the archive ``out`` (.npz)."""
    coarse_config, fine_config = (
        Transition(refinement=refinement, points=_POINTS) for refinement in refinements
    )
    coarse, _ = subspace_of(coarse_config, work)
    fine, settings = subspace_of(fine_config, work)
    aggregation = error_of_finer(coarse.basis, fine.basis, refinements)
    assert fine.distance_bound is not None
    # The sines of the angles add up; a subspace distance is the mean of their squares.
    error = np.minimum((np.sqrt(aggregation) + np.sqrt(fine.distance_bound)) ** 2, 1.0)
    record = {
        "settings": settings,
        "decomposition": {"method": fine.method, **fine.settings},
        "error": "of aggregation, extrapolated from refinements "
        f"{refinements[0]} and {refinements[1]}, and of the decomposition",
        "command": "python scripts/release_ground_truth.py --out data/sutton-100.npz "
        f"--refinements {refinements[0]} {refinements[1]}",
    }
    arrays = {
        "basis": fine.basis,
        "singular_values": fine.singular_values,
        "total_energy": np.asarray(fine.total_energy),
        "distance_bound": fine.distance_bound,
        "error": error,
    }
    write_archive(out, arrays, record)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB)")
    for d in (1, 2, 5, 10, 20, 50, 100):
        print(f"d = {d:3d}: error {error[d - 1]:.2e}")


if __name__ == "__main__":
    tyro.cli(main)
