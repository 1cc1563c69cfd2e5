"""Audit features: which components of a truth they hold, their health, and their use."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from rlreps.auditing.defects import find_defects
from rlreps.auditing.findings import (
    DRAWS,
    LABELLED,
    LEADING,
    REWARDS,
    Audit,
    FeatureFindings,
)
from rlreps.auditing.measures import (
    HEADLINE,
    PENALTIES,
    examine,
    explained,
    find_aliases,
    held_out,
)
from rlreps.auditing.recorded import RecordedTruth, estimate_truth
from rlreps.errors import InputError, require, require_positive
from rlreps.formatting import format_number
from rlreps.numerics import as_real, bytes_of
from rlreps.subspace import ridge_by_leave_one_out, spans_of, standardise
from rlreps.successor import FitConfig, GroundTruth, Transitions
from rlreps.successor.fitting.transitions import as_transitions
from rlreps.typing import ArrayLike, DoubleArray

Features: TypeAlias = ArrayLike | Callable[[Any], ArrayLike]
"""Features of all states [n, p] or rows [N, p], or a function of observations that returns them."""

OURS = "features"
_STATES = 1_000
_REPEATED, _ROUNDED = 0.01, 1e-5
"""Largest difference between a unit's activations of two calls: shares of the unit's range, and of
its largest magnitude."""
_MOST_WORKERS = 4
"""Largest number of sets at a time; each needs some copies of its features."""


def audit(
    features: Features | Mapping[Any, Features],
    truth: GroundTruth | Transitions,
    *,
    inputs: ArrayLike | None = None,
    discount: float | None = None,
    seed: int = 0,
) -> Audit:
    """Measure any features against a truth: components, health, use, and known defects.

    Nothing is trained but linear maps. Captured shares with an intercept do not change if features
    are shifted or mapped by an invertible matrix.

    Without a ground truth, give recorded transitions. Their components are those of a fit, measured
    at observations of held-out episodes, each distinct observation once
    (``rlreps.auditing.recorded``). Truth and findings are then of these observations.

    Args:
        features: Features [n, p] of the truth's n states, in its order; of transitions, [N, p] of
            ``observation`` in every row (features of ``next_observation`` are not needed); or a
            function of observations [n, ...] that returns them, called twice to see that it
            returns the same; or several of these by name, or by the step of a checkpoint.
        truth: A ground truth, as from ``rlreps.successor.load``, or ``Transitions``.
        inputs: What the network saw when the features were computed, [n, ...] or [N, ...]: compared
            with the observations, to tell unit coordinates from others.
        discount: γ of the components of transitions, 0.95 by default; a ground truth has its own.
        seed: Seed of halves, held-out episodes, labelled states and random rewards.

    Returns:
        The audit; ``lines`` has its findings in words.

    Raises:
        InputError: For features of another shape or with entries that are not finite, a function
            that is random or depends on the batch, or transitions that tell no component.
    """
    require_positive("seed", seed, least=0)
    given_names = features if isinstance(features, Mapping) else {OURS: features}
    several = {_as_label(name): each for name, each in given_names.items()}
    require(bool(several), "at least one set of features", "none")
    require(len(several) == len(given_names), "features of different names", [*given_names])
    require("truth" not in several, "another name for features", "truth")
    if all(isinstance(label, int) for label in several):  # Checkpoints, by their steps.
        several = dict(sorted(several.items(), key=lambda each: int(each[0])))
    given: GroundTruth | Transitions
    seen: Any
    if isinstance(truth, GroundTruth):
        require(discount is None, "no discount beside a ground truth, which has its own", discount)
        require(truth.num_states >= 4, "a truth of at least 4 states", truth.num_states)
        given, seen = truth, truth.observations
    else:
        recorded = isinstance(truth, Transitions | Mapping | Sequence) and not isinstance(
            truth, str
        )
        expected = "a GroundTruth (as from successor.load or World.truth) or transitions"
        require(recorded, expected, type(truth).__name__)
        given = as_transitions(truth)
        seen = given.observation
    if inputs is not None:
        _require_inputs(np.asarray(inputs), np.asarray(seen, np.float64))
    arrays = {
        label: each if callable(each) else as_features(each, label, len(seen))
        for label, each in several.items()
    }
    if isinstance(given, GroundTruth):
        against = RecordedTruth(truth=given, rows=slice(None), observations=seen)
    else:  # After all checks, since it takes a while.
        gamma = FitConfig().discount if discount is None else discount
        against = estimate_truth(given, components=LEADING[-1], discount=gamma, seed=seed)
    baselines, sets = _Baselines(against.truth, seed), {}
    for label, each in arrays.items():
        seen = against.observations
        sets[label] = _call(each, seen, label) if callable(each) else each[against.rows]
        baselines.prepare(sets[label].shape[1])
    # Threads of BLAS would wait for each other, as problems are small: each set has one.
    workers = min(_MOST_WORKERS, len(sets), os.cpu_count() or 1)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        audited = pool.map(
            lambda array: _audit_one(array, against.truth, baselines, seed), sets.values()
        )
        findings = dict(zip(sets, audited, strict=True))
    return Audit(
        truth=against.truth,
        findings=findings,
        notes=against.notes,
        observable=_observable(against.truth),
    )


def _observable(truth: GroundTruth) -> DoubleArray | None:
    """Return the share of each leading component that is constant on states that look alike."""
    if truth.observed is None:
        return None
    seen = np.asarray(truth.observed)
    _, groups = np.unique(bytes_of(seen, seen.dtype), return_inverse=True)
    counts = np.bincount(groups)
    if counts.max() == 1:
        return None
    components = truth.principal.basis[:, : LEADING[-1]].astype(np.float64)
    sums = np.zeros((len(counts), components.shape[1]))
    np.add.at(sums, groups, components)
    share: DoubleArray = np.sum(np.square(sums) / counts[:, None], axis=0)
    return share


def _audit_one(
    features: np.ndarray, truth: GroundTruth, baselines: "_Baselines", seed: int
) -> FeatureFindings:
    states, count = features.shape
    given = standardise(features)
    components = truth.principal.basis[:, : LEADING[-1]].astype(np.float64)
    spans = spans_of(given, components)
    shares, rank = 1.0 - spans.missed_with_intercept, len(spans.factor)
    # The intercept holds the mean of a component, which is 0 unless only rows are centred.
    constant = np.square(components.mean(axis=0)) * states
    rest = np.maximum(1.0 - constant, np.finfo(np.float64).tiny)
    beyond = held_out(given.units, components, seed)
    health = examine(features, given, spans)
    aliased, pairs = find_aliases(
        given.units, baselines.rows[:, : min(max(rank, 1), HEADLINE)], seed
    )
    return FeatureFindings(
        features=features,
        components=shares,
        without_intercept=1.0 - spans.missed_without_intercept,
        held_out=beyond,
        chance=constant + (1.0 - constant) * rank / max(states - 1, 1),
        health=health,
        aliased=aliased,
        aliases=pairs,
        values=baselines.compare(given.units, count),
        defects=find_defects(
            health,
            np.clip((shares - constant) / rest, 0.0, 1.0),
            float(beyond[:HEADLINE].mean()),
            aliased,
            error=truth.error,
            states=states,
            units=count,
        ),
    )


class _Baselines:
    """Values of random rewards, and how well exact components, cosines and noise predict them.

    Attributes:
        rows: F Σ, [n, k], whose rows are as far apart as those of the successor measure.
    """

    def __init__(self, truth: GroundTruth, seed: int) -> None:
        principal = truth.principal
        self.rows: DoubleArray = principal.basis.astype(np.float64) * principal.singular_values
        self._random = np.random.default_rng(seed)
        self._values = self.rows @ self._random.normal(size=(self.rows.shape[1], REWARDS))
        states = len(self.rows)
        # At most half of the states are labelled; the others are predicted.
        self._most = min(LABELLED[-1], states // 2)
        self._orders = [self._random.permutation(states) for _ in range(DRAWS)]
        self._coordinates = np.asarray(truth.coordinates, np.float64)
        self._known: dict[int, dict[str, DoubleArray]] = {}

    def prepare(self, units: int) -> None:
        """Compute the R² of others of this p."""
        if units in self._known:
            return
        frequencies = self._random.normal(size=(self._coordinates.shape[1], units))
        phases = self._random.uniform(0.0, 2.0 * np.pi, size=units)
        with threadpool_limits(1, user_api="blas"):
            self._known[units] = {
                "exact components": self._score(self.rows[:, :units]),
                "random cosines": self._score(
                    np.cos(2.0 * np.pi * self._coordinates @ frequencies + phases)
                ),
                "noise": self._score(self._random.normal(size=(len(self.rows), units))),
            }

    def compare(self, features: DoubleArray, units: int) -> dict[str, DoubleArray]:
        """Return the R² of standardised features, and of others of p units, which is prepared."""
        return {OURS: self._score(features), **self._known[units]}

    def _score(self, features: DoubleArray) -> DoubleArray:
        scores = np.full((len(LABELLED), DRAWS, REWARDS), np.nan)
        for row, count in enumerate(LABELLED):
            if count > self._most:
                continue
            for draw, order in enumerate(self._orders):
                known, test = order[:count], order[self._most :][:_STATES]
                ridge = ridge_by_leave_one_out(features[known], self._values[known], PENALTIES)
                scores[row, draw] = explained(self._values[test], ridge.predict(features[test]))
        found: DoubleArray = scores.mean(axis=1)
        return found


def _as_label(name: object) -> str | int:
    """Return the step of a checkpoint that is named by a number, else the name."""
    return int(str(name)) if str(name).isdecimal() else str(name)


def _call(network: Callable[[Any], ArrayLike], seen: Any, label: object) -> np.ndarray:
    """Return a network's features [n, p] of observations, which a second call must repeat.

    The second call has half of the observations, each twice: those where the unit that varies most
    is least. So the mean of a batch changes, in whatever order the observations are.
    """
    features = as_features(network(seen), label, len(seen))
    values = features.astype(np.float64)
    rising = values[:, values.std(axis=0).argmax()].argsort(kind="stable")
    twice = np.arange(len(seen)) // 2
    chosen = rising[twice]
    again = as_features(network(seen[chosen]), label, len(seen))
    require(again.shape == values.shape, f"features {values.shape} in a second call", again.shape)
    apart = np.abs(again - values[chosen]).max(axis=0)
    allowed = _REPEATED * np.ptp(values, axis=0) + _ROUNDED * np.abs(values).max(axis=0)
    if (apart > allowed).any():
        unit = int((apart - allowed).argmax())
        raise InputError(
            f"expected the same features {label!r} of the same observations (fixed parameters, "
            f"evaluation mode), got others in a second call, up to {apart[unit]:.3g} apart in unit "
            f"{unit}"
        )
    return features


def as_features(given: ArrayLike, label: object, rows: int) -> np.ndarray:
    """Return features [n, p] of a number type, after a check."""
    array = as_real(given, f"features {label!r}")
    name = f"features {label!r} [{rows}, p], a row for each state of the truth or of transitions"
    fits = array.ndim == 2 and len(array) == rows and array.shape[1] >= 1
    require(fits, name, f"shape {array.shape}")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise InputError(
            f"expected finite features {label!r}, got NaN or infinity in {np.sum(~finite)} of "
            f"{len(array)} rows, first in row {np.flatnonzero(~finite)[0]}"
        )
    return array


def _require_inputs(inputs: np.ndarray, seen: np.ndarray) -> None:
    """Check that inputs are the observations, up to a tenth of their range."""
    require(inputs.shape == seen.shape, f"inputs of shape {seen.shape}", f"shape {inputs.shape}")
    given = inputs.astype(np.float64)
    allowed = 0.1 * np.ptp(seen, axis=0) + 1e-6 * np.abs(seen).max()
    wrong = np.argwhere(~(np.abs(given - seen) <= allowed))  # Also of NaN.
    if wrong.size:
        place = tuple(wrong[0].tolist())
        raise InputError(
            "expected the truth's observations as inputs, "
            f"{format_number(float(seen[place]))} at {list(place)}, got "
            f"{format_number(float(given[place]))}"
        )
