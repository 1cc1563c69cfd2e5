"""Streaming principal component analysis as a scikit-learn estimator."""

import contextlib
import functools
import math
import numbers
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from rlreps.errors import require, require_choice
from rlreps.streaming.missing import require_imputing
from rlreps.streaming.model import (
    ROWS_AT_ONCE,
    TINY,
    FloatArray,
    Floats,
    Model,
    Setup,
    advance,
    blocks,
    completed,
    start,
    take_in,
)
from rlreps.streaming.rules import RULES

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
    from threadpoolctl import ThreadpoolController
except ImportError as error:
    raise ImportError(
        "expected scikit-learn >= 1.6 for StreamingPCA, got none: pip install 'rlreps[sklearn]'"
    ) from error

RELATIVE_RATES = {"implicit_krasulina": 0.1, "sanger": 3.0}
"""Rule → default η0 times the total variance; Sanger's own diverges where others still learn."""

LARGEST_ENTRY = 1e150
"""Largest entry of a row."""

LEAST_DEVIATION = 1e-150
"""Rows may differ by nothing, or by no less than this: smaller squares are zero."""

RELATIVE_RATE = 10.0
"""The same for other rules."""


class StreamingPCA(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Principal component analysis of a stream, by any rule of ``rlreps.streaming``.

    The rules take row after row and keep k vectors; no covariance and no rows are stored. ``fit``
    goes over an array in random order, ``partial_fit`` over batches as they come, of any size, also
    of fewer rows than components. Both subtract a running mean. Computations run in JAX, in
    float32 unless x64 is enabled; each new shape of a batch is compiled once a process.

    Args:
        n_components: k; None keeps as many as ``fit`` has rows or features, whichever are fewer,
            and as many as there are features in ``partial_fit``.
        rule: One of ``rlreps.streaming.RULES``.
        learning_rate: η0 of η_t = η0 / t^power at update t, for most rules in units of one over a
            variance. None chooses one over the total variance times a number for the rule: of the
            first rows in ``fit``, of all rows so far in ``partial_fit``. Implicit Krasulina hardly
            depends on it, incremental PCA has none.
        power: How the learning rate decays; 0 keeps it, for streams whose components wander.
        batch_size: Rows that one update averages over. An array or batch that does not divide
            ends with a smaller one. EigenGame needs as many as components, learns well from
            several times as many, and adds fewer to the update before.
        passes: How often ``fit`` goes over the rows, each time in another order. Of a few thousand
            rows or less, one pass leaves most rules some per cent short of the best k components;
            of very many it is enough. Rules without a learning rate (incremental PCA) sum over
            rows, and go over them once.
        missing: True if NaN marks missing entries; rules that cannot take them are refused.
        random_state: Seed or generator of the random start and of the order of rows in ``fit``.

    Attributes:
        components_: Orthonormal rows in descending order of explained variance, the largest entry
            of each positive, [n_components, n_features].
        explained_variance_: Variance of the rows along each component, [n_components]. After
            ``fit``: of all rows, by a pass of its own, with ddof = 1. After ``partial_fit``: of the
            rows as they were seen, the t-th of n with weight (t/n)². It is biased low while the
            components still turn, because what earlier rows had outside of their span at that time
            is not known any more. Fewer than two rows have none.
        explained_variance_ratio_: The same, divided by the total variance; zeros of a stream
            that is constant.
        mean_: Mean of all rows (with ``missing``, of the entries that are there), [n_features].
        n_components_: k.
        n_samples_seen_: Rows that the model has seen, each counted once.
        n_features_in_: Features of a row.
        feature_names_in_: Their names, where rows came with some.

    A stream that is constant leaves the components where they started: orthonormal, of zero
    variance. With ``missing``, variances are those of rows with reconstructed entries, which have
    no residual: ratios are then too high, and so are variances of rows with few entries left.
    Units do not matter: rows are computed with in units of the spread of the first ones.

    A batch that cannot be used (another number of features, infinity, NaN without ``missing``)
    raises a ValueError and changes nothing. So does a step whose outcome is not finite: it raises
    ``rlreps.errors.TrainingDivergedError``.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        rule: str = "implicit_krasulina",
        learning_rate: float | None = None,
        power: float = 0.8,
        batch_size: int = 1,
        passes: int = 5,
        missing: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.rule = rule
        self.learning_rate = learning_rate
        self.power = power
        self.batch_size = batch_size
        self.passes = passes
        self.missing = missing
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from an array [n_samples, n_features], as if nothing had been seen before.

        Raises:
            ValueError: For parameters or an array that cannot be used; the model stays as it was.
            TrainingDivergedError: If a step's outcome is not finite; the model stays as it was.
        """
        with _unchanged_on_error(self), _threads().limit(limits=1, user_api="blas"):
            X = self._validated(X, reset=True)
            random = check_random_state(self.random_state)
            setup = self._setup(X, min(X.shape))
            model = start(setup, random.randint(np.iinfo(np.int32).max), X)
            order = random.permutation(len(X))
            self._require_spread(X - model.origin)
            total_variance = _total_variance(X[order[:ROWS_AT_ONCE]] - model.origin)
            model = model.measured_in_its_spread(total_variance)
            rate = self._rate(total_variance)
            basis = model.components
            # A rule without a learning rate would count every row again.
            passes = int(self.passes) if RULES[self.rule].needs_learning_rate else 1
            for index in range(passes):
                order = random.permutation(len(X)) if index else order
                state, basis = advance(model, X, order, rate)
                model = model._replace(state=state)
            mean = model.state.running
            once = mean._replace(rows_seen=mean.rows_seen // mean.rows_seen.dtype.type(passes))
            model = model._replace(state=model.state._replace(running=once))
            # The exact variances of all rows within the span.
            moments, components = model.moments, basis
            for chosen in blocks(np.arange(len(X)), 1):
                complete = completed(X[chosen] - model.origin, model.shifted_mean, basis)
                moments, components = take_in(moments, components, basis, complete, fading=0.0)
            self._accept(model._replace(moments=moments, components=components))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with a batch [n_samples >= 1, n_features], in the order of its rows.

        Raises:
            ValueError, TrainingDivergedError: As ``fit``.
        """
        with _unchanged_on_error(self), _threads().limit(limits=1, user_api="blas"):
            model: Model | None = getattr(self, "_model", None)
            X = self._validated(X, reset=model is None)
            if model is None:
                setup = self._setup(X, X.shape[1])
                random = check_random_state(self.random_state)
                model = start(setup, random.randint(np.iinfo(np.int32).max), X)
            else:
                setup = self._setup(X, model.setup.num_components)
                started, now = (
                    {"rule": one.rule, "n_components": one.num_components, "missing": one.missing}
                    for one in (model.setup, setup)
                )
                expected = f"what the stream began with, {started} (fit starts anew)"
                require(started == now, expected, now)
                model = model._replace(setup=setup)
            rows: Floats = X - model.origin
            self._require_spread(rows)
            about_mean = np.where(np.isnan(rows), model.shifted_mean, rows)
            grown, _ = take_in(model.moments, model.components, model.components, about_mean)
            model = model.measured_in_its_spread(grown.total_variance)
            rate = self._rate(grown.total_variance)
            state, basis = advance(model, X, np.arange(len(X)), rate)
            model = model._replace(state=state)
            complete = completed(rows, model.shifted_mean, basis)
            moments, components = take_in(model.moments, model.components, basis, complete)
            self._accept(model._replace(moments=moments, components=components))
        return self

    def transform(self, X: Any) -> FloatArray:
        """Compute coordinates along the components, [n_samples, n_components].

        With ``missing``, those of the reconstructed rows.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        if self.missing:
            X = completed(X, self.mean_, self.components_).astype(X.dtype)
        centred = X - self.mean_.astype(X.dtype)
        coordinates: FloatArray = centred @ self.components_.T.astype(X.dtype)
        return coordinates

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return the rows with given coordinates in the components' span, [samples, features]."""
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32])
        expected = f"{self.n_components_} coordinates a row"
        require(X.shape[1] == self.n_components_, expected, X.shape[1])
        rows: FloatArray = X @ self.components_.astype(X.dtype) + self.mean_.astype(X.dtype)
        return rows

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.missing)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: Any, *, reset: bool) -> FloatArray:
        finite = "allow-nan" if self.missing else True
        # Its quick test for finite entries is a sum, which huge ones overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            array: FloatArray = validate_data(
                self, X, dtype=[np.float64, np.float32], reset=reset, ensure_all_finite=finite
            )
        largest = float(np.nanmax(np.abs(array), initial=0.0))
        most = f"entries of at most {LARGEST_ENTRY:g}, whose squares double precision holds"
        require(largest <= LARGEST_ENTRY, most, largest)
        return array

    def _setup(self, X: FloatArray, most: int) -> Setup:
        """Check all parameters for an array or batch; None is ``most`` components."""
        require_choice("rule", self.rule, tuple(RULES))
        is_flag = isinstance(self.missing, bool | np.bool_)
        require(is_flag, "missing to be True or False", self.missing)
        if self.missing:
            require_imputing(self.rule)
        for name in ("batch_size", "passes"):
            value = getattr(self, name)
            require(_is_whole(value) and value >= 1, f"a whole {name} >= 1", value)
        require(_is_finite(self.power) and self.power >= 0.0, "a finite power >= 0", self.power)
        rate = self.learning_rate
        sensible = rate is None or (_is_finite(rate) and rate > 0.0)
        require(sensible, "a finite learning_rate > 0 or None", rate)
        features = X.shape[1]
        k = most if self.n_components is None else self.n_components
        fits = _is_whole(k) and 1 <= k <= features
        require(fits, f"a whole n_components from 1 to {features}", k)
        least = RULES[self.rule].least_rows_per_update(int(k))
        learned = f"for {int(k)} components by {self.rule}"
        enough = f"batch_size >= {least} {learned}, or a rule that learns from single rows"
        require(self.batch_size >= least, enough, self.batch_size)
        require(len(X) >= least, f"at least {least} rows at once {learned}", len(X))
        batch_size, missing = int(self.batch_size), bool(self.missing)
        return Setup(self.rule, features, int(k), float(self.power), batch_size, missing)

    @staticmethod
    def _require_spread(rows: Floats) -> None:
        """Refuse rows, less the origin, that vary by less than a variance can tell from zero."""
        largest = float(np.nanmax(np.abs(rows), initial=0.0))
        require(
            largest == 0.0 or largest >= LEAST_DEVIATION,
            f"rows that are constant or differ by {LEAST_DEVIATION:g} at least, whose squares "
            "double precision holds (scale them)",
            largest,
        )

    def _rate(self, total_variance: float) -> float:
        """Return η0, given the total variance of some rows."""
        if self.learning_rate is not None:
            return float(self.learning_rate)
        relative = RELATIVE_RATES.get(self.rule, RELATIVE_RATE)
        # Rows without variance are all zero once centred, and move nothing at any rate.
        return relative / (total_variance if total_variance > TINY else 1.0)

    def _accept(self, model: Model) -> None:
        moments = model.moments
        self._model = model
        self.mean_ = model.origin + model.shifted_mean
        self.components_ = model.components
        self.n_components_ = len(model.components)
        self.n_samples_seen_ = moments.rows_seen
        self.explained_variance_ = moments.variances
        total = moments.total_variance
        self.explained_variance_ratio_ = moments.variances / (total if total > 0.0 else 1.0)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


@contextlib.contextmanager
def _unchanged_on_error(estimator: StreamingPCA) -> Iterator[None]:
    """Give an estimator its attributes back if an error is raised: validation sets some."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


@functools.cache
def _threads() -> Any:
    """Return what keeps OpenBLAS out of XLA's way; to find it takes longer than an update."""
    return ThreadpoolController()


def _total_variance(rows: Floats) -> float:
    """Sum the variance of the entries that are there over features."""
    there = ~np.isnan(rows)
    counts = np.maximum(there.sum(axis=0), 1)
    means = np.where(there, rows, 0.0).sum(axis=0) / counts
    return float((np.where(there, rows - means, 0.0) ** 2 / counts).sum())
