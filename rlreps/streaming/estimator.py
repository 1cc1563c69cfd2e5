"""Streaming principal component analysis as a scikit-learn estimator."""

import functools
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import require, warn_user
from rlreps.numerics import all_finite, jit, require_unmasked
from rlreps.streaming.centring import Centred, Units, centred_rule, require_finite
from rlreps.streaming.moments import (
    FADING,
    Moments,
    measure_rounding,
    measure_variances,
    no_moments,
    take_in,
)
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import PowerDecay, scan_updates
from rlreps.streaming.rules.factor import ImplicitKrasulina
from rlreps.typing import DoubleArray, IndexArray

try:
    from scipy import sparse
    from sklearn.decomposition import PCA
    from sklearn.decomposition._base import _BasePCA
    from sklearn.utils import check_random_state
    from sklearn.utils._param_validation import Interval, StrOptions
    from sklearn.utils.validation import validate_data
    from threadpoolctl import ThreadpoolController
except ImportError as error:
    raise ImportError(
        "expected scikit-learn >= 1.6 for StreamingPCA, got none: pip install 'rlreps[sklearn]'"
    ) from error

DenseOrSparse = Any
"""An array or a SciPy sparse array in compressed rows, [n, features]."""


ROWS_AT_ONCE = 1024
"""Number of rows, approximately, that are sent to the device at once."""

RELATIVE_RATE = 0.5
"""Default η0 times the variance along the k-th component."""

LEAST_SHARE = 0.05
"""Least variance along component k that the default η0 assumes, over (total variance / k)."""

_RESOLVED_SHARE = 1e3
"""Least share that updates resolve, in squared units of rounding of their precision."""

INITIAL_SCALE = ImplicitKrasulina.initial_scale or 1.0
"""Size of implicit Krasulina's initial entries; its rate is in units of their squares."""

RELATIVE_TO_OTHERS = 8.0
"""Default η0 of implicit Krasulina, in units of the squared entries, over other rules' default."""

TINY = float(np.finfo(np.float32).tiny)
"""Smaller variances count as zero."""

LARGEST_RATES = {"eigengame": 2.0, "sanger": 0.25}
"""Rule → upper bound on (default rate · total variance)."""

LARGEST_RATE = 0.5
"""The same bound for other rules. With larger rates, rules that do not orthonormalise in every step
diverge. EigenGame has a larger bound, since each of its steps averages over several rows. Sanger's
rule has a smaller one: a row of nine times the total variance makes it diverge at 0.5."""


class Model(NamedTuple):
    """A stream's model; each batch replaces it as a whole.

    Attributes:
        rule: Name of the rule.
        units: Origin and unit of the rows; state and moments are in units.
        state: State of the rule with its running mean, NumPy arrays.
        moments: Moments of the rows along ``components``.
        components: Orthonormal rows, [k, features]; zeros before the first row.
    """

    rule: str
    units: Units
    state: Any
    moments: Moments
    components: DoubleArray

    def in_units(self, units: Units) -> Self:
        """Return the same model in other units, of the same origin."""
        factor = self.units.unit / units.unit
        state, moments = self.state.scaled(factor), self.moments.scaled(factor)
        return self._replace(units=units, state=state, moments=moments)


class StreamingPCA(_BasePCA):  # type: ignore[misc]
    """Principal component analysis of a stream, by any rule of ``rlreps.streaming``.

    Give ``partial_fit`` batches of one size, where possible: each new number of rows is compiled,
    once per process, which takes about a second. JAX's persistent compilation cache keeps programs
    between processes.

    The rules update k vectors on ``batch_size`` rows at a time: single rows by default, 2 k rows
    for EigenGame, and for incremental PCA the whole batch that ``partial_fit`` is given. They store
    no covariance and no rows. ``fit`` goes over an array in random order. ``partial_fit`` takes
    batches as they come, of any size, even with fewer rows than components. Both subtract a running
    mean. Computations run in JAX, in float32 unless x64 is enabled, on rows less the first row,
    divided by a power of two near the largest difference so far. ``fit`` and ``transform`` also
    take sparse arrays, and make about 1,024 rows dense at a time. ``score`` and ``score_samples``
    are those of scikit-learn's ``PCA``: log-likelihoods under probabilistic PCA.

    A batch that cannot be used (another number of features, NaN, infinity, or numbers above 10¹⁵
    and above 10¹⁵ times the largest so far) raises a ``ValueError``. A step whose outcome is not
    finite raises a ``rlreps.errors.TrainingDivergedError``. Both leave the model as it was. If the
    stream is constant, the components stay at their random orthonormal start, with zero variance.

    Args:
        n_components: k; None takes the number of rows or features of the first array, whichever is
            smaller.
        rule: One of ``rlreps.streaming.RULES``.
        learning_rate: η0 of η_t = η0 / t^power at update t, for most rules in units of one over a
            variance. None takes η0 = 0.5 / v, where v is the variance along the k-th component, but
            at least 5 % of (total variance / k). ``fit`` estimates both variances from the first
            1,024 rows, ``partial_fit`` from all rows so far. η_t is then at most 0.5 / total
            variance (EigenGame: 2 / total variance). Implicit Krasulina hardly depends on its rate;
            its default has no bound and is 4 / v times the squared length of its initial vectors.
            Incremental PCA has no learning rate.
        power: Exponent of the learning rate's decay; 0 keeps the rate, for drifting components.
        batch_size: Rows that one update averages over. The last update of an array or batch may
            have fewer. EigenGame needs at least k rows in an update, and learns well from several
            times k; if fewer than k rows are left, they join the previous update. None is 2 k for
            EigenGame and 1 for the other rules, but for incremental PCA the whole batch in
            ``partial_fit``, and 5 k and at least 50 in ``fit``.
        passes: Number of passes of ``fit`` over the rows, each in another order. With a few
            thousand rows or fewer, one pass leaves most rules some per cent short of the best k
            components; with very many rows it is enough. Rules without a learning rate (incremental
            PCA) sum over rows, and go over them once.
        random_state: Seed or generator of the random start and of the order of rows in ``fit``.

    Attributes:
        components_: Orthonormal rows in descending order of explained variance, the largest entry
            of each positive, [n_components, n_features].
        explained_variance_: Variance of the rows along each component, [n_components]. After
            ``fit``: the variance of all rows, by a separate pass, with ddof = 1. After
            ``partial_fit``: a weighted variance, in which the rows of a call that ends at row t of
            n have weight (t/n)² or, for incremental PCA, all rows have equal weight. It is too low
            while the components still turn, because the part of a row outside the components' span
            at that time is lost. It is zero for fewer than two rows.
        explained_variance_ratio_: ``explained_variance_`` divided by the total variance; zeros if
            the stream is constant.
        singular_values_: Singular values of the centred rows along each component: the square roots
            of ``explained_variance_`` times the number of rows minus one, [n_components].
        noise_variance_: Mean variance along the directions beyond the components, as in
            scikit-learn's ``PCA``; zero if there are none.
        mean_: Mean of all rows, [n_features].
        n_components_: k.
        n_samples_seen_: Number of rows that the model has seen, each counted once.
        n_features_in_: Number of features of a row.
        feature_names_in_: Names of the features, if the rows came with names.
    """

    whiten: ClassVar[bool] = False
    """Read by scikit-learn's base class; False, since coordinates keep their variances."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "rule": [StrOptions(set(RULES))],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "power": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "passes": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        rule: str = "implicit_krasulina",
        learning_rate: float | None = None,
        power: float = 0.8,
        batch_size: int | None = None,
        passes: int = 5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.rule = rule
        self.learning_rate = learning_rate
        self.power = power
        self.batch_size = batch_size
        self.passes = passes
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from an array [n_samples, n_features], forgetting all earlier rows.

        Raises:
            ValueError: For parameters or an array that cannot be used; the model stays as it was.
            TrainingDivergedError: If a step's outcome is not finite; the model stays as it was.
        """
        with _threads().limit(limits=1, user_api="blas"):
            X = self._validated(X, reset=True)
            k, random = self._num_components(X, min(X.shape)), check_random_state(self.random_state)
            model = self._started(X, k, random)
            in_turn = np.arange(X.shape[0])
            order = random.permutation(len(in_turn))
            given = _dense(X, order[:ROWS_AT_ONCE])
            some = model.units.relative(given)
            total, least = measure_variances(some, k)
            rate = self._rate(model, total, least)
            per_update = self._rows_per_update(k)
            basis = model.components
            # A rule without a learning rate would count every row again in a second pass.
            passes = int(self.passes) if RULES[self.rule].needs_learning_rate else 1
            for index in range(passes):
                order = random.permutation(len(in_turn)) if index else order
                state, basis = self._advanced(model, X, order, rate, per_update)
                model = model._replace(state=state)
            mean = model.state.running
            once = mean._replace(rows_seen=mean.rows_seen // mean.rows_seen.dtype.type(passes))
            model = model._replace(state=model.state._replace(running=once))
            # Compute the exact variances of all rows within the span.
            moments, components = model.moments, basis
            for chosen in _blocks(in_turn, 1):
                rows = model.units.relative(_dense(X, chosen))
                moments, components = take_in(moments, components, basis, rows, fading=0.0)
            self._accept(model._replace(moments=moments, components=components))
            if least * model.units.squared > measure_rounding(given, k) ** 2:
                # The first rows may lack what is large in others.
                self._warn_of_small(k, least / max(total, moments.total_variance, TINY))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue with a batch [n_samples >= 1, n_features], in the order of its rows.

        Raises:
            ValueError, TrainingDivergedError: As ``fit``.
            TypeError: For a sparse batch.
        """
        if sparse.issparse(X):
            name = type(self).__name__
            raise TypeError(
                f"{name}.partial_fit does not support sparse input. Either convert data to dense "
                f"or use {name}.fit to do so in batches."
            )
        with _threads().limit(limits=1, user_api="blas"):
            model: Model | None = getattr(self, "_model", None)
            X = self._validated(X, reset=model is None)
            k = self._num_components(X, min(X.shape) if model is None else len(model.components))
            if model is None:
                model = self._started(X, k, check_random_state(self.random_state))
            began = {"rule": model.rule, "n_components": len(model.components)}
            now = {"rule": self.rule, "n_components": k}
            require(began == now, f"what the stream began with, {began} (fit starts anew)", now)
            model = model.in_units(model.units.grown(X))
            rows = model.units.relative(X)
            # A rule without a learning rate weighs all rows equally.
            fading = FADING if RULES[self.rule].needs_learning_rate else 0.0
            old = model.components
            grown, _ = take_in(model.moments, old, old, rows, fading)
            least = float(grown.variances[-1])
            if model.moments.rows_seen == 0:
                least = measure_variances(rows[:ROWS_AT_ONCE], k)[1]
            rate = self._rate(model, grown.total_variance, least)
            # Incremental PCA takes the whole batch, as in scikit-learn, if no size is given.
            whole = self.rule == "incremental_pca" and self.batch_size is None
            per_update = len(X) if whole else self._rows_per_update(k)
            state, basis = self._advanced(model, X, np.arange(len(X)), rate, per_update)
            moments, components = take_in(model.moments, old, basis, rows, fading)
            self._accept(model._replace(state=state, moments=moments, components=components))
        return self

    def get_precision(self) -> DoubleArray:
        """Return the inverse of ``get_covariance``, [features, features].

        scikit-learn's own method divides by zero where a component has less variance than the
        noise, as before a rule has converged.
        """
        noise = self.noise_variance_
        if not noise:
            precision: DoubleArray = super().get_precision()
            return precision
        beyond = np.maximum(self.explained_variance_ - noise, 0.0)
        along: DoubleArray = (self.components_.T * (beyond / (beyond + noise))) @ self.components_
        return (np.eye(len(along)) - along) / noise

    # Log-likelihoods under probabilistic PCA, by scikit-learn's own methods.
    score_samples = PCA.score_samples
    score = PCA.score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, X: Any, *, reset: bool) -> DenseOrSparse:
        require_unmasked("X", X)
        array: DenseOrSparse = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset
        )
        return array

    def _num_components(self, X: DenseOrSparse, most: int) -> int:
        """Check all parameters for an array or batch, and return k; None is ``most``."""
        self._validate_params()
        k = most if self.n_components is None else int(self.n_components)
        per_update, least = self._rows_per_update(k), RULES[self.rule].least_rows_per_update(k)
        learned = f"for {k} components by {self.rule}"
        enough = f"batch_size >= {least} {learned}, or a rule that learns from single rows"
        require(per_update >= least, enough, per_update)
        require(X.shape[0] >= least, f"at least {least} rows at once {learned}", X.shape[0])
        return k

    def _rows_per_update(self, k: int) -> int:
        return int(self.batch_size or RULES[self.rule].usual_rows_per_update(k))

    def _started(self, X: DenseOrSparse, k: int, random: np.random.RandomState) -> Model:
        """Return the model before its first row."""
        units = Units.of(_dense(X, np.arange(1))[0], X)
        rule = centred_rule(self.rule, X.shape[1], k, PowerDecay(1.0, float(self.power)))
        state = jax.device_get(_start(rule, jnp.uint32(random.randint(np.iinfo(np.int32).max))))
        components = np.zeros((k, X.shape[1]))
        return Model(self.rule, units, state, no_moments(X.shape[1], k), components)

    def _warn_of_small(self, k: int, share: float) -> None:
        """Warn of a k-th component with a share of the variance that the rule may not find."""
        least = _RESOLVED_SHARE * float(np.finfo(jnp.zeros(()).dtype).eps) ** 2
        what, remedy = "updates do not resolve", "scale the columns alike"
        if self.learning_rate is None and RULES[self.rule].needs_learning_rate:
            what = f"{self.rule} may not find at its default learning rate"
            least, remedy = LEAST_SHARE / k, f"{remedy}, or take rule='incremental_pca'"
        # All components always include the smallest.
        if self.n_components is not None and share < least:
            said = f"component {k} has {share:.1e} of the total variance, which {what}"
            warn_user(f"{said}: {remedy}")

    def _rate(self, model: Model, total_variance: float, least: float) -> PowerDecay:
        """Return the learning rate, given the total variance and the k-th component's variance.

        All three are in the units of the model.
        """
        (k, features), power = model.components.shape, float(self.power)
        if self.learning_rate is not None:
            return PowerDecay(float(self.learning_rate) * model.units.squared, power)
        # Rows without variance are all zero after centring and change nothing at any learning rate.
        total = total_variance if total_variance > TINY else 1.0
        along = max(least, LEAST_SHARE * total / k)
        if self.rule == "implicit_krasulina":
            squared_length = features * INITIAL_SCALE**2
            return PowerDecay(RELATIVE_TO_OTHERS * RELATIVE_RATE * squared_length / along, power)
        largest = LARGEST_RATES.get(self.rule, LARGEST_RATE) / total
        return PowerDecay(RELATIVE_RATE / along, power, largest)

    def _advanced(
        self,
        model: Model,
        rows: DenseOrSparse,
        order: IndexArray,
        rate: PowerDecay,
        per_update: int,
    ) -> tuple[Any, DoubleArray]:
        """Return the rule's state and its span's basis [k, features] after updates on some rows.

        Raises:
            TrainingDivergedError: If the outcome is not finite.
        """
        k, features = model.components.shape
        rule = centred_rule(self.rule, features, k, rate)
        least = RULES[self.rule].least_rows_per_update(k)
        state, components = model.state, model.components.T
        dtype = state.running.value.dtype
        for chosen in _blocks(order, per_update, least):
            given: Any = model.units.relative(_dense(rows, chosen)).astype(dtype)
            state, latest, finite = _advance(rule, state, given, per_update, least)
            components = np.asarray(latest, np.float64)
            require_finite(finite, self.rule, int(state.step))
        return jax.device_get(state), np.linalg.qr(components)[0].T

    def _accept(self, model: Model) -> None:
        moments, mean, units = model.moments, model.state.running, model.units
        self._model = model
        shift = mean.value.astype(np.float64) + mean.remainder
        self.mean_ = units.origin + units.unit * shift
        self.components_ = model.components
        self.n_components_ = len(model.components)
        self.n_samples_seen_ = moments.rows_seen
        self.explained_variance_ = units.squared * moments.variances
        total = moments.total_variance
        self.explained_variance_ratio_ = moments.variances / (total if total > 0.0 else 1.0)
        k, features = model.components.shape
        self.singular_values_ = np.sqrt(self.explained_variance_ * max(moments.rows_seen - 1, 0))
        directions = min(moments.rows_seen, features) - k
        beyond = max(total - float(moments.variances.sum()), 0.0)
        self.noise_variance_ = units.squared * beyond / directions if directions > 0 else 0.0


@jit
def _start(rule: Centred, seed: Array) -> Any:
    return rule.init(jax.random.key(seed))


@functools.partial(jit, static_argnums=(3, 4))
def _advance(
    rule: Centred, state: Any, rows: Array, per_update: int, least: int
) -> tuple[Any, Array, Array]:
    """Update on rows [n, features]; the last update may have another number of rows."""
    left = len(rows) % per_update
    whole = len(rows) - left
    if 0 < left < least:
        whole = max(whole - per_update, 0)
    if whole:
        state = scan_updates(rule, state, rows[:whole], per_update)
    if whole < len(rows):
        state = rule.update(state, rows[whole:])
    components = rule.components(state)
    return state, components, all_finite((state, components))


def _dense(rows: DenseOrSparse, chosen: IndexArray) -> npt.NDArray[np.floating[Any]]:
    """Return some rows, [len(chosen), features], as an array."""
    some = rows[chosen]
    array: npt.NDArray[np.floating[Any]] = some if isinstance(some, np.ndarray) else some.toarray()
    return array


def _blocks(order: IndexArray, per_update: int, least: int = 1) -> Iterator[IndexArray]:
    """Split an order of rows into parts of whole updates; only the last may end with a shorter one.

    A last part of fewer than ``least`` rows joins the part before it.
    """
    length = per_update * max(ROWS_AT_ONCE // per_update, 1)
    begin = 0
    while begin < len(order):
        end = begin + length
        end = len(order) if len(order) - end < least else end
        yield order[begin:end]
        begin = end


@functools.cache
def _threads() -> Any:
    """Return the controller of OpenBLAS's threads; finding it is slower than an update."""
    return ThreadpoolController()
