"""Streaming principal component analysis as a river transformer."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import require, require_choice
from rlreps.numerics import all_finite, jit
from rlreps.streaming.centring import (
    MOST_GROWTH,
    Centred,
    Units,
    centred_rule,
    require_finite,
)
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import PowerDecay
from rlreps.typing import DoubleArray

try:
    from river.base import Transformer
except ImportError as error:
    raise ImportError(
        "expected river >= 0.21 for RiverPCA, got none: pip install 'rlreps[river]'"
    ) from error


class RiverPCA(Transformer):  # type: ignore[misc, unused-ignore]
    """Principal component analysis of a river stream, by any rule of ``rlreps.streaming``.

    The first row that is learned fixes the names of the features; the order of its keys changes
    nothing but the order of ``components_`` and ``mean_``. In later rows a missing feature counts
    as 0, as elsewhere in river, and a new feature is ignored. A value that is no finite number
    raises an ``InputError``, and leaves the model as it was. A running mean is subtracted.
    Components keep their signs from row to row.

    Args:
        n_components: k.
        rule: One of ``rlreps.streaming.RULES`` that learns from single rows. Incremental PCA needs
            no learning rate.
        learning_rate: η0 of η_t = η0 / t^power at row t, for rules with a learning rate; for most
            of them in units of one over a variance.
        power: Exponent of the learning rate's decay; 0 keeps the rate, for drifting components.
        seed: Seed of the random start.

    Raises:
        InputError: For an unknown rule, or one that needs several rows (EigenGame); when the first
            row is learned, for more components than features.
    """

    def __init__(
        self,
        n_components: int = 2,
        rule: str = "incremental_pca",
        learning_rate: float = 0.1,
        power: float = 0.8,
        seed: int = 0,
    ) -> None:
        require_choice("rule", rule, list(RULES))
        single = RULES[rule].least_rows_per_update(n_components) == 1
        require(single, "a rule that learns from single rows", rule)
        self.n_components, self.rule, self.seed = n_components, rule, seed
        self.learning_rate, self.power = learning_rate, power
        self._names: list[Any] = []
        self._places: list[int] = []
        self._units = Units(np.zeros(0))
        self._state: Any = None
        self._mean, self._components = np.zeros(0), np.zeros((n_components, 0), np.float32)

    @property
    def mean_(self) -> DoubleArray:
        """Mean of all rows, in the order of the first row's features, [features]."""
        return self._mean[self._places]

    @property
    def components_(self) -> npt.NDArray[np.floating[Any]]:
        """Components as rows, in the order of the first row's features, [k, features]."""
        return self._components[:, self._places]

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Update with a row, feature → number.

        Raises:
            InputError: For a row with a value that is no finite number, or is above 10¹⁵ and above
                10¹⁵ times the largest so far; the model stays as it was, as after the next error.
            TrainingDivergedError: If the outcome is not finite.
        """
        # Sorted: neither the random start nor rounding depends on the order of a row.
        names = self._names or sorted(x, key=repr)
        row = _row(names, x)
        state, before = self._state, self._components
        if state is None:
            units = Units.of(row, row[None], MOST_GROWTH)
        else:
            units = self._units.grown(row[None])
        rate = PowerDecay(self.learning_rate * units.squared, self.power)
        rule = centred_rule(self.rule, len(names), self.n_components, rate)
        if state is None:
            state = rule.init(jax.random.key(self.seed))
            before = np.zeros((self.n_components, len(names)), np.float32)
        given = jnp.asarray(units.relative(row[None]).astype(state.running.value.dtype))
        factor = given.dtype.type(self._units.unit / units.unit)
        state, shift, components, finite = _learned(rule, state, given, factor)
        require_finite(finite, self.rule, int(state.step))
        if self._state is None:
            self._names, self._places = names, [names.index(name) for name in x]
        latest = np.asarray(components).T
        signs = np.where(np.sum(latest * before, axis=1) < 0.0, -1.0, 1.0)
        self._units, self._state = units, state
        self._mean = units.origin + units.unit * np.asarray(shift, np.float64)
        self._components = latest * signs[:, None].astype(latest.dtype)

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """Return the coordinates of a row along the components, by number; 0 before any row.

        Raises:
            InputError: For a value that is no finite number.
        """
        coordinates = self._components @ (_row(self._names, x) - self._mean)
        return dict(enumerate(coordinates.tolist()))


def _row(names: Sequence[Any], x: dict[Any, Any]) -> DoubleArray:
    """Return a row's values by name, 0 for a missing one."""
    values = {name: x.get(name, 0.0) for name in names}
    bad = {name: value for name, value in values.items() if not _is_number(value)}
    require(not bad, "finite numbers", bad)
    return np.array([*values.values()], np.float64)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


@jit
def _learned(
    rule: Centred, state: Any, batch: Array, factor: Array
) -> tuple[Any, Array, Array, Array]:
    """Update a state; return it, the mean, the components [features, k] and if all is finite.

    The state of earlier rows is first multiplied by a factor [], their unit over the batch's.
    """
    state = rule.update(state.scaled(factor), batch)
    components = rule.components(state)
    return state, state.mean, components, all_finite((state, components))
