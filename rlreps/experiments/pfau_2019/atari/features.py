"""Features of every method on the same frames: made comparable, ordered by slowness, compared."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from rlreps.errors import require
from rlreps.experiments.pfau_2019.atari.frames import DoubleArray, IndexArray
from rlreps.experiments.pfau_2019.atari.problem import Problem
from rlreps.subspace import orthonormal_basis, principal_angles, subspace_distance
from rlreps.subspace.ordered import ordered_spectrum, ritz_spectrum
from rlreps.training.evaluation import Moments

EXCITED_SHARE = 0.01
"""Share of the frames whose average shows what excites a feature."""


@dataclasses.dataclass(frozen=True, eq=False)
class MethodFeatures:
    """A method's features in order, with mean 0 and variance 1 on the training pairs.

    Attributes:
        label: The method's name.
        values: At all frames, [n, d].
        training_eigenvalues: Slowness on training pairs, [d].
        held_out_eigenvalues: Slowness on held-out pairs, [d].
    """

    label: str
    values: DoubleArray
    training_eigenvalues: DoubleArray
    held_out_eigenvalues: DoubleArray


def pair_moments(values: DoubleArray, starts: IndexArray) -> Moments:
    """Moments of a constant and features under ``operators.slowness``, over all pairs.

    Args:
        values: Features at all frames, [n, d].
        starts: First frames of the pairs, [p].

    Returns:
        Σ and Π, [1 + d, 1 + d]; the first feature is the constant 1.
    """
    first, second = (_with_constant(values[starts + step]) for step in (0, 1))
    change = first - second
    covariance = (first.T @ first + second.T @ second) / (2 * len(starts))
    return Moments(
        jnp.asarray(covariance.astype(np.float32)),
        jnp.asarray((change.T @ change / len(starts)).astype(np.float32)),
    )


def _with_constant(values: DoubleArray) -> DoubleArray:
    return np.concatenate([np.ones((len(values), 1)), values], axis=1)


def in_order(label: str, values: DoubleArray, problem: Problem, *, learned: bool) -> MethodFeatures:
    """Features orthonormalised on the training pairs, with their slowness on both sets of pairs.

    Held-out eigenvalues are those of the same functions, made orthogonal again on the held-out
    pairs one by one in the order of training: they need not rise.

    Args:
        label: The method's name.
        values: Its features at all frames, [n, d].
        problem: The frames.
        learned: Whether the features' own order is kept (spectral inference), or the slowest
            directions within their span come first (Rayleigh-Ritz).

    Returns:
        The features; each one's sign makes its third moment positive, so that what is rare excites
        it.
    """
    values = _standardised(values, problem.training)
    moments = pair_moments(values, problem.training)
    # The constant is both methods' first function: its eigenvalue, 0, is the lowest there is.
    spectrum = (ordered_spectrum if learned else ritz_spectrum)(*moments)
    functions = _with_constant(values) @ np.asarray(spectrum.transform, np.float64)[:, 1:]
    functions = _standardised(functions, problem.training)
    skewness = np.mean(functions[: problem.cut] ** 3, axis=0)
    functions = np.where(skewness < 0.0, -functions, functions)
    held_out = ordered_spectrum(*pair_moments(functions, problem.held_out))
    return MethodFeatures(
        label,
        functions,
        np.asarray(spectrum.eigenvalues, np.float64)[1:],
        np.asarray(held_out.eigenvalues, np.float64)[1:],
    )


def _standardised(values: DoubleArray, starts: IndexArray) -> DoubleArray:
    """Features with mean 0 and variance 1 over the frames of some pairs; a constant stays 0."""
    seen = np.concatenate([values[starts], values[starts + 1]])
    deviation = seen.std(axis=0)
    scaled: DoubleArray = (values - seen.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two spans of features on held-out frames.

    Attributes:
        distance: Subspace distance, 0 equal and 1 orthogonal.
        correlations: Canonical correlations, falling, [d].
    """

    distance: float
    correlations: DoubleArray


def compare(left: MethodFeatures, right: MethodFeatures, problem: Problem) -> Comparison:
    """How far two methods' spans of centred features are apart on the held-out frames."""
    bases = []
    for method in (left, right):
        values = method.values[problem.cut :]
        centred = (values - values.mean(axis=0)).astype(np.float32)
        bases.append(orthonormal_basis(jnp.asarray(centred))[0])
    return Comparison(
        distance=float(subspace_distance(*bases)),
        correlations=np.cos(np.asarray(principal_angles(*bases), np.float64)),
    )


def successor_features(codes: DoubleArray, starts: IndexArray, discount: float) -> DoubleArray:
    """Successor features of a code, ψ(s) = E[Σ_{t≥0} γ^t c(S_t) | S_0 = s], linear in the code.

    Least-squares temporal differences (Bradtke & Barto 1996) on x = (1, c): ψ = Wᵀx with
    E[x (x − γx')ᵀ] W = E[x cᵀ]. Only pairs within an episode count, so the sums are those of an
    agent that plays on.

    Args:
        codes: c at all frames, [n, k].
        starts: First frames of the pairs, [p].
        discount: γ, in [0, 1).

    Returns:
        ψ at all frames, [n, k].
    """
    inputs = _with_constant(codes)
    first, second = inputs[starts], inputs[starts + 1]
    matrix = first.T @ (first - discount * second)
    # Codes may depend on each other or on the constant; the smallest solution is as good as any.
    weights, *_ = np.linalg.lstsq(matrix, first.T @ codes[starts])
    predicted: DoubleArray = inputs @ weights
    return predicted


def principal_components(values: DoubleArray, problem: Problem, count: int) -> DoubleArray:
    """The leading components of features [n, k], by variance on the training frames, [n, count].

    Raises:
        InputError: If the features span fewer dimensions: what is left would be rounding.
    """
    centred = values - values[: problem.cut].mean(axis=0)
    _, deviations, directions = np.linalg.svd(centred[: problem.cut], full_matrices=False)
    rank = int(np.sum(deviations > 1e-5 * deviations[0]))
    require(rank >= count, f"successor features that span at least {count} dimensions", rank)
    components: DoubleArray = centred @ directions[:count].T
    return components


def exciting_averages(values: DoubleArray, problem: Problem) -> Mapping[str, DoubleArray]:
    """Averages of the frames that excite each feature most and least.

    Args:
        values: Features at all frames, [n, d].
        problem: The frames.

    Returns:
        ``most`` and ``least``: mean grey levels over one frame in a hundred, [d, height, width].
    """
    count = max(1, round(EXCITED_SHARE * len(values)))
    order = np.argsort(values, axis=0, kind="stable")
    images = problem.frames.images
    ends = {"most": order[-count:], "least": order[:count]}
    return {
        name: np.stack([images[np.sort(rows)].mean(axis=0) for rows in chosen.T])
        for name, chosen in ends.items()
    }
