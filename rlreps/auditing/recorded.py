"""Components of recorded data: those of a fit, at observations of episodes that it did not see."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, recorded_warnings, require
from rlreps.formatting import format_number
from rlreps.numerics import bytes_of
from rlreps.subspace import PrincipalSubspace, exact_svd, noise_floor
from rlreps.successor.fitting.basis import UnitVectors
from rlreps.successor.fitting.behaviour import estimate_behaviour
from rlreps.successor.fitting.factors import decompose
from rlreps.successor.fitting.fit import fit
from rlreps.successor.fitting.held_out import FEWEST_VISITS
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.fitting.transitions import Transitions
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.truth.ground_truth import GroundTruth

_HELD_OUT = 0.2
_FEWEST_ROWS = 100
_MOST_STATES = 10_000
_MOST_FEATURES = 400
"""Features φ of an observation in the fit: half of the default, since its time grows as a cube."""
_ALIKE = 0.5
"""Least share of a component, beyond chance, in the span of about as many of either half."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RecordedTruth:
    """Components to audit against, from recorded data or a ground truth.

    Attributes:
        truth: The components in which both halves of the episodes agree, at the measured states,
            with the error that the halves give.
        rows: Row of the data whose observation each measured state is, [n]; all of a ground truth.
        observations: The observations, as recorded, [n, ...].
        notes: How the components were estimated, and the limits of the data.
    """

    truth: GroundTruth
    rows: npt.NDArray[np.int64] | slice
    observations: Any
    notes: Sequence[str] = ()


def estimate_truth(
    data: Transitions, *, components: int, discount: float, seed: int
) -> RecordedTruth:
    """Estimate the components of the successor measure from recorded transitions.

    A fifth of the episodes is held out. Least squares fit the others (``rlreps.successor.fit``),
    and count transitions if observations occur ten times or more in the mean. The components are
    the principal components of the fitted features at observations of the held-out episodes, each
    distinct observation once. Two fits to halves of the other episodes, in the same features, say
    how far the components can be trusted (``noise_floor``).

    Args:
        data: Transitions of one policy.
        components: Largest number of components.
        discount: γ.
        seed: Seed of the choice of episodes.

    Raises:
        InputError: For too few transitions, pictures that do not repeat, or data whose halves agree
            on no component.
    """
    require(len(data) >= _FEWEST_ROWS, f"at least {_FEWEST_ROWS} transitions", len(data))
    given = data
    if data.num_states is None and not data.continuous:
        numbered, table = data.numbered()
        given = numbered if FEWEST_VISITS * len(table) <= len(data) else data
    small = given.num_states is not None or given.observation.ndim <= 2
    require(small, "vectors, or observations that repeat", f"shape {data.observation.shape}")
    held = given.held_out(_HELD_OUT, seed)
    kept, _ = given.split(_HELD_OUT, seed)
    with recorded_warnings() as warned:
        whole = fit(
            kept,
            method="least_squares",
            max_features=_MOST_FEATURES,
            num_features=components + 1,
            discount=discount,
            seed=seed,
        )
    half = kept.held_out(0.5, seed)
    halves = [_fit_part(whole, part) for part in (half, ~half)]
    keys = bytes_of(given.observation[held], given.observation.dtype)
    rows = np.flatnonzero(held)[np.unique(keys, return_index=True)[1]]
    if given.num_states is not None:
        for part in halves:
            rows = rows[np.isin(given.observation[rows], part.solution.rows.observation)]
    require(len(rows) >= 4, "at least 4 states that all parts of the episodes reach", len(rows))
    rows = np.random.default_rng(seed).permutation(rows)[:_MOST_STATES]
    flat = np.asarray(data.observation[rows], np.float64).reshape(len(rows), -1)
    grid, cells = None, None
    if data.num_states is None and flat.shape[1] <= 2:
        grid = BoxGrid.spanning(flat)
        order = np.argsort(grid.cell(flat), kind="stable")
        rows, flat = rows[order], flat[order]
        cells = grid.cell(flat)
    states = given.observation[rows]
    found = _components(whole, states)
    bases = [_components(part, states).basis for part in halves]
    shared = min(basis.shape[1] for basis in (found.basis, *bases))
    bases = [basis[:, :shared] for basis in bases]
    count = _count_alike(found.basis[:, :shared], bases)
    if not count:
        raise InputError(
            "expected data in whose halves the leading component is the same, got others: collect "
            "more episodes"
        )
    error = noise_floor(*bases)[:count]
    # Halves that span the same whole space agree by definition.
    leading = min(10, count, shared - 1)
    known = (
        f", with an error of {format_number(float(error[leading - 1]))} in the leading {leading}"
    )
    low, high = (flat.min(axis=0), flat.max(axis=0)) if grid is None else (grid.low, grid.high)
    width = np.asarray(high) - np.asarray(low)
    truth = GroundTruth(
        coordinates=jnp.asarray(
            (flat - np.asarray(low)) / np.where(width > 0.0, width, 1.0), jnp.float32
        ),
        matrix=None,
        principal=found.truncated(count),
        error=error,
        grid=grid,
        cells=cells,
        observed=jnp.asarray(data.observation[rows]),
    )
    quality = whole.quality
    judged = [] if quality is None else quality.lines()[:1]
    how = "counted" if isinstance(whole.solution.basis, UnitVectors) else "fitted by least squares"
    return RecordedTruth(
        truth=truth,
        rows=rows,
        observations=data.observation[rows],
        notes=[
            f"components are {how} from {format_number(len(kept))} transitions of the data's "
            f"policy (discount {discount:g}), and measured at {format_number(len(rows))} "
            "observations of other episodes; two halves of the episodes agree on the leading "
            f"{count}{known if leading else ''}",
            *judged,
            *warned,
            "without a ground truth nobody knows the bias of the fit, states that the data do not "
            "reach, what an observation does not show, and other policies",
        ],
    )


def _fit_part(whole: SuccessorRepresentation, part: np.ndarray) -> SuccessorRepresentation:
    """Fit some rows, chosen by a mask [N], in the features of a fit to all of them."""
    given = whole.solution
    part = part if given.chosen is None else part[given.chosen]
    rows = given.rows.at(part)
    held = np.arange(len(rows.terminated)) % 5 == 0
    behaviour = estimate_behaviour(given.basis, given.actions, rows, held)
    solution = dataclasses.replace(given, recorded=rows, chosen=None, behaviour=behaviour)
    return dataclasses.replace(
        whole,
        solution=solution,
        factors=decompose(solution, whole.num_features),
    )


def _components(fitted: SuccessorRepresentation, states: np.ndarray) -> PrincipalSubspace:
    """Decompose the centred features of a fit at some states."""
    features = fitted.features(states, scaling="singular").astype(np.float64)
    centred = features - features.mean(axis=0)
    scaled = centred.astype(np.float32)  # Values beyond single precision are rounding.
    return exact_svd(scaled, min(len(states), features.shape[1] - 1), at_most=True)


def _count_alike(basis: np.ndarray, halves: Sequence[np.ndarray]) -> int:
    """Count the leading components that are in the span of about as many of either half.

    A component counts if the span holds at least half of the share that exceeds chance. Fits in
    the same features share the span of all their components, so noise alone lies in a part of a
    half's leading span by chance.
    """
    size = int(basis.shape[1])
    for index, component in enumerate(basis.T):
        reach = min(index + max(5, index) + 1, size)  # Close singular values may change places.
        for half in halves:
            shares = np.square(half.T @ component)
            least = max(_ALIKE, (1.0 - _ALIKE * (1.0 - reach / size)) * float(shares.sum()))
            if float(shares[:reach].sum()) < least - 1e-9:
                return index
    return size
