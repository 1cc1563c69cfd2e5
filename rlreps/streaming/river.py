"""Streaming principal component analysis as a river transformer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.errors import require, require_choice
from rlreps.numerics import jit
from rlreps.streaming.centring import Centred, centred_rule
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import PowerDecay

try:
    from river.base import Transformer
except ImportError as error:
    raise ImportError(
        "expected river >= 0.21 for RiverPCA, got none: pip install 'rlreps[river]'"
    ) from error


class RiverPCA(Transformer):  # type: ignore[misc, unused-ignore]
    """Principal component analysis of a river stream, by any rule of ``rlreps.streaming``.

    The first row that is learned fixes the names of the features. In later rows a missing feature
    counts as 0, as elsewhere in river, and a new feature is ignored. A running mean is subtracted.
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
        self._state: Any = None
        self.mean_ = np.zeros(0, np.float32)
        self.components_ = np.zeros((n_components, 0), np.float32)

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Update with a row, feature → number."""
        if self._state is None:
            names = list(x)
            self._state = self._centred(len(names)).init(jax.random.key(self.seed))
            self._names = names
            self.components_ = np.zeros((self.n_components, len(names)), np.float32)
        rule = self._centred(len(self._names))
        self._state, mean, components = _learned(rule, self._state, jnp.asarray(self._row(x)[None]))
        found = np.asarray(components).T
        signs = np.where(np.sum(found * self.components_, axis=1) < 0.0, -1.0, 1.0)
        self.mean_, self.components_ = np.asarray(mean), found * signs[:, None].astype(found.dtype)

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """Return the coordinates of a row along the components, by number; 0 before any row."""
        coordinates = self.components_ @ (self._row(x) - self.mean_)
        return dict(enumerate(coordinates.tolist()))

    def _centred(self, num_inputs: int) -> Centred:
        rate = PowerDecay(self.learning_rate, self.power)
        return centred_rule(self.rule, num_inputs, self.n_components, rate)

    def _row(self, x: dict[Any, Any]) -> np.ndarray:
        return np.array([x.get(name, 0.0) for name in self._names], np.float32)


@jit
def _learned(rule: Centred, state: Any, batch: Array) -> tuple[Any, Array, Array]:
    """Update a state; return it, the mean and the components, [features, k]."""
    state = rule.update(state, batch)
    return state, state.mean, rule.components(state)
