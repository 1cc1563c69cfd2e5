"""Choose the kernel of a least-squares fit to vectors by the error on held-out rows.

Candidates are kernels of several widths, along the coordinates or along the principal axes of the
data. Coordinates that are noise are left out of all of them.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from rlreps.errors import warn_user
from rlreps.numerics import interruptible
from rlreps.runs.progress import hidden, progress_bar
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis, standardised, whitened
from rlreps.successor.fitting.config import FitConfig, LeastSquaresFit
from rlreps.successor.fitting.held_out import Split, squared_error
from rlreps.successor.fitting.least_squares import Behaviour, LeastSquares, Steps
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    interactions,
    share_left,
    unexplained,
)
from rlreps.successor.fitting.transitions import Transitions

_WIDTHS = (1.0, 0.5, 0.25)
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3)
_RIDGE = 1e-5
"""λ at which kernels are compared; with a smaller λ, some systems are close to singular."""
_MOST_COMPARED_FEATURES = 300
"""Largest number of features in which kernels are compared."""
_TOLERANCE = 1.1
"""A candidate is good if its error is at most this multiple of the least error."""
_MOST_COLUMNS = 2_000  # With more numbers of state and action together, noise is not sought.
_PREDICTED = 0.1  # State and action explain less than this share of the variance of noise.
_USEFUL = 0.02  # Noise is kept if another coordinate's error is larger by this share without it.


def search_kernel(
    config: FitConfig,
    data: Transitions,
    split: Split | None,
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
        split: Rows to solve for and rows held out; None if there are too few to choose by.
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
        shown = ", ".join(map(str, noise[:8])) + (", ..." if len(noise) > 8 else "")
        warn_user(
            f"{len(noise)} coordinates of the observations are noise, which no state or action "
            f"predicts, and are left out: {shown}; do not let rewards depend on them"
        )
    used = ~np.isin(np.arange(flat.shape[1]), noise)
    along = {"coordinates": standardised, "principal": whitened}
    names = list(along) if method.axes is None else [method.axes]
    axes = [along[name](flat, used) for name in names]
    widths = _WIDTHS if method.width is None else (method.width,)
    ridges = _RIDGES if method.regularisation is None else (method.regularisation,)
    kernels = list(itertools.product(axes if used.sum() > 1 else axes[:1], widths))

    def basis(place: int, size: int) -> FourierBasis:
        own, width = kernels[place]
        return FourierBasis.of(flat, size, width, seed, own)

    if split is None or len(kernels) + len(ridges) == 2:
        return basis(0, count), ridges[0]
    small = [basis(place, min(count, _MOST_COMPARED_FEATURES)) for place in range(len(kernels))]
    rows = _draw_rows(split.fitted, seed)
    compared_at = _RIDGE if method.regularisation is None else method.regularisation
    # All candidates share one estimate of the policy.
    given = config.discount, compared_at, behave(small[0], rows)
    first = LeastSquares(small[0], actions, rows, *given)
    place, ridge = _choose(first, small, ridges, split.tested, axes[-1], seed)
    return basis(place, count), ridge


def _choose(
    first: LeastSquares,
    bases: Sequence[FourierBasis],
    ridges: Sequence[float],
    other: Transitions,
    axes: np.ndarray,
    seed: int,
) -> tuple[int, float]:
    """Choose a basis (its place) and then λ by errors on other rows; see ``search_kernel``.

    Bases are compared at the λ of the solution in the first of them.
    """
    fits = len(bases) + len(ridges) - (first.regularisation in ridges)
    with progress_bar("choice of features", total=fits, unit="fits", after=2.0) as advance:

        def error_of_sums(solution: LeastSquares) -> float:
            advance(1)
            with hidden():
                return squared_error(solution, other, seed)

        sums, changes, tested = [], [], _draw_rows(other, seed)
        for basis in bases:
            solution = dataclasses.replace(first, basis=basis)
            sums.append(error_of_sums(solution))
            changes.append(change_error(solution, tested, axes))
        best = min(_find_good(sums), key=changes.__getitem__)
        chosen = dataclasses.replace(first, basis=bases[best])
        errors = [
            sums[best]
            if ridge == first.regularisation
            else error_of_sums(dataclasses.replace(chosen, regularisation=ridge))
            for ridge in ridges
        ]
    return best, ridges[_find_good(errors)[0]]


def _find_good(errors: Sequence[float]) -> list[int]:
    return [place for place, error in enumerate(errors) if error <= _TOLERANCE * min(errors)]


def _draw_rows(data: Transitions, seed: int) -> Steps:
    drawn = np.random.default_rng(seed).permutation(len(data))[:MOST_TESTED_ROWS]
    return Steps.of(data).at(np.sort(drawn))


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


def noise_coordinates(data: Transitions, actions: ActionBasis, seed: int) -> tuple[int, ...]:
    """Return the coordinates of observations [N, ...] that are noise.

    A coordinate is noise if state and action explain less than a tenth of the variance of its next
    value, by linear regression on [1, s] ⊗ b(a) tested on other rows, and if leaving it out does
    not predict any other coordinate worse by more than 2 %. The seed decides the rows.
    """
    count = int(np.prod(data.observation.shape[1:], dtype=int))
    if count == 1 or len(data) < FEWEST_TESTED_ROWS or actions.size * (count + 1) > _MOST_COLUMNS:
        return ()
    few = np.random.default_rng(seed).permutation(len(data))[: 2 * MOST_TESTED_ROWS]
    now, then = (
        _standard(states[few].reshape(len(few), -1))
        for states in (data.observation, data.next_observation)
    )
    taken = actions.weights(data.action[few])

    def left(used: np.ndarray) -> np.ndarray:
        """Return the share of the variance that coordinates ``used`` do not explain, [c]."""
        state = np.column_stack([np.ones(len(now)), now[:, used]])
        return unexplained(interactions(taken, state), then)

    whole = left(np.ones(count, np.bool_))
    noise = whole > 1.0 - _PREDICTED
    constant = np.ptp(then, axis=0) == 0.0
    if not noise.any() or (noise | constant).all():
        return ()
    worse = left(~noise) > (1.0 + _USEFUL) * whole
    return () if worse[~noise].any() else tuple(np.flatnonzero(noise).tolist())


def _standard(states: np.ndarray) -> np.ndarray:
    deviation = states.std(axis=0, dtype=np.float64)
    centred = states - states.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / np.where(deviation > 0.0, deviation, 1.0))
