"""Choose the kernel of a least-squares fit to vectors by the error on held-out rows.

Candidates are kernels of several widths, along the coordinates or along the principal axes of the
data. Coordinates that are noise are left out of all of them.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from rlreps.errors import warn_user
from rlreps.numerics import interruptible
from rlreps.runs.progress import hidden, progress_bar
from rlreps.successor.fitting.basis import ActionBasis, FourierBasis, standardised, whitened
from rlreps.successor.fitting.data import Transitions
from rlreps.successor.fitting.held_out import squared_error
from rlreps.successor.fitting.least_squares import Behaviour, LeastSquares, Steps
from rlreps.successor.fitting.methods import FitConfig, LeastSquaresFit

_WIDTHS = (1.0, 0.5, 0.25)
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3)
_RIDGE = 1e-5
"""λ at which kernels are compared; with a smaller λ, some systems are close to singular."""
_MOST_ROWS = 10_000
_MOST_FEATURES = 300
_TOLERANCE = 1.1
"""A candidate is good if its error is at most this multiple of the least error."""

_PREDICTED = 0.1
"""A coordinate is noise if state and action explain less than this share of its variance."""
_USEFUL = 0.02
"""Noise is kept if it explains this share of what the other coordinates leave of any of them."""
_FEWEST_ROWS = 1_000
"""With fewer rows, no coordinate is judged to be noise."""
_REMEMBERING = 100
"""Number of features of the state beside which the row before is judged."""
_MOST_PREDICTORS = 2_000
"""With more numbers of state and action together, no coordinate is judged to be noise."""


HIDDEN = (
    "the row before a row predicts the next observation better: observations lack a part of the "
    "state, such as speeds; stack two frames, or add what is missing"
)


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
        Steps.of(part).at(np.sort(np.random.default_rng(seed).permutation(len(part))[:_MOST_ROWS]))
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


def share_left(targets: np.ndarray, found: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the share of the variance of targets that a regression leaves, [k].

    The variance is the larger of those of the tested ``targets`` [n, k] and of the targets
    ``before`` of the regression [m, k], since a target may vary in rows of one kind alone.
    """
    scale = np.maximum(targets.var(axis=0), before.var(axis=0))
    return np.asarray(np.square(targets - found).mean(axis=0) / np.maximum(scale, 1e-12))


def describe_noise(noise: Sequence[int]) -> str:
    """Say which coordinates a fit leaves out."""
    shown = ", ".join(map(str, noise[:8])) + (", ..." if len(noise) > 8 else "")
    return (
        f"{len(noise)} coordinates of the observations are noise, which no state or action "
        f"predicts, and are left out: {shown}; do not let rewards depend on them"
    )


def noise_coordinates(data: Transitions, actions: ActionBasis, seed: int) -> tuple[int, ...]:
    """Return the coordinates of observations [N, ...] that are noise.

    A coordinate is noise if state and action explain less than a tenth of the variance of its next
    value, by linear regression on [1, s] ⊗ b(a) tested on other rows, and if leaving it out does
    not predict any other coordinate worse by more than 2 %. The seed decides the rows.
    """
    count = int(np.prod(data.observation.shape[1:], dtype=int))
    if count == 1 or len(data) < _FEWEST_ROWS or actions.size * (count + 1) > _MOST_PREDICTORS:
        return ()
    few = np.random.default_rng(seed).permutation(len(data))[: 2 * _MOST_ROWS]
    now, then = (
        _standard(states[few].reshape(len(few), -1))
        for states in (data.observation, data.next_observation)
    )
    taken = actions.weights(data.action[few])

    def unexplained(used: np.ndarray) -> np.ndarray:
        """Return the share of the variance that coordinates ``used`` do not explain, [c]."""
        state = np.column_stack([np.ones(len(now)), now[:, used]])
        return _unexplained((taken[:, :, None] * state[:, None, :]).reshape(len(now), -1), then)

    whole = unexplained(np.ones(count, np.bool_))
    noise = whole > 1.0 - _PREDICTED
    if not noise.any() or noise.all():
        return ()
    worse = unexplained(~noise) > (1.0 + _USEFUL) * whole
    return () if worse[~noise].any() else tuple(np.flatnonzero(noise).tolist())


def hides_state(data: Transitions, basis: FourierBasis, actions: ActionBasis, seed: int) -> bool:
    """Tell whether the row before a row helps to predict its change of observation.

    It helps if it halves the error of a regression on features of state and action, on other rows,
    where these explain less than 3/4 of the variance. Observations then lack a part of the
    state, such as speeds. The seed decides the rows and features of the regression.
    """
    rows = np.flatnonzero(~data.ends[:-1]) + 1  # A row within the episode comes before them.
    # Many actions would need more memory than the data.
    if len(rows) < _FEWEST_ROWS or actions.size * _REMEMBERING > 5_000:
        return False
    rows = np.random.default_rng(seed).permutation(rows)[:_MOST_ROWS]
    axes = basis.axes.astype(np.float64)
    # A hundred features are few: their kernel is wide, whatever the width of the fit's.
    along = data.observation[rows].reshape(len(rows), -1) @ axes
    axes /= along.std(axis=0).max() * np.sqrt(axes.shape[1])
    before, now, then = (
        states.reshape(len(states), -1) @ axes
        for states in (
            data.observation[rows - 1],
            data.observation[rows],
            data.next_observation[rows],
        )
    )
    few = FourierBasis.of(data.observation, _REMEMBERING, 1.0, seed, axes)
    taken = actions.weights(data.action[rows])
    features = np.einsum("np,nc->npc", few.apply(data.observation[rows]), taken)
    alone = np.column_stack([features.reshape(len(rows), -1), now])
    joint = np.column_stack([alone, before, actions.weights(data.action[rows - 1])])
    left = [float(_unexplained(each, then - now).mean()) for each in (alone, joint)]
    return left[0] > 0.25 and left[1] < 0.5 * left[0]


def _unexplained(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Regress on every other row; return the share of variance left on the others, [k]."""
    own, other = features[::2].astype(np.float64), features[1::2].astype(np.float64)
    gram = own.T @ own / len(own)
    gram[np.diag_indices(len(gram))] += 1e-6
    weights = np.linalg.solve(gram, own.T @ targets[::2] / len(own))
    return share_left(targets[1::2], other @ weights, targets[::2])


def _standard(states: np.ndarray) -> np.ndarray:
    deviation = states.std(axis=0, dtype=np.float64)
    centred = states - states.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / np.where(deviation > 0.0, deviation, 1.0))
