"""Choose the kernel of a least-squares fit to vectors by the error on held-out rows.

Candidates are kernels of several widths, along the coordinates or along the principal axes of the
data. Coordinates that are noise are left out of all of them.
"""

import itertools
from collections.abc import Callable

import numpy as np

from rlreps.errors import warn_user
from rlreps.numerics import interruptible
from rlreps.runs.progress import hidden, progress_bar
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis, standardised, whitened
from rlreps.successor.fitting.config import FitConfig, LeastSquaresFit
from rlreps.successor.fitting.held_out import squared_error
from rlreps.successor.fitting.least_squares import Behaviour, LeastSquares, Steps
from rlreps.successor.fitting.observation_checks import (
    MOST_TESTED_ROWS,
    describe_noise,
    noise_coordinates,
    share_left,
)
from rlreps.successor.fitting.transitions import Transitions

_WIDTHS = (1.0, 0.5, 0.25)
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3)
_RIDGE = 1e-5
"""λ at which kernels are compared; with a smaller λ, some systems are close to singular."""
_MOST_FEATURES = 300
_TOLERANCE = 1.1
"""A candidate is good if its error is at most this multiple of the least error."""


def search_kernel(
    config: FitConfig,
    data: Transitions,
    parts: tuple[Transitions, Transitions] | None,
    actions: ActionBasis,
    count: int,
    behave: Callable[[FourierBasis, Steps], Behaviour],
) -> tuple[FourierBasis, float]:
    """Choose coordinates, then axes and width of the kernel, then λ; return φ and λ.

    A candidate is good if its error (``squared_error``) on the held-out rows is at most 1.1 times
    the least error. Of the good kernels, the one counts that predicts changes of observation best
    (``change_error``): policies act through the change of one step. Of the good λ, the smallest
    counts.

    Args:
        config: The options; those of the method that are not None are not searched.
        data: The transitions.
        parts: Rows to solve for and rows held out; None if there are too few to choose by.
        actions: b.
        count: Number of features, p.
        behave: Estimates the policy of some rows, in some features.

    Warns:
        FitWarning: If coordinates are noise, which the kernel leaves out.
    """
    method, seed = config.method, config.seed
    assert isinstance(method, LeastSquaresFit)
    flat = data.observation.reshape(len(data), -1)
    noise = noise_coordinates(data, actions, seed)
    if noise:
        warn_user(describe_noise(noise))
    kept = ~np.isin(np.arange(flat.shape[1]), noise)
    widths = _WIDTHS if method.width is None else (method.width,)
    ridges = _RIDGES if method.regularisation is None else (method.regularisation,)
    along = {"coordinates": standardised, "principal": whitened}
    names = list(along) if method.axes is None else [method.axes]
    axes = {name: along[name](flat, kept) for name in names}
    kernels = list(itertools.product(names if kept.sum() > 1 else names[:1], widths))

    def basis(kernel: tuple[str, float], most: int) -> FourierBasis:
        name, width = kernel
        return FourierBasis.of(flat, most, width, seed, axes[name])

    if parts is None or len(kernels) + len(ridges) == 2:
        return basis(kernels[0], count), ridges[0]
    _, other = parts
    rows, tested = (
        Steps.of(part).at(
            np.sort(np.random.default_rng(seed).permutation(len(part))[:MOST_TESTED_ROWS])
        )
        for part in parts
    )
    bases = {kernel: basis(kernel, min(count, _MOST_FEATURES)) for kernel in kernels}
    # All candidates share one estimate of the policy.
    behaviour = behave(bases[kernels[0]], rows)

    ridge = _RIDGE if method.regularisation is None else ridges[0]
    fits = len(kernels) + len(ridges) - (ridge in ridges)
    with progress_bar("choice of features", total=fits, unit="fits", after=2.0) as advance:

        def solved(kernel: tuple[str, float], ridge: float) -> tuple[LeastSquares, float]:
            """Return a solution and its error of sums."""
            advance(1)
            given = config.discount, ridge, behaviour
            solution = LeastSquares(bases[kernel], actions, rows, *given)
            with hidden():
                return solution, squared_error(solution, other, seed)

        sums, changes = {}, {}
        for each in kernels:
            solution, sums[each] = solved(each, ridge)
            changes[each] = change_error(solution, tested, axes[names[-1]])
        most = _TOLERANCE * min(sums.values())
        kernel = min((each for each in kernels if sums[each] <= most), key=changes.__getitem__)
        errors = [sums[kernel] if each == ridge else solved(kernel, each)[1] for each in ridges]
    chosen = next(at for at, error in enumerate(errors) if error <= _TOLERANCE * min(errors))
    return basis(kernel, count), ridges[chosen]


def change_error(solution: LeastSquares, other: Steps, axes: np.ndarray) -> float:
    """Return the share of the variance of s' - s that a regression on ψ leaves in other rows.

    Changes count equally along ``axes``, [c, k].
    """

    def changes(rows: Steps) -> np.ndarray:
        now, then = (
            each.reshape(len(each), -1) for each in (rows.observation, rows.next_observation)
        )
        return np.asarray((then.astype(np.float64) - now) @ axes)

    right = solution.right_hand_side(changes(solution.rows))
    weights = solution.arranged(interruptible(np.linalg.solve, solution.gram, right))
    taken = solution.actions.weights(other.action)
    found = solution.valued(weights, other.observation, taken)
    return float(share_left(changes(other), found, changes(solution.rows)).mean())
