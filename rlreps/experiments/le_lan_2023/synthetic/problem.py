"""Matrices with set singular values, and the learners of the synthetic experiment."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import Array

from rlreps import subspace
from rlreps.encoders import Tabular
from rlreps.experiments.le_lan_2023.synthetic.config import ROLES, Setting, SpectrumName
from rlreps.losses import Objective, Roles, danskin_empirical, danskin_lissa, naive, oracle
from rlreps.losses.base import Params
from rlreps.sources.matrix import MatrixSource
from rlreps.training.population import Build
from rlreps.training.update import Learner

SPECTRA: dict[SpectrumName, Callable[[int], npt.NDArray[np.float64]]] = {
    "linear": lambda size: np.linspace(1.0, 1000.0, size),
    "exponential": lambda size: np.logspace(0.0, 3.0, size),
}
"""Name → singular values for a size."""


class PlantedMatrix(NamedTuple):
    """A matrix whose singular value decomposition is known.

    Attributes:
        matrix: [size, size] (float32).
        left: Its left singular vectors by falling singular value, [size, size] (float32).
    """

    matrix: npt.NDArray[np.float32]
    left: npt.NDArray[np.float32]


def planted_matrix(spectrum: SpectrumName, size: int, seed: int) -> PlantedMatrix:
    """A Gaussian matrix with its singular values replaced.

    Args:
        spectrum: The singular values.
        size: States and tasks.
        seed: Of the Gaussian entries.

    Returns:
        The matrix and its left singular vectors.
    """
    gaussian = np.random.default_rng(seed).standard_normal((size, size))
    left, _, right = np.linalg.svd(gaussian)
    values = np.sort(SPECTRA[spectrum](size))[::-1]
    return PlantedMatrix(((left * values) @ right).astype(np.float32), left.astype(np.float32))


class MemberSettings(NamedTuple):
    """What members of one program differ in, beside their seeds and matrices.

    Attributes:
        kappa0: κ0, [members].
        basis: Leading d left singular vectors of each member's matrix, [members, size, d].
    """

    kappa0: Array
    basis: Array


def _objective(setting: Setting, kappa0: Array) -> Objective:
    d, roles = setting.num_features, Roles(*[setting.rows] * 3)
    objectives: dict[str, Callable[[], Objective]] = {
        "danskin_lissa": lambda: danskin_lissa(d, roles=roles, kappa0=kappa0),
        "danskin_empirical": lambda: danskin_empirical(d, roles=roles),
        "naive": lambda: naive(d, roles=roles),
        "oracle": oracle,
    }
    return objectives[setting.method]()


def member_learner(setting: Setting, num_states: int, step_size: float) -> Build:
    """How the members of a setting's shape learn.

    Args:
        setting: Its method, d and rows decide the shape.
        num_states: Rows of the table Φ.
        step_size: α for gradients summed over the N rows.

    Returns:
        One member's ``MemberSettings`` → its learner.
    """
    # The oracle's batch holds its gradient rows alone.
    groups = 1 if setting.method == "oracle" else ROLES[setting.method]

    def build(settings: MemberSettings) -> Learner:
        return Learner(
            encoder=Tabular(setting.num_features, num_states=num_states),
            objective=_objective(setting, settings.kappa0),
            # Objectives average the gradient over their N rows; the paper's algorithm sums it.
            optimizer=optax.sgd(step_size * setting.rows),
            rows=groups * setting.rows,
            tasks=1,
            resets_diverged=True,
        )

    return build


def member_sources(setting: Setting, matrices: Sequence[PlantedMatrix]) -> MatrixSource:
    """A source for each member, with a leading member axis."""
    matrix = jnp.asarray(np.stack([planted.matrix for planted in matrices]))
    indices = jnp.broadcast_to(jnp.arange(matrix.shape[1]), matrix.shape[:2])
    return MatrixSource(indices, matrix, setting.method == "oracle")


def member_distance(params: Params, settings: MemberSettings) -> dict[str, Array]:
    """The subspace distance of one member's table Φ [size, d]."""
    return {"subspace_distance": subspace.subspace_distance(params, settings.basis)}


def stack_settings(
    settings: Sequence[Setting], matrices: Sequence[PlantedMatrix]
) -> MemberSettings:
    """The settings of members, given each one's setting and matrix."""
    d = settings[0].num_features
    return MemberSettings(
        jnp.asarray([setting.kappa0 for setting in settings], jnp.float32),
        jnp.asarray(np.stack([planted.left[:, :d] for planted in matrices])),
    )


class SettingResult(NamedTuple):
    """What became of one setting.

    Attributes:
        steps: Updates at which it was measured, [p].
        distances: Subspace distances, [seeds, p]; 1 from where a run diverged.
        diverged: Which runs have diverged, [seeds].
    """

    steps: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    diverged: npt.NDArray[np.bool_]
