"""Action values with which an agent begins.

Q(s, a) = prior(s, a) + learned(s, a). The last layer of the learned part starts at 0,
so an agent begins with the greedy policy of its prior and learns corrections from its own steps. A
prior of a successor representation makes this policy the representation's policy for a task
(``SuccessorRepresentation.policy``).
"""

import math
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.agents.features import UNUSED, fitted_features, number_observations
from rlreps.errors import InputError, require, require_positive, require_value
from rlreps.losses.base import Params
from rlreps.numerics import as_inputs
from rlreps.successor.fitting.basis import FourierBasis, UnitVectors
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.fitting.rewards import Task

_BELOW = 0.01
"""Distance of untried actions below the smallest value, as a share of the range of values."""


class Prior(NamedTuple):
    """Action values that no gradient changes; a pytree.

    Priors of several agents are one ``Prior`` whose leaves have a leading seed axis.

    Attributes:
        parts: Tables; the smallest of their values counts.
        elsewhere: Added to all values; the value at an observation that no table holds, [].
        discount: γ of the values, [].
    """

    parts: tuple[Params, ...]
    elsewhere: Any
    discount: Any

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.parts[0]["weights"].shape[-1])

    def values(self, observations: Array) -> Array:
        """Compute action values [b, a] at observations [b, ...]."""
        seen = as_inputs(observations).reshape(len(observations), -1)
        values = [fitted_features(part, seen) for part in self.parts]
        least: Array = jnp.min(jnp.stack(values), axis=0)
        shifted: Array = least + self.elsewhere
        return shifted


def make_value_table(states: np.ndarray, values: np.ndarray, size: int = 0) -> Params:
    """Make one of the ``parts`` of a ``Prior`` from the action values of numbered observations.

    Args:
        states: Their numbers (``number_observations``), all different, [n].
        values: Their action values, less ``Prior.elsewhere``, [n, a].
        size: Rows of the table, if more than n; the other rows are unused. Tables of one size have
            the same shapes, so that one agent may use one after the other.
    """
    require_positive("size", size, least=0)
    order, rest = np.argsort(states, kind="stable"), max(size - len(states), 0)
    return {
        "states": np.pad(states[order], (0, rest), constant_values=UNUSED),
        "weights": np.pad(values[order], [(0, rest), (0, 0)]),
    }


def prior_of(
    representation: SuccessorRepresentation,
    task: Task,
    improvements: int | None = None,
    *,
    observations: Any = None,
    scale: float = 1.0,
    shift: float = 0.0,
) -> Prior:
    """Make a prior of a representation's action values for a task.

    Its greedy policy is ``representation.policy(task, improvements)``, for vectors if the data's
    policy does not depend on the state: the prior does not leave out actions of vectors that the
    data do not support. For indices of states, an action that was not tried in a state has a value
    just below all other values. A state in which no transition starts has the mean value of the
    others, for all actions.

    Args:
        representation: A fit by least squares, with discrete actions that all occur in its data and
            the agent's discount.
        task: The reward.
        improvements: As for ``policy``.
        observations: What the agent sees in each state, [n, ...], for a fit to indices of states.
            Observations of other states have the mean value too.
        scale: Factor of the values, such as the agent's ``reward_scale``.
        shift: Added to the scaled values.

    Raises:
        InputError: For another kind of fit, actions that do not occur, or ``observations`` that are
            missing, equal in two states or do not fit, or a scale or shift that is not finite.
    """
    for name, value in (("scale", scale), ("shift", shift)):
        require(math.isfinite(value), f"a finite {name}", value)
    solution = representation.solution
    count = require_value(representation.observed.num_actions, "discrete actions", "a box")
    taken = np.unique(solution.rows.action)
    require(len(taken) == count, f"transitions with all {count} actions", taken.tolist())
    values = representation.improved_values(task, improvements)
    found = [(part.basis, weights) for part, weights in values.parts]
    shift += scale * values.constant
    discount = np.float32(representation.config.discount)
    basis = found[0][0]
    if isinstance(basis, UnitVectors):
        require(
            observations is not None and len(observations) == basis.num_features,
            f"observations= of all {basis.num_features} states",
            None if observations is None else np.shape(observations),
        )
        seen: Any = np.asarray(observations)
        assert solution.known is not None  # Unit vectors count indices of states.
        table, mean = _table(seen, scale * found[0][1], solution.known.pairs)
        return Prior((table,), np.float32(mean + shift), discount)
    if not isinstance(basis, FourierBasis):
        raise InputError(f"expected a fit by least squares, got {type(basis).__name__}")
    require(observations is None, "no observations= for a fit to vectors", np.shape(observations))
    # Draws of random features have one class.
    parts = [
        {**cast(FourierBasis, each).single(), "weights": scale * weights} for each, weights in found
    ]
    return Prior(tuple(parts), np.float32(shift), discount)


def _table(seen: Any, values: np.ndarray, tried: np.ndarray) -> tuple[Params, np.float32]:
    """Make a table of the values [n, a] of counted states, seen as [n, ...], less their mean.

    ``tried`` [n, a] masks the actions that rows took.
    """
    known = values[tried]
    low, high, mean = float(known.min()), float(known.max()), float(known.mean())
    values = np.where(tried, values, low - _BELOW * (high - low))
    known_states = tried.any(axis=1, keepdims=True)
    values = np.where(known_states, values - mean, 0.0).astype(np.float32)
    states = number_observations(seen)
    different = len(np.unique(states))
    require(different == len(states), f"{len(states)} different observations", different)
    return make_value_table(states, values), np.float32(mean)
