"""The contract of an objective (a loss), and the parts that objectives share.

``losses/__init__.py`` registers objectives by name.

Symbols used across this package: φ features [b, d], ψ targets [b, t] from the matrix Ψ, Ĉ an
estimate of the inverse covariance (E φφᵀ)⁻¹ [d, d], ŵ = Ĉ E[φψ] the least-squares weights [d, t].

The population loss is L(Φ) = min_W E‖φ(s)ᵀW − ψ(s)‖². Its minimisers span the top-d left singular
subspace of Ψ. Its gradient is W*(φᵀW* − ψ) at the minimising W* (Le Lan et al. 2023, Lemma 1).
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import name_of, size
from rlreps.errors import InputError, require
from rlreps.numerics import num_rows

Params: TypeAlias = Any
Metrics: TypeAlias = dict[str, Array]
Encode: TypeAlias = Callable[[Params, Any], Array]
"""(params, inputs) → features [b, d]; inputs are a pytree of arrays [b, ...]."""


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """A representation objective and its configuration.

    Subclasses are configurable dataclasses; their fields are their options.

    Attributes:
        num_features: d.
        title: The objective's name as papers write it.
        live: Whether the objective can learn from a source whose tasks never repeat.
    """

    num_features: int = size(10)

    title: ClassVar[str] = "objective"
    live: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        # Every objective, the user's own included, is checked here, however its loss is called.
        super().__init_subclass__(**options)
        if "loss" in vars(cls):
            setattr(cls, "loss", _checked(vars(cls)["loss"]))  # noqa: B010 (mypy: no assignment)

    @property
    def name(self) -> str:
        """The class's name as options and files spell it."""
        return name_of(type(self))

    @property
    def label(self) -> str:
        """The title with the options that tables must show beside it."""
        return self.title

    @property
    def needs_population(self) -> bool:
        """True if a batch must bring all states."""
        return False

    @property
    def needs_clips(self) -> bool:
        """True if the rows of a batch must be pairs or clips of states of an episode."""
        return False

    def init(self, key: Array) -> Any:
        """Return the state before the first update; stateless objectives carry ``()``."""
        return ()

    @abc.abstractmethod
    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute (scalar, (state, metrics)), for ``jax.grad(..., has_aux=True)`` in ``params``.

        Metrics are arrays by name; a run logs their means.

        Only the scalar's gradient matters for training. Unless the objective says otherwise, the
        scalar is half the mean squared residual under the weights that the gradient used. Every
        subclass's ``loss`` receives 16-bit features as float32.

        Raises:
            InputError: If inputs, targets, tasks and population disagree in rows or columns, or if
                the subclass returns another kind of value.
        """

    def require_rows(self, rows: int) -> None:
        """Raise an ``InputError`` unless the objective can use a batch of this many rows."""
        del rows  # Any number is allowed, unless a subclass needs more.

    def features(self, params: Params, encode: Encode, inputs: Any) -> Array:
        """Encode inputs [b, ...]; raise an ``InputError`` unless features are [b, num_features]."""
        features, expected = encode(params, inputs), (num_rows(inputs), self.num_features)
        require(
            features.shape == expected,
            f"an encoder of {self.num_features} features for {type(self).__name__}, "
            f"features of shape {expected}",
            features.shape,
        )
        return features

    def at_all_states(self, params: Params, encode: Encode, batch: Batch) -> tuple[Array, Array]:
        """Encode every state, as a constant: features [n, d] and targets [n, t].

        Raises:
            InputError: If the batch has no population.
        """
        if batch.population is None:
            raise InputError("expected a batch with its population, got population=None")
        inputs, targets = batch.population
        return self.features(lax.stop_gradient(params), encode, inputs), targets


def _checked(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a subclass's ``loss``: check the shapes of its arguments and results."""

    @functools.wraps(loss)
    def checked(
        self: Objective, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        _require_matching(batch)
        found: Any = loss(self, params, in_single_precision(encode), batch, state, key)
        pair = isinstance(found, tuple) and len(found) == 2
        whole = pair and isinstance(found[1], tuple) and len(found[1]) == 2
        expected = f"{type(self).__name__}.loss to return (scalar, (state, metrics))"
        said = f"a pair with a {type(found[1]).__name__}" if pair else type(found).__name__
        require(whole, expected, said)
        value, others = found
        require(jnp.shape(value) == (), expected, f"a value of shape {jnp.shape(value)}")
        kind = type(others[1]).__name__
        require(isinstance(others[1], Mapping), f"{expected}, metrics by name", f"a {kind}")
        return value, others

    return checked


def _require_matching(batch: Batch) -> None:
    """Raise an ``InputError`` unless the parts of a batch agree in rows and tasks."""
    rows, shape = _checked_rows(batch.inputs), jnp.shape(batch.targets)
    require(rows >= 1, "a batch of at least one row", rows)
    fits = len(shape) == 2 and shape[0] == rows
    require(fits, f"targets [b, t] for {rows} rows of inputs", shape)
    columns = shape[1:]
    if batch.tasks is not None:
        of_tasks = jnp.shape(batch.tasks)
        require(of_tasks == columns, f"tasks {columns}, one for each column", of_tasks)
    if batch.population is not None:
        expected = (_checked_rows(batch.population.inputs), *columns)
        of_all = jnp.shape(batch.population.targets)
        require(of_all == expected, f"a population's targets {expected}", of_all)


def _checked_rows(inputs: Any) -> int:
    """Return b; raise an ``InputError`` unless inputs are a pytree of arrays [b, ...]."""
    found = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(inputs)}
    rows = sorted(shape[0] if shape else 0 for shape in found)
    require(len(rows) == 1, "inputs whose arrays have the same number of rows", rows)
    return rows[0]


def in_single_precision(encode: Encode) -> Encode:
    """Wrap an encoder so that 16-bit features come as float32.

    Covariances and their inverses need more digits than 16 bits hold, and LAPACK has no 16-bit
    routines. Gradients of the features keep the features' own type.
    """

    def encode_wider(params: Params, inputs: Any) -> Array:
        features = encode(params, inputs)
        half = jnp.issubdtype(features.dtype, jnp.floating) and features.dtype.itemsize == 2
        return features.astype(jnp.float32) if half else features

    return encode_wider


def require_tasks(targets: Array) -> None:
    """Raise an ``InputError`` for targets [b, t] with no columns, whose mean would be NaN."""
    require(targets.shape[1] >= 1, "targets with at least one task column", targets.shape[1])


def with_gradient_of(surrogate: Array, value: Array) -> Array:
    """Return a value, [], with the gradient of a surrogate."""
    # Subtracting the surrogate from itself leaves its gradient and adds zero to the value. The
    # subtraction comes first: adding a large surrogate to the value would lose the value's digits.
    return lax.stop_gradient(value) + (surrogate - lax.stop_gradient(surrogate))
