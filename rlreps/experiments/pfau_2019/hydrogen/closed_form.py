"""The two-dimensional hydrogen atom in the plane: energies and wavefunctions in closed form.

With H = −∇² − 1/r the bound states of angular momentum l are
r^|l| exp(−r/(2n+1)) L_{n−|l|}^{2|l|}(2r/(2n+1)) times cos lθ or sin |l|θ, for n = 0, 1, 2, … and
|l| ≤ n, with energy −1/(2n+1)² (Yang et al. 1991, "Analytic solution of a two-dimensional hydrogen
atom"). The box of the experiment moves them by less than what is measured here.
"""

import numpy as np
from scipy.special import genlaguerre

from rlreps.experiments.pfau_2019.hydrogen.config import NUM_LEVELS


def level_slices() -> list[slice]:
    """Which of the ordered eigenfunctions belong to each energy level."""
    return [slice(level**2, (level + 1) ** 2) for level in range(NUM_LEVELS)]


def energies() -> np.ndarray:
    """Energies of all eigenfunctions in order, −1 once, −1/9 three times, …, [9]."""
    return np.concatenate([np.full(2 * n + 1, -1.0 / (2 * n + 1) ** 2) for n in range(NUM_LEVELS)])


def wavefunctions(positions: np.ndarray) -> np.ndarray:
    """Wavefunctions, in the order of ``energies`` and not normalised.

    Args:
        positions: [m, 2].

    Returns:
        [m, 9].
    """
    radius = np.hypot(positions[:, 0], positions[:, 1])
    angle = np.arctan2(positions[:, 1], positions[:, 0])
    columns = []
    for n in range(NUM_LEVELS):
        scaled = radius / (2 * n + 1)
        for momentum in range(n + 1):
            polynomial = genlaguerre(n - momentum, 2 * momentum)
            radial = scaled**momentum * np.exp(-scaled) * polynomial(2.0 * scaled)
            columns.append(radial * np.cos(momentum * angle))
            if momentum > 0:
                columns.append(radial * np.sin(momentum * angle))
    return np.stack(columns, axis=1)
